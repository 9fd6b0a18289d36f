"""The Binary Mechanism with every node estimated from its whole subtree: the same noisy sums, a smaller variance.

Source: Honaker, "Efficient Use of Differentially Private Binary Trees" (2015), estimation from the bottom up.

Estimates.  All nodes of the dyadic tree get a noisy sum: round l completes one of each level 0..level_of(l), and the
node of level k that ends at l has the halves that end at l - 2^(k-1) and at l.  With y_k the noisy sum of a node and
Z_k ~ N_Z(0, s2) its noise, put

    F_0 = y_0,    F_k = 2^k y_k + F_(left half) + F_(right half),    M_k = 2^(k+1) - 1.

F_k / M_k is the best linear unbiased estimate of the node's count from its subtree: the weights 2^k / M_k of the own
sum and 1 - 2^k / M_k of the halves' estimates minimise the variance, which becomes 2^k / M_k times that of one draw,
against 1 in the Binary Mechanism.  F is an integer, and the true count c of the node enters it as exactly M_k c.

Releases.  The noise of the prefix 1..l is the sum over the nodes of chain(l) of F_k(noise) / M_k, each rounded to the
nearest multiple of 2^-12, and the sum rounded to the nearest integer, halves up.  As M_k c / M_k = c, the noisy count
is a function of the noisy sums alone, computed in integers: nothing is lost to rounding, and nothing needs to be
charged for it.  The table of N_Z(0, s2) keeps |Z| < 14 s + 2, so that |F_k| < (k + 1) 2^k (14 s + 2): up to horizon
2^24 and s = 10^5, the largest there are, 2^12 F stays below 2^62 and a noise below 2^28.

Sensitivity.  A round is in one node of each level, so in at most h = horizon.bit_length(): rho = D0 h / (2 s2).

Labels that come late.  F_k of a node is built by 2 (2^k - 1) sums of two terms in the sense of the lemma in
privacy/wide_gaussian.py: F_(k-1) of both halves have the variance parameter s2 2^(k-1) M_(k-1) each, so that adding
them has r2 = s2 2^(k-1) M_(k-1) / 2 >= s2 / 2, and adding 2^k Z has r2 = s2 M_(k-1) / M_k >= s2 / 3.  From s2 = 12 on
both are at least 4, and so F_k has the law N_Z(0, s2 2^k M_k), and those of different nodes of a chain are
independent.  A label first seen at round t draws them directly, by a few draws each with lanes of round t.  It never
needs the noise inside those nodes.  The same draws carry labels over rounds that they skip.

Threshold.  Say that all F_k have exactly the laws above (probabilities are off by a relative 1e-26), and let G_k ~
N(0, q) be independent of them, q = 12 / 23.  The density of F_k + G_k is that of N(0, s2 2^k M_k + q) times at most
1.000104: complete the square as in the lemma, where r2 >= 1/2, for the other variance is at least 12.  Write A for the
sum of 2^k / M_k and B for the sum of 1 / M_k^2 over the chain of at most 25 nodes.  The sum of G_k / M_k is at least
-2 sqrt(q B) with probability Phi(2), so

    P(sum of F_k / M_k >= y) Phi(2)  <=  1.003 Phibar((y - 2 sqrt(q B)) / sqrt(s2 A + q B)).

The draws are sub-Gaussian, too: the probability is at most exp(-y^2 / (2 s2 A)).  Take the smaller y of the two at
which a bound is d / (D0 L).  Rounding adds at most 1/2, and 2^-13 per node: tau = 1 + ceil(y + 1/2 + nodes / 2^13).
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import log, sqrt
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from stream_dp.counters.binary import chain, levels, shared_bits
from stream_dp.counters.discrete import DiscreteCounter
from stream_dp.counters.escapes import equal_share, level_shares
from stream_dp.counters.noise_shape import Matrix, NoiseShape, Step
from stream_dp.counters.protocol import Column, CounterState, Enumerated, EpochParameters, Hits, grown
from stream_dp.privacy.discrete_gaussian import DiscreteGaussian, variance
from stream_dp.privacy.keyed_noise import KeyedNoise
from stream_dp.privacy.wide_gaussian import LEAST_SIGMA_SQUARED, square_factors

_FRACTION_BITS = 12
_FIRST_SHARED_LANE = 64
"""Lanes 0..24 of a round are its nodes' draws, by level; from this one on, those of labels that start or skip to it."""

