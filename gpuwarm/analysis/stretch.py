"""What in a recording is continuous inference: the series that a judgement of latency rests on."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuwarm.recording import Floats, Recording, Rows

Ints = NDArray[np.int64]
Quantity = Literal["host", "gpu"]

PAUSE_MS = 10.0  # a longer one between two phases lets the GPU cool: what follows is another start of inference
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
    starts = recording.iterations["start"]
    found = []
    for start in _continuous(recording):
        rows = np.flatnonzero(starts == start)
        phases = recording.meta.starts[start].phases if start < len(recording.meta.starts) else ()
        known = float(np.isfinite(recording.iterations["host_ns"][rows]).mean())
        kind: Quantity = quantity or ("host" if known >= MIN_KNOWN_SHARE else "gpu")
        stretch = _stretch(int(start), rows, recording.iterations[rows], kind, [p.interval_ms for p in phases])
        if stretch is not None:
            found.append(stretch)
    return tuple(found)


def _continuous(recording: Recording) -> list[int]:
    """Starts that were to infer continuously: without those that end after the cold inferences, or were killed.

    A start that was killed counts where there is no whole one.
    """
    seen = [int(start) for start in np.unique(recording.iterations["start"])]
    about = dict(enumerate(recording.meta.starts))
    meant = [start for start in seen if start not in about or len(about[start].phases) != 1]
    return [start for start in meant if start not in about or about[start].failure is None] or meant


def _stretch(
    start: int, rows: Ints, table: Rows, quantity: Quantity, intervals_ms: list[float | None]
) -> Stretch | None:
    latency = table[f"{quantity}_ns"]
    kept = np.isfinite(latency) & (latency > 0)
    rows, table, latency = rows[kept], table[kept], latency[kept]
    if rows.size == 0:
        return None
    begin = table["t_ns"]
    step = np.diff(begin)
    changes = np.flatnonzero(np.diff(table["phase"]))
    cut = rows.size
    for change in changes:
        phase = int(table["phase"][change + 1])
        pause = step[change] - latency[change]
        paced = phase < len(intervals_ms) and phase > 1 and intervals_ms[phase] != intervals_ms[phase - 1]
        if phase > 1 and (pause > PAUSE_MS * 1e6 or paced):
            cut = int(change) + 1
            break
        step[change] = round(latency[change])
    elapsed = np.concatenate([[0.0], np.cumsum(step)])[:cut] / 1e6
    return Stretch(start, rows[:cut], elapsed, latency[:cut] / 1e6, quantity)
