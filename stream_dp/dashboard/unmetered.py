"""Which epochs were opened without a budget: the topic `<stream>.epochs` says so, and the page repeats it.

Only the fields that the page needs are looked at, whatever else a record holds.
"""

import msgspec


class _Epoch(msgspec.Struct):
    nonce: bytes


class _Opened(msgspec.Struct, tag="epoch-opened"):
    epoch: _Epoch
    unmetered: bool = False


_DECODER = msgspec.json.Decoder(_Opened)


def unmetered_nonce(value: bytes | None) -> str | None:
    """The nonce of the epoch that a record opens, as releases tell it, if its data source had no budget then."""
    try:
        opened = _DECODER.decode(value or b"")
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    return opened.epoch.nonce.hex() if opened.unmetered else None
