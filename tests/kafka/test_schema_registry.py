"""What a registry may answer: schemas with references, none, nonsense, too much, or nothing at all."""

import ssl
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from stream_dp.config.events_section import EventsSection
from stream_dp.config.secret import SettingsError
from stream_dp.events.mapping.schema import LARGEST_SCHEMA, Schema
from stream_dp.kafka import schema_registry
from stream_dp.kafka.schema_registry import NoSchema, RegistryAway, SchemaRegistry
from tests.schema_registry.front import Front, front, scripted
from tests.system.certificates import Authority

TYPES = ["AVRO", "JSON", "PROTOBUF"]
LOGIN = "reader", "pass:word é"


def section(address: str, **how: Any) -> EventsSection:
    return EventsSection(format="avro", items="a", schema_registry=address, **how)


@pytest.fixture
def away() -> Iterator[Front]:
    """One that answers to nothing yet."""
    with front(scripted({})) as running:
        yield running


def asked(registry: Front, answers: dict[str, Any], **how: Any) -> Schema:
    registry.answers = scripted({"/schemas/types": TYPES, **answers})
    with closing(SchemaRegistry(section(registry.address, **how))) as client:
        return client.schema(7)


def reference(name: str) -> dict[str, Any]:
    return {"name": name, "subject": f"a/{name}?", "version": 3}


def place(name: str) -> str:
    return f"/subjects/a%2F{name}%3F/versions/3"


def test_each_reference_stands_behind_those_that_it_needs_and_is_asked_for_once(away: Front) -> None:
    answers = {
        "/schemas/ids/7": {"schema": "top", "references": [reference("left"), reference("right")]},
        place("left"): {"schema": "l", "references": [reference("base")]},
        place("right"): {"schema": "r", "references": [reference("base")]},
        place("base"): {"schema": "b", "references": None},
    }
    assert asked(away, answers) == Schema("top", (("base", "b"), ("left", "l"), ("right", "r")))
    assert len(away.asked) == len(answers)


def _chain(length: int) -> dict[str, Any]:
    """A schema whose references lead on, one after the other."""
    chain = {
        place(f"n{number}"): {"schema": "x", "references": [reference(f"n{number + 1}")]}
        for number in range(length)
    }
    return {"/schemas/ids/7": {"schema": "top", "references": [reference("n0")]}, **chain}


