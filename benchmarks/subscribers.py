"""What a release costs whoever subscribes: its bytes, as they are and compressed in the batches of a worker, and the
time until its counts are there, beside decoding the whole JSON of each.

python -m benchmarks subscribers
"""

import msgspec
import zstandard
from rich.console import Console
from rich.table import Table

from benchmarks.measure import take_turns
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, Position
from stream_dp.releases.whole import WholeReleases
from stream_dp.releases.whole_release import WholeRelease, decode_whole_release

SIZES = (100, 1_000)
TURNS = 9
_AT_ONCE, _ITEMS = 500, 4


def main(console: Console) -> None:
    """Print bytes and microseconds a release."""
    table = Table(
        "labels",
        "bytes",
        "compressed",
        "decode, put together: µs",
        "decode all of the JSON: µs",
        "times as fast",
        title="A release, for whoever subscribes",
    )
    whole = msgspec.json.Decoder(WholeRelease)
    for labels in SIZES:
        values = _releases(labels)
        batch = b"".join(values)

        def subscribe(values: list[bytes] = values) -> None:
            together = WholeReleases()
            for value in values:
                together.add(decode_whole_release(value))

        def plainly(values: list[bytes] = values) -> None:
            for value in values:
                whole.decode(value)

        seconds = take_turns({"subscribe": subscribe, "plainly": plainly}, TURNS)
        ours, theirs = (seconds[name] / len(values) * 1e6 for name in ("subscribe", "plainly"))
        compressed = len(zstandard.ZstdCompressor(level=1).compress(batch)) / len(values)
        table.add_row(
            f"{labels:,}",
            f"{len(batch) / len(values):,.0f}",
            f"{compressed:,.0f}",
            f"{ours:.1f}",
            f"{theirs:.1f}",
            f"{theirs / ours:.1f}",
        )
    console.print(table)


def _releases(labels: int) -> list[bytes]:
    """Those of the rounds of one batch, in which all labels are shown."""
    settings = Settings(stream="bench", unmetered=True, epsilon=20.0, delta=0.01, horizon=2**16 - 1)
    pipeline = Pipeline(Epoch.open(settings, 1, 0), bytes(32), settings.events, Position(0))
    found: list[bytes] = []
    for start in range(0, 16 * labels + 8 * _AT_ONCE, _AT_ONCE):
        output = pipeline.process([_event(number, labels) for number in range(start, start + _AT_ONCE)])
        found = [release.value for release in output.releases]
    assert len(decode_whole_release(found[-1]).labels) == labels
    return found


def _event(number: int, labels: int) -> Record:
    names = ",".join(f'"label {(number * _ITEMS + item) * 7 % labels}"' for item in range(_ITEMS))
    return Record(number, 1_700_000_000_000 + number, None, f'{{"items":[{names}]}}'.encode())
