"""What the worker tells about itself: names on an allow-list, probes that mean it, logs that name no label."""

import json
import logging
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest
from starlette.testclient import TestClient

from stream_dp.config.reading import OPERATOR_TOKEN, load_settings
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.operations import watch as watch_module
from stream_dp.operations.logs import JsonLines
from stream_dp.operations.open_metrics import BudgetFacts, PublicFacts
from stream_dp.operations.operator_metrics import resident_bytes
from stream_dp.operations.ports import Ports, open_app, operator_app
from stream_dp.operations.watch import LIVE_SECONDS, READY_SECONDS, Watch, charged_rho
from stream_dp.pipeline.pipeline import Pipeline
from stream_dp.privacy.composition import Charge
from stream_dp.privacy.loss import Loss
from tests.apache_kafka.server import free_ports

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations"
TOKEN = "0123456789abcdef"
OPEN_NAMES = {
    "stream_dp_up",
    "stream_dp_epoch",
    "stream_dp_rounds_closed_total",
    "stream_dp_horizon_rounds",
    "stream_dp_releases_sent_total",
    "stream_dp_epsilon",
    "stream_dp_delta",
    "stream_dp_budget_spent_epsilon",
    "stream_dp_budget_epsilon",
    "stream_dp_budget_left_rho",
    "stream_dp_budget_charged_rho",
}
"""Everything that may ever be on the open port.  Add a name only with a reason why no item can change its value."""


class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def worked(items: list[bytes]) -> Watch:
    """The watch of a worker that has counted these events, called as the worker calls it."""
    settings = Settings(stream="shop", epsilon=30.0, horizon=63)
    pipeline = Pipeline(Epoch.open(settings, 1, 0), bytes(32), "shop.events")
    watch = Watch("shop", "shop.events", Clock())
    watch.began(pipeline.epoch, pipeline.round)
    with watch.batch():
        output = pipeline.process([Record(offset, 0, None, value) for offset, value in enumerate(items)])
        watch.sent(output)
    watch.counted(pipeline.round, 3)
    watch.checkpointed(pipeline.round, len(pipeline.histogram.state().labels), 0.25)
    watch.facts.budget = BudgetFacts(2.0, 1.0, 0.01, {"stream shop": 0.02})
    return watch


EVENTS = [b'{"items": ["tea", "milk"]}'] * 20


def names(registry: CollectorRegistry) -> set[str]:
    """The names of all samples."""
    return {sample.name for family in registry.collect() for sample in family.samples}


def test_rounds_that_are_left_out_do_not_count_as_released() -> None:
    """Twenty rounds, in two batches that begin and end anywhere, of which every fifth is released."""
    settings = Settings(stream="shop", epsilon=30.0, horizon=63, release="every-5")
    pipeline = Pipeline(Epoch.open(settings, 1, 0), bytes(32), "shop.events")
    watch = Watch("shop", "shop.events", Clock())
    records = [Record(offset, 0, None, value) for offset, value in enumerate(EVENTS)]
    for batch in (records[:12], records[12:]):
        watch.sent(pipeline.process(batch))
    assert watch.facts.releases == 4


def test_a_large_open_round_is_told_once_and_again_when_it_has_doubled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(watch_module, "LARGE_ROUND", 100)
    watch = Watch("shop", "shop.events", Clock())
    for records in (0, 99, 100, 150, 199, 230, 399, 0, 101):
        watch.open_round(records)
    told = [line.split(" records")[0].rpartition(" ")[2] for line in caplog.messages]
    assert told == ["100", "230", "101"]


def test_the_open_port_shows_only_names_of_the_list_and_each_of_them() -> None:
    assert names(worked(EVENTS).open_registry) == OPEN_NAMES


def test_before_the_first_session_only_the_state_is_known() -> None:
    assert names(Watch("shop", "shop.events").open_registry) == {"stream_dp_up"}


