"""Sets of public labels, drawn at once: their law, and what they are for."""

import numpy as np
import pytest

from stream_dp.audit.one_shot_laws import joint
from stream_dp.batch.cost import Cost
from stream_dp.batch.gumbel_top_k import KnownTopK, known_top_k
from stream_dp.batch.joint_top_k import JointTopK, joint_top_k
from stream_dp.jobs.shares import pick_share
from stream_dp.privacy.loss import Loss
from tests.batch.evidence import counts_agree, noise, outcomes


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_each_set_is_drawn_by_its_own_score(k: int) -> None:
    """Ties at the edge, within and outside, and a count of nobody: as if all sets were listed."""
    counts, parameters, source = np.array([3, 0, 5, 3, 4, 3]), JointTopK(1.4, 6, k), noise(k)
    seen = outcomes(lambda: tuple(joint_top_k(counts, parameters, source).items.tolist()), 12_000)
    assert counts_agree(seen, joint(counts, parameters))
    assert not counts_agree(seen, joint(counts, JointTopK(1.7, 6, k)))


def test_all_bins_are_a_set_without_noise_and_wrong_sizes_are_refused() -> None:
    parameters = JointTopK(0.7, 4, 4)
    assert joint_top_k(np.array([1, 7, 0, 3]), parameters, noise()).items.tolist() == [0, 1, 2, 3]
    assert parameters.cost == Cost(0.7**2 / 8, 0.0, (0.7, 0.0), loss=Loss())
    with pytest.raises(ValueError, match="asks for more than the 4 bins"):
        JointTopK(0.7, 4, 5)
    with pytest.raises(ValueError, match="one count for each of the 4 public bins"):
        joint_top_k(np.zeros(3, np.int64), parameters, noise())


def test_a_small_gap_is_enough_where_counts_fall() -> None:
    """Ten labels before a gap of eight users, at epsilon 1: one draw for each label mixes what is near the edge."""
    counts, source = np.array([400 - 10 * rank + (rank >= 10) * 2 for rank in range(40)]), noise()
    together, each = JointTopK(1.0, 40, 10), KnownTopK(pick_share(1.0, 1e-6, 10, threshold=False)[0], 40, 10)

    def right(items: np.ndarray) -> bool:
        return set(items.tolist()) == set(range(10))

    assert sum(right(joint_top_k(counts, together, source).items) for _ in range(200)) >= 190
    assert sum(right(known_top_k(counts, each, source).items) for _ in range(200)) <= 150
