"""What a latency that moves goes with: the host's own times, or the GPU's clock."""

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
MATTERS_SHARE = 1 / 3  # of the latency's movement is what the clock must move to be a cause


@dataclass(frozen=True)
class Mover:
    """What moves the latency, and the sentence that says how that is known."""

    cause: Literal["host", "clock"]
    evidence: str


def mover(recording: Recording, stretch: Stretch, judged: Judgement, *, tolerance: float) -> Mover | None:
    """What moves the latency of one start; None where nothing does or that cannot be told."""
    if judged.behaviour == "flat":
        return None
    # What comes long after the warm-up would dilute it.
    until = stretch.rows.size
    if judged.warmup.time_ms is not None:
        until = int(np.searchsorted(stretch.elapsed_ms, 2 * judged.warmup.time_ms))
    rows = stretch.rows[:until]
    latency = _blocks(stretch.latency_ms[:until])
    enqueue, clock = (_blocks(recording.iterations[name][rows]) for name in ("enqueue_ns", "sm_clock_mhz"))
    moved = _spread(latency)
    if moved is None or moved <= tolerance:
        return None
    clock_moved = _spread(clock)
    if clock_moved is not None and clock_moved >= MATTERS_SHARE * moved and _together(latency, 1 / clock) >= GOES_WITH:
        return Mover(
            "clock",
            f"latency moves by {100 * moved:.1f} % with the SM clock measured on the GPU, "
            f"which moves by {100 * clock_moved:.1f} %",
        )
    if _together(latency, enqueue) >= GOES_WITH and (clock_moved is None or clock_moved < MATTERS_SHARE * moved):
        meanwhile = (
            "the SM clock was not measured" if clock_moved is None else f"the SM clock by {100 * clock_moved:.1f} %"
        )
        return Mover(
            "host",
            f"latency moves by {100 * moved:.1f} % with the host's time to enqueue, {meanwhile}: "
            "the host moves it, not the GPU's clock",
        )
    return None


def _blocks(values: Floats) -> Floats:
    """Medians of equal blocks; NaN where a block holds a missing value."""
    blocks = min(BLOCKS, values.size // MIN_BLOCK_ITERATIONS)
    edges = np.linspace(0, values.size, blocks + 1).astype(np.int64)
    return np.array([np.median(values[begin:end]) for begin, end in pairwise(edges)])


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
