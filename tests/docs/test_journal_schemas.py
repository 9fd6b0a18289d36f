"""docs/schemas says about epochs, charges and certificates what is written and what the decoders take."""

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pytest
from jsonschema import Draft202012Validator

from stream_dp.batch.gumbel_top_k import PayWhatYouGet
from stream_dp.config.settings import Settings
from stream_dp.counters import MECHANISMS
from stream_dp.engine.epoch import Epoch
from stream_dp.engine.known_labels import KnownLabels
from stream_dp.epochs.journal import EpochClosed, EpochEntry, EpochOpened, EpochStarted, KnownLabelsPart
from stream_dp.epochs.registry import Registered
from stream_dp.privacy.composition import Budget, Charge
from stream_dp.privacy.keyed_noise import key_check
from stream_dp.privacy.loss import gaussian
from stream_dp.store.ledger_records import FORMAT, BudgetSet, Entry, Marks, Query
from stream_dp.store.pay_what_you_get import charge_of
from stream_dp.verification.verify import Certificate, verify
from tests.docs.schemas import read_schema, schema
from tests.pipeline import pieces

DECODED_AS: dict[str, Any] = {
    "epoch": EpochEntry,
    "charge": Entry,
    "budget": BudgetSet,
    "certificate": Certificate,
    "source": Registered,
}
EXAMPLES = [(name, example) for name in DECODED_AS for example in read_schema(name)["examples"]]
MAY_BE_MISSING = {
    "noise_version",
    "first_round",  # of certificates from before windows could be verified in part
    "exact",
    "ledger of a source",
    "pure",
    "gaussian",
    "coins",
    "ranges",
    "steps",
    "at of a charge",
    "key of a source",
    "hidden",
    "marks",
    "spent",
    "q-1",
    "end_unknown",
    "end_barrier",
    "further_ends",
    "further_offsets",
    "after_barrier",
    "0",
    "called",
    "variances",
    "1",
    "2",
}


def is_decoded(name: str, value: Any) -> bool:
    try:
        msgspec.json.decode(json.dumps(value).encode(), type=DECODED_AS[name])
    except msgspec.DecodeError:
        return False
    return True


def places(value: Any) -> Iterator[tuple[str, ...]]:
    """The path of every field, at any depth."""
    if isinstance(value, dict):
        for name, content in value.items():
            yield (name,)
            yield from ((name, *rest) for rest in places(content))


def changed(value: Any, path: tuple[str, ...], change: Callable[[dict[str, Any], str], object]) -> Any:
    """A copy of `value` after `change`, which is given what holds the last field of `path`, and its name."""
    result = holder = copy.deepcopy(value)
    for name in path[:-1]:
        holder = holder[name]
    change(holder, path[-1])
    return result


@pytest.mark.parametrize("name", DECODED_AS)
def test_schemas_are_schemas(name: str) -> None:
    Draft202012Validator.check_schema(read_schema(name))


@pytest.mark.parametrize(("name", "value"), EXAMPLES)
def test_examples_are_valid_for_schema_and_decoder(name: str, value: Any) -> None:
    assert (schema(name).is_valid(value), is_decoded(name, value)) == (True, True)


@pytest.mark.parametrize(("name", "value"), EXAMPLES)
def test_schema_and_decoder_agree_on_what_may_be_missing(name: str, value: Any) -> None:
    for path in places(value):
        without = changed(value, path, lambda holder, field: holder.pop(field))
        of = {path[-1], f"{path[-1]} of a {name}"}
        valid = (bool(of & MAY_BE_MISSING) and path != ("marks", "opened", "marks")) or "privacy" in path[:-1]
        assert (schema(name).is_valid(without), is_decoded(name, without)) == (valid, valid), path


@pytest.mark.parametrize(("name", "value"), EXAMPLES)
@pytest.mark.parametrize("wrong", [None, True, "x", 1.5, -1, {}, [0.5], [[]]])
def test_the_decoder_takes_all_that_the_schema_allows(name: str, value: Any, wrong: Any) -> None:
    refused = 0
    for path in places(value):
        other = changed(value, path, lambda holder, field: holder.update({field: wrong}))
        assert is_decoded(name, other) or not schema(name).is_valid(other), path
        refused += not schema(name).is_valid(other)
    assert refused >= 2


