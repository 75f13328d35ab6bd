"""Changes of the GPU's state joined to the change of latency around them."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.stretch import Stretch, stretches
from gpuwarm.machine import event_reason_names
from gpuwarm.recording import Floats, Recording

Kind = Literal["sm_clock", "mem_clock", "pstate", "event_reasons", "power"]


@dataclass(frozen=True)
class Transition:
    """One change of state."""

    start: int
    t_ms: float  # since the start's first inference
    kind: Kind
    before: float | str | None  # `from` in JSON
    after: float | str | None  # `to` in JSON
    latency_change_pct: float | None = None
    predicted_by_clock_pct: float | None = None  # if cycles per inference were constant
    explained: Literal["yes", "partly", "no", "unknown"] = "unknown"


def find(recording: Recording) -> tuple[Transition, ...]:
    """Every change of state while a sampled start inferred, in order of time."""
    found: list[Transition] = []
    for stretch in stretches(recording):
        starts = recording.meta.starts
        if stretch.start < len(starts) and not starts[stretch.start].sampled:
            continue
        begin_ns = recording.iterations["t_ns"][stretch.rows]
        samples = recording.samples
        inside = (samples["t_ns"] >= begin_ns[0]) & (samples["t_ns"] <= begin_ns[-1])
        for kind, column in COLUMNS.items():
            values = samples[column][inside]
            times = samples["t_ns"][inside][np.isfinite(values)]
            values = values[np.isfinite(values)]
            for at in np.flatnonzero(_changed(kind, values)) + 1:
                row = int(np.searchsorted(begin_ns, times[at]))
                t_ms = float(np.interp(times[at], begin_ns, stretch.elapsed_ms))
                found.append(_transition(stretch, row, t_ms, kind, (float(values[at - 1]), float(values[at]))))
    return tuple(sorted(found, key=lambda each: (each.start, each.t_ms)))


COLUMNS: dict[Kind, str] = {
    "sm_clock": "sm_clock_mhz",
    "mem_clock": "mem_clock_mhz",
    "pstate": "pstate",
    "event_reasons": "event_reasons",
}
CLOCK_STEP = 0.02  # a smaller step of a clock is its dithering under a cap
AROUND_MS = 250.0  # before and after a change, latencies are compared over this long: NVML reads up to this late


def _changed(kind: Kind, values: Floats) -> NDArray[np.bool_]:
    step = np.abs(np.diff(values))
    return step > CLOCK_STEP * values[:-1] if kind.endswith("clock") else step > 0


def _transition(stretch: Stretch, row: int, t_ms: float, kind: Kind, values: tuple[float, float]) -> Transition:
    before = stretch.latency_ms[:row][stretch.elapsed_ms[:row] >= t_ms - AROUND_MS]
    after = stretch.latency_ms[row:][stretch.elapsed_ms[row:] <= t_ms + AROUND_MS]
    change = float(np.median(after) / np.median(before) - 1) * 100 if before.size and after.size else None
    # A GPU that is switched off reads 0 MHz.
    predicted = (values[0] / values[1] - 1) * 100 if kind == "sm_clock" and values[1] > 0 else None
    shown: list[float | str] = [_shown(kind, value) for value in values]
    return Transition(stretch.start, t_ms, kind, shown[0], shown[1], change, predicted)


def _shown(kind: Kind, value: float) -> float | str:
    if kind == "event_reasons":
        return ", ".join(event_reason_names(int(value))) or "none"
    return f"P{value:.0f}" if kind == "pstate" else value
