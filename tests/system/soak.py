"""Kill workers, corrupt their state and feed them broken records, as much as you like.

    python -m tests.system.soak --kills 250
    python -m tests.system.soak --spark-kills 200

The tests are those of every run, on both brokers in turn; only the numbers are larger.
"""

import argparse
import os
import sys

import pytest

KILLS, BITS, RECORDS = "CRASH_TEST_KILLS", "FLIPPED_BITS", "FOREIGN_TEST_RECORDS"
"""Name the environment variables that hold the number of kills at random times, of bits to flip, and of records."""

SPARK_KILLS = "SPARK_TEST_KILLS"
"""Names the one that holds how many processes of a stream on Apache Spark are killed."""

KILLS_IN_EVERY_RUN, BITS_IN_EVERY_RUN, RECORDS_IN_EVERY_RUN, SPARK_KILLS_IN_EVERY_RUN = 12, 150, 6_000, 5


def kills() -> int:
    """How many workers the test that kills at random times kills."""
    return int(os.environ.get(KILLS, KILLS_IN_EVERY_RUN))


def spark_kills() -> int:
    """How many processes of a stream on Apache Spark are killed."""
    return int(os.environ.get(SPARK_KILLS, SPARK_KILLS_IN_EVERY_RUN))


def bits() -> int:
    """How many bits the test flips that reads what a start reads, in one process."""
    return int(os.environ.get(BITS, BITS_IN_EVERY_RUN))


def foreign_records() -> int:
    """How many records of a foreign shape the test of them feeds, a third of them broken."""
    return int(os.environ.get(RECORDS, RECORDS_IN_EVERY_RUN))


def main() -> int:
    """Run the tests against each broker.

    0 if no round was lost, doubled or changed, no flipped bit published, and every broken record accounted for.
    """
    arguments = argparse.ArgumentParser(prog="python -m tests.system.soak", description=__doc__)
    arguments.add_argument("--kills", type=int, default=250, help="kills at random times, on each broker")
    arguments.add_argument("--bits", type=int, default=10_000, help="bits flipped in Redis, on each broker")
    arguments.add_argument(
        "--records", type=int, default=100_000, help="records of a foreign shape, on each broker"
    )
    arguments.add_argument(
        "--kafka", choices=["embedded", "apache"], action="append", help="only this broker"
    )
    arguments.add_argument(
        "--spark-kills",
        type=int,
        default=0,
        help="processes of a stream on Spark to kill instead of all this",
    )
    asked = arguments.parse_args()
    if asked.spark_kills:
        os.environ[SPARK_KILLS] = str(asked.spark_kills)
        return int(pytest.main(["tests/apache_spark/test_stream.py", "--timeout", "0", "--verbose"]))
    os.environ |= {KILLS: str(asked.kills), BITS: str(asked.bits), RECORDS: str(asked.records)}
    names = "crashes", "partitions", "flipped_bits", "foreign_shape"
    files = [f"tests/system/test_{name}.py" for name in names]
    status = 0
    for broker in asked.kafka or ["embedded", "apache"]:
        status = status or int(pytest.main([*files, "--kafka", broker, "--timeout", "0", "--verbose"]))
    return status


if __name__ == "__main__":
    sys.exit(main())
