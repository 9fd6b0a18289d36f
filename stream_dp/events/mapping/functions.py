"""The functions that expressions may call: those of JMESPath that are linear in what they are given."""

from collections.abc import Callable
from typing import Any

from jmespath.exceptions import JMESPathError
from jmespath.functions import Functions

from stream_dp.config.secret import SettingsError
from stream_dp.events.event import BadRecord

ALLOWED = (
    *(
        "abs",
        "avg",
        "ceil",
        "contains",
        "ends_with",
        "floor",
        "join",
        "keys",
        "length",
        "max",
        "merge",
        "min",
    ),
    *("not_null", "reverse", "starts_with", "sum", "to_array", "to_number", "to_string", "type", "values"),
)
"""Those that sort, or call an expression for each element, are left out."""

_FUNCTIONS = Functions()


def called(name: str, arguments: list[dict[str, Any]]) -> Callable[[list[Any]], Any]:
    """The function `name` of a list of arguments, whose syntax trees are `arguments`.  Raises `SettingsError`.

    `join` takes its separator from the settings alone: one out of a record, as long as half of it, between a list that
    is the other half, would make a text as long as the square of the record.
    """
    if name not in ALLOWED:
        raise SettingsError(f"[events] cannot use the function {name}: it can use {', '.join(ALLOWED)}")
    signature = _FUNCTIONS.FUNCTION_TABLE[name]["signature"]
    variadic = bool(signature[-1].get("variadic"))
    if len(arguments) < len(signature) or (len(arguments) > len(signature) and not variadic):
        raise SettingsError(
            f"[events] gives the function {name} {len(arguments)} arguments: it takes {len(signature)}"
        )
    if name == "join" and arguments[0]["type"] != "literal":
        raise SettingsError(
            "[events] must give join its separator as text, such as join('-', [origin, dest])"
        )

    def call(values: list[Any]) -> Any:
        try:
            return _FUNCTIONS.call_function(name, values)
        except (JMESPathError, TypeError, ValueError, OverflowError, RecursionError):
            raise BadRecord(f"the function {name} cannot take what the record holds") from None

    return call
