"""What of an event may enter any state: compared with dictionaries, for both privacy units."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.counters.calibration import calibrate, coupling_delta
from stream_dp.events.bounding import PAIR_BYTES, EventBound, UserBits, UserBound
from stream_dp.events.event import BadRecord, Event
from tests import naive
from tests.strategies import labels

KEY, NONCE = bytes(range(32)), bytes(range(16))


@pytest.mark.parametrize(
    ("items", "items_per_event", "expected"),
    [
        (["a", "b", "c"], 2, ["a", "b"]),
        (["b", "b", "a", "b", "c"], 2, ["b", "a"]),
        (["a", "a", "a"], 2, ["a"]),
        ([], 3, []),
        (["c", "a"], 5, ["c", "a"]),
    ],
)
def test_the_first_distinct_items_of_an_event_are_admitted(
    items: list[str], items_per_event: int, expected: list[str]
) -> None:
    assert expected == EventBound(items_per_event).admit(Event(items))


@given(st.lists(labels, max_size=12), st.integers(1, 5))
def test_the_event_bound_equals_the_slow_implementation(items: list[str], items_per_event: int) -> None:
    bound = EventBound(items_per_event)
    assert naive.first_distinct(items, items_per_event) == bound.admit(Event(items))
    assert (bound.units, bound.over) == (bool(items), len({*items}) > items_per_event)


events = st.lists(
    st.tuples(st.sampled_from(["u", "v", "w", None]), st.lists(labels, max_size=6)), max_size=40
)


def admitted(bound: UserBound, log: list[tuple[str | None, list[str]]]) -> list[list[str] | None]:
    """What is admitted of each event; None where nothing may be."""
    found: list[list[str] | None] = []
    for user, items in log:
        try:
            found.append(bound.admit(Event(items, user)))
        except BadRecord:
            found.append(None)
    return found


@given(events, st.integers(1, 4))
def test_the_user_bound_equals_plain_dictionaries(log: list[tuple[str | None, list[str]]], most: int) -> None:
    assert naive.admitted_of_users(log, most) == admitted(UserBound(most, KEY, NONCE), log)


@given(events, st.integers(1, 3), st.integers(0, 40))
def test_a_bound_goes_on_where_its_pairs_were_kept(
    log: list[tuple[str | None, list[str]]], most: int, cut: int
) -> None:
    first = UserBound(most, KEY, NONCE)
    found = admitted(first, log[:cut])
    second = UserBound(most, KEY, NONCE, bytes(first.pairs))
    assert second.pairs == first.pairs
    found += admitted(second, log[cut:])
    assert naive.admitted_of_users(log, most) == found
    whole = UserBound(most, KEY, NONCE)
    admitted(whole, log)
    assert whole.pairs == second.pairs
    assert len(whole.pairs) == PAIR_BYTES * sum(len(items or ()) for items in found)


@given(events, st.integers(1, 3))
def test_what_one_user_does_decides_nothing_about_another(
    log: list[tuple[str | None, list[str]]], most: int
) -> None:
    """Emptying all events of one user takes out what was admitted of them, and nothing else."""
    emptied = [(None, []) if user == "u" else (user, items) for user, items in log]
    with_user, without = (admitted(UserBound(most, KEY, NONCE), each) for each in (log, emptied))
    own = [items or [] for (user, _), items in zip(log, with_user, strict=True) if user == "u"]
    assert (
        len([item for items in own for item in items])
        == len({item for items in own for item in items})
        <= most
    )
    for (user, _), one, other in zip(log, with_user, without, strict=True):
        assert one == other or user == "u"


def test_the_noise_of_the_user_unit_is_that_of_as_many_items_of_an_event() -> None:
    """Only that users are told apart by 128 bits is charged on top, far below what s2 is rounded to."""
    (event, promised), (user, of_user), (day, of_day) = (
        calibrate(1.0, 1e-6, 65_535, 4, unit=unit) for unit in ("event", "user", "user-day")
    )
    assert user == event == day
    assert (of_user.unit, of_user.rho, of_user.delta) == ("user", promised.rho, promised.delta)
    assert (of_day.unit, of_day.rho, of_day.delta) == ("user-day", promised.rho, promised.delta)
    assert coupling_delta(65_535, 4, "user") - coupling_delta(65_535, 4, "event") == pytest.approx(
        2.0**-88, rel=1e-6
    )
    assert of_user.sentence.startswith(
        "Taking any one user, with all of their events, out of the data changes"
    )
    with pytest.raises(ValueError, match="items_per_user must be between"):
        calibrate(1.0, 1e-6, 65_535, 0, unit="user")


def test_users_and_items_are_kept_under_the_key_and_the_epoch() -> None:
    """Neither a name nor a label, and nothing that two epochs or two keys have in common."""
    kept = []
    for key, nonce in ((KEY, NONCE), (bytes(32), NONCE), (KEY, bytes(16))):
        bound = UserBound(2, key, nonce)
        bound.admit(Event(["tea"], "alice"))
        kept.append(bytes(bound.pairs))
        assert b"alice" not in bound.pairs
        assert b"tea" not in bound.pairs
    assert len({pairs[:16] for pairs in kept}) == len({pairs[16:] for pairs in kept}) == 3


def test_a_user_of_four_items_takes_less_than_400_bytes() -> None:
    """As docs/guarantee.md says of the worker's memory; Redis holds 24 bytes of them a pair."""
    users = 6_000
    items = [f"item {number}" for number in range(4)]
    tracemalloc.start()
    try:
        bound = UserBound(4, KEY, NONCE)
        for user in range(users):
            bound.admit(Event(items, f"user {user}"))
        memory = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(bound.pairs) == users * 4 * 24
    assert memory / users < 400


@given(st.lists(st.text(max_size=300), max_size=6), st.binary(min_size=16, max_size=16))
def test_bits_of_many_are_those_of_each(names: list[str], nonce: bytes) -> None:
    bits = UserBits(KEY, nonce)
    assert bits.of_users(names).tobytes() == b"".join(bits.of_user(Event([], name)) for name in names)
    assert bits.of_items(names).tobytes() == b"".join(map(bits.of_item, names))
