"""What a simulated GPU makes of its load: climb, sink, cap its power, warm up. Pure functions, event by event.

Between two events (work begins or ends, a timer of the GPU runs out) everything is constant or a known exponential,
so the state is carried from event to event and never stepped: hours of rest cost nothing.
"""

import math
from typing import NamedTuple

from gpuwarm.measure.simulation.load_log import BUSY, CLIENT, CONTEXT, OPEN, Span
from gpuwarm.measure.simulation.profiles import GPU_IDLE, SW_POWER_CAP, SW_THERMAL, LoadStep, Profile

_ORIGIN_NS = -3_600_000_000_000  # at rest since an hour before the clock's zero: longer than any time constant


class State(NamedTuple):
    """Everything the future depends on, and sums of the past."""

    t_ns: int
    body_c: float
    rung: int = 0
    worked_ns: int = 0  # towards the next rung
    loaded_ns: int = 0  # on the top rung, since the last rest
    idle_since_ns: int = _ORIGIN_NS
    unused_since_ns: int = _ORIGIN_NS  # the rung: since it was reached, the last work or the last context ended
    thermal_steps: int = 0
    held_since_ns: int | None = None  # since when clients hold the driver without a break
    active: tuple[Span, ...] = ()
    energy_j: float = 0.0
    utilized_ns: float = 0.0
    capped_ns: int = 0
    hot_ns: int = 0

    def count(self, kind: int) -> int:
        """How many clients, contexts or processes at work there are."""
        return [span.kind for span in self.active].count(kind)


class Held(NamedTuple):
    """What holds from one event to the next."""

    state: State  # at the first
    pstate: int
    sm_clock_mhz: float  # true
    nvml_clock_mhz: float
    mem_clock_mhz: float
    power_w: float
    event_reasons: int
    pcie_gen: int
    utilization: float  # share of time with kernels running, 0 to 1
    changes_ns: int  # when the GPU itself changes next, if its load stays as it is
    then_rung: int
    then_thermal_steps: int


def origin(profile: Profile) -> Held:
    """At rest, long ago."""
    return _settled(profile, State(_ORIGIN_NS, _settled_c(profile, profile.ladder[0].power_w)))


def after(profile: Profile, held: Held, t_ns: int, active: tuple[Span, ...]) -> Held:
    """What holds after the next event, at `t_ns`, which leaves these spans active."""
    state = _carried(profile, held, t_ns)
    if t_ns == held.changes_ns:
        state = _changed(profile, held, state)
    return _settled(profile, _loaded(profile, state, active))


def body_c(profile: Profile, held: Held, t_ns: int) -> float:
    """Temperature of the body while `held` holds."""
    settled_c = _settled_c(profile, held.power_w)
    passed_s = (t_ns - held.state.t_ns) * 1e-9
    return settled_c + (held.state.body_c - settled_c) * math.exp(-passed_s / profile.thermal.time_constant_s)


def _settled_c(profile: Profile, power_w: float) -> float:
    return profile.thermal.ambient_c + profile.thermal.body_c_per_w * power_w


def _ns(seconds: float) -> int:
    return OPEN if math.isinf(seconds) else round(seconds * 1e9)


def _on_top(profile: Profile, state: State) -> bool:
    return state.rung == len(profile.ladder) - 1


# -- the events


def _carried(profile: Profile, held: Held, t_ns: int) -> State:
    """Sum up what went on since the last event."""
    state = held.state
    passed_ns = t_ns - state.t_ns
    busy_ns = passed_ns if state.count(BUSY) else 0
    on_top = _on_top(profile, state)
    return state._replace(
        t_ns=t_ns,
        body_c=body_c(profile, held, t_ns),
        worked_ns=state.worked_ns + (0 if on_top else busy_ns),
        loaded_ns=state.loaded_ns + (busy_ns if on_top else 0),
        energy_j=state.energy_j + held.power_w * passed_ns * 1e-9,
        utilized_ns=state.utilized_ns + held.utilization * passed_ns,
        capped_ns=state.capped_ns + (passed_ns if held.event_reasons & SW_POWER_CAP else 0),
        hot_ns=state.hot_ns + (passed_ns if held.event_reasons & SW_THERMAL else 0),
    )


def _changed(profile: Profile, held: Held, state: State) -> State:
    """What the GPU does of itself. The steps of a load need nothing done: they follow from the time loaded."""
    if held.then_rung == state.rung:
        return state._replace(thermal_steps=held.then_thermal_steps)
    climbed = state._replace(rung=held.then_rung, worked_ns=0, loaded_ns=0, unused_since_ns=state.t_ns)
    return climbed._replace(thermal_steps=_thermal_steps(profile, climbed))


