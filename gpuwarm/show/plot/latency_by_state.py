"""How latency is distributed in each state the GPU was in."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.words import number
from gpuwarm.recording import Floats, Recording
from gpuwarm.show import reduce
from gpuwarm.show.plot import latency
from gpuwarm.show.plot.latency import Bounds, known
from gpuwarm.show.plot.look import (
    BLUE,
    HALO,
    INK,
    MARGIN_IN,
    MUTED,
    VERMILLION,
    WIDTH_IN,
    NothingToShowError,
    Style,
    headed,
    placed,
)

HEIGHT_IN = 5.2
LEFT_IN, GROUP_GAP_IN = 0.8, 0.35
CLOCK_BANDS_MAX = 8
CLOCK_STEPS_MHZ = (5, 10, 15, 25, 50, 100, 200, 250, 500, 1000, 10_000)  # 15 is the step of GeForce clocks
SHAPE_MIN = 30  # inferences; fewer are drawn one by one
SHAPE_ROWS = 40
TAIL_DOTS_MAX = 200  # the most extreme ones outside the middle 99 %
GOLDEN_RATIO = 0.618
READ_ME = (
    "Widths are scaled within each state. Line: median; bar: 5 % to 95 %; dots: outside the middle 99 %, or few; "
    "◇ what constant cycles would predict from the most frequent state."
)


@dataclass(frozen=True)
class _State:
    """The latencies seen in one state; `clock_mhz` is the typical SM clock, NaN where that is not known."""

    label: str
    latencies: Floats
    clock_mhz: float


def latency_by_state(recording: Recording, advice: Advice) -> Figure:
    """A distribution of latency for each P-state and for each band of the SM clock, the cold inferences left out.

    Raises:
        NothingToShowError: no inference has a state.
    """
    warm = _warm(recording)
    rows = recording.iterations[warm]
    shown = latency.latency(recording, rows, advice)
    groups = _groups(recording, warm, shown.values)
    if not groups:
        raise NothingToShowError("no inference has a GPU state beside it, so latency cannot be shown against state")
    left_out = f"; the {(~warm).sum():,} cold ones left out" if not warm.all() else ""
    subtitle = f"{shown.name} against GPU state: {latency.counted(recording, len(rows))}{left_out}"
    figure = headed(HEIGHT_IN, recording, advice, subtitle[0].upper() + subtitle[1:])
    figure.text(MARGIN_IN / WIDTH_IN, 0.12 / HEIGHT_IN, READ_ME, size=8, color=MUTED)
    bounds = _bounds([state for states in groups.values() for state in states])
    room_in = WIDTH_IN - LEFT_IN - MARGIN_IN - GROUP_GAP_IN * (len(groups) - 1)
    slots = sum(len(states) + 0.6 for states in groups.values())
    left_in = LEFT_IN
    for name, states in groups.items():
        width_in = room_in * (len(states) + 0.6) / slots
        axes = placed(figure, left_in=left_in, bottom_in=1.15, width_in=width_in, height_in=3.1)
        _draw_states(axes, states, bounds)
        axes.set_xlabel(name)
        axes.tick_params(labelleft=left_in == LEFT_IN)
        left_in += width_in + GROUP_GAP_IN
    figure.axes[0].set_ylabel(f"{shown.name} ({shown.unit})")
    return figure


def _warm(recording: Recording) -> NDArray[np.bool_]:
    """Which iterations are not the first, cold ones of a start."""
    iterations = recording.iterations
    warm = np.ones(len(iterations), bool)
    for number_, start in enumerate(recording.meta.starts):
        for index, phase in enumerate(start.phases):
            if phase.name == "first":
                warm &= (iterations["start"] != number_) | (iterations["phase"] != index)
    return warm


def _groups(recording: Recording, warm: NDArray[np.bool_], latencies: Floats) -> dict[str, list[_State]]:
    """States by the name of what tells them apart; a group without states is left out."""
    found = reduce.newest_sample(recording)[warm]
    nvml_mhz, pstates = (_looked_up(recording.samples[name], found) for name in ("sm_clock_mhz", "pstate"))
    rows = recording.iterations[warm]
    measured = known(rows, "sm_clock_mhz")
    clocks = rows["sm_clock_mhz"] if measured else nvml_mhz
    groups = {
        "P-state (NVML, up to 250 ms late)": _by_pstate(latencies, pstates, clocks),
        f"SM clock (MHz, {'measured on the GPU' if measured else 'NVML'})": _by_clock(latencies, clocks),
    }
    return {name: states for name, states in groups.items() if states}


def _looked_up(values: Floats, found: reduce.Integers) -> Floats:
    """The samples' values for each iteration; NaN where there is no sample."""
    return np.where(found >= 0, np.append(values, np.nan)[found], np.nan)


