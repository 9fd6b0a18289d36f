"""Is what labels found at tests release what a plain reference of the rule gives, however rounds are cut and killed?"""

from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from random import Random

import numpy as np
import pytest

from stream_dp.counters.blt_parameters import output_weights
from stream_dp.counters.discovery import DiscoveryMechanism
from stream_dp.counters.discovery_matrix import coefficients
from stream_dp.counters.discovery_noise import FIRST_LANE, DiscoveryNoise
from stream_dp.counters.protocol import EpochParameters
from stream_dp.engine.discovery_histogram import DiscoveryHistogram
from stream_dp.engine.histogram import HistogramState
from stream_dp.privacy.gaussian_noise import GaussianNoise
from stream_dp.privacy.keyed_noise import EMPTY_HISTORY, KeyedNoise

KEY, NONCE, HORIZON = bytes(range(32)), bytes(16), 60
Released = list[dict[str, int]]


def mechanism(tests: tuple[int, ...] = (3, 4, 11, 30, 60), at_least: int = 1) -> DiscoveryMechanism:
    return DiscoveryMechanism.of(EpochParameters(HORIZON, 2, 0.3, "kept"), 4.0, tests, at_least)


def noise() -> KeyedNoise:
    return KeyedNoise(KEY, "s", NONCE)


def log(seed: int, labels: int = 40, most: int = 9) -> list[list[str]]:
    """Rounds of several events, some empty, with some labels much more often than others."""
    random = Random(seed)
    return [
        [f"label {int(random.paretovariate(0.7)) % labels}" for _ in range(random.randrange(most))]
        for _ in range(HORIZON)
    ]


class Plain:
    """The rule, label by label, in exact arithmetic."""

    def __init__(self, counter: DiscoveryMechanism, known: Sequence[str] = ()) -> None:
        self.counter, self.noise = counter, noise()
        self.counts: Counter[str] = Counter()
        self.heads = [EMPTY_HISTORY]
        self.base = dict.fromkeys(known, 0)
        self.begins = dict.fromkeys(known, 0)

    def release(self, admitted: Sequence[str]) -> dict[str, int]:
        """What the next round shows."""
        number = len(self.heads)
        self.heads.append(self.noise.extend_histories(self.heads[-1], number, [admitted])[0])
        self.counts.update(admitted)
        shown = {
            label: base + self.counts[label] + self.later(label, self.begins[label], number)
            for label, base in self.base.items()
        }
        if number in self.counter.tests:
            for label in [*self.counts]:
                count = self.counts[label]
                if label not in self.base and count >= self.counter.at_least:
                    test = self.counter.tests.index(number)
                    measured = count + self.at_test(label, test)
                    if measured >= self.counter.test_taus[test]:
                        shown[label] = measured
                        self.base[label], self.begins[label] = measured - count, number
        return shown

    @cache  # noqa: B019
    def draw(self, label: str, number: int, lane: int) -> Fraction:
        tweaks = self.noise.tweaks((number, lane + i, self.heads[number]) for i in range(2))
        high, low = GaussianNoise(self.noise).draw_all(self.noise.label_ids([label.encode()]), tweaks)
        return Fraction(float(high[0, 0])) + Fraction(float(low[0, 0]))

    def at_test(self, label: str, test: int) -> int:
        column = coefficients(test + 1)
        draws = [self.draw(label, self.counter.tests[j], FIRST_LANE) for j in range(test + 1)]
        return round(
            Fraction(self.counter.test_sd) * sum(c * z for c, z in zip(column[::-1], draws, strict=True))
        )

    def later(self, label: str, begins: int, number: int) -> int:
        counts = self.counter.counts
        poles = [1 - Fraction(gap) for gap in counts.gaps.poles]
        total = Fraction(0)
        for weight, pole in zip(output_weights(counts.gaps), poles, strict=True):
            state = Fraction(0)
            for each in range(begins + 1, number + 1):
                state = pole * state + self.draw(label, each, 0)
            total += weight * state
        return round(Fraction(counts.draw_sd) * total)


def shown(histogram: DiscoveryHistogram, rounds: Sequence[Sequence[str]]) -> Released:
    return [
        dict(zip(each.labels.tolist(), each.counts.tolist(), strict=True))
        for block in histogram.blocks(rounds)
        for each in block.snapshots()
    ]


