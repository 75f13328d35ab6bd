"""Differences between groups of a few runs, with intervals that hold for a few: Student's t, degrees by Welch."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

Key = TypeVar("Key")
CONFIDENCE = 0.95  # of every interval
_MIN_SIZE = 2  # of a group: fewer say nothing about their spread
_TINY = 1e-300  # stands for zero in the continued fraction
_CONVERGED = 1e-14
_MAX_TERMS = 500
_BISECTIONS = 200


@dataclass(frozen=True)
class Estimate:
    """A sum of means, each times its coefficient."""

    value: float
    interval: tuple[float, float] | None = None  # None: too few runs to have one
    p: float | None = None  # two-sided, that the truth is zero

    def covers(self, truth: float) -> bool:
        """Whether the interval holds it; without an interval nothing is excluded."""
        return self.interval is None or self.interval[0] <= truth <= self.interval[1]


def contrast(groups: Sequence[tuple[float, Sequence[float]]]) -> Estimate | None:
    """The estimate from (coefficient, values) of each group; None where a group is empty."""
    if not groups or any(len(values) == 0 for _, values in groups):
        return None
    value = float(sum(coefficient * np.mean(values) for coefficient, values in groups))
    if any(len(values) < _MIN_SIZE for _, values in groups):
        return Estimate(value)
    parts = [
        (coefficient**2 * float(np.var(values, ddof=1)) / len(values), len(values)) for coefficient, values in groups
    ]
    variance = sum(part for part, _ in parts)
    if variance == 0:
        return Estimate(value, (value, value), 1.0 if value == 0 else 0.0)
    freedom = variance**2 / sum(part**2 / (size - 1) for part, size in parts)
    error = math.sqrt(variance)
    half = t_quantile(CONFIDENCE, freedom) * error
    return Estimate(value, (value - half, value + half), t_two_sided(value / error, freedom))


def holm(p: Mapping[Key, float]) -> dict[Key, float]:
    """Holm's adjustment: claiming what stays under 5 % claims anything that is not there in 5 % of studies at most."""
    adjusted: dict[Key, float] = {}
    largest = 0.0
    for rank, name in enumerate(sorted(p, key=p.__getitem__)):
        largest = max(largest, min(1.0, (len(p) - rank) * p[name]))
        adjusted[name] = largest
    return adjusted


def t_two_sided(t: float, freedom: float) -> float:
    """How often Student's t is at least this far from zero."""
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def t_quantile(confidence: float, freedom: float) -> float:
    """Student's t is within this of zero with that probability."""
    low, high = 0.0, 1.0
    while t_two_sided(high, freedom) > 1 - confidence:
        high *= 2
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if t_two_sided(middle, freedom) > 1 - confidence:
            low = middle
        else:
            high = middle
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by Lentz's continued fraction where that converges fast."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(1 - x, b, a)
    log_front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    c, d = 1.0, 1 / _nonzero(1 - (a + b) * x / (a + 1))
    total = d
    for m in range(1, _MAX_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            total *= d * c
        if abs(d * c - 1) < _CONVERGED:
            break
    return math.exp(log_front) * total / a


def _nonzero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
