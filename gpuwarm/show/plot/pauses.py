"""What pauses do: latency after each length, the clock's way down, and power meanwhile."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gpuwarm.analysis.contrast import Estimate
from gpuwarm.analysis.decay import Decay
from gpuwarm.analysis.gaps import Situation
from gpuwarm.analysis.idled import Idleness, pause
from gpuwarm.analysis.pauses import ALIVE, GONE, KEPT
from gpuwarm.analysis.words import count, duration, number
from gpuwarm.recording import Recording
from gpuwarm.show.plot.look import (
    AXIS_IN,
    BLUE,
    GREEN,
    HEADER_IN,
    INK,
    LEGEND_IN,
    MUTED,
    PURPLE,
    SKY,
    VERMILLION,
    WIDTH_IN,
    Style,
    headed,
    legend,
    placed,
)

LEFT_IN, LATENCY_IN, STATE_IN, BETWEEN_IN = 0.9, 2.8, 1.7, 0.75
_COLOURS = {ALIVE: BLUE, KEPT: GREEN, GONE: VERMILLION}
_MARKERS = {ALIVE: "o", KEPT: "s", GONE: "D"}
_NAMES = {ALIVE: "context alive", GONE: "no process"}


def pauses(recording: Recording, idle: Idleness) -> Figure:
    """Latency against the pause before it; below, the clock after the last inference, and power while idling."""
    subtitle = (
        f"Latency after a pause: steady {duration(idle.steady_ms or math.nan)}, warm within "
        f"{number(idle.tolerance_pct)} % of it; {count(idle.starts, 'start')}, 95 % intervals"
    )
    height_in = HEADER_IN + LATENCY_IN + BETWEEN_IN + STATE_IN + AXIS_IN
    figure = headed(height_in, recording, idle, subtitle)
    width_in = WIDTH_IN - LEFT_IN - LEGEND_IN
    bottom_in = AXIS_IN + STATE_IN + BETWEEN_IN
    latency = placed(figure, left_in=LEFT_IN, bottom_in=bottom_in, width_in=width_in, height_in=LATENCY_IN)
    _latency(latency, idle)
    half_in = (width_in - BETWEEN_IN) / 2
    clock = placed(figure, left_in=LEFT_IN, bottom_in=AXIS_IN, width_in=half_in, height_in=STATE_IN)
    _clock(clock, idle.decay)
    left_in = LEFT_IN + half_in + BETWEEN_IN
    power = placed(figure, left_in=left_in, bottom_in=AXIS_IN, width_in=half_in, height_in=STATE_IN)
    _power(power, idle.situations)
    return figure


def _latency(axes: Axes, idle: Idleness) -> None:
    axes.grid(visible=True)
    axes.set_xscale("log")
    axes.set_yscale("log")
    if idle.steady_ms is not None:
        band = (idle.steady_ms * (1 - idle.tolerance_pct / 100), idle.steady_ms * (1 + idle.tolerance_pct / 100))
        axes.axhspan(*band, color=SKY, alpha=0.3, linewidth=0, label="warm")
    for situation in idle.situations:
        name, colour, marker = _name(situation), _COLOURS[situation.name], _MARKERS[situation.name]
        gaps_s = [each.gap_s for each in situation.after]
        _points(axes, gaps_s, [each.first for each in situation.after], f"first, {name}", colour, marker)
        if situation.name == ALIVE:
            seconds = [(each.gap_s, each.second) for each in situation.after if each.second is not None]
            _points(axes, [gap for gap, _ in seconds], [it for _, it in seconds], "second", PURPLE, "^")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,)))
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: pause(value)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axes.set_xlabel("pause before")
    axes.set_ylabel("latency (ms)")
    legend([axes])


def _name(situation: Situation) -> str:
    if situation.keep_alive_ms is None:
        return _NAMES[situation.name]
    return f"a kernel each {duration(situation.keep_alive_ms)}"


def _points(
    axes: Axes, gaps_s: Sequence[float], found: Sequence[Estimate], label: str, colour: str, marker: str
) -> None:
    for gap_s, each in zip(gaps_s, found, strict=True):
        if each.interval is not None:
            axes.plot(
                [gap_s, gap_s], [max(each.interval[0], each.value / 10), each.interval[1]], color=colour, linewidth=1
            )
    style: Style = {"color": colour, "marker": marker, "markersize": 5, "linewidth": 0.8, "label": label}
    axes.plot(gaps_s, [each.value for each in found], **style)


def _clock(axes: Axes, decays: Sequence[Decay]) -> None:
    axes.grid(visible=True)
    longest_s = max((decay.settled_s for decay in decays), default=1.0) * 1.15 + 0.5
    for decay in decays:
        times = [*(step.after_s for step in decay.steps), longest_s]
        clocks = [*(step.sm_clock_mhz for step in decay.steps), decay.steps[-1].sm_clock_mhz]
        style: Style = {
            "where": "post",
            "color": _COLOURS[decay.situation],
            "linewidth": 1.4,
            "label": _NAMES[decay.situation],
        }
        axes.step(times, clocks, **style)
    axes.set_xlim(0, longest_s)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("time since the last inference (s)")
    axes.set_ylabel("SM clock (MHz, NVML)")
    if decays:
        axes.legend(loc="center right", borderaxespad=0.6)


def _power(axes: Axes, situations: Sequence[Situation]) -> None:
    axes.grid(visible=True, axis="x")
    known = [(situation, situation.power) for situation in situations if situation.power is not None]
    for row, (situation, power) in enumerate(known):
        colour = _COLOURS[situation.name]
        axes.barh(row, power.value, height=0.6, color=colour)
        if power.interval is not None:
            axes.plot(power.interval, [row, row], color=INK, linewidth=1, marker="|", markersize=5)
        place: Style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center", "size": 8}
        axes.annotate(f"{number(power.value)} W, {_name(situation)}", (1, row), (6, 0), **place)
    axes.set_yticks([])
    axes.set_ylim(max(len(known), 1) - 0.5, -0.5)
    axes.set_xlim(left=0)
    axes.set_xlabel("power while idling (W)")
    axes.tick_params(axis="x", color=MUTED)
