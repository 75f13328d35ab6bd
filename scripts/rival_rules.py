"""When other tools think that a warm-up is over: their documented rules, on the same series.

Each rule takes begins (ms) and latencies (ms) and says where the part that the tool would measure begins and when the
tool knows that; None where the rule is never satisfied.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Answer:
    """What a rule says of one series."""

    warmup_ms: float | None  # where the measured part begins
    decided_ms: float | None  # when that is known
    behaviour: str | None = None  # where the tool has such a notion


Rule = Callable[[Floats, Floats], Answer]
NEVER = Answer(None, None)


def fixed_time(warmup_ms: float) -> Rule:
    """Triton's do_bench warms up 25 ms, trtexec 200 ms."""

    def rule(elapsed_ms: Floats, _latency_ms: Floats) -> Answer:
        return Answer(warmup_ms, warmup_ms) if elapsed_ms[-1] > warmup_ms else NEVER

    return rule


def ten_iterations(elapsed_ms: Floats, _latency_ms: Floats) -> Answer:
    """What many scripts do."""
    return Answer(float(elapsed_ms[10]), float(elapsed_ms[10])) if elapsed_ms.size > 10 else NEVER


def nvbench_stdrel(elapsed_ms: Floats, latency_ms: Floats) -> Answer:
    """With nvbench --stopping-criterion stdrel: after 0.5 s, relative deviation at most 0.5 %, or settled itself.

    It measures from the second run on; here the moment it stops is taken for the end of a warm-up, which flatters it.
    """
    values = latency_ms[1:]  # --cold-warmup-runs 1
    counts = np.arange(1, values.size + 1)
    means = np.cumsum(values) / counts
    noise = np.sqrt(np.maximum(np.cumsum(values**2) / counts - means**2, 0)) / means
    settled = np.zeros(values.size, bool)
    for last in range(79, values.size, 16):  # every 16 samples, of more than 64
        ring = noise[max(0, last - 511) : last + 1]
        settled[last] = ring.std() < 0.05 * ring.mean()
    enough = np.cumsum(values) >= 500.0
    return _first(enough & ((noise <= 0.005) | settled) & (counts >= 10), elapsed_ms, latency_ms)


def nvbench_entropy(elapsed_ms: Floats, latency_ms: Floats) -> Answer:
    """With nvbench --stopping-criterion entropy: the entropy of the samples so far stops rising.

    Over the last 299 values: slope at most 0.048 degrees, r2 at least 0.36, looked at on even counts. Samples are
    rounded to CUDA events' half microsecond.
    """
    values = np.round(latency_ms[1:] / 0.5e-3).astype(np.int64)
    _, inverse = np.unique(values, return_inverse=True)
    counts = [0] * (int(inverse.max()) + 1)
    information = 0.0
    entropy = np.empty(values.size)
    for index, which in enumerate(inverse.tolist()):
        count = counts[which]
        information += (count + 1) * np.log2(count + 1) - (count * np.log2(count) if count else 0.0)
        counts[which] = count + 1
        entropy[index] = np.log2(index + 1) - information / (index + 1)
    width = 299
    if values.size < width:
        return NEVER
    windows = np.lib.stride_tricks.sliding_window_view(entropy, width)
    line = np.arange(width) - (width - 1) / 2
    slopes = windows @ line / (line @ line)
    rest = windows.var(axis=1)
    explained = np.divide(slopes**2 * (line @ line) / width, rest, out=np.zeros_like(rest), where=rest > 0)
    met = np.zeros(values.size, bool)
    met[width - 1 :] = (np.degrees(np.arctan(np.abs(slopes))) <= 0.048) & (explained >= 0.36)
    met[::2] = False  # the index of an even count is odd
    return _first(met, elapsed_ms, latency_ms)


def _first(met: NDArray[np.bool_], elapsed_ms: Floats, latency_ms: Floats) -> Answer:
    """The end of the first sample (after one warm-up run) at which a criterion is met."""
    if not met.any():
        return NEVER
    index = int(met.argmax()) + 1
    end = float(elapsed_ms[index] + latency_ms[index])
    return Answer(end, end)


def perf_analyzer(elapsed_ms: Floats, latency_ms: Floats) -> Answer:
    """With perf_analyzer in count_windows: three windows of 50 requests and a second agree to 10 %."""
    bounds = [0]
    while True:
        begin = bounds[-1]
        end = max(begin + 50, int(np.searchsorted(elapsed_ms, elapsed_ms[begin] + 1000.0)))
        if end >= elapsed_ms.size or len(bounds) > 10:  # --max-trials
            break
        bounds.append(end)
    latencies = [float(latency_ms[a:b].mean()) for a, b in pairwise(bounds)]
    rates = [(b - a) / (elapsed_ms[b] - elapsed_ms[a]) for a, b in pairwise(bounds)]
    for first in range(len(latencies) - 2):
        if all(max(part) <= 1.1 * min(part) for part in (latencies[first : first + 3], rates[first : first + 3])):
            return Answer(float(elapsed_ms[bounds[first]]), float(elapsed_ms[bounds[first + 3]]))
    return NEVER


