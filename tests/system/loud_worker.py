"""A worker that logs everything that it and every library under it has to say: `python tests/system/loud_worker.py`."""

import asyncio
import logging
import signal
import sys

from stream_dp.config.reading import load_settings
from stream_dp.errors import Refused
from stream_dp.workers.histogram import Worker


async def _run() -> None:
    worker = Worker(load_settings())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    await worker.run()


def main() -> None:
    """Run until SIGTERM; exits with 2 when it refuses."""
    logging.basicConfig(level=1, format="%(name)s %(levelname)s %(message)s", stream=sys.stdout)
    try:
        asyncio.run(_run(), debug=True)
    except Refused as refusal:
        logging.error("%r", refusal)
        sys.exit(2)


if __name__ == "__main__":
    main()
