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

#define SMALLER(a, b) ((a) < (b) ? (a) : (b))

/* VECTORED(name) defines the loop `name` from `name_body`, compiled again for processors that have vectors of four
   doubles and fused multiply-add, unless PLAIN is defined.  The results are the same bits: fma() rounds once everywhere. */
#if defined(__GNUC__) && defined(__x86_64__) && !defined(PLAIN)
#define BODY static inline __attribute__((always_inline)) int64_t
#define VECTORED(name)                                                                                          \
    static __attribute__((target("avx2,fma"))) int64_t name##_wide(const Argument *a) { return name##_body(a); } \
    static int64_t name##_plain(const Argument *a) { return name##_body(a); }                                   \
    int64_t name(const Argument *a)                                                                             \
    {                                                                                                           \
        bool wide = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");                            \
        return wide ? name##_wide(a) : name##_plain(a);                                                         \
    }
#else
#define BODY static inline int64_t
#define VECTORED(name) int64_t name(const Argument *a) { return name##_body(a); }
#endif

#endif
