"""One start on one time axis: latency, and the state the GPU was in."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, LogNorm, to_rgba
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.stretch import stretches
from gpuwarm.analysis.words import count, duration, number
from gpuwarm.errors import InputError
from gpuwarm.recording import Floats, Recording
from gpuwarm.show import reduce
from gpuwarm.show.plot import latency
from gpuwarm.show.plot.latency import Bounds, Latency, known
from gpuwarm.show.plot.look import (
    AXIS_IN,
    BLUE,
    DASHED,
    FAINT,
    GREEN,
    HALO,
    HEADER_IN,
    INK,
    LEGEND_IN,
    MUTED,
    ON_COLOUR,
    ORANGE,
    PURPLE,
    SKY,
    VECTORS_MAX,
    VERMILLION,
    WIDTH_IN,
    NothingToShowError,
    Style,
    headed,
    legend,
    placed,
)
from gpuwarm.show.reduce import Span, StartView

LEFT_IN = 1.25
ROW_GAP_IN, COLUMN_GAP_IN, COLUMN_TITLE_IN = 0.14, 0.2, 0.2
LANE_IN = 0.24
MIN_NAMED_SHARE = 0.025  # of a window; a shorter stay in a P-state has no room for its name
MAX_MS_AXIS_S = 2.0  # a longer stretch of time is labelled in seconds
MIN_ENLARGED_SHARE, MAX_ENLARGED_SHARE = 0.02, 0.25  # of a start; more is seen well enough in the whole
COLUMNS = 400  # stretches of time that a panel is reduced to; about two pixels each
MEDIAN_COLUMNS = 4  # of those, that one median is taken over
MARKERS = 40  # on a line that must be told from another without its colour
DENSITY_ROWS = 110
DOTS_MAX = 2500  # more dots than that overlap, so their density is drawn
FAINTEST = 0.3  # opacity of a cell that holds one inference: an outlier stays visible
PSTATE = "P-state"


@dataclass(frozen=True)
class _Window:
    """The stretch of a start that one column of panels shows."""

    begin_s: float
    end_s: float

    def edges(self) -> Floats:
        return np.linspace(self.begin_s, self.end_s, COLUMNS + 1)

    def length_s(self) -> float:
        return self.end_s - self.begin_s

    def in_ms(self) -> bool:
        return self.length_s() < MAX_MS_AXIS_S


@dataclass(frozen=True)
class _Line:
    """A vertical line through all panels."""

    at_s: float
    label: str
    style: str | tuple[int, tuple[int, int]]


@dataclass(frozen=True)
class _Panel:
    """One row of the figure."""

    label: str
    height_in: float
    draw: Callable[[Axes, _Window], None]


def timeline(recording: Recording, advice: Advice, *, start: int | None = None) -> Figure:
    """Latency and GPU state of one start, by default the longest to warm up.

    Where warm-up is short beside the run, its beginning is enlarged in a column of its own.

    Raises:
        NothingToShowError: neither iterations nor samples.
        InputError: no such start.
    """
    numbers = reduce.start_numbers(recording)
    number = _deciding(advice, numbers) if start is None else start
    if number not in numbers:
        raise InputError(
            f"no inference of a start {number + 1}: choose one of {', '.join(str(n + 1) for n in numbers)}"
        )
    view = reduce.start_view(recording, number)
    lines = _warmup_lines(recording, view, advice)
    windows = _windows(view, lines)
    panels = _panels(recording, view, advice, windows)
    if not panels:
        raise NothingToShowError(
            "neither inferences nor GPU state were recorded, so there is no timeline: measure again"
        )
    top_in = HEADER_IN + (COLUMN_TITLE_IN if len(windows) > 1 else 0.0)
    height_in = top_in + sum(panel.height_in + ROW_GAP_IN for panel in panels) - ROW_GAP_IN + AXIS_IN
    figure = headed(height_in, recording, advice, _subtitle(recording, view, advice))
    bottoms_in = height_in - top_in + ROW_GAP_IN - np.cumsum([panel.height_in + ROW_GAP_IN for panel in panels])
    rows = [_row(figure, panel, windows, bottom_in=at) for panel, at in zip(panels, bottoms_in, strict=True)]
    for row in rows:
        for axes, window in zip(row, windows, strict=True):
            _draw_time(axes, view, windows, window)
            for line in lines:
                label = line.label if row is rows[0] else None
                axes.axvline(line.at_s, color=INK, linewidth=1.1, linestyle=line.style, zorder=4, label=label)
        legend(row)
    _name_times(rows, windows, since="inference" if len(view.iterations) else "sample")
    return figure


def _deciding(advice: Advice, numbers: Sequence[int]) -> int:
    """The start that decided the warm-up; the first where none did."""
    longest = advice.warmup.longest_start
    return longest if longest is not None and longest in numbers else numbers[0]


def _subtitle(recording: Recording, view: StartView, advice: Advice) -> str:
    if not len(view.iterations):
        return f"GPU state: {count(len(view.samples), 'sample')}, no inference timed"
    which, starts = "", advice.warmup.starts
    if len(recording.meta.starts) > 1:
        longest = " (the longest to warm up)" if view.number == advice.warmup.longest_start else ""
        of = f" of {starts}" if view.number < starts else ""  # those judged; more may have timed the driver alone
        which = f"start {view.number + 1}{of}{longest}, "
    counted = latency.counted(recording, len(view.iterations))
    return f"Latency and GPU state: {which}{counted}; behaviour: {advice.behaviour}"


def _warmup_lines(recording: Recording, view: StartView, advice: Advice) -> list[_Line]:
    """Where warm-up ends and where the recommendation would; both count inference without the pauses of this start."""
    whose = "" if advice.warmup.longest_start in (None, view.number) else ", longest"
    times = (
        (advice.warmup.time_ms, f"warm-up ends{whose}", "-"),
        (advice.warmup.recommended_ms, "recommended", DASHED),
    )
    lines = []
    for stretch in (each for each in stretches(recording) if each.start == view.number):
        for time_ms, label, style in times:
            if time_ms is None:
                continue
            at_s = reduce.moment_s(recording, stretch, time_ms, zero_ns=view.zero_ns)
            if at_s is not None:
                lines.append(_Line(at_s, f"{label}: {duration(time_ms)}", style))
    return lines


def _windows(view: StartView, lines: Sequence[_Line]) -> list[_Window]:
    """The whole start, and before it its beginning where the end of warm-up would be hard to see in the whole."""
    seconds = view.iteration_s if len(view.iterations) else view.sample_s
    end_s = float(seconds.max()) if len(seconds) else 0.0
    begin_s = view.process_start_s
    if begin_s is None:  # what the GPU came from, where that was sampled, is worth a tenth of the width
        begin_s = min(0.0, max(-0.1 * end_s, *view.sample_s[:1])) if len(view.samples) else 0.0
    pad_s = 0.02 * (end_s - begin_s) or 1e-3
    whole = _Window(begin_s - pad_s, end_s + pad_s)
    if not lines:
        return [whole]
    usual_s = float(np.median(np.diff(view.iteration_s))) if len(view.iterations) > 1 else 0.0
    length_s = max(4 * lines[0].at_s, 1.3 * lines[-1].at_s, 50 * usual_s, MIN_ENLARGED_SHARE * end_s)
    if length_s > MAX_ENLARGED_SHARE * whole.length_s():
        return [whole]
    return [_Window(-0.06 * length_s, length_s), whole]


def _row(figure: Figure, panel: _Panel, windows: Sequence[_Window], *, bottom_in: float) -> list[Axes]:
    """One axes a window, side by side, with the first one's vertical axis."""
    width_in = (WIDTH_IN - LEFT_IN - LEGEND_IN - COLUMN_GAP_IN * (len(windows) - 1)) / len(windows)
    row: list[Axes] = []
    for column, window in enumerate(windows):
        left_in = LEFT_IN + column * (width_in + COLUMN_GAP_IN)
        axes = placed(figure, left_in=left_in, bottom_in=bottom_in, width_in=width_in, height_in=panel.height_in)
        if row:
            axes.sharey(row[0])
        axes.grid(visible=True)
        panel.draw(axes, window)
        axes.set_xlim(window.begin_s, window.end_s)
        axes.tick_params(labelleft=column == 0)
        row.append(axes)
    row[0].set_ylabel(panel.label, va="center")
    row[0].yaxis.set_label_coords(-0.75 / width_in, 0.5)
    return row


