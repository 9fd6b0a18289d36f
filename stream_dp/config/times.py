"""Times as people write them: one rule for commands, requests, files and pages."""

from datetime import UTC, datetime, timedelta
from functools import lru_cache

SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}
"""What the units of spans such as 90s, 5m, 1h and 7d stand for."""

_START = datetime(1970, 1, 1, tzinfo=UTC)
LATEST_TIMESTAMP = 253_402_300_799_999
"""The last millisecond of the year 9999."""


def parse_time(text: str) -> datetime:
    """The moment of an ISO 8601 time; one without a zone is UTC, and a day is its first moment.

    Digits alone are no time: where a time may stand, an offset or a round may too.  Raises ValueError.

    >>> parse_time("2026-01-31T12:00:00")
    datetime.datetime(2026, 1, 31, 12, 0, tzinfo=datetime.timezone.utc)
    """
    if text.isdigit():
        raise ValueError(f"{text!r} is not a time")
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def milliseconds(moment: datetime) -> int:
    """Whole milliseconds since 1970, below 0 before; Kafka counts so.

    >>> milliseconds(parse_time("2026-01-31T12:00:00Z"))
    1769860800000
    """
    return (moment - _START) // timedelta(milliseconds=1)


def moment_of(milliseconds: int) -> datetime:
    """The moment so many milliseconds after 1970, exactly.

    >>> moment_of(1_700_000_000_123).isoformat()
    '2023-11-14T22:13:20.123000+00:00'
    """
    return _START + timedelta(milliseconds=milliseconds)


def clock() -> int:
    """The time of this machine's clock, in milliseconds since 1970."""
    return milliseconds(datetime.now(UTC))


def now() -> str:
    """The time of this machine's clock, in UTC to the second: "2026-01-31T12:00:00Z"."""
    return iso_second(clock())


def iso_timestamp(milliseconds: int) -> str:
    """A broker's timestamp (milliseconds since 1970) as ISO 8601 in UTC, within the years 1970 to 9999.

    >>> iso_timestamp(1769860800123)
    '2026-01-31T12:00:00.123Z'
    """
    milliseconds = _within_range(milliseconds)
    return f"{_second(milliseconds // 1000)}.{milliseconds % 1000:03d}Z"


def iso_second(milliseconds: int) -> str:
    """UTC in ISO 8601, to the second.

    >>> iso_second(1769860800123)
    '2026-01-31T12:00:00Z'
    """
    return f"{_second(_within_range(milliseconds) // 1000)}Z"


def _within_range(milliseconds: int) -> int:
    return min(max(milliseconds, 0), LATEST_TIMESTAMP)


@lru_cache(maxsize=1024)
def _second(second: int) -> str:
    return f"{datetime.fromtimestamp(second, UTC):%Y-%m-%dT%H:%M:%S}"
