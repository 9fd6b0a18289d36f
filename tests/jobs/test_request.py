"""Requests, mechanisms and results: what is valid, what it costs, and that schemas and decoders agree."""

import json
import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from stream_dp.jobs.mechanisms import MECHANISMS, calibrate
from stream_dp.jobs.request import BadRequest, Cancel, JobRequest, decode_request
from stream_dp.jobs.result import JobResult, cost_of, decode_result, done, guarantee, of_request, whole
from stream_dp.jobs.rows import Rows
from stream_dp.privacy.accounting import zcdp_epsilon
from stream_dp.privacy.one_shot_noise import OneShotNoise

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"
BASE = {"v": 1, "id": "q-17", "job": "top-k", "mechanism": "gumbel", "epsilon": 1.0, "delta": 1e-6, "k": 3}
GIVEN: dict[str, Any] = {
    "k": 3,
    "items_per_user": 2,
    "bins": ["a", "b", "zz"],
    "threshold": 4,
    "most": 2,
    "frequencies": {"a": 5, "c": 1},
    "budget": "anna",
    "marks": 40,
    "queries": 7,
    "examples": ["q1", "q2"],
}
SPARSE = {"job": "histogram", "mechanism": "sparse-vector", "bins": ["a"], "threshold": 5, "most": 3}
SPARSE |= {"delta": None, "k": None}
POLICY = {"job": "set-union", "mechanism": "policy", "items_per_user": 1_000_000, "k": None}
ALL = [(job, name) for job, mechanisms in MECHANISMS.items() for name in mechanisms]


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator(json.loads((SCHEMAS / f"{name}.json").read_text()))


def request_for(job: str, mechanism: str, epsilon: float = 1.0, delta: float = 1e-6) -> JobRequest:
    """A request with just what the mechanism needs, found by asking for what it says is missing."""
    fields: dict[str, Any] = {"v": 1, "id": "q", "job": job, "mechanism": mechanism, "epsilon": epsilon}
    while True:
        request = decode_request(json.dumps(fields).encode())
        assert isinstance(request, JobRequest)
        try:
            calibrate(request)
            return request
        except BadRequest as refused:
            missing = str(refused).partition(" needs ")[2].partition(":")[0]
        fields[missing] = delta if missing == "delta" else GIVEN[missing]


def rows_of(holders: dict[str, int]) -> Rows:
    labels = sorted(holders)
    users = [user for label in labels for user in range(holders[label])]
    items = [place for place, label in enumerate(labels) for _ in range(holders[label])]
    encoded = pa.array([label.encode() for label in labels], pa.binary())
    return Rows(np.array(users, np.int64), np.array(items, np.int64), encoded)


@pytest.mark.parametrize(("job", "mechanism"), ALL)
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_every_mechanism_costs_no_more_than_was_promised(job: str, mechanism: str, epsilon: float) -> None:
    calibrated = calibrate(request_for(job, mechanism, epsilon))
    assert calibrated.epsilon <= epsilon * (1 + 1e-9)
    assert calibrated.epsilon > epsilon * 0.99, "more noise than the promise asks for"
    assert calibrated.cost.delta <= calibrated.delta
    if calibrated.cost.alone is None:
        assert zcdp_epsilon(calibrated.cost.rho, calibrated.delta - calibrated.cost.delta) <= epsilon * (
            1 + 1e-9
        )


@pytest.mark.parametrize(("job", "mechanism"), ALL)
def test_every_mechanism_runs_on_nothing_and_on_one_user_and_releases_neither(
    job: str, mechanism: str
) -> None:
    calibrated = calibrate(request_for(job, mechanism))
    for rows in (rows_of({}), rows_of({"a": 1, "secret": 1})):
        found = calibrated.run(rows, OneShotNoise(bytes(32)))
        if calibrated.bins is None:
            assert not len(found.items)


