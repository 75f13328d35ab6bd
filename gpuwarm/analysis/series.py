"""One series of latencies as blocks and levels: what a verdict on it, and on where it may err, is made from."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.changepoint import segment
from gpuwarm.analysis.noise import long_run_variance, tame
from gpuwarm.analysis.shapes import Decay
from gpuwarm.recording import Floats

Ints = NDArray[np.int64]

LEAD = 3  # iterations that may be slow for being first
LEAD_REFERENCE = 64  # iterations after them that say what is usual
RARE_REFERENCE, RARE_SHARE = 4096, 0.02  # iterations, and the share of them that may be as slow
SLOW_FIRST = 2.0  # times P90 - P10 above the median: 5 standard deviations of normal noise

BLOCK_SHARE = 1 / 32  # of the iterations before it is a block's size at most: early ends are found as finely as late
BLOCKS = 600  # of equal size, where that is smaller
PENALTY = 3.2  # times log(blocks) and the noise's variance: what a change must explain


@dataclass(frozen=True)
class Series:
    """The iterations after the slow first ones, as blocks; and the levels found in them."""

    elapsed_ms: Floats  # every iteration
    span_ms: float
    lead: int
    tamed: Floats
    edges: Ints  # of blocks, in iterations after the lead
    sizes: Floats
    means: Floats
    begins_ms: Floats  # of blocks, and the end
    noise: float  # long-run variance
    bounds: Ints  # of levels, in blocks
    tolerance: float

    @property
    def levels(self) -> Floats:
        return np.add.reduceat(self.means * self.sizes, self.bounds[:-1]) / self.weights

    @property
    def weights(self) -> Floats:
        return np.add.reduceat(self.sizes, self.bounds[:-1])

    @property
    def penalty(self) -> float:
        return PENALTY * float(np.log(self.means.size)) * self.noise

    @property
    def middles_ms(self) -> Floats:
        return (self.begins_ms[:-1] + self.begins_ms[1:]) / 2

    def smoothed(self) -> Floats:
        """The level of each block."""
        return np.repeat(self.levels, np.diff(self.bounds))


@dataclass(frozen=True)
class Ending:
    """Where a series seems to become steady."""

    first: int  # steady level
    run: int  # level from which latency moves one way only until then
    level: float  # steady latency
    approach: Decay | None  # from the begin of `run` on; None where levels say it better
    end_ms: float


def series_of(elapsed_ms: Floats, latency_ms: Floats, span_ms: float, tolerance: float) -> Series:
    """The blocks and levels of iterations that begin at `elapsed_ms`, from 0 on."""
    lead = lead_of(latency_ms, tolerance)
    tamed = tame(latency_ms[lead:])
    edges = _edges(tamed.size)
    sizes = np.diff(edges).astype(np.float64)
    means = np.add.reduceat(tamed, edges[:-1]) / sizes
    noise = long_run_variance(tamed)
    parts = segment(means, weights=sizes, penalty=max(PENALTY * float(np.log(means.size)) * noise, 1e-300))
    bounds = np.array([0, *(part.stop for part in parts)])
    begins = np.append(elapsed_ms[lead:][edges[:-1]], span_ms)
    return Series(elapsed_ms, span_ms, lead, tamed, edges, sizes, means, begins, noise, bounds, tolerance)


def lead_of(latency_ms: Floats, tolerance: float) -> int:
    """How many of the first iterations are slow for being first, and not as others are slow now and then."""
    low, middle, high = np.quantile(latency_ms[LEAD : LEAD + LEAD_REFERENCE], (0.1, 0.5, 0.9))
    limit = middle + max(SLOW_FIRST * (high - low), tolerance * middle)
    later = latency_ms[LEAD : LEAD + RARE_REFERENCE]
    lead = 0
    while lead < LEAD and latency_ms[lead] > limit and np.mean(later >= latency_ms[lead]) <= RARE_SHARE:
        lead += 1
    return lead


def _edges(n: int) -> Ints:
    """Bounds of blocks."""
    largest = max(1, n // BLOCKS)
    edges = [0]
    while edges[-1] < n:
        edges.append(min(n, edges[-1] + max(1, min(int(edges[-1] * BLOCK_SHARE), largest))))
    return np.array(edges)


def spans(series: Series) -> tuple[Floats, Floats, Floats, Floats]:
    """Of each level: latency, iterations, begin and end."""
    times = series.begins_ms[series.bounds]
    return series.levels, series.weights, times[:-1], times[1:]


def since_begin(series: Series, run: int) -> tuple[Floats, float]:
    """When the blocks from a level on are, since its begin; and how long an iteration takes."""
    begin = series.bounds[run]
    step_ms = series.span_ms / series.elapsed_ms.size
    return series.middles_ms[begin:] - series.begins_ms[begin], step_ms
