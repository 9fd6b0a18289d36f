"""`stream-dp barriers`: the process that ends rounds by ticks, or orders partitions, hosted apart from the worker."""

from typing import Annotated

import typer

from stream_dp.barriers.key import barrier_key, parsed_key
from stream_dp.barriers.topic import needs_barriers
from stream_dp.barriers.writer import BarrierWriter
from stream_dp.cli import options
from stream_dp.cli.checklist.rights import partitions_or_one
from stream_dp.cli.log_options import Log, start_logging
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.reach import require_kafka
from stream_dp.cli.stopping import until_stopped
from stream_dp.config.connections import redis_client
from stream_dp.config.secret import read_secret
from stream_dp.store.noise_key import noise_key


@options.grouped
def barriers(
    *,
    servers: options.Servers,
    key: Annotated[
        str | None,
        typer.Option(
            metavar="SOURCE",
            help="What [bold]stream-dp key barriers[/] wrote: env:NAME or file:PATH; without it, the noise key serves.",
        ),
    ] = None,
    log: Log,
) -> None:
    """Write the barriers of a stream, until stopped with Ctrl-C or SIGTERM.

    They end its rounds (rounds = "ticks"), or put the events of several partitions into their order. The worker starts
    such a process by itself. With write_barriers = false it does not, and you host one here, or two for safety:
    whichever is first writes the next barrier. They then come while no worker runs, too.

    [bold]Examples[/]

      stream-dp barriers --stream shop

      stream-dp barriers --settings stream.toml --key file:barriers.key
    """
    settings = servers.load()
    require_kafka(settings.kafka)
    if not needs_barriers(settings, partitions_or_one(settings)):
        raise Mistake(
            f"the events topic {settings.events!r} has one partition, so only rounds that end by ticks need barriers: "
            'set rounds = "ticks", or do not run this command'
        )
    if key is None:
        redis = redis_client(settings.redis_address)
        secret = barrier_key(noise_key(settings.noise_key, redis, settings.stream, may_create=False))
    else:
        secret = parsed_key(read_secret("barrier key", key))
    start_logging(log, settings.stream)
    BarrierWriter(settings, secret).run(until_stopped())
