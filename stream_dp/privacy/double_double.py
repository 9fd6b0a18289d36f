"""Numbers of 106 bits as unevaluated sums hi + lo of two doubles, for loops that numba compiles.

Everything below is exact in IEEE 754 arithmetic that rounds to nearest, and gives the same bits on every machine: a
processor without fused multiply-add computes it slower.  Source: Dekker (1971); Ogita, Rump and Oishi, "Accurate Sum
and Dot Product" (2005), algorithms 1.1, 3.1 and 3.5.
"""

from collections.abc import Callable
from typing import Any

from numba import njit, types
from numba.extending import intrinsic


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` as machine code, kept on disk where that is possible: compiling takes a second or more.

    It is compiled anew when its own file changes, not when what it uses of another file does.
    """
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        return njit(nogil=True)(function)


def _fma(context: Any, a: Any, b: Any, c: Any) -> Any:
    def generate(_: Any, builder: Any, __: Any, arguments: Any) -> Any:
        return builder.fma(*arguments)

    return types.float64(types.float64, types.float64, types.float64), generate


fma: Any = intrinsic(_fma)
"""a * b + c with one rounding; known to compiled code alone."""


@compiled
def two_sum(a: float, b: float) -> tuple[float, float]:
    """The double next to a + b, and what it lacks."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


@compiled
def quick_two_sum(a: float, b: float) -> tuple[float, float]:
    """The sum of `two_sum`, for a that is 0, or has |a| >= |b|, or is a multiple of b's last place."""
    total = a + b
    return total, (a - total) + b


@compiled
def two_product(a: float, b: float) -> tuple[float, float]:
    """The double next to a * b, and what it lacks."""
    product = a * b
    return product, fma(a, b, -product)