@pytest.mark.parametrize(("job", "mechanism"), ALL)
def test_every_mechanism_finds_what_many_users_hold(job: str, mechanism: str) -> None:
    calibrated = calibrate(request_for(job, mechanism))
    about = "q1\t" if job == "label-votes" else ""
    a, b, c, d = (about + label for label in "abcd")
    rows = rows_of({a: 9_000, b: 5_000, c: 3_000, d: 1})
    found = calibrated.run(rows, OneShotNoise(bytes(32)))
    names = [(calibrated.bins or [a, b, c, d])[item] for item in found.items]
    if found.rank is not None:
        assert found.rank == 1
    else:
        assert {a, b} & set(names)
        assert "d" not in names
    ran = found.chosen.get("fitted", mechanism)
    assert (found.counts is not None) == (MECHANISMS[job][ran].releases == "counts")
    if found.counts is not None:
        assert found.sd is not None
        # A user of more than items_per_user items counts with a sample: of one item that leaves 6,000, give or take 34.
        assert 5_700 < int(found.counts[names.index("a")]) < 9_000 + 8 * found.sd


@pytest.mark.parametrize(("job", "mechanism"), ALL)
def test_as_many_users_as_a_mechanism_says_are_enough_and_half_of_them_are_not(
    job: str, mechanism: str
) -> None:
    calibrated = calibrate(request_for(job, mechanism))
    if calibrated.needed is None or job == "label-votes":
        return
    most = calibrated.needed_most or calibrated.needed
    for users, is_found in ((most, True), (calibrated.needed / 2, False)):
        rows = rows_of({"a": math.ceil(users)})
        found = sum(
            len(calibrated.run(rows, OneShotNoise(bytes([number] * 32))).items) for number in range(60)
        )
        assert (found >= 50) is is_found
        assert is_found or found <= 10


def test_a_result_tells_what_was_given_and_what_was_chosen() -> None:
    def told(**fields: Any) -> dict[str, Any]:
        request = decode_request(json.dumps({"v": 1, "id": "q", "epsilon": 1.0, **fields}).encode())
        assert isinstance(request, JobRequest)
        calibrated = calibrate(request)
        cost = cost_of(calibrated, None)
        return done(
            request, calibrated, cost, calibrated.run(rows_of({}), OneShotNoise(bytes(32))), []
        ).parameters

    promise = {"epsilon": 1.0, "delta": 1e-6}
    top = {"job": "top-k", "mechanism": "gumbel", "delta": 1e-6}
    assert told(**top, k=3) == {**promise, "k": 3, "kbar": 5_000}
    assert told(**top, k=200)["kbar"] == 10_000
    assert told(**top, k=3, kbar=7) == {**promise, "k": 3, "kbar": 7}
    assert told(**top, k=500_000)["kbar"] == 1_000_000
    union = {"job": "set-union", "mechanism": "policy-gaussian", "delta": 1e-6}
    assert told(**union) == {**promise, "items_per_user": 150, "alpha": 20.0}
    assert told(**union, alpha=2.5, items_per_user=4) == {**promise, "items_per_user": 4, "alpha": 2.5}
    bins = {"job": "histogram", "mechanism": "known", "bins": ["a", "b"]}
    assert told(**bins) == {"epsilon": 1.0, "bins": 2, "items_per_user": 10, "eta": 0.0}


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"k": 0}, "k must be a whole number of at least 1"),
        ({"k": -3}, "k must be a whole number of at least 1"),
        ({"k": 10**9}, "k must be at most"),
        ({"kbar": 2}, "raise kbar"),
        ({"kbar": 0}, "kbar must be a whole number of at least 1"),
        ({"epsilon": 0}, "epsilon must be a number above 0"),
        ({"epsilon": -1}, "epsilon must be a number above 0"),
        ({"delta": 0}, "delta must lie between"),
        ({"delta": 1}, "delta must lie between"),
        ({"delta": 9e-16}, "delta must lie between 1e-15 and 0.1, not 9e-16"),
        ({"mechanism": "gumble"}, "did you mean 'gumbel'"),
        ({"tokens": 2}, "takes no tokens"),
        ({"job": "histogram", "mechanism": "known", "k": None, "delta": None}, "needs bins"),
        ({"mechanism": "laplace", "kbar": 2}, "raise kbar"),
        ({"budget": "anna"}, "takes no budget"),
        ({"mechanism": "pay-what-you-get"}, "needs budget"),
        (
            {"mechanism": "pay-what-you-get", "budget": "b", "marks": 2, "queries": 5},
            "ask for k = 2 or fewer",
        ),
        (
            {"mechanism": "pay-what-you-get", "budget": "b", "marks": 9, "queries": 0},
            "queries must be a whole",
        ),
        ({"mechanism": "laplace", "items_per_user": 0}, "items_per_user must be a whole number"),
        ({"mechanism": "laplace", "items_per_user": 2, "epsilon": 1e300}, "epsilon must be at most 30"),
        ({"epsilon": 31}, "epsilon must be at most 30"),
        (SPARSE | {"epsilon": 1e-4, "most": 100_000}, "raise epsilon or lower most"),
        (SPARSE | {"epsilon": 1e-300}, "raise epsilon or lower most"),
        (POLICY | {"alpha": 1e300}, "alpha must be at most 100"),
        (POLICY | {"alpha": 1e6}, "alpha must be at most 100"),
    ],
)
def test_parameters_out_of_range_are_refused(changed: dict[str, Any], told: str) -> None:
    request = decode_request(json.dumps({**BASE, **changed}).encode())
    assert isinstance(request, JobRequest)
    with pytest.raises(BadRequest, match=told):
        calibrate(request)


