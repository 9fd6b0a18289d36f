"""The one part of the package that is compiled; all else is in pyproject.toml."""

from pathlib import Path

import numpy
from setuptools import Extension, setup

LOOPS = Path("stream_dp/loops")
SAME_BITS = ["-O3", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]
"""Every machine has to draw the same noise, so no a * b + c is contracted; the last two change no value."""

setup(
    ext_modules=[
        Extension(
            "stream_dp.loops._compiled",
            sorted(map(str, LOOPS.glob("*.c"))),
            depends=sorted(map(str, LOOPS.glob("*.h"))),
            include_dirs=[numpy.get_include()],
            extra_compile_args=SAME_BITS,
            py_limited_api=True,
            optional=True,  # who only subscribes needs no compiler
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
