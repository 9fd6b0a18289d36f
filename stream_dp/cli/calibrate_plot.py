"""The picture of `stream-dp calibrate`: noise and threshold over the rounds, and what another epsilon would give."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from stream_dp.cli.calibrate import mean_over_rounds, rounds_by_nodes
from stream_dp.cli.mistakes import Mistake

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from stream_dp.calibration import Guarantee
    from stream_dp.counters.binary import BinaryMechanism

_KINDS = (".png", ".svg", ".pdf")
_TAU, _SD, _INK, _QUIET = "#b4532a", "#2f6690", "#333333", "#777777"
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


def check_kind(file: Path) -> None:
    """Refuse a file whose name does not end in a known way, before anything is computed."""
    if file.suffix.lower() not in _KINDS:
        raise Mistake(f"cannot draw to {file}: let the name of the file end in .png, .svg or .pdf")


def draw(noise: "BinaryMechanism", guarantee: "Guarantee", file: Path) -> None:
    """Two panels: tau and sd in every doubling of the rounds, and their means under other epsilons."""
    import matplotlib  # takes half a second, which nobody should wait for who draws nothing

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.rc_context(_STYLE):
        figure, (left, right) = pyplot.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
        _over_rounds(left, noise)
        _over_epsilons(right, noise, guarantee)
        figure.suptitle(_title(noise, guarantee), fontsize=12, x=0.01, horizontalalignment="left")
        try:
            figure.savefig(file, dpi=150, metadata={"Title": _description(noise, guarantee)})
        except (OSError, ValueError) as error:
            raise Mistake(f"cannot draw to {file}: {error}") from None
        finally:
            pyplot.close(figure)


def octaves(horizon: int) -> list[tuple[int, int, dict[int, int]]]:
    """(first round, last round, number of rounds by their number of nodes) of each doubling up to `horizon`.

    >>> octaves(5)
    [(1, 1, {1: 1}), (2, 3, {1: 1, 2: 1}), (4, 5, {1: 1, 2: 1})]
    """
    found = []
    for place in range(horizon.bit_length()):
        first, last = 2**place, min(2 ** (place + 1) - 1, horizon)
        before, until = rounds_by_nodes(first - 1), rounds_by_nodes(last)
        counts = {nodes: until[nodes] - before.get(nodes, 0) for nodes in until}
        found.append((first, last, {nodes: count for nodes, count in counts.items() if count}))
    return found


def _over_rounds(axes: "Axes", noise: "BinaryMechanism") -> None:
    """Means as steps within their bands from least to most; a round's value depends on its number of nodes."""
    spans = octaves(noise.horizon)
    edges = [first for first, _, _ in spans] + [noise.horizon + 1]
    for name, value, colour in (("tau", noise.tau, _TAU), ("sd", noise.sd, _SD)):
        values = [[float(value(2**nodes - 1)) for nodes in spread] for _, _, spread in spans]
        means = [
            sum(each * count for each, count in zip(row, spread.values(), strict=True)) / sum(spread.values())
            for row, (_, _, spread) in zip(values, spans, strict=True)
        ]
        axes.stairs(
            [max(row) for row in values],
            edges,
            baseline=[min(row) for row in values],
            fill=True,
            color=colour,
            alpha=0.18,
            linewidth=0,
        )
        axes.stairs(means, edges, baseline=None, color=colour, linewidth=2)
        highest = max(map(max, values))
        axes.annotate(
            f"{name}, highest {_number(highest)}",
            (edges[-1], highest),
            xytext=(0, 5),
            textcoords="offset points",
            horizontalalignment="right",
            color=colour,
            weight="bold",
        )
    axes.set_xscale("log", base=10)
    axes.set_xlim(1, edges[-1])
    axes.set_ylim(0, 1.12 * max(noise.tau(2**nodes - 1) for nodes in rounds_by_nodes(noise.horizon)))
    axes.minorticks_off()
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.6g}")
    axes.set_xlabel("round")
    axes.set_title(
        "By round: mean in each doubling, shaded least to most",
        fontsize=10,
        loc="left",
    )
    axes.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def _over_epsilons(axes: "Axes", noise: "BinaryMechanism", guarantee: "Guarantee") -> None:
    """Mean tau and mean sd from an eighth to eight times the epsilon, all else equal; the chosen one is marked."""
    from matplotlib.ticker import LogLocator

    from stream_dp.calibration import calibrate

    spread = rounds_by_nodes(noise.horizon)
    means = {}
    for epsilon in (guarantee.epsilon * factor for factor in _FACTORS):
        try:
            other, _ = calibrate(epsilon, guarantee.delta, noise.horizon, noise.items_per_event)
        except ValueError:
            continue  # outside what can be promised: the curve ends there
        means[epsilon] = mean_over_rounds(other.tau, spread), mean_over_rounds(other.sd, spread)
    for place, (name, value, colour) in enumerate(
        (("mean tau", noise.tau, _TAU), ("mean sd", noise.sd, _SD))
    ):
        axes.plot(list(means), [each[place] for each in means.values()], color=colour, linewidth=2)
        chosen = mean_over_rounds(value, spread)
        axes.plot([guarantee.epsilon], [chosen], "o", color=colour, markersize=7)
        axes.annotate(
            f"{name} {_number(chosen)}",
            (guarantee.epsilon, chosen),
            xytext=(8, 6),
            textcoords="offset points",
            color=colour,
            weight="bold",
        )
    axes.axvline(guarantee.epsilon, color="#cccccc", linewidth=1, zorder=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = [guarantee.epsilon * factor for factor in _FACTORS[::2]]
    axes.set_xticks(ticks, [f"{each:.3g}" for each in ticks])
    axes.minorticks_off()
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(lambda y, _: f"{y:,.6g}")
    axes.set_xlabel("epsilon")
    axes.set_title("By epsilon: means over all rounds", fontsize=10, loc="left")
    axes.grid(color="#e6e6e6", linewidth=0.8)
    axes.set_axisbelow(True)


def _title(noise: "BinaryMechanism", guarantee: "Guarantee") -> str:
    items = "1 item" if noise.items_per_event == 1 else f"{noise.items_per_event:,} items"
    rounds = "for 1 round" if noise.horizon == 1 else f"all {noise.horizon:,} rounds together"
    return (
        f"Threshold tau and noise sd at epsilon {guarantee.epsilon:.4g}, "
        f"delta {guarantee.delta:.3g} for every {guarantee.unit} of up to {items}, "
        f"{rounds}"
    )


def _description(noise: "BinaryMechanism", guarantee: "Guarantee") -> str:
    """The picture in one line, kept inside the file: for screen readers, and to tell what a picture was made of."""
    spread = rounds_by_nodes(noise.horizon)
    parts = [
        f"{name} {_number(mean_over_rounds(value, spread))} on average, highest "
        f"{_number(max(value(2**nodes - 1) for nodes in spread))}"
        for name, value in (("tau", noise.tau), ("sd", noise.sd))
    ]
    return f"{_title(noise, guarantee)}: {'; '.join(parts)}"


def _number(value: float) -> str:
    """Four digits at least: 97.95, 682.2, 16,111."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
