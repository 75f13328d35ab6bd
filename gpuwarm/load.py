"""When a GPU was under load, and where nothing was logged, told by a log of its state alone."""

import numpy as np
from numpy.typing import NDArray

from gpuwarm.recording import Floats

Times = NDArray[np.int64]

RISE_MIN = 1.25  # of a signal under load against rest; its noise has lower steps
DIP_S = 0.35  # below half the rise that does not end a load: a reading or two under a power cap
USED_PCT = 5.0  # utilisation below which power has other reasons: a driver that loads, a display
GAP_PERIODS = 10  # sampling periods without a row part a log into two sessions,
GAP_MIN_S = 2.0  # and at least so much: a stalled nvidia-smi is no pause
_NS = 10**9


def loads(t_ns: Times, values: Floats) -> list[tuple[int, int]]:
    """[begin, end) of each stretch in which a signal of load (power, utilisation) is above half its rise.

    Shapes (n,), (n,); no NaN. Empty where the signal never rises.
    """
    if values.size < 3:  # noqa: PLR2004 -- rest, load, rest
        return []
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(values, 3), axis=1)  # one odd reading is no load
    rest, busy = float(smooth.min()), float(smooth.max())
    if busy <= RISE_MIN * max(rest, 1.0):
        return []
    return _stretches(values > (rest + busy) / 2, t_ns)


def _stretches(loaded: NDArray[np.bool_], t_ns: Times) -> list[tuple[int, int]]:
    """Where it is true, short dips filled."""
    found: list[tuple[int, int]] = []
    edges = np.flatnonzero(np.diff(loaded.astype(np.int8), prepend=0, append=0))
    for begin, end in edges.reshape(-1, 2).tolist():
        if found and t_ns[begin] - t_ns[found[-1][1] - 1] <= DIP_S * _NS:
            found[-1] = (found[-1][0], end)
        else:
            found.append((begin, end))
    return found


def gaps(steps_ns: Times) -> Times:
    """Which steps between rows are pauses in logging."""
    forward = steps_ns[steps_ns > 0]
    period_ns = float(np.median(forward)) if forward.size else 0.0
    return np.flatnonzero(steps_ns > max(GAP_PERIODS * period_ns, GAP_MIN_S * _NS))
