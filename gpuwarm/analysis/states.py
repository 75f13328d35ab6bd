"""The states a GPU passed through, told apart by its clocks; the P-state is a label."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np

from gpuwarm.analysis.causes import END
from gpuwarm.analysis.stretch import Stretch
from gpuwarm.analysis.words import median
from gpuwarm.metadata import Mark
from gpuwarm.recording import Floats, Recording, Rows

SAME_CLOCK_SHARE = 0.03  # clocks this near are one state: a power cap makes the SM clock wander by 1 to 2 %
LOOK_BACK_MS = 1000.0  # before a start's process: what rest looked like
MAX_POINTS = 4000  # a longer series of inferences is reduced to medians of blocks; NVML's own refresh is coarser
MAX_READINGS = 50_000  # of NVML; an hour and more at its refresh, of which every change is to be timed
FIRST_LOOK = 64  # readings ahead for the end of a state, then twice as many, and so on
MIN_READINGS = 2  # a state seen in one reading alone may be a reading between two clocks


@dataclass(frozen=True)
class ClockState:
    """A stretch of time in which the clocks stayed the same."""

    source: Literal["gpu", "nvml"]  # measured on the GPU during inference, or read from NVML (50 to 250 ms late)
    from_ms: float  # since the start's first inference
    until_ms: float
    sm_clock_mhz: float
    mem_clock_mhz: float | None = None
    pstate: int | None = None
    latency_ms: float | None = None  # median; only where the clock was measured with the inference itself
    during: str | None = None  # the step of the cold start (named by the mark that ends it) in which it was first read


def passed_through(recording: Recording, stretch: Stretch) -> tuple[ClockState, ...]:
    """The states of one start in order: NVML's from rest to its last inference, then those measured on the GPU."""
    zero_ns = int(recording.iterations["t_ns"][stretch.rows[0]])
    end_ns = int(recording.iterations["t_ns"][stretch.rows[-1]])
    marks = _marks(recording, stretch.start)
    begin_ns = marks[0].t_ns if marks else zero_ns
    times = recording.samples["t_ns"]
    samples = recording.samples[(times >= begin_ns - int(LOOK_BACK_MS * 1e6)) & (times <= end_ns)]
    read = _from_rest(of_samples(samples, zero_ns), begin_ms=(begin_ns - zero_ns) / 1e6)
    named = (replace(state, during=_step(marks, zero_ns + state.from_ms * 1e6)) for state in read)
    return (*named, *_from_gpu(recording.iterations["sm_clock_mhz"][stretch.rows], stretch))


def _from_rest(states: tuple[ClockState, ...], *, begin_ms: float) -> tuple[ClockState, ...]:
    """Without those that are the way down from what ran before."""
    first = max((index for index, state in enumerate(states) if state.from_ms <= begin_ms), default=0)
    while (
        first + 1 < len(states)
        and states[first + 1].from_ms < 0
        and states[first + 1].sm_clock_mhz < states[first].sm_clock_mhz
    ):
        first += 1
    return states[first:]


def _marks(recording: Recording, start: int) -> tuple[Mark, ...]:
    starts = recording.meta.starts
    found = starts[start].marks if start < len(starts) else ()
    return tuple(sorted(found, key=lambda mark: mark.t_ns))


def _step(marks: Sequence[Mark], t_ns: float) -> str | None:
    """The step under way; None before the process began, and after its first inference did."""
    for begin, end in pairwise(marks):
        if begin.t_ns <= t_ns < end.t_ns and end.name != END:
            return end.name
    return None


def of_samples(samples: Rows, zero_ns: int) -> tuple[ClockState, ...]:
    """The states that samples show in order; their times count from `zero_ns`."""
    samples = samples[np.isfinite(samples["sm_clock_mhz"])]
    samples = samples[np.linspace(0, samples.size - 1, min(samples.size, MAX_READINGS)).astype(np.int64)]
    elapsed_ms = (samples["t_ns"] - np.int64(zero_ns)) / 1e6
    columns = (samples["sm_clock_mhz"], samples["mem_clock_mhz"], samples["pstate"])
    found = []
    for begin, end in _runs(columns):
        sm, mem, pstate = (median(column[begin:end]) for column in columns)
        if sm is not None:
            label = None if pstate is None else round(pstate)
            last = min(end, elapsed_ms.size - 1)
            found.append(ClockState("nvml", float(elapsed_ms[begin]), float(elapsed_ms[last]), sm, mem, label))
    return tuple(found)


def _from_gpu(clocks_mhz: Floats, stretch: Stretch) -> tuple[ClockState, ...]:
    known = np.flatnonzero(np.isfinite(clocks_mhz))
    size = max(1, -(-known.size // MAX_POINTS))
    blocks = known[: known.size // size * size].reshape(-1, size)
    medians_mhz = np.median(clocks_mhz[blocks], axis=1)
    found = []
    for begin, end in _runs((medians_mhz,)):
        own = blocks[begin:end].ravel()
        last = own[-1] + 1 if end < len(blocks) else stretch.elapsed_ms.size - 1
        found.append(
            ClockState(
                source="gpu",
                from_ms=float(stretch.elapsed_ms[own[0]]),
                until_ms=float(stretch.elapsed_ms[min(last, stretch.elapsed_ms.size - 1)]),
                sm_clock_mhz=float(np.median(medians_mhz[begin:end])),
                latency_ms=median(stretch.latency_ms[own]),
            )
        )
    return tuple(found)


def _runs(columns: tuple[Floats, ...]) -> list[tuple[int, int]]:
    """Bounds of the states: no column moves by more than the share above; what is seen in one reading alone is none."""
    size = columns[0].size
    found: list[tuple[int, int]] = []
    begin = 0
    while begin < size:
        end = _left(columns, begin)
        if end - begin >= MIN_READINGS:
            found = _joined(found, (begin, end), columns)
        begin = end
    return found


def _left(columns: tuple[Floats, ...], begin: int) -> int:
    """Where the state that begins there is left."""
    size, at, look = columns[0].size, begin, FIRST_LOOK
    while at < size:
        left = np.zeros(min(look, size - at), bool)
        for column in columns:
            left |= np.abs(column[at : at + look] - column[begin]) > SAME_CLOCK_SHARE * abs(column[begin])
        if left.any():
            return at + int(left.argmax())
        at, look = at + look, 2 * look
    return size


def _joined(found: list[tuple[int, int]], new: tuple[int, int], columns: tuple[Floats, ...]) -> list[tuple[int, int]]:
    """`found` with `new` appended, or made part of the last where both are the same state."""
    if not found:
        return [new]
    before, now = (np.array([np.median(column[begin:end]) for column in columns]) for begin, end in (found[-1], new))
    if (np.abs(now - before) > SAME_CLOCK_SHARE * np.abs(before)).any():
        return [*found, new]
    return [*found[:-1], (found[-1][0], new[1])]
