"""`stream-dp top-k`, `set-union` and `histogram`: one job over a topic or a file, charged to its source's ledger."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from stream_dp.cli import options
from stream_dp.cli.mistakes import Mistake
from stream_dp.cli.one_shot_options import ItemsPerUser, Job, Plot, VotesJob, guarantee, reading
from stream_dp.cli.one_shot_run import run
from stream_dp.jobs.defaults import GAUSSIAN_ALPHA, MOST_BY_GUMBEL, default_mechanism


@options.grouped
def top_k(
    *,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="laplace, gaussian, gumbel, gumbel-known, pay-what-you-get, stable, stable-gaussian, stable-fixed-k, "
            "ptr-laplace, ptr-gaussian, gap or gap-gaussian.",
            show_default=f"gumbel up to k = {MOST_BY_GUMBEL}, then gaussian",
        ),
    ] = None,
    k: Annotated[int, typer.Option("-k", "--k", help="The most labels to release.")] = 10,
    least: Annotated[
        int | None,
        guarantee(
            help="stable and gap, each also -gaussian: the least k that may be chosen.", show_default="1"
        ),
    ] = None,
    kbar: Annotated[
        int | None,
        guarantee(help="How many labels are looked at, k or more.", show_default="50 k, at least 5000"),
    ] = None,
    items_per_user: ItemsPerUser = None,
    bins: Annotated[
        Path | None,
        reading(metavar="FILE", help="gumbel-known: PUBLIC labels, one a line."),
    ] = None,
    penalty: Annotated[
        float | None,
        guarantee(
            help="stable and gap, each also -gaussian, and stable-fixed-k: what each rank away from k weighs, "
            "in users.",
            show_default="1 for stable-fixed-k, else 0",
        ),
    ] = None,
    budget: Annotated[
        str | None,
        guarantee(
            metavar="NAME",
            help="pay-what-you-get: the budget to draw from; the first job of this name opens it.",
        ),
    ] = None,
    marks: Annotated[
        int | None,
        guarantee(help="pay-what-you-get: how many labels its jobs may release in all."),
    ] = None,
    queries: Annotated[
        int | None,
        guarantee(help="pay-what-you-get: how many jobs may draw from it."),
    ] = None,
    job: Job,
    plot: Plot = None,
) -> None:
    """Release the labels that most users hold, of a topic or a file.

    laplace and gaussian release counts too, and a user counts with at most --items-per-user items; the others let users
    hold any number of items.

    [bold]Examples[/]

      stream-dp top-k --stream shop -k 20

      stream-dp top-k --file orders.parquet --source orders --mechanism gaussian --items-per-user 10 --plot top.png

      stream-dp top-k --stream shop --mechanism stable -k 100 --least 20 --penalty 0.5 --dry-run

      stream-dp top-k --stream shop -k 20 --id best-of-may --output best.parquet

      stream-dp top-k --stream shop --mechanism pay-what-you-get --budget anna --marks 200 --queries 20 -k 10
    """
    delta = None if mechanism == "gap" else job.delta
    asked = {
        "delta": delta,
        "k": k,
        "least": least,
        "kbar": kbar,
        "items_per_user": items_per_user,
        "bins": None if bins is None else _lines(bins),
        "penalty": penalty,
        "budget": budget,
        "marks": marks,
        "queries": queries,
    }
    run({"job": "top-k", "mechanism": mechanism, **asked}, job, plot)


@options.grouped
def set_union(
    *,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="sips, policy, policy-gaussian, weighted, weighted-gaussian, count, count-gaussian, greedy or "
            "greedy-transfer.",
            show_default=default_mechanism("set-union"),
        ),
    ] = None,
    items_per_user: ItemsPerUser = None,
    alpha: Annotated[
        float | None,
        guarantee(
            help="policy and greedy: how many noise scales above the threshold a label is filled up to.",
            show_default=f"{GAUSSIAN_ALPHA:g} for policy-gaussian, else 3",
        ),
    ] = None,
    tokens: Annotated[
        int | None,
        guarantee(help="greedy: how many items a user may help."),
    ] = None,
    frequencies: Annotated[
        Path | None,
        reading(
            metavar="FILE",
            help="greedy-transfer: JSON object of labels and how frequent they are in PUBLIC data.",
        ),
    ] = None,
    job: Job,
) -> None:
    """Release as many as possible of the labels that users hold, without counts.

    All but greedy and greedy-transfer let a user count with a sample of --items-per-user items.

    [bold]Examples[/]

      stream-dp set-union --stream shop --items-per-user 20

      stream-dp set-union --file orders.csv --source shop.events --mechanism greedy --json
    """
    public = None if frequencies is None else _json_object(frequencies)
    asked = {
        "delta": job.delta,
        "items_per_user": items_per_user,
        "alpha": alpha,
        "tokens": tokens,
        "frequencies": public,
    }
    run({"job": "set-union", "mechanism": mechanism, **asked}, job)


@options.grouped
def histogram(
    *,
    mechanism: Annotated[
        str | None,
        typer.Option(
            help="laplace, gaussian; for public bins known or sparse-vector.",
            show_default=default_mechanism("histogram"),
        ),
    ] = None,
    items_per_user: ItemsPerUser = None,
    bins: Annotated[
        Path | None,
        reading(metavar="FILE", help="known, sparse-vector: PUBLIC labels, one a line."),
    ] = None,
    eta: Annotated[float | None, guarantee(help="known: weight of the high-pass filter.")] = None,
    threshold: Annotated[int | None, guarantee(help="sparse-vector: the count to reach.")] = None,
    most: Annotated[int | None, guarantee(help="sparse-vector: the most bins to release.")] = None,
    job: Job,
    plot: Plot = None,
) -> None:
    """Release how many users hold each label, of a topic or a file.

    [bold]Examples[/]

      stream-dp histogram --stream shop --from 2026-01-01T00:00:00Z --to 2026-02-01T00:00:00Z --items-per-user 5

      stream-dp histogram --file orders.csv --source orders --mechanism known --bins labels.txt --plot counts.png
    """
    asked = {
        "delta": None if mechanism in ("known", "sparse-vector") else job.delta,
        "items_per_user": items_per_user,
        "bins": None if bins is None else _lines(bins),
        "eta": eta,
        "threshold": threshold,
        "most": most,
    }
    run({"job": "histogram", "mechanism": mechanism, **asked}, job, plot)


@options.grouped
def label_votes(
    *,
    mechanism: Annotated[
        Literal["stable", "argmax"] | None,
        typer.Option(
            help="stable: up to -k labels, or none. argmax: one of --labels.",
            show_default=default_mechanism("label-votes"),
        ),
    ] = None,
    examples: Annotated[
        Path,
        reading(metavar="FILE", help="The PUBLIC examples that get labels, one a line."),
    ],
    labels: Annotated[
        Path | None,
        reading(metavar="FILE", help="argmax: the PUBLIC labels to choose from, one a line."),
    ] = None,
    k: Annotated[
        int | None,
        typer.Option("-k", "--k", help="stable: the most labels of an example.", show_default="1"),
    ] = None,
    protect: Annotated[
        Literal["teacher", "record"] | None,
        guarantee(
            help="All votes of one teacher, or one record that a teacher has learned from, which needs twice the "
            "noise.",
            show_default="record",
        ),
    ] = None,
    job: VotesJob,
) -> None:
    """Label public examples by the votes of teachers (PATE), of a topic or a file.

    A row is a vote: its columns teacher, query and label. An event has the teacher as its user, and items that are an
    example, a tab, and a label.

    [bold]Examples[/]

      stream-dp label-votes --file votes.parquet --examples examples.txt -k 3 --epsilon 4

      stream-dp label-votes --file votes.csv --examples examples.txt --mechanism argmax --labels digits.txt --json
    """
    asked = {
        "delta": job.delta,
        "k": k if mechanism == "argmax" else k or 1,
        "protect": protect,
        "examples": _lines(examples),
        "bins": None if labels is None else _lines(labels),
    }
    run({"job": "label-votes", "mechanism": mechanism, **asked}, job)


def _lines(file: Path) -> list[str]:
    return [line for line in _text(file).splitlines() if line]


def _json_object(file: Path) -> Any:
    try:
        return json.loads(_text(file))
    except ValueError:
        raise Mistake(f"{file} is not valid JSON: it should hold an object of labels and numbers") from None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError as error:
        raise Mistake(f"cannot read {file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise Mistake(f"{file} is not UTF-8 text") from None
