"""Is every draw a function of key, stream, epoch, round, lane, history and label, and of nothing else?"""

from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_dp.privacy import keyed_noise
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian, variance
from stream_dp.privacy.keyed_noise import (
    EMPTY_HISTORY,
    KeyedNoise,
    WrongNoise,
    check_golden_draw,
    collision_probability,
    key_check,
    new_key,
    new_nonce,
    subkey,
)
from tests import naive
from tests.statistics import uncorrelated

KEY = bytes(range(100, 132))
NONCE = bytes(range(16))
WIDE = DiscreteGaussian(1e8)  # so wide that 20 equal draws are no coincidence
LABELS = [b"label %d" % i for i in range(20)]


def some_draws(
    key: bytes = KEY,
    stream: str = "s",
    nonce: bytes = NONCE,
    round_number: int = 5,
    lane: int = 0,
    history: bytes = EMPTY_HISTORY,
) -> NDArray[np.int32]:
    """20 draws, which change as soon as one of the arguments does."""
    noise = KeyedNoise(key, stream, nonce)
    return noise.draw(WIDE, noise.label_ids(LABELS), noise.tweaks([(round_number, lane, history)]))[0]


def test_the_same_cell_is_drawn_the_same_for_ever() -> None:
    assert some_draws().tolist() == some_draws().tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"key": bytes([101, *KEY[1:]])},
        {"key": bytes([*KEY[:-1], 130])},
        {"stream": "t"},
        {"stream": ""},
        {"nonce": bytes([*NONCE[:-1], 16])},
        {"nonce": bytes([1, *NONCE[1:]])},
        {"round_number": 6},
        {"round_number": 5 + (1 << 32)},
        {"lane": 1},
        {"lane": 5, "round_number": 0},
        {"history": bytes(31) + b"\1"},
    ],
    ids=str,
)
def test_changing_anything_changes_everything(change: dict[str, Any]) -> None:
    assert not np.any(some_draws() == some_draws(**change))


def test_a_new_noise_version_changes_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    before = some_draws()
    monkeypatch.setattr(keyed_noise, "NOISE_VERSION", 2)
    assert not np.any(before == some_draws())


def cube(noise: KeyedNoise, gaussian: DiscreteGaussian) -> NDArray[np.int32]:
    """Draws of 3 lanes, 200 rounds and 400 labels: int32 of shape (3, 200, 400)."""
    tweaks = noise.tweaks((r, lane, EMPTY_HISTORY) for lane in range(3) for r in range(1, 201))
    ids = noise.label_ids(b"%d" % i for i in range(400))
    return noise.draw(gaussian, ids, tweaks).reshape(3, 200, 400)


class RoundForgotten(KeyedNoise):
    def tweaks(self, places: Iterable[tuple[int, int, bytes]]) -> list[bytes]:
        return super().tweaks((1, lane, history) for _, lane, history in places)


class LaneForgotten(KeyedNoise):
    def tweaks(self, places: Iterable[tuple[int, int, bytes]]) -> list[bytes]:
        return super().tweaks((number, 1, history) for number, _, history in places)


class LabelCut(KeyedNoise):
    """Labels are told apart by all but their last byte."""

    def label_ids(self, labels: Iterable[bytes]) -> NDArray[np.uint64]:
        return super().label_ids(label[:-1] for label in labels)


class NotEncrypted(KeyedNoise):
    """The bits are id xor tweak, as if AES were left out."""

    def draw(
        self, gaussian: DiscreteGaussian, ids: NDArray[np.uint64], tweaks: Sequence[bytes]
    ) -> NDArray[np.int32]:
        words = np.frombuffer(b"".join(tweaks), "<u8").reshape(-1, 1, 2)
        return gaussian.invert((ids ^ words).reshape(-1, 2)).reshape(len(words), -1)


def independent_lanes(z: NDArray[np.int32], unit: float) -> bool:
    return all(uncorrelated(z[a], z[b], unit) for a, b in combinations(range(len(z)), 2))


def independent_rounds(z: NDArray[np.int32], unit: float) -> bool:
    return all(uncorrelated(z[:, gap:], z[:, :-gap], unit) for gap in (1, 2, 3, 8, 64))


def independent_labels(z: NDArray[np.int32], unit: float) -> bool:
    return all(uncorrelated(z[..., gap:], z[..., :-gap], unit) for gap in (1, 2, 3, 10, 100))


