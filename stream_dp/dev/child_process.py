"""Start, recognise and stop the processes of the embedded servers (trying out and tests)."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from stream_dp.dev.private_folder import FOR_OTHERS, FolderNotPrivate, private_folder
from stream_dp.errors import Refused

START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_POLL_SECONDS = 0.005

# The shell becomes the server (exec keeps the process id), leaving behind a child that waits for the end of
# standard input, which comes when the starter closes it or dies. That child ends its parent only if the parent
# is still the server, so a process id that was given to somebody else meanwhile is never hit.
_OWNED = """
exec 3<&0
(cat <&3 >/dev/null; exec sh -c '[ "$PPID" = "$0" ] && kill "$0"' "$$") &
exec "$@" </dev/null 3<&-
"""


class ServerFailed(Refused):
    """A server did not start; the message says why, in one sentence."""


def prepare_folder(folder: Path) -> None:
    """Make a server's folder, closed to others; raises ServerFailed."""
    try:
        private_folder(folder)
    except FolderNotPrivate as refused:
        raise ServerFailed(str(refused)) from None


def spawn(command: Sequence[str | Path], log: Path, owned: bool) -> subprocess.Popen[bytes]:
    """Start a server with its output appended to `log`.

    An owned server stops when `stop_owned` is called or this process ends in any way, SIGKILL included.
    One that is not owned stays. Both have a session of their own, so that Ctrl-C in the starter's terminal
    leaves it to the starter when they stop. Nobody but their owner can read the files that they make.
    """
    words = [str(word) for word in command]
    with open(log, "ab", opener=_open_private) as output:
        if owned:
            words = ["sh", "-c", _OWNED, "sh", *words]
        stdin = subprocess.PIPE if owned else subprocess.DEVNULL
        return subprocess.Popen(
            words, stdin=stdin, stdout=output, stderr=output, start_new_session=True, umask=FOR_OTHERS
        )


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path, name: str) -> None:
    """Return once `ready()`; raises ServerFailed with the log's last line if the process ends or takes too long."""
    deadline = time.monotonic() + START_SECONDS
    while not ready():
        if process.poll() is not None:
            raise ServerFailed(f"{name} did not start: {_last_line(log)}")
        if time.monotonic() > deadline:
            process.kill()
            process.wait()
            raise ServerFailed(f"{name} was not ready after {START_SECONDS:.0f} seconds, see {log}")
        time.sleep(_POLL_SECONDS)


def stop_owned(process: subprocess.Popen[bytes]) -> None:
    """Stop an owned server and wait for it; one that does not obey in time is killed."""
    if process.stdin is not None:
        process.stdin.close()
    if process.poll() is None:
        process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def stop_by_id(pid: int, birth: str) -> None:
    """Stop the process `pid` if it is still the one born at `birth`, and wait until it is gone."""
    for number, seconds in ((signal.SIGTERM, _STOP_SECONDS), (signal.SIGKILL, _STOP_SECONDS)):
        deadline = time.monotonic() + seconds
        if birth_of(pid) != birth:
            return
        os.kill(pid, number)
        while time.monotonic() < deadline:
            if birth_of(pid) != birth:
                return
            time.sleep(_POLL_SECONDS)


def birth_of(pid: int) -> str | None:
    """When the process began, to tell it from a later one with the same id; None if it does not run."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return _birth_by_ps(pid) if not Path("/proc/self").exists() else None
    state, *fields = stat.rpartition(")")[2].split()
    return None if state in "ZX" else f"{boot} {fields[18]}"  # field 22 of the line: clock ticks since boot


def _birth_by_ps(pid: int) -> str | None:
    """When a process was started, on systems without /proc."""
    told = subprocess.run(
        ["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    )
    return told.stdout.strip() or None


def is_free(port: int, host: str = "127.0.0.1") -> bool:
    """Whether a server could listen on the port now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def free_port(host: str = "127.0.0.1") -> int:
    """A port nobody listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        return int(probe.getsockname()[1])


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines()
    return lines[-1].rstrip(".") if lines else f"its log {log} is empty"
