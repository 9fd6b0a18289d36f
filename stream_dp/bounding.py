"""What of an event may enter any state, so that one privacy unit changes no more than the guarantee allows."""

from dataclasses import dataclass

from stream_dp.records import Event


@dataclass(frozen=True)
class EventBound:
    """The privacy unit is one event: its first `items_per_event` distinct items in record order, each once."""

    items_per_event: int

    def admit(self, event: Event) -> list[str]:
        """All that is counted of `event`.

        >>> EventBound(2).admit(Event(["b", "a", "b", "c"]))
        ['b', 'a']
        """
        admitted: dict[str, None] = {}
        for item in event.items:
            admitted[item] = None
            if len(admitted) == self.items_per_event:
                break
        return list(admitted)
