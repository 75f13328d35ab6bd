"""Changes of the GPU's state joined to the change of latency around them.

NVML shows a change late: the GPU's sensors are read every 100 to 500 ms. When it really happened is seen in the clock
measured on the GPU, or in the latency itself; the difference is the lag.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gpuwarm.analysis.stretch import Ints, Stretch, stretches
from gpuwarm.machine import event_reason_names
from gpuwarm.recording import Floats, Recording

Kind = Literal["sm_clock", "mem_clock", "pstate", "event_reasons", "power"]
Explained = Literal["yes", "partly", "no", "unknown"]

COLUMNS: dict[Kind, str] = {
    "sm_clock": "sm_clock_mhz",
    "mem_clock": "mem_clock_mhz",
    "pstate": "pstate",
    "event_reasons": "event_reasons",
}
CLOCK_STEP = 0.02  # a smaller step of a clock is its dithering under a cap
LONGEST_LAG_MS = 600.0  # the driver refreshes its sensors every 500 ms at the slowest
AROUND_MS = 250.0  # before and after a change, latencies are compared over this long
MIN_AROUND = 3  # iterations on either side
STANDS_OUT = 25.0  # of a change in the noise's variances (5 sigma), to be what NVML showed late
CLOSE_PCT = 3.0  # points between what is observed and what constant cycles predict: the clock explains it
MOST, SOME = 0.6, 0.25  # of what is predicted


@dataclass(frozen=True)
class Transition:
    """One change of state."""

    start: int
    t_ms: float  # when it was read, since the start's first inference
    kind: Kind
    before: float | str | None  # `from` in JSON
    after: float | str | None  # `to` in JSON
    latency_change_pct: float | None = None
    predicted_by_clock_pct: float | None = None  # if cycles per inference were constant
    explained: Explained = "unknown"
    lag_ms: float | None = None  # how much earlier latency, or the clock on the GPU, changed


@dataclass(frozen=True)
class _Start:
    """What one start's transitions are judged by."""

    stretch: Stretch
    begin_ns: Ints
    latency: Floats  # the GPU's own time where it is known: the caller's also moves with the host
    clock_mhz: Floats | None  # measured on the GPU


def find(recording: Recording, among: Sequence[Stretch] | None = None) -> tuple[Transition, ...]:
    """Every change of state while a sampled start inferred, in order of time; by default of all its stretches."""
    found: list[Transition] = []
    among = stretches(recording) if among is None else among
    for stretch in among:
        starts = recording.meta.starts
        if stretch.start < len(starts) and not starts[stretch.start].sampled:
            continue
        start = _start(recording, stretch)
        joined = []
        by_kind = [_read(recording, start, kind) for kind in COLUMNS]
        lag_ms = _usual_lag_ms([each for read in by_kind for each in read])
        for read in by_kind:
            whens = [_when(each, lag_ms) for each in read]
            neighbours = zip(read, [-np.inf, *whens], [*whens[1:], np.inf], strict=False)
            joined += [_joined(start, each, lag_ms, within_ms) for each, *within_ms in neighbours]
        found += sorted(joined, key=lambda each: each.t_ms)
    return (*found, *_power_limit(recording, among))


def _start(recording: Recording, stretch: Stretch) -> _Start:
    gpu, clock, begin = (recording.iterations[name][stretch.rows] for name in ("gpu_ns", "sm_clock_mhz", "t_ns"))
    latency = gpu if _mostly_known(gpu) else stretch.latency_ms
    return _Start(stretch, begin, latency, clock if _mostly_known(clock) else None)


def _mostly_known(values: Floats) -> bool:
    return bool(np.isfinite(values).mean() > 0.5)  # noqa: PLR2004 -- most


def _read(recording: Recording, start: _Start, kind: Kind) -> list[Transition]:
    """The changes as NVML showed them, with the lag of each that can be told."""
    samples = recording.samples
    inside = (samples["t_ns"] >= start.begin_ns[0]) & (samples["t_ns"] <= start.begin_ns[-1])
    values = samples[COLUMNS[kind]][inside]
    known = np.isfinite(values)
    times_ms = np.interp(samples["t_ns"][inside][known], start.begin_ns, start.stretch.elapsed_ms)
    values = values[known]
    found: list[Transition] = []
    reference = float(values[0]) if values.size else 0.0
    for at in np.flatnonzero(np.diff(values)) + 1:
        value, t_ms = float(values[at]), float(times_ms[at])
        if _changed(kind, reference, value):
            earliest_ms = found[-1].t_ms if found else 0.0
            lag_ms = _lag_ms(start, t_ms, earliest_ms, rises=value > reference) if kind == "sm_clock" else None
            shown = _shown(kind, reference), _shown(kind, value)
            found.append(Transition(start.stretch.start, t_ms, kind, *shown, lag_ms=lag_ms))
            reference = value
    return found


def _changed(kind: Kind, before: float, after: float) -> bool:
    return abs(after - before) > CLOCK_STEP * before if kind.endswith("clock") else after != before


