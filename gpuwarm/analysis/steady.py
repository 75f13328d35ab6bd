"""Where warm-up ends, what kind of behaviour it was, and what a shorter warm-up would cost."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.changepoint import Segment, segment
from gpuwarm.analysis.stretch import Quantity, Stretch, stretches
from gpuwarm.recording import Recording

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Behaviour = Literal["flat", "warmup", "slowdown", "cyclic", "drift", "no_steady_state", "too_short"]


@dataclass(frozen=True)
class Warmup:
    """How long to warm up. Times are continuous inference; None where there is no steady state."""

    time_ms: float | None = None  # where it ends in the data (the longest over the starts)
    longest_start: int | None = None  # the start that `time_ms` is of
    iterations: int | None = None
    recommended_ms: float | None = None  # what to type: rounded up
    recommended_iterations: int | None = None
    starts: int = 0
    coverage: float | None = None  # n/(n+1): probability that the next start is warm by then; None within one start
    interval_ms: tuple[float, float] | None = None
    interval_kind: str | None = None  # "range over starts" | "block bootstrap within one start"
    clock_warm_ms: float | None = None
    heat_steady_ms: float | None = None  # where it differs from clock_warm_ms


@dataclass(frozen=True)
class Steady:
    """Latency once steady."""

    median_ms: float
    mean_ms: float
    p99_ms: float
    cov_pct: float
    from_iteration: int
    iterations: int
    quantity: Quantity = "host"  # whether these are latencies to synchronised, or the GPU's own times


@dataclass(frozen=True)
class Bias:
    """What a benchmark that begins after `warmup_ms` gets wrong."""

    warmup_ms: float
    mean_bias_pct: float | None
    p99_bias_pct: float | None


@dataclass(frozen=True)
class Judgement:
    """The answer for one recording."""

    behaviour: Behaviour
    also: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # sentences with the numbers that decided it
    warmup: Warmup = Warmup()
    steady: Steady | None = None
    bias: tuple[Bias, ...] = ()
    period_ms: float | None = None  # of a cyclic one
    slope_pct_per_s: float | None = None  # of a drifting one
    per_start: tuple[Behaviour, ...] = field(default_factory=tuple)


@dataclass(frozen=True)
class Course:
    """What one series of latencies did."""

    behaviour: Behaviour
    also: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    end: int | None = None  # first steady iteration
    latest: int | None = None  # where warm-up may end at the latest


GPU_BOUND_SHARE = 0.9  # of the latency is the GPU's own time: the host can only add jitter
MIN_ITERATIONS = 30  # fewer cannot tell a level from its noise
MIN_SPAN_MS = 200.0  # two refreshes of a data-centre GPU's clock; a power cap takes about 50 ms to bite
MIN_TAIL_SHARE = 0.25  # of the time: a shorter steady stretch may be a tread of a staircase
LEAD = 3  # iterations that may be slow because they are the first
COMMON_WARMUPS_MS = (0.0, 200.0)  # none, and trtexec's default


def judge(recording: Recording, *, tolerance: float = 0.01, warmup_ms: Sequence[float] = ()) -> Judgement:
    """What the latencies of a recording did and how long to warm up; `warmup_ms` adds rows to the bias table."""
    found = stretches(recording)
    if not found:
        return Judgement("too_short", evidence=("there are no latencies",))
    courses = [course(each.elapsed_ms, each.latency_ms, tolerance=tolerance) for each in found]
    own = stretches(recording, quantity="gpu")
    if any(one.end is None for one in courses) and len(own) == len(found) and _gpu_bound(found, own):
        own_courses = [course(each.elapsed_ms, each.latency_ms, tolerance=tolerance) for each in own]
        if all(one.end is not None for one in own_courses):  # the host wanders around a GPU that is steady
            found, courses = own, own_courses
    worst = max(range(len(courses)), key=lambda index: SEVERITY.index(courses[index].behaviour))
    ends = [one.end for one in courses]
    deciding = courses[worst]
    if any(end is None for end in ends):
        return Judgement(
            deciding.behaviour,
            deciding.also,
            deciding.evidence,
            Warmup(starts=len(found)),
            per_start=tuple(one.behaviour for one in courses),
        )
    pairs = [(each, end) for each, end in zip(found, ends, strict=True) if end is not None]
    warmup = _warmup(pairs, courses)
    steady = _steady(pairs)
    asked = sorted({*COMMON_WARMUPS_MS, *warmup_ms, warmup.recommended_ms or 0.0})
    return Judgement(
        deciding.behaviour,
        deciding.also,
        deciding.evidence,
        warmup,
        steady,
        tuple(_bias(pairs, ms) for ms in asked),
        per_start=tuple(one.behaviour for one in courses),
    )


def _gpu_bound(host: tuple[Stretch, ...], gpu: tuple[Stretch, ...]) -> bool:
    return all(
        np.median(own.latency_ms) > GPU_BOUND_SHARE * np.median(whole.latency_ms)
        for whole, own in zip(host, gpu, strict=True)
    )


# The worst comes last: what any start did decides over what the others did.
SEVERITY: tuple[Behaviour, ...] = ("flat", "warmup", "slowdown", "too_short", "drift", "cyclic", "no_steady_state")


def _warmup(pairs: list[tuple[Stretch, int]], courses: list[Course]) -> Warmup:
    times = [float(stretch.elapsed_ms[end]) for stretch, end in pairs]
    counts = [end for _, end in pairs]
    latest = [
        float(stretch.elapsed_ms[min(one.latest or 0, stretch.elapsed_ms.size - 1)])
        for (stretch, _), one in zip(pairs, courses, strict=True)
    ]
    starts = len(pairs)
    if starts == 1:
        interval, kind, coverage = (times[0], max(times[0], latest[0])), "block bootstrap within one start", None
    else:
        interval, kind, coverage = (min(times), max(times)), "range over starts", starts / (starts + 1)
    return Warmup(
        time_ms=max(times),
        iterations=max(counts),
        recommended_ms=round_up(interval[1]),
        recommended_iterations=int(round_up(max(counts))),
        starts=starts,
        coverage=coverage,
        interval_ms=interval,
        interval_kind=kind,
    )


ROUND_STEPS = (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 5.0, 6.0, 8.0, 10.0)  # of a power of ten


def round_up(value: float) -> float:
    """The next number a person would type; at most a third more."""
    if value <= 0:
        return 0.0
    if value <= ROUND_STEPS[-1]:
        return float(np.ceil(value))
    power = 10.0 ** np.floor(np.log10(value))
    return float(next(step * power for step in ROUND_STEPS if step * power >= value * (1 - 1e-9)))


def _steady(pairs: list[tuple[Stretch, int]]) -> Steady:
    latency = np.concatenate([stretch.latency_ms[end:] for stretch, end in pairs])
    mean = float(latency.mean())
    return Steady(
        median_ms=float(np.median(latency)),
        mean_ms=mean,
        p99_ms=float(np.quantile(latency, 0.99)),
        cov_pct=float(latency.std() / mean * 100),
        from_iteration=max(end for _, end in pairs),
        iterations=latency.size,
        quantity=pairs[0][0].quantity,
    )


BENCHMARK_MS = 1000.0  # the measurement whose bias is told: the second after the warm-up


def _bias(pairs: list[tuple[Stretch, int]], warmup_ms: float) -> Bias:
    """Of the following second, against the start's own steady state; the mean over the starts."""
    means, p99s = [], []
    for stretch, end in pairs:
        first = int(np.searchsorted(stretch.elapsed_ms, warmup_ms))
        last = int(np.searchsorted(stretch.elapsed_ms, warmup_ms + BENCHMARK_MS))
        measured, steady = stretch.latency_ms[first:last], stretch.latency_ms[end:]
        if measured.size:
            means.append(measured.mean() / steady.mean() - 1)
            p99s.append(np.quantile(measured, 0.99) / np.quantile(steady, 0.99) - 1)
    if not means:
        return Bias(warmup_ms, None, None)
    return Bias(warmup_ms, float(np.mean(means)) * 100, float(np.mean(p99s)) * 100)


