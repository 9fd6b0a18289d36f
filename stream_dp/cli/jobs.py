"""`stream-dp jobs`: the worker that answers requests for one-shot jobs."""

from pathlib import Path
from typing import Annotated

import typer

from stream_dp.cli import options
from stream_dp.cli.hosting import run_worker
from stream_dp.cli.log_options import Log
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.one_shot_options import EngineName
from stream_dp.events.stored_files import OBJECT
from stream_dp.jobs.request import EVERY_JOB, JOBS
from stream_dp.jobs.spark import ENGINES
from stream_dp.jobs.worker import JobWorker
from stream_dp.operations.open_metrics import PublicFacts
from topologies.jobs import Jobs

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="""Answer requests for top-k, set-union and histogram jobs.

    [bold]Examples[/]

      stream-dp jobs worker --stream shop
    """,
)


@app.command()
@options.grouped
def worker(
    *,
    servers: options.Servers,
    job: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB", help="Answer only these: top-k, set-union or histogram; may be repeated."
        ),
    ] = None,
    files: Annotated[
        str | None,
        typer.Option(
            metavar="FOLDER",
            help="Let requests read files in this folder, or objects below s3://bucket/prefix; without it, no files.",
        ),
    ] = None,
    engine: EngineName = "local",
    unmetered: options.Unmetered = False,
    log: Log,
) -> None:
    """Answer the requests on <stream>.jobs with results on <stream>.results, until Ctrl-C or SIGTERM.

    [bold]Examples[/]

      stream-dp jobs worker --stream shop

      stream-dp jobs worker --settings stream.toml --job set-union --files /data/exports --json

      stream-dp jobs worker --stream shop --engine spark
    """
    for name in job or ():
        if name not in EVERY_JOB:
            raise Mistake(f"--job takes {', '.join(EVERY_JOB)}, not {name!r}")
    folder = None if files is None else files if files.startswith(OBJECT) else Path(files)
    if isinstance(folder, Path) and not folder.is_dir():
        raise Mistake(f"there is no folder {folder}: name one with --files, or leave it out")
    settings, counting = options.metered(servers.load(), unmetered), ENGINES[engine]()
    counting.start()
    worker = Jobs(JobWorker(settings, job or JOBS, folder, counting))
    run_worker(worker, f"jobs.{'+'.join(worker.worker.jobs)}", log, PublicFacts(settings.stream))
