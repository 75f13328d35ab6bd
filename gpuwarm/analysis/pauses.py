"""The pauses of a recording of `idle`: what the first inferences after each were like, and the state just before."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuwarm.analysis import causes, controlled
from gpuwarm.analysis.limits import HOST_BOUND_ENQUEUE_SHARE
from gpuwarm.analysis.words import median
from gpuwarm.metadata import Start
from gpuwarm.recording import Floats, Recording, Rows

ALIVE, KEPT, GONE = "context-alive", "keep-alive", "no-context"  # arms of `idle`
MIN_ITERATIONS = 10  # after a pause: fewer do not tell what steady is
SMOOTHED = 5  # iterations a median is taken over, so that one outlier is no return to cold
WARM_SHARE = 0.05  # slower than steady at most, where the way back to steady is over
SENSOR_LAG_NS = 500_000_000  # power in the first of a pause may still be that of the work before it


@dataclass(frozen=True)
class Pause:
    """One pause and what followed it."""

    situation: str
    keep_alive_ms: float | None
    gap_s: float  # as planned
    first_ms: float
    second_ms: float | None
    steady_ms: float  # of the same burst
    first_on_gpu_ms: float | None  # these two are None where the GPU waited for the host's launches
    steady_on_gpu_ms: float | None
    first_enqueue_ms: float | None
    steady_enqueue_ms: float | None
    until_steady: int | None  # iterations
    sm_clock_mhz: float | None
    pstate: float | None
    power_w: float | None
    first_result_ms: float | None

    @property
    def slower(self) -> float:
        """The first inference against steady ones, relative."""
        return self.first_ms / self.steady_ms - 1

    @property
    def slower_on_gpu(self) -> float | None:
        """The same of its time on the GPU."""
        if self.first_on_gpu_ms is None or self.steady_on_gpu_ms is None:
            return None
        return self.first_on_gpu_ms / self.steady_on_gpu_ms - 1


def pauses(recording: Recording) -> list[Pause]:
    """Those of undisturbed starts, in the order they were made."""
    disturbed = controlled.disturbances(recording.meta)
    return [
        pause
        for index, start in enumerate(recording.meta.starts)
        if index not in disturbed
        for pause in _of_start(recording, index, start)
    ]


def _of_start(recording: Recording, index: int, start: Start) -> Iterator[Pause]:
    rows = recording.iterations[recording.iterations["start"] == index]
    if start.arm == GONE:
        if start.rest is not None and start.marks and rows.size >= MIN_ITERATIONS:
            begin_ns = start.marks[0].t_ns
            yield _pause(recording, start, rows, (begin_ns - round(start.rest.waited_s * 1e9), begin_ns))
        return
    for number, phase in enumerate(start.phases):
        burst = rows[rows["phase"] == number]
        if phase.pause_s and burst.size >= MIN_ITERATIONS:
            begin_ns = int(burst["t_ns"][0])
            yield _pause(recording, start, burst, (begin_ns - round(phase.pause_s * 1e9), begin_ns))


def _pause(recording: Recording, start: Start, burst: Rows, span_ns: tuple[int, int]) -> Pause:
    """The pause of that span, with the inferences that follow it."""
    phase = start.phases[int(burst["phase"][0])]
    latency_ms = burst["host_ns"] / 1e6
    # On an H200 the first enqueue after 10 ms of rest takes 200 us instead of 80, and the GPU just as long.
    waited = burst["enqueue_ns"] >= HOST_BOUND_ENQUEUE_SHARE * burst["gpu_ns"]
    on_gpu_ms = np.where(waited, math.nan, burst["gpu_ns"] / 1e6)
    later = slice(latency_ms.size // 2, None)
    steady_ms = float(np.median(latency_ms[later]))
    samples = recording.samples[(recording.samples["t_ns"] > span_ns[0]) & (recording.samples["t_ns"] <= span_ns[1])]
    settled = samples[samples["t_ns"] > span_ns[0] + SENSOR_LAG_NS]
    power_mw = settled["power_mw"][np.isfinite(settled["power_mw"])]
    gone = start.arm == GONE
    return Pause(
        situation=start.arm,
        keep_alive_ms=phase.keep_alive_ms,
        gap_s=start.rest.waited_s if gone and start.rest is not None else phase.pause_s,
        first_ms=float(latency_ms[0]),
        second_ms=float(latency_ms[1]),
        steady_ms=steady_ms,
        first_on_gpu_ms=_known(on_gpu_ms[0]),
        steady_on_gpu_ms=median(on_gpu_ms[later]),
        first_enqueue_ms=_known(burst["enqueue_ns"][0] / 1e6),
        steady_enqueue_ms=median(burst["enqueue_ns"][later] / 1e6),
        until_steady=_until_steady(latency_ms, steady_ms),
        sm_clock_mhz=_newest(samples, "sm_clock_mhz"),
        pstate=_newest(samples, "pstate"),
        power_w=float(np.mean(power_mw)) / 1e3 if power_mw.size else None,
        first_result_ms=causes.first_result_ms(start) if gone else None,
    )


def _until_steady(latency_ms: Floats, steady_ms: float) -> int | None:
    """How many iterations pass before those from there on are, in the median, as fast as steady ones; None: never."""
    windows = np.lib.stride_tricks.sliding_window_view(latency_ms, SMOOTHED)
    warm = (np.median(windows, axis=1) <= steady_ms * (1 + WARM_SHARE)) & (
        windows[:, 0] <= steady_ms * (1 + WARM_SHARE)
    )
    return int(warm.argmax()) if warm.any() else None


def _newest(samples: Rows, name: str) -> float | None:
    known = samples[name][np.isfinite(samples[name])]
    return float(known[-1]) if known.size else None


def _known(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None
