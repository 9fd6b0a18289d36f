"""Writes releases as bytes: whole blocks of rounds at once, from the columns that the histogram gives."""

from collections.abc import Sequence
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from stream_dp.config.times import iso_timestamp
from stream_dp.counters.calibration import Guarantee
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.engine.histogram import ReleasedBlock
from stream_dp.privacy.release_tags import ReleaseTags
from stream_dp.releases.release import LARGEST_PART, SHARD_FIELD, VERSION


class ReleaseEncoder:
    """Writes the releases of one epoch.  Equal snapshots and timestamps give equal bytes, however cut into blocks."""

    def __init__(
        self,
        stream: str,
        epoch: int,
        nonce: bytes,
        mechanism: CalibratedCounter,
        guarantee: Guarantee,
        shard: tuple[int, int] | None = None,
        tags: ReleaseTags | None = None,
    ) -> None:
        """`shard`: which one of how many writes these releases; None for a worker that has the stream alone.

        `tags`: None for an epoch whose releases name neither their tag nor the release before them.
        """
        self._tags = tags
        self._mechanism = mechanism
        self._parts = PartEncoder()
        promise = {
            "unit": guarantee.unit,
            "mechanism": mechanism.name,
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "rho": guarantee.rho,
            "items_per_event": mechanism.items_per_event,
        }
        if guarantee.unit == "user":
            promise["items_per_user"] = mechanism.items_per_event
        if mechanism.shown != "each-round":  # which releases did not name before there was another rule
            promise["shown"] = mechanism.shown
        self._epoch = _fields({"v": VERSION, "stream": stream, "epoch": epoch, "nonce": nonce.hex()})
        self._horizon = _fields({"horizon": mechanism.horizon})
        self._promise = _fields(promise)
        self._shard = "" if shard is None else f'{SHARD_FIELD.decode()}{shard[0]},"shards":{shard[1]}'

    def encode(self, block: ReleasedBlock, timestamps: Sequence[int], previous: int = 0) -> list[list[bytes]]:
        """The parts of each round's release; its round `rounds[i]` was closed at `timestamps[i]`.

        `previous`: the round that was released before the first of them, 0 if there was none.
        """
        rounds = block.rounds
        sds, taus = self._mechanism.sds(rounds).tolist(), self._mechanism.taus(rounds).tolist()
        openings = [
            f'{{{self._epoch},"round":{number},{self._horizon},"ts":"{iso_timestamp(timestamp)}",{proof}'
            f"{self._promise},{_noise_fields(sd, tau)}{self._shard}".encode()
            for number, timestamp, proof, sd, tau in zip(
                rounds.tolist(), timestamps, self._proofs(block, previous), sds, taus, strict=True
            )
        ]
        return self._parts.encode(block, openings)

    def _proofs(self, block: ReleasedBlock, previous: int) -> list[str]:
        """The fields of each release that link it to the one before and to the log."""
        rounds, tags = block.rounds.tolist(), self._tags
        if tags is None:
            return [""] * len(rounds)
        return [
            f'"previous":{before},"tag":"{tags.tag(number, head)}",'
            for (before, number), head in zip(pairwise([previous, *rounds]), block.heads, strict=True)
        ]


def _binaries(values: list[bytes]) -> pa.LargeBinaryArray:
    """An Arrow column of these values.

    From buffers, like `_integers`: `pa.array` would import pandas where there is one, and every worker would wait.
    """
    edges = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=edges[1:])
    return pa.Array.from_buffers(
        pa.large_binary(), len(values), [None, pa.py_buffer(edges), pa.py_buffer(b"".join(values))]
    )


def _integers(values: NDArray[Any]) -> pa.Array:
    """An Arrow column of these integers, shape (n,)."""
    kind = pa.from_numpy_dtype(values.dtype)
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(np.ascontiguousarray(values))])


class PartEncoder:
    """Writes the labels and counts of releases behind openings that say everything else."""

    def __init__(self) -> None:
        self._labels: NDArray[np.object_] | None = None
        self._quoted = _binaries([])

    def encode(self, block: ReleasedBlock, openings: Sequence[bytes]) -> list[list[bytes]]:
        """The parts of each round's release; an opening is the JSON of a release up to the field `part`.

        The labels' JSON is gathered for the whole block at once: each label is quoted once, with its comma.
        """
        if block.labels is not self._labels:
            self._labels = block.labels
            self._quoted = _binaries([orjson.dumps(label) + b"," for label in block.labels])
        gathered = pc.take(self._quoted, _integers(block.ranks), boundscheck=False)
        edges = np.frombuffer(gathered.buffers()[1], np.int64)
        columns = _Columns(memoryview(gathered.buffers()[2] or b""), edges, block.counts)
        ends = np.cumsum(block.sizes)
        places = zip(openings, (ends - block.sizes).tolist(), ends.tolist(), strict=True)
        return [_parts(opening, columns.pieces(start, end)) for opening, start, end in places]


def _parts(opening: bytes, pieces: Sequence[tuple[memoryview, bytes]]) -> list[bytes]:
    """The parts of one release, each with its piece of the columns."""
    number = len(pieces)
    return [
        b"".join(
            (
                opening,
                b',"part":%d,"parts":%d,"labels":[' % (part, number),
                labels,
                b'],"counts":',
                counts,
                b"}",
            )
        )
        for part, (labels, counts) in enumerate(pieces, 1)
    ]


@lru_cache(maxsize=1024)
def _noise_fields(sd: float, tau: int) -> str:
    return _fields({"sd": sd, "tau": tau})


def _fields(values: dict[str, Any]) -> str:
    """The inside of a JSON object."""
    return orjson.dumps(values).decode()[1:-1]


class _Columns(NamedTuple):
    """The releases of a block: label i is `quoted[edges[i] : edges[i + 1]]`, a comma at its end, with `counts[i]`."""

    quoted: memoryview
    edges: NDArray[np.int64]
    counts: NDArray[Any]

    def pieces(self, start: int, end: int) -> list[tuple[memoryview, bytes]]:
        """The two columns of labels `start` to before `end` as JSON, halved until each piece fits into a part."""
        first = self.edges.item(start)
        labels = self.quoted[first : max(first, self.edges.item(end) - 1)]
        counts = orjson.dumps(self.counts[start:end], option=orjson.OPT_SERIALIZE_NUMPY)
        if len(labels) + len(counts) <= LARGEST_PART or end - start == 1:
            return [(labels, counts)]
        middle = (start + end) // 2
        return self.pieces(start, middle) + self.pieces(middle, end)
