"""Where warm-up ends, what kind of behaviour it was, and what a shorter warm-up would cost."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.averages import Average, average
from gpuwarm.analysis.bias import Bias, bias, warmed
from gpuwarm.analysis.course import Behaviour, Course, course
from gpuwarm.analysis.settling import Settling, settling
from gpuwarm.analysis.stretch import Quantity, Stretch, follows_enqueue, stretches
from gpuwarm.analysis.transitions import Transition, find
from gpuwarm.analysis.words import count, duration, median
from gpuwarm.recording import Recording

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Warmup:
    """How long to warm up. Times are continuous inference; None where there is no steady state."""

    time_ms: float | None = None  # where it ends in the data (the longest over the starts)
    longest_start: int | None = None  # the start that `time_ms` is of
    iterations: int | None = None
    recommended_ms: float | None = None  # what to type: rounded up, with what a file leaves out
    recommended_iterations: int | None = None
    starts: int = 0
    coverage: float | None = None  # n/(n+1): probability that the next start is warm by then; None within one start
    interval_ms: tuple[float, float] | None = None
    interval_kind: str | None = None  # "range over starts" | "block bootstrap within one start"
    clock_warm_ms: float | None = None
    heat_steady_ms: float | None = None  # where it differs from clock_warm_ms
    ends_ms: tuple[float | None, ...] = ()  # where it ends in each start; None: in one that found no steady state

    @property
    def unsettled(self) -> int:
        """How many starts found no steady state."""
        return self.ends_ms.count(None)


@dataclass(frozen=True)
class Steady:
    """Latency once steady."""

    median_ms: float
    mean_ms: float
    p99_ms: float
    cov_pct: float
    from_iteration: int
    iterations: int
    quantity: Quantity = "host"  # whether these are latencies to synchronised, or the GPU's own times


@dataclass(frozen=True)
class Judgement:
    """The answer for one recording."""

    behaviour: Behaviour
    also: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # sentences with the numbers that decided it
    warmup: Warmup = Warmup()
    steady: Steady | None = None
    bias: tuple[Bias, ...] = ()
    period_ms: float | None = None  # of a cyclic one
    slope_pct_per_s: float | None = None  # of a drifting one
    settles_ms: tuple[float, float, float] | None = None  # of one that slows down: when it would end, and interval
    average: Average | None = None  # a mean that is steady in every start, where latency is not
    per_start: tuple[Behaviour, ...] = field(default_factory=tuple)
    transitions: tuple[Transition, ...] = ()  # all of the recording


RARE_TIMES, RARE_SHARE = 2.0, 0.01  # of steady latency; p99 tells of more
GPU_BOUND_SHARE = 0.9  # of the latency is the GPU's own time: the host can only add jitter to it
COMMON_WARMUPS_MS = (0.0, 200.0)  # none, and trtexec's default
# Rounded up to two digits, and these; at most a sixth more.
ROUND_STEPS = (1, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2, 2.2, 2.5, 2.8, 3, 3.5, 4, 4.5, 5, 5.5, 6, 7, 8, 9, 10)
SLOW_TIMES, SLOW_MS = 2.0, 500.0  # heat is told from the clock where it takes this much longer
SWINGING: tuple[Behaviour, ...] = ("cyclic", "no_steady_state")  # a mean may be steady all the same
# The worst comes last.
SEVERITY: tuple[Behaviour, ...] = ("flat", "warmup", "slowdown", "too_short", "drift", "cyclic", "no_steady_state")


@dataclass(frozen=True)
class _Judged:
    """One start."""

    stretch: Stretch
    course: Course
    settling: Settling = field(default_factory=Settling)


def judge(
    recording: Recording,
    *,
    tolerance: float = 0.01,
    warmup_ms: Sequence[float] = (),
    found: Sequence[Stretch] | None = None,
) -> Judgement:
    """What the latencies of a recording did and how long to warm up.

    Latency is the caller's. Where it finds no rest but the GPU's own time does, that is judged instead: what the host
    adds is no warm-up, and no warm-up ends it.

    Args:
        recording: anything that loads.
        tolerance: of steady latency, within which it is steady.
        warmup_ms: other lengths to judge in the bias table.
        found: its stretches, where they are at hand.
    """
    starts = _by_latency(recording, stretches(recording) if found is None else found, tolerance)
    if not starts:
        return Judgement("too_short", evidence=("there are no latencies",))
    changes = find(recording, [start.stretch for start in starts])
    starts = [_with_state(recording, start, changes) for start in starts]
    behaviours = tuple(start.course.behaviour for start in starts)
    steady = [start for start in starts if start.course.end is not None]
    if 2 * len(steady) <= len(starts):
        return replace(_unsteady(starts, tolerance), per_start=behaviours, transitions=changes)
    warm = [warmed(recording, start.stretch, start.course.end or 0) for start in steady]
    removed_ms = max(start.removed_ms for start in warm)
    deciding = _typical(steady)
    each = recording.meta.inferences_per_row
    warmup = replace(
        _warmup(steady, len(starts), removed_ms, each),
        ends_ms=tuple(_elapsed_ms(start, end) if (end := start.course.end) is not None else None for start in starts),
    )
    asked = sorted({*COMMON_WARMUPS_MS, *warmup_ms, warmup.recommended_ms or 0.0})
    others = [start.course.behaviour for start in steady if start.course.behaviour != "flat"]
    also = dict.fromkeys([*(name for start in steady for name in start.course.also), *others])
    return Judgement(
        deciding.course.behaviour,
        tuple(name for name in also if name != deciding.course.behaviour),
        (
            *deciding.course.evidence,
            *deciding.settling.flags,
            *_rare(steady),
            *_apart(starts, steady),
            *_removed(removed_ms),
        ),
        warmup,
        _steady(steady, each),
        tuple(bias(warm, ms) for ms in asked),
        average=average([start.stretch for start in starts], tolerance) if len(steady) < len(starts) else None,
        per_start=behaviours,
        transitions=changes,
    )


def _typical(starts: list[_Judged]) -> _Judged:
    """A start that did what most did; of equally many, the worst."""
    counts = Counter(start.course.behaviour for start in starts)
    return max(starts, key=lambda start: (counts[start.course.behaviour], SEVERITY.index(start.course.behaviour)))


def _by_latency(recording: Recording, found: Sequence[Stretch], tolerance: float) -> list[_Judged]:
    whole = [_Judged(each, course(each.elapsed_ms, each.latency_ms, tolerance=tolerance)) for each in found]
    if all(start.course.end is not None for start in whole):
        return whole
    own = [
        _Judged(each, course(each.elapsed_ms, each.latency_ms, tolerance=tolerance))
        for each in stretches(recording, quantity="gpu")
    ]
    return _the_gpus_own(recording, whole, own) or whole


def _the_gpus_own(recording: Recording, whole: list[_Judged], own: list[_Judged]) -> list[_Judged] | None:
    """The GPU's own times, where as many starts are steady by them and the host has no hand in them."""
    if [start.stretch.start for start in whole] != [start.stretch.start for start in own]:
        return None
    settled = sum(start.course.end is not None for start in own)
    fewer = settled < sum(start.course.end is not None for start in whole)
    if not settled or fewer or 2 * sum(_driven_by_host(recording, start.stretch) for start in own) > len(own):
        return None
    said = "judged by the GPU's own time: what the host adds to it finds no rest"
    return [
        replace(
            mine,
            course=replace(
                mine.course, also=(*mine.course.also, "host_unsteady"), evidence=(*mine.course.evidence, said)
            ),
        )
        for mine in own
    ]


