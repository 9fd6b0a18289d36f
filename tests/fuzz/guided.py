"""Coverage-guided fuzzing with atheris: `python -m tests.fuzz.guided records --seconds 60`, or another target.

Every input is either taken or refused in the one way that the caller is promised; any other exception ends the run and
leaves the input in a file that begins with "crash-", and so does one that takes five seconds.  `make fuzz` runs all.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import atheris
from aiokafka.record.memory_records import MemoryRecords as AiokafkaRecords
from kafka.record.memory_records import MemoryRecords as KafkaRecords

from tests.dev.batches import batch, crc_again
from tests.events.hostile_records import hostile_records

# The decoder of records is compiled, so its branches are out of sight.  A plain one beside it shows the way into JSON.
for name in ("json", "json.decoder", "json.scanner"):
    sys.modules.pop(name, None)
_READERS = "events.event", "kafka.record_batches", "kafka.inflation", "config.settings"
_MAPPING = "avro_values", "decoder", "json_values", "paths", "proto_files", "protobuf_values", "text"
_OURS = [f"stream_dp.{name}" for name in (*_READERS, *(f"events.mapping.{name}" for name in _MAPPING))]
with atheris.instrument_imports(include=["json", "tomllib", *_OURS]):
    import json
    from json.decoder import py_scanstring  # type: ignore[attr-defined]
    from json.scanner import py_make_scanner  # type: ignore[attr-defined]

    from stream_dp.config.reading import load_settings
    from stream_dp.config.settings import Settings, SettingsError
    from stream_dp.events.event import LONGEST_LABEL, BadRecord, decode_event, json_text
    from stream_dp.events.mapping.decoder import Decoder, decoder_of
    from stream_dp.events.mapping.golden import VECTORS, Vector
    from stream_dp.events.mapping.json_values import json_reader, whole
    from stream_dp.events.mapping.mapping import Mapping
    from stream_dp.events.mapping.paths import compiled, fields_read, parsed
    from stream_dp.events.mapping.schema import Schema
    from stream_dp.events.record import Record, cut, kept
    from stream_dp.kafka import record_batches
    from stream_dp.kafka.record_batches import Batches, UnreadableBatch

_HEADER_BYTES = 61

_EVENTS = (
    b'{"items": ["tea", "milk"], "user": "u1", "id": "e-17", "ts": "2026-01-31T12:00:00Z"}',
    b'{"items": ["\\ud83c\\udf75", "\\u0000"], "other": [1e3, null, true, {"a": -0.5}]}',
    b'{"items": []}',
    *(record.value(2_000) for record in list(hostile_records())[::11]),
)
_BATCHES = tuple(
    bytes([codec]) + batch([b"tea", None, b"milk" * 50], compression=codec, keyed=True)[_HEADER_BYTES:]
    for codec in range(5)
) + tuple(
    bytes([codec])
    + batch([b"tea"] * 3, compression=codec, headers=[("shop", b"n"), ("é", None)])[_HEADER_BYTES:]
    for codec in range(2)
)
_SETTINGS = (
    b'stream = "shop"\nepsilon = 1.0\nhorizon = 65535\nunit = "event"\n',
    b'stream = "shop"\nkafka_security = "SASL_SSL"\nkafka_password = "env:P"\nnoise_key = "file:key"\n',
    b'stream = "s"\ncreate_topics = false\nhorizon = 0x10\n[a.b]\nc = 1979-05-27\n',
)


_MAPPED = [vector for kind in VECTORS.values() for vector in kind]
_VALUES = tuple(bytes([number]) + vector.value for number, vector in enumerate(_MAPPED))
_SCHEMAS = tuple(
    bytes([vector.mapping.format == "protobuf", len(vector.value)]) + vector.value + text.encode()
    for vector in _MAPPED
    if (text := vector.schema or vector.mapping.schema)
)


class _Plain(json.JSONDecoder):
    """Python's JSON decoder without its compiled parts."""

    def __init__(self) -> None:
        super().__init__(strict=False)
        self.parse_string = py_scanstring
        self.scan_once = py_make_scanner(self)


_PLAIN = _Plain()


def one_record(data: bytes) -> None:
    """Any bytes are an event whose items can be counted, or a bad record with a reason in one line.

    What both decoders take, they read alike.
    """
    plain = None
    with suppress(ValueError, RecursionError):
        plain = _PLAIN.decode(data.decode())
    try:
        event = decode_event(data)
    except BadRecord as bad:
        _check_told(bad, 200)
        return
    assert event.items
    assert plain is None or plain["items"] == event.items
    assert all(0 < len(item) <= LONGEST_LABEL for item in event.items)
    for item in event.items:
        assert item.encode().decode() == item