VALID = [
    BASE,
    {**BASE, "source": {"from": 5, "to": "latest"}, "unit": "event"},
    {**BASE, "source": {"from": "2026-01-31T12:00:00Z", "to": "2026-02-01T00:00:00+01:00"}},
    {**BASE, "source": {"from": "1969-12-31", "to": "2026-02-01T00:00:00"}},
    {**BASE, "source": {"file": "x.csv", "name": "orders", "user": "customer"}},
    {"v": 1, "id": "q-17", "cancel": True},
]
INVALID: dict[str, Any] = {
    "did you mean 'mechanism'": {**BASE, "mechanismus": "x"},
    "unknown field of source": {**BASE, "source": {"form": 3}},
    "version": {**BASE, "v": 2},
    "there is no job: give top-k or set-union or histogram or label-votes": {
        key: value for key, value in BASE.items() if key != "job"
    },
    "unit has to be user or event, not 'household'": {**BASE, "unit": "household"},
    "not a JSON object": [BASE],
    "id has to be 1 to 200 letters, digits and": {**BASE, "id": ""},
    "k has to be a whole number, not 1.5": {**BASE, "k": 1.5},
    "unknown field 'every'": {**BASE, "every": 3600},
    "cancel": {"v": 1, "id": "q", "cancel": False},
    "unknown field 'k'": {"v": 1, "id": "q", "cancel": True, "k": 3},
    "a topic or a file": {**BASE, "source": {"file": "x.csv", "topic": "t"}},
    "columns of a file": {**BASE, "source": {"user": "u"}},
    "an offset is": {**BASE, "source": {"from": -1}},
    "is not a place": {**BASE, "source": {"to": "tomorrow"}},
    "mechanism has to be text of at most 100 characters": {**BASE, "mechanism": "x" * 101},
    "source.from has to be a whole number or text of at most 100 characters": {
        **BASE,
        "source": {"from": "x" * 101},
    },
    "source.to has to be a whole number or text of at most 100 characters": {
        **BASE,
        "source": {"to": "x" * 101},
    },
    "source.file has to be text of at most 4,096 characters": {
        **BASE,
        "source": {"file": "x" * 4097, "name": "x"},
    },
    "source.user has to be text of at most 1,024 characters": {
        **BASE,
        "source": {"file": "x.csv", "name": "x", "user": "x" * 1025},
    },
    "source.item has to be text of at most 1,024 characters": {
        **BASE,
        "source": {"file": "x.csv", "name": "x", "item": "x" * 1025},
    },
}
IN_WORDS = ("columns of a file", "is not a place")
"""What the schema's descriptions say and its keywords do not."""


@pytest.mark.parametrize("value", VALID)
def test_valid_requests_are_valid_for_schema_and_decoder(value: dict[str, Any]) -> None:
    schema("job").validate(value)
    request = decode_request(json.dumps(value).encode())
    if isinstance(request, Cancel):
        return
    assert decode_request(request.encode()) == request
    shuffled = dict(reversed(value.items()))
    again = decode_request(json.dumps(shuffled).encode())
    assert isinstance(again, JobRequest)
    assert again.digest == request.digest


@pytest.mark.parametrize("told", INVALID)
def test_invalid_requests_are_refused_and_say_why(told: str) -> None:
    with pytest.raises(BadRequest, match=told):
        decode_request(json.dumps(INVALID[told]).encode())
    if told not in IN_WORDS:
        assert not schema("job").is_valid(INVALID[told])


