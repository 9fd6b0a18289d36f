"""docker-compose.yml, the Dockerfile and stream.example.toml name what exists, and leave nothing open.

There is no container engine in continuous integration.  So the file's form is checked here, also by what Docker Compose
loads it with, where Go can build that, and the commands of the services run against the embedded servers.
"""

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from kafka import KafkaConsumer, KafkaProducer
from redis import Redis
from redis.exceptions import AuthenticationError, BusyLoadingError
from redis.exceptions import ConnectionError as RedisConnectionError

from stream_dp.config.events_section import EventsSection
from stream_dp.config.reading import ENVIRONMENT_PREFIX, load_settings
from stream_dp.config.settings import Settings
from stream_dp.dev.child_process import spawn, stop_owned
from stream_dp.dev.child_process import wait_until as wait_until_ready
from stream_dp.dev.redis_server import server_binary
from stream_dp.dev.servers import start_broker
from stream_dp.epochs.journaled_ledger import JournaledLedger
from stream_dp.jobs.request import JOBS
from stream_dp.kafka import log
from stream_dp.releases.release import decode_release
from tests.apache_kafka import server as apache_kafka
from tests.docs.commands import NoSuchCommandLine, parse
from tests.system.waiting import GIVE_UP_SECONDS, wait_until

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
PASSWORD = "0123456789abcdef"
SECRETS = {"REDIS_PASSWORD", "OPERATOR_TOKEN", "GRAFANA_PASSWORD"}
TEXT = re.sub(r"^ *#.*$", "", COMPOSE.read_text(), flags=re.MULTILINE)
FILE: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
PUBLIC = ["dashboard", "table"]
"""What reads public topics only."""
OWN = {name: service for name, service in SERVICES.items() if "build" in service}
OF_GROUP = "intake", "shard", "merge"
"""What runs beside the worker where a group reads the events."""

_VARIABLE = re.compile(r"\$\{([A-Z_]+)(:\?[^}]+)?[^}]*\}|\$([A-Za-z_]\w*)")


def with_password(text: str) -> str:
    """`text` as Compose fills it in."""
    return _VARIABLE.sub(PASSWORD, text)


def environment(service: str, **instead: str) -> dict[str, str]:
    """The environment of a service, with some of its values replaced by what is reachable here."""
    written = {name: with_password(str(value)) for name, value in SERVICES[service]["environment"].items()}
    assert instead.keys() <= written.keys()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    return kept | written | instead


def test_there_are_servers_and_a_worker() -> None:
    assert {"kafka", "redis", "prometheus", "grafana"} == SERVICES.keys() - OWN.keys()
    assert {"worker", "top-k", "set-union", "dashboard", "table", *OF_GROUP} == OWN.keys()
    assert {name for name, service in SERVICES.items() if service.get("profiles")} == set(OF_GROUP)


