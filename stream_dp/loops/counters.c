/* The loops of the counters: those of buffered linear Toeplitz noise, in double-double arithmetic, and of the reach.

   V_a is the part of a label's noise that belongs to pole p_a; V = high + low has the shape (poles, capacity).  With u
   = 2^-53, and leaving out terms in u^3, these are the absolute errors of one call, those of the constants' low parts
   included and those of z and w not:

   - `blt_advance`, in each round: at most 8 u^2 |V_a| + 16 u^2 |scale_a z| for V_a; if p_0 = 1 the product is exact,
     and the first part is 3 u^2 |V_0|.
   - `blt_combine`: at most 72 u^2 (the sum over k of |factor_ak w_k|).
   - The sum of the V_a before it is rounded to an integer: at most 50 u^2 times the sum of |V_a|. */
#include "arrays.h"
#include "double_double.h"

enum { AT_ONCE = 256 }; /* labels whose state stays in the first-level cache while rounds pass */

/* The nearest integers; the low part decides if the high part is halfway between two. */
INLINED void round_sums(const double *restrict sum_high, const double *restrict sum_low, int32_t *restrict noise, int64_t size)
{
    for (int64_t j = 0; j < size; j++) {
        Pair sum = quick_two_sum(sum_high[j], sum_low[j]);
        double nearest = rint(sum.high), fraction = sum.high - nearest;
        double up = (fraction == 0.5) & (sum.low > 0) ? 1.0 : 0.0;
        double down = (fraction == -0.5) & (sum.low < 0) ? 1.0 : 0.0;
        noise[j] = (int32_t)(nearest + up - down);
    }
}

/* V_a <- p_a V_a + scale_a z for some labels and one round; the sums grow by V_a. */
INLINED void step(
    double *restrict v_high, double *restrict v_low, double pole, double scale, double scale_low,
    const double *restrict z_high, const double *restrict z_low, double *restrict sum_high, double *restrict sum_low,
    int64_t size)
{
    for (int64_t j = 0; j < size; j++) {
        Pair old = two_product(pole, v_high[j]);
        old.low = fma(pole, v_low[j], old.low);
        Pair fresh = two_product(scale, z_high[j]);
        fresh.low = fma(scale_low, z_high[j], fma(scale, z_low[j], fresh.low));
        Pair total = two_sum(old.high, fresh.high);
        Pair v = quick_two_sum(total.high, total.low + (old.low + fresh.low));
        v_high[j] = v.high;
        v_low[j] = v.low;
        Pair sum = two_sum(sum_high[j], v.high);
        sum_high[j] = sum.high;
        sum_low[j] += sum.low + v.low;
    }
}

/* high, low (poles, capacity), left; poles, scales' high and low parts; z_high, z_low (rounds, labels);
   noise (all rounds, all labels), top.  In every round the noise of the labels from `left` on is the rounded sum. */
BODY blt_advance_body(const Argument *a)
{
    double *v_high = a[0].data, *v_low = a[1].data;
    const double *poles = a[3].data, *scale_high = a[4].data, *scale_low = a[5].data;
    const double *z_high = a[6].data, *z_low = a[7].data;
    int32_t *noise = a[8].data;
    int64_t capacity = a[0].shape[1], left = a[2].whole, count = a[3].shape[0];
    int64_t rounds = a[6].shape[0], labels = a[6].shape[1], width = a[8].shape[1], top = a[9].whole;
    double sum_high[AT_ONCE], sum_low[AT_ONCE];
    FIT(a[0].shape[0] == count && a[1].shape[0] == count && a[1].shape[1] == capacity);
    FIT(a[4].shape[0] == count && a[5].shape[0] == count && a[7].shape[0] == rounds && a[7].shape[1] == labels);
    FIT(left >= 0 && left + labels <= SMALLER(capacity, width) && top >= 0 && top + rounds <= a[8].shape[0]);
    for (int64_t first = 0; first < labels; first += AT_ONCE) {
        int64_t size = SMALLER(AT_ONCE, labels - first), at = left + first;
        for (int64_t row = 0; row < rounds; row++) {
            memset(sum_high, 0, sizeof sum_high);
            memset(sum_low, 0, sizeof sum_low);
            for (int64_t k = 0; k < count; k++)
                step(v_high + k * capacity + at, v_low + k * capacity + at, poles[k], scale_high[k], scale_low[k],
                     z_high + row * labels + first, z_low + row * labels + first, sum_high, sum_low, size);
            round_sums(sum_high, sum_low, noise + (top + row) * width + at, size);
        }
    }
    return 0;
}
VECTORED(blt_advance)

