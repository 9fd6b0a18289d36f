"""One-shot noise: the laws it draws from, what the key decides, and orders that survive a removal."""

from collections import Counter
from collections.abc import Callable
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.stats import expon, fisher_exact, gumbel_r, kstest, norm

from stream_dp.privacy.discrete_gaussian import pmf
from stream_dp.privacy.one_shot_noise import OneShotNoise, _digit_probabilities
from tests.batch.evidence import FALSE_ALARM, counts_agree, noise, share_agrees

DRAWS = 200_000


def laplace_pmf(scale: float) -> dict[int, float]:
    q = np.exp(-1 / scale)
    return {x: float((1 - q) / (1 + q) * q ** abs(x)) for x in range(-400, 401)}


@pytest.mark.parametrize("scale", [0.3, 1.0, 7.5])
def test_discrete_laplace_has_its_law_and_a_scale_3_percent_off_is_rejected(scale: float) -> None:
    drawn = Counter(noise(1).discrete_laplace(scale, DRAWS).tolist())
    assert counts_agree(drawn, laplace_pmf(scale))
    assert not counts_agree(drawn, laplace_pmf(scale * 1.03))


def test_discrete_laplace_of_a_large_scale_has_its_standard_deviation() -> None:
    draws = noise(2).discrete_laplace(1e7, DRAWS) / 1e7
    cdf = lambda x: np.where(x < 0, np.exp(np.minimum(x, 0)) / 2, 1 - np.exp(-np.maximum(x, 0)) / 2)  # noqa: E731
    assert kstest(draws, cdf).pvalue > FALSE_ALARM
    assert kstest(draws * 1.03, cdf).pvalue < FALSE_ALARM


def test_geometric_digits_multiply_to_the_geometric_law() -> None:
    probabilities = [(int(high) * 2**64 + int(low)) / 2**128 for high, low in _digit_probabilities(3.0)]
    for value in (0, 1, 2, 5, 100):
        digits = [p if value >> place & 1 else 1 - p for place, p in enumerate(probabilities)]
        assert np.prod(digits) == pytest.approx(np.exp(-value / 3) * -np.expm1(-1 / 3), rel=1e-12)


def test_discrete_gaussian_has_its_law() -> None:
    masses = pmf(4.0)
    law = {k: float(masses[abs(k)]) for k in range(-20, 21)}
    wide = {k: float(pmf(4.3)[abs(k)]) for k in range(-20, 21)}
    drawn = Counter(noise(3).discrete_gaussian(4.0, DRAWS).tolist())
    assert counts_agree(drawn, law)
    assert not counts_agree(drawn, wide)


def test_continuous_draws_have_their_laws_and_a_scale_3_percent_off_is_rejected() -> None:
    for draws, law in (
        (noise(4).exponential(DRAWS), expon.cdf),
        (noise(5).gumbel(1.0, DRAWS), gumbel_r.cdf),
        (noise(6).gaussian(1.0, DRAWS), norm.cdf),
    ):
        assert kstest(draws, law).pvalue > FALSE_ALARM
        assert kstest(draws * 1.03, law).pvalue < FALSE_ALARM


def test_extreme_words_give_finite_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    extremes = np.array([0, 1, 2**63 - 1, 2**63, 2**64 - 1], dtype=np.uint64)
    monkeypatch.setattr(OneShotNoise, "words", lambda self, count: np.concatenate([extremes, extremes]))
    source = noise()
    for draws in (source.exponential(5), source.gumbel(2.0, 5), source.gaussian(2.0, 5)):
        assert np.isfinite(draws).all()
    assert source.exponential(5)[0] == pytest.approx(2.0**-129, abs=0)
    assert source.exponential(5)[4] == pytest.approx(129 * np.log(2))
    assert abs(source.gaussian(2.0, 5)[0]) == pytest.approx(-2 * float(norm.ppf(2.0**-130)))


def test_coins_pass_with_their_chance_in_both_tails() -> None:
    for chance in (0.001, 0.3, 0.5, 0.9, 0.999):
        hits = noise(7).passes(np.full(DRAWS, chance), np.full(DRAWS, 1 - chance)).sum()
        assert share_agrees(int(hits), DRAWS, chance)
        assert not share_agrees(int(hits), DRAWS, chance + 0.03 * (1 if chance < 0.5 else -1))


