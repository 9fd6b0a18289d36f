"""The embedded broker behind TLS, in a process of its own: `python -m tests.system.tls_broker CA CERT KEY PORT FOLDER`.

It lets in only clients that show a certificate.
"""

import asyncio
import ssl
import sys
from functools import partial
from pathlib import Path

from stream_dp.dev import broker


def main() -> None:
    """Serve until SIGTERM."""
    ca, cert, key, port, folder = sys.argv[1:]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
    context.load_cert_chain(cert, key)
    context.verify_mode = ssl.CERT_REQUIRED
    asyncio.start_server = partial(asyncio.start_server, ssl=context)
    Path(folder).mkdir(parents=True, exist_ok=True)
    asyncio.run(broker.serve(Path(folder), "127.0.0.1", int(port)))


if __name__ == "__main__":
    main()
