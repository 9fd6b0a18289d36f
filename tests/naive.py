"""The running histogram the slow way: one label, one node, one AES call at a time, in dictionaries.

Written from the design's text and from the stated formats of version 1 of the noise, and sharing no code with the
package, so that the two can only agree if both are right.  Numbers are Python integers throughout.

Formats.  A sub-key is BLAKE2b-256 of its purpose under the noise key, personalised `stream_dp`.  Numbers are
little-endian.  The digest of a partition's part of a round is BLAKE2b-256 over the round and the partition (8 bytes
each) and every admitted label in byte order, behind its length and before how often it was admitted (4 bytes each).
The history starts as 32 zero bytes; a round's is BLAKE2b-256 over the last one, the round, the number of parts, and for
each of them its partition (8 bytes each) and its digest; here there is one part, partition 0.  A tweak is BLAKE2b-128
over "1 ", the length of the stream's name in decimal, " ", the name, the nonce, the round (8 bytes), the lane (8 bytes)
and the history.  The first 8 bytes of a cell's AES block are the high word of its 128 bits.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from hashlib import blake2b

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

Release = tuple[int, list[tuple[str, int]]]
Table = dict[int, dict[str, tuple[int, int]]]

_UNIT = 1 << 400


@lru_cache
def weights(sigma_squared: float) -> list[int]:
    """exp(-k^2 / (2 s2)) for k = 0, 1, ... in units of 2^-400, until below 2^-200."""
    found: list[int] = []
    with localcontext() as context:
        context.prec = 180
        while not found or found[-1] >> 200:
            exponent = Decimal(-(len(found) ** 2)) / (2 * Decimal(sigma_squared))
            found.append(int(exponent.exp() * _UNIT))
    return found


@lru_cache
def cumulative(sigma_squared: float) -> tuple[int, list[int]]:
    """The least value, and from it on 2^128 times the probability of being at most k, rounded down."""
    half = weights(sigma_squared)
    total = 2 * sum(half) - half[0]
    least = 1 - len(half)
    running, table = 0, []
    for k in range(least, len(half)):
        running += half[abs(k)]
        table.append((running << 128) // total)
    return least, table


@lru_cache
def sum_law(sigma_squared: float, terms: int) -> tuple[list[int], int]:
    """The law of the sum of `terms` draws: weights from the least value on, and their total."""
    half = weights(sigma_squared)
    one = [*half[:0:-1], *half]
    if terms == 1:
        return one, sum(one)
    before, _ = sum_law(sigma_squared, terms - 1)
    law = [0] * (len(before) + len(one) - 1)
    for i, a in enumerate(before):
        for j, b in enumerate(one):
            law[i + j] += a * b
    return law, sum(law)


def sum_probabilities(sigma_squared: float, terms: int) -> dict[int, float]:
    """The same law as a dictionary from values to probabilities."""
    law, total = sum_law(sigma_squared, terms)
    return {k: weight / total for k, weight in enumerate(law, -(len(law) // 2))}


@lru_cache
def tau(
    round_number: int, horizon: int, items_per_event: int, sigma_squared: float, threshold_delta: float
) -> int:
    """1 + min{ x : P(S >= x) <= d / (D0 L) }, S the sum of as many draws as the round has set bits."""
    law, total = sum_law(sigma_squared, bin(round_number).count("1"))
    allowed = Fraction(threshold_delta) / (items_per_event * horizon) * total
    x, tail = len(law) // 2 + 1, 0
    while tail + law[x - 1 + len(law) // 2] <= allowed:
        x -= 1
        tail += law[x + len(law) // 2]
    return 1 + x


class Cells:
    """The keyed bits of one epoch of one stream, one cell a call."""

    def __init__(self, key: bytes, stream: str, nonce: bytes) -> None:
        self._key, self._stream, self._nonce = key, stream.encode(), nonce
        self._aes = Cipher(algorithms.AES(self._subkey(b"bits")), modes.ECB()).encryptor()

    def _subkey(self, purpose: bytes) -> bytes:
        return blake2b(purpose, key=self._key, person=b"stream_dp", digest_size=32).digest()

    def label_id(self, label: str) -> int:
        hashed = blake2b(label.encode(), key=self._subkey(b"label id"), digest_size=16)
        return int.from_bytes(hashed.digest(), "big")

    def tweak(self, round_number: int, lane: int, history: bytes) -> int:
        hashed = blake2b(key=self._subkey(b"tweak"), digest_size=16)
        hashed.update(b"1 " + str(len(self._stream)).encode() + b" " + self._stream + self._nonce)
        hashed.update(round_number.to_bytes(8, "little") + lane.to_bytes(8, "little") + history)
        return int.from_bytes(hashed.digest(), "big")

    def next_history(self, history: bytes, round_number: int, admitted: Iterable[str]) -> bytes:
        part = blake2b(key=self._subkey(b"part of a round"), digest_size=32)
        part.update(round_number.to_bytes(8, "little") + bytes(8))
        labels = [label.encode() for label in admitted]
        for label in sorted(set(labels)):
            part.update(len(label).to_bytes(4, "little") + label + labels.count(label).to_bytes(4, "little"))
        hashed = blake2b(history, key=self._subkey(b"history"), digest_size=32)
        hashed.update(
            round_number.to_bytes(8, "little") + (1).to_bytes(8, "little") + bytes(8) + part.digest()
        )
        return hashed.digest()

    def draw(self, sigma_squared: float, label_id: int, tweak: int) -> int:
        block = self._aes.update((label_id ^ tweak).to_bytes(16, "big"))
        bits = int.from_bytes(block[:8], "little") << 64 | int.from_bytes(block[8:], "little")
        k, table = cumulative(sigma_squared)
        for bound in table:
            if bits < bound:
                break
            k += 1
        return k


@dataclass
class Run:
    """What a stream led to: `table[node][label]` is (partial sum, noise) for the nodes live at the end."""

    releases: list[Release]
    table: Table
    counts: dict[str, int]
    history: bytes


@dataclass
class _Slot:
    node: int
    partial_sum: int
    noise: int


def first_distinct(items: Iterable[str], most: int) -> list[str]:
    """The first `most` distinct items in record order."""
    kept: list[str] = []
    for item in items:
        if item not in kept and len(kept) < most:
            kept.append(item)
    return kept


def admitted_of_users(log: Iterable[tuple[str | None, list[str]]], most: int) -> list[list[str] | None]:
    """What counts of each (user, items): a user's first `most` distinct items, each once; None without a user."""
    held: dict[str, list[str]] = {}
    found: list[list[str] | None] = []
    for user, items in log:
        if user is None:
            found.append(None)
            continue
        own = held.setdefault(user, [])
        before = len(own)
        for item in items:
            if item not in own and len(own) < most:
                own.append(item)
        found.append(own[before:])
    return found


