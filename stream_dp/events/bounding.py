"""Which items of an event count, so that one privacy unit changes no more than the guarantee allows."""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import islice
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stream_dp.events.event import BadRecord, Event
from stream_dp.loops.packing import packed
from stream_dp.privacy.keyed_noise import subkey
from stream_dp.privacy.many_digests import packed_digests

NO_USER = "the event names no user, and the privacy unit of this stream is the user"

USER_BYTES, _ITEM_BYTES = 16, 8
PAIR_BYTES = USER_BYTES + _ITEM_BYTES
"""What a (user, item) pair takes in `UserBound.pairs`, and so in Redis."""


class Bound(Protocol):
    """Decides what of each event is counted.

    `pairs` is all that it remembers: bytes that only grow, until they are forgotten.  `units` is how many events (or
    users) it has met that hold an item, and `over` how many of them hold more distinct items than count.
    """

    pairs: bytearray
    units: int
    over: int

    def admit(self, event: Event) -> list[str]:
        """All that is counted of `event`, each item once, in record order.

        Raises `BadRecord` for an event of which nothing may be counted.
        """
        ...

    def admit_all(self, events: Sequence[Event]) -> list[str]:
        """What `admit` gives for each of many events, one after the other.

        Raises `BadRecord`, with nothing remembered, if `admit` would for any of them.
        """
        ...

    def forget(self) -> None:
        """Begin anew, as with a new day."""
        ...


class EventBound:
    """The privacy unit is one event: its first `items_per_event` distinct items in record order, each once."""

    def __init__(self, items_per_event: int) -> None:
        self.items_per_event = items_per_event
        self.pairs = bytearray()
        self.units = self.over = 0

    def admit(self, event: Event) -> list[str]:
        """See `Bound.admit`.

        >>> EventBound(2).admit(Event(["b", "a", "b", "c"]))
        ['b', 'a']
        """
        return self.admit_all([event])

    def admit_all(self, events: Sequence[Event]) -> list[str]:
        """See `Bound.admit_all`."""
        admitted: list[str] = []
        most = self.items_per_event
        self.units += len(events)
        for event in events:
            items = event.items
            if len(items) == 1 or 0 < len({*items}) == len(items) <= most:
                admitted += items
            else:
                distinct = dict.fromkeys(items)
                self.units -= not distinct
                self.over += len(distinct) > most
                admitted += islice(distinct, most)
        return admitted

    def forget(self) -> None:
        """See `Bound.forget`: there is nothing to forget."""


class UserBits:
    """By what users and their items are known: 128 and 64 bits of keyed BLAKE2b.

    `key` is the noise key and `nonce` the epoch's, so that the bits tell nothing without the key and differ between
    epochs.  Two users whose bits agree would be taken for one; `calibration.coupling_delta` charges that.  Two items
    of one user whose bits agree would be taken for one too, which decides nothing about anybody else.
    """

    def __init__(self, key: bytes, nonce: bytes) -> None:
        self._user_key, self._item_key, self._salt = subkey(key, b"user"), subkey(key, b"item"), nonce
        self._user_hash = blake2b(key=self._user_key, salt=nonce, digest_size=USER_BYTES)
        self._item_hash = blake2b(key=self._item_key, salt=nonce, digest_size=_ITEM_BYTES)

    def of_user(self, event: Event) -> bytes:
        """Those of an event's user.  Raises `BadRecord` if it names none."""
        if event.user is None:
            raise BadRecord(NO_USER)
        return _digest(self._user_hash, event.user)

    def of_item(self, item: str) -> bytes:
        """Those of an item."""
        return _digest(self._item_hash, item)

    def of_users(self, names: Iterable[str]) -> NDArray[np.uint64]:
        """Those of many users, little-endian, of shape (users, 2)."""
        return self._of(self._user_key, names, USER_BYTES)

    def of_items(self, items: Iterable[str]) -> NDArray[np.uint64]:
        """Those of many items, little-endian, of shape (items,)."""
        return self._of(self._item_key, items, _ITEM_BYTES)[:, 0]

    def _of(self, key: bytes, names: Iterable[str], size: int) -> NDArray[np.uint64]:
        return packed_digests(key, *packed([name.encode() for name in names]), size, self._salt)


class UserBound:
    """The privacy unit is one user: over the whole epoch, their first `items_per_user` distinct items, each once.

    Where it is one user on one day, `forget` is called between two days, and all of this holds for each day.

    What is admitted of a user's events depends on that user's events alone: nothing is shared between users, and
    nothing is forgotten.  Users and items are known by their `UserBits`.

    `key` is the noise key and `nonce` the epoch's.  `pairs` are those of an earlier instance.  `cap_share`: remember
    the first item of a user that does not count, too, so that `over` counts every user once, and only then.
    """

    def __init__(
        self,
        items_per_user: int,
        key: bytes,
        nonce: bytes,
        pairs: bytes | bytearray = b"",
        cap_share: bool = False,
    ) -> None:
        self.items_per_user = items_per_user
        self.units = self.over = 0
        self._most_held = (items_per_user + cap_share) * _ITEM_BYTES
        self.pairs = bytearray()
        self._bits = UserBits(key, nonce)
        self._held: dict[bytes, bytes] = {}  # the bits of a user's items, one after the other
        for start in range(0, len(pairs), PAIR_BYTES):
            user = bytes(pairs[start : start + USER_BYTES])
            self._held[user] = self._held.get(user, b"") + pairs[start + USER_BYTES : start + PAIR_BYTES]
        self.pairs += pairs

    def admit(self, event: Event) -> list[str]:
        """See `Bound.admit`.

        >>> bound = UserBound(2, bytes(32), bytes(16))
        >>> [bound.admit(Event(items, "u")) for items in (["b", "b"], ["a", "b"], ["c"])]
        [['b'], ['a'], []]
        """
        user = self._bits.of_user(event)
        held = self._held.get(user, b"")
        admitted, before = [], len(held)
        for item in event.items:
            if len(held) == self._most_held:
                break
            bits = self._bits.of_item(item)
            if bits in held:  # also across the border of two of them, which is as unlikely as that two agree
                continue
            held += bits
            self.pairs += user + bits
            if len(held) <= self.items_per_user * _ITEM_BYTES:
                admitted.append(item)
            else:
                self.over += 1
        if len(held) > before:
            self.units += not before
            self._held[user] = held
        return admitted

    def admit_all(self, events: Sequence[Event]) -> list[str]:
        """See `Bound.admit_all`."""
        if any(event.user is None for event in events):
            raise BadRecord(NO_USER)
        return [item for event in events for item in self.admit(event)]

    def forget(self) -> None:
        """See `Bound.forget`: every user may bring as much again."""
        self._held.clear()
        self.pairs = bytearray()


def _digest(keyed: "blake2b", text: str) -> bytes:
    digest = keyed.copy()
    digest.update(text.encode())
    return digest.digest()
