"""How accurate running histograms are.  Prints the tables of docs/accuracy.md and says whether they stand there so.

python -m benchmarks.accuracy [section ...]

Noise keys are fixed, so everything but OpenDP's draws comes out the same every time.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from benchmarks.labels_seen import flights, found_at_tests, retail, verses
from benchmarks.noise_and_thresholds import escapes, simulation, theory, thresholds
from benchmarks.other_libraries import jax_privacy, one_shot, tensorflow_privacy
from benchmarks.rate_test import false_passes, rate_test
from tests.shared import NO_INVOICES, RETAIL

PAGE = Path(__file__).parents[1] / "docs" / "accuracy.md"


def main(names: Sequence[str]) -> None:
    """Run the named sections, or all."""
    unknown = sorted(set(names) - set(SECTIONS))
    if unknown:
        sys.exit(f"no section is called {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    if not RETAIL.exists() and (needing := sorted(ON_INVOICES & set(names or SECTIONS))):
        rest = " ".join(name for name in SECTIONS if name not in ON_INVOICES)
        sys.exit(
            f"{NO_INVOICES}; {', '.join(needing)} cannot be measured without them, and the rest can: "
            f"python -m benchmarks.accuracy {rest}"
        )
    page = PAGE.read_text()
    for name in names or SECTIONS:
        told = SECTIONS[name]()
        stands = f"\n{told}\n\n" in page
        print(f"{told}\n\n[{name}: {'as' if stands else 'NOT as'} in docs/accuracy.md]\n", flush=True)


SECTIONS: dict[str, Callable[[], str]] = {
    each.__name__: each
    for each in (
        theory,
        thresholds,
        simulation,
        escapes,
        retail,
        flights,
        verses,
        found_at_tests,
        rate_test,
        false_passes,
        one_shot,
        jax_privacy,
        tensorflow_privacy,
    )
}

ON_INVOICES = {"retail", "found_at_tests", "rate_test", "one_shot"}
"""The sections whose tables are of the retail invoices."""


if __name__ == "__main__":
    main(sys.argv[1:])
