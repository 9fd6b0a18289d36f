"""Whether the topics are still the ones that a process began to work with.

Kafka's clients go on with a topic that was deleted and re-created, given more partitions, or set to forget: what was
released would be lost, or what others produce not counted, without a word.  So somebody looks every few seconds, and
the process stops at the first change.  A broker that does not answer is an outage and no change.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import KafkaError, NoError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from stream_dp.config.settings import Settings
from stream_dp.kafka.clients import admin_client
from stream_dp.kafka.log import LogRefused, partitions_text
from stream_dp.kafka.rights import NotPermitted, Right
from stream_dp.operations.watch import Watch

logger = logging.getLogger(__name__)

LOOK_SECONDS = 2.0
_ANSWER_MILLISECONDS = 3_000
_LOOK_AGAIN_SECONDS = 0.5  # a broker that has just started may not know all topics yet
_POLICY, _LIMITS = "cleanup.policy", ("retention.ms", "retention.bytes")

_DOUBT = {
    "events": "is not the log that was counted",
    "barriers": "may lack barriers that ended rounds",
    "releases": "may lack releases that were sent",
    "epochs": "may lack epochs that were opened or closed",
    "ledger": "may lack charges",
    "schemas": "may lack schemas by which events were read",
    "dead_letters": "may lack dead letters",
    "table": "may lack rows",
    "windows_topic": "may lack windows",
    "history_topic": "may lack moments",
}
"""What a change of each kind of topic leaves in doubt."""


class TopicChanged(LogRefused):
    """A topic is not what it was when this process began; the message says what has become of it."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(message)
        self.topic = topic


@dataclass(frozen=True)
class _Topic:
    """A topic as it was seen; `id` is empty where the broker tells none, and `settings` holds what may be seen.

    `ends` are the ends of its partitions, asked for only where there is no `id`.
    """

    id: str
    partitions: int
    settings: dict[str, str]
    ends: tuple[int, ...]


class TopicWatch:
    """Looks at a stream's topics and compares them with what they were when it first saw them.

    `kinds` are names of `Settings` such as "events"; `ledger` is the topic of the source's charges.  A topic that is
    not there yet counts from when it is.  What becomes of the dead letters is told once, in the log: they must not hold
    up the releases.
    """

    def __init__(self, settings: Settings, *kinds: str, ledger: str | None = None) -> None:
        """Nothing is connected before the first look."""
        self._kafka = settings.kafka_address
        self._kinds = {str(getattr(settings, kind)): kind for kind in kinds}
        if ledger is not None:
            self._kinds[ledger] = "ledger"
        self._known: dict[str, _Topic] = {}
        self._growing: set[str] = set()
        self._hidden: set[str] = set()  # topics whose settings this process may not see, and does not ask for
        self._told: set[tuple[str, str]] = set()  # topics, and what was said of them
        self._admin: KafkaAdminClient | None = None
        self._looking = threading.Lock()

    def look(self) -> None:
        """Raises `TopicChanged`, or KafkaError where the broker does not answer in some seconds."""
        with self._looking:
            try:
                found = self._found()
                if self._known.keys() - found.keys():
                    time.sleep(_LOOK_AGAIN_SECONDS)
                    found = self._found()
            except BaseException:
                self._leave()
                raise
            for name, kind in self._kinds.items():
                self._compare(name, kind, found.get(name))

    def may_grow(self, topic: str) -> None:
        """Another partition of this topic is none of the changes: whoever reads it takes it in by itself."""
        self._growing.add(topic)

    def for_readers(self, topic: str) -> None:
        """Ask for no settings of this topic: this process only reads it, and whoever writes to it looks at those."""
        self._hidden.add(topic)

    def identities(self) -> dict[str, str]:
        """What the broker called each topic when it was seen last, by name; no topic that it has no identity for."""
        known = list(self._known.items())  # at once: another thread may be looking, which takes long
        return {name: topic.id for name, topic in known if topic.id}

    async def still_same(self, watch: Watch) -> None:
        """Look once.  Raises `TopicChanged` or `NotPermitted`; that the broker does not answer is only reported."""
        try:
            await asyncio.to_thread(self.look)
        except NotPermitted:
            raise
        except KafkaError:
            watch.answered(False)

    async def guard(self, work: Coroutine[Any, Any, None], watch: Watch) -> None:
        """Do the work and look every few seconds; the work is cancelled at the first change.

        Raises `TopicChanged`, or what the work raises.
        """
        looking, working = asyncio.ensure_future(self._keep_looking(watch)), asyncio.ensure_future(work)
        tasks = looking, working
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await asyncio.to_thread(self.close)
        for failed in [task.exception() for task in tasks if not task.cancelled()]:
            if isinstance(failed, TopicChanged):
                watch.topic_changed(failed.topic)
                logger.error("%s", failed)
                await asyncio.to_thread(watch.last_word)
            if failed is not None:
                raise failed

    async def _keep_looking(self, watch: Watch) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.still_same(watch)

    def close(self) -> None:
        """Leave the broker; the next look connects again."""
        with self._looking:
            self._leave()

    def _leave(self) -> None:
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def _found(self) -> dict[str, _Topic]:
        """The topics that are there; one that cannot be seen just now is as it was."""
        if self._admin is None:
            self._admin = admin_client(
                self._kafka,
                request_timeout_ms=_ANSWER_MILLISECONDS,
                bootstrap_timeout_ms=_ANSWER_MILLISECONDS,
            )
        told = {each["name"]: each for each in self._admin.describe_topics(list(self._kinds))}
        for name, each in told.items():
            if (
                each["error_code"] == TopicAuthorizationFailedError.errno
                and self._kinds[name] != "dead_letters"
            ):
                raise NotPermitted(Right(name, "DESCRIBE"))
        there = [name for name, each in told.items() if each["error_code"] == NoError.errno]
        settings = _settings(self._admin, [name for name in there if name not in self._hidden])
        found = {
            name: _Topic(
                str(told[name].get("topic_id") or ""),
                len(told[name]["partitions"]),
                settings.get(name, {}),
                _ends(self._admin, name, told[name]),
            )
            for name in there
        }
        unseen = {name for name, each in told.items() if each["error_code"] not in _THERE_OR_GONE}
        return {name: seen for name, seen in self._known.items() if name in unseen} | found

    def _compare(self, name: str, kind: str, found: _Topic | None) -> None:
        known = self._known.get(name)
        change = None if known is None else _change(known, found, name in self._growing)
        if change is not None and kind == "dead_letters":
            self._tell(name, f"{_DOUBT[kind]}: {change} while this process ran")
        elif change is not None:
            raise TopicChanged(
                name,
                f"the topic {name!r} {_DOUBT[kind]}: {change} while this process ran; put that right and start it "
                "again, and it compares what is there before it sends anything",
            )
        if found is not None:
            if not found.settings and name not in self._hidden:
                self._tell(
                    name,
                    "does not show its settings: give this user the right to describe them, or a shorter retention "
                    "would not be noticed",
                )
            self._known[name] = found
        elif kind == "dead_letters":
            self._known.pop(name, None)  # one that comes later is another one, and is known as that

    def _tell(self, name: str, what: str) -> None:
        if (name, what) not in self._told:
            self._told.add((name, what))
            logger.warning("the topic %r %s", name, what)


