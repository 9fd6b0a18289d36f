"""docker-compose.yml and the Dockerfile name what exists, and leave nothing open.

There is no container engine in continuous integration.  So the file's form is checked here, `test_compose_services.py`
runs the commands of the services, and `tests/deploy` loads the file as Docker Compose does.
"""

import itertools
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from stream_dp.config.reading import load_settings
from stream_dp.config.settings import Settings
from stream_dp.dev.redis_server import server_binary
from stream_dp.jobs.request import JOBS
from tests.apache_kafka import server as apache_kafka
from tests.docs.commands import NoSuchCommandLine, parse
from tests.docs.compose import (
    COMPOSE,
    FILE,
    ONCE,
    OWN,
    PASSWORD,
    PUBLIC,
    ROOT,
    SECRETS,
    SERVICES,
    TEXT,
    VARIABLE,
    environment,
)


def test_there_are_servers_and_a_worker() -> None:
    assert {"kafka", "redis", "prometheus", "grafana"} == SERVICES.keys() - OWN.keys()
    assert {"worker", "top-k", "set-union", "dashboard", "table", ONCE} == OWN.keys()


@pytest.mark.parametrize("name", list(OWN))
def test_commands_and_options_exist(name: str) -> None:
    assert parse(OWN[name]["command"]).startswith("stream-dp ")


@pytest.mark.parametrize(
    "words", [["no-such-command"], ["worker", "--no-such-option"], ["tail", "--rounds", "x"]]
)
def test_a_command_line_that_does_not_exist_would_be_noticed(words: list[str]) -> None:
    with pytest.raises(NoSuchCommandLine):
        parse(words)


@pytest.mark.parametrize("name", list(OWN))
def test_environment_variables_are_settings(name: str) -> None:
    settings = load_settings(ROOT / "stream.example.toml", environment(name))
    redis = Settings(stream="shop").redis if name in PUBLIC else f"redis://:{PASSWORD}@redis:6379/0"
    redis = Settings(stream="shop").redis if name == ONCE else redis
    assert (settings.kafka, settings.redis) == ("kafka:19092", redis)
    assert settings.kafka_username == (name if name in PUBLIC else "operator")


def test_the_job_workers_answer_every_kind_of_job_once() -> None:
    answered = [
        job
        for service in OWN.values()
        for option, job in itertools.pairwise(service["command"])
        if option == "--job"
    ]
    assert sorted(answered) == sorted(JOBS)


def test_private_things_are_out_of_reach_of_what_the_public_sees() -> None:
    networks = {name: set(service["networks"]) for name, service in SERVICES.items()}
    assert set().union(*networks.values()) == FILE["networks"].keys()
    for public in PUBLIC:
        assert [name for name in networks if networks[public] & networks[name]] == ["kafka", *PUBLIC]
        assert "REDIS" not in str(SERVICES[public]["environment"])
        assert "${KAFKA_PASSWORD" not in str(SERVICES[public]["environment"])
    for name in ("prometheus", "grafana"):
        assert [other for other in networks if networks[name] & networks[other]] == [
            "worker",
            "prometheus",
            "grafana",
        ]
    assert "ports" not in SERVICES["prometheus"], "it asks for no password"


def mounted(service: str) -> dict[str, Path]:
    """The files and folders of the repository that a service sees, by their place in its container."""
    volumes = [str(volume).split(":") for volume in SERVICES[service]["volumes"]]
    return {target: ROOT / source for source, target, *_ in volumes if source.startswith("./")}


def test_prometheus_scrapes_both_ports_and_loads_the_alerts() -> None:
    files, worker = mounted("prometheus"), environment("worker")
    [config] = [word.partition("=")[2] for word in SERVICES["prometheus"]["command"] if "config.file" in word]
    settings = yaml.safe_load(files[config].read_text())
    assert [Path(rule).name for rule in settings["rule_files"]] == ["alerts.yml"]
    assert all(files[rule].is_file() for rule in settings["rule_files"])
    scraped = {job["static_configs"][0]["targets"][0]: job for job in settings["scrape_configs"]}
    open_port, operators = (
        worker[f"STREAM_DP_{name}_ADDRESS"].replace("0.0.0.0", "worker") for name in ("METRICS", "OPERATOR")
    )
    assert scraped.keys() == {open_port, operators}
    assert "authorization" not in scraped[open_port]
    read = scraped[operators]["authorization"]
    assert read["type"] == "Bearer"
    _, _, program, _ = SERVICES["prometheus"]["entrypoint"]
    assert f'"$$OPERATOR_TOKEN" >{read["credentials_file"]};' in program
    assert environment("prometheus")["OPERATOR_TOKEN"] == worker["STREAM_DP_OPERATOR_TOKEN"]
    assert "${OPERATOR_TOKEN:?" in SERVICES["worker"]["environment"]["STREAM_DP_OPERATOR_TOKEN"]
    alerts = yaml.safe_load((ROOT / "docs" / "operations" / "alerts.yml").read_text())
    jobs = {job["job_name"] for job in settings["scrape_configs"]}
    assert set(re.findall(r'job="([^"]+)"', str(alerts))) <= jobs


