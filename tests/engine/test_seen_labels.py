"""Which labels have been seen: rows in the order in which they came, whatever labels somebody chooses."""

import tracemalloc
from collections.abc import Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_dp.engine.label_texts import LabelTexts, cut
from stream_dp.engine.seen_labels import SeenLabels
from stream_dp.events.event import LONGEST_LABEL
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise

repeatable = settings(max_examples=60)
some_labels = st.text(st.characters(codec="utf-8"), max_size=6)
some_batches = st.lists(st.lists(some_labels, max_size=12), max_size=12)


def noise() -> KeyedNoise:
    return KeyedNoise(bytes(range(KEY_BYTES)), "seen", bytes(NONCE_BYTES))


class AllAlike(KeyedNoise):
    """Every label has the identity that hashing would give it if it collided with all others."""

    def label_ids(self, labels: Iterable[bytes]) -> NDArray[np.uint64]:
        return np.ones((len([*labels]), 2), np.uint64)

    def packed_label_ids(self, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
        return np.ones((len(ends), 2), np.uint64)


class FewHomes(KeyedNoise):
    """Identities differ, but all labels are looked for from one of two slots."""

    def label_ids(self, labels: Iterable[bytes]) -> NDArray[np.uint64]:
        ids = super().label_ids(labels).copy()
        ids[:, 1] &= np.uint64(1)
        return ids

    def packed_label_ids(self, text: NDArray[np.uint8], ends: NDArray[np.int64]) -> NDArray[np.uint64]:
        return super().packed_label_ids(text, ends) & np.array([2**64 - 1, 1], np.uint64)


NOISES = {
    "as it is": noise(),
    "all identities collide": AllAlike(bytes(KEY_BYTES), "seen", bytes(NONCE_BYTES)),
    "two homes": FewHomes(bytes(KEY_BYTES), "seen", bytes(NONCE_BYTES)),
}


@pytest.mark.parametrize("recent", [0, 3, 1 << 16])
@pytest.mark.parametrize("kind", NOISES)
@repeatable
@given(some_batches)
def test_a_label_has_the_row_that_a_dictionary_would_give_it(
    kind: str, recent: int, batches: list[list[str]]
) -> None:
    """Also where identities collide: two labels are the same only if their texts are."""
    rows: dict[str, int] = {}
    seen = SeenLabels(NOISES[kind], recent)
    for batch in batches:
        expected = [rows.setdefault(label, len(rows)) for label in batch]
        assert seen.rows_of(batch).tolist() == expected
        assert (len(seen), list(seen.texts)) == (len(rows), list(rows))
    assert np.array_equal(seen.ids, NOISES[kind].label_ids([label.encode() for label in rows]))
    again = SeenLabels(NOISES[kind], recent)
    again.extend(seen.texts)
    assert again.rows_of(list(rows)).tolist() == list(range(len(rows)))
    if rows:
        with pytest.raises(ValueError, match="twice"):
            again.extend([next(iter(rows))])


@pytest.mark.parametrize("kind", NOISES)
def test_the_kept_ones_are_found_and_the_forgotten_ones_are_new(kind: str) -> None:
    seen = SeenLabels(NOISES[kind])
    labels = [f"label {i}" for i in range(200)]
    seen.rows_of(labels)
    odd = seen.only(np.arange(1, 200, 2))
    assert list(odd.texts) == labels[1::2]
    assert odd.rows_of(labels[1::2]).tolist() == list(range(100))
    assert odd.rows_of(labels[:4]).tolist() == [100, 0, 101, 1]


@pytest.mark.parametrize("kind", ["last byte", "longest", "one a prefix of the next"])
def test_labels_that_are_nearly_alike_are_kept_apart(kind: str) -> None:
    labels = {
        "last byte": [f"{'x' * 40}{chr(33 + i % 90)}{chr(33 + i // 90)}" for i in range(3_000)],
        "longest": ["é" * (LONGEST_LABEL - 4) + f"{i:04d}" for i in range(1_000)],
        "one a prefix of the next": ["x" * i for i in range(LONGEST_LABEL)],
    }[kind]
    seen = SeenLabels(noise(), 0)
    for start in range(0, len(labels), 100):
        seen.rows_of(labels[start : start + 100])
    assert seen.rows_of(labels[::-1]).tolist() == list(range(len(labels)))[::-1]
    assert list(seen.texts) == labels


def test_a_label_takes_few_bytes_beside_its_text() -> None:
    """16 of identity, 2 of code, up to 11 in the index, and an eighth of room to grow."""
    labels = [f"{i * 7919 % 10**10:010d}{'x' * 20}" for i in range(49_000)]
    for held in (49_000, 33_000):  # just before the index doubles, and some time after
        part, own_noise = labels[:held], noise()
        tracemalloc.start()
        try:
            seen = SeenLabels(own_noise, 0)
            for start in range(0, held, 1_000):
                seen.rows_of(part[start : start + 1_000])
            beside = tracemalloc.get_traced_memory()[0] - len("".join(part))
        finally:
            tracemalloc.stop()
        assert beside < 36 * held
        assert len(seen) == held


@given(st.lists(st.binary(max_size=300).map(lambda some: b"page/" * 60 + some) | st.binary(max_size=600)))
def test_packed_texts_and_their_identities_are_those_of_each_text(texts: list[bytes]) -> None:
    """Also of texts that have much, or nothing, in common with the one before, or fill blocks of a hash exactly."""
    packed = LabelTexts()
    for start in range(0, len(texts), 7):
        packed.extend(texts[start : start + 7])
    rows = np.arange(len(texts))[::-1]
    assert packed.take(rows) == texts[::-1]
    for start in (0, 5):
        [*parts] = packed.packed(min(start, len(texts)), len(packed))
        assert [each for part in parts for each in cut(*part)] == texts[start:]
        ids = [noise().packed_label_ids(text, ends) for text, ends in parts]
        assert np.array_equal(np.concatenate([*ids, np.empty((0, 2))]), noise().label_ids(texts[start:]))


def test_packed_texts_are_a_sequence_like_any_other() -> None:
    labels = ["tea", "", "Kräutertee", "🍵", "tea time"]
    texts = LabelTexts(labels)
    assert texts == labels
    assert list(texts) == labels
    assert (texts[1:4], texts[-1], texts[0]) == (labels[1:4], "tea time", "tea")
    assert LabelTexts(labels[:3]).begins(texts)
    assert not LabelTexts(["te", "a"]).begins(texts)
    assert not texts.begins(LabelTexts(labels[:3]))
    assert texts != LabelTexts(["tea", *labels])
    assert LabelTexts.of(texts) is texts
    for place in (5, -6):
        with pytest.raises(IndexError, match="among 5"):
            texts[place]


@given(
    st.lists(st.binary(max_size=40).map(lambda some: b"page" * 99 + some) | st.text(max_size=9), max_size=60)
)
def test_texts_are_made_again_from_their_code_which_only_grows(texts: list[bytes | str]) -> None:
    """Whatever the pieces in which it comes; and who has grown since is not seen by who has not."""
    labels = [each if isinstance(each, bytes) else each.encode() for each in texts]
    grown, again, parts = LabelTexts(), LabelTexts(), list[LabelTexts]()
    for start in range(0, len(labels), 7):
        before = again.code_bytes
        grown.extend(labels[start : start + 7])
        again.extend_code(grown.code(before).copy(), len(grown) - len(again))
        parts.append(again.copy())
        again.extend([b"one more"])
        parts[-1].extend([b"another"])
        again = LabelTexts()
        again.extend_code(grown.code(), len(grown))
    for number, part in enumerate(parts, 1):
        assert part.take(np.arange(len(part))) == [*labels[: 7 * number], b"another"]
    assert again == grown
    assert again.code().tobytes() == grown.code().tobytes()


def test_a_code_of_other_labels_is_refused() -> None:
    texts = LabelTexts(["tea", "teapot", "x" * 300])
    code = texts.code()
    for wrong, labels in (
        (code, 2),
        (code, 4),
        (code[:-1], 3),
        (code[1:], 3),
        (code[:7], 2),
        (code[:0], 1),
        (code, 0),
        (code, 10**12),
    ):
        with pytest.raises(ValueError, match="not the code"):
            LabelTexts().extend_code(wrong.copy(), labels)
    shares = code.copy()
    shares[0] = 1
    with pytest.raises(ValueError, match="not the code"):
        LabelTexts().extend_code(shares, 3)


def test_what_is_kept_as_objects_is_bounded() -> None:
    seen = SeenLabels(noise(), 10)
    for start in range(0, 500, 5):
        seen.rows_of([f"{i}" for i in range(start, start + 5)])
        assert len(seen._recent) <= 10