def _driven_by_host(recording: Recording, own: Stretch) -> bool:
    """Whether the GPU's time is the host's in disguise.

    Where enqueue times are not known, the GPU's time must be nearly all of the latency.
    """
    grows = follows_enqueue(recording, own)
    if grows is not None:
        return grows > 0
    gpu_ns, host_ns = (median(recording.iterations[name][own.rows]) for name in ("gpu_ns", "host_ns"))
    return gpu_ns is None or host_ns is None or gpu_ns <= GPU_BOUND_SHARE * host_ns


def _with_state(recording: Recording, start: _Judged, changes: tuple[Transition, ...]) -> _Judged:
    """With what the GPU's state says; a veto takes the steady state away."""
    if start.course.end is None:
        return start
    own = tuple(change for change in changes if change.start == start.stretch.start)
    steady_ms = float(start.stretch.elapsed_ms[start.course.end])
    state = settling(recording, start.stretch, own, steady_ms=steady_ms)
    if not state.vetoes:
        return replace(start, settling=state)
    said = (*start.course.evidence, *(f"{veto}: too late to see what it does to latency" for veto in state.vetoes))
    return replace(start, course=Course("no_steady_state", start.course.also, said), settling=state)


def _unsteady(starts: list[_Judged], tolerance: float) -> Judgement:
    typical = _typical([start for start in starts if start.course.end is None])
    return Judgement(
        typical.course.behaviour,
        typical.course.also,
        typical.course.evidence,
        Warmup(starts=len(starts)),
        period_ms=typical.course.period_ms,
        slope_pct_per_s=typical.course.slope_pct_per_s,
        settles_ms=typical.course.settles_ms,
        average=average([start.stretch for start in starts], tolerance)
        if typical.course.behaviour in SWINGING
        else None,
    )


