"""What is left of a benchmark's bias after a warm-up of each length."""

import math
from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, SymmetricalLogLocator

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.bias import BENCHMARK_MS, Bias, curve
from gpuwarm.analysis.words import duration, percent
from gpuwarm.recording import Floats, Recording
from gpuwarm.show.plot.look import (
    AXIS_IN,
    BLUE,
    DASHED,
    GREEN,
    INK,
    LEGEND_IN,
    MUTED,
    VERMILLION,
    WIDTH_IN,
    NothingToShowError,
    Style,
    headed,
    legend,
    placed,
)

HEIGHT_IN, LEFT_IN, AXES_IN = 4.9, 0.8, 3.0
LINEAR_MAX = 8  # times the tolerance; a larger bias is shown on a logarithmic scale
CURVE_POINTS = 60
TRTEXEC_WARMUP_MS = 200.0
LABEL_STEP = 0.075  # of the axes' height, between the labels above it


def bias(recording: Recording, advice: Advice) -> Figure:
    """The bias that each warm-up leaves, on the mean and the 99th percentile, beside the tolerance.

    Raises:
        NothingToShowError: there is no steady state to compare with.
    """
    rows = sorted((row for row in advice.bias if row.mean_bias_pct is not None), key=lambda row: row.warmup_ms)
    if advice.steady is None or not rows:
        why = "there is no steady state" if advice.steady is None else "hardly anything is left after a warm-up"
        raise NothingToShowError(f"{why}, so the bias that a warm-up leaves is not known: measure longer")
    short_ms = min((row.measured_ms for row in rows if row.measured_ms is not None), default=BENCHMARK_MS)
    seen = "" if short_ms >= BENCHMARK_MS else f"; the data ends after {duration(short_ms)} of it or more"
    subtitle = f"What a benchmark of {duration(BENCHMARK_MS)} gets wrong that begins after this warm-up{seen}"
    figure = headed(HEIGHT_IN, recording, advice, subtitle)
    width_in = WIDTH_IN - LEFT_IN - LEGEND_IN
    axes = placed(figure, left_in=LEFT_IN, bottom_in=AXIS_IN, width_in=width_in, height_in=AXES_IN)
    axes.grid(visible=True)
    _set_axes(axes, rows, tolerance_pct=100 * advice.tolerance)
    _draw_lines(axes, curve(recording, advice.warmup.ends_ms, advice.steady.quantity, _lengths(rows)))
    _draw_points(axes, rows)
    pace = "continuous inference" if advice.pace is None else advice.pace.words
    axes.set_xlabel(f"warm-up before the benchmark begins (ms of {pace})")
    axes.margins(y=0.15)
    _name(axes, rows, advice)
    legend([axes])
    return figure


def _set_axes(axes: Axes, rows: Sequence[Bias], *, tolerance_pct: float) -> None:
    """Warm-ups span decades; a bias may, too, and the tolerance must stay visible below it."""
    shortest = min((row.warmup_ms for row in rows if row.warmup_ms > 0), default=1.0)
    linear_ms = 10 ** math.floor(math.log10(shortest))
    axes.set_xscale("symlog", linthresh=linear_ms, linscale=0.6)
    axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=linear_ms, subs=[1, 2, 5]))
    axes.set_xlim(0, 1.6 * max(rows[-1].warmup_ms, 1.0))
    largest = max(abs(value) for points in _known(rows) for value in points[:, 1])
    if largest > LINEAR_MAX * tolerance_pct:
        axes.set_yscale("symlog", linthresh=2 * tolerance_pct, linscale=0.8)
    label = f"tolerance, ±{tolerance_pct:g} %"
    axes.axhspan(-tolerance_pct, tolerance_pct, color=GREEN, alpha=0.22, linewidth=0, label=label)
    axes.axhline(0, color=MUTED, linewidth=0.8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_ylabel("bias against steady latency (%)")


def _lengths(rows: Sequence[Bias]) -> list[float]:
    longest = max(1.6 * rows[-1].warmup_ms, 1.0)
    shortest = min((row.warmup_ms for row in rows if row.warmup_ms > 0), default=longest)
    return [0.0, *(float(length) for length in np.geomspace(shortest / 20, longest, CURVE_POINTS))]


def _draw_lines(axes: Axes, rows: Sequence[Bias]) -> None:
    means, tails = _known(rows)
    axes.plot(*tails.T, color=VERMILLION, linewidth=1.1, linestyle=DASHED)
    axes.plot(*means.T, color=BLUE, linewidth=1.4)


def _draw_points(axes: Axes, rows: Sequence[Bias]) -> None:
    means, tails = _known(rows)
    if tails.size:  # few inferences have none
        axes.plot(*tails.T, "^", color=VERMILLION, markersize=5.5, clip_on=False, label="99th percentile")
    axes.plot(*means.T, "o", color=BLUE, markersize=5.5, clip_on=False, label="mean latency")


def _known(rows: Sequence[Bias]) -> tuple[Floats, Floats]:
    """Warm-up and bias of the mean, and of the 99th percentile. Shapes (n, 2)."""
    means = [(row.warmup_ms, row.mean_bias_pct) for row in rows if row.mean_bias_pct is not None]
    tails = [(row.warmup_ms, row.p99_bias_pct) for row in rows if row.p99_bias_pct is not None]
    return np.array(means).reshape(-1, 2), np.array(tails).reshape(-1, 2)


def _name(axes: Axes, rows: Sequence[Bias], advice: Advice) -> None:
    """Lines up from the named warm-ups, each to a label in a row of its own."""
    names = {0.0: "no warm-up", TRTEXEC_WARMUP_MS: "200 ms, trtexec's default"}
    if advice.warmup.recommended_ms is not None:
        names[advice.warmup.recommended_ms] = f"recommended, {duration(advice.warmup.recommended_ms)}"
    for level, row in enumerate(reversed([row for row in rows if row.warmup_ms in names])):
        top = 1.05 + LABEL_STEP * level
        line: Style = {"transform": axes.get_xaxis_transform(), "color": INK, "linewidth": 0.8, "linestyle": ":"}
        axes.plot([row.warmup_ms, row.warmup_ms], [0, top], clip_on=False, **line)
        left = (("mean", row.mean_bias_pct), ("p99", row.p99_bias_pct))
        said = ", ".join(f"{name} {percent(value)}" for name, value in left if value is not None)
        _write_beside(axes, row.warmup_ms, top, f"{names[row.warmup_ms]}: {said}")


def _write_beside(axes: Axes, at_ms: float, top: float, text: str) -> None:
    """On the side of the line where there is more room."""
    share = axes.transAxes.inverted().transform(axes.transData.transform((at_ms, 0.0)))[0]
    place: Style = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "va": "center", "size": 8.5}
    if share < 0.5:  # noqa: PLR2004 -- the middle
        axes.annotate(text, (at_ms, top), (3, 0), ha="left", **place)
    else:
        axes.annotate(text, (at_ms, top), (-3, 0), ha="right", **place)
