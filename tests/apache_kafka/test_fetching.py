"""Several processes of tests that need Apache Kafka at once fetch its jars once, whole."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.apache_kafka.server import fetch

MAVEN = """#!/bin/sh
for word in "$@"; do
    case $word in -DoutputDirectory=*) folder=${word#*=} ;; esac
done
echo fetched >> "$FETCHES"
mkdir "$folder"
touch "$folder/first.jar"
sleep 0.3
touch "$folder/second.jar"
"""


def test_jars_are_fetched_once_however_many_want_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, script in {"mvn": MAVEN, "java": "#!/bin/sh\n"}.items():
        (programs / name).write_text(script)
        (programs / name).chmod(0o755)
    fetches = tmp_path / "fetches"
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FETCHES", str(fetches))
    jars = tmp_path / "cache" / "1.0"

    def found() -> set[str]:
        fetch(tmp_path / "pom.xml", jars)
        return {jar.name for jar in jars.iterdir()}

    with ThreadPoolExecutor() as threads:
        for names in [threads.submit(found) for _ in range(3)]:
            assert names.result() == {"first.jar", "second.jar"}
    assert fetches.read_text().splitlines() == ["fetched"]
