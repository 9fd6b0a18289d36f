"""Expected values computed independently of this code, and real events that lie beside the checkout."""

import json
import os
from pathlib import Path
from typing import Any

_VECTORS = Path(__file__).parent / "vectors"


def vectors(name: str = "mechanisms") -> dict[str, Any]:
    """Expected values computed independently of this code; numbers are strings of 17 digits."""
    return json.loads((_VECTORS / f"{name}.json").read_text())


def shared(path: str) -> Path:
    """The file `path` of the folder of real data, which is too large to commit (`SHARED_FOLDER`, or `../shared`)."""
    root = Path(os.environ.get("SHARED_FOLDER", Path(__file__).resolve().parents[2] / "shared"))
    return root / path


RETAIL = shared("data/online_retail.jsonl.gz")
"""Real invoices as events of this project's format, one a line; a clone alone does not have them."""

NO_INVOICES = (
    f"the retail invoices are missing: they have to lie in {RETAIL}, or in data/ below the folder that the environment "
    "variable SHARED_FOLDER names"
)
"""What to say to who needs them."""
