"""What Spark must be told before it may count a stream."""

import re

import pytest

from stream_dp.spark.closed import SparkOpen, require_closed

LOCAL = {"spark.master": "local[2]", "spark.ui.enabled": "false"}
CLUSTER = {
    "spark.master": "spark://host:7077",
    "spark.ui.enabled": "false",
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
    "spark.io.encryption.enabled": "True",
}


def test_what_is_closed_is_let_through() -> None:
    require_closed(LOCAL)
    require_closed(CLUSTER)


@pytest.mark.parametrize("name", [name for name in CLUSTER if name != "spark.master"])
def test_each_setting_is_asked_for(name: str) -> None:
    left_out = {other: value for other, value in CLUSTER.items() if other != name}
    with pytest.raises(SparkOpen, match=re.escape(f"set {name} = ")):
        require_closed(left_out)


def test_an_event_log_is_refused_on_one_machine_too() -> None:
    with pytest.raises(SparkOpen, match=r"set spark\.eventLog\.enabled = false"):
        require_closed(LOCAL | {"spark.eventLog.enabled": "true"})
