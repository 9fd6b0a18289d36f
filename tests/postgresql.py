"""A real PostgreSQL on loopback, for tests."""

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from stream_dp.dev.child_process import spawn, stop_owned, wait_until
from tests.apache_kafka.server import free_ports

_SETTINGS = """
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
fsync = off
"""


class Database:
    """A server on `port` with one database, whose owner has its name and needs no password."""

    def __init__(self, folder: Path, name: str) -> None:
        """`folder` must belong to the user whom the server runs as; see `postgresql`."""
        self.name = name
        self.port, _ = free_ports()
        data, self._log = folder / "data", folder / "postgresql.log"
        made: list[str | Path] = [
            "--pgdata",
            data,
            "--username",
            name,
            "--no-sync",
            "--encoding",
            "UTF8",
            "--locale",
            "C",
        ]
        subprocess.run(
            [*_unprivileged(), _program("initdb"), *made], capture_output=True, check=True, cwd="/"
        )
        with (data / "postgresql.conf").open("a") as settings:
            settings.write(f"{_SETTINGS}port = {self.port}\n")
        self._process = spawn([*_unprivileged(), _program("postgres"), "-D", data], self._log, owned=True)
        try:
            wait_until(
                lambda: self._psql("postgres", "select 1").returncode == 0, self._process, self._log, "it"
            )
            done = self._psql("postgres", f'create database "{name}"')
            assert done.returncode == 0, done.stderr
        except BaseException:
            self.stop()
            raise

    def _psql(self, database: str, statement: str) -> "subprocess.CompletedProcess[str]":
        where = [
            "--host",
            "127.0.0.1",
            "--port",
            str(self.port),
            "--username",
            self.name,
            "--dbname",
            database,
        ]
        words = [
            _program("psql"),
            "--no-psqlrc",
            "--tuples-only",
            "--no-align",
            *where,
            "--command",
            statement,
        ]
        return subprocess.run(words, capture_output=True, text=True, check=False)

    def rows(self, table: str) -> list[dict[str, Any]]:
        """All rows of a table by the names of its columns; none while there is no such table."""
        return self.asked(f'select * from "{table}"')

    def asked(self, query: str) -> list[dict[str, Any]]:
        """What a query answers, by the names of its columns; nothing while there is no such table."""
        done = self._psql(self.name, f"select coalesce(json_agg(t), '[]') from ({query}) t")
        if done.returncode != 0:
            assert "does not exist" in done.stderr, done.stderr
            return []
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found

    def stop(self) -> None:
        """Stop the server."""
        stop_owned(self._process)


def _program(name: str) -> str:
    """Where a program of PostgreSQL is; Debian keeps the newest ones out of PATH."""
    debian = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda each: int(each.parts[4]))
    found = str(debian[-1]) if debian else shutil.which(name)
    assert found is not None, "PostgreSQL is not installed (Debian: apt-get install postgresql)"
    return found


def _unprivileged() -> Sequence[str]:
    """What goes before a command because PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", "--reuid", "nobody", "--regid", "nogroup", "--clear-groups"]


@contextmanager
def postgresql(name: str) -> Iterator[Database]:
    """A server with an empty database of this name for the length of a `with` block."""
    with tempfile.TemporaryDirectory(prefix="postgresql-") as folder:
        if os.geteuid() == 0:
            shutil.chown(folder, "nobody", "nogroup")
        database = Database(Path(folder), name)
        try:
            yield database
        finally:
            database.stop()
