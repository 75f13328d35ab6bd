"""What makes a start slow: the time to the first result part by part, and each cause's effect with its interval."""

import math
from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, SymmetricalLogLocator

from gpuwarm.analysis.effects import Cause, Effect, Part
from gpuwarm.analysis.explained import Explanation, part_name
from gpuwarm.analysis.words import count, duration, effect
from gpuwarm.recording import Recording
from gpuwarm.show.plot.look import (
    AXIS_IN,
    BLUE,
    HEADER_IN,
    INK,
    MUTED,
    ORANGE,
    VERMILLION,
    WIDTH_IN,
    Style,
    headed,
    placed,
)

LEFT_IN, RIGHT_IN = 2.4, 2.6
ROW_IN = 0.3
BETWEEN_IN = 1.0  # the waterfall's axis and the heading of what is below
GAP_IN = 2.2  # between the two columns of effects, for the numbers of the first
HEAD_IN = 0.25
SHORT_MS = 10.0  # effects up to this are drawn in us, as 0.01 and 0.001 do not fit beside each other below an axis
LINEAR_DECADES = 2  # below the largest effect: smaller ones are drawn on a linear scale around zero


def causes(recording: Recording, explanation: Explanation) -> Figure:
    """A waterfall of the time to the first result; below it, what each cause adds to it and to the first inference."""
    parts_in = ROW_IN * (len(explanation.parts) + 1)
    causes_in = ROW_IN * len(explanation.causes)
    height_in = HEADER_IN + HEAD_IN + parts_in + BETWEEN_IN + causes_in + AXIS_IN
    subtitle = (
        f"Time to the first result: {duration(explanation.total_ms)}, {explanation.total_is}; "
        f"up to {count(explanation.repeats, 'start')} of each kind, 95 % intervals"
    )
    figure = headed(height_in, recording, explanation, subtitle)
    width_in = WIDTH_IN - LEFT_IN - RIGHT_IN
    bottom_in = AXIS_IN + causes_in + BETWEEN_IN
    _waterfall(placed(figure, left_in=LEFT_IN, bottom_in=bottom_in, width_in=width_in, height_in=parts_in), explanation)
    column_in = (WIDTH_IN - LEFT_IN - GAP_IN - RIGHT_IN + 0.4) / 2
    results = [cause.first_result for cause in explanation.causes]
    inferences = [cause.first_inference for cause in explanation.causes]
    for place, (title, found) in enumerate((("first result", results), ("first inference", inferences))):
        left_in = LEFT_IN + place * (column_in + GAP_IN)
        axes = placed(figure, left_in=left_in, bottom_in=AXIS_IN, width_in=column_in, height_in=causes_in)
        _effects(axes, explanation.causes, found, title)
        if place:
            axes.set_yticklabels([])
    return figure


def _waterfall(axes: Axes, explanation: Explanation) -> None:
    """Each part begins where the one before ends; the last row is the whole."""
    axes.grid(visible=True, axis="x")
    begin_ms = 0.0
    for row, part in enumerate(explanation.parts):
        _bar(axes, row, begin_ms, part)
        begin_ms += part.ms
    whole = len(explanation.parts)
    axes.barh(whole, explanation.total_ms, height=0.62, color=MUTED)
    _interval(axes, whole, explanation.total_interval_ms, 0.0)
    _number(axes, whole, effect(explanation.total_ms, explanation.total_interval_ms).removeprefix("+"))
    axes.set_ylim(whole + 0.5, -0.5)
    axes.set_yticks(range(whole + 1), [*map(part_name, explanation.parts), "total"])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(left=min(0.0, begin_ms))
    axes.set_xlabel("time since the process started (ms)")


def _bar(axes: Axes, row: int, begin_ms: float, part: Part) -> None:
    colour = {"step": BLUE, "cause": VERMILLION, "remainder": ORANGE}[part.kind]
    axes.barh(row, part.ms, left=begin_ms, height=0.62, color=colour)
    _interval(axes, row, part.interval_ms, begin_ms)
    _number(axes, row, f"{effect(part.ms, part.interval_ms).removeprefix('+')}, {part.share_pct:.0f} %")


def _interval(axes: Axes, row: int, interval_ms: tuple[float, float] | None, begin_ms: float) -> None:
    if interval_ms is not None:
        ends = [begin_ms + end for end in interval_ms]
        axes.plot(ends, [row, row], color=INK, linewidth=1.0, marker="|", markersize=5)


def _number(axes: Axes, row: int, said: str) -> None:
    place: Style = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points", "va": "center", "size": 8}
    axes.annotate(said, (1, row), (8, 0), **place)


def _effects(axes: Axes, found: Sequence[Cause], effects: Sequence[Effect | None], title: str) -> None:
    """A point and its interval for each cause; hollow where it may be chance."""
    axes.axvline(0, color=MUTED, linewidth=0.8)
    known = [each for each in effects if each is not None]
    largest = max((abs(end) for each in known for end in each.interval_ms or (each.ms,)), default=1.0)
    unit, per_ms = ("us", 1e3) if largest < SHORT_MS else ("ms", 1.0)
    linear = 10.0 ** (math.floor(math.log10(max(largest, 1e-3))) - LINEAR_DECADES)
    axes.set_xscale("symlog", linthresh=linear, linscale=1.0)
    axes.xaxis.set_major_locator(SymmetricalLogLocator(base=10, linthresh=linear, subs=[1]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * per_ms:,g}"))
    axes.grid(visible=True, axis="x")
    for row, (cause, each) in enumerate(zip(found, effects, strict=True)):
        if each is None:
            _number(axes, row, cause.status.replace("_", " "))
            continue
        ends = each.interval_ms or (each.ms, each.ms)
        colour = VERMILLION if each.claimed else MUTED
        axes.plot(ends, [row, row], color=colour, linewidth=1.2)
        axes.plot([each.ms], [row], "o", color=colour, markersize=5, markerfacecolor=colour if each.claimed else "none")
        _number(axes, row, f"{effect(each.ms, each.interval_ms)}{'' if each.claimed else '?'}")
    axes.set_ylim(len(found) - 0.5, -0.5)
    axes.set_yticks(range(len(found)), [cause.cause for cause in found])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(f"effect on the {title} ({unit})")
    axes.set_title(f"on the {title}; hollow: may be chance")
