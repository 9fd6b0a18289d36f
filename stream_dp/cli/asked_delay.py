"""The question that `connect` asks: how long may a new label stay unseen?"""

import typer
from rich.table import Table

from stream_dp.cli.output import output, spaced
from stream_dp.config.settings import Settings
from stream_dp.planning.delays import Delay

_TIMES = (("days", 86_400), ("hours", 3_600), ("minutes", 60), ("seconds", 1))


def asked_delay(settings: Settings, waits: list[Delay]) -> str:
    """The `discover` of the answer: the number of a row, or a time or rounds such as 15m or every-15m."""
    output().print(delays_table(settings, waits))
    usual = next((number for number, each in enumerate(waits, 1) if each.discover == settings.discover), 1)
    question = "How long may a new label stay unseen, by number, or a time or rounds?"
    answer = str(typer.prompt(question, default=str(usual))).strip()
    if answer.isdecimal() and 1 <= int(answer) <= len(waits):
        return waits[int(answer) - 1].discover
    return answer if answer == "default" or answer.startswith("every-") else f"every-{answer}"


def _wait(rounds: int, settings: Settings) -> str:
    """So many rounds, or how long so many ticks take."""
    if settings.rounds != "ticks":
        return f"{rounds:,} round{'s' * (rounds != 1)}"
    seconds = rounds * settings.tick_seconds
    name, size = next(each for each in _TIMES if seconds >= each[1] or each[1] == 1)
    return f"{seconds / size:,.3g} {name}"


def delays_table(settings: Settings, waits: list[Delay]) -> Table:
    """What each answer to the question costs."""
    columns = "discover", "a new label stays unseen for at most", "shown from a count of"
    table = spaced("", *columns)
    for number, each in enumerate(waits, 1):
        mark = "  (proposed)" if each.discover == settings.discover else ""
        wait = _wait(each.rounds, settings)
        table.add_row(f"{number}", f"{each.discover}{mark}", wait, f"{each.seen_mostly:,}")
    return table
