/* What a loop gets, and how it is compiled. */
#ifndef STREAM_DP_ARRAYS_H
#define STREAM_DP_ARRAYS_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* One argument: a C-contiguous array of up to three dimensions, an integer or a number. */
typedef struct {
    void *data;
    int64_t shape[3];
    int64_t whole;
    double real;
} Argument;

typedef int64_t Loop(const Argument *);

/* What a loop returns, before it has written anything, if its arrays do not belong together. */
#define UNFIT INT64_MIN
#define FIT(condition) do { if (!(condition)) return UNFIT; } while (0)

/* What is compiled into whatever calls it, and so for the vectors that this has. */
#if defined(__GNUC__)
#define INLINED static inline __attribute__((always_inline))
#else
#define INLINED static inline
#endif
#define BODY INLINED int64_t

#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

/* VECTORED(name) defines the loop `name` from `name_body`, compiled again for processors that have fused multiply-add
   and vectors of four or eight doubles, but of no more than WIDEST.  The results are the same bits: fma() rounds once
   everywhere. */
#ifndef WIDEST
#define WIDEST 8
#endif
#if defined(__GNUC__) && defined(__x86_64__) && WIDEST > 1
#define FOR(features, name) static __attribute__((target(features))) int64_t name(const Argument *a)
#define HAS(feature) __builtin_cpu_supports(feature)
#define VECTORED(name)                                                                    \
    FOR("avx512f,avx512dq,avx512vl,avx2,fma", name##_of_eight) { return name##_body(a); } \
    FOR("avx2,fma", name##_of_four) { return name##_body(a); }                            \
    static int64_t name##_plain(const Argument *a) { return name##_body(a); }             \
    int64_t name(const Argument *a)                                                       \
    {                                                                                     \
        if (!(HAS("avx2") && HAS("fma")))                                                 \
            return name##_plain(a);                                                       \
        bool eight = WIDEST == 8 && HAS("avx512f") && HAS("avx512dq") && HAS("avx512vl"); \
        return eight ? name##_of_eight(a) : name##_of_four(a);                            \
    }
#else
#define VECTORED(name) int64_t name(const Argument *a) { return name##_body(a); }
#endif

#endif
