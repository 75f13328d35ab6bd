"""What a benchmark that begins after a warm-up of some length gets wrong."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarm.analysis.stretch import Quantity, Stretch, stretches
from gpuwarm.recording import Floats, Recording

BENCHMARK_MS = 1000.0  # the measurement whose bias is told: the second after the warm-up
LEAST_MS = 100.0  # a tenth of it: where less follows in the data, it says nothing about that second
LEAST_INFERENCES = 10  # trtexec's own least (--iterations)
LEAST_FOR_P99 = 100  # the 99th percentile of fewer is one of them, the slowest


@dataclass(frozen=True)
class Bias:
    """What a benchmark that begins after `warmup_ms` gets wrong, and the data that this rests on."""

    warmup_ms: float
    mean_bias_pct: float | None
    median_bias_pct: float | None  # what trtexec's users quote; a few slow ones make up for it in the mean
    p99_bias_pct: float | None
    measured_ms: float | None = None  # how long the benchmark was: less than a second where the data ends before
    inferences: int | None = None  # in it; of several starts, both are the least


@dataclass(frozen=True)
class Warmed:
    """A start that became steady."""

    stretch: Stretch
    end: int  # its first steady iteration
    removed_ms: float = 0.0  # inference before the first row of a file that does not hold its warm-up
    inferences_per_row: int = 1


def warmed(recording: Recording, stretch: Stretch, end: int) -> Warmed:
    """One start of a recording."""
    starts = recording.meta.starts
    removed_ms = starts[stretch.start].removed_warmup_ms if stretch.start < len(starts) else None
    return Warmed(stretch, end, removed_ms or 0.0, recording.meta.inferences_per_row)


def curve(
    recording: Recording, ends_ms: Sequence[float | None], quantity: Quantity, lengths_ms: Sequence[float]
) -> tuple[Bias, ...]:
    """The bias after each of these warm-ups, of a recording that was judged to be steady from `ends_ms` on."""
    found = stretches(recording, quantity="gpu" if quantity == "gpu" else None)
    warm = [
        warmed(recording, each, int(np.searchsorted(each.elapsed_ms, end_ms)))
        for each, end_ms in zip(found, ends_ms, strict=True)
        if end_ms is not None
    ]
    return tuple(bias(warm, length_ms) for length_ms in lengths_ms)


def bias(starts: Sequence[Warmed], warmup_ms: float) -> Bias:
    """Of the following second, against the start's own steady state; the mean over the starts that have the data."""
    found = [(start, measured) for start in starts if (measured := _measured(start, warmup_ms)) is not None]
    if not found:
        return Bias(warmup_ms, None, None, None)
    means, medians, tails = [], [], []
    for start, (_, latency_ms) in found:
        steady_ms = start.stretch.latency_ms[start.end :]
        means.append(latency_ms.mean() / steady_ms.mean() - 1)
        medians.append(np.median(latency_ms) / np.median(steady_ms) - 1)
        if min(latency_ms.size, steady_ms.size) * start.inferences_per_row >= LEAST_FOR_P99:
            tails.append(np.quantile(latency_ms, 0.99) / np.quantile(steady_ms, 0.99) - 1)
    return Bias(
        warmup_ms,
        float(np.mean(means)) * 100,
        float(np.mean(medians)) * 100,
        float(np.mean(tails)) * 100 if len(tails) == len(means) else None,
        measured_ms=min(span_ms for _, (span_ms, _) in found),
        inferences=min(latency_ms.size * start.inferences_per_row for start, (_, latency_ms) in found),
    )


def _measured(start: Warmed, warmup_ms: float) -> tuple[float, Floats] | None:
    """How long a benchmark goes on in the data, and its latencies; None where that is too little."""
    elapsed_ms, latency_ms = start.stretch.elapsed_ms, start.stretch.latency_ms
    begin_ms = warmup_ms - start.removed_ms
    first, last = np.searchsorted(elapsed_ms, (begin_ms, begin_ms + BENCHMARK_MS))
    span_ms = min(BENCHMARK_MS, float(elapsed_ms[-1] + latency_ms[-1]) - begin_ms)
    few = (last - first) * start.inferences_per_row < LEAST_INFERENCES
    return None if begin_ms < 0 or span_ms < LEAST_MS or few else (span_ms, latency_ms[first:last])
