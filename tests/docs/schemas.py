"""The JSON Schemas of docs/schemas, as validators."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.protocols import Validator
from jsonschema.validators import extend

SCHEMAS = Path(__file__).parents[2] / "docs" / "schemas"


def read_schema(name: str) -> dict[str, Any]:
    return json.loads((SCHEMAS / f"{name}.json").read_text())


def _is_written_as_integer(_: object, value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


@cache
def schema(name: str) -> Validator:
    """The schema's validator.  `1.0` is no integer, as the schemas say in words and the decoders in deed."""
    types = Draft202012Validator.TYPE_CHECKER.redefine("integer", _is_written_as_integer)
    return extend(Draft202012Validator, type_checker=types)(read_schema(name))
