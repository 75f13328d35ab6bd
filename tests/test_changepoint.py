"""Segments of signals with known levels; the oracle is ruptures."""

import numpy as np
import pytest
import ruptures

from gpuwarm.analysis.changepoint import segment
from gpuwarm.recording import Floats


def steps(*levels: float, length: int = 100, seed: int = 1, noise: float = 1.0) -> Floats:
    return np.repeat(levels, length) + noise * np.random.default_rng(seed).standard_normal(length * len(levels))


def stops(values: Floats, penalty: float) -> list[int]:
    return [part.stop for part in segment(values, penalty=penalty)]


@pytest.mark.parametrize("seed", range(20))
def test_segments_are_those_of_ruptures(seed: int) -> None:
    rng = np.random.default_rng(seed)
    signal = steps(*rng.normal(0, 3, rng.integers(1, 9)), length=int(rng.integers(5, 40)), seed=seed)
    penalty = float(rng.uniform(2, 40))
    expected = ruptures.KernelCPD(kernel="linear", min_size=1).fit(signal[:, None]).predict(pen=penalty)
    assert stops(signal, penalty) == [int(stop) for stop in expected]


def test_a_constant_is_one_segment() -> None:
    assert stops(np.full(50, 3.0), 1.0) == [50]


def test_nothing_has_no_segments() -> None:
    assert segment(np.empty(0), penalty=1.0) == ()


def test_a_weight_counts_like_so_many_equal_values() -> None:
    signal = steps(0.0, 1.0, 0.2, length=12, seed=3, noise=0.3)
    weights = np.random.default_rng(4).integers(1, 6, signal.size)
    ends = np.cumsum(weights)
    repeated = stops(np.repeat(signal, weights), 2.0)
    assert [int(ends[part.stop - 1]) for part in segment(signal, penalty=2.0, weights=weights * 1.0)] == repeated


def test_a_segments_mean_is_the_weighted_mean_of_its_values() -> None:
    (part,) = segment(np.array([1.0, 4.0]), penalty=100.0, weights=np.array([2.0, 1.0]))
    assert part.mean == pytest.approx(2.0)


def test_a_large_offset_changes_no_segment() -> None:
    signal = steps(0.0, 2.0, 0.0, seed=5)
    assert stops(signal + 1e8, 20.0) == stops(signal, 20.0)
