"""What in a recording is continuous inference: the series that a judgement of latency rests on."""

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuwarm.recording import Floats, Recording, Rows

Ints = NDArray[np.int64]
Quantity = Literal["host", "gpu"]

PAUSE_MS = 10.0  # a longer one between two phases lets the GPU cool: what follows is another start of inference
FOLLOW_BLOCKS = 50  # medians that are compared; coarse enough that noise averages out
# On an H200 they correlate by 0.97 to 1.0 for an engine bound by launches, by less than 0.4 for others.
FOLLOW_CORRELATION = 0.7
FOLLOWS_AT_MOST = 3.0  # a GPU that waits for an enqueue grows by what that grows; by more than this, for other reasons
MIN_KNOWN_SHARE = 0.5  # of a start's iterations must have a host time for it to be the latency


@dataclass(frozen=True)
class Stretch:
    """One start's continuous inference: what a judgement of latency rests on."""

    start: int
    rows: Ints  # into recording.iterations
    elapsed_ms: Floats  # begin of each iteration since the first, pauses between phases taken out
    latency_ms: Floats
    quantity: Quantity  # which of an iteration's times the latency is


def stretches(recording: Recording, *, quantity: Quantity | None = None) -> tuple[Stretch, ...]:
    """The continuous inference of every start, up to its first pause or change of pace.

    Latency is what the caller waits for, and the GPU's own time where only that is known, or `quantity` asks for it.
    """
    rows_of = _rows_by_start(recording.iterations["start"])
    found = []
    for start in _continuous(recording, list(rows_of)):
        rows = rows_of[start]
        phases = recording.meta.starts[start].phases if start < len(recording.meta.starts) else ()
        known = float(np.isfinite(recording.iterations["host_ns"][rows]).mean())
        kind: Quantity = quantity or ("host" if known >= MIN_KNOWN_SHARE else "gpu")
        stretch = _stretch(recording.iterations, rows, kind, [phase.interval_ms for phase in phases])
        if stretch is not None:
            found.append(stretch)
    return tuple(found)


def follows_enqueue(recording: Recording, stretch: Stretch) -> float | None:
    """By how much the GPU's time grows for each unit the host's enqueue takes longer.

    A GPU that waits for launches takes as long as they do. 0 where the two do not go together, None where that is not
    known.
    """
    size = stretch.rows.size // FOLLOW_BLOCKS
    columns = [recording.iterations[name][stretch.rows] for name in ("gpu_ns", "enqueue_ns")]
    if size == 0 or not all(np.isfinite(column).all() for column in columns):
        return None
    gpu, enqueue = (
        np.median(column[: size * FOLLOW_BLOCKS].reshape(FOLLOW_BLOCKS, size), axis=1) for column in columns
    )
    if gpu.std() == 0 or enqueue.std() == 0:
        return 0.0
    together = float(np.corrcoef(gpu, enqueue)[0, 1])
    grows = together * float(gpu.std() / enqueue.std())
    return grows if together > FOLLOW_CORRELATION and grows < FOLLOWS_AT_MOST else 0.0


def _rows_by_start(starts: NDArray[np.int32]) -> dict[int, slice]:
    """Rows are ordered by start."""
    bounds = [0, *(np.flatnonzero(np.diff(starts)) + 1), starts.size]
    return {int(starts[begin]): slice(int(begin), int(end)) for begin, end in pairwise(bounds) if end > begin}


def _continuous(recording: Recording, seen: list[int]) -> list[int]:
    """Starts that were to infer continuously: without those that end after the cold inferences, or were killed.

    A start that was killed counts where there is no whole one.
    """
    about = dict(enumerate(recording.meta.starts))
    meant = [start for start in seen if start not in about or len(about[start].phases) != 1]
    return [start for start in meant if start not in about or about[start].failure is None] or meant


def _stretch(iterations: Rows, within: slice, quantity: Quantity, intervals_ms: list[float | None]) -> Stretch | None:
    latency = iterations[f"{quantity}_ns"][within]
    kept = np.flatnonzero(np.isfinite(latency) & (latency > 0))
    if kept.size == 0:
        return None
    begin = iterations["t_ns"][within][kept]
    if (np.diff(begin) < 0).any():  # streams interleave
        kept = kept[np.argsort(begin, kind="stable")]
        begin = iterations["t_ns"][within][kept]
    latency = latency[kept]
    phases = iterations["phase"][within][kept]
    step = np.diff(begin)
    cut = kept.size
    for change in np.flatnonzero(np.diff(phases)):
        phase = int(phases[change + 1])
        pause = step[change] - latency[change]
        paced = phase < len(intervals_ms) and phase > 1 and intervals_ms[phase] != intervals_ms[phase - 1]
        if phase > 1 and (pause > PAUSE_MS * 1e6 or paced):
            cut = int(change) + 1
            break
        step[change] = round(latency[change])
    elapsed = np.concatenate([[0.0], np.cumsum(step)])[:cut] / 1e6
    start = int(iterations["start"][within.start])
    return Stretch(start, (kept + within.start)[:cut], elapsed, latency[:cut] / 1e6, quantity)
