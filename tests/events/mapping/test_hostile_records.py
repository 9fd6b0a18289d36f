"""What a record costs to read by a mapping grows with its size and not faster, in every format."""

from typing import get_args

import pytest

from stream_dp.config.events_section import Format
from stream_dp.events.record import LARGEST_VALUE
from tests.events.hostile_records import HostileRecord
from tests.events.mapping.hostile_records import hostile, readers
from tests.events.test_hostile_records import grows_linearly

FORMATS: tuple[Format, ...] = get_args(Format)
ENDLESS_NUMBER = HostileRecord(b"", b"\x80", b"")


@pytest.mark.parametrize("kind", FORMATS)
def test_no_bytes_make_a_record_cost_more_than_its_size(kind: Format) -> None:
    for read in readers(kind):
        grown = [record for record in hostile(kind) if not grows_linearly(read, record, 8 << 10)]
        assert not grown


@pytest.mark.parametrize("kind", FORMATS)
def test_nor_do_they_up_to_the_largest_that_is_looked_into(kind: Format) -> None:
    for read in readers(kind):
        some = list(hostile(kind))[::17]
        grown = [record for record in some if not grows_linearly(read, record, LARGEST_VALUE // 8 - 1024)]
        assert not grown


def endless_number(value: bytes) -> int:
    """Wrong: a number of as many bytes as a record likes."""
    number = 0
    for place, byte in enumerate(value):
        number |= (byte & 0x7F) << (7 * place)
    return number


def test_a_number_without_end_that_is_read_to_the_end_is_found_out() -> None:
    assert ENDLESS_NUMBER in [*hostile("avro"), *hostile("protobuf")]
    ones = HostileRecord(b"", b"\xff", b"")
    assert not grows_linearly(endless_number, ones, 24 << 10, tries=1)
