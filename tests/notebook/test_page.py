"""The page of a widget is one document that loads nothing, and whose modules are those of the dashboard."""

import json
import re
from base64 import b64decode

from stream_dp.notebook.page import document


def modules(html: str) -> dict[str, str]:
    [found] = re.findall(r'<script type="importmap">(.*?)</script>', html)
    imports: dict[str, str] = json.loads(found)["imports"]
    return {name: b64decode(url.partition(",")[2]).decode() for name, url in imports.items()}


def test_every_module_that_is_imported_is_in_the_document() -> None:
    html = document()
    held = modules(html)
    named = {name for text in held.values() for name in re.findall(r'(?:from|import) "([^"]+)"', text)}
    assert named | {"page/dashboard.js"} == set(held)
    assert held["page/server.js"].startswith("/* Where everything on the page comes from in a notebook")


def test_it_loads_nothing() -> None:
    html = document()
    assert '<link rel="stylesheet"' not in html
    assert not re.search(r"<script[^>]* src=", html)
    assert "default-src 'none'" in html


def test_what_is_asked_for_cannot_leave_its_place() -> None:
    html = document([("label", '"><script>alert(1)</script>'), ("window", "5m")])
    assert 'data-query="label=%22%3E%3Cscript%3Ealert%281%29%3C%2Fscript%3E&amp;window=5m"' in html