def pyperf(elapsed_ms: Floats, latency_ms: Floats) -> Answer:
    """As pyperf calibrates warm-ups: two halves of 20 values agree; at most 300 warm-ups."""
    for warmups in range(1, min(300, latency_ms.size - 20)):
        first, second = latency_ms[warmups : warmups + 10], latency_ms[warmups + 10 : warmups + 20]
        low, high = np.quantile(second, (0.25, 0.75))
        if first[0] > high + 1.5 * (high - low) or not -0.5 <= first.mean() / second.mean() - 1 <= 0.1:
            continue
        if abs(_mad(first) / _mad(second) - 1) > 0.1:
            continue
        if all(abs(np.quantile(first, q) / np.quantile(second, q) - 1) <= 0.05 for q in (0.25, 0.75)):
            return Answer(float(elapsed_ms[warmups]), float(elapsed_ms[warmups + 20]))
    return NEVER


def _mad(values: Floats) -> float:
    return max(float(np.median(np.abs(values - np.median(values)))), 1e-12)


ITERATIONS = 2000  # in-process iterations Krun records; longer series are means of consecutive inferences here


def warmup_stats(elapsed_ms: Floats, latency_ms: Floats) -> Answer:
    """As warmup_stats: PELT on mean and variance with penalty 15 ln n, segments equal within 1 % or their intervals.

    Outliers (median +- 3 (P90 - P10) of a window of 200, not in the first) are replaced by the median; the last 500 of
    2,000 iterations must be steady.
    """
    size = max(1, latency_ms.size // ITERATIONS)
    n = latency_ms.size // size
    values = latency_ms[: n * size].reshape(n, size).mean(axis=1)
    decided = float(elapsed_ms[-1])
    if n < 500:
        return Answer(None, None, "too_short")
    bounds = _pelt_mean_variance(_without_outliers(values), 15 * np.log(n))
    parts = [values[a:b] for a, b in pairwise(bounds)]
    first = len(parts) - 1
    while first > 0 and _equal(parts[first - 1], parts[-1]):
        first -= 1
    if bounds[first] > n - min(500, n // 4):
        return Answer(None, decided, "no_steady_state")
    warmup_ms = float(elapsed_ms[bounds[first] * size])
    if first == 0:
        return Answer(0.0, decided, "flat")
    faster = any(part.mean() < parts[-1].mean() for part in parts[:first] if not _equal(part, parts[-1]))
    return Answer(warmup_ms, decided, "slowdown" if faster else "warmup")


def _without_outliers(values: Floats) -> Floats:
    calm = values.copy()
    for begin in range(200, values.size, 200):
        part = values[begin : begin + 200]
        low, middle, high = np.quantile(part, (0.1, 0.5, 0.9))
        calm[begin : begin + 200] = np.where(np.abs(part - middle) > 3 * (high - low), middle, part)
    return calm


def _equal(one: Floats, other: Floats) -> bool:
    if abs(one.mean() / other.mean() - 1) < 0.01:
        return True
    margins = [2.576 * part.std() / np.sqrt(part.size) for part in (one, other)]
    return bool(abs(one.mean() - other.mean()) < sum(margins))


def _pelt_mean_variance(values: Floats, penalty: float) -> list[int]:
    """Bounds of the segments with the highest normal likelihood; at least two values each."""
    n = values.size
    centred = values - values.mean()
    sums, squares = (np.concatenate([[0.0], np.cumsum(part)]) for part in (centred, centred**2))
    floor = 1e-12 * float(np.mean(values**2))
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    previous = np.zeros(n + 1, np.int64)
    starts = np.zeros(1, np.int64)
    for stop in range(2, n + 1):
        length = stop - starts
        variance = (squares[stop] - squares[starts]) / length - ((sums[stop] - sums[starts]) / length) ** 2
        costs = best[starts] + length * np.log(np.maximum(variance, floor))
        winner = int(costs.argmin())
        best[stop] = costs[winner] + penalty
        previous[stop] = starts[winner]
        starts = np.append(starts[costs <= best[stop]], stop - 1)
    bounds = [n]
    while bounds[-1] > 0:
        bounds.append(int(previous[bounds[-1]]))
    return bounds[::-1]


RULES: dict[str, Rule] = {
    "fixed 25 ms (do_bench)": fixed_time(25.0),
    "fixed 200 ms (trtexec)": fixed_time(200.0),
    "10 iterations": ten_iterations,
    "nvbench stdrel": nvbench_stdrel,
    "nvbench entropy": nvbench_entropy,
    "perf_analyzer": perf_analyzer,
    "pyperf": pyperf,
    "warmup_stats": warmup_stats,
}
