"""Public labels drawn at once and then put in order: their law, and what they are for."""

import numpy as np
import pytest

from stream_dp.audit.one_shot_laws import joint
from stream_dp.batch.gumbel_top_k import KnownTopK, known_top_k
from stream_dp.batch.joint_top_k import JointTopK, joint_top_k
from stream_dp.jobs.shares import pick_share
from tests.batch.evidence import counts_agree, noise, outcomes


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_each_set_is_drawn_by_its_own_score_and_put_in_order(k: int) -> None:
    """Ties at the edge, within and outside, and a count of nobody: as if all sets were listed."""
    counts, parameters, source = np.array([3, 0, 5, 3, 4, 3]), JointTopK(1.4, 6, k), noise(k)
    seen = outcomes(lambda: tuple(joint_top_k(counts, parameters, source).items.tolist()), 6_000)
    assert counts_agree(seen, joint(counts, parameters))
    assert not counts_agree(seen, joint(counts, JointTopK(1.7, 6, k)))


def test_the_order_of_all_bins_is_noisy_too() -> None:
    counts, parameters, source = np.array([7, 7, 5, 6]), JointTopK(3.0, 4, 4), noise()
    seen = outcomes(lambda: tuple(joint_top_k(counts, parameters, source).items.tolist()), 6_000)
    assert counts_agree(seen, joint(counts, parameters))
    assert not counts_agree(seen, joint(np.array([7, 7, 1, 6]), parameters))


@pytest.mark.parametrize("k", [1, 2, 10])
def test_the_set_and_its_order_share_epsilon(k: int) -> None:
    parameters = JointTopK(0.7, 20, k)
    spent = parameters.together.epsilon + (k > 1 and parameters.order.epsilon * (k - 1))
    assert spent == pytest.approx(0.7)
    assert parameters.cost.alone == (0.7, 0.0)
    assert parameters.cost.rho == pytest.approx(
        (parameters.together.epsilon**2 + (k > 1 and (k - 1) * parameters.order.epsilon**2)) / 8
    )


def test_more_labels_than_bins_and_wrong_counts_are_refused() -> None:
    with pytest.raises(ValueError, match="asks for more than the 4 bins"):
        JointTopK(0.7, 4, 5)
    with pytest.raises(ValueError, match="one count for each of the 4 public bins"):
        joint_top_k(np.zeros(3, np.int64), JointTopK(0.7, 4, 4), noise())


def test_a_small_gap_is_enough_where_counts_fall() -> None:
    """Ten labels before a gap of eight users, at epsilon 1: one draw for each label mixes what is near the edge."""
    counts, source = np.array([400 - 10 * rank + (rank >= 10) * 2 for rank in range(40)]), noise()
    together, each = JointTopK(1.0, 40, 10), KnownTopK(pick_share(1.0, 1e-6, 10, threshold=False)[0], 40, 10)

    def right(items: np.ndarray) -> bool:
        return set(items.tolist()) == set(range(10))

    assert sum(right(joint_top_k(counts, together, source).items) for _ in range(200)) >= 190
    assert sum(right(known_top_k(counts, each, source).items) for _ in range(200)) <= 150


def test_labels_that_are_far_apart_stand_in_order() -> None:
    counts, source = np.array([3000, 2000, 1000, *range(40)]), noise()
    for _ in range(50):
        assert joint_top_k(counts, JointTopK(1.0, 43, 3), source).items.tolist() == [0, 1, 2]
