"""Where a warm-up may end as well: what the model of a series leaves is drawn anew, and the end looked for again."""

import numpy as np

from gpuwarm.analysis.series import Ending, Series, since_begin
from gpuwarm.analysis.shapes import Decay, decay_ends
from gpuwarm.recording import Floats

DRAWS = 200  # of the block bootstrap
RESAMPLED = 5  # blocks kept together
CONFIDENCE = 0.9
_SEED = 20_25  # the interval of the same data is the same


def interval_of(series: Series, found: Ending, end: int) -> tuple[int, int]:
    """Where the end may be as well: blocks of what the model leaves are drawn anew, and the end is looked for again."""
    if found.first == 0:
        return end, end
    rng = np.random.default_rng(_SEED)
    if found.approach is None:
        begin_ms, ends_ms = _step_ends(series, found, rng)
    else:
        begin_ms, ends_ms = _decay_ends(series, found, found.approach, rng)
    tail = np.array([(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    low_ms, high_ms = np.quantile(np.minimum(begin_ms + ends_ms, series.span_ms), tail)
    low, high = (int(np.searchsorted(series.elapsed_ms, at - 1e-9)) for at in (low_ms, high_ms))
    return min(low, end), max(end, min(high, series.elapsed_ms.size - 1))


def _resampled(rest: Floats, sizes: Floats, rng: np.random.Generator) -> Floats:
    """Draws of what the model leaves, neighbours kept together, each scaled to the block it lands in: (DRAWS, n)."""
    n = rest.size
    scaled = rest * np.sqrt(sizes)
    starts = rng.integers(0, n, (DRAWS, -(-n // RESAMPLED)))
    picked = (starts[:, :, None] + np.arange(RESAMPLED)).reshape(DRAWS, -1)[:, :n] % n
    drawn: Floats = scaled[picked] / np.sqrt(sizes)
    return drawn


def _decay_ends(series: Series, found: Ending, approach: Decay, rng: np.random.Generator) -> tuple[float, Floats]:
    """Of a decay: its first ms, and how long after it is within the tolerance."""
    begin = series.bounds[found.run]
    since_ms, _ = since_begin(series, found.run)
    sizes = series.sizes[begin:]
    fitted = approach.level + approach.size * np.exp(-since_ms / approach.tau)
    draws = fitted + _resampled(series.means[begin:] - fitted, sizes, rng)
    ends = decay_ends(since_ms, draws, sizes, near=approach.tau, tolerance=series.tolerance)
    return float(series.begins_ms[begin]), ends


def _step_ends(series: Series, found: Ending, rng: np.random.Generator) -> tuple[float, Floats]:
    """Of a change of level, the last before the steady stretch: the begin of the level before, and how long after."""
    before, change = series.bounds[found.first - 1], series.bounds[found.first]
    after = min(series.means.size, change + 4 * (change - before) + RESAMPLED)
    sizes = series.sizes[before:after]
    fitted = np.where(np.arange(before, after) < change, series.levels[found.first - 1], found.level)
    draws = fitted + _resampled(series.means[before:after] - fitted, sizes, rng)
    middle = (series.levels[found.first - 1] + found.level) / 2
    sign = np.sign(series.levels[found.first - 1] - found.level)
    evidence = np.cumsum(sign * (draws - middle) * sizes, axis=1)  # highest where the change is most likely
    at = evidence.argmax(axis=1) + 1
    return float(series.begins_ms[before]), series.begins_ms[before + at] - series.begins_ms[before]
