"""How far a recording's numbers can be trusted, and every reason against it."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.steady import Judgement
from gpuwarm.analysis.words import count, number
from gpuwarm.machine import GpuProcess, MachineState
from gpuwarm.metadata import Metadata, Sampling
from gpuwarm.recording import Recording

Verdict = Literal["trusted", "degraded", "unusable"]
VERDICTS: tuple[Verdict, ...] = ("unusable", "degraded", "trusted")  # worst first

MIN_STARTS = 3  # from two, the next start is slower than both once in three times
MAX_SAMPLING_CPU_PCT = 15.0  # of a core; the sampler stays below it at 1 kHz, ten times the default rate
MAX_READING_SHARE = 0.05  # of the time inside NVML, whose locks a launch may have to wait for
MIN_DEADLINES_KEPT_PCT = 95.0  # late readings carry their own time; below this the host was too busy to time on
MAX_UTILIZATION_PCT = 5.0  # before the first start; NVML counts a desktop's redraws as 1 to 3 %
MAX_UNSEEN_S = 1.0  # without a sample at the end: ten refreshes of a data-centre GPU's sensors
_GRAPHICS = "G"  # a display server: idle beside the measurement, though it may draw


def verdict(
    recording: Recording, judged: Judgement, throttling: Finding, unrest: Finding | None = None, *, starts: int
) -> tuple[Verdict, tuple[str, ...]]:
    """The worst grade that any reason gives, and all reasons, worst first; `starts` is how many gave latencies."""
    reasons = [*_unusable(recording, judged)]
    worst: Verdict = "unusable" if reasons else "trusted"
    lesser = [*_doubts(recording, throttling, starts)]
    if judged.steady is not None and unrest is not None:
        lesser.insert(0, "what the caller waits for is not steady, the GPU's own time alone is")
    unsettled = judged.warmup.unsettled
    if judged.steady is not None and unsettled:
        lesser.insert(0, f"{unsettled} of {count(starts, 'start')} found no steady state")
    if lesser and not reasons:
        worst = "degraded"
    return worst, tuple(dict.fromkeys([*reasons, *lesser]))


def _unusable(recording: Recording, judged: Judgement) -> Iterator[str]:
    if recording.iterations.size == 0:
        yield "no inference was recorded"
    elif judged.behaviour == "too_short":
        inferences = recording.iterations.size * recording.meta.inferences_per_row
        yield f"too short to judge: {count(inferences, 'inference')} in all"
    elif judged.steady is None:
        yield "no steady state was reached, so no single latency can be quoted"


def _doubts(recording: Recording, throttling: Finding, starts: int) -> Iterator[str]:
    meta = recording.meta
    if meta.simulated is not None:
        yield f"simulated GPU (profile {meta.simulated}): no hardware was measured"
    yield from _protocol(meta, starts)
    for state, when in ((meta.machine_before, "before"), (meta.machine_after, "after")):
        if state is not None:
            yield from _neighbours(state, when)
    yield from _sampled(meta.sampling)
    yield from _state_seen(recording)
    if throttling.severity == "warning":
        yield f"{throttling.summary}: the numbers hold for a GPU that hot, or that supply, alone"
    if meta.source is None:  # of another tool's file the notes say how it was read, not what went wrong
        yield from meta.notes


def _protocol(meta: Metadata, starts: int) -> Iterator[str]:
    if 0 < starts < MIN_STARTS:
        yield f"{count(starts, 'start')} only: how much starts differ is not known"
    yield from _unrested(meta)
    for index, start in enumerate(meta.starts, 1):
        if start.failure is not None:
            yield f"start {index} was cut short: {start.failure}"  # as the notes say it
        if start.removed_warmup_ms:
            yield f"the first {number(start.removed_warmup_ms)} ms of inference are not in this file"
    if meta.inferences_per_row > 1:
        yield f"each value is a mean over {meta.inferences_per_row} inferences: single slow ones cannot be seen"


def _unrested(meta: Metadata) -> Iterator[str]:
    """One reason for all such starts: a study that pauses on purpose has dozens."""
    rests = [start.rest if start.sampled else None for start in meta.starts]
    waits = {n: rest.waited_s for n, rest in enumerate(rests, 1) if rest is not None and not rest.reached}
    if len(waits) == 1:
        [(index, waited_s)] = waits.items()
        yield f"start {index} began with the GPU not back at rest after {number(waited_s)} s"
    elif waits:
        shortest, longest = number(min(waits.values())), number(max(waits.values()))
        waited = f"{longest} s" if shortest == longest else f"{shortest} to {longest} s"
        yield f"{len(waits)} of {len(rests)} starts began with the GPU not back at rest after {waited}"


def _neighbours(state: MachineState, when: str) -> Iterator[str]:
    for gpu in state.gpus:
        others = [process for process in gpu.processes or () if process.kind != _GRAPHICS]
        if others:
            names = ", ".join(_process(process) for process in others)
            yield f"{count(len(others), 'other process', 'other processes')} on this GPU {when} the run: {names}"
        elif when == "before" and gpu.utilization_pct is not None and gpu.utilization_pct > MAX_UTILIZATION_PCT:
            yield f"the GPU was {gpu.utilization_pct:.0f} % busy before the run"


def _process(process: GpuProcess) -> str:
    name = process.name or "unnamed"
    return name if process.pid is None else f"{name} (pid {process.pid})"


def _sampled(sampling: Sampling) -> Iterator[str]:
    if sampling.cpu_pct is not None and sampling.cpu_pct > MAX_SAMPLING_CPU_PCT:
        yield f"sampling took {sampling.cpu_pct:.0f} % of a core"
    if sampling.read_us_median is not None and sampling.period_ms:
        share = sampling.read_us_median / (sampling.period_ms * 1e3)
        if share > MAX_READING_SHARE:
            yield f"{100 * share:.0f} % of the time a reading was under way: sample less often with --period-ms"
    if sampling.deadlines_kept_pct is not None and sampling.deadlines_kept_pct < MIN_DEADLINES_KEPT_PCT:
        yield f"only {sampling.deadlines_kept_pct:.0f} % of the samples came on time: the host was busy"


def _state_seen(recording: Recording) -> Iterator[str]:
    """Whether the GPU's clock was seen while it inferred."""
    iterations, samples = recording.iterations, recording.samples
    unsampled = [index for index, start in enumerate(recording.meta.starts) if not start.sampled]
    watched = iterations[~np.isin(iterations["start"], unsampled)]
    known = samples[np.isfinite(samples["sm_clock_mhz"])]
    if watched.size == 0 or np.isfinite(watched["sm_clock_mhz"]).any():
        return
    if known.size == 0:
        yield "the GPU's clock was not recorded: steady is judged by latency alone"
        return
    unseen_s = (int(watched["t_ns"].max()) - int(known["t_ns"].max())) / 1e9
    if unseen_s > MAX_UNSEEN_S:
        yield f"the GPU's state is missing for the last {unseen_s:.0f} s"
