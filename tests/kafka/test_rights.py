"""What a failure of Kafka is taken for: a missing right is told with its name, and everything else stays an outage."""

from typing import Any

import pytest
from aiokafka.errors import TopicAuthorizationFailedError as TopicRefused
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    KafkaTimeoutError,
    TopicAuthorizationFailedError,
)

from stream_dp.cli.mistakes import sentence
from stream_dp.errors import Refused
from stream_dp.kafka import rights
from stream_dp.kafka.rights import NotPermitted, Right, naming, refuse_without_rights

READ, WRITE = Right("orders", "READ"), Right("shop.releases", "WRITE")
NEEDED = [READ, WRITE]


def taken_for(
    monkeypatch: pytest.MonkeyPatch, missing: list[Right] | KafkaError | None, failure: Exception
) -> str:
    """The refusal that a failure becomes where the broker tells that these rights are missing; empty for none."""

    def told(*_: Any) -> list[Right] | None:
        if isinstance(missing, KafkaError):
            raise missing
        return missing

    monkeypatch.setattr(rights, "missing_rights", told)
    try:
        refuse_without_rights("localhost:1", NEEDED, failure)
    except Refused as refusal:
        return str(refusal)
    return ""


def test_all_rights_that_are_missing_are_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    told = taken_for(monkeypatch, [READ, WRITE], KafkaTimeoutError("no records"))
    assert "READ on the topic 'orders', WRITE on the topic 'shop.releases'" in told


@pytest.mark.parametrize("missing", [[], None, KafkaError("away")])
@pytest.mark.parametrize("failure", [KafkaTimeoutError("slow"), OSError("away"), KafkaError("gone")])
def test_an_outage_stays_one(
    missing: list[Right] | KafkaError | None, failure: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert taken_for(monkeypatch, missing, failure) == ""


@pytest.mark.parametrize(
    ("failure", "right"),
    [
        (TopicRefused("orders"), "READ on the topic 'orders'"),
        (TopicAuthorizationFailedError({"shop.releases"}), "WRITE on the topic 'shop.releases'"),
    ],
)
def test_where_the_broker_tells_nothing_of_rights_its_refusal_does(
    failure: Exception, right: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert right in taken_for(monkeypatch, None, failure)


def test_a_right_that_is_back_is_no_reason_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert taken_for(monkeypatch, [], TopicRefused("orders")) == ""


@pytest.mark.parametrize("missing", [[], None])
def test_a_refusal_to_make_a_topic_is_believed(
    missing: list[Right] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No broker tells of a topic that does not exist whether it may be made."""
    made = NotPermitted(Right("shop.table", "CREATE"))
    assert "CREATE on the topic 'shop.table'" in taken_for(monkeypatch, missing, made)


@pytest.mark.parametrize(
    "failure",
    [
        TopicAuthorizationFailedError("orders"),
        TopicAuthorizationFailedError(
            "Request 'CreateTopicsRequest(version=7)' failed with response 'denied'."
        ),
        ClusterAuthorizationFailedError("x"),
        KafkaError("Unexpected error in InitProducerIdResponse: [Error 31] ClusterAuthorizationFailedError"),
    ],
)
def test_a_command_that_is_refused_names_the_right(failure: KafkaError) -> None:
    with pytest.raises(NotPermitted) as refused, naming("WRITE", "orders"):
        raise failure
    told = sentence(refused.value)
    assert told is not None
    assert "the right WRITE on the topic 'orders'" in told


def test_another_failure_is_not_renamed() -> None:
    with pytest.raises(KafkaTimeoutError), naming("READ", "orders"):
        raise KafkaTimeoutError("slow")
