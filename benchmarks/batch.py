"""One-shot mechanisms: rows per second from integer arrays, and what they find in real baskets.

python -m benchmarks batch
"""

import gzip
import json
import resource
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from stream_dp.batch.baskets import Baskets, baskets, distinct_users_per_item, sample
from stream_dp.batch.cost import epsilon_per_item, epsilon_per_pick
from stream_dp.batch.greedy_set_union import Greedy, greedy
from stream_dp.batch.gumbel_top_k import GumbelTopK, gumbel_top_k
from stream_dp.batch.largest_gap import Ranks
from stream_dp.batch.policy_set_union import GaussianPolicy, LaplacePolicy, gaussian_policy, laplace_policy
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
from stream_dp.batch.set_union_thresholds import tokens_at_no_cost
from stream_dp.batch.sips import Sips, sips
from stream_dp.batch.stable_top_k import StableFixedK, StableTopK, stable_fixed_k, stable_top_k
from stream_dp.batch.top_k import GaussianTopK, LaplaceTopK, gaussian_top_k, laplace_top_k
from stream_dp.privacy.accounting import gaussian_rho, zcdp_rho
from stream_dp.privacy.one_shot_noise import OneShotNoise
from tests.shared import RETAIL

Integers = NDArray[np.int64]

ROWS, USERS, ITEMS = 10_000_000, 1_000_000, 1_000_000
DELTA = 1e-6
RUNS = 5
LIMITS = (10, 50, 200)
TOPS = (10, 50, 200)


def main(_: Console) -> None:
    speed()
    print()
    if RETAIL.exists():
        retail()
    else:
        print("The online retail data do not lie beside this checkout, so there is no table of accuracy.")


def best_time(run: Callable[[], Any], repeats: int = 3) -> float:
    """The shortest of some runs, after one that compiles and warms up, in seconds."""
    times = []
    for _ in range(repeats + 1):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times[1:])


def zipf_rows() -> tuple[Integers, Integers]:
    """Users at random, items by a heavy-tailed law over a million labels."""
    random = np.random.default_rng(1)
    ranks = np.minimum((random.pareto(0.6, ROWS) * 5).astype(np.int64), ITEMS - 1)
    return random.integers(0, USERS, ROWS), random.permutation(ITEMS)[ranks]


def floor(users: Integers, items: Integers) -> Integers:
    """What counting distinct users costs without any privacy: one sort and one bincount."""
    keys = users * ITEMS + items
    keys.sort()
    return np.bincount(items, minlength=ITEMS)


def fresh() -> OneShotNoise:
    return OneShotNoise(bytes(32))


def speed() -> None:
    users, items = zipf_rows()
    print(
        f"From integer arrays, one core: {ROWS:,} (user, item) rows, {USERS:,} users, epsilon 1, delta 1e-6"
    )
    base = best_time(lambda: floor(users, items))
    print(f"  {'floor: numpy sort + bincount':44s}{base:6.2f} s")

    def line(name: str, run: Callable[[], Any]) -> None:
        seconds = best_time(run)
        print(f"  {name:44s}{seconds:6.2f} s{ROWS / seconds / 1e6:8.1f} M rows/s{seconds / base:7.1f} floors")

    def top_k(run: Callable[..., Outcome], parameters: Any) -> Callable[[], Outcome]:
        return lambda: run(distinct_users_per_item(users, items, ITEMS), parameters, fresh())

    def union(run: Callable[..., Outcome], parameters: Any) -> Callable[[], Outcome]:
        return lambda: run(baskets(users, items, ITEMS), parameters, fresh())

    line("top-k gaussian, kbar 100", top_k(gaussian_top_k, GaussianTopK(0.1, DELTA, 10, 100)))
    line("top-k gumbel, k 100", top_k(gumbel_top_k, GumbelTopK(0.1, DELTA, 100, 200)))
    line("top-k stable", top_k(stable_top_k, StableTopK(0.03, DELTA, Ranks(100))))
    for limit in (5, 20):
        line(f"sips, {limit} items a user", union(sips, Sips(0.03, DELTA, limit)))
        line(f"policy laplace, {limit} items a user", union(laplace_policy, LaplacePolicy(1.0, DELTA, limit)))
        line(
            f"policy gaussian, {limit} items a user",
            union(gaussian_policy, GaussianPolicy(1.0, DELTA, limit)),
        )
        line(
            f"weighted gaussian, {limit} items a user",
            union(gaussian_weighted, GaussianSetUnion(1.0, DELTA, limit)),
        )
    line("greedy, 1 token", union(greedy, Greedy(1.0, DELTA, 1)))
    line("greedy, 16 tokens", union(greedy, Greedy(1.0, DELTA, 16)))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"  peak memory of all of it: {peak:.2f} GiB")


def retail_baskets() -> Baskets:
    """Customers and what they bought, at all, in a year (UCI Online Retail)."""
    users: list[str] = []
    items: list[str] = []
    with gzip.open(RETAIL, "rt") as lines:
        for line in lines:
            event = json.loads(line)
            if event.get("user") is not None:
                users += [event["user"]] * len(event["items"])
                items += event["items"]
    _, user_numbers = np.unique(users, return_inverse=True)
    labels, item_numbers = np.unique(items, return_inverse=True)
    return baskets(user_numbers, item_numbers, len(labels))


