"""Which value of a struct is wrong, and what it has to be: both from the types of the struct's fields.

msgspec decides whether a value is valid.  What to say of one that is not follows from its field's type alone.
"""

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin

import msgspec

_LONGEST = 60
_KINDS = {float: "a number", int: "a whole number", str: "text", bool: "true or false", dict: "a table"}
_LIMITS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


class Form(str):
    """Beside a pattern in the type of a field: what is to be written there, in words."""


class Wrong(NamedTuple):
    """A field by its path, such as `source.item`, with its type and its value; `missing` if there must be one."""

    path: str
    kind: Any
    value: object = None
    missing: bool = False

    @property
    def wanted(self) -> str:
        """What the value has to be."""
        return wanted(self.kind)


def first_wrong(struct: Any, values: Mapping[str, Any], strict: bool = True) -> Wrong | None:
    """The first field of the struct that these values, by name, do not fit."""
    for field in msgspec.structs.fields(struct):
        name = field.encode_name
        if name not in values:
            if field.required:
                return Wrong(name, field.type, missing=True)
            continue
        try:
            msgspec.convert(values[name], field.type, strict=strict)
        except msgspec.ValidationError:
            inner = next((each for each in (field.type, *get_args(field.type)) if _is_struct(each)), None)
            if inner is None or not isinstance(values[name], dict):
                return Wrong(name, field.type, values[name])
            found = first_wrong(inner, values[name], strict)
            if found is not None:
                return found._replace(path=f"{name}.{found.path}")
    return None


def wanted(kind: Any) -> str:
    """What a value of this type has to be.

    >>> wanted(Annotated[int, msgspec.Meta(ge=1)] | None)
    'a whole number >= 1'
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(dict.fromkeys(wanted(part) for part in parts if part is not NoneType))
    if origin is Literal:
        return " or ".join("true" if part is True else str(part) for part in parts)
    if origin is Annotated:
        forms = [note for note in parts[1:] if isinstance(note, Form)]
        limits = [_limits(note, parts[0]) for note in parts[1:] if isinstance(note, msgspec.Meta)]
        return forms[0] if forms else " ".join([wanted(parts[0]), *filter(None, limits)])
    if origin is list:
        each = wanted(parts[0])
        return each if any(isinstance(note, Form) for note in get_args(parts[0])) else f"a list of {each}"
    return _KINDS.get(origin or kind, "a table")


def short(value: object) -> str:
    """A value as it is repeated to whoever gave it."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"


def _limits(meta: msgspec.Meta, kind: Any) -> str:
    said = [
        f"{sign} {getattr(meta, name):g}" for name, sign in _LIMITS.items() if getattr(meta, name) is not None
    ]
    lengths = (("at least", meta.min_length), ("at most", meta.max_length))
    if kind is str:
        said += [f"of {bound} {length:,} characters" for bound, length in lengths[-1:] if length is not None]
        said += ["that is not empty"] if meta.min_length and meta.max_length is None else []
    return " and ".join(said)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
