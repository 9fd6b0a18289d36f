"""docker-compose.yml, loaded by the library that Docker Compose of version 2 loads it with."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.docs.compose import COMPOSE, PASSWORD, SECRETS, SERVICES


@pytest.fixture(scope="module")
def load(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Loads the file in an environment, by the library that Docker Compose of version 2 loads it with."""
    go = shutil.which("go") or shutil.which("go", path="/usr/local/go/bin")
    if go is None:
        pytest.skip("no Go, which builds what loads the file in Docker Compose (https://go.dev/dl)")
    source, program = (
        Path(__file__).parent / "compose_config",
        tmp_path_factory.mktemp("go") / "compose_config",
    )
    fetched = subprocess.run([go, "mod", "download"], cwd=source, capture_output=True, text=True)
    if fetched.returncode:
        pytest.skip(f"Go cannot fetch what it needs: {fetched.stderr.strip()[-200:]}")
    subprocess.run([go, "build", "-mod=readonly", "-o", program, "."], cwd=source, check=True)
    kept = {name: value for name, value in os.environ.items() if name not in SECRETS}

    def load(**variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, COMPOSE], env=kept | variables, capture_output=True, text=True)

    return load


def test_compose_loads_the_file(load: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    whole = dict.fromkeys(SECRETS, PASSWORD)
    loaded = load(**whole)
    assert loaded.returncode == 0, loaded.stderr
    services = json.loads(loaded.stdout)["services"]
    assert services.keys() == SERVICES.keys()
    assert services["worker"]["environment"]["STREAM_DP_OPERATOR_TOKEN"] == PASSWORD
    assert services["table"]["environment"]["KAFKA_PASSWORD"] == PASSWORD


@pytest.mark.parametrize("name", sorted(SECRETS))
def test_compose_insists_on_every_password(
    load: Callable[..., subprocess.CompletedProcess[str]], name: str
) -> None:
    for lacking in ({}, {name: ""}):
        refused = load(**dict.fromkeys(SECRETS - {name}, PASSWORD) | lacking)
        assert refused.returncode == 1
        assert f"required variable {name} is missing a value: set it in .env" in refused.stderr
