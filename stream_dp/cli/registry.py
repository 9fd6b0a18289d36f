"""What the schema registry of a stream says now, for commands that decode records and release nothing of them."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import cache

from stream_dp.cli.mistakes import Mistake
from stream_dp.config.events_section import EventsSection
from stream_dp.events.mapping.decoder import Decoder, decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.kafka.schema_registry import RegistryAway, SchemaRegistry


@contextmanager
def decoding(section: EventsSection | None, mapping: Mapping | None = None) -> Iterator[Decoder]:
    """What makes events of records by this section, or by `mapping` with its registry; a schema is asked for once.

    Raises `SettingsError`, or `Mistake` for a registry that cannot be asked.
    """
    mapping = mapping or Mapping.of(section)
    if section is None or mapping is None or not mapping.needs_schemas:
        yield decoder_of(mapping)
        return
    with closing(SchemaRegistry(section)) as registry:
        try:
            yield decoder_of(mapping, cache(registry.schema_or_none))
        except RegistryAway as away:
            raise Mistake(
                f"the schema registry at {registry.address} cannot be asked ({away}): check schema_registry and how "
                "to be let in there, in [events]"
            ) from None
