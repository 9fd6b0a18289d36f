"""What is wrong with a field of a request, in words."""

import re
from typing import Any

import msgspec

from stream_dp.config.out_of_range import WRONG, short, wanted

_TOPIC = "1 to 249 letters, digits, dots, dashes and underscores"
FORMS = {
    "id": "1 to 200 letters, digits and characters of . _ : @ / -, the first one a letter or a digit",
    "topic": _TOPIC,
    "name": _TOPIC,
    "budget": _TOPIC,
    "unit": "user or event",
    "job": "top-k, set-union or histogram",
    "v": "1",
    "cancel": "true",
}
"""By the last part of a field's name: what is to be written where a pattern or a list of values decides."""

_DECIDED = ("matching regex", "Invalid enum value", "Invalid value")


def in_words(error: msgspec.ValidationError, asked: dict[str, Any]) -> tuple[str, str]:
    """One sentence, and the field that it names: `k`, `source.item`."""
    found = WRONG.fullmatch(str(error))
    missing = re.fullmatch(r"Object missing required field `(\w+)`", str(error))
    if missing is not None:
        return f"there is no {missing[1]}: give {FORMS.get(missing[1], 'it')}", missing[1]
    if found is None:
        return f"the request is not valid: {error}", ""
    field = found["name"] + found["rest"].partition("[")[0]
    last = field.rpartition(".")[2]
    is_decided = last in FORMS and any(each in found["what"] for each in _DECIDED)
    told = FORMS[last] if is_decided else wanted(found["what"])
    inside = " (in the list)" if "[" in found["rest"] else f", not {short(_value(asked, field))}"
    return f"{field} has to be {told}{inside}", field


def _value(asked: dict[str, Any], field: str) -> object:
    found: Any = asked
    for name in field.split("."):
        found = found.get(name) if isinstance(found, dict) else None
    return found
