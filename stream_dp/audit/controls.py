"""BROKEN mechanisms, never to be used for anything but this: the audit must catch every one of them.

Each is a known mistake, of ours in earlier drafts or of a source, made small: the real code with one thing wrong, or
a model where no real code could do it.  The claim of a control is what the correct mechanism of the same
parameters would claim.  Nothing outside this package may import this module; a test looks.
"""

import math
from collections import OrderedDict
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial

import numpy as np
from msgspec import structs

from stream_dp.audit import user_day_pairs
from stream_dp.audit.bounds import Views
from stream_dp.audit.examine import LARGER, Pair
from stream_dp.audit.running_pairs import NAME, Neighbours, open_blt, open_releases, open_table
from stream_dp.audit.running_replicas import Releases, Situation, replicas
from stream_dp.audit.running_views import blt_sum, shift_sum, views
from stream_dp.audit.top_k_pairs import DELTA, counted
from stream_dp.audit.user_unit_pairs import ALONE, STREAM, Stream, admitted_by
from stream_dp.batch.top_k import LaplaceTopK, laplace_top_k
from stream_dp.counters.binary import BinaryMechanism, levels
from stream_dp.counters.calibration import calibrate
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.events.bounding import EventBound
from stream_dp.events.event import Event
from stream_dp.privacy.thresholds import sum_tail_threshold


def pairs() -> list[Pair]:
    """All controls."""
    return [
        sigma_off(),
        blt_column_forgotten(),
        redrawn("BROKEN: the only round released twice, with fresh noise", 1, 300_000),
        redrawn("BROKEN: 7 rounds replayed after a crash, with fresh noise", 7, 200_000),
        only_touched(),
        no_union_over_rounds(),
        all_labels_registered(),
        no_union_over_kept_rounds(),
        collected_labels(),
        carried_over_unshown(),
        posters_top_k(),
        posters_greedy(),
        shared_filter(),
        bounded_per_event(),
        forgotten_at_restarts(),
    ]


def sigma_off() -> Pair:
    """The standard deviation of every draw is too small by sqrt(2)."""
    correct, epsilon = open_table(7, 1, 1.0, 0.01)
    broken = structs.replace(correct, sigma_squared=correct.sigma_squared / 2)
    neighbours = Neighbours(1, [0], {})

    def sample(side: int, runs: int, key: bytes) -> Views:
        return views(open_releases(broken, neighbours, side, runs, key), 1)

    return Pair(NAME, "BROKEN: sigma off by sqrt(2)", epsilon, 0.01, sample, 300_000, control=True)


def blt_column_forgotten() -> Pair:
    """The noise of blt hides one entry of what it is added to, as if an event moved no later ones."""
    correct, epsilon = open_blt(63, 1, 1.0, 0.01)
    broken = structs.replace(correct, draw_sd=correct.draw_sd / math.sqrt(correct.squared_sensitivity))
    neighbours = Neighbours(1, [0], {})

    def sample(side: int, runs: int, key: bytes) -> Views:
        found = open_releases(broken, neighbours, side, runs, key)
        return {"likelihood ratio": blt_sum(found, 1, broken)}

    name = "BROKEN: blt as if an event moved one number only"
    return Pair(NAME, name, epsilon, 0.01, sample, 40_000, control=True)


def redrawn(name: str, horizon: int, runs: int) -> Pair:
    """After a restart every round is released again, and its noise drawn again."""
    mechanism, epsilon = open_table(horizon, 1, 1.0, 0.01)
    neighbours = Neighbours(1, [0], {})

    def sample(side: int, wanted: int, key: bytes) -> Views:
        first = shift_sum(open_releases(mechanism, neighbours, side, wanted, key), 1)
        again = shift_sum(open_releases(mechanism, neighbours, side, wanted, key[::-1]), 1)
        return {"shift sum of both releases": first + again, "shift sum of the first": first}

    return Pair(NAME, name, epsilon, 0.01, sample, runs, control=True)


def only_touched() -> Pair:
    """A round releases only labels that its event holds."""
    mechanism, guarantee = calibrate(2.0, 0.02, 15, 1, shown="each-round")
    neighbours = Neighbours(8, [0], {r: [0] for r in range(1, 8)})

    def sample(side: int, runs: int, key: bytes) -> Views:
        situation = neighbours.situation(side)
        return views(_touched(replicas(mechanism, situation, 1, runs, key), situation), 8)

    name = "BROKEN: only touched labels are released"
    return Pair(NAME, name, guarantee.epsilon, guarantee.delta, sample, 20_000, control=True)


