"""Files of others are exactly those of the package that they name, and the page stays light with them."""

import gzip

from tests.dashboard.vendored import RECORD, VENDOR, packages, sha256

HEAVIEST_PAGE = 150_000
"""Bytes, compressed: everything that a browser loads to show the page."""


def test_files_of_others_are_those_of_their_packages() -> None:
    for folder, package in packages():
        found = {file.name: sha256(file.read_bytes()) for file in folder.iterdir() if file.name != RECORD}
        assert found == {place.rpartition("/")[2]: digest for place, digest in package.files.items()}
        assert "LICENSE" in found
        assert package.license in ("MIT", "MPL-2.0")
        assert package.integrity.startswith("sha512-")


def test_the_whole_page_is_light() -> None:
    files = [each for each in VENDOR.parent.rglob("*") if each.suffix in (".html", ".css", ".js")]
    weight = sum(len(gzip.compress(each.read_bytes(), 6)) for each in files)
    print(f"the page weighs {weight:,} bytes compressed")
    assert 40_000 < weight < HEAVIEST_PAGE