def naive_run(
    key: bytes,
    stream: str,
    nonce: bytes,
    sigma_squared: float,
    least_released: Callable[[int], int],
    rounds: Sequence[Sequence[str]],
) -> Run:
    """What each round admitted, a label once for every event; released in round l if at least least_released(l)."""
    cells = Cells(key, stream, nonce)
    slots: dict[str, list[_Slot]] = {}
    ids: dict[str, int] = {}
    tweaks: dict[int, int] = {}
    run, found = Run([], {}, {}, bytes(32)), dict[str, int]()
    for l, admitted in enumerate(rounds, 1):  # noqa: E741 (the design's name of a round)
        run.history = cells.next_history(run.history, l, admitted)
        for label in admitted:
            if label not in slots:
                ids[label] = cells.label_id(label)
                slots[label] = [
                    _Slot(a, 0, cells.draw(sigma_squared, ids[label], tweaks[a])) for a in sorted(tweaks)
                ]
            run.counts[label] = run.counts.get(label, 0) + 1
        tweaks = {a: tweak for a, tweak in tweaks.items() if a <= l - (l & -l)}
        tweaks[l] = cells.tweak(l, 0, run.history)
        noisy = {}
        for label, nodes in slots.items():
            partial_sum = admitted.count(label)
            while nodes and nodes[-1].node > l - (l & -l):
                partial_sum += nodes.pop().partial_sum
            nodes.append(_Slot(l, partial_sum, cells.draw(sigma_squared, ids[label], tweaks[l])))
            noisy[label] = sum(node.partial_sum + node.noise for node in nodes)
        released = [(label, count) for label, count in noisy.items() if count >= least_released(l)]
        for label, _ in released:
            found.setdefault(label, l)
        run.releases.append((l, sorted(released, key=lambda pair: (found[pair[0]], pair[0].encode()))))
    for label, nodes in slots.items():
        for slot in nodes:
            run.table.setdefault(slot.node, {})[label] = (slot.partial_sum, slot.noise)
    return run


def naive_releases(
    key: bytes,
    stream: str,
    nonce: bytes,
    horizon: int,
    items_per_event: int,
    sigma_squared: float,
    threshold_delta: float,
    rounds: Sequence[Sequence[str]],
) -> list[Release]:
    """The releases of every round: (round, [(label, noisy count)]), as they were found, then by label."""

    def threshold(round_number: int) -> int:
        return tau(round_number, horizon, items_per_event, sigma_squared, threshold_delta)

    return naive_run(key, stream, nonce, sigma_squared, threshold, rounds).releases
