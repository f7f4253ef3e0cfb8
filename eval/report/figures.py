"""The report's figures, as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..robustness.intervals import Estimate, Floats
from ..robustness.metrics import PASS_AT_1, PASS_CONSTANT, Metric
from ..robustness.tables import Shift, SplitRow
from .document import Picture
from .drift import Decided
from .numbers import number
from .style import marks, new_figure, settings, short, svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def by_axis(rows: Sequence[SplitRow], controllers: Sequence[str], metric: Metric) -> Picture | None:
    """A metric in every split, one marker per controller, intervals as bars."""
    of = marks(controllers)
    known = [r for r in rows if r.controller in of and metric.key in r.means]
    splits = list(dict.fromkeys(row.split for row in known))
    names = [c for c in controllers if any(row.controller == c for row in known)]
    if not splits:
        return None
    means = {(row.controller, row.split): row.means[metric.key] for row in known}
    with settings():
        figure = new_figure(10, 4.6)
        axes = figure.subplots()
        step = 0.8 / max(len(names), 1)
        for place, name in enumerate(names):
            at = [i for i, split in enumerate(splits) if (name, split) in means]
            found = [means[name, splits[i]] for i in at]
            x = np.array(at) - 0.4 + (place + 0.5) * step
            axes.errorbar(
                x, [f.mean for f in found], yerr=_bars(found), linestyle="none", capsize=2,
                elinewidth=0.9, label=short(name), **of[name].options,
            )  # fmt: skip
        for edge in range(1, len(splits)):
            axes.axvline(edge - 0.5, color="0.75", linewidth=0.8)
        axes.set_xticks(range(len(splits)), [s.removeprefix("ood_") for s in splits])
        axes.set(ylabel=metric.title, xlim=(-0.5, len(splits) - 0.5))
        axes.grid(axis="x", visible=False)
        _around(axes, [found.mean for found in means.values()])
        _legend(axes)
        return Picture(
            f"by-axis-{metric.key}", svg(figure),
            f"{metric.title} of {len(names)} controllers in {', '.join(splits)}; the table of "
            "splits holds the numbers",
        )  # fmt: skip


def id_beside_ood(shifts: Sequence[Shift], controllers: Sequence[str]) -> Picture | None:
    """Every controller's mean in distribution against the one out of it, with the diagonal."""
    of = marks(controllers)
    found = [shift for shift in shifts if shift.controller in of]
    if not found:
        return None
    metric = found[0].metric
    with settings():
        figure = new_figure(7.4, 4.8)
        axes = figure.subplots()
        for shift in found:
            axes.errorbar(
                shift.inside.mean, shift.outside.mean, xerr=_bars([shift.inside]),
                yerr=_bars([shift.outside]), linestyle="none", elinewidth=0.7, ecolor="0.6",
                label=short(shift.controller), **of[shift.controller].options,
            )  # fmt: skip
        values = [v for s in found for v in (s.inside.mean, s.outside.mean)]
        low, high = min(values), max(values)
        margin = 0.12 * (high - low) or 0.05 * abs(high) or 0.1
        ends = (low - margin, high + margin)
        axes.plot(ends, ends, color="0.4", linewidth=1, linestyle="--", zorder=1)
        worse = "above" if metric.better == "low" else "below"
        axes.set(
            xlim=ends, ylim=ends, xlabel=f"{metric.title}, in distribution",
            ylabel=f"{metric.title}, out of distribution",
            title=f"{worse} the diagonal: worse out of distribution",
        )  # fmt: skip
        axes.set_aspect("equal")
        _legend(axes)
        return Picture(
            f"id-ood-{metric.key}", svg(figure),
            f"{metric.title} in distribution against out of distribution, {len(found)} "
            "controllers; the table below holds the numbers",
        )  # fmt: skip


