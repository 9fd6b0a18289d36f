"""What the work of a stream takes on this machine, in processor seconds: the table in stream_dp/planning/costs.py.

Each cost is told apart by measuring the same work with more and with less of what it is the cost of.
"""

from dataclasses import asdict, fields
from time import process_time

import numpy as np
from rich.console import Console
from rich.table import Table

from benchmarks.window_costs import measure_window_costs
from stream_dp.config.settings import Settings
from stream_dp.counters import EVERY_ROUND
from stream_dp.counters.calibration import Guarantee, calibrate
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_schedule import rounds_of_tests
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.counting import histogram_of
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.histogram import HistogramState
from stream_dp.engine.round_chain import RoundChain
from stream_dp.events.record import Record
from stream_dp.pipeline.intake import Intake
from stream_dp.planning.costs import COUNTERS, Costs, OfCounter
from stream_dp.planning.release_sizes import CODECS, far_along, sample_releases, stored_bytes
from stream_dp.privacy.keyed_noise import KEY_BYTES, NONCE_BYTES, KeyedNoise
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.releases.encoder import ReleaseEncoder

_KEY, _NONCE = bytes(KEY_BYTES), bytes(NONCE_BYTES)
_MEASURED_LABELS = 100_000
_FEWER_LABELS = 10_000  # what is drawn for them hides less of what items take
_MEASURED_VISIBLE = 5_000
_MEASURED_EVENTS = 10_000
_COMPRESSED_LABELS = 1_000
_ITEMS = 33
_APART = 7919  # labels of one round lie so far apart in memory
_ROUNDS = 256
_FOUND_AT_ONCE = 1_000_000  # the first test finds a label with so many events
_REPEATS = 7  # the least of so many is taken: whatever else the machine does can only add to it


WINDOW_ROUNDS = 60


def main(console: Console) -> None:
    """Print what planning/costs.py holds, as it is here and now."""
    each = {name: measure_costs(name, "zstd") for name in COUNTERS}
    own = [field.name for field in fields(OfCounter)]
    table = Table("mechanism", *own, title="Processor time of each counter, in microseconds")
    for name, costs in each.items():
        table.add_row(name, *(f"{getattr(costs, part) * 1e6:.3g}" for part in own))
    console.print(table)
    shared = [name for name, value in asdict(each["binary"]).items() if value < 1 and name not in own]
    table = Table("of all counters", "microseconds")
    for part in shared:
        if part != "compress":
            table.add_row(part, f"{min(getattr(costs, part) for costs in each.values()) * 1e6:.3g}")
    for codec in CODECS:
        table.add_row(f"compress, {codec}", f"{_seconds_per_byte(codec) * 1e6:.3g}")
    console.print(table)


def measure_costs(mechanism: str = "binary", compression: str = "zstd") -> Costs:
    """What the work of a stream with this counter takes here and now; windows are of `WINDOW_ROUNDS`."""
    is_window = mechanism == "window"
    of_rounds = measure_window_costs(WINDOW_ROUNDS)._asdict() if is_window else _measure_running(mechanism)
    decode, of_own_round = map(_seconds_per_event, (100, 1))
    return Costs(
        decode=decode,
        sequence=max(0.0, of_own_round - decode),
        compress=_seconds_per_byte(compression),
        **of_rounds,
    )


