"""Frames: rounds as the sequencer hands them to the shards, over `<stream>.frames`.  PRIVATE: they hold labels.

A frame holds a range of consecutive rounds as one shard sees them: of every round the head of the hash chain over all
labels of all shards, from which noise is drawn, and the labels that fall to this shard, if any.  Every shard gets a
frame for every round.  Frames of equal rounds say the same however the rounds are cut into ranges, so a shard may
skip what it has and take the rest.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from stream_dp.errors import Refused
from stream_dp.pipeline.intake import ClosedRounds
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise

VERSION = 1
SEAL_VERSION = 2
"""Of a frame without labels: what the partitions admitted came in frames of their own (partition_frames.py)."""

LARGEST_FRAME = 900_000
"""About this many bytes of labels end a frame, to stay below Kafka's default limit of a message."""

_HEAD = len(EMPTY_HISTORY)
_BYTES_BESIDE_LABEL = 16
_TIMESTAMP = np.dtype("<i8")


class FrameRefused(Refused):
    """A shard cannot go on with what the frames topic holds; the message says what to do."""


class FramesLost(FrameRefused):
    """Rounds are missing between what a shard has counted and its next frame."""


class Frame(msgspec.Struct, frozen=True, array_like=True):
    """The rounds from `first` on for one of `shards` shards.

    `before` is the head of the hash chain before them, `heads` the 32 bytes after each of them, one after the other,
    `closed` when each was closed: 8 bytes, milliseconds since 1970, little-endian.
    Round first + steps[i] admitted labels[i] counts[i] times; steps grow.
    A single round that is too large for one frame comes in `parts`, each with some of its labels.
    `ends`: what is released up to here may end a batch, because the place follows from public facts (framing.py).
    """

    v: int
    epoch: int
    nonce: bytes
    shard: int
    shards: int
    first: int
    part: int
    parts: int
    before: bytes
    heads: bytes
    closed: bytes
    steps: list[int]
    labels: list[str]
    counts: list[int]
    ends: bool = True

    @property
    def rounds(self) -> int:
        """How many rounds it holds."""
        return len(self.heads) // _HEAD

    @property
    def last(self) -> int:
        """The last round that it holds."""
        return self.first + self.rounds - 1

    @property
    def timestamps(self) -> list[int]:
        """When each round was closed, milliseconds since 1970."""
        return list(np.frombuffer(self.closed, _TIMESTAMP).tolist())

    def head(self, round_number: int) -> bytes:
        """The hash chain's head after a round from first - 1 to `last`."""
        if round_number == self.first - 1:
            return self.before
        place = (round_number - self.first) * _HEAD
        return self.heads[place : place + _HEAD]

    def histories(self) -> list[bytes]:
        """The hash chain's heads after each of the rounds."""
        return [self.heads[place : place + _HEAD] for place in range(0, len(self.heads), _HEAD)]

    def admitted(self) -> list[dict[str, int]]:
        """How often each round admitted each of its labels."""
        rounds: list[dict[str, int]] = [{} for _ in range(self.rounds)]
        for step, label, count in zip(self.steps, self.labels, self.counts, strict=True):
            admitted = rounds[step]
            admitted[label] = admitted.get(label, 0) + count
        return rounds

    def after(self, round_number: int) -> "Frame":
        """The rest of this frame, from the round after `round_number` on; raises ValueError where nothing is left."""
        gone = max(0, round_number + 1 - self.first)
        if gone >= self.rounds:
            raise ValueError(f"a frame up to round {self.last} holds nothing after round {round_number}")
        if not gone:
            return self
        start = bisect_left(self.steps, gone)
        return msgspec.structs.replace(
            self,
            first=self.first + gone,
            before=self.head(self.first + gone - 1),
            heads=self.heads[gone * _HEAD :],
            closed=self.closed[gone * _TIMESTAMP.itemsize :],
            steps=[step - gone for step in self.steps[start:]],
            labels=self.labels[start:],
            counts=self.counts[start:],
        )

    def joined(self, parts: Sequence["Frame"]) -> "Frame":
        """This frame with the labels of all `parts` of its only round."""
        return msgspec.structs.replace(
            self,
            part=1,
            parts=1,
            steps=[step for each in parts for step in each.steps],
            labels=[label for each in parts for label in each.labels],
            counts=[count for each in parts for count in each.counts],
        )


_DECODER = msgspec.msgpack.Decoder(Frame)
_ENCODER = msgspec.msgpack.Encoder()


def encode_frame(frame: Frame) -> bytes:
    """The bytes of a record's value."""
    return _ENCODER.encode(frame)


def decode_frame(value: bytes | None) -> Frame:
    """The frame in a record's value; raises `FrameRefused` for anything else."""
    try:
        frame = _DECODER.decode(value or b"")
    except (msgspec.DecodeError, UnicodeError):
        raise FrameRefused(
            "the frames topic holds a record that is not a frame: only the sequencer may write there"
        ) from None
    if frame.v not in (VERSION, SEAL_VERSION):
        raise FrameRefused(
            f"the sequencer writes frames of version {frame.v} and this program reads up to {SEAL_VERSION}: "
            "run the same version everywhere"
        )
    return frame


