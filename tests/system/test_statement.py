"""The statement for a privacy officer: every figure is the ledger's or the epoch's, and hostile names do no harm."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.cli.budget_view import report_of
from stream_dp.cli.dashboard import statement_of_operators
from stream_dp.dashboard.app import NoStatement
from stream_dp.epochs.journal import EpochJournal
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.privacy.charge import Charge
from stream_dp.privacy.loss import pure
from tests.system.example_events import event
from tests.system.streams import Stream

HOSTILE = "<script>alert(1)</script> | [x](http://evil) `rm`"


def written(stream: Stream, *options: str) -> str:
    settings = stream.settings
    places = ["--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis]
    result = CliRunner().invoke(app, ["statement", *places, *options])
    assert result.exit_code == 0, result.output
    return result.stdout


class Tags(HTMLParser):
    """Which elements a page has, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.names.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_every_figure_is_that_of_the_ledger_and_of_the_epoch(stream: Stream, tmp_path: Path) -> None:
    stream.feed([event("tea")] * 5)
    with stream.redis() as redis:
        source = stream.settings.data_source
        journaled = JournaledLedger(stream.settings.kafka_address, redis, source, True)
        journaled.set_budget(30.0, 0.5, "event", "the privacy board")
        assert stream.run(until_round=5) == 0
        job = Charge(
            id="job",
            what=HOSTILE,
            unit="event",
            rho=5e-5,
            delta=1e-9,
            loss=pure(0.01),
            first_offset=0,
            end_offset=5,
            digest="00",
        )
        journaled.charge(job)
        report = report_of(journaled.current())
    found = json.loads(written(stream, "--json"))
    opened = EpochJournal(stream.settings).last
    assert opened is not None
    guarantee = opened.epoch.guarantee
    assert (found["epsilon"], found["delta"], found["unit"]) == (
        guarantee.epsilon,
        guarantee.delta,
        guarantee.unit,
    )
    assert found["budget"] == [report["budget"]["epsilon"], report["budget"]["delta"]]
    assert found["spent"] == [report["spent"]["epsilon"], report["spent"]["delta"]]
    assert found["more_like_the_last"] == report["more_like_the_last"] > 0
    assert [(each["what"], each["rho"], each["delta"]) for each in found["charges"]] == [
        (each["what"], each["rho"], each["delta"]) for each in report["charges"]
    ]
    assert [each["by"] for each in found["set_by"]] == [each["by"] for each in report["journal"]["budgets"]]
    assert (found["settings_digest"], found["key_check"]) == (opened.epoch.fingerprint, opened.key_check)

    page = Tags(written(stream, "--format", "html"))
    assert "script" not in page.names
    assert HOSTILE in page.text
    text = written(stream)
    assert not re.search(r"(?<!\\)[<\[]", text.partition("## Charges")[2].partition("## How")[0])
    for figure in (
        f"room for {found['more_like_the_last']:,} more",
        f"epsilon {found['spent'][0]:.4g}",
        found["odds"],
    ):
        assert figure in page.text
        assert figure in text
    served = statement_of_operators(stream.settings)()
    assert Tags(served).text.partition("Who is protected")[2] == page.text.partition("Who is protected")[2]
    file = tmp_path / "statement.html"
    assert written(stream, "--to", str(file)) == ""
    assert "<html" in file.read_text()


def test_a_stream_without_an_epoch_and_a_file_that_cannot_be_written_are_refused(
    stream: Stream, tmp_path: Path
) -> None:
    settings = stream.settings
    places = ["--stream", settings.stream, "--kafka", settings.kafka, "--redis", settings.redis]
    refused = CliRunner().invoke(app, ["statement", *places])
    assert refused.exit_code == 2
    with pytest.raises(NoStatement, match="has no epoch yet: start its worker first"):
        statement_of_operators(settings)()
    assert "has no epoch yet: start its worker first" in refused.stderr
    stream.feed([event("tea")])
    assert stream.run(until_round=1) == 0
    refused = CliRunner().invoke(app, ["statement", *places, "--to", str(tmp_path / "missing" / "file.html")])
    assert (refused.exit_code, "cannot be written" in refused.stderr) == (2, True)
