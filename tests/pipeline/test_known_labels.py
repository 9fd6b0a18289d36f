"""Epochs that know labels when they begin: the same bytes after restarts."""

import json
from copy import deepcopy
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.known_labels import KnownLabels
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases import part_encoder
from stream_dp.releases.release import decode_release
from stream_dp.releases.totals import Total
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import decode_whole_release
from tests.docs.schemas import schema
from tests.pipeline.pieces import KEY, TOPIC, log_of

LOG = log_of([b'{"items": ["tea", "milk"], "user": "u%d"}' % n for n in range(40)])
LISTED = KnownLabels.of_list(["carrot", "tea"])
CARRIED = LISTED.carried_on(1, ["tea", "rice", "carrot"], [41, 17, -3], [2.5] * 3).carried_on(
    2, ["tea", "rice", "carrot", "salt"], [40, 12, 1, 9], [3.5] * 4
)


def epoch(known: KnownLabels, number: int = 3, **changed: Any) -> Epoch:
    promise: dict[str, Any] = {
        "mechanism": "binary",
        "epsilon": 30.0,
        "delta": 1e-2,
        "horizon": 127,
        "items_per_event": 3,
    }
    opened = Epoch.open(Settings(stream="s", **promise | changed), number, 0, known=known)
    return replace(opened, nonce=bytes([number]) * 16)


KINDS: list[dict[str, Any]] = [
    {},
    {"shown": "each-round"},
    {"mechanism": "blt", "discover": "every-round"},
    {"unit": "user", "items_per_user": 5, "release": "every-3"},
]
FOUND = {"mechanism": "blt", "discover": "every-9"}


@pytest.mark.parametrize("known", [LISTED, CARRIED])
@pytest.mark.parametrize("changed", KINDS)
def test_restarts_give_the_same_bytes(changed: dict[str, Any], known: KnownLabels) -> None:
    of = epoch(known, **changed)
    straight = Pipeline(of, KEY, TOPIC, known=known).process(LOG).releases
    assert set(decode_release(straight[-1].value).labels) >= set(known.labels)
    pipeline, found = Pipeline(of, KEY, TOPIC, known=known), []
    for record in LOG:
        found += pipeline.process([record]).releases
        place = pipeline.position, deepcopy(pipeline.state()), bytes(pipeline.intake.pairs)
        pipeline = Pipeline(of, KEY, TOPIC, *place, known=known)
    assert found == straight
    assert pipeline.position.released == straight[-1].round


def test_only_the_labels_that_an_epoch_froze_may_be_known() -> None:
    other = KnownLabels.of_list(["carrot", "tea", "wine"])
    for known in (LISTED, CARRIED):
        with pytest.raises(ValueError, match="not the labels"):
            Pipeline(epoch(known), KEY, TOPIC, known=other)
        with pytest.raises(ValueError, match="not the labels"):
            Pipeline(epoch(known), KEY, TOPIC)


@pytest.mark.parametrize("shown", ["kept", "each-round"])
def test_a_release_tells_totals_their_noise_and_since_when(shown: str) -> None:
    of = epoch(CARRIED, shown=shown)
    parts = Pipeline(of, KEY, TOPIC, known=CARRIED).process(LOG).releases
    totals = {"tea": 81, "rice": 29, "carrot": -2, "salt": 9}
    since = {"tea": 0, "rice": 1, "carrot": 0, "salt": 2}
    for part in parts:
        schema("release").validate(json.loads(part.value))
        told = decode_release(part.value)
        columns = told.labels, told.counts, told.totals or [], told.since or []
        for label, count, total, first in zip(*columns, strict=True):
            assert (total - count, first) == (totals.get(label, 0), since.get(label, 3))
        sds = {0: 18.5, 1: 18.5, 2: 12.25, 3: 0.0}
        assert told.total_sds == {str(n): round((v + told.sd**2) ** 0.5, 3) for n, v in sds.items()}
    assert set(decode_release(parts[-1].value).labels) == {*totals, "milk"}