def test_three_members_read_where_a_group_does() -> None:
    replicas = {name: SERVICES[name].get("deploy", {}).get("replicas", 1) for name in OF_GROUP}
    assert replicas == {"intake": 3, "shard": 2, "merge": 1}
    page = (ROOT / "docs" / "operations" / "intake.md").read_text()
    assert "\nshards = 2\n" in page
    assert "docker compose --profile group up" in page


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
    assert (settings.kafka, settings.redis) == ("kafka:19092", redis)


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
    for name in ("prometheus", "grafana"):
        assert [other for other in networks if networks[name] & networks[other]] == [
            "worker",
            *OF_GROUP,
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
    open_port, operators = (f"worker:{worker[f'STREAM_DP_{name}_PORT']}" for name in ("METRICS", "OPERATOR"))
    assert scraped.keys() == {open_port, operators}
    for target, job in scraped.items():
        [found] = job["dns_sd_configs"]
        assert (tuple(found["names"]), str(found["port"])) == (OF_GROUP, target.partition(":")[2])
    assert "authorization" not in scraped[open_port]
    [secret] = SERVICES["prometheus"]["secrets"]
    assert scraped[operators]["authorization"] == {
        "type": "Bearer",
        "credentials_file": f"/run/secrets/{secret}",
    }
    assert FILE["secrets"][secret] == {"environment": "OPERATOR_TOKEN"}
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
    assert SERVICES[name]["healthcheck"]["test"]
    assert SERVICES[name]["restart"] == "unless-stopped"
    for needed, how in SERVICES[name].get("depends_on", {}).items():
        assert "healthcheck" in SERVICES[needed]
        assert how == {"condition": "service_healthy"}


@pytest.mark.parametrize(("name", "folder"), [("kafka", "/var/lib/kafka/data"), ("redis", "/data")])
def test_state_is_in_named_volumes(name: str, folder: str) -> None:
    volume, _, target = SERVICES[name]["volumes"][0].partition(":")
    assert (volume in FILE["volumes"], target) == (True, folder)


def test_kafka_keeps_its_topics_in_the_volume_and_for_ever() -> None:
    kafka = SERVICES["kafka"]["environment"]
    assert kafka["KAFKA_LOG_DIRS"] == "/var/lib/kafka/data"
    assert (kafka["KAFKA_LOG_RETENTION_MS"], kafka["KAFKA_LOG_RETENTION_BYTES"]) == (-1, -1)
    assert (kafka["KAFKA_LOG_CLEANUP_POLICY"], kafka["KAFKA_NUM_PARTITIONS"]) == ("delete", 1)


def test_ports_are_published_on_loopback_only() -> None:
    published = [str(port) for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert all(port.startswith("127.0.0.1:") for port in published), published
    assert not any(service.get("network_mode") for service in SERVICES.values())


def test_there_is_no_default_password() -> None:
    for variable in _VARIABLE.finditer(TEXT):
        assert variable[2], f"{variable[0]} has no :? that stops Compose when it is not set"
    assert "${REDIS_PASSWORD:?" in SERVICES["redis"]["command"][2]


def test_images_are_the_versions_that_are_tested() -> None:
    assert SERVICES["kafka"]["image"] == f"apache/kafka:{apache_kafka.version()}"
    found = subprocess.run([server_binary(), "--version"], capture_output=True, text=True, check=True).stdout
    tag = SERVICES["redis"]["image"].removeprefix("valkey/valkey:")
    assert re.search(rf"\bv={re.escape(tag)}\b", found), found


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Loads the file in an environment, by the library that Docker Compose of version 2 loads it with."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("no Go, which builds what loads the file in Docker Compose (https://go.dev/dl)")
    source, program = (
        Path(__file__).parent / "compose_config",
        tmp_path_factory.mktemp("go") / "compose_config",
    )
    fetched = subprocess.run([go, "mod", "download"], cwd=source, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"Go cannot fetch what it needs: {fetched.stderr.strip()[-200:]}")
    subprocess.run([go, "build", "-mod=readonly", "-o", program, "."], cwd=source, check=True)
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}

    def load(**variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, COMPOSE], env=kept | variables, capture_output=True, text=True)

    return load


def test_compose_loads_the_file(load: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    whole = dict.fromkeys(SECRETS, PASSWORD)
    by_profile = {}
    for profile in ("", "group"):
        loaded = load(**whole, COMPOSE_PROFILES=profile)
        assert loaded.returncode == 0, loaded.stderr
        by_profile[profile] = json.loads(loaded.stdout)["services"]
    assert by_profile[""].keys() == SERVICES.keys() - set(OF_GROUP)
    assert by_profile["group"].keys() == SERVICES.keys()
    assert by_profile["group"]["intake"]["deploy"]["replicas"] == 3
    assert by_profile[""]["worker"]["environment"]["STREAM_DP_OPERATOR_TOKEN"] == PASSWORD


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_compose_insists_on_every_password(
    load: Callable[..., subprocess.CompletedProcess[str]], name: str
) -> None:
    for lacking in ({}, {name: ""}):
        refused = load(**dict.fromkeys(SECRETS - {name}, PASSWORD) | lacking)
        assert refused.returncode == 1
        assert f"required variable {name} is missing a value: set it in .env" in refused.stderr


def test_no_other_variable_is_filled_in() -> None:
    assert {variable[1] for variable in _VARIABLE.finditer(TEXT)} == SECRETS


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


def test_the_example_settings_show_every_setting_with_its_default() -> None:
    text = (ROOT / "stream.example.toml").read_text()
    shown = tomllib.loads(re.sub(r"^# (?=[a-z_]+ = )", "", text, flags=re.MULTILINE))
    defaults = Settings(stream=shown["stream"])
    names = set(Settings.__struct_fields__) - {"mapping"}
    assert shown == {name: getattr(defaults, name) for name in names if getattr(defaults, name) is not None}
    examples = tomllib.loads("\n".join(re.findall(r"^#     (\w+ = .*)", text, flags=re.MULTILINE)))
    assert names == set(shown) | set(examples)
    values = shown | examples | {"unit": "user"}  # where items_per_user takes the place of items_per_event
    del values["items_per_event"]
    assert load_settings(None, {}, stream="shop", mechanism="window", window=values.pop("window")) is not None
    assert load_settings(None, {}, **values) is not None
    assert load_settings(ROOT / "stream.example.toml", {}) == defaults


def test_the_example_settings_show_every_setting_of_the_section_events() -> None:
    text = (ROOT / "stream.example.toml").read_text()
    section = tomllib.loads("\n".join(re.findall(r"^#   (\w+ = .*)", text, flags=re.MULTILINE)))
    assert set(section) == set(EventsSection.__struct_fields__)
    assert load_settings(None, {}, stream="shop", events={"items": section["items"], "user": section["user"]})


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
    assert sum(line.startswith("FROM ") for line in lines) == 2


@pytest.fixture
def guarded_redis(tmp_path: Path) -> Iterator[str]:
    """The address of a server that runs the very command of the `redis` service; only its place differs."""
    program, *options = [with_password(word) for word in SERVICES["redis"]["command"]]
    assert program == "valkey-server"
    (port, _), folder = apache_kafka.free_ports(), tmp_path / "redis"
    folder.mkdir()
    here: list[str | Path] = ["--port", str(port), "--bind", "127.0.0.1", "--dir", folder]
    process = spawn([server_binary(), *options, *here], folder / "server.log", owned=True)
    try:
        url = f"redis://:{PASSWORD}@127.0.0.1:{port}/0"
        wait_until_ready(lambda: _answers(url), process, folder / "server.log", "the redis service")
        yield url
    finally:
        stop_owned(process)


def _answers(url: str) -> bool:
    try:
        with Redis.from_url(url) as client:
            return bool(client.ping())
    except (RedisConnectionError, BusyLoadingError):
        return False


def test_the_redis_service_wants_its_password_and_writes_before_it_answers(guarded_redis: str) -> None:
    stranger = Redis.from_url(guarded_redis.replace(f":{PASSWORD}@", ""))
    with stranger, pytest.raises(AuthenticationError):
        stranger.get("stream_dp:{shop}:key")
    with Redis.from_url(guarded_redis) as client:
        wanted = {"appendonly": "yes", "appendfsync": "always", "maxmemory-policy": "noeviction"}
        assert client.config_get(*wanted) == wanted


def healthy(service: str, ports: dict[str, str], folder: Path, own: dict[str, str]) -> bool:
    """Whether the service's own health check passes, in its folder and environment, with the ports of this machine.

    It is a process, which takes time from those that start, so it is left out while nobody listens, and is not begun
    again at once.
    """
    kind, program, *check = OWN[service]["healthcheck"]["test"]
    assert (kind, program) in (("CMD", "python"), ("CMD", "stream-dp"))
    if program == "stream-dp":
        check = ["-m", "stream_dp.cli", *check]
    else:
        [there] = re.findall(r"127\.0\.0\.1:(\d+)/", check[-1])
        check[-1] = check[-1].replace(f":{there}/", f":{ports[there]}/")
        with socket.socket() as visitor:
            if visitor.connect_ex(("127.0.0.1", int(ports[there]))):
                return False
    checked = subprocess.run([sys.executable, *check], cwd=folder, env=own, capture_output=True)
    well = checked.returncode == 0
    time.sleep(0 if well else 0.3)
    return well


@contextmanager
def started(
    service: str, folder: Path, reachable: dict[str, str], replica: int = 1
) -> Iterator[Callable[[], None]]:
    """A service on its very command and environment; the addresses are those of this machine.

    Gives a function that waits until the service is healthy.
    """
    ports: dict[str, str] = {}

    def here(word: str) -> str:
        if word in ("8080", "6066", "9464", "9465"):
            return ports.setdefault(word, str(apache_kafka.free_ports()[0]))
        return "127.0.0.1" if word == "0.0.0.0" else word

    words = [here(word) for word in OWN[service]["command"]]
    own = {name: here(str(value)) for name, value in SERVICES[service]["environment"].items()}
    own |= {name: value for name, value in reachable.items() if name in own}
    own = environment(service, **{name: with_password(value) for name, value in own.items()})
    told = folder / f"{service}-{replica}.log"
    with told.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "stream_dp.cli", *words],
            cwd=folder,
            env=own,
            stdout=output,
            stderr=output,
        )

    def is_well() -> bool:
        assert process.poll() is None, told.read_text()
        return healthy(service, ports, folder, own)

    def wait() -> None:
        wait_until(is_well, lambda: f"{service} is not healthy:\n{told.read_text()}")

    try:
        yield wait
    finally:
        process.terminate()
        process.wait(GIVE_UP_SECONDS)
    assert PASSWORD.encode() not in told.read_bytes()
    assert b"Traceback" not in told.read_bytes()
    assert process.returncode in (0, -signal.SIGTERM)


