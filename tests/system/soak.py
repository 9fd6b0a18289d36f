"""How much the tests kill, flip and feed, which `make soak` raises (tests/soak.py)."""

import os

KILLS, BITS, RECORDS, SPARK_KILLS = (
    "CRASH_TEST_KILLS",
    "FLIPPED_BITS",
    "FOREIGN_TEST_RECORDS",
    "SPARK_TEST_KILLS",
)
"""The environment variables that hold these numbers."""

_IN_EVERY_RUN = {KILLS: 12, BITS: 150, RECORDS: 6_000, SPARK_KILLS: 5}


def soaks() -> bool:
    """Whether this is `make soak`, for which any of the numbers is set."""
    return any(name in os.environ for name in _IN_EVERY_RUN)


def kills() -> int:
    """How many workers the test that kills at random times kills."""
    return _number(KILLS)


def spark_kills() -> int:
    """How many processes of a stream on Apache Spark are killed."""
    return _number(SPARK_KILLS)


def bits() -> int:
    """How many bits the test flips that reads what a start reads, in one process."""
    return _number(BITS)


def foreign_records() -> int:
    """How many records of a foreign shape the test of them feeds, a third of them broken."""
    return _number(RECORDS)


def _number(name: str) -> int:
    return int(os.environ.get(name, _IN_EVERY_RUN[name]))
