"""Where a cold start's time goes: its steps one below the other, each start a bar in every step."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.causes import ColdPhase, ColdStart, step_name, steps_ms
from gpuwarm.analysis.words import count, duration
from gpuwarm.metadata import Start
from gpuwarm.recording import Recording
from gpuwarm.show.plot.look import (
    AXIS_IN,
    BLUE,
    HEADER_IN,
    MUTED,
    ORANGE,
    WIDTH_IN,
    NothingToShowError,
    Style,
    headed,
    placed,
)

LEFT_IN, RIGHT_IN = 1.5, 3.6
HEADINGS = ("median", "range", "share", "not sampled")
COLUMNS_IN = (0.75, 2.1, 2.55, 3.4)  # where those end, from the axes' right edge
STEP_IN = 0.36
HEAD_IN = 0.2  # over the column of numbers


def cold_start(recording: Recording, advice: Advice) -> Figure:
    """The steps from process start to the first result over all starts.

    Raises:
        NothingToShowError: the steps of no start were recorded.
    """
    cold = advice.cold_start
    if cold is None or not cold.phases:
        raise NothingToShowError(
            "the steps of no cold start were recorded, so they cannot be shown: `gpuwarm run` records them"
        )
    steps_in = STEP_IN * len(cold.phases)
    figure = headed(HEADER_IN + HEAD_IN + steps_in + AXIS_IN, recording, advice, _subtitle(cold, advice))
    width_in = WIDTH_IN - LEFT_IN - RIGHT_IN
    axes = placed(figure, left_in=LEFT_IN, bottom_in=AXIS_IN, width_in=width_in, height_in=steps_in)
    axes.grid(visible=True, axis="x")
    rows = {phase.name: row for row, phase in enumerate(cold.phases)}
    starts = [start for start in recording.meta.starts if start.marks]
    for number, start in enumerate(starts):
        _draw_start(axes, start, rows, lane=(number / len(starts), 1 / len(starts)))
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.set_yticks(range(len(rows)), [step_name(name) for name in rows])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=0)
    left_out = f", without gpuwarm's own imports ({duration(cold.own_ms)})" if cold.own_ms is not None else ""
    axes.set_xlabel(f"time since the process started (ms){left_out}")
    _write_numbers(axes, cold.phases)
    kinds = {label: handle for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)}
    if len(kinds) > 1:
        axes.legend(kinds.values(), kinds.keys(), loc="lower left", borderaxespad=1.0)
    return figure


def _subtitle(cold: ColdStart, advice: Advice) -> str:
    known = (("first inference", cold.first_ms), ("second", cold.second_ms))
    latencies = [f"{name} {duration(value)}" for name, value in known if value is not None]
    steady = [f"steady {duration(advice.steady.median_ms)}"] if advice.steady else []
    total = f"{duration(cold.total_ms)} to the first result, " if cold.total_ms is not None else ""
    return f"Cold start: {total}{count(cold.starts, 'start')}; {', '.join([*latencies, *steady])}"


def _draw_start(axes: Axes, start: Start, rows: dict[str, int], *, lane: tuple[float, float]) -> None:
    """A bar in every step's row, in that row's lane that begins at and is as high as these shares of it."""
    colour, label = (BLUE, "sampled") if start.sampled else (ORANGE, "no NVML client of ours alive")
    style: Style = {"facecolor": colour, "edgecolor": colour, "linewidth": 0.6}
    begin_ms = 0.0
    for name, length_ms in steps_ms(start).items():
        if name in rows:
            bottom = rows[name] - 0.4 + 0.8 * lane[0]
            axes.broken_barh([(begin_ms, length_ms)], (bottom, 0.8 * 0.8 * lane[1]), label=label, **style)
        begin_ms += length_ms


def _write_numbers(axes: Axes, phases: tuple[ColdPhase, ...]) -> None:
    """A table to the right, its rows beside those of the steps; a column without numbers is left out."""
    place: Style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center", "ha": "right"}
    columns = zip(*map(_numbers, phases), strict=True)
    for heading, right_in, cells in zip(HEADINGS, COLUMNS_IN, columns, strict=True):
        if any(cells):
            axes.annotate(heading, (1, -0.5), (72 * right_in, 7), size=8, color=MUTED, **place)
        for row, cell in enumerate(cells):
            axes.annotate(cell, (1, row), (72 * right_in, 0), size=8, **place)


def _numbers(phase: ColdPhase) -> tuple[str, str, str, str]:
    interval, apart_ms = phase.interval_ms, phase.unsampled_ms
    return (
        duration(phase.median_ms),
        f"{duration(interval[0])} to {duration(interval[1])}" if interval else "",
        f"{phase.share_pct:.0f} %",
        duration(apart_ms) if apart_ms is not None else "",
    )
