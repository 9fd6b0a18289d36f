"""`stream-dp intake`, `shard`, `merge` and `rekey`: what a divided stream needs beside its worker."""

from stream_dp.cli import options
from stream_dp.cli.hosting import run_worker
from stream_dp.cli.log_options import Log
from stream_dp.config.reading import load_settings
from stream_dp.workers.intake import IntakeWorker
from stream_dp.workers.merge import MergeWorker
from stream_dp.workers.rekey import Rekeyer
from stream_dp.workers.shard import ShardWorker


@options.grouped
def intake(servers: options.Servers, log: Log) -> None:
    """Read a share of a stream's partitions, as Kafka divides them, until stopped with Ctrl-C or SIGTERM.

    For streams with intake = "group". Start it as often as there are cores to use, on any machine, at most as often as
    the events topic has partitions. The releases are those of one worker that reads all partitions.

    [bold]Examples[/]

      stream-dp intake --stream shop

      stream-dp intake --settings stream.toml --json
    """
    worker = IntakeWorker(servers.load())
    run_worker(worker, "intake", log, worker.watch.facts)


@options.grouped
def shard(servers: options.Servers, log: Log) -> None:
    """Run the shards of a stream that Kafka assigns to this process, until stopped with Ctrl-C or SIGTERM.

    Start it as often as there are cores to use, on any machine, at most as often as there are shards.

    [bold]Examples[/]

      stream-dp shard --stream shop

      stream-dp shard --settings stream.toml --json
    """
    worker = ShardWorker(servers.load())
    run_worker(worker, "shard", log, worker.watch.facts)


@options.grouped
def merge(
    settings: options.SettingsFile = None,
    stream: options.Stream = None,
    kafka: options.Kafka = None,
    *,
    log: Log,
) -> None:
    """Merge the releases of a stream's shards into whole rounds, until stopped with Ctrl-C or SIGTERM.

    It writes the releases topic as one worker would, so everything that reads releases works as before.
    Start a second one if another should take its place when it fails.

    [bold]Examples[/]

      stream-dp merge --stream shop

      stream-dp merge --settings stream.toml --json
    """
    worker = MergeWorker(load_settings(settings, stream=stream, kafka=kafka))
    run_worker(worker, "merge", log, worker.watch.facts)


@options.grouped
def rekey(
    settings: options.SettingsFile = None,
    stream: options.Stream = None,
    kafka: options.Kafka = None,
    *,
    log: Log,
) -> None:
    """Copy a topic into one where each user has one partition, so that a group can read it by user.

    It copies the topic that the setting source names into the stream's events topic, each record exactly once, until
    stopped with Ctrl-C or SIGTERM. Start it again at any time: it continues. The partition is computed from the user
    that [events] finds. The stream spends the budget of its source, and every epoch is charged on all of it, for good.
    The copy is made with as many partitions as the source; for another number, make it before.

    [bold]Examples[/]

      stream-dp rekey --settings stream.toml

      stream-dp rekey --settings stream.toml --kafka broker:9092 --json
    """
    worker = Rekeyer(load_settings(settings, stream=stream, kafka=kafka))
    run_worker(worker, "rekey", log, worker.watch.facts)
