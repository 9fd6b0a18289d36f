"""Protobuf schemas that a registry gives as descriptors in base64, instead of the text of a .proto file.

Only what decides how a message is read is kept, so that both forms of one file are read alike.
"""

import re
from base64 import b64decode

from google.protobuf import descriptor_pb2 as described

from stream_dp.events.mapping.schema import UnusableSchema

DEEPEST = 32
"""Most braces and brackets around anything: parsers go down once for each."""

_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")


def is_compiled(text: str) -> bool:
    """Whether this can only be base64: the text of a .proto file that says anything has a semicolon or a brace."""
    return _BASE64.fullmatch("".join(text.split())) is not None


def compiled_file(name: str, text: str) -> described.FileDescriptorProto:
    """The file in a descriptor in base64, under another name.  Raises `UnusableSchema`."""
    try:
        file = described.FileDescriptorProto.FromString(b64decode("".join(text.split()), validate=True))
    except Exception as error:  # the decoder raises whatever broken bytes bring it to
        raise UnusableSchema(f"it is no Protobuf descriptor in base64 ({type(error).__name__})") from None
    if file.syntax not in ("", "proto2", "proto3"):
        raise UnusableSchema("it has an edition: only proto2 and proto3 are known")
    kept = described.FileDescriptorProto(name=name, package=file.package, syntax=file.syntax or "proto2")
    kept.dependency.extend(file.dependency)
    kept.message_type.extend(_message(each, 1) for each in file.message_type)
    kept.enum_type.extend(map(_enum, file.enum_type))
    return kept


def _message(found: described.DescriptorProto, depth: int) -> described.DescriptorProto:
    if depth > DEEPEST:
        raise UnusableSchema(f"it is nested more than {DEEPEST} deep")
    kept = described.DescriptorProto(name=found.name)
    kept.nested_type.extend(_message(each, depth + 1) for each in found.nested_type)
    kept.enum_type.extend(map(_enum, found.enum_type))
    kept.field.extend(map(_field, found.field))
    kept.oneof_decl.extend(described.OneofDescriptorProto(name=each.name) for each in found.oneof_decl)
    if found.options.map_entry:
        kept.options.map_entry = True
    return kept


def _field(found: described.FieldDescriptorProto) -> described.FieldDescriptorProto:
    if found.type == described.FieldDescriptorProto.TYPE_GROUP:
        raise UnusableSchema("it has a group")
    kept = described.FieldDescriptorProto()
    kept.CopyFrom(found)
    for name in ("options", "default_value", "json_name", "extendee"):
        kept.ClearField(name)
    return kept


def _enum(found: described.EnumDescriptorProto) -> described.EnumDescriptorProto:
    kept = described.EnumDescriptorProto(name=found.name)
    kept.value.extend(
        described.EnumValueDescriptorProto(name=each.name, number=each.number) for each in found.value
    )
    if len({each.number for each in found.value}) < len(found.value):
        kept.options.allow_alias = True
    return kept
