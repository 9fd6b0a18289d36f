"""Are the files of others that the page and its tests use those of their npm packages?

    python -m tests.dashboard.vendored

asks npm for the packages and compares.  Digests are those that npm gives, of the package, and sha256, of each file.
"""

import base64
import hashlib
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

import stream_dp.dashboard

VENDOR = Path(stream_dp.dashboard.__file__).parent / "static/vendor"
AXE = Path(__file__).parent / "axe"
RECORD = "vendored.json"


class Package(msgspec.Struct, forbid_unknown_fields=True):
    """What was taken: `files` by the place they have in the package, each with its sha256."""

    package: str
    version: str
    license: str
    integrity: str
    files: dict[str, str]


def packages() -> Iterator[tuple[Path, Package]]:
    """Each folder of others' files, with its record."""
    for folder in (*sorted(VENDOR.iterdir()), AXE):
        yield folder, msgspec.json.decode((folder / RECORD).read_bytes(), type=Package)


def sha256(content: bytes) -> str:
    """In hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Fetch every package and compare; ends with status 1 at a difference."""
    for _, package in packages():
        with tempfile.TemporaryDirectory() as name:
            wanted = f"{package.package}@{package.version}"
            subprocess.run(["npm", "pack", "--silent", wanted], cwd=name, check=True, stdout=subprocess.PIPE)
            [file] = Path(name).iterdir()
            found = "sha512-" + base64.b64encode(hashlib.sha512(file.read_bytes()).digest()).decode()
            with tarfile.open(file) as packed:
                inside = {
                    each: packed.extractfile(f"package/{each}").read()  # type: ignore[union-attr]
                    for each in package.files
                }
        same = found == package.integrity and {each: sha256(c) for each, c in inside.items()} == package.files
        print(f"{wanted}: {'as recorded' if same else 'DIFFERS'}")
        if not same:
            sys.exit(1)


if __name__ == "__main__":
    main()