def _loaded(profile: Profile, state: State, active: tuple[Span, ...]) -> State:
    """Spans have begun or ended, with what that does to the GPU."""
    before, now = {span.kind for span in state.active}, {span.kind for span in active}
    if BUSY in now - before:
        rest_s = (state.t_ns - state.idle_since_ns) * 1e-9
        state = state._replace(
            worked_ns=0 if rest_s >= profile.forget_s else state.worked_ns,
            loaded_ns=0 if rest_s >= profile.recover_s else state.loaded_ns,
            thermal_steps=_thermal_steps(profile, state),
        )
    rung = max(state.rung, profile.context_rung if CONTEXT in now else 0)
    lifted = rung != state.rung
    held_since_ns = state.t_ns if state.held_since_ns is None else state.held_since_ns
    return state._replace(
        active=active,
        rung=rung,
        idle_since_ns=state.t_ns if BUSY in before - now else state.idle_since_ns,
        unused_since_ns=state.t_ns if lifted or {BUSY, CONTEXT} & (before - now) else state.unused_since_ns,
        held_since_ns=held_since_ns if CLIENT in now else None,
    )


def _thermal_steps(profile: Profile, state: State) -> int:
    over_c = state.body_c - profile.thermal.knee_c
    return math.floor(over_c / profile.thermal.c_per_step) if over_c > 0 else 0


# -- what follows from a state


def _settled(profile: Profile, state: State) -> Held:
    """What holds from now on, and when the GPU changes of itself."""
    if state.count(BUSY):
        return _at_work(profile, state)
    rung = profile.ladder[state.rung]
    has_context = state.count(CONTEXT) > 0
    changes_ns = OPEN
    if state.rung > (profile.context_rung if has_context else 0):
        stay_s = rung.down_after_s if has_context else rung.down_alone_s
        changes_ns = max(state.unused_since_ns + _ns(stay_s), state.t_ns)
    return Held(
        state=state,
        pstate=rung.pstate,
        sm_clock_mhz=rung.sm_clock_mhz,
        nvml_clock_mhz=rung.sm_clock_mhz,
        mem_clock_mhz=rung.mem_clock_mhz,
        power_w=rung.power_w,
        event_reasons=0 if has_context and state.rung else GPU_IDLE,
        pcie_gen=rung.pcie_gen,
        utilization=0.0,
        changes_ns=changes_ns,
        then_rung=state.rung - 1,
        then_thermal_steps=0,
    )


def _at_work(profile: Profile, state: State) -> Held:
    rung, top = profile.ladder[state.rung], profile.ladder[-1]
    workloads = tuple(profile.workloads.values())
    loads = [workloads[span.load] for span in state.active if span.kind == BUSY]
    steps = max(loads, key=lambda load: load.steps[0].power_w).steps  # the heaviest decides
    if not _on_top(profile, state):
        return Held(
            state=state,
            pstate=rung.pstate,
            sm_clock_mhz=rung.sm_clock_mhz,
            nvml_clock_mhz=rung.sm_clock_mhz,
            mem_clock_mhz=rung.mem_clock_mhz,
            power_w=rung.power_w + (steps[0].power_w - top.power_w) * rung.sm_clock_mhz / top.sm_clock_mhz,
            event_reasons=0,
            pcie_gen=rung.pcie_gen,
            utilization=steps[0].utilization,
            changes_ns=state.t_ns + max(_ns(rung.up_after_s) - state.worked_ns, 0),
            then_rung=state.rung + 1,
            then_thermal_steps=0,
        )
    step, step_ends_ns = _load_step(steps, state)
    heat_ns, heat_steps = _next_heat(profile, state, step.power_w)
    slower_mhz = profile.thermal.step_mhz * state.thermal_steps
    return Held(
        state=state,
        pstate=top.pstate,
        sm_clock_mhz=step.sm_clock_mhz - slower_mhz,
        nvml_clock_mhz=step.nvml_clock_mhz - slower_mhz,
        mem_clock_mhz=top.mem_clock_mhz,
        power_w=step.power_w,
        event_reasons=step.event_reasons | (SW_THERMAL if slower_mhz else 0),
        pcie_gen=top.pcie_gen,
        utilization=step.utilization,
        changes_ns=min(step_ends_ns, heat_ns),
        then_rung=state.rung,
        then_thermal_steps=heat_steps if heat_ns <= step_ends_ns else state.thermal_steps,
    )


def _load_step(steps: tuple[LoadStep, ...], state: State) -> tuple[LoadStep, int]:
    """The step in force and when the next one is due."""
    later = [step for step in steps if _ns(step.after_s) > state.loaded_ns]
    due_ns = state.t_ns + _ns(later[0].after_s) - state.loaded_ns if later else OPEN
    return steps[len(steps) - len(later) - 1], due_ns


def _next_heat(profile: Profile, state: State, power_w: float) -> tuple[int, int]:
    """When the body crosses the next threshold of the clock, and how many steps the clock is down from then on."""
    thermal, settled_c = profile.thermal, _settled_c(profile, power_w)
    if math.isinf(thermal.knee_c):
        return OPEN, 0
    for sign, steps in ((1, state.thermal_steps + 1), (-1, state.thermal_steps)):
        beyond_c = settled_c - (thermal.knee_c + thermal.c_per_step * steps)
        if steps and beyond_c * sign > 0:
            wait_s = thermal.time_constant_s * math.log(max((settled_c - state.body_c) / beyond_c, 1.0))
            return state.t_ns + max(_ns(wait_s), 1), state.thermal_steps + sign
    return OPEN, 0
