"""Neighbouring sets of users for set union: one user more, whose items others hold, or nobody does.

Replicas are users and items that do not meet those of any other replica; they share only the key, from which each
user's place in the order and each user's sample are drawn independently (`one_shot_replicas.py`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from stream_dp.audit.bounds import Views
from stream_dp.audit.examine import LARGER, Pair
from stream_dp.audit.one_shot_replicas import disjoint_baskets, per_replica
from stream_dp.audit.top_k_pairs import claimed
from stream_dp.batch.baskets import Baskets
from stream_dp.batch.greedy_set_union import Greedy, greedy, greedy_transfer
from stream_dp.batch.policy_set_union import (
    GaussianPolicy,
    LaplacePolicy,
    gaussian_policy,
    laplace_policy,
)
from stream_dp.batch.result import Outcome
from stream_dp.batch.set_union import (
    GaussianSetUnion,
    LaplaceCount,
    LaplaceSetUnion,
    gaussian_count,
    gaussian_weighted,
    laplace_count,
    laplace_weighted,
)
from stream_dp.batch.sips import Sips, sips
from stream_dp.privacy.one_shot_noise import OneShotNoise

Run = Callable[[Baskets, Any, OneShotNoise], Outcome]
Users = Sequence[Sequence[int]]

DELTA = 0.01
_AT_ONCE = 20_000  # replicas under one key
_RUNS = 200_000


def pairs() -> list[Pair]:
    """All of them: every mechanism on every situation, one distinct item bound for all."""
    found = []
    for name, run, parameters, copies in _mechanisms():
        crowd = [[0]] * copies
        for situation, user, others in (
            ("one more holder of an item", [0], crowd),
            ("two items that nobody else holds", [0, 1], []),
            ("one new item, one that many hold", [0, 1], [[1]] * copies),
            ("four items, over what counts, met by chains", [0, 1, 2, 3], [[0, 4], [4, 5], [1, 6], [0], [1]]),
        ):
            found.append(joined(name, situation, run, parameters, user, others))
    return found


def _mechanisms() -> list[tuple[str, Run, Any, int]]:
    """Name, mechanism, parameters, and so many holders that an item is neither sure nor hopeless."""
    tokens = Greedy(2.0, DELTA, 4)

    def transfer(users: Baskets, parameters: Greedy, noise: OneShotNoise) -> Outcome:
        public = np.tile(np.array([3, 1, 2, 1, 1, 1, 1]), users.item_count // 7 + 1)[: users.item_count]
        return greedy_transfer(users, public, parameters, noise)

    return [
        ("laplace-count", laplace_count, LaplaceCount(2.0, DELTA, 2), 3),
        ("gaussian-count", gaussian_count, GaussianSetUnion(2.0, DELTA, 2), 3),
        ("laplace-weighted", laplace_weighted, LaplaceSetUnion(2.0, DELTA, 2), 1),
        ("gaussian-weighted", gaussian_weighted, GaussianSetUnion(2.0, DELTA, 2), 2),
        ("laplace-policy", laplace_policy, LaplacePolicy(2.0, DELTA, 2), 1),
        ("gaussian-policy", gaussian_policy, GaussianPolicy(2.0, DELTA, 2), 2),
        ("greedy", greedy, tokens, 1),
        ("greedy-transfer", transfer, tokens, 1),
        ("sips", sips, Sips(1.0, DELTA, 2), 2),
    ]


def joined(
    mechanism: str,
    name: str,
    run: Run,
    parameters: Any,
    user: Sequence[int],
    others: Users,
    runs: int = _RUNS,
) -> Pair:
    """The pair of `others` alone and `others` joined by `user`; users list their items, numbered from 0."""
    items = 1 + max(item for held in (user, *others) for item in held)

    def sample(side: int, wanted: int, key: bytes) -> Views:
        users = [*others, user if side == LARGER else []]
        blocks = []
        for block, start in enumerate(range(0, wanted, _AT_ONCE)):
            size = min(_AT_ONCE, wanted - start)
            noise = OneShotNoise(_block_key(key, block))
            result = run(disjoint_baskets(users, items, size), parameters, noise)
            blocks.append(per_replica(result, items, size)[0])
        shown = np.concatenate(blocks)
        return {"items": shown @ (1 << np.arange(items)), "items shown": shown.sum(axis=1)}

    return Pair(mechanism, name, *claimed(parameters.cost), sample, runs)


def _block_key(key: bytes, block: int) -> bytes:
    return OneShotNoise(key[:24] + block.to_bytes(8, "little")).words(4).tobytes()
