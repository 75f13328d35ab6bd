"""What limits the speed of a workload once it is warm: GPU, host or copies, and whether the clock is held down."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.finding import Finding, Severity
from gpuwarm.analysis.pace import Pace, pace_of
from gpuwarm.analysis.stretch import Stretch, follows_enqueue
from gpuwarm.analysis.words import duration, median, percent
from gpuwarm.machine import EVENT_REASONS, GpuState
from gpuwarm.recording import Floats, Recording, Rows

Bound = Literal["gpu", "host", "transfer", "unknown"]
THROTTLING = "throttling"  # the finding's id

# trtexec warns of a host-bound or transfer-bound run at the same shares (its sampleReporting.cpp, 8.4 to 11.1).
HOST_BOUND_ENQUEUE_SHARE = 0.8  # of the GPU's time
HOST_BOUND_FOLLOWS = 0.5  # of what an enqueue takes longer; on an H200 0.54 to 0.69 where launches bound it, else 0.2
TRANSFER_BOUND_SHARE = 1.0  # of the GPU's time, in either direction

ACTIVE_SHARE = 0.01  # of the busy time; a rarer reason cannot move a mean by the 1 % within which latency is steady
NEAR_LIMIT_SHARE = 0.95  # of the enforced power limit; drivers also count "power caps" at 15 to 45 % of it
CLOCK_DROP_SHARE = 0.03  # of the highest clock while busy; on an H200 the GPU's own stamps scatter by 2 %
LOW_CLOCK_SHARE = 0.7  # of the maximum; heavy kernels take a GPU there at its power limit, nothing else should
NEAR_SLOWDOWN_C = 5.0  # below the slowdown temperature: sensors round to degrees, and lag behind the hottest spot
# A GPU at rest with a context boosts, and leaves that clock as load begins. Held so long under load, a clock is one
# that was reached: beside an event reason, as a cap bites an H200 after 50 ms; and where no reason says why it fell.
BRIEFLY_MS, LASTING_MS = 25.0, 100.0
NVML_LATE_MS = 250.0  # until then NVML may show the clock from before the load
_CLOCK_BLOCK = 5  # readings that a median is taken over, so that one odd stamp is not the highest clock

_CAUSES = {  # event reasons that hold a clock down -> what they stand for
    "sw_power_cap": "the power limit",
    "hw_power_brake_slowdown": "the power brake of the supply",
    "sw_thermal_slowdown": "temperature",
    "hw_thermal_slowdown": "temperature",
    "hw_slowdown": "the hardware's own slowdown",
    "sync_boost": "a sync-boost group",
}
_THERMAL = ("sw_thermal_slowdown", "hw_thermal_slowdown", "hw_slowdown")


@dataclass(frozen=True)
class Parts:
    """Where the time of a warm inference goes: medians, None where not measured."""

    host_ms: float | None = None  # from the enqueue's begin to synchronised
    enqueue_ms: float | None = None
    h2d_ms: float | None = None
    gpu_ms: float | None = None
    d2h_ms: float | None = None


@dataclass(frozen=True)
class Limits:
    """What keeps a workload from being faster, and what says so."""

    parts: Parts
    bound: Bound
    bound_evidence: str
    throttling: Finding
    pace: Pace | None = None


def of(recording: Recording, found: Sequence[Stretch], gpu: GpuState | None, *, warm_after_ms: float | None) -> Limits:
    """What limits the stretches `found` in a recording once warm; `gpu` has its limits."""
    warm = since(recording, found, warm_after_ms)
    busy = since(recording, found, 0.0)
    measured = parts(warm)
    if measured.enqueue_ms is None:  # a file may tell it of the first inferences alone
        measured = replace(measured, enqueue_ms=parts(busy).enqueue_ms)
    follows = median([grows for grows in (follows_enqueue(recording, each) for each in found) if grows is not None])
    paced = pace_of(warm, latency_ms=measured.host_ms, gpu_ms=measured.gpu_ms)
    held = throttling(busy, warm, gpu, paced)
    return Limits(measured, *bound(measured, gpu_per_enqueue=follows), held, paced)


def since(recording: Recording, found: Sequence[Stretch], after_ms: float | None) -> Recording:
    """What happened from `after_ms` into each start's stretch of continuous inference until its end.

    With None, where it is not known when the warm-up is over, the later half of each stretch.
    """
    rows = [recording.iterations[:0]]
    seen = np.zeros(recording.samples.size, bool)
    for stretch in found:
        first = stretch.rows.size // 2 if after_ms is None else int(np.searchsorted(stretch.elapsed_ms, after_ms))
        kept = stretch.rows[first:]
        if kept.size:
            begin_ns, end_ns = recording.iterations["t_ns"][kept[[0, -1]]]
            seen |= (recording.samples["t_ns"] >= begin_ns) & (recording.samples["t_ns"] <= end_ns)
            rows.append(_taken(recording.iterations, kept))
    iterations = rows[1] if len(rows) == 2 else np.concatenate(rows)  # noqa: PLR2004 -- one start: nothing to join
    return replace(recording, iterations=iterations, samples=recording.samples[seen])


def _taken(iterations: Rows, ascending: NDArray[np.int64]) -> Rows:
    """These rows; a view where none is left out between them, as a copy of a million rows costs half a second."""
    first, last = int(ascending[0]), int(ascending[-1])
    whole = ascending.size == last - first + 1
    return iterations[first : last + 1] if whole else iterations[ascending]


def parts(warm: Recording) -> Parts:
    """Medians over the iterations of a warm stretch."""
    middle_ns = {name: median(warm.iterations[f"{name}_ns"]) for name in ("host", "enqueue", "h2d", "gpu", "d2h")}
    return Parts(**{f"{name}_ms": None if value is None else value / 1e6 for name, value in middle_ns.items()})


def bound(of: Parts, *, gpu_per_enqueue: float | None = None) -> tuple[Bound, str]:
    """Which one would have to be faster, and the numbers that say so; `gpu_per_enqueue` as of `follows_enqueue`."""
    if not of.gpu_ms:
        return "unknown", "the GPU's own time was not measured, so host and GPU cannot be told apart"
    gpu = f"the inference {duration(of.gpu_ms)} on the GPU"
    for copy_ms, way in ((of.h2d_ms, "to the GPU"), (of.d2h_ms, "back to the host")):
        if copy_ms is not None and copy_ms >= TRANSFER_BOUND_SHARE * of.gpu_ms:
            return "transfer", f"the copy {way} takes {duration(copy_ms)}, {gpu}"
    if of.enqueue_ms is None:
        return "unknown", f"{gpu} takes its time; the host's time to enqueue it was not measured"
    numbers = f"the enqueue takes the host {duration(of.enqueue_ms)}, {gpu}"
    if of.host_ms:
        numbers += f", {100 * of.gpu_ms / of.host_ms:.0f} % of the {duration(of.host_ms)} until synchronised"
    follows = gpu_per_enqueue is not None and gpu_per_enqueue >= HOST_BOUND_FOLLOWS
    if follows:
        numbers += "; where the enqueue takes longer, the GPU does too: it waits for the host"
    alone_ms = _host_alone_ms(of)
    waits = alone_ms is not None and alone_ms > of.gpu_ms
    by_host = follows or waits or of.enqueue_ms > HOST_BOUND_ENQUEUE_SHARE * of.gpu_ms
    return ("host" if by_host else "gpu"), numbers


def _host_alone_ms(of: Parts) -> float | None:
    """Of the latency, what neither the inference nor a copy accounts for: launching, and waking up after it."""
    if of.host_ms is None or of.gpu_ms is None:
        return None
    return of.host_ms - sum(part for part in (of.gpu_ms, of.h2d_ms, of.d2h_ms) if part is not None)


@dataclass(frozen=True)
class _Sign:
    """Something seen of a busy GPU that can back a claim of throttling."""

    text: str
    holds_down: bool
    value: float  # MHz, W or C
    limit_known: bool = False
    lasting: bool = False  # seen for so long that it needs no event reason beside it


def throttling(
    busy: Recording,
    warm: Recording,
    gpu: GpuState | None,
    pace: Pace | None = None,
    *,
    seen: Recording | None = None,
) -> Finding:
    """Whether the clock is held down once warm, by what, and what says so.

    Event reasons alone are not believed, drivers count power caps on idle GPUs: a throttle is claimed where a reason
    was active *and* power or temperature near its limit or the clock below what this workload had reached.

    Args:
        busy: `since` the first inference.
        warm: `since` the warm-up was over.
        gpu: with its limits.
        pace: of inference that was not back to back: a GPU that idles in between has reasons of its own for its clock.
        seen: with what was seen besides, of a GPU whose clock at rest counts as reached beside an event reason.
    """
    shares = _counter_shares(busy) or _sample_shares(warm.samples)
    active = {name: share for name, share in shares.items() if share >= ACTIVE_SHARE}
    clock, power, heat = (
        _clock(busy, warm, busy if seen is None else seen),
        _power(warm.samples, gpu),
        _heat(warm.samples, gpu),
    )
    signs = [sign.text for sign in (clock, power, heat) if sign is not None]
    signs += [f"{name} active {100 * share:.0f} % of the time" for name, share in active.items()]
    evidence = "; ".join(signs) or None
    believed = [name for name in active if _holds(clock) or _holds(heat if name in _THERMAL else power)]
    if believed:
        # A GPU at its power limit does what it was made to do; heat and supply are the machine's to answer for.
        severity: Severity = "info" if believed == ["sw_power_cap"] else "warning"
        causes = " and ".join(dict.fromkeys(_CAUSES[name] for name in believed))
        return Finding(THROTTLING, severity, f"the clock is held down by {causes}", evidence=evidence)
    undecided = [
        name
        for name in active
        if not (sign := heat if name in _THERMAL else power) or not sign.limit_known
        if clock is None or not _seen_without(busy.samples, name)
    ]
    severity, summary = _unclaimed(list(active), undecided, clock, gpu, pace, reasons_known=bool(shares))
    return Finding(THROTTLING, severity, summary, evidence=evidence)


def _unclaimed(
    active: list[str],
    undecided: list[str],
    clock: _Sign | None,
    gpu: GpuState | None,
    pace: Pace | None,
    *,
    reasons_known: bool,
) -> tuple[Severity, str]:
    """What to say where no event reason is believed."""
    little = None if pace is None else f"{pace.words} {pace.load}"
    if clock is not None and clock.lasting:
        why = "no event reason says why" if reasons_known else "event reasons were not recorded"
        return ("info", f"the clock fell while busy; {why}") if little is None else ("ok", f"the clock fell: {little}")
    if undecided:
        return (
            "unknown",
            f"not known: {', '.join(undecided)} was reported, with no limit or higher clock to compare with",
        )
    if active:
        return "ok", f"none: {', '.join(active)} was reported, but the clock did not fall, nor was its limit near"
    max_mhz = None if gpu is None else gpu.sm_clock_max_mhz
    if clock is not None and max_mhz and clock.value < LOW_CLOCK_SHARE * max_mhz:
        stays = f"the clock stays at {100 * clock.value / max_mhz:.0f} % of {max_mhz:.0f} MHz: "
        return "unknown", stays + (little or "is it locked?")
    return ("ok", "none") if reasons_known else ("unknown", "not known: no event reasons were recorded")


def _seen_without(samples: Rows, reason: str) -> bool:
    """Whether the GPU was also seen without an event reason, so that a clock that did not fall says something."""
    bit = next(bit for bit, name in EVENT_REASONS.items() if name == reason)
    return int(np.sum(_bits(samples) & bit == 0)) >= _CLOCK_BLOCK


def _holds(sign: _Sign | None) -> bool:
    return sign is not None and sign.holds_down


def _clock(busy: Recording, warm: Recording, seen: Recording) -> _Sign | None:
    """The clock once warm against the highest held in what was seen: measured on the GPU, else NVML's."""
    now_mhz = median(warm.iterations["sm_clock_mhz"])
    late_ms, series, all_seen = 0.0, busy.iterations, seen.iterations
    if now_mhz is None:
        now_mhz, late_ms = median(warm.samples["sm_clock_mhz"]), NVML_LATE_MS
        series, all_seen = busy.samples, seen.samples
    loads = [*_held(series, held_ms=BRIEFLY_MS, after_ms=0.0)]
    reached_mhz = max((blocks.max() for blocks in _held(all_seen, held_ms=BRIEFLY_MS, after_ms=0.0)), default=0.0)
    if not loads or not reached_mhz or now_mhz is None:
        return None
    drop = 1 - now_mhz / reached_mhz
    last_mhz = float(np.median([blocks[-1] for blocks in loads]))
    rises = last_mhz > (1 - CLOCK_DROP_SHARE) * reached_mhz  # what it reached came last
    if drop < CLOCK_DROP_SHARE or rises:
        return _Sign(f"SM clock {now_mhz:.0f} MHz, not below what it had reached", holds_down=False, value=now_mhz)
    lasting_mhz = max((blocks.max() for blocks in _held(series, held_ms=LASTING_MS, after_ms=late_ms)), default=0.0)
    return _Sign(
        f"SM clock {now_mhz:.0f} MHz against {reached_mhz:.0f} MHz reached ({percent(-100 * drop)})",
        holds_down=True,
        value=now_mhz,
        lasting=now_mhz <= (1 - CLOCK_DROP_SHARE) * lasting_mhz,
    )


