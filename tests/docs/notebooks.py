"""The notebooks of the documents, run from the first cell to the last in a real kernel.

    python -m tests.docs.notebooks

writes their outputs into docs/notebooks.
"""

import os
import tempfile
import time
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from rich.console import Console
from rich.progress import track

from stream_dp.config.settings import Settings
from stream_dp.dev.servers import embedded
from tests.dashboard.shop import an_hour
from tests.system.streams import Stream
from tests.system.waiting import GIVE_UP_SECONDS

FOLDER = Path(__file__).parents[2] / "docs" / "notebooks"
NAMES = tuple(sorted(file.stem for file in FOLDER.glob("*.ipynb")))


def executed(name: str, kafka: str, folder: Path) -> Any:
    """A notebook after a run in `folder`, where the stream `shop` is at the broker `kafka`.

    Raises CellExecutionError.  What differs from run to run without a meaning is left out: times, the state of widgets.
    """
    notebook: Any = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)  # type: ignore[no-untyped-call]
    client = NotebookClient(
        notebook,
        timeout=int(10 * GIVE_UP_SECONDS),
        startup_timeout=int(GIVE_UP_SECONDS),
        record_timing=False,
        store_widget_state=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env=os.environ | {"STREAM_DP_KAFKA": kafka, "IPYTHONDIR": str(folder / "ipython")})
    return notebook


def main() -> None:
    """Run all of them and keep what they show."""
    with tempfile.TemporaryDirectory() as name, embedded(Path(name) / "servers") as servers:
        place = Path(name)
        stream = Stream(Settings(stream="shop", kafka=servers.kafka), place)
        stream.create_topics()
        stream.write("shop.releases", an_hour("shop", time.time_ns() // 1_000_000))
        for each in track(NAMES, "Notebooks", console=Console()):
            (place / each).mkdir()
            nbformat.write(executed(each, servers.kafka, place / each), FOLDER / f"{each}.ipynb")  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main()
