"""A hook of MkDocs: the pages that lie in the root of the repository are pages of the site too."""

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": "index.md",
    **{name: name for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md")},
}
_LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)#]+)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root, with links that start at `docs/`."""
    for name, place in PAGES.items():
        content = _LINK.sub(lambda link: _from_docs(link[1]), (ROOT / name).read_text())
        files.append(File.generated(config, place, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let links that leave `docs/` lead to the page of the site, or say the file's name where there is none."""
    folder = Path("docs", page.file.src_uri).parent

    def there(link: re.Match[str]) -> str:
        text, target, rest = link[1], link[2], link[3] or ""
        path = (ROOT / folder / target).resolve()
        if path.is_relative_to(ROOT / "docs") or not path.is_relative_to(ROOT):
            return link[0]
        name = path.relative_to(ROOT).as_posix()
        if name in PAGES:
            return f"[{text}]({'../' * (len(folder.parts) - 1)}{PAGES[name]}{rest})"
        return f"{text} (`{name}`)"

    return re.sub(r"\[([^\]]*)\]\((?!https?:|#)([^)#]+)(#[^)]*)?\)", there, markdown)


def _from_docs(link: str) -> str:
    """A link of the root, as it is written in `docs/`."""
    return (
        PAGES[link]
        if link in PAGES
        else link.removeprefix("docs/")
        if link.startswith("docs/")
        else f"../{link}"
    )
