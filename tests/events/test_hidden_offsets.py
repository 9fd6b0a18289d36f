"""Offsets that nobody reads without the key, and whose size tells nothing."""

from stream_dp.events.barrier_chain import Barrier, named
from stream_dp.events.hidden_offsets import Offsets, hide, reveal

KEY, LARGEST = bytes(range(32)), 2**63 - 1


def test_only_who_has_the_key_reads_them_and_large_ones_take_no_more_room() -> None:
    sizes = set()
    for offset in (0, 4_711, LARGEST):
        ends = (offset,) * 1_000
        for barrier in (
            None,
            Barrier("f" * 32, offset, offset, offset, offset, named(ends), named(ends), "f" * 32),
        ):
            place = Offsets(ends, barrier)
            hidden = hide(place, KEY, "end of x")
            assert reveal(hidden, KEY, "end of x") == place
            assert hide(place, KEY, "end of x") != hidden, "equal offsets would show"
            for other in ((bytes(32), "end of x"), (KEY, "end of y")):
                assert reveal(hidden, *other) is None
            assert reveal(bytes([hidden[0] ^ 1]) + hidden[1:], KEY, "end of x") is None
            sizes.add(len(hidden))
    assert reveal(b"", KEY, "end of x") is None
    assert len(sizes) == 1
