"""The starts of a study by arm, in numbers; those that something from outside has disturbed are left out."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarm.analysis import causes
from gpuwarm.analysis.switches import ALL_COLD, FILE_DROPPED, FIRST, JIT_FORBIDDEN, PREDECESSOR
from gpuwarm.analysis.words import count
from gpuwarm.metadata import Metadata, Start
from gpuwarm.recording import Recording, Rows

FILE_DROPPED_PCT = 1.0  # of a file in memory at most, where it counts as dropped
EARLY_ITERATIONS = 5  # right after the two cold ones: as slow as the GPU is before it is warm
HEATED = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")  # reasons that come from outside
BEFORE_DRIVER = ("interpreter", "cuda_import")  # steps
NOT_COMPARED = (FIRST, JIT_FORBIDDEN, PREDECESSOR)  # arms


@dataclass(frozen=True)
class Run:
    """One undisturbed start that gave a result."""

    total_ms: float  # from process start to the first result
    driver_ms: float  # of that, from its first call of the driver on: no switch changes what comes before
    steps_ms: dict[str, float]
    first_ms: float  # latency of the first inference
    early_ms: float | None  # of those after the two cold ones; None: not enough of them
    steady_ms: float | None

    @property
    def once_ms(self) -> float | None:
        """What the first inference took longer than those soon after it."""
        return None if self.early_ms is None else self.first_ms - self.early_ms

    @property
    def until_warm_ms(self) -> float | None:
        """What those took longer than steady ones."""
        return None if self.early_ms is None or self.steady_ms is None else self.early_ms - self.steady_ms


def runs(recording: Recording) -> dict[str, list[Run]]:
    """By arm."""
    disturbed = disturbances(recording.meta)
    found: dict[str, list[Run]] = {}
    for index, start in enumerate(recording.meta.starts):
        total_ms = causes.first_result_ms(start)
        rows = recording.iterations[recording.iterations["start"] == index]
        if total_ms is not None and rows.size and index not in disturbed and start.arm not in NOT_COMPARED:
            found.setdefault(start.arm, []).append(_run(start, total_ms, rows))
    return found


def _run(start: Start, total_ms: float, rows: Rows) -> Run:
    latency_ms = rows["host_ns"] / 1e6
    later_ms = latency_ms[rows["phase"] > 0]
    enough = later_ms.size >= 2 * EARLY_ITERATIONS
    steps_ms = causes.steps_ms(start)
    return Run(
        total_ms=total_ms,
        driver_ms=total_ms - sum(steps_ms.get(name, 0.0) for name in BEFORE_DRIVER),
        steps_ms=steps_ms,
        first_ms=float(latency_ms[0]),
        early_ms=float(np.median(later_ms[:EARLY_ITERATIONS])) if enough else None,
        steady_ms=float(np.median(later_ms[later_ms.size // 2 :])) if enough else None,
    )


def by_step(found: Sequence[Run]) -> dict[str, list[float]]:
    """The durations of every step, in the order of the steps."""
    names = dict.fromkeys(name for run in found for name in run.steps_ms)
    return {name: [run.steps_ms[name] for run in found if name in run.steps_ms] for name in names}


def disturbances(meta: Metadata) -> dict[int, str]:
    """Starts that something from outside has changed, and what.

    Heat in most of the starts is how this GPU runs, and no disturbance.
    """
    compared = [index for index, start in enumerate(meta.starts) if start.arm not in NOT_COMPARED]
    hot = [index for index in compared if _heated(meta.starts[index])]
    found = {}
    for index, start in enumerate(meta.starts):
        reason = None if start.arm == JIT_FORBIDDEN else _disturbed(start, meta)  # that one's failure is an answer
        if reason is None and index in hot and 2 * len(hot) <= len(compared):
            reason = "heat or the power supply held the clock down"
        if reason is not None:
            found[index] = reason
    return found


def _disturbed(start: Start, meta: Metadata) -> str | None:
    gpus = () if meta.machine_before is None else meta.machine_before.gpus
    known = {process.pid for gpu in gpus for process in gpu.processes or ()}
    came = [process for process in start.neighbours or () if process.pid not in known]
    if start.failure is not None:
        return "cut short"
    if start.disturbed is not None:
        return start.disturbed
    if came:
        return f"{came[0].name or 'a process'} (pid {came[0].pid}) had come to this GPU"
    cached_pct = start.engine_file_cached_pct
    if start.arm in (FILE_DROPPED, ALL_COLD) and cached_pct is not None and cached_pct > FILE_DROPPED_PCT:
        return f"{cached_pct:.0f} % of the engine file had stayed in memory"
    return None


def _heated(start: Start) -> bool:
    before, after = start.counters_before_us, start.counters_after_us
    return any(name in before and name in after and after[name] > before[name] for name in HEATED)


def sentences(meta: Metadata) -> tuple[str, ...]:
    """How many starts were left out, by reason, and how many were made in their place."""
    reasons = Counter(disturbances(meta).values())
    made_again = meta.study.made_again if meta.study is not None else 0
    of = f"of {count(len(meta.starts), 'start')} left out"
    return (
        *(f"{times} {of}: {reason}" for reason, times in reasons.items()),
        *([f"{count(made_again, 'start')} made again in place of those"] if made_again else []),
    )
