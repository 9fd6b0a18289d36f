"""Where in a partition a block of rounds begins, where so many events end a round.

Transactions leave gaps among the offsets, so offsets alone do not tell.  A checkpoint does: so many records before its
own place.  Without one, the releases do: their times and tags fit one place of the log (docs/guarantee.md, "Windows
without end").
"""

from collections import deque
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import numpy as np

from stream_dp.config.settings import Settings
from stream_dp.config.times import iso_timestamp
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.round_chain import RoundChain
from stream_dp.epochs.published import published
from stream_dp.events.record import Record
from stream_dp.events.rounds import events_of
from stream_dp.kafka import log
from stream_dp.pipeline.intake import Intake, Position
from stream_dp.store.checkpoints import Checkpoint

_MOST_TRIED = 1_000  # places whose times fit
_RECORDS_AT_ONCE = 500


class _Sign(NamedTuple):
    """What a release tells of the log: when its round was closed, as text, and the tag of all rounds of its block."""

    round: int
    ts: str
    tag: str | None


class PartitionPlaces:
    """The log of an epoch that counts one partition.  `schemas`: see `verify`."""

    def __init__(
        self, settings: Settings, epoch: Epoch, key: bytes, schemas: Sequence[bytes | None] = ()
    ) -> None:
        size = events_of(epoch.privacy["rounds"])
        assert size is not None, "where barriers end rounds, they say where"
        self._settings, self._epoch, self._key, self._schemas = settings, epoch, key, schemas
        self._size = size

    def by_checkpoint(self, rounds: int, checkpoint: Checkpoint) -> int | None:
        """Where the first record after so many rounds is; None if the checkpoint is older, or records are gone."""
        needed = self._size * (checkpoint.state.round - rounds)
        end, least = checkpoint.position.next_offset, self._least(rounds)
        if needed <= 0 or end - needed == least:
            return end - needed if needed >= 0 else None
        last = deque((record.offset for record in self._records(least, end)), maxlen=needed)
        return last[0] if len(last) == needed else None

    def by_releases(self, rounds: int, releases_offset: int) -> int | None:
        """The same, from all releases of later rounds, which begin at `releases_offset`; None if that is not sure.

        Only one place may fit, among all that are possible.
        """
        least, held = self._least(rounds), log.offsets(self._settings.kafka_address, self._settings.events)
        if held.first > least:
            return None  # the place may be among the records that are gone
        signs = self._signs(rounds, releases_offset)
        fitting = islice(self._fitting(signs, rounds, least, held.end), _MOST_TRIED + 1)
        found: list[int] = []
        for tried, offset in enumerate(fitting):
            if tried == _MOST_TRIED:
                return None
            if self._gives(signs, rounds, offset, held.end):
                found.append(offset)
                if len(found) > 1:
                    return None
        return found[0] if found else None

    def _least(self, rounds: int) -> int:
        """The offset if there were no gaps: gaps only move it back."""
        return self._epoch.first_offset + self._size * rounds

    def _records(self, start: int, end: int) -> Iterator[Record]:
        kafka, topic = self._settings.kafka_address, self._settings.events
        return log.read(kafka, topic, max(start, log.offsets(kafka, topic).first), end)

    def _signs(self, rounds: int, releases_offset: int) -> list[_Sign]:
        nonce = self._epoch.nonce.hex()
        found = {
            each.release.round: _Sign(each.release.round, each.release.ts, each.release.tag)
            for each in published(self._settings, releases_offset)
            if each.release.nonce == nonce and each.release.round > rounds
        }
        return [found[number] for number in sorted(found)]

    def _fitting(self, signs: Sequence[_Sign], rounds: int, start: int, end: int) -> Iterator[int]:
        """The offsets from which on all rounds of `signs` end at the times that these tell."""
        places = [(record.offset, record.timestamp) for record in self._records(start, end)]
        if not places or not signs:
            return
        offsets, times = np.array(places, np.int64).T
        distinct, numbers = np.unique(times, return_inverse=True)
        number_of = {iso_timestamp(int(time)): number for number, time in enumerate(distinct.tolist())}
        possible = len(offsets) - self._size * (signs[-1].round - rounds) + 1
        fits = np.ones(max(0, possible), bool)
        for sign in signs:
            last = self._size * (sign.round - rounds) - 1
            fits &= numbers[last : last + len(fits)] == number_of.get(sign.ts, -1)
        yield from offsets[: len(fits)][fits].tolist()

    def _gives(self, signs: Sequence[_Sign], rounds: int, start: int, end: int) -> bool:
        """Whether the log from `start` on gives the tags of all `signs`."""
        epoch, wanted = self._epoch, {sign.round: sign.tag for sign in signs}
        intake = Intake(epoch, self._key, epoch.topic, Position(start))
        intake.schemas.take(*self._schemas)
        chain, tags = (
            RoundChain(epoch.noise(self._key), epoch.mechanism.chain_rounds),
            epoch.release_tags(self._key),
        )
        records, done, at_once = self._records(start, end), rounds, self._size
        while done < signs[-1].round and (batch := list(islice(records, at_once))):
            closed = intake.process(batch, signs[-1].round - done, done)
            for number, head in enumerate(chain.extend(done + 1, closed.parts), done + 1):
                if number in wanted and tags.tag(number, head) != wanted[number]:
                    return False
            done, at_once = done + len(closed.admitted), _RECORDS_AT_ONCE
        return done == signs[-1].round
