"""What a latency that moves goes with: the host's own times, or the GPU's clock."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from gpuwarm.analysis.steady import Judgement
from gpuwarm.analysis.stretch import Stretch
from gpuwarm.recording import Floats, Recording

BLOCKS = 50  # medians that are compared; fine enough for a step, coarse enough that noise averages out
MIN_BLOCKS = 12  # fewer go together by chance
MIN_BLOCK_ITERATIONS = 5
GOES_WITH = 0.8  # correlation; H200 traces have 0.97 to 1.0 with what moves them, at most 0.3 with what does not
MOSTLY = 0.75  # of the movement; H200: 0.8 to 1.0 where the host wakes up late, at most 0.6 where a power cap moves it
MATTERS_SHARE = 1 / 3  # of the latency's movement is what the clock, or the enqueue, must move to be a cause


@dataclass(frozen=True)
class Mover:
    """What moves the latency, and the sentence that says how that is known."""

    cause: Literal["host", "clock"]
    evidence: str


@dataclass(frozen=True)
class Restless:
    """How far the caller's latency wanders once warm, and the host's part of it: 5th to 95th percentile of medians."""

    latency_ms: tuple[float, float]
    host_ms: tuple[float, float]  # outside the GPU's own work: launching, copying, waking up


def mover(recording: Recording, stretch: Stretch, judged: Judgement, *, tolerance: float) -> Mover | None:
    """What moves the latency of one start; None where nothing does or that cannot be told."""
    if judged.behaviour == "flat":
        return None
    # What comes long after the warm-up would dilute it.
    until = stretch.rows.size
    if judged.warmup.time_ms is not None:
        until = int(np.searchsorted(stretch.elapsed_ms, 2 * judged.warmup.time_ms))
    latency, clock = (
        _blocks(values[:until]) for values in (stretch.latency_ms, recording.iterations["sm_clock_mhz"][stretch.rows])
    )
    moved, clock_moved = _spread(latency), _spread(clock)
    if moved is None or moved <= tolerance:
        return None
    cycle = np.divide(1.0, clock, out=np.full(clock.size, np.nan), where=clock > 0)  # latency is proportional to it
    cycle_moved = _spread(cycle)
    if cycle_moved is not None and cycle_moved >= MATTERS_SHARE * moved:
        if _together(latency, cycle) < GOES_WITH:
            return None
        return Mover(
            "clock",
            f"latency moves by {100 * moved:.1f} % with the SM clock measured on the GPU, "
            f"which moves by {100 * (clock_moved or 0.0):.1f} %",
        )
    how = _by_host(recording, stretch, latency, until)
    if how is None:
        return None
    meanwhile = "the SM clock was not measured" if clock_moved is None else f"the SM clock by {100 * clock_moved:.1f} %"
    said = f"latency moves by {100 * moved:.1f} % {how}, {meanwhile}: the host moves it, not the GPU's clock"
    return Mover("host", said)


def _by_host(recording: Recording, stretch: Stretch, latency: Floats, until: int) -> str | None:
    """How a latency moves with the host; None where it does not."""
    rows = recording.iterations[stretch.rows[:until]]
    enqueue = _blocks(rows["enqueue_ns"])
    moved, enqueue_moved = (_spread(blocks) or 0.0 for blocks in (latency, enqueue))
    if enqueue_moved >= MATTERS_SHARE * moved and _together(latency, enqueue) >= GOES_WITH:
        return "with the host's time to enqueue"
    if stretch.quantity != "host":
        return None
    share = _share(latency, _blocks((rows["host_ns"] - rows["gpu_ns"]) / 1e6))
    if share is None or share < MOSTLY:
        return None
    return f"and {100 * min(share, 1.0):.0f} % of that lies outside the GPU's own work (launch, copies, waking up)"


def restless(recording: Recording, found: Sequence[Stretch], *, after_ms: float | None) -> Restless | None:
    """How far what the caller waits for wanders; with None, where it is not known when it is warm, over all of it."""
    whole, outside = [], []
    for stretch in found:
        rows = recording.iterations[stretch.rows[int(np.searchsorted(stretch.elapsed_ms, after_ms or 0.0)) :]]
        whole.append(_blocks(rows["host_ns"] / 1e6))
        outside.append(_blocks((rows["host_ns"] - rows["gpu_ns"]) / 1e6))
    latency, host = (_range(np.concatenate([np.empty(0), *blocks])) for blocks in (whole, outside))
    return None if latency is None or host is None else Restless(latency, host)


def _range(blocks: Floats) -> tuple[float, float] | None:
    known = blocks[np.isfinite(blocks)]
    if known.size < MIN_BLOCKS:
        return None
    low, high = np.quantile(known, (0.05, 0.95))
    return float(low), float(high)


def _share(whole: Floats, part: Floats) -> float | None:
    """Of the movement of a whole, how much its part accounts for."""
    known = np.isfinite(whole) & np.isfinite(part)
    if known.sum() < MIN_BLOCKS or np.ptp(whole[known]) == 0:
        return None
    return float(np.cov(whole[known], part[known])[0, 1] / np.var(whole[known], ddof=1))


def _blocks(values: Floats) -> Floats:
    """Medians of what is known in equal blocks; NaN where that is less than half."""
    blocks = min(BLOCKS, values.size // MIN_BLOCK_ITERATIONS)
    edges = np.linspace(0, values.size, blocks + 1).astype(np.int64)
    known = np.isfinite(values)
    return np.array(
        [
            np.median(values[begin:end][known[begin:end]]) if 2 * known[begin:end].sum() > end - begin else np.nan
            for begin, end in pairwise(edges)
        ]
    )


def _spread(blocks: Floats) -> float | None:
    """From the 5th to the 95th percentile, as a share of the median."""
    known = blocks[np.isfinite(blocks)]
    if known.size < MIN_BLOCKS or np.median(known) <= 0:
        return None
    low, middle, high = np.quantile(known, (0.05, 0.5, 0.95))
    return float((high - low) / middle)


def _together(one: Floats, other: Floats) -> float:
    """Correlation over what both know; 0 where either stands still."""
    known = np.isfinite(one) & np.isfinite(other)
    if known.sum() < MIN_BLOCKS or np.ptp(one[known]) == 0 or np.ptp(other[known]) == 0:
        return 0.0
    return float(np.corrcoef(one[known], other[known])[0, 1])
