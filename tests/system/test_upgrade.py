"""An epoch that an older program began lives on under this one: it is verified, rebuilt and replayed, and goes on.

Its releases show what each round shows, whatever the settings' default is today.
"""

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from stream_dp.cli import app
from stream_dp.events.record import Record
from stream_dp.releases.release import Release, decode_release
from tests.format_3 import LEFT
from tests.system.old_stream import old_stream
from tests.system.streams import Stream, small_stream


def run(stream: Stream, *words: str) -> Result:
    settings = stream.folder / "stream.toml"
    values = {name: getattr(stream.settings, name) for name in ("stream", "kafka", "redis", "source")}
    settings.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in values.items() if value))
    return CliRunner().invoke(app, [*words, "--settings", str(settings)])


def verdict(stream: Stream) -> tuple[str, int, int]:
    """What `stream-dp verify` says, of how many rounds, and its exit status."""
    result = run(stream, "verify", "--json")
    told: dict[str, Any] = json.loads(result.stdout)
    assert told["settings"] == LEFT["honaker"].fingerprint
    return told["verdict"], told["rounds"], result.exit_code


def released(stream: Stream) -> list[Release]:
    return [decode_release(record.value or b"") for record in stream.releases()]


def test_an_epoch_of_an_older_program_is_verified_rebuilt_and_replayed(
    kafka: str, redis_url: str, topic_prefix: str, tmp_path: Path
) -> None:
    left = LEFT["honaker"]
    with old_stream(kafka, redis_url, tmp_path, left) as stream:
        assert verdict(stream) == ("extended", left.counted, 0)
        assert stream.run(until_round=len(left.events)) == 0
        assert verdict(stream) == ("identical", len(left.events), 0)

        key = f"stream_dp:{{{stream.settings.stream}}}:key".encode()
        stream.restore_keys({key: stream.redis_keys()[key]})
        assert run(stream, "budget", "set", "--epsilon", "20", "--delta", "0.1").exit_code == 0
        rebuilt = run(stream, "rebuild", "--json")
        assert rebuilt.exit_code == 0, rebuilt.output
        assert json.loads(rebuilt.stdout)["round"] == len(left.events)
        stream.check_everything()

        stream.feed([b'{"items": ["item%d", "tea"]}' % (number % 4) for number in range(10)])
        rounds = len(left.events) + 10
        assert stream.run(until_round=rounds) == 0
        stream.check_everything()
        assert verdict(stream) == ("identical", rounds, 0)

        source = {"source": stream.settings.events, "unmetered": False, "epsilon": 2.0}
        with small_stream(kafka, redis_url, topic_prefix, tmp_path, **source) as again:
            replayed = run(again, "replay", "--topic", stream.settings.events, "--as-fast-as-possible")
            assert replayed.exit_code == 0, replayed.output
            assert [record.value for record in again.events()] == [record.value for record in stream.events()]
            assert again.run(until_round=rounds) == 0
            assert {release.shown for release in released(again)} == {"kept"}

        everything = released(stream)
        assert {(release.v, release.shown) for release in everything} == {(1, "each-round")}
        assert any(release.counts for release in everything)
        assert all(min(release.counts, default=release.tau) >= release.tau for release in everything)

        first, *rest = stream.releases()
        changed = (first.value or b"").replace(b'"sd":', b'"sd":1')
        stream.rewrite(stream.settings.releases, [Record(0, 1, first.key, changed), *rest])
        assert verdict(stream) == ("releases-changed", 0, 1)
