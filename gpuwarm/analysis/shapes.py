"""Two shapes a signal may have: an exponential approach to a level, and a cycle."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.noise import long_run_variance

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Decay:
    """level + size * exp(-t / tau); tau is infinite for a straight line, whose size is then its fall over the span."""

    level: float
    size: float
    tau: float
    error: float  # weighted squared error
    tau_interval: tuple[float, float]  # where the error is less than `slack` more

    def left(self, t: float) -> float:
        """The distance from the level at t."""
        return abs(self.size) * float(np.exp(-t / self.tau)) if np.isfinite(self.tau) else np.inf

    def reaches(self, distance: float) -> float:
        """When the distance from the level has become this small."""
        if not np.isfinite(self.tau):
            return np.inf
        return max(0.0, self.tau * float(np.log(max(abs(self.size) / distance, 1e-300))))


TAUS = 40  # tried, over
SHORTEST_SHARE, LONGEST_SHARE = 1 / 2000, 4.0  # of the span
NEARER = 1.5  # times the best of those either way, as many again


def _taus(span: float, shortest: float) -> Floats:
    """Time constants to try; the last, infinite, stands for a straight line."""
    return np.append(np.geomspace(max(span * SHORTEST_SHARE, shortest), LONGEST_SHARE * span, TAUS), np.inf)


def _near(tau: float) -> Floats:
    return np.append(np.geomspace(tau / NEARER, tau * NEARER, TAUS), np.inf)


def _shapes(t: Floats, taus: Floats) -> Floats:
    """What falls from 1 with each time constant, or from 0 along a straight line: (k, n)."""
    span = float(t[-1])
    return np.vstack([np.exp(-t / taus[:-1, None]), -t / span])


def _fit(shapes: Floats, values: Floats, weights: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Least squares of signals (d, n) on each of the shapes (k, n): levels, sizes and gains (d, k), and means (d,)."""
    total = weights.sum()
    means, centres = values @ weights / total, shapes @ weights / total
    bases = shapes - centres[:, None]
    products, squares = ((values - means[:, None]) * weights) @ bases.T, (bases**2) @ weights
    sizes = np.divide(products, squares, out=np.zeros_like(products), where=squares > 0)
    return means[:, None] - sizes * centres, sizes, sizes * products, means


def decay(t: Floats, values: Floats, weights: Floats, *, shortest: float, slack: float) -> Decay:
    """The best approach to a level; t starts near 0 and rises, `shortest` bounds tau from below. Shapes (n,)."""
    taus = _taus(float(t[-1]), shortest)
    _, _, gains, _ = _fit(_shapes(t, taus), values[None], weights)
    best = float(taus[gains[0].argmax()])
    if np.isfinite(best):
        taus = np.sort(np.concatenate([taus, _near(best)[:-1]]))
    levels, sizes, gains, means = _fit(_shapes(t, taus), values[None], weights)
    errors = float(weights @ (values - means[0]) ** 2) - gains[0]
    index = int(errors.argmin())
    alike = np.flatnonzero(errors <= errors[index] + slack)
    first, last = max(0, int(alike[0]) - 1), min(taus.size - 1, int(alike[-1]) + 1)  # the grid is no finer than this
    return Decay(
        float(levels[0, index]),
        float(sizes[0, index]),
        float(taus[index]),
        float(errors[index]),
        (float(taus[first]), float(taus[last])),
    )


def decay_ends(t: Floats, draws: Floats, weights: Floats, *, near: float, tolerance: float) -> Floats:
    """When each of many signals is within `tolerance` of the level it approaches.

    Args:
        t: starts near 0 and rises. Shape (n,).
        draws: the signals. Shape (d, n).
        weights: shape (n,).
        near: the time constant they have, more or less.
        tolerance: relative to the level.

    Returns:
        Shape (d,); infinite where a signal does not arrive.
    """
    taus = _near(near)
    levels, sizes, gains, _ = _fit(_shapes(t, taus), draws, weights)
    best = gains.argmax(axis=1)[:, None]
    level, size = (np.take_along_axis(values, best, axis=1)[:, 0] for values in (levels, sizes))
    tau = taus[best[:, 0]]
    with np.errstate(divide="ignore", invalid="ignore"):
        ends = tau * np.log(np.abs(size) / (tolerance * level))
    return np.where(np.isfinite(tau), np.maximum(ends, 0.0), np.inf)


