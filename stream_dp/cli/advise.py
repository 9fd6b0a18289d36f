"""`stream-dp advise`: what every mechanism of a one-shot job finds in a log that everybody may see."""

from typing import Annotated

import msgspec
import typer
from rich.console import Console

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.output import progress_bar, spaced, steps_bar
from stream_dp.config.file_kinds import KINDS
from stream_dp.jobs.comparison import Finds, Question, best, bound_of_most
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import BadRequest, JobName, Source, Unit
from stream_dp.jobs.rows import RowCollector, Rows
from stream_dp.jobs.source_file import find_file


def advise(
    job: Annotated[JobName, typer.Argument(help="What is to be asked.", show_default=False)],
    file: Annotated[
        str, typer.Option(metavar="FILE", help=f"A PUBLIC or made-up log, here or s3://bucket/key: {KINDS}.")
    ],
    public: options.Public = False,
    k: Annotated[int, typer.Option("-k", "--k", help="top-k: the most labels to release.")] = 10,
    epsilon: Annotated[float, typer.Option(help="Epsilon of each guarantee.")] = 1.0,
    delta: Annotated[float, typer.Option(help="Delta of each guarantee.")] = 1e-6,
    items_per_user: Annotated[
        str, typer.Option(metavar="D,...", help="The bounds to try besides the default ones.")
    ] = "10,30,100,300",
    unit: Annotated[Unit, typer.Option(help="What is protected: all of one user, or one event.")] = "user",
    user: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of users in the file.", show_default="user")
    ] = None,
    item: Annotated[
        str | None, typer.Option(metavar="NAME", help="Column of items. [default: item or items]")
    ] = None,
    runs: options.Runs = 3,
    as_json: options.Json = False,
) -> None:
    """Compare all mechanisms of a one-shot job on a PUBLIC log with the true counts.

    Every mechanism runs with its defaults and with each bound on the items of a user, also with the least one that at
    most a tenth of the users exceed. The last line says how far the default is from the best of them. What is printed
    is compared with the true counts: on private data it has no guarantee at all. Take a public log that resembles
    yours, or one that you made up.

    [bold]Examples[/]

      stream-dp advise top-k --file public.parquet --public -k 50

      stream-dp advise set-union --file made-up.csv --public --epsilon 3 --items-per-user 5,20,80
    """
    options.require_public(public, "advise")
    question = Question(job, epsilon, delta, k)
    try:
        bounds = options.numbers(items_per_user, int, "--items-per-user")
        calibrate(
            question.asked(question.default)
        )  # what cannot be asked at all is refused before anything is read
        rows = _rows(file, user, item, unit, hidden=as_json)
        if not len(rows):
            raise Mistake(f"the file {file!r} holds no rows that count: give users and items")
        bound = bound_of_most(rows)
        requests = question.requests([*bounds, bound])
        with steps_bar("Running", len(requests) * runs, hidden=as_json) as step:
            found = [question.finds(rows, request, runs, done=step) for request in requests]
        most = best(found)
    except BadRequest as refused:
        raise Mistake(str(refused)) from None
    [default] = [each for each in found if each.is_default]
    if as_json:
        asked = {"job": job, "epsilon": epsilon, "delta": delta, "runs": runs}
        told = asked | {"bound_of_most": bound, "best": most, "found": found}
        typer.echo(msgspec.json.encode(told).decode())
        return
    _print(question, found, default, most, runs, bound)


def _rows(file: str, user: str | None, item: str | None, unit: Unit, hidden: bool) -> Rows:
    collector = RowCollector()
    with progress_bar("Reading", hidden) as progress:
        read_file(find_file(Source(file=file, user=user, item=item), unit), unit, collector, progress)
    return collector.rows()


def _print(
    question: Question, found: list[Finds], default: Finds, most: Finds, runs: int, bound: int
) -> None:
    """The best first."""
    top = question.job == "top-k"
    titles = ["labels", *([f"of the top {question.k}"] if top else []), "error", "over the bound"]
    table = spaced("mechanism", "with", right=titles)
    for each in sorted(found, key=lambda each: -each.score):
        cells = [f"{each.labels:,.0f}"]
        if each.recall is not None:
            cells.append(f"{each.recall:.0%}")
        cells += ["-" if part is None else f"{part:.1%}" for part in (each.error, each.over_cap)]
        name = f"[bold]{each.mechanism}[/]" + (" (default)" if each.is_default else "")
        table.add_row(name, _with(each), *cells)
    console = Console(highlight=False, soft_wrap=True)
    console.print(table)
    console.print(
        f"\nFrom {runs} {'run' if runs == 1 else 'runs'} each. error: median relative error of the counts, against the "
        "true ones. over the bound: the users who hold more than --items-per-user, of whose items a sample counts."
    )
    if question.job != "set-union":
        console.print(
            f"If counts matter most: --items-per-user {bound} is the least bound that at most a tenth of users exceed."
        )
    if default.score >= most.score:
        console.print("Nothing here finds more than the default.")
    else:
        options_ = f"--mechanism {most.mechanism} " + _with(most)
        console.print(f"The default finds {default.score / most.score:.0%} of what this finds: {options_}")


def _with(each: Finds) -> str:
    return " ".join(f"--{name.replace('_', '-')} {value:g}" for name, value in each.parameters.items())
