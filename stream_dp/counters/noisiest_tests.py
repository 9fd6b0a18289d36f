"""Which test leaves the most noise in a count, for many rounds at once.

The later a test is, the noisier is what it measures, and the fewer rounds the noise of the counts that follow had to
grow.  That noise grows by less and less, so from one round to the next an earlier test loses against a later one: the
noisiest test never comes earlier in a later round.  So the rounds are halved again and again, and each looks only at
the tests between those of its neighbours: some (tests + rounds) log(rounds) pairs in place of all.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

SdsAt = Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]


def noisiest_tests(rounds: NDArray[np.int64], tests: NDArray[np.int64], sds_at: SdsAt) -> NDArray[np.int64]:
    """The number of the noisiest test up to each of `rounds`, which ascend, from 1 on; 0 where there was none.

    `sds_at` has the standard deviation, in each of some rounds, after a test of its own, by the test's number.
    """
    latest = tests.searchsorted(rounds, "right")
    found = np.zeros(len(rounds), np.int64)
    for power in reversed(range(len(rounds).bit_length())):
        apart = 1 << power
        at = np.arange(apart - 1, len(rounds), 2 * apart)
        first = np.where(at >= apart, np.maximum(found[at - apart], 1), 1)
        after = at + apart
        last = np.where(after < len(rounds), found[np.minimum(after, len(rounds) - 1)], len(tests))
        sizes = np.maximum(np.minimum(last, latest[at]) - first + 1, 0)
        at, first, sizes = at[sizes > 0], first[sizes > 0], sizes[sizes > 0]
        if not len(at):
            continue
        begins = np.cumsum(sizes) - sizes
        own = np.repeat(np.arange(len(at)), sizes)
        numbers = first[own] + np.arange(len(own)) - begins[own]
        sds = sds_at(numbers, rounds[at[own]])
        largest = np.flatnonzero(sds == np.maximum.reduceat(sds, begins)[own])[::-1]
        found[at[own[largest]]] = numbers[largest]  # backwards: the first one of equals is written last
    return found
