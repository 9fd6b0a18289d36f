"""Are known labels shown in every round, with the noise of labels that were there from the beginning, and no others?"""

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from stream_dp.config.secret import SettingsError
from stream_dp.config.settings import Settings
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.epoch import Epoch, EpochRefused
from stream_dp.engine.histogram import HistogramState, RunningHistogram
from stream_dp.engine.known_labels import (
    LARGEST_FILE,
    LARGEST_PIECE,
    MOST_LABELS,
    NOTHING_KNOWN,
    KnownLabels,
    cut,
    joined,
    read_list,
)
from stream_dp.events.event import LONGEST_LABEL
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY
from stream_dp.privacy.shown import Shown
from tests.engine.crafted import HORIZON, LABELS, NO_HITS, NONE, Releases, mechanism, noise
from tests.engine.test_kept_labels import copied

KNOWN = [LABELS[0], LABELS[3], "never brought"]
RULES: list[Shown] = ["kept", "each-round"]
some_rounds = st.lists(
    st.lists(st.sampled_from(LABELS), max_size=4, unique=True), min_size=1, max_size=HORIZON
)


def releases(
    calibrated: CalibratedCounter,
    rounds: Sequence[Sequence[str]],
    known: Sequence[str],
    cuts: Sequence[int] = (),
) -> Releases:
    """A new process goes on from a checkpoint at each of the cuts."""
    found: Releases = {}
    first: dict[str, int] = {}
    state = HistogramState.before_any_round(known, shown=True)
    cuts = sorted(each for each in cuts if each < len(rounds))
    for start, end in zip([0, *cuts], [*cuts, len(rounds)], strict=True):
        histogram = RunningHistogram(calibrated, noise(), copied(state))
        for snapshot in histogram.observe(rounds[start:end]):
            labels, counts = snapshot.labels.tolist(), snapshot.counts.tolist()
            for label in labels:
                first.setdefault(label, 0 if label in known else snapshot.round)
            assert labels == sorted(labels, key=lambda label: (first[label], label))
            found[snapshot.round] = dict(zip(labels, counts, strict=True))
        state = histogram.state()
    return found


def noisy_from_the_beginning(
    calibrated: CalibratedCounter, rounds: Sequence[Sequence[str]], label: str
) -> list[int]:
    """The noisy counts of a label with a counter of its own, in which it is registered at round 0."""
    ids, counter = noise().label_ids([label.encode()]), calibrated.counter(noise())
    counter.advance(ids, [], NO_HITS, np.zeros(1, np.int64))
    errors = counter.advance(ids, noise().extend_histories(EMPTY_HISTORY, 1, rounds), NO_HITS, NONE)[:, 0]
    counts = np.cumsum([list(admitted).count(label) for admitted in rounds])
    return [int(count + error) for count, error in zip(counts, errors, strict=True)]


@pytest.mark.parametrize("shown", RULES)
@pytest.mark.parametrize("name", ["binary", "blt"])
@settings(max_examples=10)
@given(rounds=some_rounds, cuts=st.lists(st.integers(0, HORIZON), max_size=4))
def test_known_labels_are_shown_whatever_their_counts_and_change_nothing_else(
    name: str, shown: Shown, rounds: list[list[str]], cuts: list[int]
) -> None:
    calibrated = structs.replace(mechanism(name), shown=shown)
    found = releases(calibrated, rounds, KNOWN, cuts)
    without = releases(calibrated, rounds, [], cuts)
    for label in KNOWN:
        expected = noisy_from_the_beginning(calibrated, rounds, label)
        assert [found[number][label] for number in found] == expected
    for number, counts in without.items():
        others = {label: count for label, count in found[number].items() if label not in KNOWN}
        assert others == {label: count for label, count in counts.items() if label not in KNOWN}


def test_a_label_that_is_not_marked_is_hidden_until_it_reaches_its_threshold() -> None:
    """Else the test above would pass for a histogram that shows everything."""
    calibrated, rounds = structs.replace(mechanism("binary", 30), shown="kept"), [[LABELS[0]]] * HORIZON
    unmarked = RunningHistogram(calibrated, noise(), HistogramState.before_any_round(KNOWN))
    shown = [snapshot.labels.tolist() for snapshot in unmarked.observe(rounds)]
    assert shown[:10] == [[]] * 10
    assert shown[-1] == [LABELS[0]]


def listed(folder: Path, content: bytes) -> str:
    (folder / "labels.txt").write_bytes(content)
    return f"file:{folder / 'labels.txt'}"


