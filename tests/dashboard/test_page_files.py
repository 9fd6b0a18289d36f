"""The files of the page: they fetch nothing from elsewhere, and what strangers wrote stays text."""

import re

from tests.dashboard.test_app import SCRIPTS, STATIC


def test_the_page_names_no_other_place_and_makes_no_markup_of_text() -> None:
    page, style = ((STATIC / name).read_text() for name in ("index.html", "dashboard.css"))
    script = "".join(file.read_text() for file in SCRIPTS)
    addresses = set(re.findall(r"https?://[^\s'\"]+", page + style + script))
    assert addresses == {"http://www.w3.org/2000/svg"}  # the name of a language, which nothing fetches
    assert "@import" not in style
    assert "url(" not in style
    assert " style=" not in page
    assert "<script>" not in page
    assert not re.search(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|new Function", script
    )