_SMOOTHING = 12 / 23  # q
_SMOOTHED_TAIL = 0.974  # at most Phi(2) / 1.003


def level_of(node: int) -> int:
    """log2 of the number of rounds that the node which round `node` completes last covers."""
    return (node & -node).bit_length() - 1


class HonakerMechanism(DiscreteCounter, frozen=True, tag="honaker"):
    """The counter with its noise and thresholds fixed.

    An escape is as rare as it must be from `deviations` standard deviations on by the smoothed tail, and from
    `sub_gaussian_deviations` on by the sub-Gaussian one.  Where labels are kept, `deviations_by_level` holds the two
    for the rounds of each level.
    """

    deviations: float
    sub_gaussian_deviations: float
    deviations_by_level: tuple[tuple[float, float], ...] = ()

    least_sigma_squared: ClassVar[float] = LEAST_SIGMA_SQUARED
    draws_per_round: ClassVar[int] = 2
    rounding: ClassVar[float] = 1 / 12
    golden_digest: ClassVar[str] = "8bc7702abf0d4bdf1ee345f3a78e2a18"
    enumerated: ClassVar[Enumerated] = Enumerated(rounds=2, noise=12.0, epsilon=0.5)

    @classmethod
    def of(cls, parameters: EpochParameters, sigma_squared: float) -> "HonakerMechanism":
        """See `DiscreteCounter.of`: equal shares, or where labels are kept more for rounds of few nodes.

        Raises ValueError where sigma_squared is below 12.
        """
        if sigma_squared < LEAST_SIGMA_SQUARED:
            raise ValueError(
                f"honaker needs noise of variance at least {LEAST_SIGMA_SQUARED:g}, not {sigma_squared:g}: "
                "raise sigma_squared or choose another mechanism"
            )
        fields = asdict(parameters) | {"sigma_squared": sigma_squared}
        if parameters.shown == "each-round":
            deviations, sub_gaussian = _deviations(equal_share(parameters))
            return cls(**fields, deviations=deviations, sub_gaussian_deviations=sub_gaussian)
        by_level = tuple(map(_deviations, level_shares(parameters)))
        return cls(**fields, deviations=0.0, sub_gaussian_deviations=0.0, deviations_by_level=by_level)

    @staticmethod
    def nodes_per_event(horizon: int) -> int:
        """How many noisy sums one item of one event can change, each by 1."""
        return levels(horizon)

    @staticmethod
    def start_draws(horizon: int) -> int:
        """At most so many draws does a label take in the round where it starts: 2 k + 8 for a node of level k."""
        return levels(horizon) * (levels(horizon) + 8)

    @classmethod
    def noise_shape(cls, horizon: int) -> NoiseShape:
        return NoiseShape(_covariances, tuple(level_shares(EpochParameters(horizon, 1, 1.0))))

    @classmethod
    def noise_state(cls, horizon: int) -> "HonakerState":
        return HonakerState(horizon)

    def taus(self, rounds: NDArray[np.int64]) -> NDArray[np.int32]:
        """The least noisy count by which a label is shown in each of `rounds`."""
        variances, squares = _chain_sums(rounds, levels(self.horizon)).T
        both = self.deviations_by_level or ((self.deviations, self.sub_gaussian_deviations),)
        level = np.bitwise_count((rounds & -rounds) - 1) if self.deviations_by_level else 0
        deviations, sub_gaussian_deviations = np.array(both)[level].T
        smoothing = _SMOOTHING * squares
        smoothed = 2 * np.sqrt(smoothing) + deviations * np.sqrt(self.sigma_squared * variances + smoothing)
        sub_gaussian = sub_gaussian_deviations * np.sqrt(self.sigma_squared * variances)
        rounding = 0.5 + np.bitwise_count(rounds) * 2.0 ** -(_FRACTION_BITS + 1)
        reach = np.minimum(smoothed, sub_gaussian) + rounding + 1e-9
        return (1 + np.ceil(reach)).astype(np.int32)

    def sds(self, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """The standard deviation of every count released in each of `rounds`.

        The last rounding adds the variance of a uniform multiple of 1 / M, M that of the largest node of the chain.
        """
        variances = _chain_sums(rounds, levels(self.horizon))[:, 0]
        largest = np.ldexp(1.0, np.frexp(rounds)[1]) - 1
        return np.sqrt(variance(self.sigma_squared) * variances + (1 - largest**-2) / 12)

    def drifts(self, start: int, rounds: NDArray[np.int64]) -> NDArray[np.float64]:
        """See `CalibratedCounter.drifts`.

        Where k is the highest bit that `start` and the later round do not share, their nodes above are the same, and
        those of `start` below are parts of the later one's node of level k.  The F of a part enters that of the whole
        once, so that the covariance of their estimates is 2^j / M_k for a part of level j, start mod 2^k / M_k in all.
        """
        highest = np.frexp(rounds ^ start)[1]  # k + 1
        parts = np.full_like(rounds, start) & ((1 << highest - 1) - 1)
        shared, before, after = (
            _chain_sums(nodes, levels(self.horizon))[:, 0]
            for nodes in (start >> highest << highest, np.full_like(rounds, start), rounds)
        )
        covariance = shared + parts / ((1 << highest) - 1)
        return np.sqrt(variance(self.sigma_squared) * (before + after - 2 * covariance))

    def counter(self, noise: KeyedNoise) -> "HonakerCounter":
        """A counter at round 0, without labels."""
        return HonakerCounter(noise, DiscreteGaussian(self.sigma_squared))


def _deviations(share: float) -> tuple[float, float]:
    """From how many standard deviations on each of the two tails is at most `share`."""
    return -float(ndtri(_SMOOTHED_TAIL * share)) * (1 + 1e-9), sqrt(-2 * log(share))


def _chain_sums(rounds: NDArray[np.int64], levels_: int) -> NDArray[np.float64]:
    """The sums of 2^k / M_k and of 1 / M_k^2 over the levels k of each round's chain, float64 of shape (rounds, 2).

    Rounded up to multiples of 2^-40, so that the sums are exact, whatever their order, on every machine.
    """
    level = np.arange(levels_)
    divisors = 2.0 ** (level + 1) - 1
    terms = np.stack([2.0**level / divisors, divisors**-2.0], axis=1)
    bits = (rounds[:, None] >> level) & 1
    return bits.astype(np.float64) @ (np.ceil(terms * 2.0**40) * 2.0**-40)


def _covariances(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> NDArray[np.float64]:
    """As of the Binary Mechanism, with 2^k / M_k for a node of level k; where the later round has a node of level k
    that the earlier one is inside of, each of the earlier one's parts of level j adds 2^j / M_k.
    """
    below = shared_bits(earlier, later)
    common, level = earlier >> below << below, np.arange(25)
    bits = ((common[..., np.newaxis] >> level) & 1).astype(np.float64)
    nodes: NDArray[np.float64] = bits @ (2.0**level / (2.0 ** (level + 1) - 1))
    return nodes + (earlier - common) / np.maximum(2.0**below - 1, 1)


@dataclass
class _Node:
    """A live node over all labels, int64 of shape (capacity,): `scaled` is its F, `prefix` the noise up to its end."""

    round: int
    scaled: NDArray[np.int64]
    prefix: NDArray[np.int64]


class HonakerCounter:
    """The live nodes of all labels, by level."""

    def __init__(self, noise: KeyedNoise, gaussian: DiscreteGaussian) -> None:
        self._noise = noise
        self._gaussian = gaussian
        self._history = b""
        self._live: dict[int, _Node] = {}
        self.round = 0
        self.labels = 0

    def advance(
        self,
        ids: NDArray[np.uint64],
        histories: Sequence[bytes],
        hits: Hits,
        first_seen: NDArray[np.int64],
        wanted: NDArray[np.int64] | None = None,
    ) -> NDArray[np.int32]:
        """See `Counter.advance`.  Noise exists in every round, also before a label is first seen."""
        old, self.labels = self.labels, len(ids)
        for node in self._live.values():
            node.scaled, node.prefix = grown(node.scaled, self.labels), grown(node.prefix, self.labels)
        starts = {int(start): old + np.flatnonzero(first_seen == start) for start in np.unique(first_seen)}
        self._start(starts.get(self.round), ids)
        first = self.round + 1
        tweaks = [
            self._noise.tweak(round_number, lane, history)
            for round_number, history in enumerate(histories, first)
            for lane in range(level_of(round_number) + 1)
        ]
        draws = self._noise.draw(self._gaussian, ids, tweaks)
        noise = np.empty((len(histories), self.labels), np.int32)
        used = 0
        for row, history in enumerate(histories):
            self.round += 1
            self._history = history
            level = level_of(self.round)
            self._complete(level, draws[used : used + level + 1])
            used += level + 1
            self._start(starts.get(self.round), ids)
            noise[row] = self.current()
        return noise if wanted is None else noise[wanted - first]

    def current(self) -> NDArray[np.int32]:
        """See `Counter.current`."""
        if not self.round:
            return np.zeros(self.labels, np.int32)
        total = self._live[level_of(self.round)].prefix[: self.labels] + (1 << (_FRACTION_BITS - 1))
        total >>= _FRACTION_BITS
        return total.astype(np.int32)

    def subset(self, rows: NDArray[np.int64]) -> "HonakerCounter":
        """See `Counter.subset`."""
        part = HonakerCounter(self._noise, self._gaussian)
        part.round, part.labels, part._history = self.round, len(rows), self._history
        part._live = {
            level: _Node(node.round, node.scaled[rows], node.prefix[rows])
            for level, node in self._live.items()
        }
        return part

    def join(self, others: "HonakerCounter") -> None:
        """See `Counter.join`."""
        old, self.labels = self.labels, self.labels + others.labels
        for level, node in self._live.items():
            theirs = others._live[level]
            node.scaled, node.prefix = grown(node.scaled, self.labels), grown(node.prefix, self.labels)
            node.scaled[old : self.labels] = theirs.scaled[: others.labels]
            node.prefix[old : self.labels] = theirs.prefix[: others.labels]

    def follow(
        self, ahead: "HonakerCounter", rows: NDArray[np.int64], ids: NDArray[np.uint64], history: bytes
    ) -> None:
        """See `Counter.follow`: the rounds between are the union of a few nodes, each drawn at once."""
        target, lane = ahead.round, _FIRST_SHARED_LANE
        while self.round < target:
            level = (target - self.round).bit_length() - 1
            if self.round:
                level = min(level, level_of(self.round))
            self.round += 1 << level
            top = level_of(self.round)
            factors = [*self._factors(level), *(1 << j for j in range(level + 1, top + 1))]
            scaled = self._combine(factors, ids, target, lane, history)
            lane += len(factors)
            for j in range(level, top):
                scaled += self._live.pop(j).scaled[: self.labels]
            self._live[top] = _Node(self.round, scaled, np.empty_like(scaled))
        self._history = history
        for level, node in self._live.items():
            node.scaled[rows] = ahead._live[level].scaled[: len(rows)]
        self._add_up(slice(self.labels))

    def state(self) -> CounterState:
        """One column for each live node, by level; `tweaks` holds the history's head, for labels that start here."""
        columns = [
            Column(f"estimate:{level}", node.round, node.scaled[: self.labels])
            for level, node in sorted(self._live.items())
        ]
        return CounterState(self.round, columns, {self.round: self._history})

    def restore(self, state: CounterState, labels: int) -> None:
        """See `Counter.restore`."""
        cells = {column.name: column.cells for column in state.columns}
        self.round, self.labels = state.round, labels
        self._history = state.tweaks.get(state.round, b"")
        self._live = {}
        for node in chain(state.round):
            scaled = cells[f"estimate:{level_of(node)}"].astype(np.int64)
            self._live[level_of(node)] = _Node(node, scaled, np.empty_like(scaled))
        self._add_up(slice(labels))

    def _complete(self, level: int, draws: NDArray[np.int32]) -> None:
        """The nodes up to `level` that the round completes; the last of them stays."""
        scaled = draws[0].astype(np.int64)
        for j in range(1, level + 1):
            scaled += self._live.pop(j - 1).scaled[: self.labels]
            own = draws[j].astype(np.int64)
            own <<= j
            scaled += own
        prefix = _fixed_point(scaled, level)
        before = self.round & (self.round - 1)
        if before:
            prefix += self._live[level_of(before)].prefix[: self.labels]
        self._live[level] = _Node(self.round, scaled, prefix)

    def _start(self, rows: NDArray[np.int64] | None, ids: NDArray[np.uint64]) -> None:
        """Draw the live nodes of the labels in `rows`, whose noise starts at this round."""
        if rows is None:
            return
        lane = _FIRST_SHARED_LANE
        for level, node in sorted(self._live.items()):
            factors = self._factors(level)
            node.scaled[rows] = self._combine(factors, ids[rows], self.round, lane, self._history)
            lane += len(factors)
        self._add_up(rows)

    def _factors(self, level: int) -> tuple[int, ...]:
        """What to multiply draws by to get F of a whole node of that level."""
        return square_factors((2 << level) - 1 << level, self._gaussian.sigma_squared)

    def _combine(
        self, factors: Sequence[int], ids: NDArray[np.uint64], round_number: int, lane: int, history: bytes
    ) -> NDArray[np.int64]:
        """The sum of factor times draw, with the lanes of the round from `lane` on, one for each factor."""
        tweaks = [self._noise.tweak(round_number, lane + i, history) for i in range(len(factors))]
        return np.array(factors, np.int64) @ self._noise.draw(self._gaussian, ids, tweaks)

    def _add_up(self, rows: NDArray[np.int64] | slice) -> None:
        """The prefixes of the labels in `rows`, from those of their nodes."""
        total: NDArray[np.int64] | int = 0
        for level in sorted(self._live, reverse=True):
            node = self._live[level]
            total = total + _fixed_point(node.scaled[rows], level)
            node.prefix[rows] = total


def _fixed_point(scaled: NDArray[np.int64], level: int) -> NDArray[np.int64]:
    """F / M_level in units of 2^-12, rounded to the nearest: M is odd, so that there are no halves."""
    divisor = (2 << level) - 1
    fixed = scaled << _FRACTION_BITS
    fixed += divisor >> 1
    fixed //= divisor
    return fixed


class HonakerState:
    """One number a level: the estimate F_k / M_k of its live node, in which those of merged nodes go on."""

    def __init__(self, horizon: int) -> None:
        self._levels = horizon.bit_length()
        self.weights = np.ones(self._levels)
        self._divisors = 2.0 ** (np.arange(self._levels) + 1) - 1

    def step(self, before: int, after: int) -> Step:
        kept, fresh = np.eye(self._levels), np.zeros((self._levels, self._levels))
        while before < after:
            size = (after - before).bit_length() - 1
            if before:
                size = min(size, (before & -before).bit_length() - 1)
            before += 1 << size
            merge, variance = self._merge(size, (before & -before).bit_length() - 1)
            kept, fresh = merge @ kept, merge @ fresh @ merge.T + variance
        return Step(kept, fresh)

    def _merge(self, size: int, top: int) -> tuple[Matrix, Matrix]:
        """Add a whole node of level `size`, which completes those up to `top`: see `counters/honaker.py`."""
        merge, variance = np.eye(self._levels), np.zeros((self._levels, self._levels))
        merge[: top + 1] = 0
        merge[top, size:top] = self._divisors[size:top] / self._divisors[top]
        own = sum(4.0**level for level in range(size + 1, top + 1))
        variance[top, top] = (2.0**size * self._divisors[size] + own) / self._divisors[top] ** 2
        return merge, variance