def test_grafana_finds_its_data_and_its_dashboard_and_lets_nobody_in_without_a_password() -> None:
    files, variables = mounted("grafana"), SERVICES["grafana"]["environment"]
    assert variables["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?")
    assert (variables["GF_AUTH_ANONYMOUS_ENABLED"], variables["GF_USERS_ALLOW_SIGN_UP"]) == ("false", "false")
    provisioning = files["/etc/grafana/provisioning"]
    [source] = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())["datasources"]
    assert source["url"] == "http://prometheus:9090"
    [provider] = yaml.safe_load((provisioning / "dashboards" / "stream-dp.yml").read_text())["providers"]
    [dashboard] = [file for place, file in files.items() if place.startswith(provider["options"]["path"])]
    text = dashboard.read_text()
    assert set(re.findall(r'"uid": "([^"]+)"', text)) == {source["uid"], "stream-dp"}


@pytest.mark.parametrize("name", list(SERVICES))
def test_every_service_says_whether_it_is_well_and_comes_back(name: str) -> None:
    assert SERVICES[name]["restart"] == ("on-failure" if name == ONCE else "unless-stopped")
    assert ("healthcheck" in SERVICES[name]) == (name != ONCE)
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        wanted = "service_completed_successfully" if needed == ONCE else "service_healthy"
        assert how == {"condition": wanted}


@pytest.mark.parametrize("name", list(SERVICES))
def test_no_service_has_capabilities_or_can_write_to_its_root(name: str) -> None:
    service = SERVICES[name]
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])
    assert "cap_add" not in service
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize(("name", "folder"), [("kafka", "/var/lib/kafka/data"), ("redis", "/data")])
def test_state_is_in_named_volumes(name: str, folder: str) -> None:
    volume, _, target = SERVICES[name]["volumes"][0].partition(":")
    assert (volume in FILE["volumes"], target) == (True, folder)


def test_kafka_keeps_its_topics_in_the_volume_and_for_ever() -> None:
    kafka = SERVICES["kafka"]["environment"]
    assert kafka["KAFKA_LOG_DIRS"] == "/var/lib/kafka/data"
    assert (kafka["KAFKA_LOG_RETENTION_MS"], kafka["KAFKA_LOG_RETENTION_BYTES"]) == (-1, -1)
    assert (kafka["KAFKA_LOG_CLEANUP_POLICY"], kafka["KAFKA_NUM_PARTITIONS"]) == ("delete", 1)


def test_kafka_asks_for_a_login_wherever_a_network_reaches_it() -> None:
    """tests/system/test_compose_kafka.py tries it out, with one password for all."""
    kafka = SERVICES["kafka"]["environment"]
    addresses = [each.partition("://") for each in kafka["KAFKA_LISTENERS"].split(",")]
    reached = {name for name, _, place in addresses if not place.startswith("localhost:")}
    security = dict(each.split(":") for each in kafka["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert {name for name, protocol in security.items() if protocol == "SASL_PLAINTEXT"} == reached
    for name in reached:
        logins = kafka[f"KAFKA_LISTENER_NAME_{name}_PLAIN_SASL_JAAS_CONFIG"]
        assert dict(re.findall(r'user_(\w+)="\$\{(\w+):', logins)) == {
            "operator": "KAFKA_PASSWORD",
            "dashboard": "VIEWER_PASSWORD",
            "subscriber": "VIEWER_PASSWORD",
            "table": "TABLE_PASSWORD",
        }


def test_ports_are_published_on_loopback_only() -> None:
    published = [str(port) for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published), published
    assert not any(service.get("network_mode") for service in SERVICES.values())


def test_there_is_no_default_password() -> None:
    for variable in VARIABLE.finditer(TEXT):
        assert variable[2], f"{variable[0]} has no :? that stops Compose when it is not set"
    assert "${REDIS_PASSWORD:?" in SERVICES["redis"]["command"][2]


def test_images_are_the_versions_that_are_tested() -> None:
    tags = {name: service["image"].partition("@")[0] for name, service in SERVICES.items()}
    assert tags["kafka"] == f"apache/kafka:{apache_kafka.version()}"
    found = subprocess.run([server_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    tag = tags["redis"].removeprefix("valkey/valkey:")
    assert re.search(rf"\bv={re.escape(tag)}\b", found), found


def test_no_other_variable_is_filled_in() -> None:
    assert {variable[1] for variable in VARIABLE.finditer(TEXT)} == SECRETS


def test_the_head_of_the_file_makes_every_secret() -> None:
    """Its own command, without the example file that it copies first."""
    text = COMPOSE.read_text()
    page = (ROOT / "docs" / "operations" / "operations.md").read_text()
    [command] = [line.lstrip("# ") for line in text.splitlines() if "> .env" in line]
    assert command in page
    made = subprocess.run(
        command.replace("> .env", ""), shell=True, capture_output=True, text=True, check=True
    )
    found = dict(line.split("=") for line in made.stdout.splitlines())
    assert found.keys() == SECRETS
    assert all(len(secret) == 64 for secret in found.values())


def test_the_image_copies_what_exists_and_runs_without_privileges() -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        source
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for source in line.split()[1:-1]
    ]
    assert sorted(copied) == sorted(allowed)
    assert [name for name in copied if not (ROOT / name).exists()] == []
    [user] = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert int(user) > 0
    assert 'ENTRYPOINT ["stream-dp"]' in lines
    assert [line.split()[-1] for line in lines if line.startswith("FROM ")] == [
        "build",
        "common",
        "jobs",
        "worker",
    ]
