"""What pauses of each length do to latency and power, and whether that is cold, warm or not known."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwarm.analysis.contrast import Estimate, contrast, holm
from gpuwarm.analysis.pauses import ALIVE, GONE, KEPT, Pause
from gpuwarm.analysis.words import median

CLAIM_P = 0.05  # after Holm's adjustment over the pauses of a situation

# Shown to be slower than the tolerance allows, shown not to be, or neither.
Warmth = Literal["cold", "warm", "unknown"]


@dataclass(frozen=True)
class AfterGap:
    """What inference is like after pauses of one length; latencies in ms, means over the pauses."""

    gap_s: float
    pauses: int
    first: Estimate
    second: Estimate | None
    first_on_gpu: Estimate | None
    slower_pct: Estimate  # the first, against steady latency
    slower_on_gpu_pct: Estimate | None
    latency: Warmth
    on_gpu: Warmth  # the same by the GPU's own time
    until_steady: float | None  # iterations, median
    sm_clock_mhz: float | None  # just before the pause ends, median
    pstate: int | None
    first_enqueue_ms: float | None = None  # what the host took to enqueue the first one, median
    steady_enqueue_ms: float | None = None
    first_result: Estimate | None = None  # from process start, where there was no process meanwhile


@dataclass(frozen=True)
class Situation:
    """What the process did meanwhile, and what pauses did then."""

    name: str  # "context-alive" | "keep-alive" | "no-context"
    keep_alive_ms: float | None
    after: tuple[AfterGap, ...]  # by length
    warm_until_s: float | None  # longest pause up to which all are shown to be warm; None: not even the shortest
    warm_on_gpu_until_s: float | None
    alike_from_s: float | None  # from this pause on, none is shown to differ from the longest; None: one length alone
    power: Estimate | None  # W, while idling

    @property
    def longest_s(self) -> float:
        """The longest pause."""
        return self.after[-1].gap_s

    @property
    def depends(self) -> bool:
        """Whether the length of a pause is shown to matter, among those tested."""
        return self.alike_from_s is not None and self.alike_from_s > self.after[0].gap_s


@dataclass(frozen=True)
class KeepAlive:
    """The longest period of a small kernel that kept the GPU as warm as the tolerance asks."""

    period_ms: float
    over_s: float  # the pause it was tested over
    slower_pct: Estimate  # the first inference after it
    extra: Estimate | None  # W, more than idling without it


def situations(measured: Sequence[Pause], *, tolerance: float) -> tuple[Situation, ...]:
    """One for the context alive, one for each keep-alive period, one for no context; those that were measured."""
    grouped: dict[tuple[str, float | None], list[Pause]] = {}
    for pause in measured:
        grouped.setdefault((pause.situation, pause.keep_alive_ms), []).append(pause)
    order = (ALIVE, KEPT, GONE)
    keys = sorted(grouped, key=lambda key: (order.index(key[0]), -(key[1] or 0.0)))
    return tuple(_situation(name, period, grouped[name, period], tolerance) for name, period in keys)


def _situation(name: str, keep_alive_ms: float | None, found: Sequence[Pause], tolerance: float) -> Situation:
    by_gap: dict[float, list[Pause]] = {}
    for pause in sorted(found, key=lambda pause: pause.gap_s):
        by_gap.setdefault(pause.gap_s, []).append(pause)
    slower = {gap: [pause.slower for pause in own] for gap, own in by_gap.items()}
    on_gpu = {gap: [it.slower_on_gpu for it in own if it.slower_on_gpu is not None] for gap, own in by_gap.items()}
    latency, gpu = _warmth(slower, tolerance), _warmth(on_gpu, tolerance)
    after = tuple(_after(gap, own, latency=latency[gap], on_gpu=gpu[gap]) for gap, own in by_gap.items())
    power_w = [pause.power_w for pause in found if pause.power_w is not None]
    return Situation(
        name=name,
        keep_alive_ms=keep_alive_ms,
        after=after,
        warm_until_s=_until(latency),
        warm_on_gpu_until_s=_until(gpu),
        alike_from_s=_alike_from_s(slower, tolerance),
        power=contrast([(1.0, power_w)]),
    )


def _after(gap_s: float, own: Sequence[Pause], *, latency: Warmth, on_gpu: Warmth) -> AfterGap:
    first, slower = contrast([(1.0, [it.first_ms for it in own])]), contrast([(1.0, [100 * it.slower for it in own])])
    assert first is not None
    assert slower is not None
    pstate = _median(it.pstate for it in own)
    return AfterGap(
        gap_s=gap_s,
        pauses=len(own),
        first=first,
        second=contrast([(1.0, [it.second_ms for it in own if it.second_ms is not None])]),
        first_on_gpu=contrast([(1.0, [it.first_on_gpu_ms for it in own if it.first_on_gpu_ms is not None])]),
        slower_pct=slower,
        slower_on_gpu_pct=contrast([(1.0, [100 * it.slower_on_gpu for it in own if it.slower_on_gpu is not None])]),
        latency=latency,
        on_gpu=on_gpu,
        until_steady=_median(it.until_steady for it in own),
        sm_clock_mhz=_median(it.sm_clock_mhz for it in own),
        pstate=None if pstate is None else round(pstate),
        first_enqueue_ms=_median(it.first_enqueue_ms for it in own),
        steady_enqueue_ms=_median(it.steady_enqueue_ms for it in own),
        first_result=contrast([(1.0, [it.first_result_ms for it in own if it.first_result_ms is not None])]),
    )


def _median(values: Iterable[float | None]) -> float | None:
    return median([math.nan if value is None else value for value in values])


def _warmth(slower: Mapping[float, Sequence[float]], tolerance: float) -> dict[float, Warmth]:
    """Of the first inference after each pause."""
    beyond = {gap: contrast([(1.0, [each - tolerance for each in values])]) for gap, values in slower.items()}
    adjusted = holm({gap: it.p for gap, it in beyond.items() if it is not None and it.p is not None})
    found: dict[float, Warmth] = {}
    for gap, excess in beyond.items():
        found[gap] = "unknown"
        if excess is not None and excess.interval is not None:
            if excess.value > 0 and adjusted.get(gap, 1.0) < CLAIM_P:
                found[gap] = "cold"
            elif excess.interval[1] <= 0:
                found[gap] = "warm"
    return found


def _until(found: Mapping[float, Warmth]) -> float | None:
    """The longest pause before the first that is not warm."""
    first = min((gap for gap, warmth in found.items() if warmth != "warm"), default=math.inf)
    return max((gap for gap in found if gap < first), default=None)


def _alike_from_s(slower: Mapping[float, Sequence[float]], tolerance: float) -> float | None:
    """The shortest pause from which on none is shown to differ from the longest by more than the tolerance."""
    *shorter, longest = slower
    if not shorter:
        return None
    beyond = {}
    for gap in shorter:
        difference = contrast([(1.0, slower[longest]), (-1.0, slower[gap])])
        if difference is None or difference.p is None:
            continue
        margin = tolerance if difference.value > 0 else -tolerance
        left = contrast([(1.0, [each - margin for each in slower[longest]]), (-1.0, slower[gap])])
        if left is not None and left.p is not None and left.value * difference.value > 0:
            beyond[gap] = left.p
    adjusted = holm(beyond)
    different = [gap for gap, p in adjusted.items() if p < CLAIM_P]
    return min(gap for gap in slower if gap > max(different, default=-1.0))


def keep_alive(found: Sequence[Situation], measured: Sequence[Pause], tolerance: float) -> KeepAlive | None:
    """The longest period after which the first inference was as warm as asked."""
    alive = next((each for each in found if each.name == ALIVE), None)
    for situation in found:
        if situation.keep_alive_ms is not None and alive is not None and is_warm(situation.after[-1], alive, tolerance):
            after = situation.after[-1]
            without_w = _powers_w(measured, alive, after.gap_s) or _powers_w(measured, alive, alive.longest_s)
            extra = contrast([(1.0, _powers_w(measured, situation, after.gap_s)), (-1.0, without_w)])
            return KeepAlive(situation.keep_alive_ms, after.gap_s, after.slower_pct, extra)
    return None


def _powers_w(measured: Sequence[Pause], situation: Situation, gap_s: float) -> list[float]:
    wanted = (situation.name, situation.keep_alive_ms, gap_s)
    own = [it for it in measured if (it.situation, it.keep_alive_ms, it.gap_s) == wanted]
    return [pause.power_w for pause in own if pause.power_w is not None]


def is_warm(after: AfterGap, alive: Situation, tolerance: float) -> bool:
    """Whether what was cold without a keep-alive is within the tolerance: the GPU, or else the latency."""
    on_gpu = any(each.on_gpu == "cold" for each in alive.after) and after.slower_on_gpu_pct is not None
    judged = after.slower_on_gpu_pct if on_gpu else after.slower_pct
    return judged is not None and judged.value <= 100 * tolerance
