"""What a buffered linear Toeplitz counter needs beyond doubles, in integers: the same on every machine.

With U_a(t) = p_a U_a(t-1) + z_t, the vector U after t rounds from zero is normal with

    Cov_ab(t) = sum over k < t of (p_a p_b)^k = (1 - (p_a p_b)^t) / (1 - p_a p_b),    t where both poles are 1.

So U(t) = G(t) w with independent standard normals w and G(t) G(t)^T = Cov(t): a label that is first seen at round t
starts like that.  For no more rounds than poles, G(t) is
the matrix of the powers p_a^k, k < t, itself; otherwise it is a Cholesky factor.

Fixed point.  Cov is ill-conditioned: poles lie close together.  Its determinant is at least that of n = poles rounds,
the product of all (p_a - p_b)^2, by the formula of Cauchy and Binet, and its eigenvalues add up to at most poles times
horizon, so the least is known.  With `bits` binary digits, 360 beyond that, what is computed is the Cholesky factor of
a matrix within 2^(60 - bits) of Cov, and hence, up to a rotation that does not change the law of G w, within the square
root of that of the true factor (Powers and Stormer 1970): below 2^-150.
"""

from fractions import Fraction
from math import ceil, isqrt, log2

import numpy as np
from numpy.typing import NDArray

from stream_dp.counters.blt_parameters import Gaps

Doubles = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Numbers as hi + lo."""


def double_doubles(values: list[Fraction]) -> Doubles:
    """The nearest hi of each, and the lo nearest to the rest: off by at most a relative 2^-106."""
    high = np.array([float(value) for value in values])
    low = np.array([float(value - Fraction(nearest)) for value, nearest in zip(values, high, strict=True)])
    return high, low


class LawOfState:
    """The law of V_a(t) = scale_a U_a(t) after any number of rounds up to `horizon`.

    `poles` and `scales` are p_a and scale_a, the former float64 of shape (poles,), which they are exactly.
    """

    def __init__(self, gaps: Gaps, scales: list[Fraction], horizon: int) -> None:
        poles = gaps.poles
        self.size = len(poles)
        self.poles = 1 - np.array(poles)
        self.scales = double_doubles(scales)
        pairs = [(a, b) for a in range(self.size) for b in range(a)]
        conditioning = -2 * sum(log2(abs(poles[a] - poles[b])) for a, b in pairs)
        self._bits = ceil(conditioning + (self.size - 1) * log2(self.size * horizon)) + 360
        self._one = 1 << self._bits
        self._fixed_poles = [self._one - int(Fraction(gap) * self._one) for gap in poles]
        self._scales = [int(scale * self._one) for scale in scales]
        self._squarings = [self._fixed_poles]  # entry i: the poles to the power of 2^i
        self._inverse_gaps = {
            (a, b): int(self._one / (1 - (1 - Fraction(poles[a])) * (1 - Fraction(poles[b]))))
            for a in range(self.size)
            for b in range(a + 1)
            if a
        }

    def factor(self, rounds: int) -> Doubles:
        """scale_a G(rounds)_aj, each part of shape (poles, normals), with at most as many normals as poles."""
        if rounds <= self.size:
            columns = [self._fixed_powers(k) for k in range(rounds)]
            return self._scaled([list(row) for row in zip(*columns, strict=True)], rounds)
        return self._scaled(self._cholesky(self._covariance(rounds)), self.size)

    def _fixed_powers(self, rounds: int) -> list[int]:
        powers, place = [self._one] * self.size, 0
        while rounds >> place:
            if place == len(self._squarings):
                self._squarings.append([p * p >> self._bits for p in self._squarings[-1]])
            if rounds >> place & 1:
                powers = [x * p >> self._bits for x, p in zip(powers, self._squarings[place], strict=True)]
            place += 1
        return powers

    def _covariance(self, rounds: int) -> list[list[int]]:
        """The lower triangle of Cov(rounds)."""
        one, bits, powers = self._one, self._bits, self._fixed_powers(rounds)
        return [
            [
                (one - (powers[a] * powers[b] >> bits)) * self._inverse_gaps[a, b] >> bits
                if a
                else rounds << bits
                for b in range(a + 1)
            ]
            for a in range(self.size)
        ]

    def _cholesky(self, rest: list[list[int]]) -> list[list[int]]:
        """The lower triangular factor; `rest` is used up."""
        size = self.size
        factor = [[0] * size for _ in range(size)]
        for j in range(size):
            factor[j][j] = isqrt(rest[j][j] << self._bits)
            for i in range(j + 1, size):
                factor[i][j] = (rest[i][j] << self._bits) // factor[j][j]
                for k in range(j + 1, i + 1):
                    rest[i][k] -= factor[i][j] * factor[k][j] >> self._bits
        return factor

    def _scaled(self, rows: list[list[int]], columns: int) -> Doubles:
        high, low = np.empty((self.size, columns)), np.empty((self.size, columns))
        for a, row in enumerate(rows):
            for j, entry in enumerate(row):
                value = entry * self._scales[a] >> self._bits
                high[a, j] = value / self._one
                numerator, denominator = high[a, j].as_integer_ratio()
                low[a, j] = (value - numerator * (self._one // denominator)) / self._one
        return high, low