def test_an_epoch_that_carries_nothing_on_tells_no_totals() -> None:
    parts = Pipeline(epoch(LISTED, 1), KEY, TOPIC, known=LISTED).process(LOG).releases
    last = decode_release(parts[-1].value)
    assert dict(zip(last.labels, last.since or [], strict=True)) == {"tea": 0, "carrot": 0, "milk": 1}
    assert [last.is_known(place) for place in range(3)] == [label != "milk" for label in last.labels]
    assert b"total" not in parts[-1].value
    plain = Pipeline(epoch(KnownLabels([], [], []), 1), KEY, TOPIC).process(LOG).releases
    assert b'"since"' not in plain[-1].value


def test_parts_of_a_release_come_together_with_their_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Pipeline(epoch(CARRIED), KEY, TOPIC, known=CARRIED).process(LOG).releases[-1]
    monkeypatch.setattr(part_encoder, "LARGEST_PART", 40)
    parts = Pipeline(epoch(CARRIED), KEY, TOPIC, known=CARRIED).process(LOG).releases
    of_last = [part for part in parts if part.round == len(LOG)]
    assert len(of_last) > 2
    together = WholeReleases()
    found = [together.add(decode_whole_release(part.value)) for part in of_last]
    assert msgspec.to_builtins(found[-1]) == msgspec.to_builtins(decode_whole_release(whole.value))


@pytest.mark.parametrize("name", ["since", "totals"])
def test_columns_of_another_length_are_no_release(name: str) -> None:
    part = Pipeline(epoch(CARRIED), KEY, TOPIC, known=CARRIED).process(LOG).releases[-1]
    value = json.loads(part.value)
    value[name].pop()
    with pytest.raises(msgspec.ValidationError, match="as long as"):
        decode_release(json.dumps(value).encode())


def test_known_labels_were_never_tested_so_their_intervals_are_plain() -> None:
    """Whoever begins to read later knows it too; a label that was tested has a wider interval then."""
    of = epoch(CARRIED)
    parts = Pipeline(of, KEY, TOPIC, known=CARRIED).process(LOG).releases
    for place in (0, 20, -1):
        alone = decode_whole_release(parts[place].value)
        for label, count in alone.histogram.items():
            low, high = alone.interval(label)
            plain = low == pytest.approx(count - 1.96 * alone.sd, abs=0.01)
            assert high == pytest.approx(count + 1.96 * alone.sd, abs=0.01)
            assert plain == (label in CARRIED.labels)
            assert alone.first_shown(label) == (1 if plain else None)
    assert "milk" in alone.histogram


def test_a_whole_release_gives_totals_in_every_epoch() -> None:
    of = epoch(CARRIED)
    last = decode_whole_release(Pipeline(of, KEY, TOPIC, known=CARRIED).process(LOG).releases[-1].value)
    sds = last.total_sds or {}
    assert last.total("tea") == Total(last.histogram["tea"] + 81, sds["0"], 0)
    assert last.total("salt") == Total(last.histogram["salt"] + 9, sds["2"], 2)
    assert last.total("milk") == Total(last.histogram["milk"], sds["3"], 3)
    assert sds["3"] == pytest.approx(last.sd, abs=1e-3)
    first = decode_whole_release(
        Pipeline(epoch(LISTED, 1), KEY, TOPIC, known=LISTED).process(LOG).releases[-1].value
    )
    assert first.total("carrot") == Total(first.histogram["carrot"], first.sd, 0)
    assert first.total("milk") == Total(first.histogram["milk"], first.sd, 1)
    with pytest.raises(KeyError):
        first.total("rice")
    forged = msgspec.structs.replace(last, total_sds=None)
    with pytest.raises(ValueError, match="does not tell the noise"):
        forged.total("tea")