_THERE_OR_GONE = (NoError.errno, UnknownTopicOrPartitionError.errno)


def _settings(admin: KafkaAdminClient, topics: Iterable[str]) -> dict[str, dict[str, str]]:
    """What each topic forgets, as far as this user may see it."""
    wanted = dict.fromkeys((_POLICY, *_LIMITS))
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic, wanted) for topic in topics]
    told = admin.describe_configs(asked, config_filter="all").get("topic", {}) if asked else {}
    return {
        topic: {name: str(each["value"]) for name, each in told.get(topic, {}).items()} for topic in topics
    }


def _ends(admin: KafkaAdminClient, topic: str, told: dict[str, Any]) -> tuple[int, ...]:
    """Where the partitions of a topic without an identity end."""
    if told.get("topic_id"):
        return ()
    places = [TopicPartition(topic, number) for number in range(len(told["partitions"]))]
    ends = admin.list_partition_offsets(dict.fromkeys(places, OffsetSpec.LATEST))
    return tuple(ends[place].offset for place in places)


def _change(known: _Topic, found: _Topic | None, may_grow: bool) -> str | None:
    """What has become of a topic, as the end of a sentence; None if nothing that matters has."""
    if found is None:
        return "it was deleted"
    shorter = any(end < before for before, end in zip(known.ends, found.ends, strict=False))
    if known.id != found.id or shorter:
        return "it was deleted and re-created"
    if known.partitions != found.partitions and not (may_grow and known.partitions < found.partitions):
        return f"it got {partitions_text(found.partitions)} instead of {known.partitions}"
    before, now = known.settings.get(_POLICY, ""), found.settings.get(_POLICY, "")
    if "compact" in now and "compact" not in before:
        return f"it got {_POLICY}={now} instead of {before or 'delete'}"
    for name in _LIMITS:
        if name in known.settings and name in found.settings:
            before, now = known.settings[name], found.settings[name]
            if _reach(now) < _reach(before):
                return f"it got {name}={now} instead of {before}"
    return None


def _reach(limit: str) -> float:
    """How much a topic keeps, where -1 is all of it."""
    return float("inf") if limit == "-1" else float(limit)
