"""Without any one of the rights that `check --rights` lists a process ends with the sentence that names it.

With all of them it works: see test_listed_rights.py, whose tests run beside these.
"""

import json
import re
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from stream_dp.barriers.topic import prepare_barriers
from stream_dp.config.events_section import EventsSection
from stream_dp.config.settings import Settings
from stream_dp.epochs.registry import Registry, default_ledger
from stream_dp.events.record import Record
from stream_dp.jobs.request import JobRequest
from stream_dp.jobs.result import decode_result
from stream_dp.kafka import log, roles
from stream_dp.kafka.rights import Right
from stream_dp.releases.release import decode_release
from stream_dp.releases.table_topic import Table, prepare_table
from tests.apache_kafka.authorized import PASSWORD, USER, AuthorizedKafka, authorized_kafka
from tests.apache_kafka.server import free_ports
from tests.example_releases import release
from tests.system.forked_program import start
from tests.system.streams import Stream, as_values, ended, status_of
from tests.system.waiting import wait_until

pytestmark = pytest.mark.apache("rights", alone=True)

PORT, _ = free_ports()
SECRET = "PASSWORD_OF_THE_TEST"
TIME = 1_769_860_800_000
SECTION = '{ topic = "%s-orders", items = "lines[*].sku" }'
GOOD, BAD = b'{"lines": [{"sku": "tea"}]}', b"no order"


@pytest.fixture(scope="module")
def authorized(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AuthorizedKafka]:
    with authorized_kafka(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET, PASSWORD)


class Site:
    """A stream over another team's topic, with all topics made by an administrator."""

    def __init__(self, broker: AuthorizedKafka, redis_url: str, folder: Path, **changed: Any) -> None:
        name = f"rights-{uuid.uuid4().hex[:8]}"
        mapping = EventsSection(topic=f"{name}-orders", items="lines[*].sku")
        values: dict[str, Any] = {"epsilon": 30.0, "horizon": 1023, "unmetered": True, "tick_seconds": 0.2}
        values |= {
            "rounds": "ticks",
            "create_topics": False,
            "checkpoint_every": "200ms",
            "mechanism": "binary",
            **changed,
        }
        all_powerful = Settings(
            stream=name, kafka=broker.administrator, redis=redis_url, mapping=mapping, **values
        )
        self.broker, self.folder = broker, folder
        self.stream = Stream(all_powerful, folder)
        login = {"kafka_sasl_mechanism": "PLAIN", "kafka_username": USER, "kafka_password": f"env:{SECRET}"}
        self.settings = msgspec.structs.replace(
            all_powerful, kafka=broker.address, kafka_security="SASL_PLAINTEXT", **login
        )
        own = all_powerful
        log.create_topics(own.kafka, own.events)
        if not own.create_topics:
            self._create_topics(own)
        Registry(own.kafka).register("topic", own.events, own.events, own.unit)
        self.log_file = folder / "process.log"

    @staticmethod
    def _create_topics(own: Settings) -> None:
        """What an administrator does who lets no process make topics."""
        topics = [
            own.releases,
            own.epochs,
            default_ledger(own.events),
            own.dead_letters,
            own.jobs,
            own.results,
        ]
        log.create_topics(own.kafka, *topics, own.windows_topic, own.history_topic)
        prepare_barriers(msgspec.structs.replace(own, create_topics=True))
        prepare_table(own.kafka, own.table, create_topics=True)

    def named(self, taken: str) -> Right:
        """The right that `cases` calls so, of a stream S."""
        name, operation = taken.split(" ")
        own = self.settings.stream + name[1:] if name.startswith("S") else name
        return Right(own, operation)  # type: ignore[arg-type]

    def feed(self, *values: bytes) -> None:
        self.stream.write(self.settings.events, [Record(0, TIME, b"key", value) for value in values])

    def logged(self) -> str:
        return self.log_file.read_text() if self.log_file.exists() else ""

    @contextmanager
    def running(self, *words: str) -> Iterator[BaseProcess]:
        """`stream-dp` with these words as USER, until the block ends."""
        values = as_values(self.settings) | {"mapping": None, "events": SECTION % self.settings.stream}
        process = start(values, self.log_file, *words, **{SECRET: PASSWORD})
        try:
            yield process
        finally:
            process.terminate()
            ended(process)

    def await_(self, condition: Callable[[], bool], process: BaseProcess) -> None:
        def enough() -> bool:
            over = status_of(process) is not None
            found = condition()
            assert found or not over, f"it ended too early:\n{self.logged()}"
            return found

        wait_until(enough, lambda: f"it takes too long:\n{self.logged()}")


