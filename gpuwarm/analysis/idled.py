"""The contract of `gpuwarm idle`: everything a recording of it says, and the answer in a few sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuwarm.analysis import controlled, gaps
from gpuwarm.analysis.contrast import Estimate
from gpuwarm.analysis.decay import Decay, after_processes, in_pauses
from gpuwarm.analysis.gaps import AfterGap, KeepAlive, Situation
from gpuwarm.analysis.pauses import ALIVE, GONE, pauses
from gpuwarm.analysis.words import duration, median, number, percent
from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState
from gpuwarm.metadata import Workload
from gpuwarm.recording import Recording

SCHEMA = "gpuwarm.idle/1"
SLOW_ENQUEUE = 1.5  # times a steady one; on an H200 it is 1 without a pause and 2 to 3 after one
DEFAULT_TOLERANCE = 0.1  # of steady latency: what a user of a service would hardly notice


@dataclass(frozen=True)
class Idleness:
    """The contract of `idle --json`; what a person reads is rendered from it by `show/`."""

    source: str | None
    simulated: str | None
    gpu: GpuState | None
    workload: Workload
    tolerance_pct: float
    steady_ms: float | None
    situations: tuple[Situation, ...]
    keep_alive: KeepAlive | None
    decay: tuple[Decay, ...]
    starts: int
    disturbed: int  # of them; left out
    made_again: int  # of them; in place of disturbed ones
    notes: tuple[str, ...]
    answer: str  # a few sentences


def idleness(recording: Recording, *, tolerance: float | None = None, source: str | None = None) -> Idleness:
    """What a recording of `gpuwarm idle` shows.

    Args:
        recording: the study's.
        tolerance: of steady latency, within which an inference counts as warm; None: as asked for when measuring.
        source: the file it is from.

    Raises:
        InputError: it is none, or was cut short before there was a pause.
    """
    meta = recording.meta
    if meta.study is None or meta.study.name != "idle":
        raise InputError("this recording holds no pauses: make one with `gpuwarm idle MODEL`")
    if tolerance is None:
        tolerance = DEFAULT_TOLERANCE if meta.study.tolerance is None else meta.study.tolerance
    measured = pauses(recording)
    if not measured:
        left_out = "".join(f"{sentence}; " for sentence in controlled.sentences(meta))
        raise InputError(f"this recording holds no undisturbed pause: {left_out}measure again")
    situations = gaps.situations(measured, tolerance=tolerance)
    kept = gaps.keep_alive(situations, measured, tolerance)
    decays = [each for each in (in_pauses(recording, ALIVE), after_processes(recording)) if each is not None]
    return Idleness(
        source=meta.source or source,
        simulated=meta.simulated,
        gpu=meta.machine_before.gpus[0] if meta.machine_before and meta.machine_before.gpus else None,
        workload=meta.workload,
        tolerance_pct=100 * tolerance,
        steady_ms=median([each.steady_ms for each in measured]),
        situations=situations,
        keep_alive=kept,
        decay=tuple(decays),
        starts=len(meta.starts),
        disturbed=len(controlled.disturbances(meta)),
        made_again=meta.study.made_again,
        notes=(*controlled.sentences(meta), *meta.notes),
        answer=" ".join([*_about_alive(situations, tolerance), *_about_kept(situations, kept), *map(_cooling, decays)]),
    )


def _about_alive(situations: Sequence[Situation], tolerance: float) -> Iterator[str]:
    for situation in situations:
        if situation.name == ALIVE:
            yield _warmth(situation, 100 * tolerance)
            yield from _dependence(situation)


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
        return (
            f"With its context alive, {_after(cold[0])}. The GPU itself {gpu}: it is the host that has to wake "
            f"up{_woken(cold[0])}."
        )
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


def _woken(after: AfterGap) -> str:
    """What of the host was slow, where that was its enqueue."""
    first_ms, steady_ms = after.first_enqueue_ms, after.steady_enqueue_ms
    if first_ms is None or steady_ms is None or first_ms < SLOW_ENQUEUE * steady_ms:
        return ""
    return f", which takes {duration(first_ms)} to enqueue and {duration(steady_ms)} once steady"


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


def _about_kept(situations: Sequence[Situation], kept: KeepAlive | None) -> Iterator[str]:
    alive = [after for each in situations if each.name == ALIVE for after in each.after]
    tried_ms = [each.keep_alive_ms for each in situations if each.keep_alive_ms is not None]
    cold = any("cold" in (after.latency, after.on_gpu) for after in alive)
    if kept is not None:
        needless = all(after.latency == "warm" for after in alive)
        does = "is not needed to keep it warm" if needless else "keeps it warm"
        told = f"A small kernel each {duration(kept.period_ms)} {does} over pauses of {pause(kept.over_s)}"
        unsure = "" if cold or needless else "; whether it is needed is not shown"
        yield f"{told}{unsure}{'' if kept.extra is None else costs(kept.extra)}."
    elif tried_ms and cold:
        yield f"A small kernel does not keep it warm, not even one each {duration(min(tried_ms))}."


def costs(extra: Estimate) -> str:
    """What keeping warm costs, in words where that is not to be told from nothing."""
    if extra.interval is not None and extra.covers(0.0):
        return f"; what it costs while idling, {watts(extra)}, may be nothing"
    return f", for {watts(extra)} while idling"


def _cooling(decay: Decay) -> str:
    first, last = decay.steps[0], decay.steps[-1]
    where = "After the process has ended" if decay.situation == GONE else "In a pause with the context alive"
    if len(decay.steps) == 1:
        return (
            f"{where} the SM clock stays at {last.sm_clock_mhz:.0f} MHz for the {pause(decay.seen_s)} that were seen."
        )
    return (
        f"{where} the SM clock goes from {first.sm_clock_mhz:.0f} to {last.sm_clock_mhz:.0f} MHz within "
        f"{pause(decay.settled_s)}."
    )


def to_json(idle: Idleness) -> dict[str, Any]:
    """The answer under the names of the contract."""
    return {"schema": SCHEMA, **msgspec.to_builtins(idle)}