@dataclass(frozen=True)
class Cycle:
    """A signal that repeats."""

    period: float  # in values
    amplitude: float  # of the sine with as much power, relative to the mean
    gain: float  # squared error taken away from a straight line, in the long-run variance of the rest
    gain_over_rival: float
    share: float  # of the variance around a straight line that the cycle explains


BINS = 1 << 13
FEWEST_CYCLES = 3.4
FUNDAMENTAL_SHARE = 0.5  # of the amplitude is in the fundamental at least: a sawtooth has 0.78, its window 0.85 of it
PHASES = 12  # enough for every shape while searching
FINE = ((2000, 48), (500, 24), (0, PHASES))  # with so many bins, so many phases: sharp edges count where noise is low


def cycle(values: Floats, *, rival: Floats, shortest: float, least: float) -> Cycle | None:
    """The strongest cycle, or None where there is no room for one.

    Args:
        values: shape (n,), positive.
        rival: what another model says they are; shape (n,).
        shortest: period, in values.
        least: relative amplitude; less is not looked for.
    """
    n = values.size
    bins = min(n, BINS)
    size = n // bins
    signal, unexplained = (part[: bins * size].reshape(bins, size).mean(axis=1) for part in (values, values - rival))
    signal, unexplained = signal / signal.mean() - 1, unexplained / signal.mean()
    line = np.arange(bins) - (bins - 1) / 2
    signal = signal - (line @ signal) / (line @ line) * line
    power = np.abs(np.fft.rfft(signal * np.hanning(bins))) ** 2
    low, high = int(np.ceil(FEWEST_CYCLES)), min(bins // 4, int(n / shortest))
    if high <= low + 2 * low:
        return None
    strongest = 4 * float(np.sqrt(power[low:high].max())) / bins  # amplitude of a sine, seen through the window
    frequency = _fundamental(signal, _peaks(power, low, high)) if strongest > FUNDAMENTAL_SHARE * least else None
    if frequency is None:
        return None
    phases = next(phases for enough, phases in FINE if bins > enough)
    profile, phase = _fold(signal, frequency, phases)
    rest = signal - profile[phase]
    variance = long_run_variance(rest)
    total, left = float(signal @ signal), float(rest @ rest)
    if variance <= 0 or total <= 0:
        return None
    power_of = max(0.0, float(np.var(profile)) - phases / bins * variance)
    return Cycle(
        period=bins * size / frequency,
        amplitude=float(np.sqrt(2 * power_of)),
        gain=(total - left) / variance,
        gain_over_rival=(float(unexplained @ unexplained) - left) / variance,
        share=1 - left / total,
    )


def _peaks(power: Floats, low: int, high: int) -> list[int]:
    """The strongest peaks as they are, and those that stand out of a spectrum that falls."""
    inner = power[low:high]
    peaks = low + np.flatnonzero((inner >= power[low - 1 : high - 1]) & (inner >= power[low + 1 : high + 1]))
    plain, rising = peaks[np.argsort(power[peaks])[-4:]], peaks[np.argsort(power[peaks] * peaks)[-3:]]
    return sorted({int(peak) for peak in (*plain, *rising)})


def _fold(signal: Floats, frequency: float, phases: int) -> tuple[Floats, Ints]:
    """The mean at each phase, and the phase of each value; `frequency` is periods in the signal."""
    phase = (np.arange(signal.size) * (frequency / signal.size) % 1 * phases).astype(np.int64)
    counts = np.bincount(phase, minlength=phases)
    return np.bincount(phase, signal, phases) / np.maximum(1, counts), phase


def _explained(signal: Floats, frequency: float) -> float:
    profile, phase = _fold(signal, frequency, PHASES)
    return float(np.bincount(phase, minlength=PHASES) @ profile**2)


def _fundamental(signal: Floats, peaks: list[int]) -> float | None:
    """The highest frequency that explains nearly as much as any: a fold at twice the period explains as much too."""
    tried = []
    for peak in peaks:
        for divisor in (1, 2, 3):
            near = peak / divisor + np.linspace(-0.5, 0.5, 11)
            near = near[near >= FEWEST_CYCLES]
            if near.size:
                tried.append(max((_explained(signal, frequency), float(frequency)) for frequency in near))
    if not tried:
        return None
    most = max(explained for explained, _ in tried)
    rough = max(frequency for explained, frequency in tried if explained >= 0.85 * most)
    return max((_explained(signal, float(near)), float(near)) for near in rough + np.linspace(-0.1, 0.1, 11))[1]