def course(elapsed_ms: Floats, latency_ms: Floats, *, tolerance: float = 0.01) -> Course:
    """What one series did. Shapes (n,), (n,); latencies are positive."""
    n = latency_ms.size
    if n < MIN_ITERATIONS or elapsed_ms[-1] + latency_ms[-1] < MIN_SPAN_MS:
        return Course("too_short", evidence=(f"{n} iterations in {elapsed_ms[-1]:.0f} ms are too few to judge",))
    lead = _lead(latency_ms, tolerance)
    tamed = _tame(latency_ms[lead:])
    edges = _edges(tamed.size)
    sizes = np.diff(edges).astype(np.float64)
    means = np.add.reduceat(tamed, edges[:-1]) / sizes
    noise = _long_run_variance(tamed)
    parts = segment(means, penalty=3 * noise * np.log(means.size), weights=sizes)
    first, level = _tail(parts, sizes, tolerance)
    end = int(edges[parts[first].start]) + lead if first else lead
    share = 1 - elapsed_ms[end] / elapsed_ms[-1]
    said = f"the last {share:.0%} of the time holds {level:.4g} ms within {tolerance:.1%}"
    if share < MIN_TAIL_SHARE:
        return Course("no_steady_state", evidence=(f"only {said}",))
    before = parts[:first]
    faster = [part for part in before if part.mean < level * (1 - tolerance)]
    slower = [part for part in before if part.mean > level * (1 + tolerance)]
    also = (("slow_first",) if lead else ()) + (("warmup",) if faster and slower else ())
    if faster:
        return Course("slowdown", also, (said, f"{faster[0].mean:.4g} ms before it"), end, end)
    if slower or lead:
        was = slower[0].mean if slower else float(latency_ms[0])
        return Course("warmup", also, (said, f"{was:.4g} ms before it"), end, end)
    return Course("flat", also, (said,), 0, 0)


