"""The answer of `idle` in a few sentences: how long it may rest, what keeps it warm, and how it cools down."""

from collections.abc import Iterator

from gpuwarm.analysis.contrast import Estimate
from gpuwarm.analysis.decay import Decay
from gpuwarm.analysis.gaps import AfterGap, Idleness, Situation
from gpuwarm.analysis.pauses import ALIVE, GONE, KEPT
from gpuwarm.analysis.words import duration, number, percent


def answer(idle: Idleness) -> str:
    """One paragraph."""
    sentences = []
    for situation in idle.situations:
        if situation.name == ALIVE:
            sentences += [_warmth(situation, idle.tolerance_pct), *_dependence(situation)]
    return " ".join([*sentences, *_keep_alive(idle), *map(_cooling, idle.decay)])


def pause(gap_s: float) -> str:
    """Its length in words."""
    return duration(1e3 * gap_s)


def watts(extra: Estimate) -> str:
    """A difference in power with its interval."""
    between = "" if extra.interval is None else f" ({number(extra.interval[0])} to {number(extra.interval[1])})"
    return f"{'+' if extra.value > 0 else ''}{number(extra.value)}{between} W"


def _warmth(alive: Situation, tolerance_pct: float) -> str:
    cold_on_gpu = [each for each in alive.after if each.on_gpu == "cold"]
    cold = [each for each in alive.after if each.latency == "cold"]
    if cold_on_gpu:
        warm = alive.warm_on_gpu_until_s
        until = "no pause that was tested" if warm is None else f"pauses of up to {pause(warm)}"
        return f"With its context alive the GPU stays warm through {until}; {_after(cold_on_gpu[0])}."
    if cold:
        gpu = "takes no longer" if alive.warm_on_gpu_until_s == alive.longest_s else "is not shown to take longer"
        return f"With its context alive, {_after(cold[0])}. The GPU itself {gpu}: it is the host that has to wake up."
    if alive.warm_until_s == alive.longest_s:
        return (
            f"With its context alive it does not get cold: after pauses of up to {pause(alive.longest_s)} the first "
            f"inference is within {number(tolerance_pct)} % of a steady one."
        )
    slowest = max(alive.after, key=lambda each: each.slower_pct.value)
    return (
        f"How cold it gets with its context alive is not shown: {_after(slowest)}, but that varies too much from one "
        "pause to the next. Measure more of them (--repeats)."
    )


def _after(first_cold: AfterGap) -> str:
    slow = f"after {pause(first_cold.gap_s)} the first inference takes {duration(first_cold.first.value)}"
    slow += f" ({percent(first_cold.slower_pct.value)})"
    if first_cold.second is not None:
        slow += f", the second {duration(first_cold.second.value)}"
    return slow


def _dependence(alive: Situation) -> Iterator[str]:
    if alive.alike_from_s is not None and alive.alike_from_s < alive.longest_s:
        between = f"From {pause(alive.alike_from_s)} to {pause(alive.longest_s)}"
        yield f"{between} the length of the pause is not shown to matter."


def _keep_alive(idle: Idleness) -> Iterator[str]:
    tried = [each for each in idle.situations if each.name == KEPT and each.keep_alive_ms is not None]
    alive = [after for each in idle.situations if each.name == ALIVE for after in each.after]
    cold = any("cold" in (after.latency, after.on_gpu) for after in alive)
    kept = idle.keep_alive
    if kept is not None:
        cost = "" if kept.extra is None else f", for {watts(kept.extra)} while idling"
        does = "keeps it warm" if cold else "is not needed to keep it warm"
        yield f"A small kernel each {duration(kept.period_ms)} {does} over pauses of {pause(kept.over_s)}{cost}."
    elif tried and cold:
        often_ms = min(each.keep_alive_ms for each in tried if each.keep_alive_ms is not None)
        yield f"A small kernel does not keep it warm, not even one each {duration(often_ms)}."


def _cooling(decay: Decay) -> str:
    first, last = decay.steps[0], decay.steps[-1]
    where = "After the process has ended" if decay.situation == GONE else "In a pause with the context alive"
    if len(decay.steps) == 1:
        return f"{where} the SM clock stays at {last.sm_clock_mhz:.0f} MHz."
    return (
        f"{where} the SM clock goes from {first.sm_clock_mhz:.0f} to {last.sm_clock_mhz:.0f} MHz within "
        f"{pause(decay.settled_s)}."
    )