def _draw_time(axes: Axes, view: StartView, windows: Sequence[_Window], window: _Window) -> None:
    """Shade the cold start and, in the whole, the part that is enlarged."""
    if view.process_start_s is not None:
        axes.axvspan(view.process_start_s, 0.0, color=FAINT, alpha=0.45, linewidth=0, zorder=0)
    if window is not windows[0]:
        axes.axvspan(windows[0].begin_s, windows[0].end_s, color=SKY, alpha=0.2, linewidth=0, zorder=0)
    factor = 1e3 if window.in_ms() else 1.0
    axes.xaxis.set_major_locator(MaxNLocator(7, steps=[1, 2, 2.5, 5, 10]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda seconds, _: f"{seconds * factor:.6g}"))


def _name_times(rows: Sequence[Sequence[Axes]], windows: Sequence[_Window], *, since: str) -> None:
    for row in rows[:-1]:
        for axes in row:
            axes.tick_params(labelbottom=False)
    for axes, window in zip(rows[-1], windows, strict=True):
        axes.set_xlabel(f"time since the first {since} began ({'ms' if window.in_ms() else 's'})")
    if len(windows) > 1:
        for axes, title in zip(rows[0], ("the beginning", "the whole start (its beginning shaded)"), strict=True):
            axes.set_title(title)


