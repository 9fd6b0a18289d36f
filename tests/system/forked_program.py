"""The programs that users start, forked from a server that has imported most of them: they start in milliseconds."""

import multiprocessing
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from multiprocessing.process import BaseProcess
from pathlib import Path

from stream_dp.cli import main as command_line
from tests.system import loud_worker
from tests.system.leaks import LOUD
from tests.system.worker_process import PROCESSES, Interruption, arm


def start(settings: Mapping[str, object], log_file: Path, *words: str, **environment: str) -> BaseProcess:
    """`stream-dp` with these words, or the worker `LOUD`; what it prints goes to the end of `log_file`.

    The settings that are not None, and `environment`, are in its environment.
    """
    return start_in(Path(), words, environment_of(settings) | environment, log_file)


def environment_of(settings: Mapping[str, object]) -> dict[str, str]:
    """The settings that are not None, as an environment gives them."""
    return {
        f"STREAM_DP_{name.upper()}": _text(value) for name, value in settings.items() if value is not None
    }


def start_in(
    folder: Path,
    words: Sequence[str],
    environment: Mapping[str, str],
    log_file: Path,
    error_file: Path | None = None,
    interruption: Interruption | None = None,
    terminal: str = os.devnull,
) -> BaseProcess:
    """The same in a folder, with no other settings than those of the environment.

    What it prints as errors goes to the end of `error_file` if there is one.  It is interrupted where
    `interruption` says, and reads what is typed on the terminal of this name.
    """
    files = log_file.absolute(), (error_file or log_file).absolute()
    arguments = (folder, words, dict(environment), files, interruption, terminal)
    process = PROCESSES.Process(target=_run, args=arguments)
    process.start()
    return process


def _text(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


def _run(
    folder: Path,
    words: Sequence[str],
    environment: dict[str, str],
    files: tuple[Path, Path],
    interruption: Interruption | None,
    terminal: str,
) -> None:
    parent = multiprocessing.parent_process()
    threading.Thread(target=lambda: (parent.join(), os._exit(1)), daemon=True).start()  # type: ignore[union-attr]
    for name in [name for name in os.environ if name.startswith("STREAM_DP_")]:
        del os.environ[name]
    os.environ.update(environment)
    os.chdir(folder)
    os.dup2(os.open(terminal, os.O_RDONLY | os.O_NOCTTY), 0)
    sys.stdin = os.fdopen(0, closefd=False)
    for standard, file in enumerate(files, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT), standard)
    if interruption is not None:
        arm(interruption)
    if words == (LOUD,):
        loud_worker.main()
    else:
        sys.argv = ["stream-dp", *words]
        command_line()
