"""`python -m stream_dp.audit --repeat 20`: whole audits with different seeds; one line each, then what went wrong."""

import argparse
import sys
import time
from collections.abc import Sequence

from stream_dp.audit.catalogue import audit, pairs
from stream_dp.audit.examine import Pair


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if no correct mechanism was flagged and every control was caught in every repetition."""
    parser = argparse.ArgumentParser(prog="python -m stream_dp.audit", description=__doc__)
    parser.add_argument("--repeat", type=int, default=20, help="how many audits (default 20)")
    parser.add_argument(
        "--first", type=int, default=1, help="seed of the first; the others follow (default 1)"
    )
    parser.add_argument("--mechanism", action="append", default=[], help="only this one; may be repeated")
    chosen = parser.parse_args(arguments)
    all_pairs = pairs(chosen.mechanism)
    if not all_pairs or chosen.repeat < 1:
        parser.error("nothing to do: name a mechanism that exists and repeat at least once")
    wrong = 0
    for number in range(chosen.first, chosen.first + chosen.repeat):
        wrong += _once(all_pairs, number)
    print(f"{chosen.repeat} audits of {len(all_pairs)} pairs: {wrong} wrong verdicts")
    return 1 if wrong else 0


def _once(all_pairs: Sequence[Pair], number: int) -> int:
    """Run one audit and print its line; the number of wrong verdicts."""
    started = time.monotonic()
    findings = list(audit(all_pairs, number.to_bytes(16, "big")))
    controls = [finding for finding in findings if finding.pair.control]
    correct = [finding for finding in findings if not finding.pair.control]
    caught, flagged = sum(f.flagged for f in controls), sum(f.flagged for f in correct)
    closest = max((f.bound.epsilon / f.pair.epsilon for f in correct), default=0.0)
    print(
        f"seed {number}: {flagged} of {len(correct)} correct pairs flagged (closest bound {closest:.0%} of its "
        f"claim), {caught} of {len(controls)} controls caught, {time.monotonic() - started:.0f} s",
        flush=True,
    )
    wrong = [finding for finding in findings if not finding.as_expected]
    for finding in wrong:
        print(f"  WRONG {finding.report()}", flush=True)
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