def _panels(recording: Recording, view: StartView, advice: Advice, windows: Sequence[_Window]) -> list[_Panel]:
    """A row for everything that was recorded."""
    samples = view.samples
    limit_w = advice.gpu.power_limit_w if advice.gpu else None
    lanes = _lanes(view, windows[-1])
    panels = []
    if len(view.iterations):
        panels.append(_latency_panel(recording, view, advice, windows))
    if known(view.iterations, "sm_clock_mhz") or known(samples, "sm_clock_mhz"):
        panels.append(_Panel("SM clock\n(MHz)", 1.5, partial(_draw_sm_clock, view)))
    if known(samples, "mem_clock_mhz"):
        panels.append(_Panel("memory\nclock (MHz)", 0.75, partial(_draw_memory_clock, view)))
    if known(samples, "power_mw") or known(samples, "power_average_mw"):
        panels.append(_Panel("power (W)", 1.1, partial(_draw_power, view, limit_w)))
    if known(samples, "temperature_c"):
        panels.append(_Panel("temp.\n(°C)", 0.75, partial(_draw_temperature, view)))
    if lanes:
        panels.append(_Panel("", LANE_IN * len(lanes) + 0.06, partial(_draw_lanes, view, lanes)))
    return panels


def _latency_panel(recording: Recording, view: StartView, advice: Advice, windows: Sequence[_Window]) -> _Panel:
    shown = latency.latency(recording, view.iterations, advice)
    label = f"{shown.name.replace(' to ', ' to' + chr(10))} ({shown.unit})"
    return _Panel(label, 2.4, partial(_draw_latency, view, shown, _bounds(view, shown, windows)))


def _bounds(view: StartView, shown: Latency, windows: Sequence[_Window]) -> Bounds:
    """Bounds that hold nearly all latencies and nearly every median that is drawn."""
    values = shown.values[np.isfinite(shown.values)]
    if not values.size:
        return latency.bounds(0.0, 1.0, 1.0)
    low, high = np.quantile(values, [0.002, 0.995])
    for window in windows:
        for series in (shown.values, shown.other_values):
            medians = reduce.bins(view.iteration_s, series, window.edges()[::MEDIAN_COLUMNS]).median
            if medians.size:
                low, high = min(low, np.nanquantile(medians, 0.02)), max(high, np.nanquantile(medians, 0.98))
    return latency.bounds(float(low), float(high), float(values.max()))


