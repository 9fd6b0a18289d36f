"""What new users get wrong: each of forty mistakes is answered in one sentence that names the remedy."""

import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from stream_dp.cli import app
from stream_dp.kafka import log

SETTINGS = [
    ('strem = "shop"', "unknown setting 'strem'; did you mean 'stream'?"),
    ("", "give --stream NAME, or put stream = "),
    ('stream = "my shop"', "letters, digits, dots, dashes and underscores"),
    ('stream = "shop', "is not valid TOML"),
    ('stream = "shop"\nepsilon = 0', "epsilon in stream.toml is out of range: it has to be a number"),
    ('stream = "shop"\nunit = "person"', "it has to be event or user or user-day"),
    ('stream = "shop"\nunit = "user"', "set items_per_user"),
    ('stream = "shop"\nunit = "user"\nitems_per_event = 3', "leave it out, items_per_user takes its place"),
    ('stream = "shop"\nitems_per_user = 3', 'set unit = "user", or leave it out'),
    ('stream = "shop"\nrounds = "every minute"', "per-event, every-N with N from 2 on, or ticks"),
    ('stream = "shop"\nkafka_password = "hunter2"', "it has to be env:NAME or file:PATH"),
    ('stream = "shop"\nredis_password = "env:NOWHERE"', "the environment variable NOWHERE should hold the password"),
    ('stream = "shop"\nkafka = "broker"', "is not HOST:PORT: change the setting kafka, or --kafka"),
    ('stream = "shop"\nredis = "localhost:6379"', "change the setting redis, or --redis"),
    ('stream = "shop"\nkafka_security = "SASL_SSL"', "needs kafka_sasl_mechanism, kafka_username and kafka_password"),
    ('stream = "shop"\nkafka_username = "me"', "set kafka_security to SASL_SSL"),
    ('stream = "shop"\nkafka_ca_file = "ca.pem"', "set kafka_security to SSL or SASL_SSL"),
    ('stream = "shop"\n[events]\nitems = "a"\nhorizon = 2', "move it above the line [events]"),
    ('stream = "shop"\n[events]\nitem = "a"', "unknown setting 'item' in [events]; did you mean 'items'?"),
    ('stream = "shop"\n[events]\nitems = "a[*"', "[events] cannot use the expression 'a[*'"),
    ('stream = "shop"\n[events]\nuser = "a"', 'set items, such as items = "lines[*].sku", or families'),
    ('stream = "shop"\n[events]\nitems = "a"\nformat = "avro"', "set schema_registry to the address of the registry"),
    ('stream = "shop"\n[events]\nitems = "a"\nformat = "xml"', "json or avro or protobuf or json-schema or csv"),
    ('stream = "shop"\n[events]\nitems = "a"\nheader = "a,b"', 'or set format = "csv"'),
    ('stream = "shop"\n[events]\nitems = "a"\nschema_registry = "http://me:pw@h"', "and without a password"),
    ('stream = "shop"\nunit = "user-day"\nitems_per_user = 2', 'takes rounds = "ticks"'),
    ('stream = "shop"\nmechanism = "window"', "say how many, such as window = 60"),
    ('stream = "shop"\nknown_labels = "file:none.txt"', "cannot read the known labels from none.txt"),
]  # fmt: skip
"""By what stands in stream.toml: what `stream-dp check` says."""

COMMANDS = [
    ("connect --topic {topic}", "name them with --items, such as lines[*].sku, or give --schema-registry"),
    ("connect --topic {missing} --items a", "there is {topic}"),
    (
        "connect --topic {topic} --items a --redis redis://:pw@h",
        "with --redis-password env:NAME or file:PATH",
    ),
    ("connect --topic {topic} --items a --unit user", "give --user, such as customer.id or $key"),
    ("connect --topic {topic} --items a --settings full.toml", "overwrite it with --force"),
    ("connect --topic {topic} --schema-registry http://127.0.0.1:1", "check --schema-registry"),
    ("connect --topic {compact} --items a", "read the topic that it was made from"),
    ("worker --stream s --recount", "give --new-epoch with it"),
    ("worker --stream s --without-labels", "give --new-epoch with it"),
    ("worker --stream s --new-epoch --standby", "give one of them"),
    ("budget set --source {topic} --epsilon -1 --delta 1e-6", "epsilon"),
    (
        "budget set --source {topic} --epsilon 1 --delta 1e-6 --ledger {topic}",
        "a topic of its own with --ledger",
    ),
    ("mapping compare --stream {missing}", "start the stream's worker first, or name another stream"),
    ("erase --stream s --to t", "--user NAME or --where PATH"),
    ("tail --stream s --kafka 127.0.0.1:1", "start it, or change the setting kafka or --kafka"),
]
"""By what is typed: what is said."""


def test_there_are_forty() -> None:
    assert len(SETTINGS) + len(COMMANDS) >= 40


@pytest.mark.parametrize(("file", "remedy"), SETTINGS)
def test_a_mistake_in_the_settings_is_a_sentence_with_its_remedy(
    kafka: str, redis_url: str, file: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"kafka": kafka, "redis": redis_url}
    first = [f'{name} = "{each}"' for name, each in places.items() if f"{name} =" not in file]
    Path("stream.toml").write_text("\n".join([*first, file]))
    ran = CliRunner().invoke(app, ["check"], env={"COLUMNS": "400"})
    assert ran.exit_code == 1, ran.output
    said = [line for line in ran.output.splitlines() if remedy in line]
    assert said, ran.output
    assert all(line.startswith("failed") for line in said)
    assert "Traceback" not in ran.output
    assert not [each for each in ("hunter2", "me:pw") if each in ran.output], "a password is repeated"


@pytest.mark.parametrize(("line", "remedy"), COMMANDS)
def test_a_mistake_on_the_command_line_is_a_sentence_with_its_remedy(
    kafka: str,
    redis_url: str,
    topic_prefix: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    line: str,
    remedy: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("full.toml").touch()
    topics = {
        "topic": f"{topic_prefix}-orders",
        "missing": f"{topic_prefix}-order",
        "compact": f"{topic_prefix}-c",
    }
    log.create_topics(kafka, topics["topic"])
    log.create_topics(kafka, topics["compact"], configs={"cleanup.policy": "compact"})
    words = shlex.split(line.format(**topics))
    words += [] if "--kafka" in words else ["--kafka", kafka]
    words += [] if "--redis" in words or words[0] in ("tail", "mapping") else ["--redis", redis_url]
    ran = CliRunner().invoke(app, words)
    assert ran.exit_code == 2, ran.output
    assert remedy.format(**topics) in ran.stderr
    assert len(ran.stderr.strip().splitlines()) == 1
