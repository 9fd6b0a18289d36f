"""The hash chain over what rounds admit: the noise of a round is a function of the key and the chain head."""

from collections.abc import Sequence

from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise

Parts = Sequence[tuple[int, Sequence[str]]]
"""What a round admitted: partitions in order, each with its labels."""


PartDigests = Sequence[tuple[int, bytes]]
"""What the partitions of a round bring to the chain, in order."""

_CELLS = 2**64 - 1
"""Stands for the partition of what a round adds to the cells beside the labels."""


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
        parts = [(number, *part) for number, each in enumerate(rounds, first) for part in each]
        found = iter(self._noise.part_digests(parts))
        digests = [[(partition, next(found)) for partition, _ in each] for each in rounds]
        return self.join(first, digests, cells)

    def join(
        self, first: int, rounds: Sequence[PartDigests], cells: Sequence[tuple[int, int]] = ()
    ) -> list[bytes]:
        """The same from the digests of the parts of each round."""
        noise, heads = self._noise, list[bytes]()
        if cells:
            of_cells = noise.part_digests(
                [
                    (number, _CELLS, {"units": units, "over the cap": over})
                    for number, (units, over) in enumerate(cells, first)
                ]
            )
            rounds = [[*parts, (_CELLS, digest)] for parts, digest in zip(rounds, of_cells, strict=True)]
        while len(heads) < len(rounds):
            done = (first + len(heads) - 1) % self._rounds
            before = self.history if done else EMPTY_HISTORY
            following = rounds[len(heads) : len(heads) + self._rounds - done]
            heads += noise.join_histories(before, first + len(heads), following)
            self.history = heads[-1]
        return heads
