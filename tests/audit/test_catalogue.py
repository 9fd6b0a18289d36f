"""Does the audit cover every mechanism, pass the correct ones and catch every broken one?"""

import ast
import importlib
import inspect
import pkgutil
from pathlib import Path

import numpy as np
import pytest

import stream_dp
from stream_dp import batch
from stream_dp.audit import controls, running_pairs
from stream_dp.audit.catalogue import audit, pairs
from stream_dp.audit.controls import novel_weights, shared_lru
from stream_dp.audit.examine import Pair, examine
from stream_dp.audit.user_unit_pairs import STREAM, admitted, emptied
from stream_dp.privacy.accounting import discrete_gaussian_delta, discrete_gaussian_epsilon
from tests.batch.plain_set_union import chained_users, posters_greedy

PACKAGE = Path(stream_dp.__file__).parent
SEED = b"tests"
ENUMERATED = {"gaussian-known-histogram", "two-rounds", "two-stage"}
"""Mechanisms of which `audit --exact` goes through every outcome instead."""

FEW = 4_000

EVERYTHING = pairs()
CORRECT = [pair for pair in EVERYTHING if not pair.control]
CONTROLS = [pair for pair in EVERYTHING if pair.control]


def test_every_batch_mechanism_is_audited() -> None:
    mechanisms = set()
    for module in pkgutil.iter_modules(batch.__path__):
        loaded = importlib.import_module(f"stream_dp.batch.{module.name}")
        for name, function in inspect.getmembers(loaded, inspect.isfunction):
            returns = inspect.signature(function).return_annotation
            told = any(kind in str(returns) for kind in ("Outcome", "Gap", "Labelling"))
            if function.__module__ == loaded.__name__ and not name.startswith("_") and told:
                mechanisms.add(name.replace("_", "-"))
    assert len(mechanisms) > 20
    assert mechanisms - ENUMERATED <= {pair.mechanism for pair in CORRECT}
    assert mechanisms >= ENUMERATED


def test_every_pair_has_a_name_and_runs_of_its_own() -> None:
    names = [(pair.mechanism, pair.name) for pair in EVERYTHING]
    assert len(set(names)) == len(names)
    assert all(pair.runs % 4 == 0 for pair in EVERYTHING)
    assert all(pair.name.startswith("BROKEN: ") == pair.control for pair in EVERYTHING)
    assert all(0 < pair.epsilon < 5 and 0 <= pair.delta <= 0.05 for pair in EVERYTHING)


def test_correct_mechanisms_pass() -> None:
    """With a fortieth of the runs that the command takes."""
    findings = [examine(pair, SEED, pair.runs // 40) for pair in CORRECT]
    assert not [finding.report() for finding in findings if finding.flagged]
    assert max(finding.bound.epsilon / finding.pair.epsilon for finding in findings) > 0.7


def test_the_catalogue_is_examined_in_order_and_by_name() -> None:
    chosen = pairs(["known-histogram"])
    assert len(chosen) == 2
    assert [finding.pair for finding in audit(chosen, SEED, FEW)] == chosen


@pytest.mark.parametrize("pair", CONTROLS, ids=lambda pair: pair.name.removeprefix("BROKEN: "))
def test_every_broken_mechanism_is_caught(pair: Pair) -> None:
    """By half of the runs that the command takes."""
    assert examine(pair, SEED, pair.runs // 2).verdict == "caught"


def test_the_sum_statistic_comes_near_the_claim_of_exactly_calibrated_noise() -> None:
    """So near that noise too small by sqrt(2) shows; the bound itself stays below the claim."""
    [pair] = [p for p in running_pairs.pairs() if p.name == "table: event at the first round of 7"]
    bound = examine(pair, SEED, pair.runs).bound
    assert 0.7 * pair.epsilon < bound.epsilon < pair.epsilon
    assert pair.epsilon == pytest.approx(1.0, rel=1e-3)
    assert pair.delta == 1e-3


def test_the_claim_of_open_tables_is_exact_and_noise_off_by_sqrt_2_breaks_it_by_far() -> None:
    mechanism, epsilon = running_pairs.open_table(7, 1, 1.0, 0.01)
    assert discrete_gaussian_delta(mechanism.sigma_squared, 3, epsilon) <= 0.01
    assert discrete_gaussian_delta(mechanism.sigma_squared, 3, epsilon * 0.999) > 0.01
    assert discrete_gaussian_epsilon(mechanism.sigma_squared / 2, 3, 0.01).epsilon > 1.5 * epsilon


def test_controls_claim_what_the_correct_mechanism_would() -> None:
    assert controls.posters_top_k().epsilon == 0.5
    assert controls.sigma_off().epsilon == pytest.approx(1.0, rel=1e-3)
    assert controls.no_union_over_rounds().delta == 0.05
    assert controls.posters_greedy().delta == pytest.approx(np.exp(-10))


def test_an_audit_is_a_function_of_its_seed() -> None:
    [pair] = [p for p in CORRECT if p.name == "a bin beside the filter"]
    again = examine(pair, SEED, FEW)
    assert examine(pair, SEED, FEW) == again
    assert examine(pair, b"other", FEW).bound != again.bound


def imports(source: str, package: str) -> set[str]:
    """Every module that Python source names in an import, also inside functions; `package` holds the source."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: 1 - node.level or None]) if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            found |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def test_nothing_but_the_command_imports_the_audit() -> None:
    assert "stream_dp.audit.controls" in imports("from ..audit import controls", "stream_dp.batch")
    assert "stream_dp.audit.controls" in imports("from stream_dp.audit import controls", "stream_dp")
    found = {}
    for file in PACKAGE.rglob("*.py"):
        place = file.relative_to(PACKAGE).as_posix()
        package = ".".join(["stream_dp", *file.relative_to(PACKAGE).parts[:-1]])
        used = {name for name in imports(file.read_text(), package) if name.startswith("stream_dp.audit")}
        if used and not place.startswith("audit/"):
            found[place] = any("controls" in name for name in used)
    assert found == {"cli/audit.py": False, "cli/audit_exact.py": False}


def test_the_chain_of_the_control_is_the_posters_update() -> None:
    length = 40
    chain, differing, cap = chained_users(length, 5)
    for with_user in (False, True):
        users = [differing, *chain] if with_user else chain
        weights = posters_greedy(users, cap)
        expected = [weights.get(length + 1 + place, 0) for place in range(length)]
        assert novel_weights(length, with_user) == expected


def test_own_bookkeeping_admits_a_pair_once_and_a_shared_cache_forgets() -> None:
    smaller = emptied(STREAM)
    alone = [items for items in admitted(smaller) if items]
    assert alone == [[1], [2], [3]]
    assert [items for items in admitted(STREAM) if items] == [*alone, [0]]
    assert admitted([(1, [5, 5]), (1, [6, 7]), (1, [5])], 2) == [[5], [6], []]
    assert admitted([(1, [5]), (2, [5]), (-1, [6]), (3, [7])], rounds="every-2") == [[5, 5], [7]]
    assert shared_lru(smaller) == admitted(smaller)  # the cache is large enough for three users
    assert all(shared_lru(STREAM))  # with a fourth, every event is admitted again
