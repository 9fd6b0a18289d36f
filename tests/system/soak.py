"""Kill workers for as long as you like: `python -m tests.system.soak --kills 200`, on both brokers in turn.

The tests are those of every run; only the number of kills at random times is larger.
"""

import argparse
import os
import sys

import pytest

KILLS = "CRASH_TEST_KILLS"
"""Names the environment variable that holds the number of kills at random times."""

IN_EVERY_RUN = 12


def kills() -> int:
    """How many workers the test that kills at random times kills."""
    return int(os.environ.get(KILLS, IN_EVERY_RUN))


def main() -> int:
    """Run the crash tests against each broker; 0 if no round was lost, doubled or changed."""
    arguments = argparse.ArgumentParser(prog="python -m tests.system.soak", description=__doc__)
    arguments.add_argument("--kills", type=int, default=200, help="kills at random times, on each broker")
    arguments.add_argument(
        "--kafka", choices=["embedded", "apache"], action="append", help="only this broker"
    )
    asked = arguments.parse_args()
    os.environ[KILLS] = str(asked.kills)
    status = 0
    for broker in asked.kafka or ["embedded", "apache"]:
        tests = ["tests/system/test_crashes.py", "--kafka", broker, "--timeout", "0", "--verbose"]
        status = status or int(pytest.main(tests))
    return status


if __name__ == "__main__":
    sys.exit(main())
