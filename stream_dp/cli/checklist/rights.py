"""What Kafka has to let each process of a stream do, and whether it lets this user do what the worker needs."""

import shlex
from collections.abc import Iterator

from kafka.admin import ACL, ACLOperation, ACLPermissionType, ResourcePattern, ResourceType
from kafka.errors import KafkaError

from stream_dp.barriers.topic import needs_barriers
from stream_dp.cli.checklist.finding import Finding
from stream_dp.config.settings import Settings, SettingsError
from stream_dp.epochs.registry import ledger_as_far_as_known
from stream_dp.kafka import log, roles
from stream_dp.kafka.clients import admin_client, borrowed
from stream_dp.kafka.rights import Right, missing_rights, told


def permitted(settings: Settings) -> Iterator[Finding]:
    """Whether this user may do what the worker needs; nothing where Kafka does not answer, which others tell."""
    try:
        ledger = ledger_as_far_as_known(settings.kafka_address, settings.data_source)
        needed = roles.worker(settings, ledger, partitions_or_one(settings))
        missing = missing_rights(settings.kafka_address, needed)
        letters = missing_rights(settings.kafka_address, roles.dead_letters(settings))
    except (KafkaError, SettingsError):
        return
    if missing is None:
        yield Finding(
            "rights",
            "ok",
            "Kafka does not say what this user may do: it checks no rights, or it is too old to say",
        )
    elif missing:
        yield Finding("rights", "failed", told(missing))
    elif letters:
        yield Finding("rights", "warning", f"the worker would continue without dead letters: {told(letters)}")
    else:
        yield Finding("rights", "ok", "this user may do all that the worker needs")


def partitions_or_one(settings: Settings) -> int:
    """How many partitions the events topic has; 1 where it is not there or may not be seen, or nobody answers."""
    try:
        found = log.describe(settings.kafka_address, settings.events)
    except (KafkaError, SettingsError):
        return 1
    return found.partitions if found is not None else 1


def _roles(settings: Settings) -> dict[str, list[Right]]:
    """What each process of this stream needs, by its name as docs/operations has it."""
    partitions = partitions_or_one(settings)
    ledger = ledger_as_far_as_known(settings.kafka_address, settings.data_source)
    barriers = {"barriers": roles.barriers_writer(settings)} if needs_barriers(settings, partitions) else {}
    return {
        "worker": roles.worker(settings, ledger, partitions) + roles.dead_letters(settings),
        **barriers,
        **(
            {"spark": roles.spark(settings) + roles.dead_letters(settings)}
            if settings.engine == "spark"
            else {}
        ),
        "table": roles.table_writer(settings),
        "windows": roles.windows_writer(settings),
        "history": roles.history_writer(settings),
        "dashboard": [*roles.dashboard(settings), Right(settings.results, "READ")],
        "subscriber": roles.subscriber(settings),
        "jobs": roles.jobs_worker(settings, ledger),
        "one-shot": roles.one_shot(settings, ledger),
        "erase": roles.erase(settings, f"{settings.events}-2"),
    }


def needed_rights(settings: Settings) -> dict[str, list[dict[str, object]]]:
    """For each process of the stream what it needs, as JSON has it: topics, and operations on them."""
    return {
        role: [{"topic": topic, "operations": operations} for topic, operations in _topics(needed).items()]
        for role, needed in _roles(settings).items()
    }


def commands(settings: Settings) -> Iterator[str]:
    """The command lines that give the users of a stream their rights."""
    for role, user, needed in _users(settings):
        yield f"# {role}"
        for topic, operations in _topics(needed).items():
            principal = shlex.quote(f"User:{user}")
            given = " ".join(f"--operation {each.title().replace('_', '')}" for each in operations)
            yield (
                f"kafka-acls.sh --bootstrap-server {settings.kafka} --add --allow-principal {principal} {given} "
                f"--topic {shlex.quote(topic)}"
            )


def granted(settings: Settings) -> Finding:
    """Give the users of a stream their rights, which takes a user who may alter ACLs."""
    acls = [
        ACL(
            f"User:{user}",
            "*",
            ACLOperation[right.operation],
            ACLPermissionType.ALLOW,
            ResourcePattern(ResourceType.TOPIC, right.topic),
        )
        for _, user, needed in _users(settings)
        for right in dict.fromkeys(needed)
    ]
    try:
        with borrowed(admin_client, settings.kafka_address) as admin:
            failed = admin.create_acls(acls)["failed"]
    except (KafkaError, SettingsError) as error:
        return Finding(
            "grants", "failed", f"Kafka gave no rights ({error}): run this as a user who may alter ACLs"
        )
    if failed:
        return Finding(
            "grants", "failed", f"Kafka refused {len(failed)} of {len(acls)} rights: {failed[0][1]}"
        )
    return Finding("grants", "ok", f"Kafka gave {len(acls)} rights to the users of the stream's processes")


def _users(settings: Settings) -> Iterator[tuple[str, str, list[Right]]]:
    """Each role, its user in Kafka, and what that user needs.

    The worker, which starts the process that writes barriers, is the user of the settings; the names of the others are
    those of their processes.
    """
    own = {"worker", "barriers"} if settings.kafka_username else set()
    for role, needed in _roles(settings).items():
        yield role, settings.kafka_username or role if role in own else role, needed


def _topics(needed: list[Right]) -> dict[str, list[str]]:
    operations: dict[str, list[str]] = {}
    for topic, operation in needed:
        operations.setdefault(topic, []).append(operation)
    return operations
