"""Every command of `stream-dp`: where it lives, what it is for, and which extra it needs.

A command's module is imported when the command is called, and not before, so that it may import at its top whatever it
needs, and `stream-dp --help` waits for none of it.
"""

from importlib import import_module
from typing import Any, NamedTuple

import typer.main

from stream_dp.errors import needs_extra


class Entry(NamedTuple):
    """Where a command is: `place` is "module" for a group of commands and "module:function" for a single one."""

    place: str
    summary: str
    extra: str = ""


COMMANDS = {
    "demo": Entry(
        "demo:demo",
        "Watch private histograms of 336,776 real flights grow: everything runs here and ends with Ctrl-C.",
        "demo",
    ),
    "connect": Entry(
        "connect:connect",
        "Propose a stream that reads an existing topic, show what it costs, and write its settings file.",
        "worker",
    ),
    "worker": Entry(
        "worker:worker",
        "Read a stream's events and release its histogram after each, until stopped with Ctrl-C or SIGTERM.",
        "worker",
    ),
    "spark": Entry(
        "spark:spark",
        "Read and count a stream's events on Apache Spark, for a worker that releases what is shown, until stopped.",
        "spark",
    ),
    "barriers": Entry(
        "barriers:barriers",
        "Write the barriers of a stream, until stopped with Ctrl-C or SIGTERM.",
        "worker",
    ),
    "tail": Entry(
        "tail:tail",
        "Show a stream's running histogram as it is released, until stopped with Ctrl-C.",
        "estimates",
    ),
    "table": Entry(
        "table:table",
        "Keep `<stream>.table` equal to the newest release, a record per label, until stopped with Ctrl-C or SIGTERM.",
        "worker",
    ),
    "windows": Entry(
        "windows:windows",
        "Write how often each label occurred lately, and what rises and falls, into `<stream>.windows`, until stopped.",
        "worker",
    ),
    "history": Entry(
        "history:history",
        "Write how counts grew into `<stream>.history`, a flat row for each label and minute, until stopped.",
        "worker",
    ),
    "replay": Entry(
        "replay:replay",
        "Replay recorded events into a stream, each exactly once.  After a crash, run it again: it continues.",
        "jobs",
    ),
    "dashboard": Entry(
        "dashboard:dashboard",
        "Show running histograms on a live web page, until stopped with Ctrl-C.",
        "dashboard",
    ),
    "export": Entry(
        "export:export",
        "Write what a stream has released over time as a Parquet file, for DuckDB, Spark or a notebook.",
        "local",
    ),
    "calibrate": Entry(
        "calibrate:calibrate",
        "Compare what the mechanisms show at one guarantee (epsilon, delta).",
        "estimates",
    ),
    "preview": Entry(
        "preview:preview",
        "Try candidate settings on a PUBLIC log, and compare what they show with the true counts.",
        "jobs",
    ),
    "plan": Entry(
        "plan:plan",
        "Estimate what a stream of a given size needs, by what the work took where it was measured.",
        "worker",
    ),
    "check": Entry(
        "check:check",
        "Check settings, Kafka, Redis and noise before a worker starts.  It changes nothing, unless --grant is given.",
        "worker",
    ),
    "audit": Entry(
        "audit:audit",
        "Run the real mechanisms on neighbouring inputs, and bound epsilon from below by their outputs.",
        "jobs",
    ),
    "verify": Entry(
        "verify:verify",
        "Recompute all releases of an epoch from its noise key and the events topic, and compare them.",
        "worker",
    ),
    "statement": Entry(
        "statement:statement",
        "Write for a privacy officer what a stream guarantees and what not, and what is spent and left.",
        "worker",
    ),
    "rebuild": Entry(
        "verify:rebuild",
        "Restore a stream's lost state in Redis from its noise key and its topics.  Nothing is released.",
        "worker",
    ),
    "republish": Entry(
        "republish:republish",
        "Write lost releases again, byte for byte, from the noise key and the events topic.  It spends nothing.",
        "worker",
    ),
    "top-k": Entry(
        "one_shot:top_k", "Release the labels that most users hold, of a topic or a file.", "jobs"
    ),
    "set-union": Entry(
        "one_shot:set_union",
        "Release as many as possible of the labels that users hold, without counts.",
        "jobs",
    ),
    "histogram": Entry(
        "one_shot:histogram", "Release how many users hold each label, of a topic or a file.", "jobs"
    ),
    "label-votes": Entry(
        "one_shot:label_votes",
        "Label public examples by the votes of teachers (PATE), of a topic or a file.",
        "jobs",
    ),
    "advise": Entry(
        "advise:advise",
        "Compare all mechanisms of a one-shot job on a PUBLIC log with the true counts.",
        "jobs",
    ),
    "jobs": Entry("jobs", "Answer requests for top-k, set-union and histogram jobs.", "jobs"),
    "key": Entry("key", "Create a key in a file that only its owner may read.", "worker"),
    "budget": Entry("budget", "Show, set and explain the privacy budget of a data source.", "worker"),
    "mapping": Entry(
        "mapping", "Compare the mapping of the running epoch with that of the settings.", "worker"
    ),
    "erase": Entry(
        "erase:erase",
        "Copy the events topic without the records of one person, and delete the dead letters.",
        "worker",
    ),
    "source": Entry(
        "source",
        "Register which data source a topic or a file belongs to, and so whose budget it spends.",
        "jobs",
    ),
    "dev": Entry(
        "dev", "Start and stop an embedded Kafka and Redis, for trying things out and for tests.", "demo"
    ),
}

PANELS = {
    "Begin": ("demo", "connect", "calibrate", "preview", "plan", "check", "dev"),
    "Run a stream": ("worker", "spark", "barriers", "table", "windows", "history", "replay"),
    "See what it shows": ("tail", "dashboard", "export"),
    "Ask once": ("top-k", "set-union", "histogram", "label-votes", "advise", "jobs"),
    "Budget and key": ("budget", "source", "key"),
    "Check and restore": ("verify", "statement", "rebuild", "republish", "mapping", "erase", "audit"),
}
"""The commands under the headings of `stream-dp --help`."""


def loaded(name: str) -> Any:
    """The command of this name, ready to be called.  Raises `ExtraMissing` where the packages it needs are missing."""
    place, _, extra = COMMANDS[name]
    module, _, function = place.partition(":")
    with needs_extra(f"stream-dp {name}", extra):
        home = import_module(f"stream_dp.cli.{module}")
    around = typer.Typer(rich_markup_mode="rich")
    if function:
        around.command(name)(getattr(home, function))
    else:
        around.add_typer(home.app, name=name)
    return typer.main.get_group(around).commands[name]
