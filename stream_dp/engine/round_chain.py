"""The hash chain over what rounds admit: the noise of a round is a function of the key and the chain head."""

from collections.abc import Sequence

from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, Admitted, KeyedNoise

Parts = Sequence[tuple[int, Sequence[str]]]
"""What a round admitted: partitions in order, each with its labels."""


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

    def extend(self, first: int, rounds: Sequence[Parts]) -> list[bytes]:
        """The heads after each of `rounds`, of which `first` is the next one."""
        heads, noise = [], self._noise
        for number, parts in enumerate(rounds, first):
            before = EMPTY_HISTORY if (number - 1) % self._rounds == 0 else self.history
            digests = [
                (partition, noise.part_digest(number, partition, labels)) for partition, labels in parts
            ]
            self.history = noise.join_history(before, number, digests)
            heads.append(self.history)
        return heads