def _lead(latency_ms: Floats, tolerance: float) -> int:
    """How many of the first iterations are slow for being first."""
    low, middle, high = np.quantile(latency_ms[LEAD : LEAD + 64], (0.1, 0.5, 0.9))
    slow = np.flatnonzero(latency_ms[:LEAD] > middle + max(2 * (high - low), tolerance * middle))
    return int(slow[-1]) + 1 if slow.size else 0


WINDOW = 256  # iterations among which an outlier stands out
MIN_BATCHES = 24  # for a variance between them


def _tame(latency_ms: Floats) -> Floats:
    """Outliers drawn in to the median of their window +- 3 (P90 - P10)."""
    tamed = latency_ms.copy()
    for begin in range(0, latency_ms.size, WINDOW):
        part = latency_ms[begin : begin + WINDOW]
        low, middle, high = np.quantile(part, (0.1, 0.5, 0.9))
        np.clip(part, middle - 3 * (high - low), middle + 3 * (high - low), out=tamed[begin : begin + WINDOW])
    return tamed


def _edges(n: int) -> Ints:
    """Bounds of blocks that are short where warm-up may end early, and at most 1/500 of the whole."""
    edges = [0]
    while edges[-1] < n:
        edges.append(min(n, edges[-1] + max(1, min(edges[-1] // 32, n // 500))))
    return np.array(edges)


def _long_run_variance(values: Floats) -> float:
    """Variance of a mean of b values, times b, for the b where it is largest: autocorrelation counts."""
    half = values[values.size // 2 :] if values.size >= WINDOW else values
    found, b = [], 1
    while half.size // b >= MIN_BATCHES:
        means = half[: half.size // b * b].reshape(-1, b).mean(axis=1)
        steps = np.diff(means)
        found.append(b * (1.4826 * np.median(np.abs(steps - np.median(steps)))) ** 2 / 2)
        b *= 2
    return float(max(found))


def _tail(parts: tuple[Segment, ...], sizes: Floats, tolerance: float) -> tuple[int, float]:
    """Index of the earliest segment from which all levels agree, and that level."""
    weights = [float(sizes[part.start : part.stop].sum()) for part in parts]
    first = len(parts) - 1
    level, weight = parts[first].mean, weights[first]
    while first > 0 and abs(parts[first - 1].mean / level - 1) <= tolerance:
        first -= 1
        level = (level * weight + parts[first].mean * weights[first]) / (weight + weights[first])
        weight += weights[first]
    return first, level
