"""Users are bounded in arrays as one worker bounds them one after the other."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from stream_dp.events.bounding import UserBits, UserBound
from stream_dp.events.event import Event
from stream_dp.spark import user_tasks
from stream_dp.spark.user_tasks import decide

KEY, NONCE = bytes(range(32)), bytes(range(16))
EVENTS = st.lists(
    st.tuples(st.sampled_from("uvw"), st.lists(st.sampled_from("abcde"), max_size=4)), max_size=12
)


def rows_of(events: list[tuple[str, list[str]]]) -> NDArray[np.uint64]:
    """A row for each item of each event, as tasks read them."""
    bits = UserBits(KEY, NONCE)
    users = [user for user, items in events for _ in items]
    items = [item for _, items in events for item in items]
    return np.concatenate([bits.of_users(users), bits.of_items(items)[:, None]], axis=1)


@given(EVENTS, EVENTS, st.integers(1, 3), st.booleans())
def test_arrays_decide_as_one_worker_does(
    before: list[tuple[str, list[str]]],
    events: list[tuple[str, list[str]]],
    items_per_user: int,
    cap_share: bool,
) -> None:
    bound = UserBound(items_per_user, KEY, NONCE, cap_share=cap_share)
    bound.admit_all([Event(items, user) for user, items in before])
    known = np.frombuffer(bytes(bound.pairs), "<u8").reshape(-1, 3)
    units, over = bound.units, bound.over

    decided, kept = decide(known, rows_of(events), items_per_user, cap_share)

    admitted = bound.admit_all([Event(items, user) for user, items in events])
    items = [item for _, items in events for item in items]
    counts = (decided & user_tasks._COUNTS) > 0
    assert [item for item, admits in zip(items, counts, strict=True) if admits] == admitted
    assert known.tobytes() + rows_of(events)[kept].tobytes() == bytes(bound.pairs)
    if cap_share:
        assert np.count_nonzero(decided & user_tasks._FIRST) == bound.units - units
        assert np.count_nonzero(decided & user_tasks._OVER) == bound.over - over
    else:
        assert not (decided & (user_tasks._FIRST | user_tasks._OVER)).any()