def independent_squares(z: NDArray[np.int32], unit: float) -> bool:
    """Two labels in two rounds: the four draws' signs multiply to a fair coin (xor alone would not do that)."""
    signs = np.where(z < 0, -1, 1)[:, : z.shape[1] // 2 * 2, : z.shape[2] // 2 * 2]
    left, right = signs[:, 0::2, 0::2] * signs[:, 1::2, 1::2], signs[:, 0::2, 1::2] * signs[:, 1::2, 0::2]
    return uncorrelated(left, right, 1.0)


@pytest.mark.parametrize(
    ("independent", "broken"),
    [
        (independent_lanes, LaneForgotten),
        (independent_rounds, RoundForgotten),
        (independent_labels, LabelCut),
        (independent_squares, NotEncrypted),
    ],
)
def test_draws_are_independent_and_a_broken_variant_is_noticed(
    independent: Callable[[NDArray[np.int32], float], bool], broken: type[KeyedNoise]
) -> None:
    gaussian = DiscreteGaussian(400.0)
    unit = variance(400.0)
    assert independent(cube(KeyedNoise(KEY, "s", NONCE), gaussian), unit)
    assert not independent(cube(broken(KEY, "s", NONCE), gaussian), unit)


def test_histories_that_differ_in_one_label_give_independent_noise() -> None:
    noise = KeyedNoise(KEY, "s", NONCE)
    ids = noise.label_ids(b"%d" % i for i in range(20_000))
    gaussian = DiscreteGaussian(400.0)

    def after(admitted: list[str]) -> NDArray[np.int32]:
        history = noise.extend_histories(EMPTY_HISTORY, 1, [admitted])[0]
        return noise.draw(gaussian, ids, noise.tweaks([(1, 0, history)]))

    assert uncorrelated(after(["a"]), after(["a", "b"]), variance(400.0))
    assert not uncorrelated(after(["a", "b"]), after(["b", "a"]), variance(400.0))  # the same set


@pytest.mark.parametrize("stream", ["s", "", "Größe 7", "1 2 "])
def test_blocks_equal_one_aes_call_a_cell(stream: str) -> None:
    noise, cells = KeyedNoise(KEY, stream, NONCE), naive.Cells(KEY, stream, NONCE)
    labels = ["\U0001f375", "\uffff", "ß", "", "a" * 1000, *map(str, range(30))]
    places = [(1, 0), (2, 0), (2, 1), (65535, 7), (1 << 40, 0)]
    history, expected_history = EMPTY_HISTORY, bytes(32)
    for round_number in (1, 2, 3, 4):
        admitted = labels[:round_number]
        history = noise.extend_histories(history, round_number, [admitted])[0]
        expected_history = cells.next_history(expected_history, round_number, admitted)
    assert expected_history == history
    draws = noise.draw(
        DiscreteGaussian(30.0),
        noise.label_ids(label.encode() for label in labels),
        noise.tweaks((round_number, lane, history) for round_number, lane in places),
    )
    for row, place in zip(draws.tolist(), places, strict=True):
        tweak = cells.tweak(*place, history)
        assert [cells.draw(30.0, cells.label_id(label), tweak) for label in labels] == row


@pytest.mark.parametrize(
    ("rounds", "labels"),
    [
        (1, 1),
        (3, 5),
        (70, 300),
        (2, 1 << 14),
        (2, (1 << 14) + 1),
        (5, (1 << 15) + 3),
        (1 << 14, 1),
        (20_000, 3),
    ],
)
def test_a_block_equals_its_parts_in_any_order(rounds: int, labels: int) -> None:
    """Sizes around the number of cells encrypted at once, where rows and columns are cut."""
    gaussian = DiscreteGaussian(1e4)
    noise = KeyedNoise(KEY, "s", NONCE)
    ids = noise.label_ids(b"%d" % i for i in range(labels))
    tweaks = noise.tweaks((r, 0, EMPTY_HISTORY) for r in range(1, rounds + 1))
    whole = noise.draw(gaussian, ids, tweaks)
    assert (rounds, labels) == whole.shape
    order = np.random.default_rng(3)
    some_labels = order.permutation(labels)[:50]
    some_rounds = order.permutation(rounds)[:50]
    parts = noise.draw(gaussian, ids[some_labels], [tweaks[r] for r in some_rounds])
    assert whole[np.ix_(some_rounds, some_labels)].tolist() == parts.tolist()
    cut = labels // 3
    assert np.array_equal(whole[:, :cut], noise.draw(gaussian, ids[:cut], tweaks))
    assert np.array_equal(whole[:, cut:], noise.draw(gaussian, ids[cut:], tweaks))
    assert np.array_equal(whole[-1:], noise.draw(gaussian, ids, tweaks[-1:]))


def test_no_labels_and_no_rounds_are_drawn_without_complaint() -> None:
    noise = KeyedNoise(KEY, "s", NONCE)
    tweaks = noise.tweaks([(1, 0, EMPTY_HISTORY)])
    assert noise.draw(WIDE, noise.label_ids([]), tweaks).shape == (1, 0)
    assert noise.draw(WIDE, noise.label_ids(LABELS), []).shape == (0, 20)


def test_names_that_run_together_never_share_a_tweak() -> None:
    names = ["", "a", "ab", "abc", "1", "11", "1 ", "1 1", "1 1 1", "0 ", " ", "a\0", "a\0\0", "é", "e\u0301"]
    nonces = [b"b" * 16, b"bc" + b"b" * 14, b"c" + b"b" * 15, bytes(16), b"1 " * 8, b"\0" * 15 + b"a"]
    places = [(0, 0), (1, 0), (0, 1), (256, 0), (0, 256), (1 << 32, 0)]
    histories = [bytes(32), b"\1" + bytes(31), bytes(31) + b"\1", b"b" * 32]
    tweaks = [
        KeyedNoise(KEY, name, nonce).tweaks([(*place, history)])[0]
        for name in names
        for nonce in nonces
        for place in places
        for history in histories
    ]
    assert len(tweaks) == len(set(tweaks))


def test_a_history_is_one_of_sets_of_labels_and_of_rounds() -> None:
    noise = KeyedNoise(KEY, "s", NONCE)

    def chain(*rounds: list[str], first: int = 1) -> bytes:
        history = EMPTY_HISTORY
        for round_number, admitted in enumerate(rounds, first):
            history = noise.extend_histories(history, round_number, [admitted])[0]
        return history

    assert chain(["a", "b", "c"]) == chain(["c", "a", "b"])
    histories = [
        EMPTY_HISTORY,
        chain([]),
        chain([], []),
        chain([""]),
        chain(["", ""]),
        chain(["ab"]),
        chain(["a", "b"]),
        chain(["a"], ["b"]),
        chain(["b"], ["a"]),
        chain(["a", "b"], []),
        chain([], ["a", "b"]),
        chain(["a"], [], ["b"]),
        chain(["a"]),
        chain(["a"], first=2),
        chain(["a\0\0\0\0"]),
        chain(["a", ""]),
        chain(["a\1\0\0\0b"]),
    ]
    assert len(histories) == len(set(histories))
    assert chain(["a"]) != KeyedNoise(bytes(32), "s", NONCE).extend_histories(EMPTY_HISTORY, 1, [["a"]])[0]


@pytest.mark.parametrize("key", [b"", bytes(31), bytes(33), bytes(16)])
def test_a_key_of_another_length_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match=f"the noise key must hold 32 bytes, not {len(key)}"):
        KeyedNoise(key, "s", NONCE)


