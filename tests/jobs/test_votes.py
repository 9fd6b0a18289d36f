"""Votes of teachers: labels for public examples, from columns, files and events."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest

import stream_dp
from stream_dp.batch.label_votes import ArgmaxVotes, argmax_votes
from stream_dp.config.events_section import EventsSection
from stream_dp.events.mapping.decoder import decoder_of
from stream_dp.events.mapping.mapping import Mapping
from stream_dp.events.record import Record
from stream_dp.jobs.calibrated import Calibrated
from stream_dp.jobs.file_rows import read_file
from stream_dp.jobs.mechanisms import calibrate
from stream_dp.jobs.request import BadRequest, JobRequest, Source, request_from
from stream_dp.jobs.rows import RowCollector, Rows
from stream_dp.jobs.source_file import find_file
from stream_dp.jobs.votes import columns_of
from stream_dp.privacy.one_shot_noise import OneShotNoise
from tests.batch.evidence import noise, share_agrees

TEACHERS = 200
CLEAR = {"q1": ["cat"], "q2": ["dog", "tail"]}
"""What all teachers say of these examples; of q3 each says something else."""

VOTES = [
    (f"t{number}", query, label)
    for number in range(TEACHERS)
    for query, labels in {**CLEAR, "q3": [f"own {number}"], "not asked": ["cat"]}.items()
    for label in labels
]
COLUMNS = dict(zip(("teacher", "query", "label"), map(list, zip(*VOTES, strict=True)), strict=True))


def asked(**fields: Any) -> Calibrated:
    base = {"id": "v", "job": "label-votes", "epsilon": 8.0, "delta": 1e-6, "examples": ["q2", "q1", "q3"]}
    request = request_from(base | fields)
    assert isinstance(request, JobRequest)
    return calibrate(request)


def test_clear_votes_give_labels_and_others_none() -> None:
    found = stream_dp.label_votes(COLUMNS, ["q2", "q1", "q3"], k=2, epsilon=8)
    assert list(zip(found.queries or [], found.labels, strict=True)) == [
        ("q2", "dog"),
        ("q2", "tail"),
        ("q1", "cat"),
    ]
    assert found.bottom
    assert found.to_pandas().columns.tolist() == ["query", "label"]
    assert "one record of the training data, from which one of the teachers has learned," in found.guarantee


def test_argmax_gives_each_example_one_of_the_public_labels() -> None:
    found = stream_dp.label_votes(COLUMNS, ["q1", "q2", "q3"], labels=["cat", "dog", "cow"], epsilon=8)
    assert found.queries == ["q1", "q2", "q3"]
    assert found.labels[:2] == ["cat", "dog"]
    assert found.labels[2] in ("cat", "dog", "cow")  # nobody voted for any of them
    assert not found.bottom


def test_the_pick_of_an_example_has_the_law_of_its_noise() -> None:
    source, trials = noise(41), 6_000
    for unit, step in (("teacher", 1), ("record", 2)):
        parameters = ArgmaxVotes(0.8, 2, 1, unit)  # type: ignore[arg-type]
        hits = sum(int(argmax_votes(np.array([[4, 6]]), parameters, source)[0]) == 1 for _ in range(trials))
        assert share_agrees(hits, trials, 1 / (1 + np.exp(-0.8 * 2 / step)))
        assert not share_agrees(hits, trials, 1 / (1 + np.exp(-0.8 * 2 / step * 1.4)))


@pytest.mark.parametrize("mechanism", ["stable", "argmax"])
def test_a_record_needs_twice_the_noise_and_both_cost_the_same(mechanism: str) -> None:
    more: dict[str, Any] = {"k": 2} if mechanism == "stable" else {"bins": ["cat", "dog"]}
    teacher, record = (asked(mechanism=mechanism, protect=each, **more) for each in ("teacher", "record"))
    assert teacher.cost == record.cost
    assert record.parameters["protect"] == asked(mechanism=mechanism, **more).parameters["protect"]
    assert teacher.protects != record.protects
    # The whole run of all examples costs what was asked for, in sum and by conversion.
    assert 0.99 * 8 < teacher.epsilon <= 8 * (1 + 1e-9)
    some, many = (
        asked(mechanism=mechanism, examples=[f"q{each}" for each in range(number)], **more)
        for number in (500, 1_000)
    )
    assert many.cost.rho == pytest.approx(some.cost.rho, rel=1e-6)


def test_the_cost_is_the_same_whatever_the_votes() -> None:
    """No part of it depends on the data, so it can be published."""
    nothing = Rows(np.empty(0, np.int64), np.empty(0, np.int64), pa.array([], pa.large_binary()))
    for more in ({"mechanism": "stable", "k": 2}, {"mechanism": "argmax", "bins": ["cat", "dog"]}):
        calibrated = asked(**more)
        before = calibrated.cost
        calibrated.run(nothing, noise(42))
        calibrated.run(rows_of(VOTES), noise(42))
        assert calibrated.cost == before


def rows_of(votes: list[tuple[str, str, str]]) -> Rows:
    collector = RowCollector()
    teachers, queries, labels = zip(*votes, strict=True)
    items = [f"{query}\t{label}" for query, label in zip(queries, labels, strict=True)]
    collector.add(pa.array(teachers), pa.array(items))
    return collector.rows()


def write_parquet(path: Path) -> Source:
    pq.write_table(pa.table(COLUMNS), path)
    return Source(file=str(path), user="teacher", item="label", query="query")


def write_lists(path: Path) -> Source:
    held: dict[tuple[str, str], list[str]] = {}
    for teacher, query, label in VOTES:
        held.setdefault((teacher, query), []).append(label)
    teachers, queries = zip(*held, strict=True)
    table = pa.table({"who": teachers, "about": queries, "labels": list(held.values())})
    pq.write_table(table, path)
    return Source(file=str(path), user="who", item="labels", query="about")


def write_csv(path: Path) -> Source:
    pacsv.write_csv(pa.table(COLUMNS), path)
    return Source(file=str(path), user="teacher", item="label", query="query")


def write_events(path: Path) -> Source:
    lines = [json.dumps({"user": teacher, "items": [f"{query}\t{label}"]}) for teacher, query, label in VOTES]
    path.write_text("\n".join(lines))
    return Source(file=str(path))


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("v.parquet", write_parquet),
        ("lists.parquet", write_lists),
        ("v.csv", write_csv),
        ("v.jsonl", write_events),
    ],
)
def test_votes_are_read_from_files(name: str, write: Any, tmp_path: Path) -> None:
    collector = RowCollector()
    read_file(find_file(write(tmp_path / name), "user"), "user", collector, lambda done, total: None)
    found = collector.rows()
    expected = rows_of(VOTES)
    assert found.labels.equals(expected.labels)
    assert found.counts().tolist() == expected.counts().tolist()
    run = asked(mechanism="stable", k=2).run
    one = run(found, OneShotNoise(bytes(32)))
    assert found.names(one.items) == ["q2\tdog", "q2\ttail", "q1\tcat"]


def test_a_teacher_counts_once_for_a_label_and_a_hostile_vote_changes_only_its_own() -> None:
    """Tabs, empty names and repeats in the votes of one teacher leave those of the others as they are."""
    hostile = [
        ("evil", query, label)
        for query, label in (
            ("q1", "dog"),
            ("q1\t", "cat"),
            ("", "cat"),
            ("q1", ""),
            ("q1", "a\tb"),
            ("\t", "\t"),
        )
    ] * 500
    rows = rows_of([*VOTES, *hostile])
    counts = dict(zip(rows.labels.to_pylist(), rows.counts().tolist(), strict=True))
    plain = rows_of(VOTES)
    for label, count in zip(plain.labels.to_pylist(), plain.counts().tolist(), strict=True):
        assert 0 <= counts[label] - count <= 1
    assert max(counts[label] for label in set(counts) - set(plain.labels.to_pylist())) == 1
    found = asked(mechanism="stable", k=2).run(rows, OneShotNoise(bytes(32)))
    examples, _ = columns_of(rows.names(found.items))
    assert Counter(examples) == {"q2": 2, "q1": 1}


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"examples": ["q1", "q1"]}, "name each example once"),
        ({"examples": ["q\t1"]}, "no example may hold a tab"),
        ({"examples": []}, "examples must be a whole number of at least 1"),
        ({"k": 0}, "k must be a whole number"),
        ({"protect": "nobody"}, "protect has to be teacher or record"),
    ],
)
def test_mistakes_are_told(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        asked(**({"mechanism": "stable", "k": 1} | fields))


def test_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    source = write_parquet(tmp_path / "v.parquet")
    with pytest.raises(BadRequest, match="no single column 'topic': name the column of queries with --query"):
        find_file(Source(file=source.file, user="teacher", item="label", query="topic"), "user")
    with pytest.raises(BadRequest, match="cannot be the column of queries and another one"):
        find_file(Source(file=source.file, user="teacher", item="label", query="label"), "user")
    with pytest.raises(BadRequest, match="there is no column 'query'"):
        stream_dp.label_votes({"teacher": ["t"], "label": ["cat"]}, ["q1"])
    with pytest.raises(BadRequest, match=r"a top-k job has no source\.query"):
        request_from(
            {"id": "x", "job": "top-k", "mechanism": "gumbel", "source": {"file": "f", "query": "q"}}
        )


def test_a_mapping_makes_votes_of_two_fields() -> None:
    [path] = re.findall(r"``(join\(.*?\))``", (Path(__file__).parents[2] / "docs" / "jobs.md").read_text())
    decode = decoder_of(Mapping.of(EventsSection(items=path, user="teacher")))
    value = json.dumps({"teacher": "t1", "query": "q1", "label": "cat"}).encode()
    event = decode(Record(0, 0, None, value))
    assert (event.user, event.items) == ("t1", ["q1\tcat"])
