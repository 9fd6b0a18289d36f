"""The text of .proto files as descriptors: what protoc does, as far as it matters for reading messages."""

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from antlr4.error.ErrorListener import ErrorListener
from google.protobuf import descriptor_pb2 as described
from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pool import DescriptorPool
from proto_schema_parser import ast
from proto_schema_parser.parser import Parser

from stream_dp.events.mapping.compiled_proto import DEEPEST, compiled_file, is_compiled
from stream_dp.events.mapping.schema import Schema, UnusableSchema

_Field = described.FieldDescriptorProto
_SCALARS: dict[str, Any] = {
    name.removeprefix("TYPE_").lower(): number
    for name, number in _Field.Type.items()
    if name not in ("TYPE_GROUP", "TYPE_MESSAGE", "TYPE_ENUM")
}
_WELL_KNOWN = "google/protobuf/"


def top_level_messages(schema: Schema) -> list[Descriptor]:
    """The messages of a schema in their order, without those of its references.  Raises `UnusableSchema`."""
    pool, known = DescriptorPool(), set[str]()
    try:
        for name, text in schema.references:
            _add(pool, known, name, text)
        _add(pool, known, "schema.proto", schema.text)
        found = list(pool.FindFileByName("schema.proto").message_types_by_name.values())
    except UnusableSchema:
        raise
    except Exception as error:  # parser and pool raise whatever a broken schema brings them to
        raise UnusableSchema(f"it is no Protobuf schema ({type(error).__name__})") from None
    if not found:
        raise UnusableSchema("it has no message")
    return found


def _add(pool: DescriptorPool, known: set[str], name: str, text: str) -> None:
    file = compiled_file(name, text) if is_compiled(text) else _parsed(name, text)
    imports = list(file.dependency)
    del file.dependency[:]
    for each in imports:
        if each.startswith(_WELL_KNOWN) and each not in known:
            _add_well_known(pool, known, each)
        if each in known:  # others may only hold options, which say nothing about how a message is read
            file.dependency.append(each)
    pool.Add(file)
    known.add(name)


def _parsed(name: str, text: str) -> described.FileDescriptorProto:
    if _nesting(text) > DEEPEST:
        raise UnusableSchema(f"it is nested more than {DEEPEST} deep")
    return _file(name, Parser(setup_lexer=_strictly, setup_parser=_strictly).parse(text))


_BESIDE = re.compile(r"""//[^\n]*|/\*.*?(?:\*/|\Z)|"(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?""", re.DOTALL)
"""Comments and texts.  What is never closed matches too, or each quote would be read on from to the end."""


def _nesting(text: str) -> int:
    """How many braces, brackets and angles lie around what lies deepest."""
    deepest = depth = 0
    for mark in re.findall(r"[][{}<>]", _BESIDE.sub("", text)):
        depth += 1 if mark in "[{<" else -1
        deepest = max(deepest, depth)
    return deepest


class _Strict(ErrorListener):
    """Ends at the first mistake, where the parser would guess what was meant."""

    def syntaxError(self, *_: object) -> None:
        raise UnusableSchema("it is no Protobuf schema")


def _strictly(part: Any) -> None:
    part.removeErrorListeners()
    part.addErrorListener(_Strict())


def _add_well_known(pool: DescriptorPool, known: set[str], name: str) -> None:
    try:
        module = import_module(f"{name.removesuffix('.proto').replace('/', '.')}_pb2")
    except ImportError:
        return
    file = described.FileDescriptorProto.FromString(module.DESCRIPTOR.serialized_pb)
    for each in file.dependency:
        if each not in known:
            _add_well_known(pool, known, each)
    pool.Add(file)
    known.add(name)


def _file(name: str, parsed: ast.File) -> described.FileDescriptorProto:
    if parsed.edition is not None:
        raise UnusableSchema("it has an edition: only proto2 and proto3 are known")
    file = described.FileDescriptorProto(name=name, syntax=parsed.syntax or "proto2")
    for each in parsed.file_elements:
        if isinstance(each, ast.Package):
            file.package = each.name
        elif isinstance(each, ast.Import):
            file.dependency.append(each.name)
        elif isinstance(each, ast.Message):
            file.message_type.append(_message(each, file.syntax))
        elif isinstance(each, ast.Enum):
            file.enum_type.append(_enum(each))
    return file


def _message(parsed: ast.Message, syntax: str) -> described.DescriptorProto:
    message = described.DescriptorProto(name=parsed.name)
    optional: list[described.FieldDescriptorProto] = []
    for each in parsed.elements:
        if isinstance(each, ast.Message):
            message.nested_type.append(_message(each, syntax))
        elif isinstance(each, ast.Enum):
            message.enum_type.append(_enum(each))
        elif isinstance(each, ast.MapField):
            entry = _map_entry(each)
            message.nested_type.append(entry)
            message.field.append(_field(each.name, each.number, entry.name, _Field.LABEL_REPEATED))
        elif isinstance(each, ast.OneOf):
            for inner in _fields_of(each):
                field = message.field.add()
                field.CopyFrom(_field(inner.name, inner.number, inner.type))
                field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=each.name)
        elif isinstance(each, ast.Field):
            message.field.append(_field(each.name, each.number, each.type, _LABELS[each.cardinality]))
            if syntax == "proto3" and each.cardinality == ast.FieldCardinality.OPTIONAL:
                optional.append(message.field[-1])
        elif isinstance(each, ast.Group):
            raise UnusableSchema("it has a group")
    for field in optional:  # a choice of one, as protoc writes it, behind all others
        field.proto3_optional, field.oneof_index = True, len(message.oneof_decl)
        message.oneof_decl.add(name=f"_{field.name}")
    return message


_LABELS = {
    None: _Field.LABEL_OPTIONAL,
    ast.FieldCardinality.OPTIONAL: _Field.LABEL_OPTIONAL,
    ast.FieldCardinality.REQUIRED: _Field.LABEL_REQUIRED,
    ast.FieldCardinality.REPEATED: _Field.LABEL_REPEATED,
}


def _fields_of(choice: ast.OneOf) -> Iterator[ast.Field]:
    for each in choice.elements:
        if isinstance(each, ast.Group):
            raise UnusableSchema("it has a group")
        if isinstance(each, ast.Field):
            yield each


def _field(
    name: str, number: int, kind: str, label: Any = _Field.LABEL_OPTIONAL
) -> described.FieldDescriptorProto:
    """A field; a type that is no scalar is a message or an enum, which the pool finds out."""
    field = described.FieldDescriptorProto(name=name, number=number, label=label)
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type_name = kind
    return field


def _map_entry(parsed: ast.MapField) -> described.DescriptorProto:
    words = "".join(word[:1].upper() + word[1:] for word in parsed.name.split("_"))
    entry = described.DescriptorProto(name=f"{words}Entry")  # as protoc calls it
    entry.options.map_entry = True
    entry.field.append(_field("key", 1, parsed.key_type))
    entry.field.append(_field("value", 2, parsed.value_type))
    return entry


def _enum(parsed: ast.Enum) -> described.EnumDescriptorProto:
    enum = described.EnumDescriptorProto(name=parsed.name)
    enum.value.extend(
        described.EnumValueDescriptorProto(name=each.name, number=each.number)
        for each in parsed.elements
        if isinstance(each, ast.EnumValue)
    )
    if len({value.number for value in enum.value}) < len(enum.value):
        enum.options.allow_alias = True
    return enum