@pytest.mark.parametrize("nonce", [b"", bytes(15), bytes(17)])
def test_a_nonce_of_another_length_is_refused(nonce: bytes) -> None:
    with pytest.raises(ValueError, match=f"nonce must hold 16 bytes, not {len(nonce)}"):
        KeyedNoise(KEY, "s", nonce)


def test_the_golden_draw_is_drawn_here() -> None:
    check_golden_draw()


def test_a_machine_that_inverts_otherwise_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    search = DiscreteGaussian._search

    def off_by_one_in_one_draw(self: DiscreteGaussian, *words: NDArray[np.uint64]) -> NDArray[np.int64]:
        found = search(self, *words)
        found[0] += 1
        return found

    monkeypatch.setattr(DiscreteGaussian, "_search", off_by_one_in_one_draw)
    with pytest.raises(WrongNoise, match="differs from the golden draw"):
        check_golden_draw()


@pytest.mark.parametrize("changed", ["packed_label_ids", "tweaks", "part_digests", "join_histories"])
def test_a_machine_that_hashes_otherwise_is_refused(changed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = getattr(KeyedNoise, changed)

    def other_key(self: KeyedNoise, *arguments: object) -> object:
        return right(KeyedNoise(KEY, "golden", bytes(16)), *arguments)

    monkeypatch.setattr(KeyedNoise, changed, other_key)
    with pytest.raises(WrongNoise, match="differs from the golden draw"):
        check_golden_draw()


def test_a_key_check_tells_keys_apart_and_tells_nothing_else() -> None:
    checks = {key_check(bytes([*KEY[:place], KEY[place] ^ 1, *KEY[place + 1 :]])) for place in range(32)}
    assert len(checks | {key_check(KEY)}) == 33
    assert key_check(KEY) == key_check(bytes(KEY))
    assert all(len(check) == 16 for check in checks)  # 8 bytes: far too few to hold the key
    used = [
        subkey(KEY, purpose) for purpose in (b"label id", b"tweak", b"history", b"part of a round", b"bits")
    ]
    for secret in (KEY, *used):
        assert key_check(KEY) not in (
            secret.hex(),
            blake2b(secret).hexdigest(),
            blake2b(key=secret).hexdigest(),
        )
        assert not any(key_check(KEY)[i : i + 6] in secret.hex() for i in range(11))
    assert len({*used, subkey(KEY, b"check")}) == 6


def test_fresh_keys_and_nonces_have_their_lengths_and_never_repeat() -> None:
    assert {32} == {len(new_key()) for _ in range(10)}
    assert {16} == {len(new_nonce()) for _ in range(10)}
    assert len({new_key() for _ in range(100)}) == len({new_nonce() for _ in range(100)}) == 100


def test_the_chance_of_a_collision_is_the_documented_one() -> None:
    assert collision_probability(4 * 16) == 6 * 4 * 16 * 2**54 / 2**128
    assert collision_probability(4 * 17) > collision_probability(4 * 16)
