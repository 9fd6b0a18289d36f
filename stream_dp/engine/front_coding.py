"""Labels one after the other, each as what it shares with the one before and what it adds: the loops.

Of a label, `coded` has: how many bytes it begins with as the one before does, at most 255, in one byte; how many bytes
follow, in one byte, or if they are 255 or more, in four bytes after a byte of 255; and these bytes.  Every `CHUNK`-th
label shares nothing, and `starts` says where it stands, so that a label is spelt from at most `CHUNK` others.
"""

import numpy as np

from stream_dp.privacy.double_double import compiled

CHUNK = 16
MOST_BESIDE = 6
"""So many bytes a label takes beside its text at most."""

_MOST = 255


@compiled
def encode(text, ends, last, size, coded, used, starts):  # type: ignore[no-untyped-def]
    """Append labels to the `size` ones that there are, whose code takes `used` bytes; returns how many it takes then.

    `ends` says where each label ends in `text`; `last` is the text of the last label that is there.
    """
    before, begin = last, 0
    for i in range(len(ends)):
        own = text[begin : ends[i]]
        begin, shared = ends[i], 0
        if (size + i) % CHUNK == 0:
            starts[(size + i) // CHUNK] = used
        else:
            most = min(len(own), len(before), _MOST)
            while shared < most and own[shared] == before[shared]:
                shared += 1
        rest = len(own) - shared
        coded[used] = shared
        coded[used + 1] = min(rest, _MOST)
        used += 2
        if rest >= _MOST:
            for byte in range(4):
                coded[used + byte] = rest >> 8 * byte & _MOST
            used += 4
        for j in range(rest):
            coded[used + j] = own[shared + j]
        used += rest
        before = own
    return used


@compiled
def _header(coded, place):  # type: ignore[no-untyped-def]
    """How many bytes the label at this place shares, how many it adds, and where these stand."""
    shared, rest = np.int64(coded[place]), np.int64(coded[place + 1])
    place += 2
    if rest == _MOST:
        rest = np.int64(0)
        for byte in range(4):
            rest |= np.int64(coded[place + byte]) << 8 * byte
        place += 4
    return shared, rest, place


@compiled
def find_starts(coded, used, size, number, starts):  # type: ignore[no-untyped-def]
    """Note in `starts` where labels stand whose code begins at `used`; returns how long the longest of them is.

    There are `number` of them, after `size` others.  Where the code is of another number of labels, or of none,
    returns -1.
    """
    place, longest, before = used, 0, 0
    for row in range(size, size + number):
        if place + 2 > len(coded) or (coded[place + 1] == _MOST and place + MOST_BESIDE > len(coded)):
            return -1
        first = row % CHUNK == 0
        if first:
            starts[row // CHUNK] = place
        shared, rest, place = _header(coded, place)
        place += rest
        if shared and (first or (row > size and shared > before)):
            return -1
        before = shared + rest
        longest = max(longest, before)
    return longest if place == len(coded) else -1


@compiled
def measure(coded, starts, rows, lengths):  # type: ignore[no-untyped-def]
    """The lengths of the labels in `rows`."""
    for i in range(len(rows)):
        place, shared, rest = starts[rows[i] // CHUNK], 0, 0
        for _ in range(rows[i] % CHUNK + 1):
            shared, rest, place = _header(coded, place)
            place += rest
        lengths[i] = shared + rest


@compiled
def spell(coded, starts, rows, text, spelt):  # type: ignore[no-untyped-def]
    """Write the labels in `rows` into `text`, one after the other; `spelt` has room for the longest one of all."""
    written = 0
    for i in range(len(rows)):
        place, length = starts[rows[i] // CHUNK], 0
        for _ in range(rows[i] % CHUNK + 1):
            shared, rest, place = _header(coded, place)
            for j in range(rest):
                spelt[shared + j] = coded[place + j]
            place += rest
            length = shared + rest
        for j in range(length):
            text[written + j] = spelt[j]
        written += length


@compiled
def measure_all(coded, starts, first, lengths):  # type: ignore[no-untyped-def]
    """As `measure`, of labels that follow one another from row `first` on."""
    place = starts[first // CHUNK]
    for i in range(first // CHUNK * CHUNK, first + len(lengths)):
        shared, rest, place = _header(coded, place)
        place += rest
        if i >= first:
            lengths[i - first] = shared + rest


@compiled
def spell_all(coded, starts, first, number, text, spelt):  # type: ignore[no-untyped-def]
    """As `spell`, of `number` labels that follow one another from row `first` on."""
    place, written = starts[first // CHUNK], 0
    for i in range(first // CHUNK * CHUNK, first + number):
        shared, rest, place = _header(coded, place)
        for j in range(rest):
            spelt[shared + j] = coded[place + j]
        place += rest
        if i >= first:
            for j in range(shared + rest):
                text[written + j] = spelt[j]
            written += shared + rest
