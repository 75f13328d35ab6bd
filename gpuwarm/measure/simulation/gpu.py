"""The state of a simulated GPU: a pure function of a profile and a load log.

Between events (a span of the log begins or ends, a timer of the GPU runs out) everything that matters is constant or
a known exponential, so the state is carried from event to event and never stepped: hours of rest cost nothing. The
result depends on the log alone, not on when or how often it was asked for; news about the past, such as a process
found dead, rewinds to a snapshot before it.
"""

import math
from bisect import bisect_left, bisect_right, insort
from dataclasses import dataclass, field, replace
from operator import attrgetter

from gpuwarm.measure.simulation.load_log import (
    BUSY,
    CLIENT,
    CLOSES,
    CONTEXT,
    ENDED,
    MERGED_NS,
    OPEN,
    Entry,
    LoadLog,
)
from gpuwarm.measure.simulation.profiles import SW_POWER_CAP, SW_THERMAL, LoadStep, Profile, Rung, Workload

GPU_IDLE = 0x1  # NVML's event-reason bit
_SNAPSHOT_NS = 500_000_000
_HISTORY_NS = 5_000_000_000  # longer than any sensor's window and lag
_TRIM_SEGMENTS = 4096
_FIRST_NS = -3_600_000_000_000  # at rest since an hour before the clock's zero: longer than any time constant


def _ns(seconds: float) -> int:
    return OPEN if math.isinf(seconds) else round(seconds * 1e9)


@dataclass(eq=False)
class Span:
    """Something that is so from begin to end: a client, a context, or kernels running."""

    kind: int
    begin_ns: int
    end_ns: int
    load: int
    entry: Entry


@dataclass(frozen=True)
class Segment:
    """What holds from `t_ns` to the next segment; sums are those up to `t_ns`."""

    t_ns: int
    pstate: int
    sm_clock_mhz: float  # true
    nvml_clock_mhz: float
    mem_clock_mhz: float
    power_w: float
    event_reasons: int
    pcie_gen: int
    utilization: float  # share of time with kernels running, 0 to 1
    sharers: int  # processes that work at once
    body_c: float
    energy_j: float
    utilized_ns: float


@dataclass
class State:
    """Everything the future depends on."""

    t_ns: int
    body_c: float
    rung: int = 0
    worked_ns: int = 0  # towards the next rung
    loaded_ns: int = 0  # on the top rung, since the last rest
    idle_since_ns: int = _FIRST_NS
    rung_since_ns: int = _FIRST_NS  # or since the last work, or since the last context ended
    thermal_steps: int = 0
    energy_j: float = 0.0
    utilized_ns: float = 0.0
    capped_ns: int = 0
    hot_ns: int = 0
    held_since_ns: int | None = None  # since when clients hold the driver without a break
    active: list[Span] = field(default_factory=list)


@dataclass
class _Known:
    """How much of an entry has been taken in."""

    entry: Entry
    rows: int = 0
    open: list[Span] = field(default_factory=list)
    last: Span | None = None  # of the last row, where it is BUSY and may yet be extended


def _copy(state: State) -> State:
    return replace(state, active=list(state.active))


