"""Windows are verified from one of the last blocks on: what that needs of the log, what it finds, what it claims."""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import msgspec
import pytest
from msgspec.structs import replace as replaced

from stream_dp.config.settings import Settings
from stream_dp.engine.epoch import Epoch
from stream_dp.events.record import Record
from stream_dp.pipeline.pipeline import Pipeline, ReleasedPart
from stream_dp.releases.release import Release, decode_release
from stream_dp.verification.block_start import BlockStart
from stream_dp.verification.verify import Outcome, Verdict, verify

KEY = bytes(range(32))
TOPIC = "shop.events"
ROUNDS = 240
WINDOWS = (2, 5, 12)


@lru_cache
def epoch_of(window: int) -> Epoch:
    settings = Settings(
        stream="shop", epsilon=1.0, delta=0.5, items_per_event=2, mechanism="window", window=window
    )
    return replace(Epoch.open(settings, 1, 0), nonce=bytes(range(16)))


def event(offset: int, *items: str) -> Record:
    listed = ",".join(f'"{item}"' for item in items)
    return Record(offset, 1_700_000_000_000 + offset, None, b'{"items":[%b]}' % listed.encode())


LOG = [event(number, f"lately {number // 9}", f"{number * number % 7}") for number in range(ROUNDS)]
"""Labels come and go: whoever is shown has often no event any more."""


@lru_cache
def releases(window: int) -> tuple[ReleasedPart, ...]:
    return tuple(Pipeline(epoch_of(window), KEY, TOPIC).process(LOG).releases)


def start_at(window: int, block: int) -> BlockStart:
    first = block * window + 1
    labels = decode_release(releases(window)[first - 1].value).labels
    return BlockStart(block, window, labels, first - 1, first - 1, (first - 1,))


def outcome(start: BlockStart, log: list[Record], published: list[ReleasedPart] | None = None) -> Outcome:
    before = start.first_round - 1
    parts = list(releases(start.window)[before:]) if published is None else published
    return verify(epoch_of(start.window), KEY, TOPIC, log[before:], parts, start=start)


def last_start(window: int) -> BlockStart:
    return start_at(window, ROUNDS // window - 3)


@pytest.mark.parametrize("window", WINDOWS)
def test_from_every_block_on_the_same_bytes_come_out_whatever_the_log_was_before(window: int) -> None:
    for block in range(
        1, ROUNDS // window, {2: 13, 5: 3, 12: 1}[window]
    ):  # odd steps: blocks of both parities
        start = start_at(window, block)
        forgotten = [event(number, "gone") for number in range(start.first_round - 1)]
        certificate = outcome(start, forgotten + LOG[start.first_round - 1 :]).certificate
        assert (certificate.verdict, certificate.missing) == (Verdict.IDENTICAL, 0), block
        assert (certificate.first_round, certificate.rounds) == ((block + 1) * window + 1, ROUNDS)
        assert certificate.log_records == ROUNDS - block * window


def test_the_labels_that_the_first_block_takes_over_decide_what_is_shown_later() -> None:
    """One that nobody brings any more may pass a test there by noise alone, and is then shown in the next block."""
    window, blocks = 5, 400
    epoch = epoch_of(window)
    log = [
        event(place, f"{block} a", f"{block} b") if block % 2 == 0 else event(place)
        for place in range(blocks * window)
        for block in [place // window]
    ]
    parts = Pipeline(epoch, KEY, TOPIC).process(log).releases
    changed = 0
    for block in range(1, blocks - 1, 2):
        before, end = block * window, (block + 2) * window
        labels = decode_release(parts[before].value).labels
        right = BlockStart(block, window, labels, before, before, (before,))
        wrong = replace(right, carried=())
        found, other = (
            verify(epoch, KEY, TOPIC, log[before:end], parts[before:end], start=start).certificate.verdict
            for start in (right, wrong)
        )
        assert found is Verdict.IDENTICAL
        changed += other is Verdict.RELEASES_CHANGED
    assert changed


@pytest.mark.parametrize("window", WINDOWS)
def test_an_edit_anywhere_in_these_blocks_is_found(window: int) -> None:
    start = last_start(window)
    for place in range(start.first_round - 1, ROUNDS):
        other = event(place, "another")._replace(timestamp=LOG[place].timestamp)
        found = outcome(start, [*LOG[:place], other, *LOG[place + 1 :]])
        assert found.certificate.verdict is Verdict.EDITED, place
        assert found.difference is not None
        assert found.difference.round == place + 1


@pytest.mark.parametrize("window", WINDOWS)
def test_a_log_that_begins_later_still_or_ends_earlier_is_truncated(window: int) -> None:
    start = last_start(window)
    before, epoch = start.first_round - 1, epoch_of(window)
    for part in (LOG[before + 1 :], LOG[before + window :], LOG[before:-1]):
        found = verify(epoch, KEY, TOPIC, part, releases(window)[before:], start=start)
        assert found.certificate.verdict is Verdict.TRUNCATED


def test_a_log_that_goes_on_is_extended() -> None:
    start = last_start(12)
    assert outcome(start, [*LOG, event(ROUNDS, "more")]).certificate.verdict is Verdict.EXTENDED


def altered(place: int, change: Callable[[Release], Release]) -> list[ReleasedPart]:
    """The releases from `last_start` on, one of them changed."""
    parts = [*releases(12)]
    value = msgspec.json.encode(change(decode_release(parts[place].value)))
    parts[place] = parts[place]._replace(value=value)
    return parts[last_start(12).first_round - 1 :]


def without_a_label(release: Release) -> Release:
    assert release.labels
    return replaced(release, labels=release.labels[1:], counts=release.counts[1:])


def test_of_the_block_before_those_compared_all_but_labels_and_counts_is() -> None:
    start = last_start(12)
    place = next(
        place
        for place in range(start.first_round, start.first_compared - 1)
        if decode_release(releases(12)[place].value).labels
    )
    for change, verdict in (
        (without_a_label, Verdict.IDENTICAL),  # the certificate says that these were not compared
        (lambda release: replaced(release, ts="2020-01-01T00:00:00.000Z"), Verdict.RELEASES_CHANGED),
        (lambda release: replaced(release, tag="0" * 32), Verdict.EDITED),
        (lambda release: replaced(release, tau=release.tau + 1), Verdict.RELEASES_CHANGED),
    ):
        assert outcome(start, LOG, altered(place, change)).certificate.verdict is verdict


def test_every_change_of_a_release_that_is_compared_is_found() -> None:
    start = last_start(12)
    for place in range(start.first_compared - 1, ROUNDS):
        if decode_release(releases(12)[place].value).labels:
            found = outcome(start, LOG, altered(place, without_a_label)).certificate
            assert (found.verdict, found.rounds) == (Verdict.RELEASES_CHANGED, place)


def test_a_missing_release_of_any_of_these_blocks_is_counted() -> None:
    start = last_start(12)
    parts = [*releases(12)[start.first_round - 1 :]]
    for place in (1, 15):
        found = outcome(start, LOG, parts[:place] + parts[place + 1 :])
        assert (found.certificate.verdict, found.missing) == (
            Verdict.RELEASES_INCOMPLETE,
            [start.first_round + place],
        )


def test_only_windows_can_begin_with_a_block() -> None:
    running = Epoch.open(Settings(stream="shop", horizon=63, mechanism="binary"), 1, 0)
    with pytest.raises(ValueError, match="only windows"):
        Pipeline(running, KEY, TOPIC).begin_block(1, [])
