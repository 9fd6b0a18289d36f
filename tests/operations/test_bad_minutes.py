"""The line that says that most records of a minute are no events."""

import logging

import pytest

from stream_dp.events.dead_letter import DeadLetter
from stream_dp.operations.bad_minutes import BadMinutes


def letter(reason: str, offset: int) -> DeadLetter:
    return DeadLetter(reason, "orders", 3, offset, b"secret-key", b"secret-value")


def test_a_bad_minute_is_told_once_with_its_commonest_reason(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    minutes = BadMinutes("shop", lambda: now)
    caplog.set_level(logging.WARNING)

    def minute(records: int, *letters: DeadLetter) -> list[str]:
        """What is said at the end of a minute with these records."""
        nonlocal now
        caplog.clear()
        minutes.count(records, letters)
        assert caplog.messages == [], "the minute is not over"
        now += 60
        minutes.count(0, [])
        return caplog.messages

    common = [letter(f"bad - at `$.items[{place}]`", 10 + place) for place in range(4)]
    assert minute(0) == minute(10, *common, letter("other", 9)) == []
    [told] = minute(9, letter("other", 9), *common)
    assert told.startswith(
        "stream shop: 5 of 9 records of the last minute are not events, 4 of them because: bad - at "
        "`$.items[...]`; look at the record at offset 10 of partition 3 of orders"
    )
    assert "secret" not in told
    assert minute(9) == [], "each minute is counted by itself"
