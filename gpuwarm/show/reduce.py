"""What a million rows look like in a thousand pixels: numbers to draw and to export, no drawing."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.stretch import Stretch
from gpuwarm.machine import EVENT_REASONS
from gpuwarm.recording import Floats, Recording, Rows

Integers = NDArray[np.intp]
STALE_S = 1.0  # NVML renews a reading every 20 to 500 ms; an older sample says nothing about an iteration
PAUSE_FACTOR = 8  # times the usual distance between two rows: nothing ran between them


@dataclass(frozen=True)
class StartView:
    """One start's rows, with their times in seconds since its first inference (its first sample if there is none)."""

    number: int
    zero_ns: int
    iterations: Rows
    samples: Rows
    iteration_s: Floats
    sample_s: Floats
    process_start_s: float | None


@dataclass(frozen=True)
class Span:
    """A stretch of time over which a value stayed the same."""

    begin_s: float
    end_s: float
    value: float


@dataclass(frozen=True)
class Bins:
    """What happened in each of some stretches of time that hold anything, NaN where a pause lies between; all (n,)."""

    middle_s: Floats
    median: Floats
    low: Floats
    high: Floats


def start_numbers(recording: Recording) -> list[int]:
    """The starts that have iterations; [0] where a recording has none."""
    return [int(number) for number in np.unique(recording.iterations["start"])] or [0]


def start_view(recording: Recording, number: int) -> StartView:
    """The rows of one start; its samples reach from the end of the start before it to the begin of the one after."""
    everything = recording.iterations
    iterations = everything[everything["start"] == number]
    before = everything["t_ns"][everything["start"] < number]
    following = [_begin_ns(recording, later) for later in start_numbers(recording) if later > number]
    times = recording.samples["t_ns"]
    first = np.searchsorted(times, before.max(), "right") if before.size else 0
    last = np.searchsorted(times, following[0]) if following else len(times)
    samples = recording.samples[first:last]
    zero_ns = next((int(rows["t_ns"].min()) for rows in (iterations, samples) if len(rows)), 0)
    marked = number < len(recording.meta.starts) and recording.meta.starts[number].marks
    return StartView(
        number=number,
        zero_ns=zero_ns,
        iterations=iterations,
        samples=samples,
        iteration_s=(iterations["t_ns"] - zero_ns) * 1e-9,
        sample_s=(samples["t_ns"] - zero_ns) * 1e-9,
        process_start_s=(_begin_ns(recording, number) - zero_ns) * 1e-9 if marked and len(iterations) else None,
    )


def _begin_ns(recording: Recording, number: int) -> int:
    starts = recording.meta.starts
    if number < len(starts) and starts[number].marks:
        return starts[number].marks[0].t_ns
    return int(recording.iterations["t_ns"][recording.iterations["start"] == number].min())


def moment_s(recording: Recording, stretch: Stretch, elapsed_ms: float, *, zero_ns: int) -> float | None:
    """When a start had inferred for so long, its pauses not counted; None where it ended before."""
    if elapsed_ms > stretch.elapsed_ms[-1]:
        return None
    begins_s = (recording.iterations["t_ns"][stretch.rows] - zero_ns) * 1e-9
    return float(np.interp(elapsed_ms, stretch.elapsed_ms, begins_s))


def newest_sample(recording: Recording) -> Integers:
    """For each iteration the newest sample begun before it ended: its index, -1 where all are older than STALE_S."""
    iterations, times = recording.iterations, recording.samples["t_ns"]
    ends = iterations["t_ns"] + np.nan_to_num(iterations["host_ns"]).astype(np.int64)
    found: Integers = np.searchsorted(times, ends, "right") - 1
    age_ns = ends - times[found] if times.size else np.zeros(len(ends), np.int64)
    found[age_ns > STALE_S * 1e9] = -1
    return found


def bins(time_s: Floats, values: Floats, edges_s: Floats) -> Bins:
    """Median, lowest and highest value between consecutive edges; `time_s` ascends, NaN are left out."""
    known = np.isfinite(values)
    time_s, values = time_s[known], values[known]
    cuts = np.searchsorted(time_s, edges_s)
    filled = np.flatnonzero(np.diff(cuts))
    if not filled.size:
        return Bins(*np.empty((4, 0)))
    parts = [values[cuts[k] : cuts[k + 1]] for k in filled]
    table = np.array([(np.median(part), part.min(), part.max()) for part in parts])
    middles = (edges_s[filled] + edges_s[filled + 1]) / 2
    quiet_s = time_s[cuts[filled[1:]]] - time_s[cuts[filled[:-1] + 1] - 1]
    usual_s = np.median(np.diff(time_s)) if len(time_s) > 1 else 0.0
    pauses = np.flatnonzero(quiet_s > max(PAUSE_FACTOR * usual_s, edges_s[1] - edges_s[0])) + 1
    return Bins(*(np.insert(column, pauses, np.nan) for column in (middles, *table.T)))


def thinned(time_s: Floats, values: Floats, edges_s: Floats) -> Integers:
    """Indices of the first, last, lowest and highest value between consecutive edges: the same line to the eye."""
    known = np.flatnonzero(np.isfinite(values))
    cuts = np.searchsorted(time_s[known], edges_s)
    kept: set[np.intp] = set()
    for begin, end in pairwise(cuts):
        part = known[begin:end]
        if part.size:
            kept.update((part[0], part[-1], part[values[part].argmin()], part[values[part].argmax()]))
    return np.array(sorted(kept), np.intp)


def spans(time_s: Floats, values: Floats, end_s: float) -> list[Span]:
    """Runs of one value, each lasting until the next sample after it; NaN makes a gap."""
    if not len(values):
        return []
    first = np.concatenate([[0], np.flatnonzero(values[1:] != values[:-1]) + 1])
    until = np.append(time_s[first[1:]], end_s)
    return [
        Span(float(time_s[index]), float(end), float(values[index]))
        for index, end in zip(first, until, strict=True)
        if np.isfinite(values[index])
    ]


def reasons_active(samples: Rows) -> dict[str, Floats]:
    """Each event reason that was ever set: 1 where it is, 0 where it is not, NaN where that is not known."""
    reasons = samples["event_reasons"]
    known = np.isfinite(reasons)
    bits = np.where(known, reasons, 0).astype(np.int64)
    ever = int(np.bitwise_or.reduce(bits)) if bits.size else 0
    return {name: np.where(known, bits & bit != 0, np.nan) for bit, name in EVENT_REASONS.items() if ever & bit}


def extremes(values: Floats, count: int) -> Floats:
    """The `count` values farthest from the median, all of them where there are no more."""
    return values if len(values) <= count else values[np.argsort(-np.abs(values - np.median(values)))[:count]]
