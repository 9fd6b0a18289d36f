"""Writing what happened lately, and which labels rise and fall, into a topic that alerting can subscribe to."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from threading import Event

import msgspec

from stream_dp.config.settings import Settings
from stream_dp.events.record import Record
from stream_dp.kafka import roles
from stream_dp.kafka.log import LogRefused
from stream_dp.releases.whole_release import WholeRelease
from stream_dp.releases.window_readers import Windows
from stream_dp.releases.window_record import WindowRecord, cut_to_fit, record_of
from stream_dp.releases.windows import FALSE_DISCOVERIES, Span
from stream_dp.workers.periodic_topic import PeriodicWriter, keep_writing


class WindowsWriter(PeriodicWriter):
    """Writes `<stream>.windows`, a record for each of `spans`."""

    _kind = "windows_topic"
    _newest = 100  # more spans than anybody asks for

    def __init__(
        self, settings: Settings, spans: Sequence[Span], start: str = "latest", every: float = 1.0
    ) -> None:
        self._spans = spans
        self._done: set[str] = set()
        super().__init__(settings, start, every)

    def _begin(self, opened: ExitStack) -> None:
        self._windows = [
            opened.enter_context(Windows(self._releases.again, span, FALSE_DISCOVERIES))
            for span in self._spans
        ]

    def _resume(self, newest: Sequence[Record]) -> str:
        found = [self._decoded(record) for record in newest]
        last = found[-1]
        self._done = {each.window for each in found if (each.nonce, each.round) == (last.nonce, last.round)}
        return f"{last.epoch}.{last.round}.{last.nonce}"

    def _decoded(self, record: Record) -> WindowRecord:
        try:
            return msgspec.json.decode(record.value or b"", type=WindowRecord)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            raise LogRefused(
                f"the topic {self._topic!r} holds a record that is not a window: only `stream-dp windows` may "
                "write there"
            ) from None

    def _records(self, release: WholeRelease, is_begun: bool) -> Iterator[tuple[bytes, bytes]]:
        alone = msgspec.structs.replace(release)  # without what this reader has seen before
        for span, windows in zip(self._spans, self._windows, strict=True):
            if not (is_begun and str(span) in self._done):
                record = cut_to_fit(record_of(windows.window(alone), span))
                yield msgspec.json.encode(record), record.window.encode()


def keep_windows(
    settings: Settings, spans: Sequence[Span], stopping: Event, start: str = "latest", every: float = 1.0
) -> None:
    """Write `<stream>.windows` until `stopping`: see `keep_writing`."""
    opened = partial(WindowsWriter, settings, spans, start, every)
    keep_writing(settings, partial(roles.windows_writer, settings), opened, stopping)