def retail() -> None:
    everyone = retail_baskets()
    print(
        f"Online retail: {len(everyone.users):,} customers, {everyone.item_count:,} items, "
        f"{len(everyone.items):,} distinct pairs; mean of {RUNS} runs at delta 1e-6"
    )
    for epsilon in (1.0, 3.0):
        union_table(everyone, epsilon)
        ranking_table(everyone, epsilon)


def union_table(everyone: Baskets, epsilon: float) -> None:
    print(f"  epsilon {epsilon:g}: size of the released union, by items_per_user")
    print(f"    {'':20s}" + "".join(f"{limit:>8d}" for limit in LIMITS))
    for name, run in unions(everyone, epsilon).items():
        sizes = [mean(partial(released, run, d)) for d in LIMITS]
        print(f"    {name:20s}" + "".join(f"{size:8.0f}" for size in sizes))
    for tokens in sorted({1, tokens_at_no_cost(epsilon), 16}):
        parameters = Greedy(epsilon, DELTA, tokens)
        size = mean(partial(released, partial(greedy, everyone), parameters))
        print(f"    {f'greedy, K = {tokens}':20s}{size:8.0f}   (users keep all items)")


def ranking_table(everyone: Baskets, epsilon: float) -> None:
    print(f"  epsilon {epsilon:g}: recall of the true top k (kbar = 50 k)")
    print(f"    {'':26s}" + "".join(f"{k:>8d}" for k in TOPS))
    for name, find in rankings(everyone, epsilon).items():
        shares = [mean(partial(find, k)) for k in TOPS]
        print(f"    {name:26s}" + "".join(f"{share:8.2f}" for share in shares))


def released(run: Callable[..., Outcome], parameter: object, noise: OneShotNoise) -> int:
    """The number of labels in a result."""
    return len(run(parameter, noise).items)


def mean(run: Callable[[OneShotNoise], float]) -> float:
    return float(np.mean([run(OneShotNoise(number.to_bytes(32, "little"))) for number in range(RUNS)]))


def unions(everyone: Baskets, epsilon: float) -> dict[str, Callable[[int, OneShotNoise], Outcome]]:
    rho = gaussian_rho(epsilon, DELTA / 2)
    return {
        "count laplace": lambda d, n: laplace_count(everyone, LaplaceCount(epsilon, DELTA, d), n),
        "count gaussian": lambda d, n: gaussian_count(everyone, GaussianSetUnion(epsilon, DELTA, d), n),
        "weighted laplace": lambda d, n: laplace_weighted(everyone, LaplaceSetUnion(epsilon, DELTA, d), n),
        "weighted gaussian": lambda d, n: gaussian_weighted(everyone, GaussianSetUnion(epsilon, DELTA, d), n),
        "policy laplace": lambda d, n: laplace_policy(everyone, LaplacePolicy(epsilon, DELTA, d), n),
        "policy gaussian": lambda d, n: gaussian_policy(everyone, GaussianPolicy(epsilon, DELTA, d), n),
        "sips": lambda d, n: sips(everyone, Sips(rho, DELTA / 2, d), n),
    }


def rankings(everyone: Baskets, epsilon: float) -> dict[str, Callable[[int, OneShotNoise], float]]:
    """Recall of the true top k, where every mechanism has (epsilon, delta) by its better route."""
    counts = np.bincount(everyone.items, minlength=everyone.item_count)
    best = np.argsort(-counts, kind="stable")
    half = DELTA / 2
    rho = zcdp_rho(epsilon, half)

    def recall(result: Outcome, k: int) -> float:
        return len(np.intersect1d(result.items, best[:k])) / k

    def counted(run: Callable[..., Outcome], kind: Any, limit: int) -> Callable[[int, OneShotNoise], float]:
        each = epsilon_per_item(rho, limit)
        if kind is LaplaceTopK:
            each = max(each, epsilon / limit)

        def find(k: int, noise: OneShotNoise) -> float:
            kept = sample(everyone, limit, noise)
            return recall(
                run(np.bincount(kept.items, minlength=len(counts)), kind(each, half, limit, 50 * k), noise), k
            )

        return find

    return {
        **{
            f"laplace, {limit} items a user": counted(laplace_top_k, LaplaceTopK, limit) for limit in (10, 50)
        },
        **{
            f"gaussian, {limit} items a user": counted(gaussian_top_k, GaussianTopK, limit)
            for limit in (10, 50)
        },
        "gumbel": lambda k, n: recall(
            gumbel_top_k(counts, GumbelTopK(max(epsilon_per_pick(rho, k), epsilon / k), half, k, 50 * k), n),
            k,
        ),
        "stable (its own k)": lambda k, n: recall(
            stable_top_k(counts, StableTopK(rho, half, Ranks(2 * k)), n), k
        ),
        "stable-fixed-k": lambda k, n: recall(
            stable_fixed_k(counts, StableFixedK(rho, half, k, 50 * k), n), k
        ),
    }