def test_schemas_know_every_mechanism_and_their_examples_are_valid() -> None:
    for name in ("job", "result"):
        validator = schema(name)
        Draft202012Validator.check_schema(validator.schema)
        for example in validator.schema["examples"]:
            validator.validate(example)
    names = schema("job").schema["$defs"]["mechanisms"]
    assert {job: names[job]["enum"] for job in names} == {
        job: sorted(known) for job, known in MECHANISMS.items()
    }
    for example in schema("job").schema["examples"]:
        decode_request(json.dumps(example).encode())


JSON = st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=10)


@given(st.binary(max_size=60) | JSON.map(json.dumps))
def test_no_bytes_break_the_decoder(value: bytes | str) -> None:
    with pytest.raises(BadRequest):
        decode_request(value if isinstance(value, bytes) else value.encode())


def a_result(labels: list[str]) -> JobResult:
    request = decode_request(json.dumps(BASE).encode())
    assert isinstance(request, JobRequest)
    calibrated = calibrate(request)
    found = calibrated.run(rows_of({}), OneShotNoise(bytes(32)))
    return done(request, calibrated, cost_of(calibrated, None), found, labels)


def test_results_validate_and_hold_nothing_else() -> None:
    value = json.loads(a_result(["tea"]).encode()[0])
    schema("result").validate(value)
    assert set(value) == set(schema("result").schema["properties"]) == set(JobResult.__struct_fields__)
    refused = of_request(msgspec.convert(BASE, JobRequest), "refused", "why")
    schema("result").validate(json.loads(refused.encode()[0]))
    schema("result").validate(json.loads(JobResult(id=None, status="refused", reason="no JSON").encode()[0]))


def test_a_large_result_is_cut_into_parts_that_fit_and_go_together_again() -> None:
    labels = [f"{number}\N{CHECK MARK}" * 100 for number in range(3_000)]
    result = a_result(labels)
    parts = result.encode()
    assert len(parts) > 1
    assert all(len(part) < 1_000_000 for part in parts)
    assert [decode_result(part).part for part in parts] == list(range(1, len(parts) + 1))
    assert msgspec.structs.replace(whole(parts), labels=[]) == msgspec.structs.replace(result, labels=[])
    assert whole(parts).labels == labels


def test_a_guarantee_names_its_unit_and_what_it_covers() -> None:
    gumbel = calibrate(request_for("top-k", "gumbel"))
    assert "any one user" in guarantee("user", gumbel)
    assert "any one event" in guarantee("event", gumbel)
    assert "that this job releases by at most a factor of e^1 (about 2.7), except" in guarantee(
        "event", gumbel
    )
    assert "except" not in guarantee("event", calibrate(request_for("top-k", "gap")))
    shared = calibrate(request_for("top-k", "pay-what-you-get"))
    assert "anything that all jobs of the budget anna release together" in guarantee("user", shared)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-9), (1.0, 1e-6), (20.0, 1e-6)])
def test_a_shared_budget_costs_what_was_promised_however_many_draw_from_it(
    epsilon: float, delta: float
) -> None:
    for marks, queries in ((1, 1), (3, 50), (1_000, 3)):
        fields = {**BASE, "mechanism": "pay-what-you-get", "budget": "anna", "k": 1}
        fields |= {"epsilon": epsilon, "delta": delta, "marks": marks, "queries": queries}
        request = decode_request(json.dumps(fields).encode())
        assert isinstance(request, JobRequest)
        found = calibrate(request)
        assert found.shared is not None
        opened = found.shared.opened
        assert (opened.marks, opened.queries, found.cost) == (marks, queries, opened.cost)
        assert 0.99 * epsilon < found.epsilon <= epsilon
        assert found.cost.delta <= delta


def test_a_reason_that_quotes_too_much_is_cut() -> None:
    request = decode_request(json.dumps(BASE).encode())
    assert isinstance(request, JobRequest)
    for length, kept in ((1_000, "x" * 1_000), (1_001, "x" * 999 + "…"), (2_000_000, "x" * 999 + "…")):
        [value] = of_request(request, "refused", "x" * length).encode()
        assert decode_result(value).reason == kept
        schema("result").validate(json.loads(value))
