"""The answer of `explain` as sections of sentences and tables."""

from collections.abc import Iterator
from typing import Literal

from gpuwarm.analysis.causes import step_name
from gpuwarm.analysis.contrast import Estimate
from gpuwarm.analysis.effects import Cause, Effect
from gpuwarm.analysis.explained import Explanation, matters, part_name
from gpuwarm.analysis.first_inference import FirstInference
from gpuwarm.analysis.words import count, duration, effect
from gpuwarm.show.sections import SMALL_SHARE_PCT, Line, Section, Table, what_on


def subject(explanation: Explanation) -> str:
    """What was measured, and where."""
    return f"{what_on(explanation, explanation.starts)}, up to {explanation.repeats} of each kind"


def sections(explanation: Explanation) -> Iterator[Section]:
    """All of them in the order of reading."""
    yield Section("Time", (Line(_total(explanation)),), table=_parts(explanation))
    yield Section("Unexplained", (Line(_remainder(explanation)),))
    if explanation.first_inference is not None:
        yield Section("First", tuple(_first(explanation.first_inference)))
    for title, on, table in (
        ("Causes", "the time to the first result", _causes(explanation, "first_result")),
        ("", "the latency of the first inference", _causes(explanation, "first_inference")),
    ):
        yield Section(title, (Line(f"effect on {on} (95 % interval)"),), table=table)
    yield Section("Switches", items=tuple(f"{cause.id}: {_about(cause)}" for cause in explanation.causes))
    for cause in explanation.causes:
        if cause.remedy is not None and matters(cause, explanation.total_ms):
            yield Section("To do", (Line(f"{cause.id}: {cause.remedy.advice}"),), command=cause.remedy.command)
    yield from disturbed(explanation.disturbed, explanation.made_again, explanation.starts)
    if explanation.notes:
        yield Section("Notes", items=explanation.notes)


def disturbed(left_out: int, made_again: int, starts: int) -> Iterator[Section]:
    """Whether any start of a study counts for nothing."""
    if left_out:
        again = f", {made_again} made again" if made_again else ""
        yield Section("Disturbed", (Line(f"{left_out} of {count(starts, 'start')} left out{again}", "warning"),))


def _total(explanation: Explanation) -> str:
    interval = explanation.total_interval_ms
    between = "" if interval is None else f" (95 %: {duration(interval[0])} to {duration(interval[1])})"
    return f"{duration(explanation.total_ms)}{between} from process start to the first result, {explanation.total_is}"


def _parts(explanation: Explanation) -> Table:
    """Steps and causes; small steps are added up."""
    shown = [part for part in explanation.parts if part.kind != "remainder"]
    large = [part for part in shown if part.share_pct >= SMALL_SHARE_PCT or part.kind == "cause"]
    small = [part for part in shown if part not in large]
    rows = [
        (
            part_name(part),
            duration(part.ms),
            "" if part.interval_ms is None else " to ".join(map(duration, part.interval_ms)),
        )
        for part in large
    ]
    shares: list[float | None] = [part.share_pct / 100 for part in large]
    if small:
        rows.append((count(len(small), "small step"), duration(sum(part.ms for part in small)), ""))
        shares.append(None)
    return Table(("part", "mean", "95 % interval"), (False, True, True), tuple(rows), shares=tuple(shares))


def _remainder(explanation: Explanation) -> str:
    left = explanation.parts[-1]
    return f"{effect(left.ms, left.interval_ms) if left.ms else 'nothing'}: {explanation.remainder_note}"


def _first(first: FirstInference) -> Iterator[Line]:
    more_ms = first.first_ms - first.steady_ms
    if more_ms <= 0:
        yield Line(f"{duration(first.first_ms)}, no more than a steady one")
        return
    yield Line(f"{duration(first.first_ms)}, {duration(more_ms)} more than a steady one; of that")
    yield Line(f"{_estimate(first.until_warm)} still paid by those right after it{_chance(first.until_warm)}")
    for cause, part in first.by_causes:
        yield Line(f"{_estimate(part)} by {cause}{_chance(part)}")
    yield Line(f"{_estimate(first.remainder)} paid once, by no switch tested here{_chance(first.remainder)}")


def _estimate(found: Estimate) -> str:
    return effect(found.value, found.interval)


def _chance(found: Estimate) -> str:
    return ", which may be chance" if found.covers(0.0) else ""


def _causes(explanation: Explanation, response: Literal["first_result", "first_inference"]) -> Table:
    rows = tuple((cause.id, _shown(cause, getattr(cause, response))) for cause in explanation.causes)
    return Table(("cause", "effect"), (False, False), rows)


def _shown(cause: Cause, found: Effect | None) -> str:
    if found is None:
        return cause.status.replace("_", " ")
    text = effect(found.ms, found.interval_ms)
    return text if found.claimed else f"{text}, which may be chance"


def _about(cause: Cause) -> str:
    if cause.reason is not None:
        return f"{cause.status.replace('_', ' ')}, as {cause.reason}"
    steps = ", ".join(f"{step_name(change.step)} {effect(change.ms, None)}" for change in cause.acts_in)
    where = f"; it acts in: {steps}" if steps else ""
    none = "" if cause.claimed else "; no effect was shown"
    return f"{cause.does}{none}{where}"