SURE = {
    "it knows none": {},
    "it gives one whose references lead back to themselves": {
        "/schemas/ids/7": {"schema": "top", "references": [reference("a")]},
        place("a"): {"schema": "a", "references": [reference("b")]},
        place("b"): {"schema": "b", "references": [reference("a")]},
    },
    "it gives one with more than 100 references": _chain(200),
    "it gives one of more than 1048576 bytes": {"/schemas/ids/7": {"schema": "x" * (1 << 20)}},
    "it gives one that has more than 262144 bytes with its references": {
        "/schemas/ids/7": {"schema": "top", "references": [reference("a"), reference("b")]},
        place("a"): {"schema": "x" * (LARGEST_SCHEMA // 2)},
        place("b"): {"schema": "\0" * (LARGEST_SCHEMA // 12)},  # six bytes each, as it is put on record
    },
}


@pytest.mark.parametrize("why", SURE)
def test_what_it_says_is_that_there_is_none_that_can_be_taken(away: Front, why: str) -> None:
    with pytest.raises(NoSchema) as none:
        asked(away, SURE[why])
    assert (str(none.value), none.value.sure) == (why, True)


UNSURE: dict[str, Any] = {
    "it answers with status 500": 500,
    "it answers with status 302": 302,
    **{
        f"it gives none{' ' * number}": answer
        for number, answer in enumerate(
            (
                ["schema"],
                {"schema": None},
                {"schema": "x", "references": 7},
                {"schema": "x", "references": [{"name": "y"}]},
                {"schema": "x", "references": [{"name": [], "subject": "s", "version": 1}]},
            )
        )
    },
}


@pytest.mark.parametrize("why", UNSURE)
def test_one_that_fails_for_one_number_may_do_better_later(away: Front, why: str) -> None:
    with pytest.raises(NoSchema) as none:
        asked(away, {"/schemas/ids/7": UNSURE[why]})
    assert (str(none.value), none.value.sure) == (why.rstrip(), False)


@pytest.mark.parametrize("answer", [b"<html>", b"\xff", b'{"x":' + b"[" * 100_000])
def test_one_that_answers_no_json_is_away(away: Front, answer: bytes) -> None:
    with pytest.raises(RegistryAway, match="no JSON"):
        asked(away, {"/schemas/ids/7": answer})


def test_one_that_fails_for_everything_is_away(away: Front) -> None:
    with pytest.raises(RegistryAway, match="it answers with status 503"):
        asked(away, {"/schemas/ids/7": 500, "/schemas/types": 503})


@pytest.mark.parametrize("drips", ["body", "head", "references"])
def test_one_that_takes_for_ever_is_away(away: Front, monkeypatch: pytest.MonkeyPatch, drips: str) -> None:
    """Each byte or each answer comes in time, and all of them never; the next question is answered."""
    monkeypatch.setattr(schema_registry, "_QUESTION_SECONDS", 0.5)
    away.drip_seconds, away.drips_head = 0.05, drips == "head"
    answers = _chain(90) if drips == "references" else {"/schemas/ids/7": {"schema": "x" * 10_000}}
    away.answers = scripted({"/schemas/types": TYPES, **answers})
    with closing(SchemaRegistry(section(away.address))) as client:
        with pytest.raises(RegistryAway, match="takes too long"):
            client.schema(7)
        away.drip_seconds, away.answers = 0.0, scripted({"/schemas/ids/7": {"schema": "x"}})
        monkeypatch.undo()
        assert client.schema(7) == Schema("x")


def test_one_that_is_not_there_is_away() -> None:
    with front(scripted({})) as gone:
        pass
    with pytest.raises(RegistryAway, match="ConnectError"):
        asked(gone, {})


def logged_in(file: Path, password: str) -> dict[str, str]:
    file.touch(0o600)
    file.write_text(password)
    return {"registry_username": LOGIN[0], "registry_password": f"file:{file}"}


def test_a_password_lets_in_and_another_one_is_told(tmp_path: Path) -> None:
    answers = {"/schemas/ids/7": {"schema": "x"}}
    with front(scripted(answers), LOGIN) as guarded:
        file = tmp_path / "password"
        login = logged_in(file, f"{LOGIN[1]}\n")
        assert asked(guarded, answers, **login) == Schema("x")
        file.write_text("another")
        with pytest.raises(RegistryAway, match="it answers with status 401"):
            asked(guarded, answers, **login)
        with pytest.raises(RegistryAway, match="it answers with status 401"):
            asked(guarded, answers)
        file.unlink()
        with pytest.raises(SettingsError, match="password of the schema registry"):
            asked(guarded, answers, **login)


def test_only_a_registry_with_the_right_certificate_is_asked_and_only_by_one_with_another(
    tmp_path: Path,
) -> None:
    authority, strangers = Authority(tmp_path), Authority(tmp_path, "strangers")
    server, client, stranger = (
        authority.certify("registry"),
        authority.certify("client"),
        strangers.certify("stranger"),
    )
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(authority.file))
    context.load_cert_chain(server.cert, server.key)
    context.verify_mode = ssl.CERT_REQUIRED
    answers = {"/schemas/ids/7": {"schema": "x"}}

    def by(cert: Any, ca: Path = authority.file) -> dict[str, str]:
        files = {"registry_client_cert": str(cert.cert), "registry_client_key": str(cert.key)} if cert else {}
        return {"registry_ca_file": str(ca), **files}

    with front(scripted(answers), LOGIN, context) as secure:
        login = logged_in(tmp_path / "password", LOGIN[1])
        assert asked(secure, answers, **login, **by(client)) == Schema("x")
        reached = len(secure.asked)
        for wrong in (by(None), by(stranger), by(client, strangers.file)):
            with pytest.raises(RegistryAway):
                asked(secure, answers, **login, **wrong)
        assert len(secure.asked) == reached
