"""Where a cold start's time goes, and (between controlled runs) what causes it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from gpuwarm.analysis.words import median
from gpuwarm.metadata import Start
from gpuwarm.recording import Recording, Rows

BEGIN = "process_start"
END = "first_inference"
OWN = "gpuwarm"  # ends what the worker imports for gpuwarm itself: no step of a user's own program
COLD_PHASE = "first"  # name of the phase that holds a start's two cold inferences
_NS_PER_MS = 1e6
_STEP_NAMES = {
    "interpreter": "Python",
    "python": "Python, gpuwarm",  # of recordings in which the two are one step
    "gpuwarm": "gpuwarm's own imports",
    "cuda_import": "import CUDA",
    "driver_init": "initialise driver",
    "context": "CUDA context",
    "tensorrt_import": "import TensorRT",
    "runtime": "TensorRT runtime",
    "deserialise": "deserialise engine",
    "sm_clock": "gpuwarm's SM-clock stamps",
}


@dataclass(frozen=True)
class ColdPhase:
    """One step of a cold start over all starts, named by the mark that ends it."""

    name: str
    median_ms: float
    interval_ms: tuple[float, float] | None  # range over the starts
    share_pct: float  # of the median total
    unsampled_ms: float | None = None  # median over the starts without an NVML client of ours
    unsampled_interval_ms: tuple[float, float] | None = None


@dataclass(frozen=True)
class ColdStart:
    """From process start to the first result, gpuwarm's own imports left out."""

    phases: tuple[ColdPhase, ...]
    total_ms: float | None  # None: the steps were not recorded, only the first inferences
    first_ms: float | None  # latency of the first inference to synchronised, median over starts
    second_ms: float | None
    starts: int
    unsampled_total_ms: float | None = None  # with no NVML client of ours alive, where that was measured
    unsampled_starts: int = 0
    first_gpu_ms: float | None = None  # the GPU's part of it
    second_gpu_ms: float | None = None
    total_interval_ms: tuple[float, float] | None = None
    first_start_ms: float | None = None  # total of the start that ran first: the only one with cold file caches
    own_ms: float | None = None  # median of gpuwarm's own imports, which are in no other number here


def cold_start(recording: Recording) -> ColdStart | None:
    """Medians and ranges over the starts that were sampled, those without sampling apart.

    None where neither the steps of a start nor its cold inferences were recorded. Where every start was without
    sampling, those are the starts.
    """
    whole = [start for start in recording.meta.starts if first_result_ms(start) is not None]
    apart = [start for start in whole if not start.sampled]
    together = [start for start in whole if start.sampled] or apart
    first, second = (_cold_inferences(recording, number) for number in (0, 1))
    if not together and not first.size:
        return None
    totals = _totals_ms(together)
    total_ms = median(totals)
    unsampled = [] if apart is together else apart
    return ColdStart(
        phases=_phases(together, unsampled, total_ms),
        total_ms=total_ms,
        first_ms=_median_ms(first, "host_ns"),
        second_ms=_median_ms(second, "host_ns"),
        starts=len(together) or int(first.size),
        unsampled_total_ms=median(_totals_ms(unsampled)),
        unsampled_starts=len(unsampled),
        first_gpu_ms=_median_ms(first, "gpu_ns"),
        second_gpu_ms=_median_ms(second, "gpu_ns"),
        total_interval_ms=_range(totals),
        first_start_ms=totals[0] if totals else None,
        own_ms=median([own for own in map(_own_ms, together) if own is not None]),
    )


def driver_load_masked(cold: ColdStart) -> ColdPhase | None:
    """The driver's initialisation, where it took longer in every start without an NVML client of ours than in any with.

    With five starts and three apart that happens by chance once in 56 times.
    """
    for phase in cold.phases:
        if phase.name == "driver_init" and phase.interval_ms and phase.unsampled_interval_ms:
            slower = phase.unsampled_interval_ms[0] > phase.interval_ms[1]
            return phase if slower else None
    return None


def _phases(together: Sequence[Start], apart: Sequence[Start], total_ms: float | None) -> tuple[ColdPhase, ...]:
    if not total_ms:
        return ()
    durations = [steps_ms(start) for start in together]
    durations_apart = [steps_ms(start) for start in apart]
    names = dict.fromkeys(name for steps in durations for name in steps)
    return tuple(
        _phase(name, _column(durations, name), _column(durations_apart, name), total_ms=total_ms) for name in names
    )


def _phase(name: str, together: Sequence[float], apart: Sequence[float], *, total_ms: float) -> ColdPhase:
    median_ms = float(np.median(together))
    return ColdPhase(
        name=name,
        median_ms=median_ms,
        interval_ms=_range(together),
        share_pct=100 * median_ms / total_ms,
        unsampled_ms=median(apart),
        unsampled_interval_ms=_range(apart),
    )


def _column(durations: Iterable[dict[str, float]], name: str) -> list[float]:
    return [steps[name] for steps in durations if name in steps]


def steps_ms(start: Start) -> dict[str, float]:
    """How long each step took, from the process's birth to the first result or as far as it came."""
    steps = _all_steps_ms(start)
    return {name: took_ms for name, took_ms in steps.items() if name != OWN}


def _all_steps_ms(start: Start) -> dict[str, float]:
    """Each mark's time since the one before."""
    marks = sorted(start.marks, key=lambda mark: mark.t_ns)
    names = [mark.name for mark in marks]
    begin = names.index(BEGIN) if BEGIN in names else 0
    end = names.index(END) + 1 if END in names else None
    return {after.name: (after.t_ns - before.t_ns) / _NS_PER_MS for before, after in pairwise(marks[begin:end])}


def _own_ms(start: Start) -> float | None:
    return _all_steps_ms(start).get(OWN)


def step_name(mark: str) -> str:
    """What the step that ends with this mark does."""
    return _STEP_NAMES.get(mark, mark.replace("_", " "))


def first_result_ms(start: Start) -> float | None:
    """From the process's birth to the first result; None where that was not recorded, or not reached."""
    times = {mark.name: mark.t_ns for mark in start.marks}
    if BEGIN not in times or END not in times or times[END] <= times[BEGIN]:
        return None
    return sum(steps_ms(start).values())


def _totals_ms(starts: Iterable[Start]) -> list[float]:
    return [total for total in map(first_result_ms, starts) if total is not None]


def _cold_inferences(recording: Recording, number: int) -> Rows:
    """The first (0) or second (1) row of every sampled start, or of every start where none was sampled."""
    starts = recording.meta.starts
    cold = [i for i, start in enumerate(starts) if start.phases and start.phases[0].name == COLD_PHASE]
    chosen = [i for i in cold if starts[i].sampled] or cold
    rows = recording.iterations[recording.iterations["phase"] == 0]
    per_start = [rows[rows["start"] == i] for i in chosen]
    return np.concatenate([rows[:0], *[own[number : number + 1] for own in per_start]])


def _median_ms(rows: Rows, name: str) -> float | None:
    middle_ns = median(rows[name])
    return None if middle_ns is None else middle_ns / _NS_PER_MS


def _range(values: Sequence[float]) -> tuple[float, float] | None:
    return (min(values), max(values)) if len(values) > 1 else None
