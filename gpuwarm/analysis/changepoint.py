"""A signal to segments of constant mean; knows no product."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Segment:
    """values[start:stop] have one mean."""

    start: int
    stop: int
    mean: float


def segment(values: Floats, *, penalty: float, weights: Floats | None = None) -> tuple[Segment, ...]:
    """The segments that minimise weighted squared error plus `penalty` a segment: exact, by pruned dynamic programming.

    Killick, Fearnhead and Eckley 2012 (PELT): a start that is beaten by more than the penalty now never wins later.

    Args:
        values: shape (n,), finite.
        penalty: in units of a squared value times a weight; for noise of variance s2 a few times s2 * log(n).
        weights: shape (n,), positive; by default 1 each.
    """
    n = values.size
    if n == 0:
        return ()
    weight = np.ones(n) if weights is None else weights
    centred = values - np.average(values, weights=weight)  # large offsets would cancel badly in the sums below
    w = _running_sum(weight)
    s1 = _running_sum(weight * centred)
    s2 = _running_sum(weight * centred**2)
    best = np.empty(n + 1)
    best[0] = -penalty
    previous = np.zeros(n + 1, np.int64)
    starts, ends = np.zeros(1, np.int64), np.arange(n + 1)
    for stop in range(1, n + 1):
        sums = s1[stop] - s1[starts]
        costs = best[starts] + (s2[stop] - s2[starts]) - sums * sums / (w[stop] - w[starts])
        winner = costs.argmin()
        best[stop] = costs[winner] + penalty
        previous[stop] = starts[winner]
        starts = np.concatenate((starts[costs <= best[stop]], ends[stop : stop + 1]))
    bounds = [n]
    while bounds[-1] > 0:
        bounds.append(int(previous[bounds[-1]]))
    bounds.reverse()
    return tuple(Segment(a, b, float(np.average(values[a:b], weights=weight[a:b]))) for a, b in pairwise(bounds))


def _running_sum(values: Floats) -> Floats:
    return np.concatenate([[0.0], np.cumsum(values)])
