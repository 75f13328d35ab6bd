"""Join what trtexec timed with what nvidia-smi logged beside it: two files, two clocks.

The clocks are aligned by what both saw. The times tell for how long the GPU worked without a pause; a stretch of load
of that length in the log is the same work. Its begin and its end each bound where the run began, so the answer has an
uncertainty, and where no stretch fits, or more than one, there is none.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from gpuwarm.errors import InputError
from gpuwarm.load import loads
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.read.smi_log import Samples, refresh_ns
from gpuwarm.read.trtexec import Trace
from gpuwarm.recording import Floats, Recording

NS_PER_MS = 1e6
NS_PER_S = 1e9
SLACK_MS = 60.0  # by which begin and end may disagree: half a refresh of a data-centre GPU's sensors, and drift
REFRESH_MAX_MS = 500.0  # the driver's longest by default; where sampling was too slow to see it
WORST_SHARE = 0.25  # of the run's length: a larger uncertainty tells nothing
HELP = "give --offset-ms, the time from the log's first row to the begin of inference"


@dataclass(frozen=True)
class Signal:
    """A column of SAMPLE that rises under load, how late it crosses half its rise, and how surely that is so late."""

    column: str
    words: str
    late_ms: float
    smear_ms: float


# The sharpest first. A 1 s average crosses half its rise after half a second; NVML's utilisation is over 1/6 to 1 s.
SIGNALS = (
    Signal("power_mw", "power", 0.0, 0.0),
    Signal("power_average_mw", "average power", 500.0, 150.0),
    Signal("gpu_util_pct", "utilisation", 200.0, 200.0),
)


@dataclass(frozen=True)
class Bounds:
    """Where on the samples' clock something lies."""

    low_ns: float
    high_ns: float


@dataclass(frozen=True)
class Alignment:
    """Where the run's zero is on the samples' clock, how surely, and what says so."""

    zero_ns: int
    uncertainty_ms: float | None  # None where the user told
    words: str


def join(trace: Trace, samples: Samples, *, offset_ms: float | None = None) -> Recording:
    """One recording of both, on the clock of the iterations.

    Args:
        trace: of one start.
        samples: of one GPU, without iterations.
        offset_ms: from the first sample to the run's zero, where the user knows it.

    Raises:
        InputError: the clocks cannot be aligned; the message says why, and what would help.
    """
    meta, sampled = trace.recording.meta, samples.recording
    names = f"{meta.source} with {sampled.meta.source}"
    if len(meta.starts) > 1:
        raise InputError(f"cannot join {names}: the first holds several runs; give the times of one run alone")
    if offset_ms is None:
        found = _aligned(trace, samples, names)
    else:
        found = Alignment(
            round(offset_ms * NS_PER_MS), None, f"inference begins {offset_ms:g} ms after the first sample, as told"
        )
    rows = sampled.samples.copy()
    rows["t_ns"] -= found.zero_ns
    meta = replace(
        meta,
        source=f"{meta.source} + {sampled.meta.source}",
        machine_before=_merged(sampled.meta.machine_before, meta.machine_before),
        machine_after=sampled.meta.machine_after,
        sampling=replace(sampled.meta.sampling, clock_uncertainty_ms=found.uncertainty_ms),
        notes=(found.words, *meta.notes, *_stranger(meta.machine_before, sampled), *sampled.meta.notes),
    )
    return Recording(rows, trace.recording.iterations, meta)


def _aligned(trace: Trace, samples: Samples, names: str) -> Alignment:
    length_ns = _length_ns(trace.recording)
    clock = _wall_clock(trace, samples)
    seen = 0
    for signal in SIGNALS:
        found = list(_loads(samples.recording, signal))
        seen = max(seen, len(found))
        fits = [fit for begin, end in found if (fit := _fit(begin, end, length_ns)) is not None]
        if len(fits) > 1 and clock is not None:
            fits = [fit for fit in fits if fit.high_ns >= clock.low_ns and fit.low_ns <= clock.high_ns]
        if len(fits) > 1:
            begins = ", ".join(f"{fit.low_ns / NS_PER_S:.1f} s" for fit in fits)
            raise InputError(
                f"cannot join {names}: {len(fits)} loads in it are as long as the run, from {begins}; {HELP}"
            )
        if fits:
            return _judged(fits[0], length_ns, f"where {signal.words} rises and falls", names)
    span_ns = float(samples.recording.samples["t_ns"][-1])
    if clock is not None and clock.high_ns >= 0 and clock.low_ns + length_ns <= span_ns:
        return _judged(clock, length_ns, "the time of day that both files write", names)
    shows = f"shows {seen} loads, none so long" if seen else "shows no load"
    raise InputError(f"cannot join {names}: the run took {length_ns / NS_PER_S:.2f} s, and the log {shows}; {HELP}")