def test_one_stream_without_a_budget_shows_what_is_spent() -> None:
    watch = worked(EVENTS)
    watch.facts.budget = BudgetFacts(None, 1.0, None, {"jobs": 0.02})
    assert names(watch.open_registry) == OPEN_NAMES - {
        "stream_dp_budget_epsilon",
        "stream_dp_budget_left_rho",
    }


def test_what_was_charged_is_told_by_stream_and_for_all_jobs_together() -> None:
    ids = "shop/epoch/1/ab", "shop/epoch/2/cd", "other/epoch/1/ef", "top-k/7", "budget/anna"
    charges = [
        Charge(
            id=name,
            what="",
            unit="event",
            rho=0.25,
            delta=0.0,
            first_offset=0,
            end_offset=None,
            digest="",
            loss=Loss(),
        )
        for name in ids
    ]
    assert charged_rho(charges) == {"stream shop": 0.5, "stream other": 0.25, "jobs": 0.5}


def test_open_metrics_say_what_the_epoch_promised_and_how_far_it_is() -> None:
    text = generate_latest(worked(EVENTS).open_registry).decode()
    for line in ("rounds_closed_total", "releases_sent_total"):
        assert f'stream_dp_{line}{{stream="shop"}} 20.0\n' in text
    assert 'stream_dp_horizon_rounds{stream="shop"} 63.0\n' in text
    assert 'stream_dp_epsilon{stream="shop"} 30.0\n' in text
    assert 'stream_dp_up{stream="shop"} 1.0\n' in text


@pytest.mark.parametrize("other", [b'{"items": ["milk", "a", "b", "c", "d"]}', b"no event", b"{}"])
def test_no_item_of_an_event_changes_the_open_metrics(other: bytes) -> None:
    one, neighbour = worked(EVENTS), worked([*EVENTS[:-1], other])
    assert generate_latest(one.open_registry) == generate_latest(neighbour.open_registry)
    assert _values(one.operator.registry) != _values(neighbour.operator.registry), (
        "the two must differ somewhere, or the line above shows nothing"
    )


def _values(registry: CollectorRegistry) -> dict[str, float]:
    return {
        family.name: family.samples[0].value
        for family in registry.collect()
        if family.name in ("stream_dp_operator_labels_seen", "stream_dp_operator_dead_letters")
    }


def test_operators_see_lag_labels_dead_letters_and_times() -> None:
    watch = worked([*EVENTS, b"no event"])
    watch.outage("redis")
    text = generate_latest(watch.operator.registry).decode()
    for line in (
        'lag_records{stream="shop"} 3.0',
        'labels_seen{stream="shop"} 2.0',
        'dead_letters_total{stream="shop"} 1.0',
        'records_total{stream="shop"} 21.0',
        'outages_total{server="redis",stream="shop"} 1.0',
        'batch_seconds_count{stream="shop"} 1.0',
        'checkpoint_seconds_sum{stream="shop"} 0.25',
        'unsaved_rounds{stream="shop"} 0.0',
    ):
        assert f"stream_dp_operator_{line}\n" in text
    assert 1e6 < resident_bytes() < 1e12
    assert names(watch.operator.registry).isdisjoint(OPEN_NAMES)


def test_rounds_since_the_checkpoint_are_counted() -> None:
    watch = worked(EVENTS)
    watch.counted(27, 0)
    assert 'unsaved_rounds{stream="shop"} 7.0\n' in generate_latest(watch.operator.registry).decode()


