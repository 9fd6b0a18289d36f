"""The hash chain over what rounds admit: the noise of a round is a function of the key and the chain head."""

from collections.abc import Iterable, Sequence

from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, Admitted, KeyedNoise

Parts = Sequence[tuple[int, Sequence[str]]]
"""What a round admitted: partitions in order, each with its labels."""


PartDigests = Sequence[tuple[int, bytes]]
"""What the partitions of a round bring to the chain, in order."""

_CELLS = 2**64 - 1
"""Stands for the partition of what a round adds to the cells beside the labels."""


def chain_heads(noise: KeyedNoise, history: bytes, first: int, rounds: Sequence[Admitted]) -> list[bytes]:
    """The heads after each of `rounds` of a log with one partition, of which `first` follows `history`."""
    heads = []
    for round_number, admitted in enumerate(rounds, first):
        history = noise.extend_history(history, round_number, admitted)
        heads.append(history)
    return heads


class RoundChain:
    """The hash chain over what rounds admit, whose head is `history`.

    Each partition has a digest of what it brings to a round; those of all partitions make the next head.  The chain
    begins anew after every `chain_rounds` rounds, with the number of the next one.
    """

    def __init__(self, noise: KeyedNoise, chain_rounds: int, history: bytes = EMPTY_HISTORY) -> None:
        self.history = history
        self._noise, self._rounds = noise, chain_rounds

    def extend(
        self, first: int, rounds: Sequence[Parts], cells: Sequence[tuple[int, int]] = ()
    ) -> list[bytes]:
        """The heads after each of `rounds`, of which `first` is the next one; `cells`: what each adds to those."""
        noise = self._noise
        digests: Iterable[PartDigests] = (
            [(partition, noise.part_digest(number, partition, labels)) for partition, labels in parts]
            for number, parts in enumerate(rounds, first)
        )
        return self.join(first, digests, cells)

    def join(
        self, first: int, rounds: Iterable[PartDigests], cells: Sequence[tuple[int, int]] = ()
    ) -> list[bytes]:
        """The same from the digests of the parts of each round."""
        noise, heads = self._noise, []
        if cells:
            of_cells = (
                noise.part_digest(number, _CELLS, {"units": units, "over the cap": over})
                for number, (units, over) in enumerate(cells, first)
            )
            rounds = ([*parts, (_CELLS, digest)] for parts, digest in zip(rounds, of_cells, strict=True))
        for number, digests in enumerate(rounds, first):
            before = EMPTY_HISTORY if (number - 1) % self._rounds == 0 else self.history
            self.history = noise.join_history(before, number, digests)
            heads.append(self.history)
        return heads
