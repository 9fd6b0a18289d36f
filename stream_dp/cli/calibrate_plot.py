"""The picture of `stream-dp calibrate`: thresholds over the rounds, and what another epsilon would give."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from stream_dp.cli.mistakes import Mistake
from stream_dp.counters.calibration import Guarantee
from stream_dp.counters.protocol import CalibratedCounter
from stream_dp.errors import Refused, needs_extra
from stream_dp.planning.comparison import (
    Calibrated,
    OverRounds,
    calibrate_each,
    counter_name,
    over_rounds,
    spread,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Values = Callable[[NDArray[np.int64]], NDArray[Any]]

_COLOURS = ("#b4532a", "#2f6690", "#4f8a4f", "#7b4f8a", "#b08a1e", "#333333")
_INK, _QUIET = "#333333", "#777777"
_STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": _INK,
    "axes.labelcolor": _INK,
    "axes.edgecolor": _QUIET,
    "xtick.color": _QUIET,
    "ytick.color": _QUIET,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_FACTORS = [2 ** (step / 2) for step in range(-6, 7)]
"""The other epsilons, relative to the chosen one: an eighth to eight times."""

_ROUNDS_OF_OCTAVE = 2**14
"""At most so many rounds of each doubling are looked at, and of a whole horizon under another epsilon."""


def draw(calibrated: "list[Calibrated]", file: Path) -> None:
    """Two panels: tau in every doubling of the rounds, and its mean under other epsilons; for one mechanism, sd too."""
    with needs_extra("--plot", "plot"):
        import matplotlib
    matplotlib.use("Agg")
    from matplotlib import pyplot

    curves = _curves([noise for noise, _ in calibrated])
    with pyplot.rc_context(_STYLE):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
        _over_rounds(left, curves, calibrated[0][0].horizon)
        _over_epsilons(right, curves, calibrated)
        figure.suptitle(_title(calibrated[0]), fontsize=12, x=0.01, horizontalalignment="left")
        try:
            figure.savefig(file, dpi=150, metadata={"Title": _description(curves, calibrated[0])})
        except (OSError, ValueError) as error:
            raise Mistake(f"cannot draw to {file}: {error}") from None
        finally:
            pyplot.close(figure)


def octaves(horizon: int) -> list[tuple[int, int]]:
    """First and last round of each doubling up to `horizon`.

    >>> octaves(5)
    [(1, 1), (2, 3), (4, 5)]
    """
    return [(2**place, min(2 ** (place + 1) - 1, horizon)) for place in range(horizon.bit_length())]


class _Curve:
    """One line of a panel: a value of the rounds of a mechanism, and what it comes to over all of them."""

    def __init__(self, noise: "CalibratedCounter", name: str, label: str, colour: str) -> None:
        self.mechanism, self.name, self.label, self.colour = counter_name(noise), name, label, colour
        self.values = self.of(noise)
        self.total: OverRounds = over_rounds(self.values, noise.horizon)

    def of(self, noise: "CalibratedCounter") -> "Values":
        """These values for another mechanism."""
        return noise.taus if self.name == "tau" else noise.sds

    def __str__(self) -> str:
        return f"{self.label} {_number(self.total.mean)} on average, highest {_number(self.total.max)}"


def _curves(mechanisms: "list[CalibratedCounter]") -> list[_Curve]:
    """The thresholds of several mechanisms, or threshold and noise of one."""
    if len(mechanisms) == 1:
        return [
            _Curve(mechanisms[0], name, name, colour)
            for name, colour in zip(("tau", "sd"), _COLOURS, strict=False)
        ]
    return [
        _Curve(noise, "tau", counter_name(noise), _COLOURS[number % len(_COLOURS)])
        for number, noise in enumerate(mechanisms)
    ]


def _over_rounds(axes: "Axes", curves: list[_Curve], horizon: int) -> None:
    """In every doubling, the mean as a line and the highest value as a thin one."""
    spans = octaves(horizon)
    edges = [first for first, _ in spans] + [horizon + 1]
    for curve in curves:
        values = [curve.values(spread(first, last, _ROUNDS_OF_OCTAVE)) for first, last in spans]
        ends = curve.values(np.array([last for _, last in spans]))  # where trees have their longest chains
        means = [float(row.mean()) for row in values]
        highest = [float(max(row.max(), end)) for row, end in zip(values, ends, strict=True)]
        axes.stairs(means, edges, baseline=None, color=curve.colour, linewidth=2, label=str(curve))
        axes.stairs(highest, edges, baseline=None, color=curve.colour, linewidth=0.8, linestyle="--")
    axes.set_xscale("log", base=10)
    axes.set_xlim(1, edges[-1])
    axes.set_ylim(0, (1.12 + 0.09 * len(curves)) * max(curve.total.max for curve in curves))
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.6g}")
    axes.set_xlabel("round")
    axes.set_title("By round: mean in each doubling, and dashed the highest", fontsize=10, loc="left")
    axes.legend(loc="upper left", frameon=False, labelcolor="linecolor")
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def _over_epsilons(axes: "Axes", curves: list[_Curve], calibrated: "list[Calibrated]") -> None:
    """Means from an eighth to eight times the epsilon, all else equal; the chosen one is marked."""
    from matplotlib.ticker import LogLocator

    epsilon = calibrated[0][1].epsilon
    for curve in curves:
        means = _means(curve, *calibrated[0])
        axes.plot(list(means), list(means.values()), color=curve.colour, linewidth=2)
        axes.plot([epsilon], [curve.total.mean], "o", color=curve.colour, markersize=7)
    axes.axvline(epsilon, color="#cccccc", linewidth=1, zorder=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [epsilon * factor for factor in _FACTORS[::2]]
    axes.set_xticks(ticks, [f"{each:.3g}" for each in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.6g}")
    axes.set_xlabel("epsilon")
    axes.set_title("By epsilon: means over all rounds", fontsize=10, loc="left")
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def _means(curve: _Curve, noise: "CalibratedCounter", guarantee: "Guarantee") -> dict[float, float]:
    """The mean that each epsilon gives; epsilons outside what can be guaranteed are left out."""
    rounds = spread(1, noise.horizon, _ROUNDS_OF_OCTAVE)
    means = {}
    for epsilon in (guarantee.epsilon * factor for factor in _FACTORS):
        try:
            [(other, _)], _ = calibrate_each(
                epsilon,
                guarantee.delta,
                noise.horizon,
                noise.items_per_event,
                [curve.mechanism],
                shown=noise.shown,
            )
        except Refused:
            continue
        means[epsilon] = float(curve.of(other)(rounds).mean())
    return means


def _title(calibrated: "Calibrated") -> str:
    noise, guarantee = calibrated
    items = "1 item" if noise.items_per_event == 1 else f"{noise.items_per_event:,} items"
    rounds = "for 1 round" if noise.horizon == 1 else f"all {noise.horizon:,} rounds together"
    return (
        f"Threshold tau at epsilon {guarantee.epsilon:.4g}, delta {guarantee.delta:.3g} "
        f"for every {guarantee.unit} of up to {items}, {rounds}"
    )


def _description(curves: list[_Curve], calibrated: "Calibrated") -> str:
    """The picture in one line, kept inside the file: for screen readers, and to tell what a picture was made of."""
    return f"{_title(calibrated)}: {'; '.join(map(str, curves))}"


def _number(value: float) -> str:
    """Four digits at least: 97.95, 682.2, 16,111."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
