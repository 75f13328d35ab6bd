"""The rule of `analysis/course.py`, applied while somebody's own loop runs."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gpuwarm.analysis.course import Behaviour, Course, course
from gpuwarm.analysis.noise import tame
from gpuwarm.analysis.series import LEAD, LEAD_REFERENCE, lead_of
from gpuwarm.errors import InputError
from gpuwarm.machine import EVENT_REASONS, GpuState
from gpuwarm.recording import Floats
from gpuwarm.rows import SAMPLE_FIELDS, SampleRow

BINS = 256  # means of equally many iterations, at most, that the rule looks at: bounds memory and time
TICK_S = 1e-9  # of the clock: no inference takes less
FLUSH = 4096  # latencies put aside before they are put into bins
NEXT_LOOK = 1.2  # times the time of the last look: looking costs 5 ms, and the GPU rests meanwhile
LEAST_S = 1.2  # in all: a power cap averages over a second, and on an H200 overshoots until then
HOLD_S = 0.5  # the steady stretch must be this long, NVML's slowest refresh, and
HOLD_SHARE = 0.35  # of all the time: a staircase's next tread may be as long as all before
CERTAIN = 0.5  # tolerances: steady latency must be known as well as that

PEEK_S = 0.05  # between readings of the GPU's state; one takes about 20 us
SAME_CLOCK_SHARE = 0.03  # steps of a clock at rest in its state are smaller
STATE_HOLD_S = 0.6  # NVML shows a change this late at most
CLIMBING_SHARE = 0.85  # of its highest clock; a GPU below, with no reason to be, is on a tread of its way up
LONGEST_TREAD_S = 10.0  # seen: up to 7 s from rest to full clock; below for longer, it is where it stays
HELD_DOWN = ("slowdown", "power_cap", "setting", "sync_boost")  # in the names of reasons that keep a clock low
_PSTATE, _SM, _MEM, _REASONS = (
    list(SAMPLE_FIELDS).index(name) for name in ("pstate", "sm_clock_mhz", "mem_clock_mhz", "event_reasons")
)


@dataclass(frozen=True)
class Warmed:
    """How a warm-up went."""

    steady: bool
    seconds: float
    iterations: int
    behaviour: Behaviour
    latency_ms: float | None = None  # steady, outliers drawn in
    bias_pct: float | None = None  # what is measured from here on is expected to be off by less
    stopped_by: Literal["steady", "max_seconds", "exhausted"] = "steady"
    evidence: tuple[str, ...] = ()


def warm_until_steady(
    step: Callable[[], object] | Iterator[float],
    *,
    tolerance: float = 0.01,
    max_seconds: float = 30.0,
    min_iterations: int = 10,
    state: Callable[[], SampleRow] | None = None,
    limits: GpuState | None = None,
) -> Warmed:
    """Call `step` until its latency is steady, and say how that went.

    With the GPU's state, a tread of its way up is not taken for the top::

        from gpuwarm.measure import nvml

        with nvml.session():
            gpu = nvml.Gpu(0)
            warm_until_steady(step, state=gpu.read, limits=gpu.state())

    Args:
        step: does one inference and returns once its work is done (synchronise!); or an iterator of durations in s.
        tolerance: of steady latency, within which it is steady.
        max_seconds: give up after this.
        min_iterations: do at least so many.
        state: reads the GPU; without it, latency alone decides.
        limits: of that GPU, for its highest clocks.

    Raises:
        InputError: an argument makes no sense, or a duration does not.
    """
    if not 0 < tolerance < 1 or max_seconds <= 0:
        raise InputError("tolerance is a share between 0 and 1 and max_seconds is positive: 0.01 and 30 are usual")
    seen = _Seen(tolerance)
    watch = None if state is None else _State(state, limits)
    durations = iter(step) if isinstance(step, Iterator) else _durations(step)
    judged = Course("too_short")
    look_s, peek_s = LEAST_S, 0.0
    for duration_s in durations:
        elapsed_s = seen.add(duration_s)
        if watch is not None and elapsed_s >= peek_s:
            watch.peek(elapsed_s)
            peek_s = elapsed_s + PEEK_S
        over = elapsed_s >= max_seconds
        if not over and (elapsed_s < look_s or seen.count < min_iterations):
            continue
        look_s = elapsed_s * NEXT_LOOK
        judged = seen.judge()
        if _held(judged, seen, tolerance) and (watch is None or watch.settled(elapsed_s)):
            return _warmed(judged, seen, "steady")
        if over:
            return _warmed(judged, seen, "max_seconds")
    return _warmed(seen.judge(), seen, "exhausted")


def _durations(step: Callable[[], object]) -> Iterator[float]:
    clock = time.perf_counter
    while True:
        begin = clock()
        step()
        yield clock() - begin


class _Seen:
    """Latencies so far, in bounded memory: bins of equally many iterations, paired off when there are too many."""

    def __init__(self, tolerance: float) -> None:
        self.count = 0
        self.elapsed_s = 0.0
        self._tolerance = tolerance
        self._lead: tuple[float, ...] | None = None  # slow for being first: kept out of the bins; None: not known yet
        self._new: list[float] = []
        self._size = 1
        self._bins = np.empty(0)

    def add(self, duration_s: float) -> float:
        """Take a latency in; returns the time so far."""
        self._new.append(duration_s)
        self.count += 1
        self.elapsed_s += duration_s
        if len(self._new) >= FLUSH:
            self._flush()
        return self.elapsed_s

    def _flush(self) -> None:
        """Put whole bins aside; what does not fill one waits."""
        if self._lead is None and self.count >= LEAD + LEAD_REFERENCE:
            self._lead = tuple(self._new[: lead_of(np.array(self._new), self._tolerance)])
            self._new = self._new[len(self._lead) :]
        while self._bins.size + len(self._new) // self._size > 2 * BINS:
            pairs, odd = self._bins.size // 2, self._bins[self._bins.size // 2 * 2 :].tolist()
            self._new = [*odd * self._size, *self._new]
            self._bins = self._bins[: 2 * pairs].reshape(-1, 2).mean(axis=1)
            self._size *= 2
        whole = len(self._new) // self._size * self._size
        fresh = np.array(self._new[:whole])
        self._new = self._new[whole:]
        if fresh.size:
            if not (fresh >= 0).all():
                raise InputError("durations are seconds, 0 or more: one was negative or no number")
            fresh = np.maximum(fresh, TICK_S)
            calm = tame(fresh) if self._size > 1 else fresh
            self._bins = np.concatenate([self._bins, calm.reshape(-1, self._size).mean(axis=1)])

    def judge(self) -> Course:
        """What they did."""
        self._flush()
        if self._bins.size == 0:
            return Course("too_short")
        lead = self._lead or ()
        self.begins_s: Floats = np.concatenate([[0.0], np.cumsum(self._bins * self._size)[:-1]]) + sum(lead)
        found = course(self.begins_s * 1e3, self._bins * 1e3, tolerance=self._tolerance, interval=False)
        if not lead or found.end is None:
            return found
        behaviour: Behaviour = "warmup" if found.behaviour == "flat" else found.behaviour
        return replace(found, behaviour=behaviour, also=("slow_first", *found.also))


def _held(judged: Course, seen: _Seen, tolerance: float) -> bool:
    """Whether the steady stretch is long enough, and well enough known."""
    if judged.end is None or judged.unsure is None:
        return False
    steady_s = seen.elapsed_s - float(seen.begins_s[judged.end])
    return (
        seen.elapsed_s >= LEAST_S
        and steady_s >= max(HOLD_S, HOLD_SHARE * seen.elapsed_s)
        and judged.unsure <= 2 * CERTAIN * tolerance
    )


def _warmed(judged: Course, seen: _Seen, stopped_by: Literal["steady", "max_seconds", "exhausted"]) -> Warmed:
    return Warmed(
        steady=stopped_by == "steady",
        seconds=seen.elapsed_s,
        iterations=seen.count,
        behaviour=judged.behaviour,
        latency_ms=judged.level_ms,
        bias_pct=None if judged.unsure is None else 100 * judged.unsure,
        stopped_by=stopped_by,
        evidence=judged.evidence,
    )


class _State:
    """The GPU's state, and since when it stands still."""

    def __init__(self, read: Callable[[], SampleRow], limits: GpuState | None) -> None:
        self._read = read
        self._limits = limits
        self._row = read()
        self._since_s = 0.0

    def peek(self, elapsed_s: float) -> None:
        """Read it; a change of state begins a new stretch."""
        row = self._read()
        if _moved(self._row, row):
            self._row, self._since_s = row, elapsed_s

    def settled(self, elapsed_s: float) -> bool:
        """Whether it has stood still, at the top of what it can."""
        still_s = elapsed_s - self._since_s
        if self._limits is not None and _climbing(self._row, self._limits):
            return still_s >= LONGEST_TREAD_S
        return still_s >= STATE_HOLD_S


def _moved(before: SampleRow, now: SampleRow) -> bool:
    """Whether the P-state or a clock changed; what is missing did not, and a limiter's hunting is no change."""
    if abs(now[_PSTATE] - before[_PSTATE]) > 0:
        return True
    if _held_down(before) and _held_down(now):
        return False
    return any(abs(now[clock] - before[clock]) > SAME_CLOCK_SHARE * before[clock] for clock in (_SM, _MEM))


def _climbing(row: SampleRow, limits: GpuState) -> bool:
    """Whether a clock is far below its highest without a reason to be."""
    highest = ((row[_SM], limits.sm_clock_max_mhz), (row[_MEM], limits.mem_clock_max_mhz))
    below = any(limit is not None and clock < CLIMBING_SHARE * limit for clock, limit in highest)
    return below and not _held_down(row)


def _held_down(row: SampleRow) -> bool:
    reasons = 0 if math.isnan(row[_REASONS]) else int(row[_REASONS])
    return any(reasons & bit and any(part in name for part in HELD_DOWN) for bit, name in EVENT_REASONS.items())
