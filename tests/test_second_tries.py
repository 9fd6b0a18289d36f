"""`make test STRICT=1` fails where a test needed a second try."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.second_tries import PASSED_AT_SECOND_TRY

ROOT = Path(__file__).parents[1]
PLUGINS = ["-p", "xdist", "-p", "pytest_rerunfailures", "-p", "tests.second_tries"]
SECOND_TRY = """
from pathlib import Path

def test_once(request):
    tried = Path(__file__).with_suffix(".tried")
    again = tried.exists()
    tried.touch()
    assert again
"""


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--fail-on-flaky", "--numprocesses", "1"], PASSED_AT_SECOND_TRY),
        (["--fail-on-flaky"], PASSED_AT_SECOND_TRY),
        (["--numprocesses", "1"], 0),
    ],
)
def test_a_second_try_fails_a_strict_run_alone(tmp_path: Path, options: list[str], expected: int) -> None:
    (tmp_path / "test_once.py").write_text(SECOND_TRY)
    pytest_here = [sys.executable, "-m", "pytest", *PLUGINS, "--reruns", "1"]
    of_one_file = ["--rootdir", str(tmp_path), str(tmp_path / "test_once.py")]
    # Of the plugins only those that this is about: to load the others takes most of the time.
    run = subprocess.run(
        [*pytest_here, *options, *of_one_file],
        cwd=ROOT,
        env=os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 passed" in run.stdout, run.stdout + run.stderr
    assert "1 rerun" in run.stdout
    assert run.returncode == expected
