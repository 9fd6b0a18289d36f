"""What is wrong with a setting, in words: where it was said, what it has to be and what it is."""

import re
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

FORMS = {
    "stream": "at most 201 letters, digits, dots, dashes and underscores, the first one a letter or a digit",
    "rounds": "per-event, every-N with N from 2 on, or ticks",
    "release": "every-round, every-N rounds such as every-10, or every so many milliseconds such as every-500ms",
    "noise_key": "redis, env:NAME or file:PATH",
    "kafka_password": "env:NAME or file:PATH",
    "redis_password": "env:NAME or file:PATH",
    "registry_password": "env:NAME or file:PATH",
    "schema_registry": "http://HOST:PORT or https://HOST:PORT, with a path if it has one, and without a password",
    "topic": "at most 249 letters, digits, dots, dashes and underscores",
    "delimiter": "one character such as a semicolon",
    "known_labels": "file:PATH",
    "windows": "times such as 90s, 5m, 1h or 7d, or numbers of rounds",
}
"""By setting: what is to be written where a pattern decides."""

_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
}
WRONG = re.compile(r"(?P<what>.*) - at `\$\.(?P<name>\w+)(?P<rest>.*)`", re.DOTALL)
"""What msgspec says of a value: what is wrong, and the place."""

_SECRET = ("password", "key", "redis", "kafka")
_LONGEST = 60


def in_words(
    error: msgspec.ValidationError, struct: type, values: Mapping[str, Any], origins: Mapping[str, str]
) -> str:
    """One sentence.  `origins`: by name, where it was said: in an option, a variable or a file."""
    found = WRONG.fullmatch(str(error))
    if found is None:
        return f"a setting is out of range: {error}"
    name = found["name"]
    origin = f"{name} {origins[name]}" if name in origins else f"the setting {name}"
    inside = f" ({found['rest'].lstrip('.')})" if found["rest"].startswith(".") else ""
    told = f"{origin}{inside} is out of range: it has to be {_wanted(found['what'], name, inside, struct)}"
    is_secret = any(part in name for part in _SECRET)
    return told if inside or is_secret else f"{told}, not {short(values.get(name))}"


def _wanted(what: str, name: str, inside: str, struct: type) -> str:
    if not inside and "matching regex" in what and name in FORMS:
        return FORMS[name]
    if not inside and what.startswith("Invalid enum value"):
        return _one_of(get_type_hints(struct)[name])
    if "matching regex" in what:
        return "written as its documentation says"
    return wanted(what)


def wanted(what: str) -> str:
    """What a value has to be, of what msgspec says is wrong with it, where no pattern and no list of values decides."""
    if what.startswith("Number out of range"):
        return "a number that is not as large"
    kind, _, limit = what.partition(", got")[0].removeprefix("Expected ").replace("`", "").partition(" ")
    while limit.startswith("| "):
        other, _, limit = limit.removeprefix("| ").partition(" ")
        kind += f" {other}"
    words = [_KINDS.get(each, each) for each in kind.split() if each != "null"]
    return " or ".join(words) + (f" {_limit(limit)}" if limit else "")


def _limit(text: str) -> str:
    """`of length <= 5` as people say it; other limits are numbers."""
    found = re.fullmatch(r"of length (<=|>=) (\d+)", text)
    if found is None:
        return text
    return f"of {'at most' if found[1] == '<=' else 'at least'} {int(found[2]):,} characters"


def _one_of(kind: Any) -> str:
    """The values that a Literal allows, also one that may be left out."""
    literals = [kind, *get_args(kind)]
    return " or ".join(
        str(value) for each in literals if get_origin(each) is Literal for value in get_args(each)
    )


def short(value: object) -> str:
    """A value as it is repeated to whoever gave it."""
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
