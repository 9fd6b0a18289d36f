"""docker-compose.yml, read, and filled in as Compose would do it."""

import os
import re
from pathlib import Path
from typing import Any

import yaml

from stream_dp.config.reading import ENVIRONMENT_PREFIX

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
PASSWORD = "0123456789abcdef" * 4  # a key too
SECRETS = {
    "NOISE_KEY",
    *("KAFKA_PASSWORD", "VIEWER_PASSWORD", "TABLE_PASSWORD"),
    *("REDIS_PASSWORD", "OPERATOR_TOKEN", "GRAFANA_PASSWORD"),
}
TEXT = re.sub(r"^ *#.*$", "", COMPOSE.read_text(), flags=re.MULTILINE)
FILE: dict[str, Any] = yaml.safe_load(COMPOSE.read_text())
SERVICES: dict[str, dict[str, Any]] = FILE["services"]
PUBLIC = ["dashboard", "table"]
"""What reads public topics only."""
OWN = {name: service for name, service in SERVICES.items() if "build" in service}
ONCE = "rights"
"""What ends when it has done its work."""

VARIABLE = re.compile(r"(?<!\$)\$\{([A-Z_]+)(:\?[^}]+)?[^}]*\}|(?<!\$)\$([A-Za-z_]\w*)")
"""A variable that Compose fills in: its name, and the complaint where it has to be set."""


def with_password(text: str) -> str:
    """`text` as Compose fills it in."""
    return VARIABLE.sub(PASSWORD, text)


def environment(service: str, **instead: str) -> dict[str, str]:
    """The environment of a service, with some of its values replaced by what is reachable here."""
    written = {name: with_password(str(value)) for name, value in SERVICES[service]["environment"].items()}
    assert instead.keys() <= written.keys()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    return kept | written | instead