def _draw_latency(view: StartView, shown: Latency, bounds: Bounds, axes: Axes, window: _Window) -> None:
    latency.set_axis(axes, bounds)
    inside = (view.iteration_s >= window.begin_s) & (view.iteration_s <= window.end_s) & np.isfinite(shown.values)
    seconds, values = view.iteration_s[inside], shown.values[inside]
    if len(values) <= DOTS_MAX:
        style: Style = {"color": BLUE, "markersize": 2.4, "markeredgewidth": 0, "alpha": 0.6}
        axes.plot(seconds, values, "o", rasterized=len(values) > VECTORS_MAX, label=shown.one, **style)
    else:
        _density(axes, window, seconds, values, bounds)
        axes.plot([], [], "s", color=BLUE, markersize=5, label="all (density)")
    medians = reduce.bins(seconds, values, window.edges()[::MEDIAN_COLUMNS])
    if len(values) > 2 * len(medians.middle_s):
        axes.plot(medians.middle_s, medians.median, color=INK, linewidth=1.2, label="median")
    other = reduce.bins(view.iteration_s, shown.other_values, window.edges()[::MEDIAN_COLUMNS])
    if other.middle_s.size:
        label = f"median, {shown.other}"
        axes.plot(other.middle_s, other.median, color=VERMILLION, linewidth=1.2, linestyle="--", label=label)
    above = values > bounds.high
    if above.any():
        latency.arrows(axes, seconds[above], bounds)
        said = f"▲ {above.sum():,} above, up to {number(float(values.max()))} {shown.unit}"
        place: Style = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right", "va": "top"}
        axes.annotate(said, (1, 1), (-2, -4), size=8, color=VERMILLION, path_effects=[HALO], zorder=6, **place)


def _density(axes: Axes, window: _Window, seconds: Floats, values: Floats, bounds: Bounds) -> None:
    """How many inferences lie where, as opacity on a logarithmic scale; what lies outside is drawn at the edge."""
    x, y = window.edges(), bounds.edges(DENSITY_ROWS)
    counts, _, _ = np.histogram2d(seconds, np.clip(values, y[0], y[-1]), bins=(x, y))
    opacity = LinearSegmentedColormap.from_list("density", [to_rgba(BLUE, FAINTEST), to_rgba(BLUE, 1.0)])
    filled = np.ma.masked_equal(counts.T, 0)
    axes.pcolormesh(x, y, filled, cmap=opacity, norm=LogNorm(1, max(2, counts.max())), rasterized=True)


