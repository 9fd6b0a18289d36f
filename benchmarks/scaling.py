"""Does the model of `stream-dp plan` hold?  A sequencer and 64 shards do the work of a plan, one after the other."""

from time import process_time

from rich.console import Console
from rich.table import Table

from benchmarks.costs import measure_costs
from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.frames import Frame, decode_frame, encode_frame, shards_of
from stream_dp.pipeline.intake import Position
from stream_dp.pipeline.sequencer import Sequencer
from stream_dp.pipeline.shard import Shard
from stream_dp.planning.plan import Workload, needs
from stream_dp.planning.release_sizes import far_along, stored_bytes
from stream_dp.privacy.keyed_noise import KEY_BYTES

SHARDS = 64
BLOCK_ROUNDS = 256
BLOCKS = 6  # of which the first warms up and the least counts, as in the model's measurements
WORK = Workload(labels=640_000, visible=64_000, events_per_second=1.0, items_per_event=4, horizon=2**20 - 1)
_KEY = bytes(KEY_BYTES)
_SETTINGS = Settings(stream="scaling", horizon=WORK.horizon, shards=SHARDS, mechanism="binary")


def main(console: Console) -> None:
    """Print what a round takes of each kind of process, as the model says and as it is."""
    epoch = Epoch.open(_SETTINGS, 1, 0)
    names = [f"label {i:010d}" for i in range(WORK.labels)]
    start = far_along(epoch.mechanism, epoch.noise(_KEY), [], 0)
    sequencer = Sequencer(epoch, _KEY, _SETTINGS.events, SHARDS, Position(0), start)
    frames: list[list[tuple[int, Frame]]] = [[] for _ in range(SHARDS)]
    sequenced = []
    for block in range(BLOCKS):
        records = [_record(names, i) for i in range(block * BLOCK_ROUNDS, (block + 1) * BLOCK_ROUNDS)]
        started = process_time()
        encoded = [encode_frame(frame) for frame in sequencer.process(records).frames]
        sequenced.append(process_time() - started)
        for value in encoded:
            frame = decode_frame(value)
            frames[frame.shard].append((block, frame))
    owners = shards_of(epoch.noise(_KEY).label_ids(name.encode() for name in names), SHARDS)
    seconds = []
    for number in range(SHARDS):
        mine = [name for name, owner in zip(names, owners.tolist(), strict=True) if owner == number]
        state = far_along(epoch.mechanism, epoch.noise(_KEY), mine, WORK.visible // SHARDS)
        shard = Shard(epoch, _KEY, number, SHARDS, Position(0), state)
        taken = []
        for turn in frames[number]:
            started = process_time()
            values = [part.value for parts in shard.process([turn]) for part in parts]
            stored_bytes(values, _SETTINGS.compression, len(values))
            taken.append(process_time() - started)
        seconds.append(min(taken[1:]))
    said = needs(WORK, measure_costs(), SHARDS)
    table = Table("process", "model: us/round", "measured: us/round", "ratio", title=f"{SHARDS} shards")
    for name, predicted, measured in (
        ("sequencer", said["sequencer"], min(sequenced[1:]) / BLOCK_ROUNDS),
        ("a shard", said["a shard"], sum(seconds) / SHARDS / BLOCK_ROUNDS),
        ("all shards", SHARDS * said["a shard"], sum(seconds) / BLOCK_ROUNDS),
    ):
        table.add_row(
            name, f"{predicted * 1e6:,.1f}", f"{measured * 1e6:,.1f}", f"{measured / predicted:.2f}"
        )
    console.print(table)


def _record(names: list[str], number: int) -> Record:
    items = ",".join(f'"{names[(7 * number + 11 * k) % len(names)]}"' for k in range(WORK.items_per_event))
    return Record(number, 1, None, b'{"items":[%b]}' % items.encode())
