"""Kill workers and corrupt their state for as long as you like: `python -m tests.system.soak --kills 250`.

The tests are those of every run, on both brokers in turn; only the numbers are larger.
"""

import argparse
import os
import sys

import pytest

KILLS, FLIPS = "CRASH_TEST_KILLS", "CORRUPTION_TEST_FLIPS"
"""Name the environment variables that hold the number of kills at random times, and of bits to flip."""

KILLS_IN_EVERY_RUN, FLIPS_IN_EVERY_RUN = 12, 8


def kills() -> int:
    """How many workers the test that kills at random times kills."""
    return int(os.environ.get(KILLS, KILLS_IN_EVERY_RUN))


def flips() -> int:
    """How many bits the test that flips them flips: at least one in every kind of key."""
    return int(os.environ.get(FLIPS, FLIPS_IN_EVERY_RUN))


def main() -> int:
    """Run the tests against each broker; 0 if no round was lost, doubled or changed, and no flipped bit published."""
    arguments = argparse.ArgumentParser(prog="python -m tests.system.soak", description=__doc__)
    arguments.add_argument("--kills", type=int, default=250, help="kills at random times, on each broker")
    arguments.add_argument("--flips", type=int, default=250, help="bits flipped in Redis, on each broker")
    arguments.add_argument(
        "--kafka", choices=["embedded", "apache"], action="append", help="only this broker"
    )
    asked = arguments.parse_args()
    os.environ |= {KILLS: str(asked.kills), FLIPS: str(asked.flips)}
    files = [f"tests/system/{name}.py" for name in ("test_crashes", "test_partitions", "test_corruption")]
    status = 0
    for broker in asked.kafka or ["embedded", "apache"]:
        status = status or int(pytest.main([*files, "--kafka", broker, "--timeout", "0", "--verbose"]))
    return status


if __name__ == "__main__":
    sys.exit(main())