def test_our_services_run_on_their_own_commands_and_environments(guarded_redis: str, tmp_path: Path) -> None:
    """All of them at once, until every health check passes and an event has become a release."""
    broker = start_broker(tmp_path / "kafka")
    (tmp_path / "stream.toml").write_text((ROOT / "stream.example.toml").read_text())
    reachable = {"STREAM_DP_KAFKA": broker.address, "STREAM_DP_REDIS": guarded_redis}
    try:
        with Redis.from_url(guarded_redis) as redis:
            JournaledLedger(broker.address, redis, "shop.events").set_budget(2.0, 1e-5, "event")
        with ExitStack() as services:
            alone = [name for name in OWN if name not in OF_GROUP]
            waits = [services.enter_context(started(name, tmp_path, reachable)) for name in alone]
            for wait in waits:
                wait()
            with KafkaProducer(bootstrap_servers=broker.address, enable_idempotence=True) as producer:
                producer.send("shop.events", b'{"items": ["tea"]}').get(GIVE_UP_SECONDS)
            with KafkaConsumer(
                "shop.releases", bootstrap_servers=broker.address, auto_offset_reset="earliest"
            ) as consumer:
                [[record]] = consumer.poll(int(1000 * GIVE_UP_SECONDS), max_records=1).values()
            assert decode_release(record.value).round == 1
    finally:
        broker.stop()


