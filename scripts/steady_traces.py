"""Latency traces whose answer is known: what GPUs and hosts do, with the noise they do it under, from a seed."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
TOLERANCE = 0.01
MAX_ITERATIONS = 60_000  # keeps a thousand traces in minutes; longer ones only make answers easier
MIN_EVIDENCE = 36.0  # squared deviations in variances of the noise (6 sigma): less cannot be told from no effect


@dataclass(frozen=True)
class Trace:
    """One series and its answer."""

    family: str
    noise: str
    seed: int
    elapsed_ms: Floats  # begin of each iteration
    latency_ms: Floats
    expected_ms: Floats  # the same without noise
    behaviour: str
    end: int | None  # first iteration from which the expected latency stays within the tolerance


Shape = Callable[[Floats], Floats]  # elapsed ms -> multiple of the steady latency
Rng = np.random.Generator


def _effect(rng: Rng, low: float = 0.02, high: float = 1.0) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def _log_uniform(rng: Rng, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def flat(_rng: Rng, _span_ms: float) -> Shape:
    return lambda t: np.ones_like(t)


def ramp(rng: Rng, span_ms: float) -> Shape:
    """Exponential, 10 ms to 2 s, over by half of the trace."""
    size = _effect(rng)
    tau = _log_uniform(rng, 10, min(2000.0, 0.5 * span_ms / np.log(size / TOLERANCE + 1)))
    return lambda t: 1 + size * np.exp(-t / tau)


def staircase(rng: Rng, span_ms: float) -> Shape:
    """Two to four treads of 20 ms to 2 s, each faster than the last."""
    treads = int(rng.integers(2, 5))
    drops = np.array([_effect(rng, 0.02, 0.6) for _ in range(treads)])
    lengths = np.array([_log_uniform(rng, 20, 2000) for _ in range(treads)])
    bounds = np.cumsum(lengths * min(1.0, 0.5 * span_ms / lengths.sum()))
    heights = 1 + np.concatenate([np.cumsum(drops[::-1])[::-1], [0.0]])
    return lambda t: heights[np.searchsorted(bounds, t, side="right")]


def slowdown(rng: Rng, span_ms: float) -> Shape:
    """A boost of 20 ms to 2 s, then a cap, at once or settling."""
    size, at = _effect(rng, 0.02, 0.3), _log_uniform(rng, 20, min(2000.0, 0.4 * span_ms))
    tau = _log_uniform(rng, 1, 100) if rng.random() < 0.5 else 1e-3
    return lambda t: 1 - size / (1 + size) * np.where(t < at, 1.0, np.exp(-np.maximum(t - at, 0) / tau))


def ramp_then_cap(rng: Rng, span_ms: float) -> Shape:
    """A ramp that is over when the cap comes."""
    size, cap = _effect(rng, 0.05, 1.0), _effect(rng, 0.02, 0.3)
    tau = _log_uniform(rng, 10, 0.06 * span_ms)
    at = tau * rng.uniform(5, 8)
    return lambda t: np.where(t < at, 1 + size * np.exp(-t / tau), 1 + cap) / (1 + cap)


def cyclic(rng: Rng, span_ms: float) -> Shape:
    """Square, sine or sawtooth, 5 to 60 periods."""
    period = span_ms / _log_uniform(rng, 5, 60)
    size, phase = _effect(rng, 0.015, 0.2), rng.random()
    kind, duty = rng.integers(3), rng.uniform(0.3, 0.7)

    def shape(t: Floats) -> Floats:
        x = (t / period + phase) % 1
        return 1 + size * (np.where(x < duty, 1.0, -1.0), np.sin(2 * np.pi * x), 2 * x - 1)[kind]

    return shape


def drift(rng: Rng, span_ms: float) -> Shape:
    """Linear, 5 to 40 % over the trace, either way."""
    size = _effect(rng, 0.05, 0.4) * rng.choice([-1, 1])
    return lambda t: 1 + size * t / span_ms if size > 0 else 1 / (1 - size * t / span_ms)


def wandering(rng: Rng, span_ms: float) -> Shape:
    """A random walk, or levels that come and go; changed by more than 3 % in the last third too."""
    while True:
        if rng.random() < 0.5:
            knots = int(rng.integers(60, 400))
            walk = np.cumsum(rng.standard_normal(knots)) / np.sqrt(knots) * _effect(rng, 0.1, 0.5)
        else:
            levels = int(rng.integers(8, 30))
            walk = np.repeat(rng.uniform(-1, 1, levels) * _effect(rng, 0.04, 0.2), 8)
            knots = walk.size
        last = walk[-knots // 3 :]
        if np.ptp(last) > 0.03 and walk.min() > -0.6:
            return lambda t: 1 + np.interp(t, np.linspace(0, span_ms, knots), walk)


SHAPES: dict[str, tuple[str, Callable[[Rng, float], Shape]]] = {
    "flat": ("flat", flat),
    "slow_first": ("warmup", flat),
    "ramp": ("warmup", ramp),
    "staircase": ("warmup", staircase),
    "slowdown": ("slowdown", slowdown),
    "slow_first_then_cap": ("slowdown", slowdown),
    "ramp_then_cap": ("slowdown", ramp_then_cap),
    "spikes_on_ramp": ("warmup", ramp),
    "cyclic": ("cyclic", cyclic),
    "drift": ("drift", drift),
    "wandering": ("no_steady_state", wandering),
    "short": ("too_short", flat),
}
FAMILIES = tuple(SHAPES)
NOISES = ("normal", "heavy", "bimodal", "autocorrelated")


def _noise(rng: Rng, kind: str, n: int) -> tuple[Floats, float]:
    """Multipliers with mean 1 (outliers apart) and a spread of 0.5 to 3 %; and their long-run variance."""
    spread, inflation = rng.uniform(0.005, 0.03), 1.0
    if kind == "normal":
        values = rng.standard_normal(n)
    elif kind == "heavy":
        values = rng.standard_t(3, n) / np.sqrt(3)
        if rng.random() < 0.5:  # long to the right, as latencies are
            values = np.exp(rng.standard_normal(n) * 0.8)
            values = (values - np.exp(0.32)) / np.sqrt(np.exp(1.28) - np.exp(0.64))
        slow = rng.random(n) < 0.01
        values[slow] = 4.0 / spread * rng.uniform(0.5, 1.0, slow.sum())
    elif kind == "bimodal":
        share, dwell = rng.uniform(0.15, 0.85), 1 if rng.random() < 0.5 else int(rng.integers(2, 20))
        mode = np.repeat(rng.random(n // dwell + 1) < share, dwell)[:n]
        inflation = dwell
        values = 0.3 * rng.standard_normal(n) + (mode - share) / np.sqrt(share * (1 - share))
    else:
        phi = rng.uniform(0.5, 0.95)
        inflation = (1 + phi) / (1 - phi)
        values = _autoregress(rng.standard_normal(n), phi) * np.sqrt(1 - phi**2)
    return np.maximum(1 + spread * values, 0.2), inflation * spread**2


def _evidence(behaviour: str, multiple: Floats, variance: float) -> float:
    """How far what makes the class stands out of the noise, in its variances."""
    if behaviour in ("flat", "too_short"):
        return np.inf
    if behaviour == "slowdown":
        deviation = np.minimum(multiple - 1, 0)
    else:
        deviation = multiple - 1 if behaviour == "warmup" else multiple - multiple.mean()
    return float(deviation @ deviation) / variance


def _autoregress(shocks: Floats, phi: float) -> Floats:
    """x[i] = phi x[i-1] + shocks[i], by a kernel long enough to be exact to 1e-6."""
    kernel = phi ** np.arange(int(np.log(1e-6) / np.log(phi)) + 1)
    size = 1 << int(shocks.size + kernel.size).bit_length()
    return np.fft.irfft(np.fft.rfft(shocks, size) * np.fft.rfft(kernel, size), size)[: shocks.size]


def make(family: str, noise: str, seed: int) -> Trace:
    """The trace of a family, a noise and a seed; effects that no rule could see are drawn again."""
    rng = np.random.default_rng([FAMILIES.index(family), NOISES.index(noise), seed])
    while True:
        trace = _draw(rng, family, noise, seed)
        if trace is not None:
            return trace


def _draw(rng: Rng, family: str, noise: str, seed: int) -> Trace | None:
    behaviour, shape_of = SHAPES[family]
    latency = _log_uniform(rng, 0.1, 20)
    span_ms = rng.uniform(4000, 12000)
    n = int(min(span_ms / latency, MAX_ITERATIONS))
    if family == "short":
        n = int(rng.integers(3, 16))
    latency = span_ms / n if family != "short" else latency
    shape = shape_of(rng, span_ms)
    multiple, elapsed = np.ones(n), np.arange(n) * latency
    for _ in range(4):  # a slow iteration also delays those after it
        multiple = shape(elapsed)
        elapsed = np.concatenate([[0.0], np.cumsum(multiple * latency)[:-1]])
    if family.startswith("slow_first"):
        slow = int(rng.integers(1, 3))
        multiple[:slow] *= 1 + np.sort(rng.uniform(0.5, 15, slow))[::-1]
        elapsed = np.concatenate([[0.0], np.cumsum(multiple * latency)[:-1]])
    noises, variance = _noise(rng, noise, n)
    values = multiple * noises
    if family == "spikes_on_ramp":
        spikes = rng.random(n) < rng.uniform(0.002, 0.01)
        values[spikes] *= rng.uniform(2, 6, int(spikes.sum()))
    outside = np.flatnonzero(np.abs(multiple - 1) > TOLERANCE)
    end = None
    if behaviour in ("flat", "warmup", "slowdown"):
        end = int(outside[-1]) + 1 if outside.size else 0
        behaviour = behaviour if end else "flat"
    if _evidence(behaviour, multiple, variance) < MIN_EVIDENCE:
        return None
    return Trace(family, noise, seed, elapsed, values * latency, multiple * latency, behaviour, end)
