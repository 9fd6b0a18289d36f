"""The flights that the demo reads are those of the package that they are said to be of."""

import lzma

from stream_dp.dev.flights import FLIGHTS, flight_events
from tests.flights import flights


def test_the_file_is_what_its_command_writes() -> None:
    assert lzma.decompress(FLIGHTS.read_bytes()).decode() == flights()


def test_they_are_read_from_any_of_them_on() -> None:
    whole = [*flight_events()]
    assert len(whole) == 336_776
    assert whole[0] == (b'{"items":["dest:IAH","carrier:UA","route:EWR-IAH"],"ts":"2013-01-01T10:15:00Z"}')
    assert [*flight_events(336_000)] == whole[336_000:]
