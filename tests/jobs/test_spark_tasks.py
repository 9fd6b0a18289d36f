"""What Spark's processes do, run here without Spark: however rows are divided, the weights are those of one process."""

import json
import pickle
import random
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stream_dp.batch.baskets import Marks, Ranks, each_once
from stream_dp.batch.set_union import square_root_share
from stream_dp.events.stored_files import LocalFile
from stream_dp.jobs import file_rows
from stream_dp.jobs.declared import MECHANISMS
from stream_dp.jobs.engine import Seen, ThisProcess
from stream_dp.jobs.file_rows import Piece, pieces_of
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import BadRequest, JobRequest, Unit, request_from
from stream_dp.jobs.source_file import RowFile
from stream_dp.jobs.spark import Spark
from stream_dp.jobs.spark_tasks import FileSource, ReadTasks, Weigh, WeighTasks
from stream_dp.jobs.task_errors import TaskFailed
from stream_dp.privacy.one_shot_noise import OneShotNoise

Pairs = list[tuple[str, str]]
KEY = bytes(range(32))


def some_pairs(seed: int, count: int = 3_000) -> Pairs:
    rng = random.Random(seed)
    return [(f"u{rng.randint(1, 60)}", f"item {int(rng.paretovariate(0.5)) % 90}") for _ in range(count)]


def write(folder: Path, kind: str, pairs: Pairs) -> RowFile:
    file = folder / f"x.{kind}"
    if kind == "parquet":
        users, items = zip(*pairs, strict=True)
        pq.write_table(pa.table({"user": users, "item": items}), file, row_group_size=170)
        return RowFile(LocalFile(file), "parquet", "user", "item")
    if kind == "csv":
        file.write_text("".join(f"{user},{item}\n" for user, item in [("user", "item"), *pairs]))
        return RowFile(LocalFile(file), "csv", "user", "item")
    chunks = [pairs[start : start + 7] for start in range(0, len(pairs), 7)]
    lines = [{"user": chunk[0][0], "items": [item for _, item in chunk]} for chunk in chunks]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return RowFile(LocalFile(file), "jsonl")


def source_of(file: RowFile, unit: Unit, rng: random.Random, tasks: int = 5) -> FileSource:
    """With the pieces dealt at random, and in any order."""
    pieces = pieces_of(file)
    rng.shuffle(pieces)
    dealt: list[list[Piece]] = [[] for _ in range(tasks)]
    for piece in pieces:
        dealt[rng.randrange(tasks)].append(piece)
    return FileSource(file, unit, file.stored.shared_state, dealt)


def divided(source: FileSource, unit: Unit, weigh: Weigh, rng: random.Random) -> Counter[str]:
    """The weights of labels, as the steps of `SparkRows` give them."""
    numbers = pa.record_batch({"id": pa.array(range(len(source.tasks)))})
    read = list(ReadTasks(source, unit, weigh, lambda seen: None)([numbers]))
    if unit == "user":
        rows = [row for batch in read for row in batch.to_pylist()]
        rng.shuffle(rows)
        partitions: dict[int, list[dict[str, bytes]]] = {}
        for row in rows:
            partitions.setdefault(hash(tuple(row[name] for name in weigh.together)) % 4, []).append(row)
        schema = pa.schema({"user": pa.binary(), "item": pa.binary()})
        read = [
            batch
            for part in partitions.values()
            for batch in WeighTasks(weigh)([pa.RecordBatch.from_pylist(part, schema)])
        ]
    total: Counter[str] = Counter()
    for batch in read:
        for row in batch.to_pylist():
            total[row["item"].decode()] += row["weight"]
    return total


def alone(file: RowFile, unit: Unit, weigh: Weigh, noise: OneShotNoise) -> dict[str, int]:
    rows, _ = ThisProcess().rows(file, unit, "", lambda done, total: None)
    if weigh.only is not None:
        rows = rows.restricted(list(weigh.only))
    if weigh.edges is not None:
        sizes = rows.sizes(weigh.edges).tolist()
        return {f"{place}": users for place, users in enumerate(sizes) if users}
    if weigh.limit is None or weigh.share is None:
        weights = rows.counts()
    else:
        released = rows.places(list(weigh.released)) >= 0
        marks: Marks = noise
        if weigh.ranked is not None:
            places = {label: place for place, label in enumerate(weigh.ranked)}
            marks = Ranks.of(np.array([places[label.decode()] for label in rows.labels.to_pylist()]))
        weights = rows.weights(weigh.limit, weigh.share, marks, weigh.stage, released)
    names = [label.decode() for label in rows.labels.to_pylist()]
    return {name: weight for name, weight in zip(names, weights.tolist(), strict=True) if weight}