def _held(rows: Rows, *, held_ms: float, after_ms: float) -> Iterator[Floats]:
    """Of each load the clocks that were held for so long one after another, from `after_ms` into it on."""
    known = np.flatnonzero(np.isfinite(rows["sm_clock_mhz"]))
    clock_mhz, t_ns = rows["sm_clock_mhz"][known], rows["t_ns"][known]  # two columns: copies of rows take seconds
    if known.size <= _CLOCK_BLOCK:
        yield from [np.median(clock_mhz, keepdims=True)] if known.size else []
        return
    step_ms = np.diff(t_ns) / 1e6
    usual_ms = float(np.median(step_ms))
    size = max(_CLOCK_BLOCK, ceil(held_ms / usual_ms)) if 0 < usual_ms < held_ms else 1 if usual_ms else _CLOCK_BLOCK
    edges = [0, *(np.flatnonzero(step_ms > max(NVML_LATE_MS, 3 * usual_ms)) + 1), known.size]
    for begin, end in pairwise(edges):
        clocks = clock_mhz[begin:end][t_ns[begin:end] >= t_ns[begin] + after_ms * 1e6]
        blocks = clocks[: clocks.size // size * size].reshape(-1, size)
        if blocks.size:
            yield np.partition(blocks, size // 2, axis=1)[:, size // 2]


def _power(samples: Rows, gpu: GpuState | None) -> _Sign | None:
    instant_mw = median(samples["power_mw"])
    power_mw = median(samples["power_average_mw"]) if instant_mw is None else instant_mw
    if power_mw is None:
        return None
    power_w, limit_w = power_mw / 1e3, None if gpu is None else gpu.power_limit_w
    if not limit_w:
        return _Sign(f"{power_w:.0f} W", holds_down=False, value=power_w)
    return _Sign(
        f"{power_w:.0f} W of {limit_w:.0f} W", power_w >= NEAR_LIMIT_SHARE * limit_w, power_w, limit_known=True
    )


def _heat(samples: Rows, gpu: GpuState | None) -> _Sign | None:
    temperature_c = median(samples["temperature_c"])
    limit_c = None if gpu is None else gpu.temperature_limit_c
    if temperature_c is None:
        return None
    if limit_c is None:
        return _Sign(f"{temperature_c:.0f} C", holds_down=False, value=temperature_c)
    text = f"{temperature_c:.0f} C, slowdown at {limit_c:.0f} C"
    return _Sign(text, temperature_c >= limit_c - NEAR_SLOWDOWN_C, temperature_c, limit_known=True)


def _counter_shares(busy: Recording) -> dict[str, float]:
    """Of the starts' busy time, what each reason's counter grew by; empty where no counters were read."""
    grown_us: dict[str, int] = {}
    busy_us = 0.0
    for index, start in enumerate(busy.meta.starts):
        times = busy.iterations["t_ns"][busy.iterations["start"] == index]
        if times.size and start.counters_before_us and start.counters_after_us:
            busy_us += float(times[-1] - times[0]) / 1e3
            for name in _CAUSES.keys() & start.counters_before_us.keys() & start.counters_after_us.keys():
                growth_us = start.counters_after_us[name] - start.counters_before_us[name]
                grown_us[name] = grown_us.get(name, 0) + growth_us
    return {name: min(1.0, grown / busy_us) for name, grown in grown_us.items()} if busy_us else {}


def _sample_shares(samples: Rows) -> dict[str, float]:
    """Of the samples, how many had each reason set; empty where none could be read."""
    bits = _bits(samples)
    if not bits.size:
        return {}
    return {name: float(np.mean(bits & bit != 0)) for bit, name in EVENT_REASONS.items() if name in _CAUSES}


def _bits(samples: Rows) -> NDArray[np.int64]:
    """The event reasons of those samples in which they could be read."""
    reasons = samples["event_reasons"]
    known: NDArray[np.int64] = reasons[np.isfinite(reasons) & (reasons >= 0) & (reasons < 2**63)].astype(np.int64)
    return known
