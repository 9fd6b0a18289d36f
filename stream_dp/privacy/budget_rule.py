"""A budget, and the rule by which charges fit into it.  Why each rule is a valid one: docs/budget.md.

Which rule a ledger follows is known from its budget and its first charge, before anything has been seen:

- `gaussian`: the charges' own deltas have a share of delta, and beside that the pure epsilons of the mechanisms behind
  them must add up to at most epsilon, or the one Gaussian that stands for all must be within the rest of delta.
- `basic`: the charges' own epsilons and deltas add up to at most those of the budget.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, get_args

import msgspec

from stream_dp.privacy.accounting import gaussian_rho
from stream_dp.privacy.charge import Charge, Load, Unit

SLACK = 1e-9
"""Relative: what equal shares of a limit may exceed it by through rounding; taken off the limit first."""

_ROUNDING = 1e-12
"""What a sum of epsilons may exceed a budget's own by, relatively: ten times 0.1 is more than 1 in doubles."""

_MOSTLY_CONVERTED = (0.875, 0.75)
_HALF_OR_LESS = (0.5, 0.25, 0.125, 0.03125)
CONVERTED = _MOSTLY_CONVERTED + _HALF_OR_LESS
"""The shares of delta that may be left to the conversion; which one, see `_rule_of`."""

_FEW, _MANY = 12, 100
_LEAST, _MOST, _MOST_DELTA = 1e-6, 1000.0, 0.5  # of the epsilon and the delta of a budget
_OWN_DELTAS = (0.001, 0.99)  # the least and the largest share of them: what is left is more than all slack


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The most that a source may spend: (epsilon, delta)-DP for whatever is released from it, per `unit`.

    `own_deltas`: the share of delta that is set aside for the charges' own deltas; the first charge settles it where
    this is None.  It must not change once anything is charged.
    """

    epsilon: float
    delta: float
    unit: Unit
    own_deltas: float | None = None

    def __post_init__(self) -> None:
        if self.unit not in get_args(Unit):
            raise ValueError(f"the unit of a budget is event, user or user-day, not {self.unit!r}")
        if not _LEAST <= self.epsilon <= _MOST:
            raise ValueError(f"the epsilon of a budget must lie between 1e-6 and 1000, not {self.epsilon:g}")
        if not 1e-50 <= self.delta <= _MOST_DELTA:
            raise ValueError(f"the delta of a budget must lie between 1e-50 and 0.5, not {self.delta:g}")
        if self.own_deltas is not None and not _OWN_DELTAS[0] <= self.own_deltas <= _OWN_DELTAS[1]:
            raise ValueError(
                "the share of delta for the charges' own deltas must lie between 0.001 and 0.99, not "
                f"{self.own_deltas:g}"
            )

    def rule(self, first: Charge | None) -> "Rule":
        """The rule of a ledger whose first charge is `first`; before there is one, half of delta is converted."""
        if self.own_deltas is not None:
            return gaussian_rule(self, 1 - self.own_deltas)
        if first is None:
            return gaussian_rule(self, 0.5)
        return _rule_of(self, first.rho, first.delta, first.loss.pure, first.exact)

    def allows(self, load: Load) -> bool:
        """Whether the load is within the limits of its rule, or the only charge by its exact guarantee."""
        return self.rule(load.first).allows(load)

    def least_epsilon(self, load: Load) -> float:
        """The epsilon that this budget would need, at its delta, to allow the load; infinite if none does."""
        return _least(
            lambda epsilon: msgspec.structs.replace(self, epsilon=epsilon).allows(load), _LEAST, _MOST
        )

    def least_delta(self, load: Load) -> float:
        """The delta from this one on at which a budget of some epsilon allows the load; infinite if none does."""
        return _least(
            lambda delta: msgspec.structs.replace(self, epsilon=_MOST, delta=delta).allows(load),
            self.delta,
            _MOST_DELTA,
        )


def _least(allows: Callable[[float], bool], least: float, enough: float) -> float:
    """A value up to `enough` that is allowed, and less than a millionth above one that is not; infinite if none is."""
    if not allows(enough):
        return math.inf
    while enough > least * (1 + 1e-6):
        middle = math.sqrt(least * enough)
        if allows(middle):
            enough = middle
        else:
            least = middle
    return enough


@dataclass(frozen=True, slots=True)
class Rule:
    """The limits of the sums, fixed before the second charge sees any data.

    `charged_delta` limits the sum of the charges' own deltas, `mu_squared` the Gaussian that stands for all of them; it
    is 0 by the rule `basic`.
    """

    name: Literal["gaussian", "basic"]
    budget: Budget
    charged_delta: float
    mu_squared: float = 0.0

    @property
    def gaussian_rho(self) -> float:
        """The rho of the most Gaussian noise that fits."""
        return self.mu_squared / 2

    def allows(self, load: Load) -> bool:
        """Whether the load fits."""
        most = self.budget.epsilon
        if load.own[0] <= most and load.own[1] <= self.budget.delta:
            return True
        if self.name == "basic":
            epsilon, delta = load.basic
            return epsilon <= most * (1 + _ROUNDING) and delta <= self.budget.delta * (1 + _ROUNDING)
        if load.delta > self.charged_delta * (1 + SLACK):
            return False
        return load.pure <= most * (1 + _ROUNDING) or load.gaussian <= self.mu_squared * (1 + SLACK)


@lru_cache(maxsize=256)
def _rule_of(
    budget: Budget, rho: float, delta: float, pure: float | None, exact: tuple[float, float] | None
) -> Rule:
    """Room for the deltas of all copies of the first charge whose noise fits, and of a hundred at least.

    It is an eighth, a quarter or half of delta.  Where fewer than 12 copies of the first charge fit by halves, it is
    the share, or the rule, by which most copies fit.
    """
    for share in _MOSTLY_CONVERTED:
        rule = gaussian_rule(budget, share)
        if max(_MANY, _times(rule.mu_squared, 2 * rho)) * delta <= rule.charged_delta * (1 + SLACK):
            return rule
    own = exact if exact is not None else (math.inf, math.inf)
    rules = [gaussian_rule(budget, share) for share in _HALF_OR_LESS]
    copies = [
        min(
            _times(rule.charged_delta, delta),
            max(_times(rule.mu_squared, 2 * rho), _times(budget.epsilon, math.inf if pure is None else pure)),
        )
        for rule in rules
    ]
    if copies[0] >= _FEW:
        return rules[0]
    rules.append(Rule("basic", budget, budget.delta))
    copies.append(min(_times(budget.epsilon, own[0]), _times(budget.delta, own[1])))
    return rules[copies.index(max(copies))]


def gaussian_rule(budget: Budget, share: float) -> Rule:
    """The rule `gaussian` that leaves this share of delta to the conversion."""
    converted = budget.delta * share * (1 - 1e-7)  # the rest is more than the slack of the charged deltas
    mu_squared = 2 * gaussian_rho(budget.epsilon, converted) * (1 - 2 * SLACK)
    return Rule("gaussian", budget, budget.delta * (1 - share), mu_squared)


def _times(limit: float, size: float) -> float:
    """How often `size` fits into the limit, at most a million times."""
    return float(math.floor(min(limit / size if size > 0 else math.inf, 1e6) * (1 + SLACK)))
