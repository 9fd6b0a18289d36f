"""What the members of the intake hand on, for each barrier and partition.  PRIVATE: frames hold labels.

A member writes one frame to each shard, an empty one too, over `<stream>.frames`; in parts, where it is large.  When
the broker has them all, it writes a head over `<stream>.heads`: what a whole log needs to know of this partition's part
of the round, and no label.  The worker seals a round when all heads are there, so every frame of a round stands before
its seal in each partition of the frames topic.

Both are functions of the noise key, the epoch, the partition and the round.  So an equal one that comes twice, from a
member that slept or went on from its state, is dropped, and another one refuses.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from stream_dp.engine.round_chain import head_before
from stream_dp.events.log_digest import PartDigest
from stream_dp.pipeline.frames import (
    LARGEST_FRAME,
    Frame,
    FrameRefused,
    FramesLost,
    decode_frame,
    owners_of,
    sealed,
)
from stream_dp.privacy.keyed_noise import KeyedNoise

FRAME_VERSION: Literal[3] = 3
HEAD_VERSION: Literal[1] = 1

_BYTES_BESIDE_LABEL = 16
_BYTES_OF_LETTER = 4  # at most, in UTF-8


class PartitionFrame(msgspec.Struct, frozen=True, array_like=True):
    """What one partition brings to one round of one shard: labels, and how often each was admitted.

    `head` is the partition's digest of the round, over the labels of all shards.
    """

    v: Literal[3]
    epoch: int
    nonce: bytes
    shard: int
    shards: int
    partition: int
    round: int
    part: int
    parts: int
    head: bytes
    labels: list[str]
    counts: list[int]


class PartitionHead(msgspec.Struct, frozen=True, array_like=True):
    """A partition's digest of a round, which the barrier of digest `barrier` closes.

    `round` is how many barriers have closed one since the epoch began; of those some are not counted (`CountedDays`),
    which have heads too, but no frames, and no part in the chain.
    `records`, `digest` and `last` are what the partition brings to the log's digest: see `PartDigest`.  Where it has no
    record in the round, the first is 0 and the others are empty.
    """

    v: Literal[1]
    epoch: int
    nonce: bytes
    partition: int
    round: int
    barrier: str
    head: bytes
    records: int
    digest: bytes
    last: bytes

    @property
    def in_log(self) -> list[PartDigest]:
        """What it brings to the log's digest."""
        return [PartDigest(self.partition, self.records, self.digest, self.last)] if self.records else []


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far the worker is: at the barrier of this number after the epoch's beginning.

    Members wait for it where they are far ahead; it decides about no byte.
    """

    v: Literal[1]
    nonce: bytes
    round: int


class _Versioned(msgspec.Struct, frozen=True, array_like=True):
    """What every record of every version begins with."""

    v: int


_VERSIONS = msgspec.msgpack.Decoder(_Versioned)
_FRAMES = msgspec.msgpack.Decoder(PartitionFrame)
_ENCODER = msgspec.msgpack.Encoder()
_HEADS = msgspec.msgpack.Decoder(PartitionHead)
_PROGRESS = msgspec.msgpack.Decoder(Progress)


def encode(record: PartitionFrame | PartitionHead | Progress) -> bytes:
    """The bytes of a record's value."""
    return _ENCODER.encode(record)


def decode_head(value: bytes | None) -> PartitionHead:
    """The head in a record's value; raises `FrameRefused` for anything else."""
    try:
        return _HEADS.decode(value or b"")
    except (msgspec.DecodeError, UnicodeError):
        raise FrameRefused(
            "the heads topic holds a record that is not a head of this version: only members of the intake may write "
            "there, and all of them must run the same version"
        ) from None


def decode_progress(value: bytes | None) -> Progress | None:
    """The progress in a record's value; None for anything else."""
    try:
        return _PROGRESS.decode(value or b"")
    except (msgspec.DecodeError, UnicodeError):
        return None


def decode_of_shard(value: bytes | None) -> Frame | PartitionFrame:
    """What stands in a shard's partition of the frames topic; raises `FrameRefused` for anything else."""
    try:
        if _VERSIONS.decode(value or b"").v == FRAME_VERSION:
            return _FRAMES.decode(value or b"")
    except (msgspec.DecodeError, UnicodeError):
        pass  # told by the next line
    return decode_frame(value)