def heat_map(
    controllers: Sequence[str],
    scenarios: Sequence[str],
    values: Floats,
    undecided: Sequence[str],
    reference: str,
) -> Picture | None:
    """Controllers × scenarios: log ratios to a reference, as percent in each cell.

    Args:
        values: float64 ``[controllers, scenarios]``; NaN = no finished run.
        undecided: scenarios in which there is nothing to decide.
        reference: what they are ratios to.
    """
    from matplotlib.patches import Rectangle

    if not np.isfinite(values).any():
        return None
    with settings():
        longest = max(len(short(s, 24)) for s in scenarios)
        figure = new_figure(
            max(6.0, 2.6 + 0.62 * len(scenarios)), 1.1 + 0.3 * len(controllers) + 0.055 * longest
        )
        axes = figure.subplots()
        top = max(0.02, float(np.nanquantile(np.abs(values), 0.9)))
        axes.imshow(values, cmap="PuOr_r", vmin=-top, vmax=top, aspect="auto")
        for row, column in np.ndindex(*values.shape):
            value = values[row, column]
            box = (column - 0.5, row - 0.5)
            if not math.isfinite(value):
                axes.add_patch(
                    Rectangle(box, 1, 1, facecolor="white", edgecolor="0.6", hatch="xxx")
                )
                continue
            dark = abs(value) > 0.75 * top
            text = f"{100 * (math.exp(value) - 1):+.1f}"
            axes.text(
                column, row, text, ha="center", va="center", fontsize=7.5,
                color="white" if dark else "black",
                fontweight="bold" if value <= 0 else "normal",
            )  # fmt: skip
        names = [short(s, 24) + (" ·" if s in undecided else "") for s in scenarios]
        axes.set_xticks(range(len(scenarios)), names, rotation=40, ha="right",
                        rotation_mode="anchor")  # fmt: skip
        axes.set_yticks(range(len(controllers)), [short(c) for c in controllers])
        axes.grid(visible=False)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        axes.set_title(
            f"rows fetched beside {reference}, %; bold: no more than that\n"
            "·  nothing to decide        crossed: no finished run",
            fontsize=9, loc="left",
        )  # fmt: skip
        return Picture(
            "heat-map", svg(figure),
            f"rows fetched beside {reference}, {len(controllers)} controllers by "
            f"{len(scenarios)} scenarios; the table below holds the numbers",
        )  # fmt: skip


def quality_against_cost(
    controllers: Sequence[str],
    panels: Sequence[tuple[Metric, Metric, int]],
    means: Mapping[tuple[str, str], Estimate],
) -> Picture | None:
    """Quality up, cost to the right: one panel per pair of metrics.

    Args:
        panels: cost, quality, and how many controllers must have both for a panel.
        means: by controller and key of the metric.
    """
    filled = [
        (cost, quality)
        for cost, quality, least in panels
        if sum((c, cost.key) in means and (c, quality.key) in means for c in controllers) >= least
    ]
    if not filled:
        return None
    of = marks(controllers)
    with settings():
        figure = new_figure(1.8 + 3.9 * len(filled), 4.2)
        all_axes = figure.subplots(1, len(filled), squeeze=False)[0]
        for axes, (cost, quality) in zip(all_axes, filled, strict=True):
            points = [
                (c, means[c, cost.key].mean, means[c, quality.key])
                for c in controllers
                if (c, cost.key) in means and (c, quality.key) in means
            ]
            positive = [x for _, x, _ in points if x > 0]
            for name, x, found in points:
                axes.errorbar(
                    x, found.mean, yerr=_bars([found]), linestyle="none", elinewidth=0.8,
                    ecolor="0.6", **of[name].options,
                )  # fmt: skip
            if quality is PASS_AT_1:
                chance = [(x, means.get((name, PASS_CONSTANT.key))) for name, x, _ in points]
                axes.plot(
                    [x for x, c in chance if c], [c.mean for _, c in chance if c],
                    linestyle="none", marker="_", markersize=16, color="0.35",
                )  # fmt: skip
                axes.set_ylim(0, 1)
                axes.set_title("bars: the best constant prediction", fontsize=8)
            if positive:
                linear = 10 ** math.floor(math.log10(min(positive)))
                axes.set_xscale("symlog", linthresh=linear, linscale=1)
                axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
                axes.set_xlim(-0.15 * linear, 3 * max(positive))
            else:
                axes.set_xlim(-0.05, 1)
            better = {"low": "lower is better", "high": "higher is better"}.get(quality.better, "")
            axes.set(xlabel=cost.title, ylabel=f"{quality.title} ({better})")
        handles = [
            _handle(of[name].options, short(name))
            for name in controllers
            if any((name, c.key) in means and (name, q.key) in means for c, q in filled)
        ]
        figure.legend(handles=handles, loc="outside right center", fontsize="small")
        return Picture(
            "quality-cost", svg(figure),
            "; ".join(f"{q.title} against {c.title}" for c, q in filled)
            + "; the table below holds the numbers",
        )  # fmt: skip


