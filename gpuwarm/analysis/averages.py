"""Which mean can be quoted where single latencies find no rest: hunting averages out, a drift does not."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarm.analysis.stretch import Stretch
from gpuwarm.recording import Floats

WINDOWS_MS = (1000.0, 2000.0, 5000.0)  # a benchmark's measurement, and longer ones
MIN_WINDOWS = 3.0  # one after the other must agree
STEPS = 20  # places in a window where the next one begins: a mean must not depend on where


@dataclass(frozen=True)
class Average:
    """A mean that is steady where single latencies are not."""

    window_ms: float  # taken over so long,
    from_ms: float  # beginning after this or later,
    level_ms: float
    spread_pct: float  # it is off by this at most, in every start


def average(starts: Sequence[Stretch], tolerance: float) -> Average | None:
    """The shortest mean that stays within the tolerance in every start; None where none does."""
    for window_ms in WINDOWS_MS:
        found = [_average(start, window_ms, tolerance) for start in starts]
        known = [each for each in found if each is not None]
        if known and len(known) == len(found):
            level_ms = float(np.mean([each.level_ms for each in known]))
            apart = max(abs(each.level_ms / level_ms - 1) * 100 for each in known)
            return Average(
                window_ms, max(each.from_ms for each in known), level_ms, apart + max(each.spread_pct for each in known)
            )
    return None


def _average(start: Stretch, window_ms: float, tolerance: float) -> Average | None:
    begins_ms, means = _sliding(start, window_ms)
    half_ms = start.elapsed_ms[-1] / 2
    if start.elapsed_ms[-1] < half_ms + MIN_WINDOWS / 2 * window_ms or not means.size:
        return None
    level_ms = float(start.latency_ms[start.elapsed_ms >= half_ms].mean())
    off = np.abs(means / level_ms - 1)
    apart = np.flatnonzero(off > tolerance)
    first = int(apart[-1]) + 1 if apart.size else 0
    if first == means.size or begins_ms[first] > min(half_ms, start.elapsed_ms[-1] - MIN_WINDOWS * window_ms):
        return None
    return Average(window_ms, float(begins_ms[first]), level_ms, 100 * float(off[first:].max()))


def _sliding(start: Stretch, window_ms: float) -> tuple[Floats, Floats]:
    """Where windows begin, and their means."""
    begins_ms = np.arange(0.0, start.elapsed_ms[-1] - window_ms, window_ms / STEPS)
    first, last = (np.searchsorted(start.elapsed_ms, begins_ms + past) for past in (0.0, window_ms))
    sums = np.concatenate([[0.0], np.cumsum(start.latency_ms)])
    kept = last > first
    return begins_ms[kept], (sums[last] - sums[first])[kept] / (last - first)[kept]
