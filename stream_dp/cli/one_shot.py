"""`stream-dp top-k`, `set-union`, `histogram` and `label-votes`: one job, charged to the ledger of its source.

The options of each command are the parameters that the mechanisms of its job declare, and those of every job.
"""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from stream_dp.cli.one_shot_options import Job, VotesJob, guarantee, reading
from stream_dp.cli.one_shot_run import run
from stream_dp.jobs.declared import REQUIRED, Declared
from stream_dp.jobs.defaults import DEFAULT_IN_WORDS, DEFAULT_K
from stream_dp.jobs.mechanisms import CHOSEN, MECHANISMS
from stream_dp.jobs.request import JobName, Means, Parameters

_HELP: dict[JobName, str] = {
    "top-k": """Release the labels that most users hold, of a topic or a file.

    laplace and gaussian release counts too, and a user counts with at most --items-per-user items; the others let users
    hold any number of items.

    [bold]Examples[/]

      stream-dp top-k --stream shop -k 20

      stream-dp top-k --file orders.parquet --source orders --mechanism gaussian --items-per-user 10

      stream-dp top-k --stream shop --mechanism stable -k 100 --least 20 --penalty 0.5 --dry-run

      stream-dp top-k --stream shop -k 20 --id best-of-may --output best.parquet

      stream-dp top-k --stream shop --mechanism pay-what-you-get --budget anna --marks 200 --queries 20 -k 10
    """,
    "set-union": """Release as many as possible of the labels that users hold, without counts.

    All but greedy and greedy-transfer let a user count with a sample of --items-per-user items.

    [bold]Examples[/]

      stream-dp set-union --stream shop --items-per-user 20

      stream-dp set-union --file orders.csv --source shop.events --mechanism greedy --json
    """,
    "histogram": """Release how many users hold each label, of a topic or a file.

    [bold]Examples[/]

      stream-dp histogram --stream shop --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --items-per-user 5

      stream-dp histogram --file orders.csv --source orders --mechanism known --bins labels.txt --output counts.csv
    """,
    "label-votes": """Label public examples by the votes of teachers (PATE), of a topic or a file.

    A row is a vote: its columns teacher, query and label. An event has the teacher as its user, and items that are an
    example, a tab, and a label. With stable an example gets up to -k labels, or none; with argmax one of --labels.

    [bold]Examples[/]

      stream-dp label-votes --file votes.parquet --examples examples.txt -k 3 --epsilon 4

      stream-dp label-votes --file votes.csv --examples examples.txt --mechanism argmax --labels digits.txt --json
    """,
}


def command(job: JobName, shared: type[Job] = Job) -> Callable[..., None]:
    """The command of a job, with its options in a signature, where typer looks for them."""
    known = MECHANISMS[job]
    named = typer.Option(help=f"{', '.join(known)}.", show_default=DEFAULT_IN_WORDS[job])
    options = [_parameter("mechanism", Annotated[str | None, named])]
    options += [_option(job, name, shared) for name in _taken(known.values())]
    options += [_parameter(each.name, each.type, each.default) for each in fields(shared)]

    def ask(**given: Any) -> None:
        of_every_job = shared(**{each.name: given.pop(each.name) for each in fields(shared)})
        run(job, given, of_every_job)

    ask.__doc__ = _HELP[job]
    ask.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return ask


def _taken(known: Iterable[Declared]) -> list[str]:
    """The parameters of these mechanisms, but for the guarantee, in the order of all parameters."""
    taken = {name for each in known for name in each.parameters} - {"epsilon", "delta"}
    return [name for name in Parameters.__struct_fields__ if name in taken]


def _option(job: JobName, name: str, shared: type[Job]) -> inspect.Parameter:
    kind, means = _meaning(name)
    known = MECHANISMS[job]
    takers = {each: declared for each, declared in known.items() if name in declared.parameters}
    of = "" if len(takers) == len(known) else f"{', '.join(takers)}: "
    is_file = get_origin(kind) in (list, dict)
    option = (reading if is_file else guarantee if name != "k" else typer.Option)(
        *(("-k", "--k") if name == "k" else (shared.called.get(name, f"--{name.replace('_', '-')}"),)),
        help=of + means,
        show_default=str(DEFAULT_K[job]) if name == "k" else _defaults(name, takers),
        metavar="FILE" if is_file else "NAME" if name == "budget" else None,
    )
    told = Path if is_file else kind
    if is_file and len(takers) == len(known):
        return _parameter(name, Annotated[told, option], REQUIRED)
    return _parameter(name, Annotated[told | None, option])


def _meaning(name: str) -> tuple[Any, str]:
    """The type of a parameter, and what it means."""
    hint = get_type_hints(Parameters, include_extras=True)[name]
    [declared] = [each for each in get_args(hint) if each is not NoneType]
    kind, *notes = get_args(declared)
    [means] = [note for note in notes if isinstance(note, Means)]
    return kind, means


def _defaults(name: str, takers: dict[str, Declared]) -> str | bool:
    """What the mechanisms take where nothing is given."""
    if name in CHOSEN:
        return CHOSEN[name][1]
    by_value: dict[Any, list[str]] = {}
    for mechanism, declared in takers.items():
        if (default := declared.parameters[name]) is not REQUIRED:
            by_value.setdefault(default, []).append(mechanism)
    if len(by_value) < 2:
        return "".join(f"{value}" for value in by_value) or False
    told = {value: "what fits" if value is None else f"{value:g}" for value in by_value}
    return "; ".join(f"{told[value]} for {', '.join(names)}" for value, names in by_value.items())


def _parameter(name: str, kind: Any, default: Any = None) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


top_k = command("top-k")
set_union = command("set-union")
histogram = command("histogram")
label_votes = command("label-votes", VotesJob)
