"""The hash chain over what rounds admit: the noise of a round is a function of the key and the chain head."""

from collections.abc import Sequence

from stream_dp.engine.admitted import Admitted, one_by_one
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise

Parts = Sequence[tuple[int, Sequence[str]]]
"""What a round admitted: partitions in order, each with its labels."""


def head_before(history: bytes, round_number: int, chain_rounds: int) -> bytes:
    """What a round's head follows: `history`, that of the round before, unless a chain begins anew with this round."""
    return EMPTY_HISTORY if (round_number - 1) % chain_rounds == 0 else history


def chain_heads(noise: KeyedNoise, history: bytes, first: int, rounds: Sequence[Admitted]) -> list[bytes]:
    """The heads of the hash chain after each of `rounds`, of which `first` follows `history`."""
    heads = []
    for round_number, admitted in enumerate(rounds, first):
        history = noise.extend_history(history, round_number, one_by_one(admitted))
        heads.append(history)
    return heads


class RoundChain:
    """The hash chain over what rounds admit, of one partition or of several.

    `history` is its head, and `heads` those of the partitions, where there are several: a host that reads one of them
    alone computes the same.  It begins anew after every `chain_rounds` rounds, with the number of the next one.
    """

    def __init__(
        self,
        noise: KeyedNoise,
        chain_rounds: int,
        history: bytes = EMPTY_HISTORY,
        heads: Sequence[bytes] = (),
    ) -> None:
        self.history, self.heads = history, tuple(heads)
        self._noise, self._rounds = noise, chain_rounds

    def extend(
        self, first: int, rounds: Sequence[Sequence[str]], parts: Sequence[Parts | None]
    ) -> list[bytes]:
        """The heads after each of `rounds`, of which `first` is the next one.

        `parts`: what each of them admitted by partition, None where there is only one.
        """
        found = []
        for number, (admitted, by_partition) in enumerate(zip(rounds, parts, strict=True), first):
            self.history = head_before(self.history, number, self._rounds)
            if (number - 1) % self._rounds == 0:
                self.heads = ()
            if by_partition is None:
                self.history = self._noise.extend_history(self.history, number, admitted)
            else:
                joined = [(place, self._extended(number, place, labels)) for place, labels in by_partition]
                self.history = self._noise.join_history(self.history, number, joined)
            found.append(self.history)
        return found

    def _extended(self, number: int, partition: int, admitted: Sequence[str]) -> bytes:
        heads = [*self.heads, *[EMPTY_HISTORY] * (partition + 1 - len(self.heads))]
        heads[partition] = self._noise.extend_partition(heads[partition], number, partition, admitted)
        self.heads = tuple(heads)
        return heads[partition]
