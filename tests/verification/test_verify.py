"""`verify` tells an unchanged log from every kind of changed one, and changed releases from a changed log."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.log_digest import NOTHING, LogDigest, LogDigester
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.verification.verify import Outcome, Verdict, verify

KEY = bytes(range(32))
NONCE = bytes(range(16))
EPOCH = replace(
    Epoch.open(
        Settings(stream="shop", epsilon=20.0, horizon=255, items_per_event=2, mechanism="binary"), 1, 0
    ),
    nonce=NONCE,
)
SETTINGS_OF_SEVEN = Settings(
    stream="shop", epsilon=20.0, horizon=63, items_per_event=2, rounds="every-7", mechanism="binary"
)
MUTATED_LOGS = 350


def event(offset: int, *items: str) -> Record:
    listed = ",".join(f'"{item}"' for item in items)
    return Record(offset, 1_700_000_000_000 + offset, None, b'{"items":[%b]}' % listed.encode())


LOG = [
    event(i, f"item {i % 3}", f"item {i * i % 7}") if i % 9 else Record(i, 5, b"key", b"bad")
    for i in range(120)
]


def released(log: list[Record]) -> list[ReleasedPart]:
    return Pipeline(EPOCH, KEY, "shop.events").process(log).releases


RELEASES = released(LOG)


def committed(log: list[Record], size: int = 1, key: bytes = KEY) -> LogDigest:
    """The commitment to rounds of `size` records."""
    return LogDigester(key).extend(NOTHING, [[(0, log[i : i + size])] for i in range(0, len(log), size)])


COUNTED = committed(LOG)


def outcome(
    log: list[Record],
    releases: list[ReleasedPart] = RELEASES,
    counted: LogDigest = COUNTED,
    released: int = 0,
) -> Outcome:
    return verify(EPOCH, KEY, "shop.events", log, releases, counted, released)


def changed_at(place: int) -> list[Record]:
    """The log with another item at one place, at the same time."""
    new = event(place, "item 0", "new")._replace(timestamp=LOG[place].timestamp)
    return [*LOG[:place], new, *LOG[place + 1 :]]


def in_order(records: list[Record]) -> list[Record]:
    """The same contents as a new log: numbered and timed by their new places."""
    return [Record(i, LOG[i].timestamp, record.key, record.value) for i, record in enumerate(records)]


def test_an_unchanged_log_is_identical() -> None:
    certificate = outcome(LOG).certificate
    assert (
        certificate.verdict,
        certificate.sound,
        certificate.rounds,
        certificate.log_records,
    ) == (Verdict.IDENTICAL, True, 120, 120)
    assert outcome(LOG).difference is None
    assert certificate == outcome(LOG).certificate


def test_a_log_that_goes_on_is_extended_and_sound() -> None:
    longer = outcome([*LOG, event(120, "item 1")]).certificate
    assert (
        longer.verdict,
        longer.sound,
        longer.rounds,
        longer.log_records,
    ) == (Verdict.EXTENDED, True, 120, 121)


def test_a_round_sent_twice_alike_changes_nothing() -> None:
    assert Verdict.IDENTICAL is outcome(LOG, [*RELEASES[:50], *RELEASES[40:]]).certificate.verdict


def test_a_round_sent_twice_differently_is_found() -> None:
    forged = RELEASES[44]._replace(value=RELEASES[44].value.replace(b'"round":45', b'"round":46'))
    found = outcome(LOG, [*RELEASES[:50], forged, *RELEASES[50:]])
    assert Verdict.RELEASES_CHANGED is found.certificate.verdict
    assert found.difference is not None
    assert found.difference[:2] == (45, 1)


@pytest.mark.parametrize("kept", [0, 1, 60, 119])
def test_a_log_that_ends_early_is_truncated(kept: int) -> None:
    found = outcome(LOG[:kept])
    assert (Verdict.TRUNCATED, kept) == (found.certificate.verdict, found.certificate.rounds)


def test_a_log_that_begins_late_is_truncated() -> None:
    assert Verdict.TRUNCATED is outcome(LOG[7:]).certificate.verdict


@given(st.sets(st.integers(0, 119), max_size=119), st.sampled_from([COUNTED, NOTHING]))
def test_missing_releases_are_counted_and_neither_log_nor_releases_are_blamed(
    lost: set[int], counted: LogDigest
) -> None:
    found = outcome(LOG, [part for i, part in enumerate(RELEASES) if i not in lost], counted, released=120)
    verdict = Verdict.RELEASES_INCOMPLETE if lost else Verdict.IDENTICAL
    certificate = found.certificate
    assert (certificate.verdict, certificate.sound, certificate.missing) == (verdict, True, len(lost))
    assert found.missing == sorted(i + 1 for i in lost)
    assert certificate.rounds == found.last == max({*range(120)} - lost) + 1


def test_releases_that_are_all_lost_are_missing_where_they_are_known_to_have_been_made() -> None:
    found = outcome(LOG, [], released=120)
    assert (found.certificate.verdict, found.certificate.missing) == (Verdict.RELEASES_INCOMPLETE, 120)
    assert outcome(LOG, [], released=0).certificate.verdict is Verdict.EXTENDED
    assert outcome(changed_at(100), [], released=120).certificate.verdict is Verdict.EDITED


@given(st.integers(0, 119), st.sets(st.integers(0, 119), max_size=119))
def test_an_edit_before_any_release_that_is_left_is_found_without_a_checkpoint(
    edited: int, lost: set[int]
) -> None:
    """Its tag covers all rounds before it, those among them whose releases are lost."""
    left = [part for i, part in enumerate(RELEASES) if i not in lost]
    tells = left[-1].round > edited
    verdict = outcome(changed_at(edited), left, NOTHING).certificate.verdict
    assert (verdict is Verdict.EDITED) == tells


def test_releases_that_were_written_again_behind_later_ones_are_compared_too() -> None:
    late = [*RELEASES[10:], *RELEASES[:10]]
    assert outcome(LOG, late, released=120).certificate.verdict is Verdict.IDENTICAL
    forged = RELEASES[4]._replace(value=RELEASES[4].value.replace(b'"counts":[', b'"counts":[ '))
    found = outcome(LOG, [*RELEASES[10:], *RELEASES[:4], forged, *RELEASES[5:10]])
    assert found.certificate.verdict is Verdict.RELEASES_CHANGED
    assert found.difference is not None
    assert found.difference.round == 5


def test_a_changed_release_is_told_from_an_edited_log_without_a_checkpoint() -> None:
    """It carries the tag that the log gives."""
    forged = RELEASES[60]._replace(value=RELEASES[60].value.replace(b'"counts":[', b'"counts":[ '))
    left = [*RELEASES[5:60], forged, *RELEASES[70:]]
    assert outcome(LOG, left, NOTHING).certificate.verdict is Verdict.RELEASES_CHANGED
    assert outcome(changed_at(3), left, NOTHING).certificate.verdict is Verdict.EDITED


def test_another_key_gives_none_of_the_releases() -> None:
    found = verify(EPOCH, bytes(32), "shop.events", LOG, RELEASES, COUNTED)
    assert not found.certificate.sound


def test_another_nonce_gives_none_of_the_releases() -> None:
    found = verify(replace(EPOCH, nonce=bytes(16)), KEY, "shop.events", LOG, RELEASES, COUNTED)
    assert Verdict.RELEASES_CHANGED is found.certificate.verdict


def test_the_commitment_needs_the_key() -> None:
    """Whoever guesses the log cannot confirm the guess from a certificate."""
    assert committed(LOG, key=bytes(32)).sequence.hex() != outcome(LOG).certificate.log


def test_an_edit_that_changes_no_release_is_found_too() -> None:
    edited = [*LOG]
    edited[18] = edited[18]._replace(value=b"bad in another way")
    assert Verdict.EDITED is outcome(edited).certificate.verdict


def test_rounds_of_several_events_are_told_by_rounds_and_not_by_records() -> None:
    """120 records in rounds of 7: the last of them is in the round that is open."""
    epoch = replace(Epoch.open(SETTINGS_OF_SEVEN, 1, 0), nonce=NONCE)
    releases = Pipeline(epoch, KEY, "shop.events").process(LOG).releases
    counted = committed(LOG[:119], 7)
    more = [event(120 + i, "item 1") for i in range(7)]
    for log, verdict in (
        (LOG, Verdict.IDENTICAL),
        (LOG[:119], Verdict.IDENTICAL),
        ([*LOG, *more[:5]], Verdict.IDENTICAL),
        ([*LOG, *more[:6]], Verdict.EXTENDED),
        ([*LOG[:119], event(119, "another")], Verdict.IDENTICAL),
        (LOG[:118], Verdict.TRUNCATED),
        (LOG[7:], Verdict.TRUNCATED),
        ([*LOG[:50], event(50, "another"), *LOG[51:]], Verdict.EDITED),
        (in_order([LOG[1], LOG[0], *LOG[2:]]), Verdict.EDITED),
    ):
        certificate = verify(epoch, KEY, "shop.events", log, releases, counted).certificate
        assert (certificate.verdict, certificate.rounds) == (
            verdict,
            17 if certificate.sound else certificate.rounds,
        )
    lost = [*releases[:9], *releases[10:]]
    found = verify(epoch, KEY, "shop.events", LOG, lost, counted).certificate
    assert (found.verdict, found.rounds, found.missing) == (Verdict.RELEASES_INCOMPLETE, 17, 1)


def test_no_mutated_log_gets_a_wrong_verdict() -> None:
    random_ = random.Random(7)
    for _ in range(MUTATED_LOGS):
        kind, log = random_.choice(MUTATIONS)(random_)
        assert kind is outcome(log).certificate.verdict, kind


def edit(random_: random.Random) -> tuple[Verdict, list[Record]]:
    log = [*LOG]
    place = random_.randrange(len(log))
    log[place] = event(place, "item 0", f"new {random_.random()}")._replace(timestamp=log[place].timestamp)
    return Verdict.EDITED, log


def remove(random_: random.Random) -> tuple[Verdict, list[Record]]:
    """One record is erased and the log written anew without it."""
    place = random_.randrange(len(LOG) - 1)
    return Verdict.EDITED, in_order([*LOG[:place], *LOG[place + 1 :]])


def insert(random_: random.Random) -> tuple[Verdict, list[Record]]:
    place = random_.randrange(len(LOG))
    records = [*LOG[:place], event(0, f"new {random_.random()}"), *LOG[place:]]
    return Verdict.EDITED, [*in_order(records[: len(LOG)]), records[-1]._replace(offset=len(LOG))]


def swap(random_: random.Random) -> tuple[Verdict, list[Record]]:
    while True:
        first, second = random_.sample(range(len(LOG)), 2)
        if LOG[first].value != LOG[second].value:
            records = [*LOG]
            records[first], records[second] = records[second], records[first]
            return Verdict.EDITED, in_order(records)


def truncate(random_: random.Random) -> tuple[Verdict, list[Record]]:
    return Verdict.TRUNCATED, LOG[: random_.randrange(len(LOG))]


def extend(random_: random.Random) -> tuple[Verdict, list[Record]]:
    more = random_.randrange(1, 150)
    return Verdict.EXTENDED, [*LOG, *(event(len(LOG) + i, f"more {i}") for i in range(more))]


def leave(random_: random.Random) -> tuple[Verdict, list[Record]]:
    return Verdict.IDENTICAL, LOG


MUTATIONS = [edit, remove, insert, swap, truncate, extend, leave]