def _shown(kind: Kind, value: float) -> float | str:
    if kind == "event_reasons":
        return ", ".join(event_reason_names(int(value))) or "none"
    return f"P{value:.0f}" if kind == "pstate" else value


def _lag_ms(start: _Start, t_ms: float, earliest_ms: float, *, rises: bool) -> float | None:
    """How long before a reading the clock on the GPU changed the same way, or the latency the other way."""
    first = int(np.searchsorted(start.stretch.elapsed_ms, max(earliest_ms, t_ms - LONGEST_LAG_MS)))
    last = int(np.searchsorted(start.stretch.elapsed_ms, t_ms))
    values = start.latency if start.clock_mhz is None else start.clock_mhz
    up = rises if start.clock_mhz is not None else not rises
    kept = first + np.flatnonzero(np.isfinite(values[first:last]))
    split = _split(values[kept], up=up)
    return None if split is None else float(t_ms - start.stretch.elapsed_ms[kept[split]])


def _split(values: Floats, *, up: bool) -> int | None:
    """Where values change level, in this direction and clearly; None where they do not."""
    n = values.size
    if n < 2 * MIN_AROUND:
        return None
    values = np.clip(values, *np.quantile(values, (0.02, 0.98)))
    counts = np.arange(1, n)
    sums = np.cumsum(values)[:-1]
    rise = (values.sum() - sums) / (n - counts) - sums / counts
    explained = rise * np.abs(rise) * counts * (n - counts) / n * (1 if up else -1)
    explained[: MIN_AROUND - 1] = explained[n - MIN_AROUND :] = 0.0
    explained[np.abs(rise) < CLOCK_STEP / 2 * values.mean()] = 0.0
    best = int(explained.argmax())
    noise = (1.4826 * float(np.median(np.abs(np.diff(values))))) ** 2 / 2  # steps do not count in a median
    return best + 1 if explained[best] > STANDS_OUT * noise and explained[best] > 0 else None


def _usual_lag_ms(read: list[Transition]) -> float | None:
    known = [each.lag_ms for each in read if each.lag_ms is not None]
    return float(np.median(known)) if known else None


def _joined(
    start: _Start, transition: Transition, usual_lag_ms: float | None, within_ms: Sequence[float]
) -> Transition:
    """With the latency around it, up to its neighbours and without the time in which it may have happened."""
    lag_ms = transition.lag_ms if transition.lag_ms is not None else usual_lag_ms
    at_ms = transition.t_ms - (lag_ms or 0.0)
    unsure_ms = AROUND_MS if lag_ms is None else 0.0
    earlier, later = within_ms
    before = _between(start, max(earlier, at_ms - unsure_ms - AROUND_MS), at_ms - unsure_ms)
    after = _between(start, at_ms, min(later, at_ms + AROUND_MS))
    observed = _change_pct(start.latency, before, after)
    predicted = None
    if start.clock_mhz is not None:
        predicted = _change_pct(start.clock_mhz, after, before)  # the other way about: a faster clock takes less time
    elif isinstance(transition.before, float) and isinstance(transition.after, float) and transition.after > 0:
        predicted = (transition.before / transition.after - 1) * 100 if transition.kind == "sm_clock" else None
    return replace(
        transition,
        latency_change_pct=observed,
        predicted_by_clock_pct=predicted,
        explained=_explained(observed, predicted),
        lag_ms=lag_ms,
    )


def _when(transition: Transition, usual_lag_ms: float | None) -> float:
    lag_ms = transition.lag_ms if transition.lag_ms is not None else usual_lag_ms
    return transition.t_ms - (lag_ms or 0.0)


def _between(start: _Start, from_ms: float, to_ms: float) -> slice:
    first, last = np.searchsorted(start.stretch.elapsed_ms, (from_ms, to_ms))
    return slice(int(first), int(last))


def _change_pct(values: Floats, before: slice, after: slice) -> float | None:
    levels = []
    for part in (before, after):
        known = values[part][np.isfinite(values[part])]
        if known.size < MIN_AROUND:
            return None
        levels.append(float(np.median(known)))
    return (levels[1] / levels[0] - 1) * 100 if levels[0] > 0 else None


def _explained(observed: float | None, predicted: float | None) -> Explained:
    """Whether the clock accounts for a change of latency. Memory-bound engines do not follow the SM clock."""
    if observed is None or predicted is None or abs(predicted) < CLOCK_STEP * 100:
        return "unknown"
    share = observed / predicted
    if share < SOME:
        return "no"
    return "yes" if abs(observed - predicted) <= CLOSE_PCT or MOST <= share <= 1 / MOST else "partly"


def _power_limit(recording: Recording, among: Sequence[Stretch]) -> tuple[Transition, ...]:
    """The power limit is read before and after the measurement only."""
    machines = recording.meta.machine_before, recording.meta.machine_after
    before, after = (machine.gpus[0].power_limit_w if machine and machine.gpus else None for machine in machines)
    if before is None or after is None or before == after or not among:
        return ()
    return (Transition(among[-1].start, float(among[-1].elapsed_ms[-1]), "power", before, after),)
