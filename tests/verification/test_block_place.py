"""Where blocks begin in a log whose offsets have gaps, as transactions leave them: never a wrong place."""

import random
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

import msgspec
import pytest

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.epochs.published import Published
from stream_dp.events.record import Record
from stream_dp.kafka.log import Offsets
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.releases.release import decode_release
from stream_dp.store.checkpoints import Checkpoint
from stream_dp.verification import block_place
from stream_dp.verification.block_place import PartitionPlaces

KEY, WINDOW, SIZE, BLOCKS = bytes(range(32)), 4, 3, 6
RECORDS = WINDOW * SIZE * BLOCKS
NOW = 1_700_000_000_000


@lru_cache
def settings_of(release: str) -> Settings:
    return Settings(
        stream="shop",
        epsilon=1.0,
        delta=0.5,
        items_per_event=1,
        mechanism="window",
        window=WINDOW,
        rounds=f"every-{SIZE}",
        release=release,
    )


@lru_cache
def epoch_of(release: str) -> Epoch:
    return replace(Epoch.open(settings_of(release), 1, 0), nonce=bytes(16))


def log_with_gaps(seed: int, count: int, of: int, at_once: int) -> list[Record]:
    """So many events of `of` labels, `at_once` of which have one time, at offsets that leave some out."""
    chance, offset, records = random.Random(seed), 0, []
    for number in range(count):
        offset += chance.choice([1, 1, 1, 2, 5])
        value = b'{"items":["%d"]}' % chance.randrange(of)
        records.append(Record(offset, NOW + number // at_once, None, value))
    return records


class Stored:
    """What the topics hold, in their place: the events, and the releases of what was counted of them."""

    def __init__(
        self, monkeypatch: pytest.MonkeyPatch, counted: list[Record], release: str = "every-round"
    ) -> None:
        self.settings, self.epoch = settings_of(release), epoch_of(release)
        self.events, self.first, self.end = [*counted], 0, counted[-1].offset + 1
        self.pipeline = Pipeline(self.epoch, KEY, "shop.events")
        parts = self.pipeline.process(counted).releases
        self.releases = [
            Published(place, decode_release(part.value), part.value) for place, part in enumerate(parts)
        ]
        monkeypatch.setattr(block_place, "published", lambda _, start: iter(self.releases[start:]))
        monkeypatch.setattr(block_place, "log", self)
        self.places = PartitionPlaces(self.settings, self.epoch, KEY)

    def offsets(self, *_: object) -> Offsets:
        return Offsets(self.first, self.end)

    def read(self, _: object, topic: str, start: int, end: int) -> Iterator[Record]:
        assert start >= self.first, "Kafka reads nothing that is gone"
        return (each for each in self.events if start <= each.offset < end)

    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.epoch, self.pipeline.state(), self.pipeline.position, 0, "")

    def by_releases(self, rounds: int) -> int | None:
        after = [place for place, each in enumerate(self.releases) if each.release.round > rounds]
        return self.places.by_releases(rounds, after[0])


@pytest.mark.parametrize("release", ["every-round", "every-3"])
@pytest.mark.parametrize("at_once", [1, 7, RECORDS])
@pytest.mark.parametrize("seed", range(3))
def test_releases_tell_the_place_whatever_the_gaps_and_times(
    monkeypatch: pytest.MonkeyPatch, release: str, at_once: int, seed: int
) -> None:
    """A backlog that was never counted has the same labels and, in one case, the same times."""
    records = log_with_gaps(seed, RECORDS + 40, 50, at_once)
    stored = Stored(monkeypatch, records[:RECORDS], release)
    stored.events, stored.end = records, records[-1].offset + 1
    for block in range(1, BLOCKS - 2):
        rounds = block * WINDOW
        assert stored.by_releases(rounds) == records[rounds * SIZE].offset


@pytest.mark.parametrize("seed", range(3))
def test_a_checkpoint_tells_the_place_by_counting_back(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    records = log_with_gaps(seed, RECORDS, 1, RECORDS)
    stored = Stored(monkeypatch, records)
    checkpoint = stored.checkpoint()
    stored.events += log_with_gaps(seed, 2 * RECORDS, 1, RECORDS)[RECORDS:]
    for block in range(1, BLOCKS):
        rounds = block * WINDOW
        begins = records[rounds * SIZE].offset
        assert stored.places.by_checkpoint(rounds, checkpoint) == begins
        stored.first = begins  # what came before is gone
        assert stored.places.by_checkpoint(rounds, checkpoint) == begins
        stored.events = [each for each in stored.events if each.offset > begins]
        stored.first += 1
        assert stored.places.by_checkpoint(rounds, checkpoint) is None
        stored.events, stored.first = records, 0
    assert stored.places.by_checkpoint(BLOCKS * WINDOW, checkpoint) == checkpoint.position.next_offset
    assert stored.places.by_checkpoint(BLOCKS * WINDOW + 1, checkpoint) is None


def test_a_log_that_fits_in_two_places_tells_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody brings the same label at the same time, and some events were not counted yet."""
    records = log_with_gaps(1, RECORDS + 40, 1, RECORDS + 40)
    stored = Stored(monkeypatch, records[:RECORDS])
    stored.events, stored.end = records, records[-1].offset + 1
    assert stored.by_releases(WINDOW) is None


def test_where_it_could_have_been_forgotten_no_place_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    records = log_with_gaps(2, RECORDS, 50, 1)
    stored = Stored(monkeypatch, records)
    for stored.first, found in ((WINDOW * SIZE, records[WINDOW * SIZE].offset), (WINDOW * SIZE + 1, None)):
        assert stored.by_releases(WINDOW) == found


def test_an_edited_log_and_edited_releases_tell_no_place(monkeypatch: pytest.MonkeyPatch) -> None:
    records = log_with_gaps(3, RECORDS, 50, 1)
    for place in range(WINDOW * SIZE, RECORDS):
        stored = Stored(monkeypatch, records)
        stored.events[place] = stored.events[place]._replace(value=b'{"items":["another"]}')
        assert stored.by_releases(WINDOW) is None, place
    for place in range(WINDOW, len(stored.releases)):
        for change in ({"tag": "0" * 32}, {"ts": "2020-01-01T00:00:00.000Z"}):
            stored = Stored(monkeypatch, records)
            altered = stored.releases[place]
            stored.releases[place] = altered._replace(
                release=msgspec.structs.replace(altered.release, **change)
            )
            assert stored.by_releases(WINDOW) is None, (place, change)