def test_a_coin_as_rare_as_the_least_delta_is_not_rounded_away(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = np.array([2.0**-70, 2.0**-70, 1e-30, 2.0**-64 * 1.5, 2.0**-64 * 1.5])
    high = [0, 0, 0, 1, 1]
    low = [2**58 - 1, 2**58, int(1e-30 * 2**128) - 1, 2**63 - 1, 2**63]
    monkeypatch.setattr(OneShotNoise, "words", lambda self, count: np.array(high + low, np.uint64))
    assert noise().passes(chance, 1 - chance).tolist() == [True, False, True, True, False]
    assert noise().passes(1 - chance, chance).tolist() == [False, True, False, False, True]


def test_a_coin_that_cannot_pass_never_does_and_a_certain_one_always() -> None:
    assert not noise().passes(np.zeros(1000), np.ones(1000)).any()
    assert noise().passes(np.ones(1000), np.zeros(1000)).all()


def test_the_key_decides_every_draw_and_another_key_draws_others() -> None:
    same = [noise(8).discrete_laplace(5.0, 50).tolist() for _ in range(2)]
    assert same[0] == same[1]
    assert same[0] != noise(9).discrete_laplace(5.0, 50).tolist()
    assert OneShotNoise.fresh().words(2).tolist() != OneShotNoise.fresh().words(2).tolist()


def test_words_are_read_once_from_front_to_back() -> None:
    source, whole = noise(10), noise(10).words(6).tolist()
    assert source.words(2).tolist() + source.words(1).tolist() + source.words(3).tolist() == whole
    assert len(set(whole)) == 6


def test_a_key_of_another_length_and_a_scale_out_of_reach_are_refused() -> None:
    with pytest.raises(ValueError, match="must hold 32 bytes, not 16"):
        OneShotNoise(bytes(16))
    with pytest.raises(ValueError, match="scale of discrete Laplace noise"):
        noise().discrete_laplace(0.0, 1)


@given(st.lists(st.integers(0, 2**62), min_size=2, max_size=40, unique=True), st.integers(0, 5))
@settings(max_examples=100)
def test_removing_a_user_leaves_the_order_of_the_others(users: list[int], key: int) -> None:
    everyone = np.array(users)
    without = np.array(users[1:])
    ordered = everyone[noise(key).order(everyone)].tolist()
    ordered.remove(users[0])
    assert ordered == without[noise(key).order(without)].tolist()


def test_every_order_is_equally_likely() -> None:
    seen = Counter(tuple(noise(key).order(np.arange(3)).tolist()) for key in range(6_000))
    assert counts_agree(seen, dict.fromkeys(seen, 1 / 6))
    assert len(seen) == 6


def rotated(source: OneShotNoise, users: NDArray[np.int64]) -> NDArray[np.intp]:
    """A broken order: where it begins is random, but who follows whom is not."""
    return np.roll(np.arange(len(users)), -int(source.words(1)[0] % np.uint64(len(users))))


def test_numbering_users_anew_when_one_leaves_leaves_the_law_of_their_order() -> None:
    """Without user 1 those who had the numbers 0, 2 and 3 have 0, 1 and 2."""

    def of_those_who_remain(order: Callable[[OneShotNoise, NDArray[np.int64]], NDArray[np.intp]]) -> bool:
        before = Counter(
            tuple(user - (user > 1) for user in order(noise(key), np.arange(4)).tolist() if user != 1)
            for key in range(6_000)
        )
        after = Counter(tuple(order(noise(key), np.arange(3)).tolist()) for key in range(6_000, 12_000))
        return all(
            fisher_exact([[seen[one], 6_000 - seen[one]] for seen in (before, after)]).pvalue > FALSE_ALARM
            for one in before | after
        )

    assert of_those_who_remain(OneShotNoise.order)
    assert not of_those_who_remain(rotated)


@given(st.lists(st.integers(0, 3), min_size=2, max_size=20), st.randoms())
@settings(max_examples=50)
def test_users_whose_hashes_begin_alike_go_by_the_rest_of_the_hash(starts: list[int], random: Random) -> None:
    """Never by their numbers, which may change when another user leaves."""
    hashes = [(start, place) for place, start in enumerate(starts)]
    random.shuffle(hashes)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(OneShotNoise, "_hash", lambda *_: np.array(hashes, np.uint64))
        order = noise().order(np.arange(len(hashes))).tolist()
    assert [hashes[user] for user in order] == sorted(hashes)


def test_samples_of_different_stages_differ() -> None:
    users, items = np.arange(50), np.arange(50)
    first, second = (noise().sample_marks(stage, users, items).tolist() for stage in (0, 1))
    assert first != second
    assert len(set(first + second)) == 100
