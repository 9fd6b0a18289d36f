"""The records of `<stream>.counts`: what another engine counted in one partition up to one barrier.  PRIVATE: labels.

The engine bounds what an event contributes and adds up; nothing here can see whether it did.  What can be checked
against public facts is checked: see `pipeline/partition_counts.py`.  JSON Schema: docs/schemas/counts.json.
"""

from typing import Annotated, Literal

import msgspec

from stream_dp.errors import Refused
from stream_dp.events.event import LONGEST_LABEL
from stream_dp.events.record import LARGEST_VALUE

MOST_PARTS = 65_535
"""Most records that one partition's counts of one round may be divided into."""


class CountsRefused(Refused):
    """The counts topic holds what cannot be counted; the message names the record's place."""


class LabelCount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How many events of the partition contribute `label` to the round."""

    label: Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_LABEL)]
    count: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]


class CountsRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part `part` of `parts` of what `partition` of the events topic brings to the round that a barrier closes.

    `n` and `tag` are those of the barrier's record.  The events from the offset `first` on were counted, up to the one
    that the barrier names.  `bound` is how many distinct items of an event were counted at most.  It stands in the
    partition of the counts topic that has the same number.
    """

    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    n: Annotated[int, msgspec.Meta(ge=1, le=2**63 - 1)]
    tag: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}\\Z")]
    first: Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
    part: Annotated[int, msgspec.Meta(ge=1, le=MOST_PARTS)]
    parts: Annotated[int, msgspec.Meta(ge=1, le=MOST_PARTS)]
    bound: Annotated[int, msgspec.Meta(ge=1)]
    counts: list[LabelCount]
    v: Literal[1] = 1


_DECODER = msgspec.json.Decoder(CountsRecord)


def decode_counts(value: bytes | None) -> CountsRecord:
    """The record in these bytes; raises ValueError, which says why there is none and quotes nothing of it."""
    if value is not None and len(value) > LARGEST_VALUE:
        raise ValueError(f"it has more than {LARGEST_VALUE} bytes: divide it into parts")
    try:
        found = _DECODER.decode((value or b"").decode())
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ValueError(f"it is not valid UTF-8 JSON ({type(error).__name__})") from None
    if found.part > found.parts:
        raise ValueError(f"it is part {found.part} of {found.parts}")
    return found
