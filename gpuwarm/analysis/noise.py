"""What in a signal is noise: outliers drawn in, and how far a mean of autocorrelated values can be off."""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NEIGHBOURS = 7  # a value is an outlier against the median of so many; steps pass, bursts of up to 3 do not
WINDOW = 256  # values among which the usual scatter around that median is taken
OUTLIER = 1.6  # times P90 - P10: 4 standard deviations of normal noise; both modes of a bimodal one stay

CHUNK = 250  # values; levels change between chunks, and their medians do not care about a few that hold a change
MIN_CHUNKS, MAX_CHUNKS = 8, 60
MOST_VALUES = 1 << 15  # of more, means are taken first: that changes no long-run variance
LONGEST_SHARE = 1 / 60  # of the signal: correlation that lasts longer is not noise but what the signal does
SHORTEST_CHUNK = 24
GROWTH = {1: 1.0, 2: 1.5, 4: 2.5}
MIN_BATCHES = 25  # for a variance between batch means
KEPT, KEPT_VARIANCE = 0.8, 0.4377  # the smaller differences of batch means, and their variance when normal with 1
EFFICIENCY = 2.5  # relative variance of that estimate, times the number of differences


def tame(values: Floats) -> Floats:
    """Outliers drawn in to where the noise around them usually ends. Shape (n,) -> (n,)."""
    n = values.size
    if n < NEIGHBOURS:
        return values
    side = NEIGHBOURS // 2
    padded = np.concatenate([values[side:0:-1], values, values[-2 : -side - 2 : -1]])
    middle = np.partition(sliding_window_view(padded, NEIGHBOURS), side, axis=1)[:, side]
    rest = values - middle
    windows = max(1, n // WINDOW)
    length = n // windows
    ordered = np.sort(rest[: windows * length].reshape(windows, length), axis=1)
    spread = ordered[:, int(0.9 * (length - 1))] - ordered[:, int(np.ceil(0.1 * (length - 1)))]
    limit = OUTLIER * spread[np.minimum(np.arange(n) // length, windows - 1)]
    return middle + np.clip(rest, -limit, limit)


def long_run_variance(values: Floats) -> float:
    """The variance of a mean of b values, times b, for b so long that autocorrelation is in it.

    The larger of an autoregressive estimate, good where values are few, and of the variance between batches. Changes of
    level, ramps and slow waves are kept out: both are medians or trimmed, over parts of the signal, and what grows
    with the length of the parts is no noise.
    """
    if values.size >= 2 * MOST_VALUES:
        size = values.size // MOST_VALUES
        return size * long_run_variance(values[: values.size // size * size].reshape(-1, size).mean(axis=1))
    n = values.size
    chunks = min(int(np.clip(n // CHUNK, MIN_CHUNKS, MAX_CHUNKS)), max(2, n // SHORTEST_CHUNK))
    length = n // chunks
    found = [
        growth * _autoregressive(values, max(length // divisor, min(length, SHORTEST_CHUNK)))
        for divisor, growth in GROWTH.items()
    ]
    return max(min(found), _between_batches(values))


def _autoregressive(values: Floats, length: int) -> float:
    """From the autocovariances in chunks of a length, the median over the chunks."""
    n = values.size
    chunks = min(n // length, MAX_CHUNKS)
    starts = np.linspace(0, n - length, chunks).astype(np.int64)
    ramp = np.arange(length) - (length - 1) / 2
    parts = sliding_window_view(values, length)[starts]
    parts = parts - parts.mean(axis=1, keepdims=True)
    parts = parts - np.outer(parts @ ramp / (ramp @ ramp), ramp)
    lags = int(min(10 * np.log10(n), length // 4))
    spectrum = np.abs(np.fft.rfft(parts, 1 << int(2 * length).bit_length(), axis=1)) ** 2
    covariance = np.median(np.fft.irfft(spectrum, axis=1)[:, : lags + 1], axis=0) / length
    if covariance[0] <= 0:
        return 0.0
    estimate = 0.0
    for _ in range(3):  # the chunks' means and slopes were taken out, and with them a share of the answer
        found = _levinson(covariance + 2 * estimate / length, length * chunks)
        estimate = min(found, 3 * estimate) if estimate else found
    return min(estimate, float(covariance[0]) * max(1.0, n * LONGEST_SHARE))


def _levinson(covariance: Floats, n: int) -> float:
    """The spectrum at frequency 0 of the autoregression Akaike's criterion picks, of order 1 at least."""
    lags: list[float] = covariance.tolist()  # so few that numpy would be slower
    weights: list[float] = []
    error = lags[0]
    best, best_score, first = error, n * math.log(error), error
    for order in range(1, len(lags)):
        ahead = sum(weight * lag for weight, lag in zip(weights, lags[order - 1 : 0 : -1], strict=True))
        reflection = min(0.99, max(-0.99, (lags[order] - ahead) / error))
        weights = [one - reflection * other for one, other in zip(weights, reversed(weights), strict=True)]
        weights.append(reflection)
        error *= 1 - reflection**2
        found = error / max(0.01, 1 - sum(weights)) ** 2
        score = n * math.log(error) + 2 * order
        if order == 1:
            first = found
        if score < best_score:
            best, best_score = found, score
    return max(best, first)


def _between_batches(values: Floats) -> float:
    """The largest over batch sizes, each less what so few batches may exaggerate."""
    found, size = 0.0, 1
    later = values[values.size // 2 :] if values.size >= 2 * WINDOW else values[values.size // 4 :]
    while later.size // size >= MIN_BATCHES and size <= max(1, values.size // 200):
        means = later[: later.size // size * size].reshape(-1, size).mean(axis=1)
        steps = np.diff(means)
        distance = np.sort(np.abs(steps - np.median(steps)))[: int(KEPT * steps.size)]
        variance = size * float(np.mean(distance**2)) / KEPT_VARIANCE / 2
        found = max(found, variance * (1 - 1.3 * np.sqrt(EFFICIENCY / steps.size) if size > 1 else 1))
        size *= 2
    return found