@pytest.mark.parametrize(
    "content",
    [
        b"tea\nmilk\n",
        b"milk\ntea",
        b"tea\r\nmilk\r\n",
        b"\xef\xbb\xbftea\nmilk\n",
        b"\n\ntea\n\nmilk\ntea\nmilk\n\n",
    ],
)
def test_a_list_is_a_set_however_it_is_saved(tmp_path: Path, content: bytes) -> None:
    assert read_list(listed(tmp_path, content)) == KnownLabels.of_list(["milk", "tea"])


def test_other_labels_are_another_list(tmp_path: Path) -> None:
    contents = [b"tea", b"tea ", b"te\na", b"Tea", "té".encode(), b"tea\nmilk", b"tea\x0bmilk", b"a,b"]
    found = [read_list(listed(tmp_path, content)) for content in contents]
    assert len({known.listed for known in found}) == len({known.digest for known in found}) == len(contents)
    assert read_list(None) is NOTHING_KNOWN
    assert NOTHING_KNOWN.digest is None


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "holds no known label"),
        (b"\r\n\n", "holds no known label"),
        (b"tea\n\xff\n", "are not UTF-8 at byte 4"),
        (b"tea\n" + b"x" * (LONGEST_LABEL + 1), "line 2 of the known labels .* more than 1,024 characters"),
        (lambda: b"\n".join(b"%d" % n for n in range(MOST_LABELS + 1)), "holds 1,000,001 known labels"),
        (lambda: b"x" * (LARGEST_FILE + 1), "are more than 67,108,864 bytes"),
    ],
)
def test_a_list_that_cannot_be_one_is_refused_in_a_sentence(
    tmp_path: Path, content: bytes | Callable[[], bytes], told: str
) -> None:
    with pytest.raises(SettingsError, match=told):
        read_list(listed(tmp_path, content() if callable(content) else content))


def test_a_list_that_is_not_there_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"cannot read the known labels .*: No such file"):
        read_list(f"file:{tmp_path / 'none.txt'}")
    with pytest.raises(SettingsError, match="it is not a file"):
        read_list("file:/dev/zero")


def test_the_labels_of_a_list_are_frozen_and_not_its_name(tmp_path: Path) -> None:
    own = Settings(stream="s", known_labels=listed(tmp_path, b"tea\nmilk"))
    epoch = Epoch.open(own, 1, 0, known=read_list(own.known_labels))
    listed(tmp_path, b"milk\r\ntea\r\n")
    epoch.check_settings(own)
    (tmp_path / "other.txt").write_bytes(b"tea\nmilk")
    epoch.check_settings(structs.replace(own, known_labels=f"file:{tmp_path / 'other.txt'}"))
    listed(tmp_path, b"milk\ntea\nsalt")
    told = r"known_labels is 2 labels with the digest \w+ in the epoch and 3 labels with"
    with pytest.raises(EpochRefused, match=told):
        epoch.check_settings(own)
    with pytest.raises(EpochRefused, match=r"known_labels is 2 labels .* and None in the settings"):
        epoch.check_settings(structs.replace(own, known_labels=None))


def test_a_long_list_fits_into_records_whatever_is_in_it() -> None:
    labels = sorted({"\x01" * 1024 + str(n) for n in range(300)} | {f"l{n}" for n in range(30_000)})
    first = KnownLabels.of_list(labels)
    known = first.carried_on(7, labels, list(range(len(labels))), [2.0] * len(labels))
    for each in (first, known, NOTHING_KNOWN):
        pieces = list(cut(each))
        assert joined(pieces) == each
        assert all(len(msgspec.json.encode(piece)) < LARGEST_PIECE + 20_000 for piece in pieces)
    assert len(pieces) == 0
    assert len(list(cut(known))) > 2
    swapped = list(cut(known))[::-1]
    assert joined(swapped).digest != known.digest


def test_totals_add_up_what_epochs_released_last() -> None:
    first = NOTHING_KNOWN.carried_on(1, ["tea", "milk"], [30, 20], [3.0, 2.0])
    assert first == KnownLabels(["milk", "tea"], [20, 30], [1, 1], {1: 9.0})
    second = first.carried_on(2, ["tea", "salt", "milk"], [9, 7, -2], [4.0] * 3)
    assert second == KnownLabels(
        ["milk", "salt", "tea"], [18, 7, 39], [1, 2, 1], {1: 25.0, 2: 16.0}, second.listed
    )
    assert second.carried_on(3, [], [], []) is NOTHING_KNOWN
    listed = KnownLabels.of_list(["tea"]).carried_on(1, ["tea", "milk"], [5, 4], [2.0, 2.0])
    assert (listed.since, listed.variances) == ([1, 0], {0: 4.0, 1: 4.0})
    assert listed.listed == KnownLabels.of_list(["tea"]).listed
