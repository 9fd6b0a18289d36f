"""Making topics: somebody else may be faster, and a broker that never lists one does not hold anybody for ever."""

from typing import Any

import pytest
from kafka.errors import KafkaTimeoutError, TopicAlreadyExistsError

from stream_dp.kafka import log


class Admin:
    """An admin client of a broker on which others make every topic first; it lists them after so many looks."""

    def __init__(self, hidden_for: int) -> None:
        self.hidden_for, self.asked = hidden_for, 0

    def close(self) -> None: ...

    def list_topics(self) -> list[str]:
        self.hidden_for -= 1
        return ["shop.releases"] if self.hidden_for >= 0 else ["shop.events", "shop.releases"]

    def create_topics(self, topics: dict[str, Any], **_: object) -> None:
        assert list(topics) == ["shop.events"]
        self.asked += 1
        raise TopicAlreadyExistsError


def test_a_topic_that_somebody_else_makes_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    admin = Admin(hidden_for=3)
    monkeypatch.setattr(log, "admin_client", lambda _: admin)
    monkeypatch.setattr(log, "_CREATE_SECONDS", 600.0)
    log.create_topics("fake:1", "shop.events", "shop.releases")
    assert admin.asked == 3


def test_a_topic_that_is_never_listed_is_given_up_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "admin_client", lambda _: Admin(hidden_for=10**9))
    monkeypatch.setattr(log, "_CREATE_SECONDS", 0.1)
    with pytest.raises(KafkaTimeoutError, match=r"shop\.events cannot be created.* give this user the right"):
        log.create_topics("fake:1", "shop.events", "shop.releases")
