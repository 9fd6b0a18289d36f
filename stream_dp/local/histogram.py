"""A running histogram in your own program: what a worker would release of the same events, without any server."""

from __future__ import annotations

import os
import warnings
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from threading import get_ident
from typing import Any, NoReturn, overload

from stream_dp.config.secret import SettingsError
from stream_dp.config.times import clock, milliseconds
from stream_dp.counters.calibration import Guarantee
from stream_dp.engine.epoch import Epoch, frozen_settings
from stream_dp.engine.histogram import HorizonReached
from stream_dp.engine.known_labels import read_list
from stream_dp.events.dead_letter import DeadLetter
from stream_dp.events.record import Record
from stream_dp.local.events import Event, column_names, each_event, record_value
from stream_dp.local.key_file import KeyFile, KeyFileRefused
from stream_dp.local.settings import Source, local_settings
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.keyed_noise import new_key
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release

_AT_ONCE = 500


class Histogram:
    """A differentially private running histogram over labels that nobody listed in advance.

        with stream_dp.Histogram(epsilon=1, key_file="shop.key") as histogram:
            for items in events:
                release = histogram.observe(items)

    `settings` are those of a stream, by name, as docs/choosing.md explains them; those given as arguments win.
    Every release is what a worker with the same key would release of the same events.

    `key_file` keeps the noise key.  Whoever runs the program again over the same events, with more of them at the end
    or not, gets the same releases again and spends nothing more; other events under the same key are refused, round
    by round, before anything of them is released.  With `key_file=None` the key is gone when the program ends, so
    each run spends (epsilon, delta) once more.  The default is `.stream-dp/<stream>.key`.

    One key releases one log, so only the thread that makes a Histogram observes with it: other threads, and processes
    that are forked from this one, are refused.  The key file is locked until `close`.

    Raises `SettingsError`, `KeyFileRefused`, or another `Refused`.
    """

    def __init__(
        self, settings: Source = None, /, *, key_file: str | Path | None = "", **overrides: Any
    ) -> None:
        self._settings = local_settings(settings, overrides)
        self._owner = os.getpid(), get_ident()
        self._whole = True
        known = read_list(self._settings.known_labels)
        epoch = Epoch.open(self._settings, 1, 0, known=known)
        self._file = None if key_file is None else KeyFile.open(self._place(key_file), epoch)
        try:
            key = new_key()
            if self._file is None:
                warnings.warn(
                    "this histogram keeps no key: whoever runs the program again over the same events spends "
                    "(epsilon, delta) once more; name a key_file to get the same releases again",
                    stacklevel=2,
                )
            else:
                epoch, key = self._file.epoch, self._file.key
                self._check_same(self._file)
            self._pipeline = Pipeline(epoch, key, self._settings.events, known=known)
        except BaseException:
            self.close()
            raise
        self._releases = WholeReleases()
        self._told = False
        self.release: WholeRelease | None = None

    def _place(self, key_file: str | Path) -> Path:
        return Path(key_file or Path(".stream-dp", f"{self._settings.stream}.key"))

    def _check_same(self, file: KeyFile) -> None:
        """Raise `KeyFileRefused` if the key was used with other settings than these."""
        frozen = file.epoch.privacy
        other = [
            f"{name} was {frozen.get(name)} and is {value}"
            for name, value in frozen_settings(self._settings).items()
            if frozen.get(name) != value
        ]
        if other:
            raise KeyFileRefused(
                f"{file.path} was used with other settings ({'; '.join(other)}): restore them, "
                "or name another key_file, which spends (epsilon, delta) once more"
            )
        file.epoch.check_settings(self._settings)

    @property
    def guarantee(self) -> Guarantee:
        """What all releases guarantee together; its `sentence` says it in words."""
        return self._pipeline.epoch.guarantee

    @property
    def round(self) -> int:
        """Rounds closed so far."""
        return self._pipeline.round

    @property
    def rounds_left(self) -> int:
        """Rounds that the horizon still has room for."""
        return self._pipeline.histogram.rounds_left

    def observe(
        self, event: Event, *, user: str | None = None, at: datetime | None = None
    ) -> WholeRelease | None:
        """Count one event and return the release that follows it, None where it closes no round that is released.

        `event`: an item, the items of one event, or a mapping with the fields of an event; `user`: whose event it is,
        needed where the privacy unit is the user; `at`: when it happened, which releases tell, by default now.

        What is no event counts as one without items, as in a stream, and is warned of once: whether a program stops
        must not depend on the data.  Raises `HorizonReached`, and `KeyFileRefused` for other events than before.
        """
        self._check_room()
        released = self._take([record_value(event, user)], clock() if at is None else _milliseconds(at))
        return released[-1] if released else None

    def observe_all(self, events: Iterable[Event]) -> Iterator[WholeRelease]:
        """Count the events of an iterable, or the rows of a table, and give each release when it is there.

        A sequence or a table is taken in steps of many events, which is faster; of anything else each event is counted
        when it comes.  Raises `SettingsError` for a table of which nobody says which column holds the items.
        """
        names = column_names(events)
        if names is not None and self._settings.mapping is None and "items" not in names:
            raise SettingsError(
                f"no column of this table is called items; there are {', '.join(names)}: say which one holds them, for "
                'instance events={"items": "sku"}, or several, events={"families": {"product": "sku"}}'
            )
        rows = each_event(events)
        size = _AT_ONCE if isinstance(events, Sequence) or hasattr(events, "__len__") else 1
        while taken := [record_value(event) for event in islice(rows, size)]:
            while taken:
                self._check_room()
                before = self._pipeline.intake.next_offset
                yield from self._take(taken, clock())
                taken = taken[self._pipeline.intake.next_offset - before :]

    def close(self) -> None:
        """Close the key file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def __reduce_ex__(self, _: Any) -> NoReturn:
        """Two copies could release two logs under one key."""
        raise TypeError("a Histogram cannot be copied: make another one, with a key_file of its own")

    def __enter__(self) -> Histogram:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self, values: Sequence[bytes], at: int) -> list[WholeRelease]:
        self._check_owner()
        self._whole = False  # until everything is done that belongs to these events
        first = self._pipeline.intake.next_offset
        records = [Record(offset, at, None, value) for offset, value in enumerate(values, first)]
        output = self._pipeline.process(records)
        if self._file is not None:
            self._file.check(output.heads)
        self._whole = True
        self._warn(output.dead_letters)
        wholes = [self._releases.add(decode_whole_release(part.value)) for part in output.releases]
        released = [whole for whole in wholes if whole is not None]
        if released:
            self.release = released[-1]
        return released

    def _check_owner(self) -> None:
        """Raise `KeyFileRefused` in another process or thread, and after a call that did not end.

        Whoever goes on with a copy of the state would release another log under the same noise.
        """
        process, thread = self._owner
        if os.getpid() != process:
            raise KeyFileRefused(
                "this Histogram was made before the process was forked, and two logs would be released under its key: "
                "make one in each process, with a key_file of its own"
            )
        if get_ident() != thread:
            raise KeyFileRefused(
                "another thread made this Histogram: make it in the thread that observes, and hand events over to that "
                "one, for instance by a queue.Queue"
            )
        if not self._whole:
            raise KeyFileRefused(
                "an earlier call was refused or interrupted, so some events may be counted that nothing was released "
                "for: make the Histogram again, and give it the same events from the first one on"
            )

    def _check_room(self) -> None:
        """Raise `HorizonReached` where no further event can be counted."""
        if self._pipeline.finished:
            raise HorizonReached(
                f"all {self.round:,} rounds of the horizon are closed: begin another Histogram with a larger horizon, "
                "which spends (epsilon, delta) once more"
            )

    def _warn(self, dead_letters: Sequence[DeadLetter]) -> None:
        if dead_letters and not self._told:
            self._told = True
            warnings.warn(
                f"event {dead_letters[0].offset + 1:,} counts as one without items: {dead_letters[0].reason}; "
                "others like it are not reported",
                stacklevel=4,
            )


@overload
def run(
    events: AsyncIterable[Event],
    /,
    settings: Source = ...,
    *,
    key_file: str | Path | None = ...,
    **overrides: Any,
) -> AsyncIterator[WholeRelease]: ...


@overload
def run(
    events: Iterable[Event], /, settings: Source = ..., *, key_file: str | Path | None = ..., **overrides: Any
) -> Iterator[WholeRelease]: ...


def run(
    events: Iterable[Event] | AsyncIterable[Event],
    /,
    settings: Source = None,
    *,
    key_file: str | Path | None = "",
    **overrides: Any,
) -> Iterator[WholeRelease] | AsyncIterator[WholeRelease]:
    """The releases of a running histogram over `events`: any iterable, asynchronous one, or table of rows.

        for release in stream_dp.run(purchases, epsilon=1, key_file="shop.key"):
            print(release.histogram)

    Everything else is as for `Histogram`.  Settings and key file are looked at when `run` is called.
    """
    histogram = Histogram(settings, key_file=key_file, **overrides)
    if isinstance(events, AsyncIterable):
        return _run_async(histogram, events)
    return _run(histogram, events)


def _run(histogram: Histogram, events: Iterable[Event]) -> Iterator[WholeRelease]:
    with histogram:
        yield from histogram.observe_all(events)


async def _run_async(histogram: Histogram, events: AsyncIterable[Event]) -> AsyncIterator[WholeRelease]:
    with histogram:
        async for event in events:
            if (release := histogram.observe(event)) is not None:
                yield release


def _milliseconds(moment: datetime) -> int:
    return milliseconds(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))