def test_the_profile_group_reads_on_its_own_commands(guarded_redis: str, tmp_path: Path) -> None:
    """As many of each as the file says; every health check passes, and events in 12 partitions become releases."""
    broker = start_broker(tmp_path / "kafka")
    page = (ROOT / "docs" / "operations" / "intake.md").read_text()
    settings = re.findall(r"```toml\n(stream = .*?)```", page, flags=re.DOTALL)[0]  # later: of a copied topic
    (tmp_path / "stream.toml").write_text(settings)
    reachable = {"STREAM_DP_KAFKA": broker.address, "STREAM_DP_REDIS": guarded_redis}
    try:
        with Redis.from_url(guarded_redis) as redis:
            JournaledLedger(broker.address, redis, "shop.events").set_budget(2.0, 1e-5, "event")
        log.create_topics(broker.address, "shop.events", partitions=12)
        with ExitStack() as services:
            services.enter_context(started("worker", tmp_path, reachable))()
            waits = [
                services.enter_context(started(name, tmp_path, reachable, replica))
                for name in OF_GROUP
                for replica in range(1, 1 + SERVICES[name].get("deploy", {}).get("replicas", 1))
            ]
            for wait in waits:
                wait()
            with KafkaProducer(bootstrap_servers=broker.address) as producer:
                for partition in range(12):
                    producer.send("shop.events", b'{"items": ["tea"]}', partition=partition)
            with KafkaConsumer(
                "shop.releases", bootstrap_servers=broker.address, auto_offset_reset="earliest"
            ) as consumer:
                [[record]] = consumer.poll(int(1000 * GIVE_UP_SECONDS), max_records=1).values()
            assert decode_release(record.value).round == 1
    finally:
        broker.stop()
