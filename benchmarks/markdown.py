"""Tables in Markdown, as the documents hold them."""

from collections.abc import Iterable


def table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """In Markdown."""
    names = list(header)
    return "\n".join(f"| {' | '.join(row)} |" for row in (names, ["---"] * len(names), *map(list, rows)))
