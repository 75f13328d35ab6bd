"""Join what trtexec timed with what nvidia-smi logged beside it: two files, two clocks.

The clocks are aligned by what both saw. The times tell for how long the GPU worked without a pause; a stretch of load
of that length in the log is the same work. Its begin and its end each bound where the run began, so the answer has an
uncertainty, and where no stretch fits, or more than one, there is none.
"""

from collections.abc import Iterator, Sequence
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
    uncertainty_ms: float
    by: str


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
    uncertainty_ms = None
    if offset_ms is None:
        try:
            found = align(trace, samples)
        except InputError as error:
            raise InputError(f"cannot join {meta.source} with {sampled.meta.source}: {error}; {HELP}") from error
        zero_ns, uncertainty_ms = found.zero_ns, found.uncertainty_ms
        words = (
            f"the clocks of both files were aligned by {found.by}: inference begins {zero_ns / NS_PER_MS:,.0f} ms "
            f"after the log's first row, +-{uncertainty_ms:.0f} ms"
        )
    else:
        zero_ns = round(offset_ms * NS_PER_MS)
        words = f"inference begins {offset_ms:g} ms after the first sample, as told"
    rows = sampled.samples.copy()
    rows["t_ns"] -= zero_ns
    meta = replace(
        meta,
        source=f"{meta.source} + {sampled.meta.source}",
        machine_before=_merged(sampled.meta.machine_before, meta.machine_before),
        machine_after=sampled.meta.machine_after,
        sampling=replace(sampled.meta.sampling, clock_uncertainty_ms=uncertainty_ms),
        notes=(words, *meta.notes, *stranger(trace, sampled), *sampled.meta.notes),
    )
    return Recording(rows, trace.recording.iterations, meta)


def align(trace: Trace, samples: Samples, *, windows: Sequence[Bounds] = ()) -> Alignment:
    """Where the run is among the samples.

    Args:
        trace: of one start.
        samples: of one GPU; the first is at 0.
        windows: on the samples' clock; the run lies within the first of them that is long enough for it.

    Raises:
        InputError: it cannot be told; the message is the reason alone.
    """
    if len(trace.recording.meta.starts) > 1:
        raise InputError("the first holds several runs; give the times of one alone")
    length_ns = _length_ns(trace.recording)
    within = next((_begin_within(window, length_ns) for window in windows if _holds(window, length_ns)), None)
    clock = _wall_clock(trace, samples)
    seen = 0
    for signal in SIGNALS:
        found = list(_loads(samples.recording, signal))
        seen = max(seen, len(found))
        fits = _fits(found, length_ns, within, clock)
        if len(fits) > 1:
            begins = ", ".join(f"{fit.low_ns / NS_PER_S:.1f} s" for fit in fits)
            raise InputError(f"{len(fits)} loads in it are as long as the run, from {begins}")
        if fits:
            return _judged(fits[0], length_ns, f"where {signal.words} rises and falls")
    if within is not None:
        return _judged(within, length_ns, "what ran when")
    span_ns = float(samples.recording.samples["t_ns"][-1])
    if clock is not None and clock.high_ns >= 0 and clock.low_ns + length_ns <= span_ns:
        return _judged(clock, length_ns, "the time of day that both files write")
    shows = f"shows {seen} loads, none so long" if seen else "shows no load"
    raise InputError(f"the run took {length_ns / NS_PER_S:.2f} s, and the log {shows}")


def _fits(
    found: Sequence[tuple[Bounds, Bounds]], length_ns: float, within: Bounds | None, clock: Bounds | None
) -> list[Bounds]:
    """Where the run may begin, by each load; the time of day only chooses, as it may be another machine's."""
    fits = [fit for begin, end in found if (fit := _fit(begin, end, length_ns)) is not None]
    if within is not None:
        fits = [both for fit in fits if (both := _both(fit, within)) is not None]
    if len(fits) > 1 and clock is not None:
        fits = [fit for fit in fits if _both(fit, clock) is not None]
    return fits


def _judged(where: Bounds, length_ns: float, by: str) -> Alignment:
    uncertainty_ms = max(1.0, (where.high_ns - where.low_ns) / 2 / NS_PER_MS)
    if uncertainty_ms * NS_PER_MS > WORST_SHARE * length_ns:
        raise InputError(
            f"the log, coarser than -lms 100, places a run of {length_ns / NS_PER_S:.2f} s no better than "
            f"+-{uncertainty_ms:,.0f} ms"
        )
    return Alignment(round((where.low_ns + where.high_ns) / 2), uncertainty_ms, by)


def _holds(window: Bounds, length_ns: float) -> bool:
    return window.high_ns - window.low_ns >= length_ns


def _begin_within(window: Bounds, length_ns: float) -> Bounds:
    """Where a run in the window begins."""
    return Bounds(window.low_ns, window.high_ns - length_ns)


def _both(one: Bounds, other: Bounds) -> Bounds | None:
    """What lies in both; None where nothing does."""
    common = Bounds(max(one.low_ns, other.low_ns), min(one.high_ns, other.high_ns))
    return common if common.low_ns <= common.high_ns else None


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


def stranger(trace: Trace, sampled: Recording) -> Iterator[str]:
    """Whether the two name different GPUs."""
    machines = (trace.recording.meta.machine_before, sampled.meta.machine_before)
    names = [state.gpus[0].name for state in machines if state is not None and state.gpus]
    if len(names) == len(machines) and all(names):
        one, other = (str(name).removeprefix("NVIDIA ").removesuffix("...").strip() for name in names)
        if not one.startswith(other) and not other.startswith(one):
            yield f"trtexec ran on {names[0]}, the log is of {names[1]}: another GPU's state stands beside these times"