class Gpu:
    """Follow one log. Ask for times in any order; ascending is cheap."""

    def __init__(self, profile: Profile, log: LoadLog) -> None:
        """Start at rest, long ago."""
        self.profile = profile
        self.log = log
        self.loads = tuple(profile.workloads.values())
        rest_c = profile.thermal.ambient_c + profile.thermal.body_c_per_w * profile.ladder[0].power_w
        self._spans: list[Span] = []
        self._joined = 0
        self._live: list[_Known] = []
        self._news_ns = OPEN
        self._state = State(_FIRST_NS, rest_c)
        self._snapshots = [_copy(self._state)]
        self._next = 0
        self._times: list[int] = []
        self._segments: list[Segment] = []
        self._settle()

    # -- asking

    def at(self, t_ns: int) -> Segment:
        """What holds at `t_ns`, given all the log says now."""
        self.log.look(t_ns)
        self._learn()
        if min(self._news_ns, t_ns) < self._state.t_ns or self._news_ns == self._state.t_ns:
            self._rewind(min(self._news_ns, t_ns))
        self._news_ns = OPEN
        self._advance(t_ns)
        return self._segments[-1]

    @property
    def change_ns(self) -> int:
        """When the GPU itself changes next, if its load stays as it is."""
        return self._change_ns

    @property
    def state(self) -> State:
        """As of the last event before the time asked for last."""
        return self._state

    def past(self, t_ns: int) -> Segment:
        """What held at a time not after the last one asked for, and at most some seconds before it."""
        return self._segments[max(bisect_right(self._times, t_ns) - 1, 0)]

    def temperature_c(self, t_ns: int) -> float:
        """Junction temperature at such a time."""
        held = self.past(t_ns)
        body_c = self._body_c(held.body_c, held.power_w, (t_ns - held.t_ns) * 1e-9)
        return body_c + self.profile.thermal.junction_c_per_w * held.power_w

    def energy_j(self, t_ns: int) -> float:
        """Energy used up to such a time, from an arbitrary zero."""
        held = self.past(t_ns)
        return held.energy_j + held.power_w * (t_ns - held.t_ns) * 1e-9

    def utilized_ns(self, t_ns: int) -> float:
        """Time with kernels running up to such a time."""
        held = self.past(t_ns)
        return held.utilized_ns + (t_ns - held.t_ns) * held.utilization

    def count(self, kind: int) -> int:
        """How many clients or contexts there are."""
        return sum(span.kind == kind for span in self._state.active)

    # -- taking in the log

    def _learn(self) -> None:
        for entry in self.log.entries[self._joined :]:
            self._live.append(_Known(entry))
        self._joined = len(self.log.entries)
        for known in self._live:
            rows = known.entry.rows
            if known.last is not None and rows[known.rows - 1][1] != known.last.end_ns:
                self._end(known.last, rows[known.rows - 1][1])
            for row in rows[known.rows :]:
                self._take(known, row)
            known.rows = len(rows)
        if any(known.entry.ended_ns is not None for known in self._live):
            self._live = [known for known in self._live if known.entry.ended_ns is None]

    def _take(self, known: _Known, row: tuple[int, int, int, int]) -> None:
        begin_ns, end_ns, kind, load = row
        known.last = None
        if kind == ENDED:
            for span in known.open:
                self._end(span, begin_ns)
            known.open.clear()
        elif kind in CLOSES:
            newest = max(i for i, span in enumerate(known.open) if span.kind == CLOSES[kind])
            self._end(known.open.pop(newest), begin_ns)
        else:
            span = Span(kind, begin_ns, end_ns, load, known.entry)
            insort(self._spans, span, key=attrgetter("begin_ns"))
            self._news_ns = min(self._news_ns, begin_ns)
            if kind == BUSY:
                known.last = span
            else:
                known.open.append(span)

    def _end(self, span: Span, end_ns: int) -> None:
        self._news_ns = min(self._news_ns, self._gone_ns(span), end_ns)
        span.end_ns = end_ns

    @staticmethod
    def _gone_ns(span: Span) -> int:
        return span.end_ns + MERGED_NS if span.kind == BUSY else span.end_ns

    def _rewind(self, before_ns: int) -> None:
        while self._snapshots[-1].t_ns >= before_ns:
            self._snapshots.pop()
        self._state = _copy(self._snapshots[-1])
        kept = bisect_left(self._times, self._state.t_ns)
        del self._times[kept:], self._segments[kept:]
        self._next = bisect_right(self._spans, self._state.t_ns, key=attrgetter("begin_ns"))
        self._settle()

    # -- going on

    def _advance(self, t_ns: int) -> None:
        state = self._state
        while True:
            begin_ns = self._spans[self._next].begin_ns if self._next < len(self._spans) else OPEN
            event_ns = min(begin_ns, self._change_ns, *map(self._gone_ns, state.active))
            if event_ns > t_ns:
                return
            if event_ns > state.t_ns >= self._snapshots[-1].t_ns + _SNAPSHOT_NS:
                self._snapshots = [self._snapshots[0], *self._snapshots[1:][-1:], _copy(state)]
            self._carry_to(event_ns)
            if event_ns == self._change_ns:
                self._change()
            self._begin_and_end(event_ns)
            self._settle()

    def _carry_to(self, t_ns: int) -> None:
        """Sum up what went on since the last event."""
        state, held = self._state, self._segments[-1]
        passed_ns = t_ns - state.t_ns
        passed_s = passed_ns * 1e-9
        state.body_c = self._body_c(state.body_c, held.power_w, passed_s)
        state.energy_j += held.power_w * passed_s
        state.utilized_ns += passed_ns * held.utilization
        if held.sharers:
            if self._on_top():
                state.loaded_ns += passed_ns
            else:
                state.worked_ns += passed_ns
        state.capped_ns += passed_ns if held.event_reasons & SW_POWER_CAP else 0
        state.hot_ns += passed_ns if held.event_reasons & SW_THERMAL else 0
        state.t_ns = t_ns

    def _change(self) -> None:
        """What the GPU does of itself: climb, sink, or follow the heat. Load steps follow from the time loaded."""
        state = self._state
        if not self._loads():
            state.rung -= 1
            state.rung_since_ns = state.t_ns
        elif not self._on_top():
            state.rung += 1
            state.worked_ns = state.loaded_ns = 0
            self._feel_heat()
        elif state.t_ns == self._heat_ns:
            state.thermal_steps += self._heat_sign

    def _begin_and_end(self, t_ns: int) -> None:
        """Let spans of the log begin and end, with what that does to the GPU."""
        state = self._state
        was_busy, had_context = bool(self._loads()), self.count(CONTEXT) > 0
        state.active = [span for span in state.active if self._gone_ns(span) > t_ns]
        while self._next < len(self._spans) and self._spans[self._next].begin_ns <= t_ns:
            state.active.append(self._spans[self._next])
            self._next += 1
        busy, has_context = bool(self._loads()), self.count(CONTEXT) > 0
        if busy and not was_busy:
            self._start_work()
        if was_busy and not busy:
            state.idle_since_ns = state.rung_since_ns = t_ns
        if had_context and not has_context:
            state.rung_since_ns = t_ns
        if has_context and state.rung < self.profile.context_rung:
            state.rung, state.worked_ns, state.rung_since_ns = self.profile.context_rung, 0, t_ns
        held = self.count(CLIENT) > 0
        state.held_since_ns = (state.held_since_ns if state.held_since_ns is not None else t_ns) if held else None

    def _start_work(self) -> None:
        state = self._state
        rest_s = (state.t_ns - state.idle_since_ns) * 1e-9
        if rest_s >= self.profile.forget_s:
            state.worked_ns = 0
        if rest_s >= self.profile.recover_s:
            state.loaded_ns = 0
        self._feel_heat()

    def _feel_heat(self) -> None:
        thermal = self.profile.thermal
        over_c = self._state.body_c - thermal.knee_c
        self._state.thermal_steps = math.floor(over_c / thermal.c_per_step) if over_c > 0 else 0

    # -- what follows from the state

    def _loads(self) -> list[Workload]:
        return [self.loads[span.load] for span in self._state.active if span.kind == BUSY]

    def _on_top(self) -> bool:
        return self._state.rung == len(self.profile.ladder) - 1

    def _body_c(self, body_c: float, power_w: float, passed_s: float) -> float:
        thermal = self.profile.thermal
        settled_c = thermal.ambient_c + thermal.body_c_per_w * power_w
        return settled_c + (body_c - settled_c) * math.exp(-passed_s / thermal.time_constant_s)

    def _settle(self) -> None:
        """Work out what holds from now on, and when the GPU changes of itself."""
        state, rung = self._state, self.profile.ladder[self._state.rung]
        loads = self._loads()
        if loads:
            step, step_ends_ns = self._load_step(loads)
            clocks, power_w, reasons = self._loaded(rung, step)
            utilization = step.utilization
        else:
            step_ends_ns, clocks, power_w, utilization = OPEN, (rung.sm_clock_mhz, rung.sm_clock_mhz), rung.power_w, 0.0
            reasons = GPU_IDLE if state.rung == 0 or self.count(CONTEXT) == 0 else 0
        segment = Segment(
            t_ns=state.t_ns,
            pstate=rung.pstate,
            sm_clock_mhz=clocks[0],
            nvml_clock_mhz=clocks[1],
            mem_clock_mhz=rung.mem_clock_mhz,
            power_w=power_w,
            event_reasons=reasons,
            pcie_gen=rung.pcie_gen,
            utilization=utilization,
            sharers=len(loads),
            body_c=state.body_c,
            energy_j=state.energy_j,
            utilized_ns=state.utilized_ns,
        )
        self._keep(segment)
        self._heat_ns, self._heat_sign = self._heat_change(segment)
        self._change_ns = min(step_ends_ns, self._heat_ns, self._rung_change_ns(rung, busy=bool(loads)))

    def _loaded(self, rung: Rung, step: LoadStep) -> tuple[tuple[float, float], float, int]:
        """True and NVML's SM clock, power and event reasons under load."""
        top = self.profile.ladder[-1]
        if self._on_top():
            slower_mhz = self.profile.thermal.step_mhz * self._state.thermal_steps
            reasons = step.event_reasons | (SW_THERMAL if slower_mhz else 0)
            return (step.sm_clock_mhz - slower_mhz, step.nvml_clock_mhz - slower_mhz), step.power_w, reasons
        power_w = rung.power_w + (step.power_w - top.power_w) * rung.sm_clock_mhz / top.sm_clock_mhz
        return (rung.sm_clock_mhz, rung.sm_clock_mhz), power_w, 0

    def _load_step(self, loads: list[Workload]) -> tuple[LoadStep, int]:
        """The step in force, of the heaviest load, and when the next one is due."""
        steps = max(loads, key=lambda load: load.steps[0].power_w).steps
        if not self._on_top():
            return steps[0], OPEN
        loaded_ns = self._state.loaded_ns
        later = [step for step in steps if _ns(step.after_s) > loaded_ns]
        due_ns = self._state.t_ns + _ns(later[0].after_s) - loaded_ns if later else OPEN
        return steps[len(steps) - len(later) - 1], due_ns

    def _rung_change_ns(self, rung: Rung, *, busy: bool) -> int:
        state = self._state
        if busy:
            return OPEN if self._on_top() else state.t_ns + max(_ns(rung.up_after_s) - state.worked_ns, 0)
        has_context = self.count(CONTEXT) > 0
        if state.rung <= (self.profile.context_rung if has_context else 0):
            return OPEN
        return max(state.rung_since_ns + _ns(rung.down_after_s if has_context else rung.down_alone_s), state.t_ns)

    def _heat_change(self, held: Segment) -> tuple[int, int]:
        """When the body crosses the next threshold of the clock, and whether up (1) or down (-1)."""
        thermal, state = self.profile.thermal, self._state
        if math.isinf(thermal.knee_c) or not held.sharers or not self._on_top():
            return OPEN, 0
        settled_c = thermal.ambient_c + thermal.body_c_per_w * held.power_w
        for sign, steps in ((1, state.thermal_steps + 1), (-1, state.thermal_steps)):
            threshold_c = thermal.knee_c + thermal.c_per_step * steps
            if steps and (settled_c - threshold_c) * sign > 0:
                share = (settled_c - state.body_c) / (settled_c - threshold_c)
                return state.t_ns + max(_ns(thermal.time_constant_s * math.log(max(share, 1.0))), 1), sign
        return OPEN, 0

    def _keep(self, segment: Segment) -> None:
        if len(self._times) >= _TRIM_SEGMENTS:
            old = max(bisect_right(self._times, segment.t_ns - _HISTORY_NS) - 1, 0)
            del self._times[:old], self._segments[:old]
        self._times.append(segment.t_ns)
        self._segments.append(segment)