/* high, low (poles, capacity); noise (labels): the sums of V_a, rounded to the nearest integer */
BODY blt_add_up_body(const Argument *a)
{
    const double *v_high = a[0].data, *v_low = a[1].data;
    int32_t *noise = a[2].data;
    int64_t capacity = a[0].shape[1], labels = a[2].shape[0];
    double sum_high[AT_ONCE], sum_low[AT_ONCE];
    FIT(a[1].shape[0] == a[0].shape[0] && a[1].shape[1] == capacity && labels <= capacity);
    for (int64_t first = 0; first < labels; first += AT_ONCE) {
        int64_t size = SMALLER(AT_ONCE, labels - first);
        memset(sum_high, 0, sizeof sum_high);
        memset(sum_low, 0, sizeof sum_low);
        for (int64_t k = 0; k < a[0].shape[0]; k++)
            for (int64_t j = 0; j < size; j++) {
                Pair sum = two_sum(sum_high[j], v_high[k * capacity + first + j]);
                sum_high[j] = sum.high;
                sum_low[j] += sum.low + v_low[k * capacity + first + j];
            }
        round_sums(sum_high, sum_low, noise + first, size);
    }
    return 0;
}
VECTORED(blt_add_up)

/* high, low (poles, labels); factor's high and low parts (poles, normals); w_high, w_low (normals, labels):
   V_a <- the sum over k of factor_ak w_k */
BODY blt_combine_body(const Argument *a)
{
    double *restrict v_high = a[0].data, *restrict v_low = a[1].data;
    const double *factor_high = a[2].data, *factor_low = a[3].data, *w_high = a[4].data, *w_low = a[5].data;
    int64_t poles = a[2].shape[0], normals = a[2].shape[1], labels = a[4].shape[1];
    FIT(a[0].shape[0] == poles && a[0].shape[1] == labels && a[1].shape[0] == poles && a[1].shape[1] == labels);
    FIT(a[3].shape[0] == poles && a[3].shape[1] == normals);
    FIT(a[4].shape[0] == normals && a[5].shape[0] == normals && a[5].shape[1] == labels);
    for (int64_t p = 0; p < poles; p++)
        for (int64_t j = 0; j < labels; j++) {
            Pair v = {0.0, 0.0};
            for (int64_t k = 0; k < normals; k++) {
                double factor = factor_high[p * normals + k], w = w_high[k * labels + j];
                Pair product = two_product(factor, w);
                product.low = fma(factor_low[p * normals + k], w, fma(factor, w_low[k * labels + j], product.low));
                Pair total = two_sum(v.high, product.high);
                v = quick_two_sum(total.high, total.low + (v.low + product.low));
            }
            v_high[p * labels + j] = v.high;
            v_low[p * labels + j] = v.low;
        }
    return 0;
}
VECTORED(blt_combine)

/* Which noise may lift a label to a threshold: see counters/discovery_reach.py. */
#define ALWAYS 32767
#define LARGEST 32766.0
#define FARTHEST 5.0

/* draws (tests, labels), sums (labels, powers), powers, units: v_a <- p_a v_a + z, rounded to whole units */
int64_t reach_follow(const Argument *a)
{
    const double *draws = a[0].data, *powers = a[2].data, *units = a[3].data;
    int16_t *sums = a[1].data;
    int64_t labels = a[0].shape[1], count = a[2].shape[0];
    FIT(a[1].shape[0] == labels && a[1].shape[1] == count && a[3].shape[0] == count);
    for (int64_t test = 0; test < a[0].shape[0]; test++)
        for (int64_t i = 0; i < labels; i++) {
            double z = draws[test * labels + i];
            for (int64_t k = 0; k < count; k++) {
                int16_t *sum = sums + i * count + k;
                double moved = rint(powers[k] * *sum + z / units[k]);
                if (*sum == ALWAYS || fabs(z) > FARTHEST || moved > LARGEST)
                    *sum = ALWAYS;
                else
                    *sum = (int16_t)(moved < -LARGEST ? -LARGEST : moved);
            }
        }
    return 0;
}

/* draws (labels), sums (labels, powers), weights, counts (labels), least, needed, scale; found (labels) */
int64_t reach_compare(const Argument *a)
{
    const double *draws = a[0].data, *weights = a[2].data;
    const int16_t *sums = a[1].data;
    const int32_t *counts = a[3].data;
    bool *found = a[7].data;
    int64_t labels = a[0].shape[0], count = a[2].shape[0];
    FIT(a[1].shape[0] == labels && a[1].shape[1] == count && a[3].shape[0] == labels && a[7].shape[0] == labels);
    for (int64_t i = 0; i < labels; i++) {
        double near = draws[i];
        bool always = false;
        for (int64_t k = 0; k < count; k++) {
            near += weights[k] * sums[i * count + k];
            always |= sums[i * count + k] == ALWAYS;
        }
        found[i] = counts[i] >= a[4].whole && (always || counts[i] + a[6].real * near >= a[5].real);
    }
    return 0;
}
