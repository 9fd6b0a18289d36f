"""The dashboard's page with its scripts and styles as one document, for a frame that cannot load anything.

The scripts stay modules: each is a data URL under a bare name, because a module in a data URL cannot name another one
relative to itself.
"""

import json
import re
from base64 import b64encode
from html import escape
from pathlib import Path
from urllib.parse import urlencode

from stream_dp.dashboard.app import STATIC

OWN = Path(__file__).parent / "static"
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'"
)
_STYLE = re.compile(r'<link rel="stylesheet" href="([^"]+)">')
_SCRIPT = re.compile(r'<script src="([^"]+)" type="module"></script>')
_IMPORT = re.compile(r'((?:from|import) )"\./([^"]+)"')


def document(query: list[tuple[str, str]] | None = None) -> str:
    """The page as HTML with everything that it loads; `query` is what its address would ask for.

    `kernel.js` stands for `server.js` there.
    """
    html = (STATIC / "index.html").read_text()
    html = _STYLE.sub(lambda link: f"<style>{(STATIC / link[1]).read_text()}</style>", html)
    main = _SCRIPT.search(html)
    assert main is not None
    modules: dict[str, str] = {}
    _collect(main[1], modules)
    imports = {f"page/{name}": _data_url(text) for name, text in modules.items()}
    scripts = (
        f'<script type="importmap">{json.dumps({"imports": imports})}</script>'
        f'<script type="module">import "page/{main[1]}";</script>'
    )
    asked = escape(urlencode(query or []))
    policy = f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    html = html.replace(main[0], scripts)
    html = html.replace('<html lang="en">', f'<html lang="en" data-place="notebook" data-query="{asked}">')
    return html.replace("<head>", f"<head>{policy}")


def _collect(name: str, modules: dict[str, str]) -> None:
    """Add a module and all that it imports."""
    if name in modules:
        return
    text = (OWN / "kernel.js" if name == "server.js" else STATIC / name).read_text()
    modules[name] = _IMPORT.sub(r'\1"page/\2"', text)
    for found in _IMPORT.finditer(text):
        _collect(found[2], modules)


def _data_url(script: str) -> str:
    return f"data:text/javascript;base64,{b64encode(script.encode()).decode()}"