def shards_of(ids: NDArray[np.uint64], shards: int) -> NDArray[np.int64]:
    """Which shard owns each label, from the keyed identities of `KeyedNoise.label_ids`, shape (n, 2).

    It is the first word of the identity modulo `shards`: without the key nobody can tell where a label would be.
    """
    return (ids[:, 0] % np.uint64(shards)).astype(np.int64)


def owners_of(labels: Iterable[str], shards: int, noise: KeyedNoise) -> dict[str, int]:
    """Which shard owns each of these labels, all of them different."""
    known = list(labels)
    ids = noise.label_ids(label.encode() for label in known)
    return dict(zip(known, shards_of(ids, shards).tolist(), strict=True))


def seal(
    epoch: int,
    nonce: bytes,
    shards: int,
    first: int,
    before: bytes,
    heads: Sequence[bytes],
    closed: Sequence[int],
) -> Iterator[Frame]:
    """For each shard, the frame that says that the rounds from `first` on are whole; see `FrameWriter.frames`."""
    times = np.array(closed, _TIMESTAMP).tobytes()
    for shard in range(shards):
        yield Frame(
            SEAL_VERSION, epoch, nonce, shard, shards, first, 1, 1, before, b"".join(heads), times, [], [], []
        )


def sealed(frame: Frame, steps: list[int], labels: list[str], counts: list[int]) -> Frame:
    """The frame that a seal and the frames of its partitions make together."""
    return msgspec.structs.replace(frame, v=VERSION, steps=steps, labels=labels, counts=counts)


class _Hit(NamedTuple):
    """A label that a round of a range admitted, and how often."""

    step: int
    label: str
    times: int


class FrameWriter:
    """Cuts rounds of one epoch into frames for `shards` shards."""

    def __init__(self, epoch: int, nonce: bytes, shards: int, noise: KeyedNoise) -> None:
        self._epoch, self._nonce, self._shards, self._noise = epoch, nonce, shards, noise

    def frames(
        self, first: int, before: bytes, heads: Sequence[bytes], closed: ClosedRounds
    ) -> Iterator[Frame]:
        """The frames of the rounds from `first` on: for each range of them, one for every shard.

        `before` and `heads` are the heads of the hash chain before them and after each of them.
        """
        counted = [Counter(admitted) for admitted in closed.admitted]
        owners = self._owners(counted)
        ends = np.cumsum([_bytes_of(labels) for labels in counted])
        start = 0
        while start < len(counted):
            reach = LARGEST_FRAME + (int(ends[start - 1]) if start else 0)
            end = max(start + 1, bisect_right(ends, reach))
            hits = [
                _Hit(step, label, times)
                for step, labels in enumerate(counted[start:end])
                for label, times in labels.items()
            ]
            held = b"".join(heads[start:end])
            times = np.array(closed.timestamps[start:end], _TIMESTAMP).tobytes()
            pieces = _pieces(hits)
            for part, piece in enumerate(pieces, 1):
                for shard, mine in enumerate(self._shared_out(piece, owners)):
                    yield Frame(
                        VERSION,
                        self._epoch,
                        self._nonce,
                        shard,
                        self._shards,
                        first + start,
                        part,
                        len(pieces),
                        heads[start - 1] if start else before,
                        held,
                        times,
                        [hit.step for hit in mine],
                        [hit.label for hit in mine],
                        [hit.times for hit in mine],
                    )
            start = end

    def _owners(self, counted: Sequence[Counter[str]]) -> dict[str, int]:
        labels = dict.fromkeys(label for labels in counted for label in labels)
        return owners_of(labels, self._shards, self._noise)

    def _shared_out(self, hits: Sequence[_Hit], owners: dict[str, int]) -> list[list[_Hit]]:
        owned: list[list[_Hit]] = [[] for _ in range(self._shards)]
        for hit in hits:
            owned[owners[hit.label]].append(hit)
        return owned


def _bytes_of(labels: Counter[str]) -> int:
    """About what a round takes in a frame, if one shard owned all of its labels."""
    heads = _HEAD + _TIMESTAMP.itemsize
    return heads + sum(len(label.encode()) + _BYTES_BESIDE_LABEL for label in labels)


def _pieces(hits: list[_Hit]) -> list[list[_Hit]]:
    """The hits in pieces that each fit into a frame: one, unless they are those of a single, very large round."""
    sizes = np.cumsum([len(hit.label.encode()) + _BYTES_BESIDE_LABEL for hit in hits])
    pieces: list[list[_Hit]] = []
    start = 0
    while start < len(hits) or not pieces:
        reach = LARGEST_FRAME + (int(sizes[start - 1]) if start else 0)
        end = max(start + 1, bisect_right(sizes, reach))
        pieces.append(hits[start:end])
        start = end
    return pieces