def worker_works(site: Site) -> bool:
    """It releases, and writes dead letters."""
    releases = site.stream.releases()
    shows = bool(releases) and "tea" in decode_release(releases[-1].value or b"").labels
    return shows and len(site.stream.dead_letters(at_least=0)) > 0


def barriers_work(site: Site) -> bool:
    """They come, and are written after those of the administrator's own epoch."""
    return len(site.stream.barrier_records()) > 5


def table_works(site: Site) -> bool:
    if site.settings.table not in log.topics(site.stream.settings.kafka):
        return False
    with Table(site.stream.settings.kafka, site.settings.table) as table:
        return "tea" in table.rows()


def windows_work(site: Site) -> bool:
    """What happened lately is written."""
    kafka, topic = site.stream.settings.kafka, site.settings.windows_topic
    return topic in log.topics(kafka) and log.offsets(kafka, topic).end > 0


def history_works(site: Site) -> bool:
    """How counts grew is written."""
    kafka, topic = site.stream.settings.kafka, site.settings.history_topic
    return topic in log.topics(kafka) and log.offsets(kafka, topic).end > 0


def page_works(site: Site) -> bool:
    """It shows the release."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/api/v1/release/latest", timeout=30) as answer:
            return "tea" in json.load(answer)["labels"]
    except OSError:
        return False


def jobs_work(site: Site) -> bool:
    """A job is answered."""
    kafka, topic = site.stream.settings.kafka, site.settings.results
    if topic not in log.topics(kafka):
        return False
    values = [each.value or b"" for each in log.read(kafka, topic, 0, log.offsets(kafka, topic).end)]
    return any(decode_result(each).status == "done" for each in values)


def records_in(site: Site, topic: str) -> int:
    """How many records were ever written there, in all partitions."""
    return sum(partition.end for partition in log.offsets_of_all(site.stream.settings.kafka, topic))


class Role(NamedTuple):
    """A process: its command, its rights, whether it has done its work, and what has to be there before."""

    words: tuple[str, ...]
    needed: Callable[[Settings], list[Right]]
    works: Callable[[Site], bool]
    prepare: Callable[[Site], None]
    listed_as: str = ""

    @property
    def name(self) -> str:
        """What `check --rights` calls it."""
        return self.listed_as or self.words[0]


def feed(site: Site) -> None:
    site.feed(*[GOOD] * 40, BAD)


def open_epoch(site: Site) -> None:
    """An epoch whose barriers somebody else writes."""
    before = len(site.stream.barrier_records())
    worker = site.stream.start()
    wait_until(lambda: len(site.stream.barrier_records()) > before + 1, site.stream.logged)
    worker.terminate()
    assert ended(worker) == 0


def some_release(site: Site) -> None:
    value = msgspec.json.encode(release(5, {"tea": 9}, site.settings.stream))
    site.stream.write(site.settings.releases, [Record(0, TIME, site.settings.stream.encode(), value)])


def some_releases(site: Site) -> None:
    for number in range(1, 9):
        value = msgspec.json.encode(release(number, {"tea": 9 * number}, site.settings.stream))
        site.stream.write(site.settings.releases, [Record(0, TIME, site.settings.stream.encode(), value)])


def ask(site: Site) -> None:
    feed(site)
    request = JobRequest(
        id=uuid.uuid4().hex, job="top-k", mechanism="gaussian", k=1, items_per_user=1, epsilon=9.0, delta=1e-6
    )
    site.stream.write(site.settings.jobs, [Record(0, TIME, b"one", request.encode())])


def worker_needs(settings: Settings) -> list[Right]:
    return roles.worker(settings, default_ledger(settings.events))


def jobs_need(settings: Settings) -> list[Right]:
    return roles.jobs_worker(settings, default_ledger(settings.events))


def one_shot_needs(settings: Settings) -> list[Right]:
    return roles.one_shot(settings, default_ledger(settings.events))


ONE_SHOT = ("histogram", "--unit", "event", "--epsilon", "9", "--items-per-user", "1", "--publish", "--json")
ROLES = {
    "worker": Role(("worker",), worker_needs, worker_works, feed),
    "barriers": Role(("barriers",), roles.barriers_writer, barriers_work, open_epoch),
    "table": Role(("table",), roles.table_writer, table_works, some_release),
    "windows": Role(("windows", "--window", "4"), roles.windows_writer, windows_work, some_releases),
    "history": Role(("history",), roles.history_writer, history_works, some_releases),
    "dashboard": Role(("dashboard", "--port", str(PORT)), roles.dashboard, page_works, some_release),
    "jobs": Role(("jobs", "worker"), jobs_need, jobs_work, ask),
    "one-shot": Role(ONE_SHOT, one_shot_needs, jobs_work, feed, listed_as="one-shot"),
}


@pytest.fixture
def make_site(authorized: AuthorizedKafka, redis_url: str, tmp_path: Path) -> Callable[..., Site]:
    return lambda **changed: Site(authorized, redis_url, tmp_path, **changed)


def rights_of(role: str, values: Mapping[str, Any], output: Path) -> list[Right]:
    """What `check --rights` says, as somebody who may do nothing; it is written to `output`."""
    assert ended(start(values, output, "check", "--rights", "--json", **{SECRET: PASSWORD})) == 1
    [line] = [line for line in output.read_text().splitlines() if line.startswith("{")]
    return [
        Right(place["topic"], operation)
        for place in json.loads(line)["rights"][role]
        for operation in place["operations"]
    ]


def refused(site: Site, role: Role, right: Right) -> str:
    """What the process says with all rights of its role but this one: it ends at its first start, or at the next."""
    role.prepare(site)
    rights = [*role.needed(site.settings), *roles.dead_letters(site.settings)]
    site.broker.grant(each for each in rights if each != right)
    site.broker.withdraw(*right)
    for start_again in (False, True):
        if start_again:
            role.prepare(site)
        with site.running(*role.words) as process:

            def ended_or_works(process: BaseProcess = process, again: bool = start_again) -> bool:
                return status_of(process) is not None or (not again and role.works(site))

            wait_until(ended_or_works, lambda: f"{right} is not missed:\n{site.logged()}")
            status = status_of(process)
            if status == 0 and not start_again:  # a command that has found nothing to read yet
                continue
            if status is not None:
                assert status == 2, site.logged()
                return site.logged()
    raise AssertionError("unreachable")


def cases() -> Iterator[tuple[str, str]]:
    settings = Settings(
        stream="S",
        rounds="ticks",
        create_topics=False,
        mapping=EventsSection(topic="S-orders"),
    )
    known: set[tuple[str, Right]] = set()
    for name, role in ROLES.items():
        if name != "dashboard":  # it waits for what it may not read, and shows what it has
            needed = role.needed(settings)
            yield from ((name, " ".join(right)) for right in needed if (role.name, right) not in known)
            if name == "jobs":  # a command reads what the worker of jobs reads
                known |= {("one-shot", right) for right in needed if right.topic != settings.results}


@pytest.mark.parametrize(("name", "taken"), list(cases()))
def test_without_any_one_of_them_it_ends_and_names_it(
    name: str, taken: str, make_site: Callable[..., Site]
) -> None:
    site, role = make_site(), ROLES[name]
    [right] = [each for each in role.needed(site.settings) if site.named(taken) == each]
    log = refused(site, role, right)
    assert re.search(
        rf"the right [^:]*\b{right.operation}\b[^,:]* on the topic '{re.escape(right.topic)}'", log
    ), log
    assert "Traceback" not in log
