"""A real Prometheus scrapes both ports as docs/operations says, and understands every expression that is asked."""

import json
import re
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from stream_dp.config.reading import OPERATOR_TOKEN
from stream_dp.config.settings import Settings
from stream_dp.operations.ports import Ports
from tests.apache_kafka.server import free_ports
from tests.operations.test_metrics import EVENTS, OPERATIONS, TOKEN, expressions, worked
from tests.system.waiting import wait_until

PROMETHEUS = shutil.which("prometheus")
pytestmark = pytest.mark.skipif(
    PROMETHEUS is None, reason="no Prometheus (Debian: apt-get install prometheus)"
)
SILENT = {"Lag 1"}
"""What is shown of streams whose rounds end by ticks alone."""


class Asked:
    """A Prometheus that answers queries."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/api/v1/"

    def __call__(self, what: str, **parameters: str) -> Any:
        with urllib.request.urlopen(f"{self._url}{what}?{urllib.parse.urlencode(parameters)}") as answer:
            return json.load(answer)["data"]

    def has_scraped(self) -> bool:
        """Whether it has the metrics of both ports more than once, so that rates are known."""
        try:
            found = self("query", query="count_over_time(up[5m])")["result"]
        except urllib.error.URLError:
            return False
        return len(found) == 2 and all(int(each["value"][1]) >= 3 for each in found)


def for_now(expression: str) -> str:
    """An expression as Grafana fills it in."""
    return re.sub(r"\$__rate_interval|\$__interval|\$__range", "1m", expression).replace("$stream", "shop")


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    folder = tmp_path_factory.mktemp("prometheus")
    (open_port, operator_port), (port, _) = free_ports(), free_ports()
    (folder / "token").write_text(TOKEN)
    config = yaml.safe_load((OPERATIONS / "prometheus.yml").read_text())
    config["global"] = {"scrape_interval": "250ms", "scrape_timeout": "250ms", "evaluation_interval": "250ms"}
    config["rule_files"] = [str(OPERATIONS / "alerts.yml")]
    opened, operators = config["scrape_configs"]
    opened["static_configs"] = [{"targets": [f"127.0.0.1:{open_port}"]}]
    operators["static_configs"] = [{"targets": [f"127.0.0.1:{operator_port}"]}]
    operators["authorization"]["credentials_file"] = str(folder / "token")
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    settings = Settings(
        stream="shop",
        metrics_address=f"127.0.0.1:{open_port}",
        operator_address=f"127.0.0.1:{operator_port}",
    )
    command = [str(PROMETHEUS), f"--config.file={folder / 'prometheus.yml'}"]
    place = [f"--storage.tsdb.path={folder / 'data'}", f"--web.listen-address=127.0.0.1:{port}"]
    with Ports(settings, worked(EVENTS), {OPERATOR_TOKEN: TOKEN}), (folder / "log").open("wb") as log:
        process = subprocess.Popen([*command, *place], stdout=log, stderr=log)
        try:
            found = Asked(port)
            wait_until(found.has_scraped, (folder / "log").read_text)
            yield found
        finally:
            process.terminate()
            process.wait()


def test_it_takes_the_alerts_as_they_stand(asked: Asked) -> None:
    [group] = asked("rules")["groups"]
    assert {rule["name"] for rule in group["rules"]} <= set(expressions())
    assert [rule for rule in group["rules"] if rule["health"] == "err"] == []


@pytest.mark.parametrize("title", expressions())
def test_it_understands_what_the_dashboard_and_the_alerts_ask(asked: Asked, title: str) -> None:
    asked("query", query=for_now(expressions()[title]))


def test_it_has_an_answer_for_every_panel(asked: Asked) -> None:
    dashboard = json.loads((OPERATIONS / "grafana-dashboard.json").read_text())
    titles = {panel["title"] for panel in dashboard["panels"]}
    of_panels = {name: each for name, each in expressions().items() if name.rpartition(" ")[0] in titles}
    empty = {name for name, each in of_panels.items() if not asked("query", query=for_now(each))["result"]}
    assert empty == SILENT


def test_an_expression_that_it_does_not_understand_would_be_noticed(asked: Asked) -> None:
    with pytest.raises(urllib.error.HTTPError, match="400"):
        asked("query", query="rate(stream_dp_up)")
