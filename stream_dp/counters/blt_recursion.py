"""The loops of the buffered linear Toeplitz counter, in double-double arithmetic, over many labels at once.

V_a is the part of a label's noise that belongs to pole p_a; V = V_high + V_low has the shape (poles, capacity).  With u
= 2^-53, and leaving out terms in u^3, these are the absolute errors of one call, those of the constants' low parts
included and those of z and w not:

- `advance`, in each round: at most 8 u^2 |V_a| + 16 u^2 |scale_a z| for V_a; where p_0 = 1 the product is exact, and
  the first part is 3 u^2 |V_0|.
- `combine`: at most 72 u^2 (the sum over k of |factor_ak w_k|).
- The sum of the V_a before it is rounded to an integer: at most 50 u^2 times the sum of |V_a|.
"""

import numpy as np

from stream_dp.privacy.double_double import compiled, fma, quick_two_sum, two_product, two_sum

_LABELS_AT_ONCE = 256  # their state stays in the first-level cache while the rounds pass


@compiled
def advance(v_high, v_low, left, poles, scale_high, scale_low, z_high, z_low, noise, top):  # type: ignore[no-untyped-def]
    """V_a <- p_a V_a + scale_a z in every round; noise <- the sum of V_a, rounded to the nearest integer.

    `z_high`, `z_low`: shape (rounds, columns), for the labels from `left` on, whose V is changed in place.
    `noise`: int32 of shape (all rounds, all labels), of which the rounds from `top` on are written.
    """
    rounds, columns = z_high.shape
    sum_high, sum_low = np.empty(_LABELS_AT_ONCE), np.empty(_LABELS_AT_ONCE)
    for first in range(0, columns, _LABELS_AT_ONCE):
        last = min(columns, first + _LABELS_AT_ONCE)
        for row in range(rounds):
            sum_high[:] = 0.0
            sum_low[:] = 0.0
            for a in range(len(poles)):
                _step(
                    v_high[a, left + first : left + last], v_low[a, left + first : left + last],
                    poles[a], scale_high[a], scale_low[a],
                    z_high[row, first:last], z_low[row, first:last], sum_high, sum_low,
                )  # fmt: skip
            _round(sum_high, sum_low, noise[top + row, left + first : left + last])


@compiled
def _step(v_high, v_low, pole, scale, scale_low, z_high, z_low, sum_high, sum_low):  # type: ignore[no-untyped-def]
    for j in range(len(v_high)):
        old, error = two_product(pole, v_high[j])
        error = fma(pole, v_low[j], error)
        new, rest = two_product(scale, z_high[j])
        rest = fma(scale_low, z_high[j], fma(scale, z_low[j], rest))
        total, lost = two_sum(old, new)
        high, low = quick_two_sum(total, lost + (error + rest))
        v_high[j] = high
        v_low[j] = low
        sum_high[j], lost = two_sum(sum_high[j], high)
        sum_low[j] += lost + low


@compiled
def _round(sum_high, sum_low, noise):  # type: ignore[no-untyped-def]
    """The nearest integers; the low part decides where the high part is halfway between two."""
    for j in range(len(noise)):
        high, low = quick_two_sum(sum_high[j], sum_low[j])
        nearest = np.rint(high)
        fraction = high - nearest
        up = 1.0 if (fraction == 0.5) & (low > 0) else 0.0
        down = 1.0 if (fraction == -0.5) & (low < 0) else 0.0
        noise[j] = np.int32(nearest + up - down)


@compiled
def add_up(v_high, v_low, noise):  # type: ignore[no-untyped-def]
    """noise <- sum of V_a, rounded to the nearest integer; int32 of shape (labels,)."""
    sum_high, sum_low = np.zeros(len(noise)), np.zeros(len(noise))
    for a in range(len(v_high)):
        for j in range(len(noise)):
            sum_high[j], lost = two_sum(sum_high[j], v_high[a, j])
            sum_low[j] += lost + v_low[a, j]
    _round(sum_high, sum_low, noise)


@compiled
def combine(v_high, v_low, factor_high, factor_low, w_high, w_low):  # type: ignore[no-untyped-def]
    """V_a <- sum over k of factor_ak w_k; w of shape (normals, labels)."""
    for a in range(len(v_high)):
        for j in range(w_high.shape[1]):
            high, low = 0.0, 0.0
            for k in range(len(w_high)):
                product, error = two_product(factor_high[a, k], w_high[k, j])
                error = fma(factor_low[a, k], w_high[k, j], fma(factor_high[a, k], w_low[k, j], error))
                total, lost = two_sum(high, product)
                high, low = quick_two_sum(total, lost + (low + error))
            v_high[a, j], v_low[a, j] = high, low
