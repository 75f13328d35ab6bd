"""The answer of `idle` as sections of sentences and tables."""

from collections.abc import Iterator

from gpuwarm.analysis.decay import Decay, Step
from gpuwarm.analysis.gaps import AfterGap, Situation
from gpuwarm.analysis.idled import Idleness, pause, watts
from gpuwarm.analysis.pauses import ALIVE, GONE, KEPT
from gpuwarm.analysis.words import duration, number, percent
from gpuwarm.show.explanation import disturbed
from gpuwarm.show.sections import Line, Section, Table

_TITLES = {ALIVE: "Pauses", KEPT: "Keep-alive", GONE: "No process"}
_WHAT = {
    ALIVE: "a process that keeps its context, and does nothing",
    KEPT: "a process that runs a small kernel now and then",
    GONE: "no process: the next one starts after the pause, so its first inference pays for its start, too",
}


def sections(idle: Idleness) -> Iterator[Section]:
    """All of them in the order of reading."""
    if idle.steady_ms is not None:
        limit = f"warm is within {number(idle.tolerance_pct)} % of it"
        yield Section("Steady", (Line(f"{duration(idle.steady_ms)}; {limit}"),))
    for situation in idle.situations:
        yield Section(_TITLES[situation.name], tuple(_about(situation)), table=_after(situation))
    for decay in idle.decay:
        yield Section("Cooling", (Line(_cooling(decay)),))
    yield from disturbed(idle.disturbed, idle.made_again, idle.starts)
    if idle.notes:
        yield Section("Notes", items=idle.notes)


def _about(situation: Situation) -> Iterator[Line]:
    each = "" if situation.keep_alive_ms is None else f", each {duration(situation.keep_alive_ms)}"
    yield Line(f"{_WHAT[situation.name]}{each}")
    if situation.power is not None:
        yield Line(f"{watts(situation.power).removeprefix('+')} while idling")
    last = "time to the first result" if situation.name == GONE else "how cold"
    yield Line(
        f"after a pause of: first inference, second, iterations until steady; state just before; {last}", "faint"
    )


def _after(situation: Situation) -> Table:
    last = "first result" if situation.name == GONE else "cold"
    heading = ("pause", "first", "slower", "second", "until steady", "SM clock", "P-state", last)
    rows = tuple(_row(each) for each in situation.after)
    return Table(heading, (True, True, True, True, True, True, False, False), rows)


def _row(each: AfterGap) -> tuple[str, ...]:
    cold = "cold" if each.on_gpu == "cold" else "slow host" if each.latency == "cold" else ""
    return (
        pause(each.gap_s),
        duration(each.first.value),
        "" if each.first_result is not None else percent(each.slower_pct.value),
        "" if each.second is None else duration(each.second.value),
        "" if each.until_steady is None else f"{each.until_steady:.0f}",
        "" if each.sm_clock_mhz is None else f"{each.sm_clock_mhz:.0f} MHz",
        "" if each.pstate is None else f"P{each.pstate}",
        cold if each.first_result is None else duration(each.first_result.value),
    )


def _cooling(decay: Decay) -> str:
    where = "after the process" if decay.situation == GONE else "with the context alive"
    return f"{where}: {' -> '.join(map(_step, decay.steps))} (NVML, late by up to 250 ms)"


def _step(step: Step) -> str:
    label = "" if step.pstate is None else f"P{step.pstate} "
    return f"{label}{step.sm_clock_mhz:.0f} MHz" + (f" at {pause(step.after_s)}" if step.after_s else "")
