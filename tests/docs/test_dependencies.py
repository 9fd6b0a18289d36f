"""An audit of the dependencies tells known vulnerabilities from a database that was not asked."""

from tests.dependencies import UNREACHED, verdict

SOUND = {"name": "good", "version": "1.0", "vulns": []}
BROKEN = {
    "name": "bad",
    "version": "1.0",
    "vulns": [{"id": "PYSEC-1", "fix_versions": ["1.1"]}, {"id": "PYSEC-2", "fix_versions": []}],
}
PASSED_OVER = {"name": "other", "skip_reason": "Dependency not found on PyPI"}


def test_known_vulnerabilities_fail() -> None:
    told, status = verdict({"dependencies": [SOUND, BROKEN, PASSED_OVER]})
    assert status == 1
    assert told.splitlines() == [
        "bad 1.0: PYSEC-1, fixed in 1.1",
        "bad 1.0: PYSEC-2, fixed in none",
        "Packages audited: 2. Known vulnerabilities: 2. Not audited: other.",
    ]


def test_none_known_passes() -> None:
    assert verdict({"dependencies": [SOUND]}) == ("Packages audited: 1. Known vulnerabilities: 0.", 0)


def test_a_database_that_was_not_asked_is_not_taken_for_a_good_answer() -> None:
    for packages in ([], [PASSED_OVER] * 3):
        assert verdict({"dependencies": packages}) == (UNREACHED, 0)