def _measure_running(mechanism: str) -> dict[str, float]:
    horizon = 2**20 - 1
    name = "blt" if mechanism == EVERY_ROUND else mechanism
    tests = rounds_of_tests(horizon) if mechanism == "blt" else ()
    calibrated, guarantee = calibrate(1.0, 1e-6, horizon, 4, name, tests=tests)
    found: list[float] = []
    for labels, visible, items, brought in (
        (64, 0, 1, 64),
        (_MEASURED_VISIBLE, _MEASURED_VISIBLE, 1, 64),
        (_MEASURED_LABELS, 0, 1, 64),
        (_FEWER_LABELS, 0, 1, 64),
        (_FEWER_LABELS, 0, _ITEMS, _FEWER_LABELS),
        (_MEASURED_LABELS, 0, _ITEMS, _ITEMS * _ROUNDS),
        (_MEASURED_LABELS, 0, _ITEMS, _MEASURED_LABELS),  # more than all rounds have items: each is met once
    ):
        found.append(_seconds_per_round(calibrated, guarantee, labels, visible, items, brought))
    bare, with_visible, with_drawn, few, few_with_items, with_items, with_unmet = found
    item = max(0.0, few_with_items - few) / (_ITEMS - 1)
    return {
        "round": max(0.0, bare - item),
        "visible": max(0.0, with_visible - bare) / _MEASURED_VISIBLE,
        "drawn": max(0.0, with_drawn - bare) / _MEASURED_LABELS,
        "item": item,
        "unmet": max(0.0, with_unmet - with_items) / _ITEMS,
    }


def _seconds_per_round(
    mechanism: CalibratedCounter, guarantee: Guarantee, labels: int, visible: int, items: int, brought: int
) -> float:
    """Processor seconds of a round from admitted labels to encoded releases, in blocks after one to warm up.

    The rounds bring so many of the labels, which take turns.
    """
    noise = KeyedNoise(_KEY, "plan", _NONCE)
    names = [f"label {i:010d}" for i in range(labels)]
    if isinstance(mechanism, DiscoveryMechanism):
        state = HistogramState.before_any_round(names)
        state.counts[:visible] = _FOUND_AT_ONCE
    else:
        state = far_along(mechanism, noise, names, visible)
    histogram = histogram_of(mechanism, noise, state)
    encoder = ReleaseEncoder("plan", 1, _NONCE, mechanism, guarantee, ReleaseTags(_KEY, "plan", _NONCE))
    taken = []
    for turn in range(1 + _REPEATS):
        first, last = turn * _ROUNDS * items, (turn + 1) * _ROUNDS * items
        places = np.arange(first, last) % brought * _APART % labels
        rounds = [
            [names[place].encode().decode() for place in each]  # a record brings objects of its own
            for each in places.reshape(_ROUNDS, items).tolist()
        ]
        started = process_time()
        for block in histogram.blocks(rounds):
            encoder.encode(block, range(len(block.sizes)))
        taken.append(process_time() - started)
    return min(taken[1:]) / _ROUNDS


def _seconds_per_event(events_per_round: int) -> float:
    """Processor seconds of an event before it is counted, from its record to the head of its round."""
    rounds = "per-event" if events_per_round == 1 else f"every-{events_per_round}"
    epoch = Epoch.open(Settings(stream="plan", rounds=rounds, mechanism="binary"), 1, 0)
    records = [
        Record(i, 1, None, b'{"items":["label %010d","label %010d","label %010d"]}' % (i, i + 7, i * i))
        for i in range(_MEASURED_EVENTS)
    ]
    taken = []
    for _ in range(_REPEATS):
        intake, done = Intake(epoch, _KEY, "plan.events"), 0
        chain = RoundChain(epoch.noise(_KEY), epoch.mechanism.chain_rounds)
        started = process_time()
        for start in range(0, len(records), 500):
            closed = intake.process(records[start : start + 500], epoch.mechanism.horizon - done, done)
            done += len(chain.extend(done + 1, closed.parts))
        taken.append(process_time() - started)
    return min(taken) / len(records)


def _seconds_per_byte(compression: str) -> float:
    """Processor seconds of packing a byte of releases for the broker."""
    values = sample_releases(_COMPRESSED_LABELS, 16)
    taken = []
    for _ in range(_REPEATS):
        started = process_time()
        stored_bytes(values, compression, len(values))
        taken.append(process_time() - started)
    return min(taken) / sum(map(len, values))
