"""A mean that can be quoted where single latencies find no rest."""

import numpy as np
import pytest

from gpuwarm.analysis.averages import average
from gpuwarm.analysis.stretch import Stretch
from gpuwarm.recording import Floats

ITERATION_MS = 3.0
SECONDS = 5


def start(relative: Floats) -> Stretch:
    """Inferences back to back whose latencies are so many times 3 ms."""
    latency_ms = ITERATION_MS * relative
    elapsed_ms = np.concatenate([[0.0], np.cumsum(latency_ms)[:-1]])
    return Stretch(0, np.arange(latency_ms.size), elapsed_ms, latency_ms, "host")


def seconds() -> Floats:
    return np.arange(round(SECONDS * 1e3 / ITERATION_MS)) * ITERATION_MS / 1e3


def hunting(seed: int = 0, period_s: float = 1.0) -> Floats:
    """A limiter that overshoots, as an H200's power limit does."""
    noise = np.random.default_rng(seed).normal(0, 0.005, seconds().size)
    return 1 + 0.08 * np.exp(-seconds() / 3) * np.sin(2 * np.pi * seconds() / period_s) + noise


def test_what_swings_within_a_second_averages_out_over_one():
    found = average([start(hunting(seed)) for seed in range(3)], 0.01)
    assert found is not None
    assert found.window_ms == 1000
    assert found.level_ms == pytest.approx(ITERATION_MS, rel=0.01)
    assert found.spread_pct < 2


def test_what_swings_more_slowly_takes_a_longer_mean():
    slow = 1 + 0.05 * np.sin(2 * np.pi * np.arange(12_000) * ITERATION_MS / 1e3 / 5.0)
    found = average([start(slow)], 0.01)
    assert found is not None
    assert found.window_ms == 5000


def test_a_mean_counts_from_where_it_stays():
    boosted = np.where(seconds() < 1.2, 0.9, 1.0) * hunting()
    found = average([start(boosted)], 0.01)
    assert found is not None
    assert 700 < found.from_ms < 1400


def test_one_start_that_moves_on_takes_the_mean_away():
    climbing = 1 + 0.05 * seconds() / SECONDS
    assert average([start(hunting()), start(climbing)], 0.01) is None


def test_starts_apart_are_in_the_spread():
    found = average([start(hunting()), start(1.06 * hunting(1))], 0.01)
    assert found is not None
    assert 2.9 < found.spread_pct < 5


@pytest.mark.parametrize("count", [1, 40, 700])
def test_a_mean_over_most_of_what_there_is_shows_nothing(count: int):
    assert average([start(np.ones(count))], 0.01) is None
