/* Normal draws from keyed bits: see privacy/gaussian_noise.py for what is drawn, and how far off it is. */
#include "arrays.h"
#include "double_double.h"

#define CELL_BITS 12
#define BIN_BITS 16
#define LOW_BITS 63
#define ALIAS_BITS 16

enum { AT_ONCE = 256 };

static const double WIDTH = 1.0 / (1 << CELL_BITS);

/* The number of the cell that 128 bits mean, with its sign.  No processor can guess which, so nothing here jumps on it. */
INLINED double cell_of(uint64_t first, uint64_t second, const uint64_t *bins, const uint64_t *thresholds)
{
    uint64_t own = first >> (63 - BIN_BITS) & ((1u << BIN_BITS) - 1), entry = bins[own];
    uint64_t choice = (first & (((uint64_t)1 << (63 - BIN_BITS)) - 1)) << 1 | second >> LOW_BITS;
    uint64_t threshold = entry >> ALIAS_BITS, alias = entry & ((1u << ALIAS_BITS) - 1);
    uint64_t below = (choice - threshold) >> 63; /* both are below 2^48 */
    if (choice == threshold)
        below = (second & (((uint64_t)1 << LOW_BITS) - 1)) < thresholds[own];
    double number = (double)(int64_t)(alias ^ ((own ^ alias) & (0 - below)));
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits |= first & (uint64_t)1 << 63;
    memcpy(&number, &bits, sizeof bits);
    return number;
}

/* c[0] + c[1] x + .. */
INLINED double cubic(const double *c, double x) { return fma(fma(fma(c[3], x, c[2]), x, c[1]), x, c[0]); }
INLINED double quadratic(const double *c, double x) { return fma(fma(c[2], x, c[1]), x, c[0]); }

/* w (k + T(v)) from the cell's number and v, in place of v. */
INLINED void place(const double *c, double sixth, double sixth_rest, double cell, double *high, double *low)
{
    const double unit = WIDTH * WIDTH;
    double v = *high, v_low = *low;
    double a = cell * unit; /* exact, as is a^2 */

    Pair square = two_product(v, v);
    square.low = fma(v + v, v_low, square.low);
    double g = 0.25 - square.high;
    double g_low = (0.25 - g) - square.high - square.low;

    double factor = fma(2.0 * a, a, unit); /* 2 a^2 + b: exact, and so is its product with `sixth` */
    double second = factor * sixth;
    Pair product = two_product(v, second);
    product.low = fma(v_low, second, fma(v, factor * sixth_rest, product.low));
    Pair q = quick_two_sum(0.5 * a, product.high);
    q.low += product.low;

    double s = square.high, a_squared = a * a;
    double even = fma(quadratic(c + 24, s), a_squared, quadratic(c + 16, s));
    even = fma(fma(even, a_squared, quadratic(c + 8, s)), a_squared, quadratic(c, s));
    double odd = fma(cubic(c + 28, s), a_squared, cubic(c + 20, s));
    odd = fma(fma(odd, a_squared, cubic(c + 12, s)), a_squared, cubic(c + 4, s));

    product = two_product(q.high, g);
    product.low = fma(q.low, g, fma(q.high, g_low, product.low));
    product.low = fma(g, fma(even, v, odd * a), product.low);
    Pair start = quick_two_sum(cell, v);
    Pair total = two_sum(start.high, -product.high);
    total = quick_two_sum(total.high, start.low + (total.low + (v_low - product.low)));
    *high = total.high * WIDTH;
    *low = total.low * WIDTH;
}

/* ids (labels, 2), tweaks (tweaks, 2); words (tweaks, labels, 2): what each draw encrypts to get its bits */
int64_t mix_words(const Argument *a)
{
    const uint64_t *ids = a[0].data, *tweaks = a[1].data;
    uint64_t *restrict words = a[2].data;
    int64_t labels = a[0].shape[0], count = a[1].shape[0];
    FIT(a[0].shape[1] == 2 && a[1].shape[1] == 2);
    FIT(a[2].shape[0] == count && a[2].shape[1] == labels && a[2].shape[2] == 2);
    for (int64_t t = 0; t < count; t++, words += 2 * labels)
        for (int64_t i = 0; i < labels; i++) {
            words[2 * i] = ids[2 * i] ^ tweaks[2 * t];
            words[2 * i + 1] = ids[2 * i + 1] ^ tweaks[2 * t + 1];
        }
    return 0;
}

/* bits (2 draws, labels, 2), bins, thresholds, series (8, 4), sixth, sixth_rest; high, low (draws, labels) */
BODY draw_normals_body(const Argument *a)
{
    const uint64_t *bits = a[0].data, *bins = a[1].data, *thresholds = a[2].data;
    const double *series = a[3].data, sixth = a[4].real, sixth_rest = a[5].real;
    double *high = a[6].data, *low = a[7].data, cell[AT_ONCE];
    int64_t draws = a[6].shape[0], labels = a[6].shape[1];
    FIT(a[0].shape[0] == 2 * draws && a[0].shape[1] == labels && a[0].shape[2] == 2);
    FIT(a[1].shape[0] == 1 << BIN_BITS && a[2].shape[0] == 1 << BIN_BITS);
    FIT(a[3].shape[0] == 8 && a[3].shape[1] == 4 && a[7].shape[0] == draws && a[7].shape[1] == labels);
    for (int64_t row = 0; row < draws; row++) {
        const uint64_t *cells = bits + 4 * row * labels, *places = cells + 2 * labels;
        for (int64_t begin = 0; begin < labels; begin += AT_ONCE) {
            int64_t size = SMALLER(AT_ONCE, labels - begin);
            const uint64_t *which = cells + 2 * begin, *where = places + 2 * begin;
            double *restrict h = high + row * labels + begin, *restrict l = low + row * labels + begin;
            for (int64_t i = 0; i < size; i++) {
                cell[i] = cell_of(which[2 * i], which[2 * i + 1], bins, thresholds);
                int64_t first = (int64_t)where[2 * i] >> 11;
                int64_t rest = (int64_t)((where[2 * i] & 0x7FF) << 42 | where[2 * i + 1] >> 22);
                h[i] = (double)first * 0x1p-53;
                l[i] = (double)rest * 0x1p-106;
            }
            for (int64_t i = 0; i < size; i++)
                place(series, sixth, sixth_rest, cell[i], h + i, l + i);
        }
    }
    return 0;
}
VECTORED(draw_normals)

/* bits (draws, labels, 2), bins, thresholds; found (draws, labels) */
int64_t draw_middles(const Argument *a)
{
    const uint64_t *bits = a[0].data, *bins = a[1].data, *thresholds = a[2].data;
    double *found = a[3].data;
    int64_t size = a[3].shape[0] * a[3].shape[1];
    FIT(a[0].shape[0] == a[3].shape[0] && a[0].shape[1] == a[3].shape[1] && a[0].shape[2] == 2);
    FIT(a[1].shape[0] == 1 << BIN_BITS && a[2].shape[0] == 1 << BIN_BITS);
    for (int64_t i = 0; i < size; i++)
        found[i] = WIDTH * cell_of(bits[2 * i], bits[2 * i + 1], bins, thresholds);
    return 0;
}
