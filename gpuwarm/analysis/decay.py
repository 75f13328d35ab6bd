"""How clock and P-state fall once nothing runs any more: with the context alive, and after the process."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarm.analysis import controlled
from gpuwarm.recording import Floats, Recording, Rows

GRID_S = 0.05  # half of a data-centre GPU's refresh: each renewal is seen
SAME_SHARE = 0.02  # clocks this near are one step
RISE = 1.25  # times the lowest before: then it is used again, by somebody else; at rest it flickers by a tenth
LATE_NS = 500_000_000  # NVML may show the rise under load this late
LONGEST_S = 120.0  # after which nobody waits for a further step


@dataclass(frozen=True)
class Step:
    """From then on this clock."""

    after_s: float
    sm_clock_mhz: float
    pstate: int | None


@dataclass(frozen=True)
class Decay:
    """The usual course after the last inference, by NVML, which is late by up to 0.25 s."""

    situation: str
    steps: tuple[Step, ...]
    settled_s: float  # when the last step was taken
    seen_s: float  # how long it was looked at
    courses: int  # it is the median over


def in_pauses(recording: Recording, situation: str) -> Decay | None:
    """In the longest pauses of a situation; None where nothing was sampled."""
    spans = []
    for index, start in enumerate(recording.meta.starts):
        if start.arm != situation:
            continue
        rows = recording.iterations[recording.iterations["start"] == index]
        for number, phase in enumerate(start.phases):
            before, after = rows[rows["phase"] < number], rows[rows["phase"] == number]
            if phase.pause_s and before.size and after.size:
                spans.append((_end_ns(before), int(after["t_ns"][0])))
    longest_ns = max((end - begin for begin, end in spans), default=0)
    return _usual(recording, [span for span in spans if span[1] - span[0] > 0.9 * longest_ns], situation)


def after_processes(recording: Recording) -> Decay | None:
    """From each process's last inference to the next process, or to the end of sampling."""
    spans = []
    starts = recording.meta.starts
    disturbed = controlled.disturbances(recording.meta)
    for index in range(len(starts)):
        if index in disturbed or index + 1 in disturbed:  # by whom, may have been there in between
            continue
        rows = recording.iterations[recording.iterations["start"] == index]
        following = starts[index + 1].marks if index + 1 < len(starts) else ()
        last_ns = int(recording.samples["t_ns"][-1]) if recording.samples.size else 0
        if rows.size and starts[index].sampled:
            spans.append((_end_ns(rows), following[0].t_ns if following else last_ns))
    return _usual(recording, spans, "no-context")


def _end_ns(rows: Rows) -> int:
    return int(rows["t_ns"][-1]) + round(float(rows["host_ns"][-1]))


def _usual(recording: Recording, spans: Sequence[tuple[int, int]], situation: str) -> Decay | None:
    """The median course on a grid of time, as steps; a course counts as long as it lasts."""
    samples = recording.samples[np.isfinite(recording.samples["sm_clock_mhz"])]
    spans = [(begin, _used_again(samples, begin, end)) for begin, end in spans]
    longest_s = min(max(((end - begin) * 1e-9 for begin, end in spans), default=0.0), LONGEST_S)
    grid_s = np.arange(0.0, longest_s, GRID_S)
    if not samples.size or not grid_s.size:
        return None
    clocks, pstates = (
        np.array([_course(samples, name, begin, end, grid_s) for begin, end in spans])
        for name in ("sm_clock_mhz", "pstate")
    )
    steps: list[Step] = []
    for after_s, seen_mhz, seen_pstates in zip(grid_s, clocks.T, pstates.T, strict=True):
        mhz, pstate = _middle(seen_mhz), _middle(seen_pstates)
        if mhz is None or (steps and abs(mhz - steps[-1].sm_clock_mhz) <= SAME_SHARE * steps[-1].sm_clock_mhz):
            continue
        steps.append(Step(round(float(after_s), 3), mhz, None if pstate is None else round(pstate)))
    return Decay(situation, tuple(steps), steps[-1].after_s, longest_s, len(spans)) if steps else None


def _used_again(samples: Rows, begin_ns: int, end_ns: int) -> int:
    """When the clock rises again within a span, or its end."""
    within = samples[(samples["t_ns"] > begin_ns + LATE_NS) & (samples["t_ns"] <= end_ns)]
    rises = within["sm_clock_mhz"] > RISE * np.minimum.accumulate(within["sm_clock_mhz"])
    return int(within["t_ns"][rises][0]) - 1 if rises.any() else end_ns


def _middle(values: Floats) -> float | None:
    """The lower median of what is known: a value that was read, where courses out of step differ."""
    known = np.sort(values[np.isfinite(values)])
    return float(known[(known.size - 1) // 2]) if known.size else None


def _course(samples: Rows, name: str, begin_ns: int, end_ns: int, grid_s: Floats) -> Floats:
    """The newest value at each time of the grid; NaN after the end, or where none is known."""
    times = begin_ns + np.round(grid_s * 1e9).astype(np.int64)
    newest = np.searchsorted(samples["t_ns"], times, "right") - 1
    values = np.where(newest >= 0, samples[name][np.maximum(newest, 0)], math.nan)
    values[times > end_ns] = math.nan
    return values
