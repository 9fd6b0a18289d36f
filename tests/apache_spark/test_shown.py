"""What Spark writes and shows has no label and no count in it, even with its page and event log on and tasks that fail.

Its broker is a real Apache Kafka, whatever `--kafka` says.
"""

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from stream_dp.releases.release import decode_release
from stream_dp.spark.closed import require_private
from tests.apache_spark.own_servers import own_servers
from tests.apache_spark.shown import files_of, shown_in
from tests.apache_spark.test_stream import APART, PARTITIONS, SPARK
from tests.system.example_events import event
from tests.system.streams import Stream, small_stream
from tests.system.ticking import open_epoch

pytest.importorskip("pyspark", reason="Spark is not installed: pip install 'stream_dp[spark]'")

from tests.apache_spark.open_spark import CONTROL

ROOT = Path(__file__).parents[2]
RARE = "geheim-9c41e7d2", "päron-77b0c3aa", "梨-0e5d21f8"
OFTEN, TIMES = "haeufig-41d0a6b3", 13_579
"""A label with a true count that nobody may see; there are so many of its events."""

EVENTS = TIMES + 2 * APART * len(RARE)


@pytest.fixture
def stream(tmp_path: Path) -> Iterator[Stream]:
    with (
        own_servers(tmp_path / "servers") as servers,
        small_stream(
            servers.kafka,
            servers.redis_url,
            "shop",
            tmp_path,
            partitions=PARTITIONS,
            **SPARK | {"at_least": 1_000},
        ) as found,
    ):
        open_epoch(found)
        yield found


@pytest.mark.timeout(3_600)
def test_nothing_that_spark_writes_or_shows_has_a_label_or_a_count(stream: Stream, tmp_path: Path) -> None:
    folder = tmp_path / "spark"
    for each in ("", "state", "events", "local", "answers"):
        (folder / each).mkdir(mode=0o700)
    stream.spread([event(OFTEN)] * TIMES, PARTITIONS)
    for number in range(1, 2 * APART + 1):
        stream.spread([event(each) for each in RARE], PARTITIONS)
        stream.close_rounds(1_000 * number)
    (folder / "stream.json").write_bytes(msgspec.json.encode(stream.settings))
    with (folder / "said").open("wb") as said:
        words = sys.executable, "-m", "tests.apache_spark.open_spark", str(folder)
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1"}
        subprocess.run(words, stdout=said, stderr=said, check=False, cwd=ROOT, env=environment)
    text = (folder / "said").read_text()
    assert text.endswith("done\n"), text
    for failure in (
        "TaskFailed: ValueError in",
        "TaskFailed: KeyError in",
        "TaskFailed: LabelsDamaged: the file",
    ):
        assert failure in text
    written = files_of(folder / "events", folder / "kept", folder / "answers", folder / "said")
    controls = "\n".join(shown_in(written, [CONTROL]))
    for each in ("events", "answers", "said"):
        assert str(folder / each) in controls, "the search finds what nothing keeps back"
    assert not shown_in(written, [*RARE, OFTEN], [TIMES, EVENTS])

    assert stream.run(until_round=2 * APART) == 0
    assert decode_release(stream.releases()[-1].value or b"").labels == [OFTEN]
    settings = stream.settings
    topics = settings.releases, settings.epochs, settings.barriers, settings.counts  # the last one is private
    records = {topic: b"\n".join(each.value or b"" for each in stream.records(topic)) for topic in topics}
    assert not shown_in(records, RARE), "labels that no test has found"

    require_private(folder / "state")
    state = folder / "state"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (state, *state.rglob("*"))} == {0o600, 0o700}
