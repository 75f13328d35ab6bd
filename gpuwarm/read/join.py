"""Join what trtexec timed with what nvidia-smi logged beside it: two files, two clocks.

The clocks are aligned by what both saw. The times tell for how long the GPU worked without a pause; a stretch of load
of that length in the log is the same work. Its begin and its end each bound where the run began, so the answer has an
uncertainty, and where no stretch fits, or more than one, there is none.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from gpuwarm.errors import InputError
from gpuwarm.load import USED_PCT, loads
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.read.smi_log import Samples, refresh_ns
from gpuwarm.read.trtexec import Trace
from gpuwarm.recording import Floats, Recording

NS_PER_MS = 1e6
NS_PER_S = 1e9
SLACK_MS = 60.0  # by which begin and end may disagree: half a refresh of a data-centre GPU's sensors, and drift
REFRESH_MAX_MS = 500.0  # the driver's longest by default; where sampling was too slow to see it
SHOWN_SHARE = 0.25  # of the run's length, where the log begins or ends under load: shown less, that may be any load
LISTED = 5
WORST_SHARE = 0.25  # of the run's length: a larger uncertainty tells nothing
HELP = "give --offset-ms, the time from the log's first row to the begin of inference"


@dataclass(frozen=True)
class Signal:
    """A column of SAMPLE that rises under load, and how late it may cross half its rise."""

    column: str
    words: str
    late_ms: tuple[float, float]  # at least and at most
    averaged: bool = False  # over a time that differs by GPU and driver: how steep it is tells how late


# The sharpest first. A 1 s average crosses half its rise after half a second, or a little later where a context had
# raised power before; NVML's utilisation is over 1/6 to 1 s.
SIGNALS = (
    Signal("power_mw", "power", (0.0, 0.0)),
    Signal("power_average_mw", "average power", (0.0, 600.0), averaged=True),
    Signal("gpu_util_pct", "utilisation", (0.0, 400.0)),
)
CLOCKS_ALIKE_S = (-5.0, 30.0)  # load after "Starting inference": stamps drop fractions, first inferences load kernels
ANOTHER_RUN_S = 26 * 3600.0  # times of day further apart than any two time zones are no clock that is wrong
BRANDS = ("nvidia", "tesla", "geforce", "quadro")  # which drivers and CUDA write or do not


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
    for trouble in stranger(trace, sampled):
        raise InputError(f"cannot join {meta.source} with {sampled.meta.source}: {trouble}; give the log of that one")
    uncertainty_ms = None
    if offset_ms is None:
        try:
            found = align(trace, samples)
        except InputError as error:
            help_ = "give the times of one alone" if len(meta.starts) > 1 else HELP
            raise InputError(f"cannot join {meta.source} with {sampled.meta.source}: {error}; {help_}") from error
        zero_ns, uncertainty_ms = found.zero_ns, found.uncertainty_ms
        words = (
            f"the clocks of both files were aligned by {found.by}: inference begins {zero_ns / NS_PER_MS:,.0f} ms "
            f"after the log's first row, +-{uncertainty_ms:.0f} ms"
        )
    else:
        zero_ns = round(offset_ms * NS_PER_MS)
        span_ns = int(sampled.samples["t_ns"][-1])
        if zero_ns > span_ns or zero_ns + _length_ns(trace.recording) < 0:
            raise InputError(
                f"{sampled.meta.source} covers {span_ns / NS_PER_S:.2f} s, and the run lies outside with "
                f"--offset-ms {offset_ms:g}: give the time from its first row to the begin of inference"
            )
        words = f"inference begins {offset_ms:g} ms after the first sample, as told"
    rows = sampled.samples.copy()
    rows["t_ns"] -= zero_ns
    meta = replace(
        meta,
        source=f"{meta.source} + {sampled.meta.source}",
        machine_before=_merged(_before(sampled.meta.machine_before, zero_ns), meta.machine_before),
        machine_after=sampled.meta.machine_after,
        sampling=replace(sampled.meta.sampling, clock_uncertainty_ms=uncertainty_ms),
        notes=(words, *meta.notes, *sampled.meta.notes),
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
        raise InputError("there are times of several runs")
    length_ns = _length_ns(trace.recording)
    within = next((_begin_within(window, length_ns) for window in windows if _holds(window, length_ns)), None)
    clock = _wall_clock(trace, samples)
    seen: list[tuple[Bounds, Bounds]] = []
    for signal in SIGNALS:
        found = list(_loads(samples.recording, signal))
        seen = max(seen, found, key=len)
        fits = _fits(found, length_ns, within, clock)
        if len(fits) > 1:
            begins = ", ".join(f"{fit.low_ns / NS_PER_S:.1f} s" for fit, _ in fits[:LISTED])
            begins += ", ..." if len(fits) > LISTED else ""
            raise InputError(f"{len(fits)} loads in it are as long as the run, from {begins}")
        for fit, edges in fits:
            return _judged(fit, length_ns, f"where {signal.words} {edges}{_apart(fit, clock)}")
    if within is not None:
        return _judged(within, length_ns, "what ran when")
    span_ns = float(samples.recording.samples["t_ns"][-1])
    if clock is not None and clock.high_ns >= 0 and clock.low_ns + length_ns <= span_ns:
        return _judged(clock, length_ns, "the time of day that both files write")
    raise InputError(f"the run took {length_ns / NS_PER_S:.2f} s, and the log {_shown(samples.recording, seen)}")


def _shown(samples: Recording, seen: Sequence[tuple[Bounds, Bounds]]) -> str:
    """What a log shows of load."""
    if not any(np.isfinite(samples.samples[signal.column]).any() for signal in SIGNALS):
        return "has neither power nor utilisation to tell load by"
    begun_ns = [begin.high_ns if np.isinf(begin.low_ns) else begin.low_ns for begin, _ in seen]
    took_s = [(end.low_ns - since_ns) / NS_PER_S for (_, end), since_ns in zip(seen, begun_ns, strict=True)]
    if not took_s:
        return "shows no load"
    lengths = " to ".join(dict.fromkeys(f"{length:.1f}" for length in (min(took_s), max(took_s))))
    return f"shows {len(took_s)} load{'s' if len(took_s) > 1 else ''} of about {lengths} s"


def _fits(
    found: Sequence[tuple[Bounds, Bounds]], length_ns: float, within: Bounds | None, clock: Bounds | None
) -> list[tuple[Bounds, str]]:
    """Where the run may begin, and by what, for each load; the time of day only chooses, as it may be another's."""
    fits = []
    for begin, end in found:
        whole = np.isfinite([begin.low_ns, end.high_ns]).all()
        enough = whole or end.low_ns - begin.high_ns > SHOWN_SHARE * length_ns
        fit = _fit(begin, end, length_ns) if enough else None
        if fit is not None and within is not None:
            fit = _both(fit, within)
        if fit is not None:
            fits.append((fit, _edges(begin, end)))
    if len(fits) > 1 and clock is not None:
        fits = [(fit, edges) for fit, edges in fits if _both(fit, clock) is not None]
    return fits