@pytest.mark.parametrize("kind", ["parquet", "csv", "jsonl"])
@pytest.mark.parametrize("unit", ["user", "event"])
def test_weights_are_the_same_however_rows_are_divided(
    kind: str, unit: Unit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_rows, "_PIECE_BYTES", 900)
    noise = OneShotNoise(KEY)
    asked = [
        Weigh(),
        Weigh(only=["item 1", "item 2", "nothing"]),
        Weigh(3, each_once, noise.sampler(0)),
        Weigh(2, each_once, noise.sampler(0), only=["item 1", "item 2", "item 3", "nothing"]),
        Weigh(4, square_root_share, noise.sampler(2), 2, released=["item 1", "item 7"]),
        Weigh(edges=(1, 2, 18, 20, 22, 30)),
    ]
    for seed in range(3):
        rng = random.Random(seed)
        file = write(tmp_path, kind, some_pairs(seed))
        if unit == "event" and kind != "jsonl":
            file = RowFile(file.stored, file.kind, "", file.item)
        assert len(pieces_of(file)) > 10
        every = sorted({item for _, item in some_pairs(seed)}, key=lambda item: item[::-1])
        for weigh in [*asked, Weigh(3, each_once, ranked=every)]:
            expected = alone(file, unit, weigh, noise)
            assert expected
            assert divided(source_of(file, unit, rng), unit, weigh, rng) == expected


def test_a_user_with_all_rows_is_cut_before_rows_are_exchanged(tmp_path: Path) -> None:
    file = write(tmp_path, "parquet", [("u", f"item {number % 400}") for number in range(3_000)])
    rng, noise = random.Random(1), OneShotNoise(KEY)
    weigh = Weigh(3, each_once, noise.sampler(0))
    source = source_of(file, "user", rng, tasks=4)
    read = ReadTasks(source, "user", weigh, lambda seen: None)
    assert sum(len(batch) for batch in read([pa.record_batch({"id": pa.array(range(4))})])) <= 3 * 4
    assert divided(source, "user", weigh, rng) == alone(file, "user", weigh, noise)


def test_what_is_left_out_is_told(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text('user,item\na,tea\n,tea\nb,\nc,"milk\nd,jam\n')
    file, told = RowFile(LocalFile(path), "csv", "user", "item"), list[Seen]()
    source = source_of(file, "user", random.Random(1), tasks=1)
    list(ReadTasks(source, "user", Weigh(), told.append)([pa.record_batch({"id": pa.array([0])})]))
    assert told == [Seen(2, 1, 2)]


def test_a_file_that_is_written_while_it_is_read_is_told(tmp_path: Path) -> None:
    file = write(tmp_path, "csv", some_pairs(1))
    source = source_of(file, "user", random.Random(1))
    Path(file.stored.name).write_text("user,item\n")
    with pytest.raises(TaskFailed, match=r"SourceChanged: .*written again"):
        divided(source, "user", Weigh(), random.Random(1))


def test_no_other_machine_gets_the_noise_key(tmp_path: Path) -> None:
    noise = OneShotNoise(KEY)
    weigh = Weigh(3, each_once, noise.sampler(0))
    file = write(tmp_path, "csv", some_pairs(1))
    sent = pickle.dumps((source_of(file, "user", random.Random(1)), weigh))
    assert noise.sampler(0).key in sent
    assert KEY not in sent


def test_damage_leaves_out_the_same_rows(tmp_path: Path) -> None:
    """A page that does not decode ends its own group of rows; the others are whole."""
    file = write(tmp_path, "parquet", some_pairs(2))
    whole = alone(file, "user", Weigh(), OneShotNoise(KEY))
    content = bytearray(Path(file.stored.name).read_bytes())
    with pq.ParquetFile(file.stored.name) as opened:
        place = opened.metadata.row_group(3).column(1).dictionary_page_offset
    content[place : place + 40] = bytes(40)
    Path(file.stored.name).write_bytes(content)
    found = alone(file, "user", Weigh(), OneShotNoise(KEY))
    assert found != whole
    rng = random.Random(3)
    assert divided(source_of(file, "user", rng), "user", Weigh(), rng) == found


def test_mechanisms_that_take_one_user_after_the_other_are_refused_before_spark_is_started() -> None:
    for mechanism in MECHANISMS["set-union"]:
        fields = {
            "v": 1,
            "id": "x",
            "job": "set-union",
            "mechanism": mechanism,
            "epsilon": 1.0,
            "delta": 1e-6,
        }
        fields |= {"frequencies": {"tea": 3}} if mechanism == "greedy-transfer" else {}
        request = request_from({**fields, "source": {"topic": "x"}})
        assert isinstance(request, JobRequest)
        calibrated = calibrate(request)
        sequential = mechanism.startswith(("policy", "greedy", "two-rounds", "fitted"))
        assert calibrated.divides is not sequential
        if sequential:
            with pytest.raises(BadRequest, match=rf"{mechanism} takes one user after the other"):
                Spark().check(mechanism, calibrated)
