/* Numbers of 106 bits as unevaluated sums high + low of two doubles.

   Everything here is exact in IEEE 754 arithmetic that rounds to nearest, and gives the same bits on every machine, so
   the compiler may not contract a * b + c by itself.  Source: Dekker (1971); Ogita, Rump and Oishi, "Accurate Sum and
   Dot Product" (2005), algorithms 1.1, 3.1 and 3.5. */
#ifndef STREAM_DP_DOUBLE_DOUBLE_H
#define STREAM_DP_DOUBLE_DOUBLE_H

#include "arrays.h"

typedef struct {
    double high, low;
} Pair;

/* The double next to a + b, and what it lacks. */
INLINED Pair two_sum(double a, double b)
{
    double total = a + b, part = total - a;
    return (Pair){total, (a - (total - part)) + (b - part)};
}

/* The same, if a is 0, or |a| >= |b|, or a is a multiple of b's last place. */
INLINED Pair quick_two_sum(double a, double b)
{
    double total = a + b;
    return (Pair){total, (a - total) + b};
}

/* The double next to a * b, and what it lacks. */
INLINED Pair two_product(double a, double b)
{
    double product = a * b;
    return (Pair){product, fma(a, b, -product)};
}

#endif
