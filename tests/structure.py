"""Count the imports between the parts of the package: `python -m tests.structure`.

A part is a folder of `stream_dp/`, or a file that lies in none.  Imports for types alone do not count.
"""

from pathlib import Path

import grimp

import stream_dp

PACKAGE = Path(stream_dp.__file__).parent


def parts() -> list[str]:
    """The folders of the package, and the files that lie in none."""
    folders = [path.parent.name for path in PACKAGE.glob("*/__init__.py")]
    return sorted([*folders, *(path.stem for path in PACKAGE.glob("[!_]*.py"))])


def arrows() -> set[tuple[str, str]]:
    """Which part imports which other one."""
    graph = grimp.build_graph("stream_dp", exclude_type_checking_imports=True)
    found = set()
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            pair = tuple(f"{name}.".split(".")[1] for name in (importer, imported))
            if all(pair) and pair[0] != pair[1]:
                found.add((pair[0], pair[1]))
    return found


def circles() -> list[set[str]]:
    """The groups of files that import each other, at the top or within functions."""
    graph = grimp.build_graph("stream_dp", exclude_type_checking_imports=True)
    groups = []
    for module in sorted(graph.modules):
        ahead = graph.find_upstream_modules(module) & graph.find_downstream_modules(module)
        if ahead and {module, *ahead} not in groups:
            groups.append({module, *ahead})
    return groups


if __name__ == "__main__":
    print(
        f"{len(parts())} parts, {len(arrows())} arrows between them, circles of files: {circles() or 'none'}"
    )