def _by_pstate(latencies: Floats, pstates: Floats, clocks: Floats) -> list[_State]:
    seen = np.unique(pstates[np.isfinite(pstates) & np.isfinite(latencies)])
    return [_state(f"P{value:.0f}", latencies, clocks, pstates == value) for value in seen]


def _by_clock(latencies: Floats, clocks: Floats) -> list[_State]:
    seen = np.unique(clocks[np.isfinite(clocks) & np.isfinite(latencies)])
    if len(seen) <= CLOCK_BANDS_MAX:
        return [_state(f"{clock:.0f}", latencies, clocks, clocks == clock) for clock in seen]
    step = next(step for step in CLOCK_STEPS_MHZ if len(np.unique(seen // step)) <= CLOCK_BANDS_MAX)
    return [
        _state(f"{band * step:.0f}\nto {(band + 1) * step:.0f}", latencies, clocks, clocks // step == band)
        for band in np.unique(seen // step)
    ]


def _state(label: str, latencies: Floats, clocks: Floats, members: NDArray[np.bool_]) -> _State:
    inside = members & np.isfinite(latencies)
    seen = clocks[inside & np.isfinite(clocks)]
    return _State(label, latencies[inside], float(np.median(seen)) if seen.size else math.nan)


def _bounds(states: Sequence[_State]) -> Bounds:
    """Bounds that hold nearly all of every state."""
    low = min(float(np.quantile(state.latencies, 0.005)) for state in states)
    high = max(float(np.quantile(state.latencies, 0.99)) for state in states)
    return latency.bounds(low, high, max(float(state.latencies.max()) for state in states))


def _draw_states(axes: Axes, states: Sequence[_State], bounds: Bounds) -> None:
    latency.set_axis(axes, bounds)
    axes.grid(visible=True, axis="y")
    axes.set_xlim(-0.6, len(states) - 0.4)
    total = sum(state.latencies.size for state in states)
    usual = max(states, key=lambda state: state.latencies.size)
    for position, state in enumerate(states):
        _draw_shape(axes, position, state.latencies, bounds)
        _draw_summary(axes, position, state.latencies, bounds)
        predicted = float(np.median(usual.latencies)) * usual.clock_mhz / state.clock_mhz
        if state is not usual and bounds.low < predicted < bounds.high:
            axes.plot(position, predicted, "D", color="none", markeredgecolor=VERMILLION, markersize=6)
    labels = [f"{s.label}\nn = {s.latencies.size:,}\n{_share(s.latencies.size / total)}" for s in states]
    axes.set_xticks(range(len(states)), labels)


def _share(share: float) -> str:
    return f"{100 * share:.0f} %" if share >= 0.01 else f"{100 * share:.1g} %"  # noqa: PLR2004 -- one digit below 1 %


def _draw_shape(axes: Axes, position: int, latencies: Floats, bounds: Bounds) -> None:
    """The outline of the middle 99 %, and the rest as dots."""
    low, high = np.quantile(latencies, [0.005, 0.995])
    dots = latencies
    if latencies.size >= SHAPE_MIN and high > low:
        edges = Bounds(low, high, bounds.log).edges(SHAPE_ROWS)
        counts, _ = np.histogram(latencies, edges)
        half = np.repeat(0.4 * counts / counts.max(), 2)
        outline = np.repeat(edges, 2)[1:-1]
        axes.fill_betweenx(outline, position - half, position + half, color=BLUE, alpha=0.55, linewidth=0)
        dots = reduce.extremes(latencies[(latencies < low) | (latencies > high)], TAIL_DOTS_MAX)
    offsets = 0.3 * (np.arange(dots.size) * GOLDEN_RATIO % 1 - 0.5)  # spread evenly, and always the same
    axes.plot(position + offsets, dots, "o", color=BLUE, markersize=2.2, alpha=0.8, markeredgewidth=0)


def _draw_summary(axes: Axes, position: int, latencies: Floats, bounds: Bounds) -> None:
    """Median, 5 to 95 %, and how many lie above the axis."""
    low, median, high = np.quantile(latencies, [0.05, 0.5, 0.95])
    axes.plot([position, position], [low, high], color=INK, linewidth=1)
    axes.plot([position - 0.3, position + 0.3], [median, median], color=INK, linewidth=1.6)
    place: Style = {"textcoords": "offset points", "ha": "center", "va": "bottom"}
    axes.annotate(f"{median:.4g}", (position + 0.3, median), (1, 2), size=8, path_effects=[HALO], **place)
    above = int((latencies > bounds.high).sum())
    if above:
        latency.arrows(axes, np.array([float(position)]), bounds)
        said = f"{above:,} to {number(float(latencies.max()))}"
        axes.annotate(said, (position, bounds.high), (0, 5), size=7, color=VERMILLION, **place)