def _apart(starts: list[_Judged], steady: list[_Judged]) -> tuple[str, ...]:
    if len(steady) == len(starts):
        return ()
    others = sorted({start.course.behaviour for start in starts if start.course.end is None})
    told = [name.replace("_", " ") for name in others if name != "no_steady_state"]
    what = f" ({', '.join(told)})" if told else ""
    return (f"{count(len(starts) - len(steady), 'start')} of {len(starts)} found no steady state{what}",)


def _rare(steady: list[_Judged]) -> tuple[str, ...]:
    """Single slow ones that no percentile told here shows."""
    latency_ms = np.concatenate([start.stretch.latency_ms[start.course.end :] for start in steady])
    slow = int(np.sum(latency_ms > RARE_TIMES * np.median(latency_ms)))
    if not 0 < slow < RARE_SHARE * latency_ms.size:
        return ()
    longest = duration(float(latency_ms.max()))
    return (f"once warm, {slow:,} of {latency_ms.size:,} took more than twice as long, up to {longest}",)


def _removed(removed_ms: float) -> tuple[str, ...]:
    if not removed_ms:
        return ()
    return (f"the first {duration(removed_ms)} are not in the file: a shorter warm-up may do, which this cannot show",)


def _warmup(steady: list[_Judged], starts: int, removed_ms: float, each: int) -> Warmup:
    """The longest of the starts: of n, the next one takes longer once in n + 1 times. A row is `each` inferences."""
    ends = [(_elapsed_ms(start, start.course.end), start) for start in steady]
    longest_ms, longest = max(ends, key=lambda pair: pair[0])
    iterations = max(start.course.end or 0 for start in steady)
    latest = [_latest(start) for start in steady]
    if starts == 1:
        low, high = (_elapsed_ms(longest, index) for index in longest.course.interval or (0, 0))
        kind, coverage, upper, upper_iterations = "block bootstrap within one start", None, high, latest[0]
    else:
        low, high = min(end for end, _ in ends), longest_ms
        kind, coverage = "range over starts", len(steady) / (starts + 1)
        upper, upper_iterations = high, iterations
    clock_ms, heat_ms = _clock_and_heat(longest, longest_ms)
    return Warmup(
        time_ms=longest_ms,
        longest_start=longest.stretch.start,
        iterations=each * iterations,
        recommended_ms=round_up(upper + removed_ms),
        recommended_iterations=int(round_up(each * upper_iterations + removed_ms / longest.stretch.latency_ms[0])),
        starts=starts,
        coverage=coverage,
        interval_ms=(low, high),
        interval_kind=kind,
        clock_warm_ms=clock_ms,
        heat_steady_ms=heat_ms,
    )


def _latest(start: _Judged) -> int:
    return start.course.interval[1] if start.course.interval else 0


def _elapsed_ms(start: _Judged, iteration: int | None) -> float:
    return float(start.stretch.elapsed_ms[iteration or 0])


def _clock_and_heat(longest: _Judged, end_ms: float) -> tuple[float | None, float | None]:
    """When the clock was warm; and when heat was steady, where that took latency much longer."""
    warm_ms = longest.settling.clock_warm_ms
    fast_ms = longest.course.fast_ms if warm_ms is None or warm_ms > end_ms else warm_ms
    if fast_ms is None:
        return warm_ms, None
    slow = end_ms > SLOW_TIMES * fast_ms and end_ms > fast_ms + SLOW_MS
    return fast_ms, end_ms if slow else None


def round_up(value: float) -> float:
    """The next number a person would type; at most a sixth more."""
    if value <= 0:
        return 0.0
    if value <= ROUND_STEPS[-1]:
        return float(np.ceil(value))
    power = 10.0 ** np.floor(np.log10(value))
    return round(float(next(step * power for step in ROUND_STEPS if step * power >= value * (1 - 1e-9))), 6)


def _steady(steady: list[_Judged], each: int) -> Steady:
    latency = np.concatenate([start.stretch.latency_ms[start.course.end :] for start in steady])
    mean = float(latency.mean())
    return Steady(
        median_ms=float(np.median(latency)),
        mean_ms=mean,
        p99_ms=float(np.quantile(latency, 0.99)),
        cov_pct=float(latency.std() / mean * 100),
        from_iteration=each * max(start.course.end or 0 for start in steady),
        iterations=each * latency.size,
        quantity=steady[0].stretch.quantity,
    )