def written(name: str, record: Any) -> Any:
    """What is written of `record`, which must be valid."""
    value = json.loads(msgspec.json.encode(record))
    schema(name).validate(value)
    return value


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(
    "changes", [{}, {"unit": "user", "items_per_user": 5, "rounds": "ticks", "release": "every-100ms"}]
)
def test_epochs_are_written_as_their_schema_says(mechanism: Any, changes: dict[str, Any]) -> None:
    opened = Epoch.open(
        Settings(stream="shop", horizon=1023, mechanism=mechanism, cap_share=True, **changes), 2, 17
    )
    value = written("epoch", EpochOpened(opened, key_check(bytes(32)), 3))
    described = read_schema("epoch")["$defs"]
    counter = type(opened.mechanism).__name__
    for part, name in (
        (value["epoch"], "Epoch"),
        (value["epoch"]["guarantee"], "Guarantee"),
        (value["epoch"]["mechanism"], counter),
    ):
        assert set(part) == set(described[name]["properties"])
    assert list(value["epoch"]["privacy"]) == list(read_schema("epoch")["examples"][0]["epoch"]["privacy"])
    written("epoch", EpochStarted(2))
    known = KnownLabels.of_list(["tea"]).carried_on(1, ["milk", "tea"], [7, 2], [4.0, 4.0])
    part = written("epoch", KnownLabelsPart(bytes(16), 1, 1, known))
    assert list(part) == list(described["KnownLabelsPart"]["properties"])
    assert list(part["known"]) == list(described["KnownLabels"]["properties"])
    whole = written(
        "epoch",
        EpochOpened(Epoch.open(Settings(stream="shop", mechanism="binary"), 2, 17, known=known), "0" * 16, 3),
    )
    assert whole["epoch"]["known"] == known.digest
    assert list(written("epoch", EpochClosed(2, 17))) == list(described["EpochClosed"]["properties"])


def test_charges_are_written_as_their_schema_says() -> None:
    budget = Budget(epsilon=2.0, delta=1e-5, unit="user")
    charge = Charge(
        id="a",
        what="b",
        unit="user",
        rho=0.1,
        delta=1e-6,
        first_offset=3,
        end_offset=9,
        digest="c",
        loss=gaussian(0.2),
    )
    described = read_schema("charge")["properties"]
    made = written("charge", Entry(FORMAT, "shop.events", charge, budget, 1))
    assert set(made) == set(described) - {"marks", "at"}
    opened = PayWhatYouGet(0.02, 1e-8, 20, 5)
    marks = Marks(opened, {"q-1": Query(8), "q-2": Query(3, 2)})
    value = written(
        "charge", Entry(FORMAT, "shop.events", charge_of("d", opened, unit="user"), None, 1, marks)
    )
    assert set(value) == set(described) - {"at"}
    made_at = Entry(FORMAT, "shop.events", charge, budget, 1, at="2026-01-31T12:00:00Z")
    assert set(written("charge", made_at)) == set(described) - {"marks"}
    written("budget", BudgetSet(FORMAT, "shop.events", budget, "anna", "2026-01-31T12:00:00Z"))
    assert set(value["charge"]) == set(read_schema("charge")["$defs"]["Charge"]["properties"])


def test_sources_are_written_as_their_schema_says() -> None:
    for called in (None, "orders.csv"):
        record = Registered(1, "file", "00" * 32, "shop", "user", "anna", "2026-01-31T12:00:00Z", called)
        assert set(written("source", record)) == set(read_schema("source")["properties"])


def test_certificates_are_written_as_their_schema_says() -> None:
    log = pieces.log_of([b'{"items": ["tea"]}'] * 9)
    for releases in (pieces.one_worker(log), pieces.one_worker(log)[:4], []):
        outcome = verify(pieces.EPOCH, pieces.KEY, pieces.TOPIC, log, releases)
        fields = [*read_schema("certificate")["required"], "first_round"]
        assert list(written("certificate", outcome.certificate)) == fields