def _touched(found: Releases, situation: Situation) -> Releases:
    held = np.zeros((len(found.shown), 1, found.shown.shape[2]), bool)
    for round_number, items in situation.items():
        held[round_number - 1, 0, list(items)] = True
    return Releases(np.where(held, found.counts, 0), found.shown & held)


def no_union_over_rounds() -> Pair:
    """Each round's threshold spends all of the threshold's delta."""
    horizon = 31
    correct, guarantee = calibrate(2.0, 0.05, horizon, 1, shown="each-round")
    assert isinstance(correct, BinaryMechanism)
    tail = correct.threshold_delta
    lower = [sum_tail_threshold(correct.sigma_squared, m + 1, tail) for m in range(levels(horizon))]
    name = "BROKEN: a threshold without the union over rounds"
    return _escape(
        name, structs.replace(correct, thresholds=tuple(lower)), guarantee.epsilon, guarantee.delta
    )


def _escape(name: str, mechanism: CalibratedCounter, epsilon: float, delta: float) -> Pair:
    def sample(side: int, runs: int, key: bytes) -> Views:
        return views(replicas(mechanism, {1: [0]} if side == LARGER else {}, 1, runs, key), 1)

    return Pair(NAME, name, epsilon, delta, sample, 40_000, control=True)


def all_labels_registered() -> Pair:
    """One item of an event of 200 counts, but all 200 become labels with noise of their own."""
    mechanism, guarantee = calibrate(2.0, 0.05, 7, 1, shown="each-round")

    def sample(side: int, runs: int, key: bytes) -> Views:
        larger = side == LARGER
        known, situation = (range(200), {1: [0]}) if larger else ((), {})
        return views(replicas(mechanism, situation, 200, runs, key, known=known), 1)

    name = "BROKEN: all labels of an over-long event are registered"
    return Pair(NAME, name, guarantee.epsilon, guarantee.delta, sample, 2_000, control=True)


def no_union_over_kept_rounds() -> Pair:
    """Labels are kept, and the threshold of each round spends all of the threshold's delta."""
    horizon = 31
    correct, guarantee = calibrate(2.0, 0.05, horizon, 1)
    assert isinstance(correct, BinaryMechanism)
    tail = correct.threshold_delta
    lower = [sum_tail_threshold(correct.sigma_squared, m + 1, tail) for m in range(levels(horizon))]
    broken = structs.replace(correct, thresholds=tuple(lower), thresholds_by_level=())
    name = "BROKEN: kept labels, a threshold without the union over rounds"
    return _escape(name, broken, guarantee.epsilon, guarantee.delta)


def collected_labels() -> Pair:
    """The labels of the log are declared to be known ones, and are shown from the first round on."""
    mechanism, guarantee = calibrate(2.0, 0.05, 7, 1)

    def sample(side: int, runs: int, key: bytes) -> Views:
        known, situation = ([0], {5: [0]}) if side == LARGER else ([], {})
        return views(replicas(mechanism, situation, 1, runs, key, known=known, shown_at_once=True), 5)

    name = "BROKEN: known labels collected from the data"
    return Pair(NAME, name, guarantee.epsilon, guarantee.delta, sample, 20_000, control=True)


def carried_over_unshown() -> Pair:
    """An epoch shows from its first round on what the one before it had admitted, whether that was shown or not."""
    mechanism, guarantee = calibrate(2.0, 0.05, 7, 1)

    def sample(side: int, runs: int, key: bytes) -> Views:
        first = replicas(mechanism, {1: [0]} if side == LARGER else {}, 1, runs, key)
        admitted = [0] if side == LARGER else []
        second = replicas(mechanism, {}, 1, runs, key[::-1], known=admitted, shown_at_once=True)
        both = np.concatenate([first.shown, second.shown])
        return {"rounds with the label, both epochs": np.count_nonzero(both, axis=(0, 2))}

    name = "BROKEN: labels carried into the next epoch that were never shown"
    return Pair(NAME, name, guarantee.epsilon, guarantee.delta, sample, 20_000, control=True)


