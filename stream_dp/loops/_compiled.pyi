import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Shorts = NDArray[np.int16]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Words = NDArray[np.uint64]
Doubles = NDArray[np.float64]

def mix_words(ids: Words, tweaks: Words, words: Words, /) -> int: ...
def draw_normals(
    bits: Words,
    bins: Words,
    thresholds: Words,
    series: Doubles,
    sixth: float,
    sixth_rest: float,
    high: Doubles,
    low: Doubles,
    /,
) -> int: ...
def draw_middles(bits: Words, bins: Words, thresholds: Words, found: Doubles, /) -> int: ...
def blt_advance(
    high: Doubles,
    low: Doubles,
    left: int,
    poles: Doubles,
    scale_high: Doubles,
    scale_low: Doubles,
    z_high: Doubles,
    z_low: Doubles,
    noise: Ints,
    top: int,
    /,
) -> int: ...
def blt_add_up(high: Doubles, low: Doubles, noise: Ints, /) -> int: ...
def blt_combine(
    high: Doubles, low: Doubles, factor_high: Doubles, factor_low: Doubles, w_high: Doubles, w_low: Doubles, /
) -> int: ...
def reach_follow(draws: Doubles, sums: Shorts, powers: Doubles, units: Doubles, /) -> int: ...
def reach_compare(
    draws: Doubles,
    sums: Shorts,
    weights: Doubles,
    counts: Ints,
    least: int,
    needed: float,
    scale: float,
    found: Flags,
    /,
) -> int: ...
def encode_labels(
    text: Bytes, ends: Longs, last: Bytes, size: int, coded: Bytes, used: int, starts: Longs, /
) -> int: ...
def find_starts(coded: Bytes, used: int, size: int, count: int, starts: Longs, /) -> int: ...
def measure_labels(coded: Bytes, starts: Longs, rows: Longs, lengths: Longs, /) -> int: ...
def spell_labels(coded: Bytes, starts: Longs, rows: Longs, text: Bytes, spelt: Bytes, /) -> int: ...
def measure_following(coded: Bytes, starts: Longs, first: int, lengths: Longs, /) -> int: ...
def spell_following(
    coded: Bytes, starts: Longs, first: int, count: int, text: Bytes, spelt: Bytes, /
) -> int: ...
def place_rows(slots: Ints, ids: Words, first: int, alike: Flags, /) -> int: ...
def text_digests(key: Bytes, salt: Bytes, text: Bytes, ends: Longs, found: Words, /) -> int: ...
def chained_digests(key: Bytes, ends: Longs, text: Bytes, found: Words, /) -> int: ...
def fill_greedily(
    order: Longs, starts: Longs, items: Longs, tokens: int, cap: int, weights: Longs, /
) -> int: ...
def fill_evenly(
    order: Longs, starts: Longs, items: Longs, tokens: int, cap: int, weights: Longs, /
) -> int: ...
def move_towards(order: Longs, starts: Longs, items: Longs, cap: float, weights: Doubles, /) -> int: ...
