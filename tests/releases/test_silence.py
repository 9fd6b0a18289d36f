"""Are many rounds without a label told, and only where that is strange?"""

import msgspec
import pytest

from stream_dp.releases.silence import rounds_without_label, silence
from tests.example_releases import release

EMPTY = msgspec.structs.replace(release(176, {}), shown="kept")  # tau 112, sd 15.92


def test_no_label_is_strange_once_one_of_every_round_would_be_shown() -> None:
    assert rounds_without_label(EMPTY) == 176
    assert rounds_without_label(msgspec.structs.replace(EMPTY, round=175)) == 0
    assert "176 rounds without a label" in (silence(EMPTY) or "")


@pytest.mark.parametrize("changed", [{"labels": ["tea"], "counts": [112]}, {"shown": "each-round"}])
def test_what_is_shown_or_was_perhaps_shown_before_is_not_strange(changed: dict[str, object]) -> None:
    assert silence(msgspec.structs.replace(EMPTY, **changed)) is None
