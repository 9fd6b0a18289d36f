"""`stream-dp erase`: one person out of the events topic and the dead letters of a stream."""

import json
from typing import Annotated

import msgspec
import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import progress_bar
from stream_dp.cli.reach import require_kafka, require_redis
from stream_dp.cli.registry import decoding
from stream_dp.config.connections import redis_client
from stream_dp.config.settings import Settings
from stream_dp.epochs.registry import Registry
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.kafka import roles
from stream_dp.kafka.rights import require_rights
from stream_dp.replay.erasure import copy_without, delete_topic, of_condition, of_user
from stream_dp.store.lease import Lease


@options.grouped
def erase(
    *,
    to: Annotated[str, typer.Option(metavar="TOPIC", help="The topic to make, which takes the copy.")],
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Whose records to leave out, by the user of an event.")
    ] = None,
    where: Annotated[
        str | None, typer.Option(metavar="PATH", help="Which records to leave out, as in [events].")
    ] = None,
    servers: options.Servers,
    as_json: options.Json = False,
) -> None:
    """Copy the events topic without the records of one person, and delete the dead letters.

    In the copy an empty record stands in the place of each of theirs, and of each that cannot be read.
    The copy belongs to the same data source. Stop the worker before; docs/operations/erasure.md says what comes after.

    [bold]Examples[/]

      stream-dp erase --user c7 --to orders-2

      stream-dp erase --where "customer.email == 'x@example.org'" --to orders-2 --json
    """
    if (user is None) == (where is None):
        raise Mistake("say whose records to leave out with one of the two: --user NAME or --where PATH")
    settings = servers.load()
    require_kafka(settings.kafka)
    require_redis(settings.redis)
    require_rights(settings.kafka_address, roles.erase(settings, to))
    with (
        decoding(settings.mapping, _reading(settings, where)) as decode,
        redis_client(settings.redis_address) as redis,
        Lease(redis, settings.stream) as lease,
        progress_bar("Copying") as progress,
    ):
        if not lease.claim():
            raise Mistake(f"a worker of stream {settings.stream!r} runs: stop it and its standbys first")
        is_erased = of_condition(decode) if user is None else of_user(decode, user)
        found = copy_without(settings.kafka_address, settings.events, to, is_erased, progress)
    registry = Registry(settings.kafka_address)
    source, unit = settings.data_source, settings.unit
    registry.register("topic", to, source, unit, create_topics=settings.create_topics)
    deleted = delete_topic(settings.kafka_address, settings.dead_letters)
    if as_json:
        told = {"topic": to, "source": source, "records": found.records, "emptied": found.emptied}
        typer.echo(json.dumps(told | {"dead_letters_deleted": deleted}))
        return
    typer.echo(
        f"{to} has {found.records:,} records, {found.emptied:,} of them empty, and spends the budget of {source}. "
        f"The dead letters are {'deleted' if deleted else 'not there'}.  Next:\n\n"
        f'  1. In the settings: source = "{source}", and in [events] topic = "{to}"\n'
        f"  2. stream-dp worker --new-epoch --recount\n"
        f"  3. Delete the topic {settings.events}, and every backup of it and of Redis"
    )


def _reading(settings: Settings, where: str | None) -> Mapping:
    """What reads of each record whose it is, or whether the condition holds; whatever the stream itself would count."""
    own = Mapping.of(settings.mapping) or Mapping()
    whose = own.user or (None if own.maps else "user")
    if where is None and whose is None:
        raise Mistake("[events] does not say where the user of a record is: add user there, or give --where")
    items = "`true`" if where is None else f"({where}) && `true` || `false`"
    user = whose if where is None else None
    return msgspec.structs.replace(own, items=items, families=None, user=user, where=None)
