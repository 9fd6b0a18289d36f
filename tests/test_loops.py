"""The loops in C: what they refuse, and that every machine gets the same bits."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import stream_dp.loops._compiled as compiled
from stream_dp import loops

ROOT = Path(__file__).parents[1]
ONE, TWO = np.zeros(1), np.zeros(2)
LONG = np.zeros(1, np.int64)
BYTE = np.zeros(1, np.uint8)
SHORT_TABLE = np.zeros((1, 2), np.uint64)
SALT = np.zeros(16, np.uint8)

anything: Any = loops  # whatever its types are
WRONG_TYPES = {
    "another type": lambda: anything.blt_add_up(np.zeros((1, 1)), np.zeros((1, 1)), np.zeros(1, np.int64)),
    "another number of dimensions": lambda: anything.blt_add_up(ONE, ONE, np.zeros(1, np.int32)),
    "no array": lambda: anything.reach_follow([[1.0]], np.zeros((1, 1), np.int16), ONE, ONE),
    "every second cell": lambda: anything.measure_labels(BYTE, np.zeros(4, np.int64)[::2], LONG, LONG),
    "what must not be written": lambda: anything.find_starts(BYTE, 0, 0, 1, read_only(LONG)),
    "bytes in another order": lambda: anything.measure_labels(BYTE, LONG.astype(">i8"), LONG, LONG),
    "too few": lambda: anything.place_rows(np.zeros(2, np.int32)),
    "too many": lambda: anything.find_starts(BYTE, 0, 0, 1, LONG, 1),
    "text for a number": lambda: anything.find_starts(BYTE, "0", 0, 1, LONG),
}
UNFIT = {
    "mix_words": lambda: anything.mix_words(SHORT_TABLE, SHORT_TABLE, np.zeros((1, 2, 2), np.uint64)),
    "draw_normals": lambda: anything.draw_normals(
        np.zeros((2, 1, 2), np.uint64),
        *np.zeros((2, 2), np.uint64),
        np.zeros((8, 4)),
        0,
        0,
        *np.zeros((2, 1, 1)),
    ),
    "draw_middles": lambda: anything.draw_middles(
        np.zeros((2, 1, 2), np.uint64), *np.zeros((2, 2), np.uint64), np.zeros((1, 1))
    ),
    "blt_advance": lambda: anything.blt_advance(
        *np.zeros((2, 1, 3)), 1, ONE, ONE, ONE, *np.zeros((2, 1, 3)), np.zeros((1, 9), np.int32), 0
    ),
    "blt_add_up": lambda: anything.blt_add_up(*np.zeros((2, 1, 3)), np.zeros(4, np.int32)),
    "blt_combine": lambda: anything.blt_combine(*np.zeros((4, 1, 3)), *np.zeros((2, 1, 3))),
    "reach_follow": lambda: anything.reach_follow(np.zeros((1, 2)), np.zeros((1, 1), np.int16), ONE, ONE),
    "reach_compare": lambda: anything.reach_compare(
        ONE, np.zeros((1, 1), np.int16), TWO, np.zeros(1, np.int32), 0, 0, 0, np.zeros(1, np.bool_)
    ),
    "encode_labels": lambda: anything.encode_labels(np.zeros(9, np.uint8), LONG + 9, BYTE, 0, BYTE, 0, LONG),
    "find_starts": lambda: anything.find_starts(BYTE, 0, 0, 99, LONG),
    "measure_labels": lambda: anything.measure_labels(BYTE, LONG, LONG + 16, LONG),
    "spell_labels": lambda: anything.spell_labels(BYTE, LONG, LONG - 1, BYTE, BYTE),
    "spell_labels that are longer": lambda: anything.spell_labels(
        np.array([0, 2, 97, 98], np.uint8), LONG, LONG, np.zeros(2, np.uint8), BYTE
    ),
    "measure_following": lambda: anything.measure_following(BYTE, LONG, 16, LONG),
    "spell_following": lambda: anything.spell_following(BYTE, LONG, -1, 1, BYTE, BYTE),
    "place_rows": lambda: anything.place_rows(np.zeros(2, np.int32), SHORT_TABLE, 0, np.zeros(2, np.bool_)),
    "text_digests with a long key": lambda: anything.text_digests(
        np.zeros(65, np.uint8), SALT, BYTE, LONG, SHORT_TABLE
    ),
    "text_digests with a short salt": lambda: anything.text_digests(BYTE, SALT[1:], BYTE, LONG, SHORT_TABLE),
    "text_digests of three words": lambda: anything.text_digests(
        BYTE, SALT, BYTE, LONG, np.zeros((1, 3), np.uint64)
    ),
    "chained_digests without a key": lambda: anything.chained_digests(
        BYTE[1:], LONG + 32, np.zeros(32, np.uint8), np.zeros((1, 4), np.uint64)
    ),
    "chained_digests without room for the one before": lambda: anything.chained_digests(
        BYTE, LONG + 31, np.zeros(31, np.uint8), np.zeros((1, 4), np.uint64)
    ),
    "chained_digests beyond the text": lambda: anything.chained_digests(
        BYTE, LONG + 33, np.zeros(32, np.uint8), np.zeros((1, 4), np.uint64)
    ),
    "chained_digests of two words": lambda: anything.chained_digests(
        BYTE, LONG + 32, np.zeros(32, np.uint8), np.zeros((1, 2), np.uint64)
    ),
    "fill_greedily": lambda: anything.fill_greedily(LONG + 1, np.zeros(2, np.int64), LONG, 1, 1, LONG),
    "fill_evenly": lambda: anything.fill_evenly(LONG, np.array([0, 2]), LONG, 1, 1, LONG),
    "move_towards": lambda: anything.move_towards(LONG, np.array([0, 1]), LONG + 1, 1.0, ONE),
}


def read_only(array: NDArray[np.int64]) -> NDArray[np.int64]:
    array = array.copy()
    array.flags.writeable = False
    return array


@pytest.mark.parametrize("what", WRONG_TYPES)
def test_arguments_of_another_kind_are_refused(what: str) -> None:
    with pytest.raises(TypeError):
        WRONG_TYPES[what]()


@pytest.mark.parametrize("what", UNFIT)
def test_arrays_that_do_not_belong_together_are_refused(what: str) -> None:
    with pytest.raises(ValueError, match="do not belong together"):
        UNFIT[what]()


def test_every_loop_is_refused_such_arrays() -> None:
    assert {what.split()[0] for what in UNFIT} == {name for name in dir(compiled) if name[0] != "_"}


def test_without_its_compiled_part_the_package_says_what_to_install() -> None:
    hidden = (
        "import sys; sys.modules['stream_dp.loops._compiled'] = None; from stream_dp.cli import main; main()"
    )
    words = [sys.executable, "-c", hidden, "preview", "--events", "10"]
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 2
    assert "install a C compiler" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("widest", [1, 4])
def test_a_processor_without_wide_vectors_draws_the_same_noise(widest: int, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "stream_dp", tmp_path / "stream_dp", ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    shutil.copy(ROOT / "setup.py", tmp_path)
    build = [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"]
    subprocess.run(
        build,
        cwd=tmp_path,
        env={**os.environ, "CFLAGS": f"-DWIDEST={widest}"},
        check=True,
        capture_output=True,
    )
    check = """
from stream_dp.counters.golden import check_golden_noise
from stream_dp.privacy.gaussian_noise import check_golden_gaussian
import stream_dp
check_golden_gaussian()
check_golden_noise("blt")
print(stream_dp.__file__)
"""
    done = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(str(tmp_path))
