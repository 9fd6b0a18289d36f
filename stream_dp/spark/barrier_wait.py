"""Waits for the next barrier at the broker, which answers when there is one."""

from kafka import TopicPartition

from stream_dp.config.settings import Settings
from stream_dp.kafka.log import read_only_consumer
from stream_dp.kafka.rights import naming


class BarrierWait:
    """A connection that is behind the barriers of one stream."""

    def __init__(self, settings: Settings) -> None:
        """Raises KafkaError if no broker answers."""
        self._place = TopicPartition(settings.barriers, 0)
        self._consumer = read_only_consumer(settings.kafka_address, auto_offset_reset="none")
        self._consumer.assign([self._place])
        self._position = -1

    def close(self) -> None:
        """Give the connection up."""
        self._consumer.close()

    def wait(self, offset: int, milliseconds: int) -> None:
        """Return when there is a record at `offset` or behind it, or after so long.  Raises KafkaError."""
        if offset != self._position:
            self._consumer.seek(self._place, offset)
            self._position = offset
        with naming("READ", self._place.topic):
            for record in self._consumer.poll(milliseconds).get(self._place, []):
                self._position = record.offset + 1