class PartitionFrameWriter:
    """Cuts what one partition brings to a round into frames for all shards."""

    def __init__(self, epoch: int, nonce: bytes, partition: int, shards: int, noise: KeyedNoise) -> None:
        self._epoch, self._nonce, self._partition = epoch, nonce, partition
        self._shards, self._noise = shards, noise

    def frames(self, round_number: int, head: bytes, counts: Mapping[str, int]) -> Iterator[PartitionFrame]:
        """The frames of a round: at least one for each shard."""
        shared: list[list[str]] = [[] for _ in range(self._shards)]
        for label, owner in owners_of(counts, self._shards, self._noise).items():
            shared[owner].append(label)
        for shard, mine in enumerate(shared):
            pieces = list(_pieces(mine))
            for part, labels in enumerate(pieces, 1):
                yield PartitionFrame(
                    FRAME_VERSION,
                    self._epoch,
                    self._nonce,
                    shard,
                    self._shards,
                    self._partition,
                    round_number,
                    part,
                    len(pieces),
                    head,
                    labels,
                    [counts[label] for label in labels],
                )


def _pieces(labels: list[str]) -> Iterator[list[str]]:
    """The labels in pieces that each fit into a frame; one piece where there are none."""
    most = _BYTES_OF_LETTER * sum(map(len, labels)) + _BYTES_BESIDE_LABEL * len(labels)
    if most <= LARGEST_FRAME:  # spare the look at each of them
        yield labels
        return
    piece: list[str] = []
    size = 0
    for label in labels:
        takes = len(label.encode()) + _BYTES_BESIDE_LABEL
        if piece and size + takes > LARGEST_FRAME:
            yield piece
            piece, size = [], 0
        piece.append(label)
        size += takes
    yield piece


@dataclass
class _Held:
    """What has come of a partition's frames for one round, the first of them at `offset`."""

    offset: int
    first: PartitionFrame
    parts: dict[int, PartitionFrame] = field(default_factory=dict)

    def take(self, frame: PartitionFrame) -> None:
        if (frame.head, frame.parts) != (self.first.head, self.first.parts):
            raise FrameRefused(
                f"partition {frame.partition} was counted in two ways in round {frame.round}: another log, another key "
                "or another version; nothing is sent"
            )
        self.parts[frame.part] = frame

    @property
    def is_whole(self) -> bool:
        return len(self.parts) == self.first.parts


class FramesOfPartitions:
    """A shard's frames of partitions that wait for the seal of their round."""

    def __init__(self, noise: KeyedNoise, chain_rounds: int) -> None:
        """`chain_rounds`: see `RoundChain`."""
        self._noise, self._chain_rounds = noise, chain_rounds
        self._held: dict[int, dict[int, _Held]] = {}

    @property
    def first_offset(self) -> int | None:
        """Where the first frame stands that still waits; None if none does."""
        return min((each.offset for held in self._held.values() for each in held.values()), default=None)

    def add(self, offset: int, frame: PartitionFrame) -> None:
        """Keep a frame of a round that is not sealed yet.  Raises `FrameRefused` where it contradicts another one."""
        held = self._held.setdefault(frame.round, {})
        held.setdefault(frame.partition, _Held(offset, frame)).take(frame)

    def forget(self, reached: int) -> None:
        """The rounds up to `reached` are closed."""
        for number in [number for number in self._held if number <= reached]:
            del self._held[number]

    def joined(self, seal: Frame) -> Frame:
        """The rounds of a seal with the labels of all partitions; raises `FramesLost` where some are missing."""
        steps, labels, counts = list[int](), list[str](), list[int]()
        for step in range(seal.rounds):
            number = seal.first + step
            held = sorted(self._held.pop(number, {}).items())
            heads = [(partition, each.first.head) for partition, each in held]
            whole = all(each.is_whole for _, each in held)
            before = head_before(seal.head(number - 1), number, self._chain_rounds)
            if not whole or self._noise.join_history(before, number, heads) != seal.head(number):
                raise FramesLost(
                    f"round {number} was sealed, and the frames of its partitions do not reproduce it: frames were "
                    "lost, or the topic was changed; restore the frames topic, or open a new epoch, which is charged, "
                    "with --new-epoch"
                )
            for _, each in held:
                for part in each.parts.values():
                    steps += [step] * len(part.labels)
                    labels += part.labels
                    counts += part.counts
        return sealed(seal, steps, labels, counts)