def _draw_sm_clock(view: StartView, axes: Axes, window: _Window) -> None:
    seen = reduce.bins(view.iteration_s, view.iterations["sm_clock_mhz"], window.edges())
    if seen.middle_s.size:
        axes.fill_between(seen.middle_s, seen.low, seen.high, color=GREEN, alpha=0.3, linewidth=0, rasterized=True)
        every = max(1, len(seen.middle_s) // MARKERS)
        style: Style = {"color": GREEN, "linewidth": 1.4, "marker": "o", "markersize": 3, "markevery": every}
        axes.plot(seen.middle_s, seen.median, label="measured on the GPU", **style)
    _draw_steps(axes, window, view, "sm_clock_mhz", {"label": "NVML", "color": ORANGE})
    _from_zero(axes)


def _draw_memory_clock(view: StartView, axes: Axes, window: _Window) -> None:
    _draw_steps(axes, window, view, "mem_clock_mhz", {"label": "NVML", "color": PURPLE})
    _from_zero(axes)


def _draw_power(view: StartView, limit_w: float | None, axes: Axes, window: _Window) -> None:
    _draw_steps(axes, window, view, "power_average_mw", {"label": "1 s average", "color": PURPLE, "linestyle": "--"})
    _draw_steps(axes, window, view, "power_mw", {"label": "instant", "color": VERMILLION})
    if limit_w is not None:
        axes.axhline(limit_w, color=INK, linewidth=1, linestyle=":", label=f"limit {limit_w:.0f} W")
    _from_zero(axes)


def _draw_temperature(view: StartView, axes: Axes, window: _Window) -> None:
    _draw_steps(axes, window, view, "temperature_c", {"label": "GPU", "color": VERMILLION})
    axes.margins(y=0.3)
    axes.yaxis.set_major_locator(MaxNLocator(3, integer=True))


def _draw_steps(axes: Axes, window: _Window, view: StartView, column: str, style: Style) -> None:
    """A reading as steps: NVML's value stands until the next one."""
    values = view.samples[column] * (1e-3 if column.endswith("_mw") else 1.0)
    kept = reduce.thinned(view.sample_s, values, np.concatenate([[-np.inf], window.edges(), [np.inf]]))
    if kept.size:
        axes.plot(view.sample_s[kept], values[kept], linewidth=1.3, drawstyle="steps-post", **style)


def _from_zero(axes: Axes) -> None:
    axes.set_ylim(0, max(1.0, axes.dataLim.y1) * 1.12)
    axes.yaxis.set_major_locator(MaxNLocator(4, integer=True))


def _lanes(view: StartView, whole: _Window) -> dict[str, Floats]:
    """The P-state, and every event reason that was set at some time shown."""
    pstate = {PSTATE: view.samples["pstate"]} if known(view.samples, "pstate") else {}
    reasons = {
        name: active
        for name, active in reduce.reasons_active(view.samples).items()
        if any(span.value and span.end_s > whole.begin_s for span in reduce.spans(view.sample_s, active, whole.end_s))
    }
    return {**pstate, **reasons}


def _draw_lanes(view: StartView, lanes: Mapping[str, Floats], axes: Axes, window: _Window) -> None:
    axes.grid(visible=False, axis="y")
    axes.set_ylim(len(lanes) - 0.5, -0.5)
    axes.set_yticks(range(len(lanes)), [_spoken(name) for name in lanes])
    axes.tick_params(axis="y", length=0)
    for lane, (name, values) in enumerate(lanes.items()):
        spans = reduce.spans(view.sample_s, values, window.end_s)
        if name == PSTATE:
            _draw_pstates(axes, window, spans, lane)
        else:
            colour = MUTED if name == "gpu_idle" else ORANGE
            _draw_bars(axes, [span for span in spans if span.value], lane, colour)


def _spoken(name: str) -> str:
    """An event reason's name for people: `sw_power_cap` is SW power cap."""
    return " ".join(word.upper() if word in {"sw", "hw", "gpu"} else word for word in name.split("_"))


def _draw_pstates(axes: Axes, window: _Window, spans: Sequence[Span], lane: int) -> None:
    """The deeper the sleep, the paler."""
    for pstate in {span.value for span in spans}:
        paleness = 0.85 * min(pstate, 12.0) / 12.0
        colour = tuple(part + (1 - part) * paleness for part in to_rgba(GREEN)[:3])
        _draw_bars(axes, [span for span in spans if span.value == pstate], lane, colour)
    place: Style = {"ha": "center", "va": "center", "size": 8, "color": ON_COLOUR}
    for span in spans:
        begin, end = max(span.begin_s, window.begin_s), min(span.end_s, window.end_s)
        if end - begin > MIN_NAMED_SHARE * window.length_s():
            axes.text((begin + end) / 2, lane, f"P{span.value:.0f}", **place)


def _draw_bars(axes: Axes, spans: Sequence[Span], lane: int, colour: str | tuple[float, ...]) -> None:
    bars = [(span.begin_s, span.end_s - span.begin_s) for span in spans]
    style: Style = {"facecolor": colour, "edgecolor": colour, "linewidth": 0.5}
    axes.broken_barh(bars, (lane - 0.38, 0.76), rasterized=len(bars) > VECTORS_MAX, **style)
