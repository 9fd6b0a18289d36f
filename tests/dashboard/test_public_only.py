"""The dashboard has no way to what is private: it loads no code for Redis and asks Kafka for public topics only."""

import json
import subprocess
import sys
from pathlib import Path

import stream_dp.dashboard
from tests.system.waiting import GIVE_UP_SECONDS

PRIVATE = (
    "redis",
    "stream_dp.store",
    "stream_dp.workers.histogram",
    "stream_dp.pipeline.pipeline",
    "stream_dp.workers.resume",
    "faust",
    "aiokafka",
)
_LOADED = "import json, sys; import {module}; print(json.dumps(sorted(sys.modules)))"


def loaded(module: str) -> list[str]:
    """The modules that importing `module` loads in a fresh process."""
    ran = subprocess.run(
        [sys.executable, "-c", _LOADED.format(module=module)],
        capture_output=True,
        text=True,
        timeout=GIVE_UP_SECONDS,
        check=True,
    )
    found: list[str] = json.loads(ran.stdout)
    return found


def private(modules: list[str]) -> list[str]:
    return [name for name in modules if any(name == each or name.startswith(f"{each}.") for each in PRIVATE)]


_A_LIMIT = "from stream_dp.events.event import LONGEST_LABEL\n"
"""How long a label may be is public, and is no topic."""


def test_no_code_for_private_state_is_loaded() -> None:
    modules = loaded("stream_dp.cli, stream_dp.dashboard.server")
    assert "stream_dp.dashboard.reader" in modules
    assert private(modules) == []


def test_it_would_be_noticed() -> None:
    assert "stream_dp.store.checkpoints" in private(loaded("stream_dp.store.checkpoints"))


def test_its_code_names_neither_dead_letters_nor_redis() -> None:
    folder = Path(stream_dp.dashboard.__file__).parent
    for file in folder.glob("*.py"):
        code = (
            "\n".join(
                line
                for line in file.read_text().split('"""', 2)[2].splitlines()
                if not line.strip().startswith("#")
            )
            if file.name != "__init__.py"
            else ""
        )
        for word in ("redis", "dead_letter", "DeadLetter", ".events"):
            assert word not in code.replace(_A_LIMIT, ""), (file.name, word)