def _judged(where: Bounds, length_ns: float, by: str, names: str) -> Alignment:
    middle_ns = round((where.low_ns + where.high_ns) / 2)
    uncertainty_ms = max(1.0, (where.high_ns - where.low_ns) / 2 / NS_PER_MS)
    if uncertainty_ms * NS_PER_MS > WORST_SHARE * length_ns:
        raise InputError(
            f"cannot join {names}: the log is too coarse to place a run of {length_ns / NS_PER_S:.2f} s in it better "
            f"than +-{uncertainty_ms:,.0f} ms; log with -lms 100, or {HELP}"
        )
    words = (
        f"the clocks of both files were aligned by {by}: inference begins {middle_ns / NS_PER_MS:,.0f} ms after the "
        f"log's first row, +-{uncertainty_ms:.0f} ms"
    )
    return Alignment(middle_ns, uncertainty_ms, words)


def _wall_clock(trace: Trace, samples: Samples) -> Bounds | None:
    """Where trtexec's log says that inference began; it writes the seconds that have passed."""
    if trace.began_local_ns is None or samples.began_local_ns is None:
        return None
    begun_ns = float(trace.began_local_ns - samples.began_local_ns)
    return Bounds(begun_ns, begun_ns + NS_PER_S)


def _length_ns(recording: Recording) -> float:
    """From the run's zero to the end of its last inference."""
    last = recording.iterations[-1]
    gpu_ns = float(last["gpu_ns"]) if np.isfinite(last["gpu_ns"]) else 0.0
    return float(last["t_ns"]) + gpu_ns * recording.meta.inferences_per_row


def _fit(begin: Bounds, end: Bounds, length_ns: float) -> Bounds | None:
    """Where the run may begin by a load's begin and by its end, where these agree."""
    low_ns = max(begin.low_ns, end.low_ns - length_ns)
    high_ns = min(begin.high_ns, end.high_ns - length_ns)
    if low_ns > high_ns + SLACK_MS * NS_PER_MS or not np.isfinite([low_ns, high_ns]).all():
        return None
    return Bounds(min(low_ns, high_ns), max(low_ns, high_ns))


def _loads(samples: Recording, signal: Signal) -> Iterator[tuple[Bounds, Bounds]]:
    """(begin, end) of each load that a signal shows; without an end where the log begins or ends within it."""
    values = samples.samples[signal.column]
    known = np.isfinite(values)
    values, t_ns = values[known], samples.samples["t_ns"][known]
    stretches = loads(t_ns, values)
    if not stretches:
        return
    stale_ns = refresh_ns(t_ns, values) or min(float(np.median(np.diff(t_ns))), REFRESH_MAX_MS * NS_PER_MS)
    for begin, end in stretches:
        yield _edge(values, t_ns, begin, stale_ns, signal), _edge(values, t_ns, end, stale_ns, signal)


def _edge(values: Floats, t_ns: NDArray[np.int64], at: int, stale_ns: float, signal: Signal) -> Bounds:
    """When the GPU's load changed, by the last reading before it and the first after.

    What a sample holds was read by the driver up to a refresh before, `stale_ns`, and after the last sample that held
    something else.
    """
    late_ns, smear_ns = signal.late_ms * NS_PER_MS, signal.smear_ms * NS_PER_MS
    if at == 0:
        return Bounds(-np.inf, float(t_ns[0]) - late_ns + smear_ns)
    other = at - 1
    while other > 0 and values[other] == values[at - 1] and t_ns[at - 1] - t_ns[other] < stale_ns:
        other -= 1
    low_ns = max(float(t_ns[other]), float(t_ns[at - 1]) - stale_ns) - late_ns - smear_ns
    return Bounds(low_ns, np.inf if at == t_ns.size else float(t_ns[at]) - late_ns + smear_ns)


def _merged(sampled: MachineState | None, timed: MachineState | None) -> MachineState | None:
    """The machine as the samples show it, with what only trtexec tells about its GPU."""
    if sampled is None or timed is None or not sampled.gpus or not timed.gpus:
        return sampled or timed
    gpu, told = sampled.gpus[0], timed.gpus[0]
    missing = {
        field.name: getattr(told, field.name)
        for field in fields(GpuState)
        if getattr(gpu, field.name) is None and getattr(told, field.name) is not None
    }
    return replace(sampled, gpus=(replace(gpu, **missing),))


def _stranger(timed: MachineState | None, sampled: Recording) -> Iterator[str]:
    """Whether the two files name different GPUs."""
    machine = sampled.meta.machine_before
    names = [state.gpus[0].name for state in (timed, machine) if state is not None and state.gpus]
    if len(names) == 2 and all(names):  # noqa: PLR2004 -- both name one
        one, other = (str(name).removeprefix("NVIDIA ").removesuffix("...").strip() for name in names)
        if not one.startswith(other) and not other.startswith(one):
            yield f"trtexec ran on {names[0]}, the log is of {names[1]}: another GPU's state stands beside these times"
