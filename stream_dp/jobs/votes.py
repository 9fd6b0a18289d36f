"""The mechanisms of a label-votes job, each calibrated to the guarantee of all its queries together.

What they compute, with their sources: stream_dp/batch/label_votes.py.  A row is the vote of a teacher (the row's user);
its item is the example that the vote is about, then SEPARATOR, then the label.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np

from stream_dp.batch.label_votes import ArgmaxVotes, LabelVotes, argmax_votes, label_votes
from stream_dp.batch.result import Outcome
from stream_dp.jobs.bounds import check_size
from stream_dp.jobs.calibrated import Calibrated, Integers
from stream_dp.jobs.counted import Counted
from stream_dp.jobs.declared import one_shot
from stream_dp.jobs.request import Protects
from stream_dp.jobs.rows import SEPARATOR
from stream_dp.jobs.shares import DOWN, pick_share
from stream_dp.privacy.accounting import zcdp_rho
from stream_dp.privacy.one_shot_noise import OneShotNoise

_IN_WORDS: dict[Protects, str] = {
    "teacher": "one teacher, with all of their votes,",
    "record": "one record of the training data, from which one of the teachers has learned,",
}


@one_shot("label-votes", "stable")
def calibrate_stable_votes(
    epsilon: float, delta: float, k: int, examples: list[str], protect: Protects = "record"
) -> Calibrated:
    """Up to k labels for each of the public `examples`, or none where the votes are not clear; any labels may come."""
    queries = len(examples)
    rho = zcdp_rho(epsilon, delta / 2) / queries * DOWN
    parameters = LabelVotes(rho, delta / 2 / queries * DOWN, k, queries, protect)

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        counts = rows.counts()  # on Spark the labels are those of the last counts
        votes = _by_example(rows, examples)
        width = max(map(len, votes), default=0)
        tallies = np.zeros((queries, width), np.int64)
        for tally, mine in zip(tallies, votes, strict=True):
            tally[: len(mine)] = counts[mine]
        answers = label_votes(tallies, parameters, noise).answers
        chosen = [mine[answer.items] for mine, answer in zip(votes, answers, strict=True)]
        return Outcome(np.concatenate(chosen), bottom=any(answer.bottom for answer in answers))

    return Calibrated(parameters.cost, delta, run, protects=_IN_WORDS[protect])


@one_shot("label-votes", "argmax")
def calibrate_argmax_votes(
    epsilon: float, delta: float, bins: list[str], examples: list[str], protect: Protects = "record"
) -> Calibrated:
    """One of the public labels `bins` for each of the public `examples`."""
    queries = len(examples)
    check_size("labels_of_all_examples", queries * len(bins))
    each, _ = pick_share(epsilon, delta, queries, threshold=False)
    parameters = ArgmaxVotes(each, len(bins), queries, protect)
    names = [vote(example, label) for example, label in product(examples, bins)]

    def run(rows: Counted, noise: OneShotNoise) -> Outcome:
        tallies = rows.restricted(names).counts().reshape(queries, len(bins))
        chosen = argmax_votes(tallies, parameters, noise)
        return Outcome(np.arange(queries) * len(bins) + chosen)

    cost = replace(parameters.cost, alone=(epsilon, delta))
    return Calibrated(cost, delta, run, names, protects=_IN_WORDS[protect])


def vote(example: str, label: str) -> str:
    """What an item of a vote is called."""
    return f"{example}{SEPARATOR}{label}"


def columns_of(votes: Sequence[str]) -> tuple[list[str], list[str]]:
    """The examples and the labels of items that are votes."""
    pairs = [each.partition(SEPARATOR) for each in votes]
    return [example for example, _, _ in pairs], [label for _, _, label in pairs]


def _by_example(rows: Counted, examples: list[str]) -> list[Integers]:
    """For each example the items that are votes about it, by rising number."""
    found: dict[str, list[int]] = {example: [] for example in examples}
    for number, name in enumerate(rows.labels.to_pylist()):
        example, separator, _ = name.decode().partition(SEPARATOR)
        if separator and example in found:
            found[example].append(number)
    return [np.array(found[example], np.int64) for example in examples]