class _PostersTopK(LaplaceTopK):
    """The poster's offset 1 + ln(D/d), without 1/epsilon, rounded up."""

    __slots__ = ()

    @property
    def offset(self) -> int:
        return 1 + math.ceil(-math.log(self.tail))


def posters_top_k() -> Pair:
    """Durfee and Rogers, poster "Task: Top-k", Algorithm 1 as printed, at epsilon 1/2."""
    pair = counted(
        "laplace-top-k", "BROKEN: the threshold as the poster prints it",
        laplace_top_k, _PostersTopK(0.5, DELTA, 1, 1), [0], [1],
    )  # fmt: skip
    return replace(pair, control=True)


def posters_greedy() -> Pair:
    """Carvalho, Wang and Gondara's greedy set union as printed, attacked by chained users.

    A user spends a real budget of 1 greedily, items take weight up to a cap, noise is Laplace(1 / epsilon), the
    threshold 1 - ln(2 d) / epsilon.  The differing user's budget passes through a chain of 10,000 others, each of which
    leaves 1/10,000 of it on a label that nobody else gives weight.  The true delta is 0.0224 and not e^-10.
    """
    epsilon, delta, length = 3.0, math.exp(-10), 10_000

    def sample(side: int, runs: int, key: bytes) -> Views:
        found = [weight for weight in novel_weights(length, with_user=side == 1) if weight > 0]
        released = np.zeros(runs, np.int64)
        random = np.random.default_rng(list(key))
        for weight in sorted(set(found)):  # of equal weights, a binomial number passes
            chance = math.exp(-epsilon * (1 - math.log(2 * delta) / epsilon - float(weight))) / 2
            released += random.binomial(found.count(weight), chance, runs)
        return {"novel labels released": released}

    name = "BROKEN: the poster's threshold, 10,000 chained users"
    return Pair("greedy", name, epsilon, delta, sample, 200_000, control=True)


@cache
def novel_weights(length: int, with_user: bool, whole: int = 5) -> list[Fraction]:
    """What the poster's update leaves on the chain's own labels, with or without the user at its beginning.

    Link i holds the item it shares with the link before and first a label of its own.  Users who hold nothing else
    have filled the shared item up, so that the link's budget just fits; what more is on it spills to the label, and
    the second user of the link passes the rest on.
    """
    cap = whole + 2 - Fraction(1, length)
    shared = Fraction(0)  # what the link before left on the shared item
    carried = Fraction(1) if with_user else Fraction(0)
    novel = []
    for _ in range(length):
        weight = carried + shared + whole
        given = min(Fraction(1), cap - weight)
        novel.append(1 - given)
        weight += given
        kept = min(Fraction(1), cap - weight)
        shared, carried = 1 - kept, Fraction(0)
    return novel


def shared_filter() -> Pair:
    """A cache of three (user, item) pairs, shared by all users, decides what is new: LRU."""
    name = "BROKEN: a filter that users share decides admission"
    return admitted_by(shared_lru, name, STREAM, control=True)


def shared_lru(stream: Stream, capacity: int = 3) -> list[list[int]]:
    """A pair counts unless it is among the last few seen.  One user more makes everybody forgotten in time."""
    recent: OrderedDict[tuple[int, int], None] = OrderedDict()
    admitted: list[list[int]] = []
    for user, (item,) in stream:
        if user < 0:
            admitted.append([])
            continue
        new = (user, item) not in recent
        recent[user, item] = None
        recent.move_to_end((user, item))
        if len(recent) > capacity:
            recent.popitem(last=False)
        admitted.append([item] if new else [])
    return admitted


def bounded_per_event() -> Pair:
    """The bound of the event unit where the user is guaranteed: whoever comes back counts again."""
    bound = EventBound(1)

    def admission(stream: Stream) -> list[list[int]]:
        return [
            [int(item) for item in bound.admit(Event([str(item) for item in items]))] if user >= 0 else []
            for user, items in stream
        ]

    return admitted_by(admission, "BROKEN: a user is bounded event by event", ALONE, control=True)


def forgotten_at_restarts() -> Pair:
    """A worker that restarts does not know what users have brought on this day."""
    forgetful = partial(user_day_pairs.admitted, restarts=True)
    name = "BROKEN: a restart forgets what users have brought on this day"
    return user_day_pairs.admitted_by(forgetful, name, user_day_pairs.ALWAYS, 1, control=True)