@pytest.mark.parametrize("at_least", [1, 6])
def test_it_releases_what_the_plain_rule_gives(at_least: int) -> None:
    counter, rounds = mechanism(at_least=at_least), log(1)
    plain = Plain(counter)
    expected = [plain.release(admitted) for admitted in rounds]
    assert len({*plain.begins.values()}) > 2, "labels are found at several tests"
    assert len(plain.base) < len(plain.counts), "and some are not"
    assert shown(DiscoveryHistogram(counter, noise()), rounds) == expected


def test_known_labels_are_shown_from_the_first_round_on_and_never_tested() -> None:
    counter, rounds = mechanism(), log(2)
    plain = Plain(counter, known=["label 1", "nobody"])
    expected = [plain.release(admitted) for admitted in rounds]
    state = HistogramState.before_any_round(["label 1", "nobody"], shown=True)
    assert shown(DiscoveryHistogram(counter, noise(), state), rounds) == expected


@pytest.mark.parametrize("seed", range(4))
def test_cuts_and_restarts_change_nothing(seed: int) -> None:
    """Cut anywhere: before a test, right behind it, two tests in one batch; the state goes on in another process."""
    counter, rounds, random = mechanism(), log(seed), Random(seed)
    expected = shown(DiscoveryHistogram(counter, noise()), rounds)
    ends = sorted({*random.sample(range(1, HORIZON), 8), 2, 3, 29, 30, HORIZON})
    histogram, found, start = DiscoveryHistogram(counter, noise()), [], 0
    for end in ends:
        found += shown(histogram, rounds[start:end])
        [again] = histogram.last_release().snapshots()
        assert dict(zip(again.labels.tolist(), again.counts.tolist(), strict=True)) == found[-1]
        earlier = histogram if random.random() < 0.5 else None
        histogram, start = DiscoveryHistogram(counter, noise(), histogram.state(), earlier), end
    assert found == expected


def test_rounds_that_are_not_released_change_nothing_either() -> None:
    counter, rounds = mechanism(), log(7)
    every = shown(DiscoveryHistogram(counter, noise()), rounds)
    wanted = np.arange(1, HORIZON + 1) % 7 == 0
    blocks = DiscoveryHistogram(counter, noise()).blocks(rounds, wanted=wanted)
    found = [each for block in blocks for each in block.snapshots()]
    assert [each.round for each in found] == [*range(7, HORIZON + 1, 7)]
    assert [dict(zip(each.labels, each.counts, strict=True)) for each in found] == [*np.array(every)[wanted]]


@pytest.mark.parametrize("tests", [1, 2, 24, 300])
def test_who_may_reach_the_threshold_is_never_missed(tests: int) -> None:
    """What is kept of earlier draws tells nearly all labels that cannot; nobody who can is left out.

    Half of the labels come late, and are followed at once or by the test itself.
    """
    parameters = EpochParameters(HORIZON * 10, 2, 1e-6, "kept")
    counter = DiscoveryMechanism.of(parameters, 0.1, tuple(range(1, tests + 1)))
    noise_at_tests, others, labels = DiscoveryNoise(counter, noise()), DiscoveryNoise(counter, noise()), 6_000
    ids = noise().label_ids(b"%d" % i for i in range(labels))
    for number in range(1, tests + 1):
        seen = ids[: labels // 2] if number < tests // 2 else ids
        if number % 3:
            noise_at_tests.follow(seen)
        for each in (noise_at_tests, others):
            each.begin_test(number, EMPTY_HISTORY)
        is_checked = number in (1, 2, tests) or number % 50 == 0
        exact = noise_at_tests.rounded(seen) if is_checked else np.zeros(len(seen), np.int32)
        counts = 100_000 - exact
        reached = noise_at_tests.could_reach(seen, counts, 1, 100_000)
        if is_checked:
            assert [*reached] == [*range(len(seen))], "all are exactly at the threshold"
        tau, once = int(counter.test_taus[number - 1]), np.ones(len(seen), np.int32)
        assert len(others.could_reach(seen, once, 1, tau)) < 0.01 * labels