def _edges(begin: Bounds, end: Bounds) -> str:
    """What of a load the log shows."""
    if np.isinf(begin.low_ns):
        return "falls; the log begins under load, so whether that load is the run cannot be checked"
    if np.isinf(end.high_ns):
        return "rises; the log ends under load, so whether that load is the run cannot be checked"
    return "rises and falls"


def _apart(fit: Bounds, clock: Bounds | None) -> str:
    """What to say where the load is not when trtexec's log says that inference began.

    Raises:
        InputError: it cannot be the same run.
    """
    if clock is None:
        return ""
    late_s = (fit.low_ns + fit.high_ns - clock.low_ns - clock.high_ns) / 2 / NS_PER_S
    apart = str(timedelta(seconds=round(abs(late_s))))
    if abs(late_s) > ANOTHER_RUN_S:
        raise InputError(
            f"its load lies {apart} from when trtexec's log says that inference began: it is another run's"
        )
    low_s, high_s = CLOCKS_ALIKE_S
    return "" if low_s <= late_s <= high_s else f", although the times of day in both differ by {apart}"


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
    period_ns = float(np.median(np.diff(t_ns)))
    stale_ns = refresh_ns(t_ns, values) or min(period_ns, REFRESH_MAX_MS * NS_PER_MS)
    late = Bounds(*(NS_PER_MS * late_ms for late_ms in signal.late_ms))
    if signal.averaged:
        late = _late(values, t_ns, stretches, max(stale_ns, period_ns), late)
    used_pct = samples.samples["gpu_util_pct"][known]
    for begin, end in stretches:
        if not (used_pct[begin:end] < USED_PCT).all():  # NaN is not
            yield _edge(values, t_ns, begin, stale_ns, late), _edge(values, t_ns, end, stale_ns, late)


def _late(
    values: Floats, t_ns: NDArray[np.int64], stretches: Sequence[tuple[int, int]], step_ns: float, most: Bounds
) -> Bounds:
    """How late an average crosses half its rise: twice as long as it then takes for another quarter of it."""
    rest, full = float(values.min()), float(np.median(np.concatenate([values[begin:end] for begin, end in stretches])))
    took = []
    for begin, end in stretches:
        high = np.flatnonzero(values[begin:end] >= rest + 0.75 * (full - rest))
        low = np.flatnonzero(values[end:] <= rest + 0.25 * (full - rest))
        took += [t_ns[begin + high[0]] - t_ns[begin]] if begin and high.size else []
        took += [t_ns[end + low[0]] - t_ns[end]] if low.size else []
    if not took:
        return most
    quarter_ns = float(np.median(took))
    low_ns, high_ns = np.clip([2 * (quarter_ns - step_ns), 2 * (quarter_ns + step_ns)], most.low_ns, most.high_ns)
    return Bounds(float(low_ns), float(high_ns))


def _edge(values: Floats, t_ns: NDArray[np.int64], at: int, stale_ns: float, late: Bounds) -> Bounds:
    """When the GPU's load changed, by the last reading before it and the first after.

    What a sample holds was read by the driver up to a refresh before, `stale_ns`, and after the last sample that held
    something else.
    """
    if at == 0:
        return Bounds(-np.inf, float(t_ns[0]) - late.low_ns)
    other = at - 1
    while other > 0 and values[other] == values[at - 1] and t_ns[at - 1] - t_ns[other] < stale_ns:
        other -= 1
    low_ns = max(float(t_ns[other]), float(t_ns[at - 1]) - stale_ns) - late.high_ns
    return Bounds(low_ns, np.inf if at == t_ns.size else float(t_ns[at]) - late.low_ns)


def _before(sampled: MachineState | None, zero_ns: int) -> MachineState | None:
    """The machine before the run; of a log that began during it, without what the run itself did."""
    if sampled is None or zero_ns > 0:
        return sampled
    return replace(sampled, gpus=tuple(replace(gpu, utilization_pct=None) for gpu in sampled.gpus))


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
        one, other = (_model(str(name)) for name in names)
        if not one.startswith(other) and not other.startswith(one):
            yield f"trtexec ran on {names[0]}, the states are of {names[1]}, another GPU"


def _model(name: str) -> str:
    """A GPU's name without what drivers and CUDA may leave out."""
    words = name.lower().removesuffix("...").split()
    return " ".join(word for word in words if word not in BRANDS)
