"""The counter over the test rounds: the square root of the matrix of running sums, exactly.

The coefficients of 1 / sqrt(1 - x) are c_0 = 1, c_n = c_(n-1) (2n - 1) / (2n), and the lower triangular Toeplitz matrix
C with these entries has C C = A, the matrix of running sums (Henzinger, Upadhyay and Upadhyay 2023; Fichtenberger,
Henzinger and Upadhyay 2022).  Every c_n is a whole number over a power of two, so nothing here is rounded where that
would matter: both factors are the same exact matrix.
"""

from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

MOST_TESTS = 1 << 14
_MARGIN = 1e-12
"""Above the relative error of a sum of `MOST_TESTS` squares of rounded coefficients: 2^15 roundings of 2^-53."""


def coefficients(tests: int) -> list[Fraction]:
    """c_0 to c_(tests - 1), exactly.

    >>> [str(each) for each in coefficients(5)]
    ['1', '1/2', '3/8', '5/16', '35/128']
    """
    return list(_coefficients(tests))


@lru_cache(maxsize=8)
def _coefficients(tests: int) -> tuple[Fraction, ...]:
    found, numerator = [], 1  # c_n = numerator / 4^n, numerator = (2n)! / (n!)^2
    for n in range(tests):
        found.append(Fraction(numerator, 1 << 2 * n))
        numerator = numerator * (2 * n + 1) * 2 // (n + 1)
    return tuple(found)


def rounded_coefficients(tests: int) -> NDArray[np.float64]:
    """c_0 to c_(tests - 1), each within a relative 2^-36."""
    lags = np.arange(1.0, tests)
    return np.concatenate([[1.0], np.cumprod((2 * lags - 1) / (2 * lags))])


@lru_cache(maxsize=8)
def variances_of_tests(tests: int) -> NDArray[np.float64]:
    """The variance of a count at each test for draws of variance 1, r(k) = sum over n < k of c_n^2, of shape (tests,).

    The last one is the squared sensitivity, too: the largest squared column of C.  Each is at least what it should be
    and at most a relative 2e-12 more, by sums in order, which are the same bits on every machine.
    """
    squares = np.array([float(each) for each in _coefficients(tests)]) ** 2
    found = np.array([*np.add.accumulate(squares)]) * (1 + _MARGIN)
    found.flags.writeable = False
    return found