def one_batch(data: bytes) -> None:
    """Any bytes in a batch of three are records, the same for both clients and however they are read, or unreadable."""
    frame = bytearray(batch([b""] * 3)[:_HEADER_BYTES])
    frame[22] = data[0] % 5 if data else 0
    frame += data[1:]
    frame[8:12] = (len(frame) - 12).to_bytes(4)
    whole = crc_again(frame)
    outcomes = []
    for reader in (AiokafkaRecords, KafkaRecords):
        for record_batches.AT_ONCE in (1 << 20, 0):
            outcomes.append(_read(reader, whole))
    assert outcomes[0] == outcomes[2]
    assert outcomes[1] == outcomes[3]
    assert outcomes[0] is None or outcomes[0] == outcomes[1]


def _read(reader: Callable[[bytes], object], data: bytes) -> list[Record] | None:
    try:
        return [_held(record) for record in Batches(reader, data).next_batch()]
    except UnreadableBatch as unreadable:
        _check_told(unreadable, 300)
        return None


def _held(found: Any) -> Record:
    """What is kept of a record as a batch has it: without its partition, which a batch does not know."""
    key, value = cut(found.key), cut(found.value)
    return Record(found.offset, found.timestamp, key, value, headers=kept(found.headers))


def _check_told(refused: Exception, longest: int) -> None:
    """It says why, in one line that is no longer than this."""
    assert 0 < len(str(refused)) < longest
    assert "\n" not in str(refused)


def mapped() -> Callable[[bytes], None]:
    """Any bytes are an event or a bad record by each mapping of the golden records.

    Where JSON is read in part, all of it would have given the same.
    """
    decoders = [decoder_of(vector.mapping, partial(_schema_of, vector)) for vector in _MAPPED]
    trees = [parsed("a[*].b"), parsed("c")]
    path, part = compiled(parsed("[a[*].b, c]")), json_reader(fields_read(trees))

    def one_value(data: bytes) -> None:
        if data:
            value = data[1:]
            _check_event(decoders[data[0] % len(decoders)], value)
            assert _outcome(lambda: path(part(value))) == _outcome(lambda: path(whole(json_text(value))))

    return one_value


def _schema_of(vector: Vector, number: int) -> Schema:
    return Schema(vector.schema)


def one_schema(data: bytes) -> None:
    """Any text is a schema by which any value is an event or a bad record, or a schema that cannot be used."""
    if len(data) < 2:
        return
    value, text = data[2 : 2 + data[1]], data[2 + data[1] :]
    schema = Schema(text.decode(errors="replace"))
    mapping = Mapping(format="protobuf" if data[0] % 2 else "avro", items="keys(@)", framed=True)
    _check_event(decoder_of(mapping, lambda _: schema), b"\0\0\0\0\7" + value)


def _check_event(decode: Decoder, value: bytes) -> None:
    try:
        event = decode(Record(0, 0, None, value))
    except BadRecord as bad:
        _check_told(bad, 300)
        return
    assert all(0 < len(item) <= LONGEST_LABEL for item in event.items)
    assert event.items == [item.encode().decode() for item in event.items]


def _outcome(read: Callable[[], object]) -> str | None:
    """What is read, as text, because what is not a number equals nothing; None for a bad record."""
    try:
        return repr(read())
    except BadRecord:
        return None


def settings_in(folder: Path) -> Callable[[bytes], None]:
    """Any file is settings that keep their limits, or a mistake that is told in words."""
    file = folder / "stream.toml"

    def one_file(data: bytes) -> None:
        file.write_bytes(data)
        try:
            found = load_settings(file, {})
        except SettingsError as refused:
            _check_told(refused, 10_000)
            return
        assert found.horizon >= 1
        assert found.stream
        assert set(found.privacy) <= set(Settings.__struct_fields__)

    return one_file


def main() -> None:
    """Fuzz for a while; the exit status is not 0 if an input was found that breaks the promise."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("target", choices=["records", "batches", "settings", "values", "schemas"])
    parser.add_argument("--seconds", type=int, default=60)
    asked = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="stream_dp-fuzz-"))
    seeds = folder / "seeds"
    seeds.mkdir()
    examples, target = {
        "records": (_EVENTS, one_record),
        "batches": (_BATCHES, one_batch),
        "settings": (_SETTINGS, settings_in(folder)),
        "values": (_VALUES, mapped()),
        "schemas": (_SCHEMAS, one_schema),
    }[asked.target]
    for number, example in enumerate(examples):
        (seeds / str(number)).write_bytes(example)
    words = [sys.argv[0], f"-max_total_time={asked.seconds}", "-max_len=65536", "-timeout=5", "-verbosity=1"]
    atheris.Setup([*words, f"-artifact_prefix={os.getcwd()}/", str(seeds)], target)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