def test_probes_answer_from_the_heartbeat_and_the_session() -> None:
    clock = Clock()
    watch = Watch("shop", "shop.events", clock)
    with TestClient(open_app(watch)) as client:

        def probes() -> tuple[int, int]:
            return client.get("/livez").status_code, client.get("/readyz").status_code

        assert probes() == (200, 503), "not ready before the first session"
        watch.answered(True)
        assert probes() == (200, 200)
        clock.now += READY_SECONDS
        assert probes() == (200, 503), "an old answer says nothing about now"
        clock.now += LIVE_SECONDS
        assert probes() == (503, 503), "a worker that hangs is neither"
        watch.outage("redis")
        assert probes() == (200, 503), "one that waits does not hang"
        watch.answered(True)
        assert probes() == (200, 200)
        watch.answered(False)
        assert probes() == (200, 503)
        watch.answered(True)
        watch.registry_away = True
        assert client.get("/readyz").text == "not ready: the schema registry does not answer"
        watch.registry_away = False
        watch.ended()
        assert probes() == (200, 503)
        assert client.get("/metrics").text == generate_latest(watch.open_registry).decode()


@pytest.mark.parametrize(
    "header", [None, "", "Bearer", f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", f"Basic {TOKEN}", TOKEN]
)
def test_the_operators_port_lets_nobody_in_without_the_token(header: str | None) -> None:
    with TestClient(operator_app(worked(EVENTS), TOKEN)) as client:
        for path in ("/metrics", "/", "/livez"):
            answer = client.get(path, headers={} if header is None else {"Authorization": header})
            assert (answer.status_code, answer.text) == (401, "a token, please")
        allowed = client.get("/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
        assert (allowed.status_code, "stream_dp_operator_labels_seen" in allowed.text) == (200, True)


@pytest.mark.parametrize("token", [None, "", "short", "with a space in it", "päßwörter-päßwörter"])
def test_the_operators_port_needs_a_token_that_is_one(token: str | None) -> None:
    settings = Settings(stream="shop", operator_address=f"127.0.0.1:{free_ports()[0]}")
    environment = {} if token is None else {OPERATOR_TOKEN: token}
    with pytest.raises(SettingsError, match=OPERATOR_TOKEN) as refused:
        Ports(settings, worked([]), environment)
    assert not token or token not in str(refused.value)


def test_the_token_is_no_setting() -> None:
    assert "operator_token" not in Settings.__struct_fields__
    assert load_settings(environment={OPERATOR_TOKEN: TOKEN}, stream="shop") == Settings(stream="shop")


def test_a_port_that_is_taken_is_named() -> None:
    address = f"127.0.0.1:{free_ports()[0]}"
    watch = worked([])
    settings = Settings(stream="shop", metrics_address=address, operator_address=address)
    first = Ports(Settings(stream="shop", metrics_address=address), watch, {})
    with first, pytest.raises(SettingsError, match=f"{address} .*: change metrics_address"):
        Ports(settings, watch, {OPERATOR_TOKEN: TOKEN})
    with pytest.raises(SettingsError, match=r"'nowhere\.invalid' is not an address"):
        Ports(Settings(stream="shop", metrics_address="nowhere.invalid:9464"), watch, {})


def logged(message: str, *values: object, facts: PublicFacts, error: bool = False) -> dict[str, Any]:
    """One line of JSON, as the formatter writes it."""
    trace = sys.exc_info() if error else None
    record = logging.LogRecord(
        "stream_dp.workers.histogram", logging.WARNING, __file__, 1, message, values, trace
    )
    line = JsonLines(facts).format(record)
    assert "\n" not in line
    found: dict[str, Any] = json.loads(line)
    return found


def test_a_log_line_is_an_object_with_the_round_where_it_is_known() -> None:
    line = logged("the horizon of %d rounds", 9, facts=PublicFacts("shop"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", line.pop("time"))
    assert line == {
        "level": "warning",
        "event": "the horizon of 9 rounds",
        "logger": "stream_dp.workers.histogram",
        "stream": "shop",
    }
    later = logged("on", facts=PublicFacts("shop", epoch=2, round=7))
    assert (later["epoch"], later["round"]) == (2, 7)


def test_a_logged_exception_keeps_its_place_and_not_its_text() -> None:
    try:
        {"tea": 1}["a private label"]
    except KeyError:
        line = logged("it\nfailed", facts=PublicFacts("shop"), error=True)
    assert line["error"] == "KeyError"
    assert line["at"][0].endswith("test_a_logged_exception_keeps_its_place_and_not_its_text")
    assert "private label" not in json.dumps(line)


CONFIGURE = """
import logging.config
from stream_dp.operations.logs import json_logging
from stream_dp.operations.open_metrics import PublicFacts
logging.config.dictConfig(json_logging("info", PublicFacts("shop")))
logging.getLogger("tests").debug("left out")
logging.getLogger("tests").warning("one %s", "line")
"""


def test_the_logging_configuration_is_one() -> None:
    """In a process of its own: `dictConfig` closes all handlers there are, and absl closes the stream of its own."""
    ran = subprocess.run([sys.executable, "-c", CONFIGURE], capture_output=True, text=True, check=True)
    [line] = ran.stdout.splitlines()
    assert json.loads(line)["event"] == "one line"


def expressions() -> dict[str, str]:
    """Every PromQL expression of the dashboard and of the alerts, by what shows it."""
    found = {}
    dashboard = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())
    for panel in dashboard["panels"]:
        for number, target in enumerate(panel.get("targets", [])):
            found[f"{panel['title']} {number}"] = target["expr"]
    for group in yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            found[rule["alert"]] = rule["expr"]
    return found


def known_names() -> set[str]:
    """The names of every sample of both registries, created timestamps left out."""
    watch = worked(EVENTS)
    for server in watch.operator.outages:
        watch.outage(server)
    watch.topic_changed("shop.events")
    watch.operator.waiting.labels("shop", "redis").set(60)
    return names(watch.open_registry) | {
        name for name in names(watch.operator.registry) if not name.endswith("_created")
    }


@pytest.mark.parametrize("title", expressions())
def test_every_metric_of_the_dashboard_and_the_alerts_exists(title: str) -> None:
    used = set(re.findall(r"\bstream_dp_\w+", expressions()[title]))
    assert used or "up{" in expressions()[title]
    assert used <= known_names()


def test_a_metric_that_does_not_exist_would_be_noticed() -> None:
    assert not {"stream_dp_operator_lag"} <= known_names()


def test_every_operators_metric_is_watched_somewhere() -> None:
    shown = " ".join(expressions().values())
    operators = {name for name in known_names() if name.startswith("stream_dp_operator_")}
    assert [name for name in operators if name not in shown and not name.endswith(("_sum", "_count"))] == []


def refusals() -> list[str]:
    """The first column of the page's table of refusals: a piece of each sentence."""
    page = (OPERATIONS / "operations.md").read_text()
    return re.findall(
        r"^\| `([^`]+)` \|", page[page.index("## Refusals") : page.index("## Back up")], re.MULTILINE
    )


def program() -> str:
    """The source of the program with the literals of a sentence, which go over several lines, made one."""
    text = "\n".join(file.read_text() for file in (OPERATIONS.parents[1] / "stream_dp").rglob("*.py"))
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_every_refusal_that_the_page_explains_is_one_that_the_program_knows() -> None:
    known = program()
    assert len(refusals()) > 10
    assert [sentence for sentence in refusals() if sentence not in known] == []
    assert "a sentence nobody says" not in known


def test_every_alert_says_what_to_do_in_the_operations_page() -> None:
    page = (OPERATIONS / "operations.md").read_text()
    for group in yaml.safe_load((OPERATIONS / "alerts.yml").read_text())["groups"]:
        for rule in group["rules"]:
            assert f"### {rule['alert']}\n" in page
            assert rule["annotations"]["runbook"].endswith(f"operations.md#{rule['alert'].lower()}")
            assert rule["labels"]["severity"] in ("page", "ticket")
            assert "$labels.stream" in rule["annotations"]["summary"] or rule["alert"] == "StreamWorkerGone"
