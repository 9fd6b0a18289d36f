"""The names of a stream's topics."""

import msgspec

from stream_dp.config.events_section import EventsSection
from stream_dp.config.setting_values import Name

SOURCES = "stream_dp.sources"
"""The topic that says to which data source each topic and each file belongs, one for a whole Kafka."""


class TopicNames(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that decide what the topics of a stream are called, and these names."""

    stream: Name
    source: str | None = None
    mapping: EventsSection | None = msgspec.field(default=None, name="events")

    @property
    def events(self) -> str:
        """The topic read from."""
        named = self.mapping.topic if self.mapping is not None else None
        return named or f"{self.stream}.events"

    @property
    def owns_events(self) -> bool:
        """Whether the topic read from belongs to the stream: another one is never made nor written to."""
        return self.events == f"{self.stream}.events"

    @property
    def schemas(self) -> str:
        """The topic that remembers the schemas by which events were read.  PRIVATE, like the events that name them."""
        return f"{self.stream}.schemas"

    @property
    def releases(self) -> str:
        """The topic that subscribers read."""
        return f"{self.stream}.releases"

    @property
    def table(self) -> str:
        """The compacted topic that shows the newest release, a record a label; `stream-dp table` writes it."""
        return f"{self.stream}.table"

    @property
    def windows_topic(self) -> str:
        """The topic of what happened lately, a record a window; `stream-dp windows` writes it."""
        return f"{self.stream}.windows"

    @property
    def history_topic(self) -> str:
        """The topic of how counts grew, a record a label and moment; `stream-dp history` writes it."""
        return f"{self.stream}.history"

    @property
    def epochs(self) -> str:
        """The topic that remembers when epochs were opened and closed."""
        return f"{self.stream}.epochs"

    @property
    def barriers(self) -> str:
        """The topic that says when rounds end, where they end by ticks."""
        return f"{self.stream}.barriers"

    @property
    def counts(self) -> str:
        """The topic of what an engine has counted.  PRIVATE: it holds true counts."""
        return f"{self.stream}.counts"

    @property
    def data_source(self) -> str:
        """Whose budget is charged: the events topic, unless the events are derived from another source."""
        return self.source or self.events

    @property
    def jobs(self) -> str:
        """The topic of requests for one-shot jobs."""
        return f"{self.stream}.jobs"

    @property
    def results(self) -> str:
        """The topic of what jobs answer."""
        return f"{self.stream}.results"

    @property
    def dead_letters(self) -> str:
        """The topic of records that were no valid events.  Raw data: keep it inside the trust boundary."""
        return f"{self.stream}.dead-letters"