def decisions(runs: Sequence[Decided], title: str, name: str) -> Picture:
    """One row per run of the same scenario and seed: when it replaced, and its %-Hits."""
    with settings():
        figure = new_figure(10, 0.9 + 0.78 * len(runs))
        all_axes = figure.subplots(len(runs), 1, sharex=True, squeeze=False)[:, 0]
        length = max(len(run.replaced) for run in runs)
        for axes, run in zip(all_axes, runs, strict=True):
            axes.fill_between(
                np.arange(len(run.replaced)), run.replaced, step="mid", facecolor="0.78",
                edgecolor="0.45", linewidth=0.4,
            )  # fmt: skip
            known = np.flatnonzero(np.isfinite(run.hits))
            axes.plot(known, run.hits[known], color="black", linewidth=1.1)
            for epoch in run.epochs:
                axes.axvline(epoch - 0.5, color="#d55e00", linewidth=1, linestyle="--")
            axes.set(ylim=(0, 1), yticks=[0, 1], xlim=(-0.5, length - 0.5))
            axes.set_ylabel(
                short(run.cell.controller, 26), rotation=0, ha="right", va="center", fontsize=8
            )
            axes.grid(visible=False)
        all_axes[-1].set_xlabel("minibatch")
        all_axes[0].set_title(title, loc="left", fontsize=9)
        return Picture(
            name, svg(figure),
            f"{title}: {', '.join(run.cell.controller for run in runs)}; bars: share of trainers "
            "that replace, line: %-Hits, dashed: a new epoch",
        )  # fmt: skip


def standings(rows: Sequence[tuple[str, Estimate, str]], title: str) -> Picture | None:
    """Intervals of a ranking from the best to the worst, with its letters."""
    if not rows:
        return None
    with settings():
        figure = new_figure(8, 0.9 + 0.27 * len(rows))
        axes = figure.subplots()
        middle = float(np.median([found.mean for _, found, _ in rows]))
        near = [found for _, found, _ in rows if found.mean <= 1.8 * middle]
        ends = [x for f in near for x in ((f.low, f.high) if f.known else (f.mean,))]
        margin = 0.06 * (max(ends) - min(ends)) or 0.05 * abs(max(ends)) or 0.1
        axes.set_xlim(min(ends) - margin, max(ends) + margin)
        for place, (_, found, letters) in enumerate(rows):
            if found in near:
                axes.errorbar(
                    found.mean, place, xerr=_bars([found]), marker="o", color="black", capsize=3,
                    markersize=5, elinewidth=1,
                )  # fmt: skip
            else:  # off the scale, which would squeeze all others
                axes.plot(max(ends) + 0.5 * margin, place, marker=">", color="black")
            axes.annotate(
                f"{number(found.mean, percent=True)}   {letters}", (1.01, place),
                xycoords=("axes fraction", "data"), va="center", fontsize=8,
            )  # fmt: skip
        axes.set_yticks(range(len(rows)), [short(name) for name, _, _ in rows])
        axes.set_ylim(len(rows) - 0.5, -0.5)
        axes.xaxis.set_major_formatter(lambda value, _: f"{100 * value:g} %")
        axes.set_title(title, loc="left", fontsize=9)
        return Picture("standings", svg(figure), title + "; the table below holds the numbers")


def _bars(found: Sequence[Estimate]) -> Any:
    """Lengths down and up of error bars; none where there is no interval."""
    pairs = [(f.mean - f.low, f.high - f.mean) if f.known else (0.0, 0.0) for f in found]
    return np.maximum(np.array(pairs).T, 0.0)


def _around(axes: Axes, means: Sequence[float]) -> None:
    """Room for all means; intervals of two or three scenarios may leave the figure."""
    low, high = min(means), max(means)
    margin = 0.2 * (high - low) or 0.05 * abs(high) or 0.1
    axes.set_ylim(low - margin, high + margin)


def _legend(axes: Axes) -> None:
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), fontsize="small", handletextpad=0.4)


def _handle(options: dict[str, Any], label: str) -> Any:
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none", label=label, **options)
