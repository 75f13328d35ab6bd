"""Noise with known variances, alone and under what is not noise."""

from collections.abc import Callable

import numpy as np
import pytest

from gpuwarm.analysis.noise import long_run_variance, tame
from gpuwarm.recording import Floats

N = 4000


def white(seed: int, n: int = N) -> Floats:
    return np.random.default_rng(seed).standard_normal(n)


def autoregressive(phi: float, seed: int, n: int = N) -> Floats:
    values = np.zeros(n)
    for index, shock in enumerate(white(seed, n)):
        values[index] = phi * values[index - 1] + shock
    return values


def typical(values: Callable[[int], Floats]) -> float:
    return float(np.median([long_run_variance(values(seed)) for seed in range(9)]))


def test_of_white_noise_it_is_the_variance() -> None:
    assert typical(white) == pytest.approx(1.0, rel=0.15)


@pytest.mark.parametrize("phi", [0.3, 0.6, 0.9])
def test_of_autocorrelated_noise_it_is_what_a_long_mean_has(phi: float) -> None:
    assert typical(lambda seed: autoregressive(phi, seed)) == pytest.approx(1 / (1 - phi) ** 2, rel=0.35)


@pytest.mark.parametrize(
    "shape",
    [
        np.repeat([0.0, 5.0, 1.0, 8.0], N // 4),
        20 * np.exp(-np.arange(N) / 400),
        np.linspace(0, 20, N),
        3 * np.sin(np.arange(N) / N * 2 * np.pi * 5),
    ],
    ids=["steps", "ramp", "drift", "waves"],
)
def test_what_the_signal_does_is_not_noise(shape: Floats) -> None:
    assert typical(lambda seed: shape + white(seed)) < 3.0


def test_it_does_not_depend_on_how_many_values_share_a_mean() -> None:
    many = white(1, 200_000)
    assert long_run_variance(many) == pytest.approx(1.0, rel=0.2)


def test_a_constant_has_none() -> None:
    assert long_run_variance(np.full(500, 2.0)) == 0.0


def test_outliers_are_drawn_in_and_the_rest_is_left() -> None:
    values = 100 + white(2)
    spiked = values.copy()
    spiked[::100] *= 5
    tamed = tame(spiked)
    assert np.abs(tamed[::100] - 100).max() < 10
    assert np.mean(tamed == spiked) > 0.95
    assert tamed.mean() == pytest.approx(values.mean(), abs=0.1)


def test_a_step_stays_where_it_is() -> None:
    tamed = tame(np.repeat([1.0, 2.0], 300) + 0.01 * white(3, 600))
    assert np.flatnonzero(np.diff(tamed) > 0.5).tolist() == [299]


def test_both_modes_of_two_latencies_stay() -> None:
    modes = np.where(np.random.default_rng(4).random(2000) < 0.2, 1.1, 1.0)
    assert tame(modes + 0.001 * white(5, 2000)).mean() == pytest.approx(modes.mean(), abs=0.002)


def test_a_few_values_are_left_alone() -> None:
    assert tame(np.array([1.0, 9.0, 1.0])).tolist() == [1.0, 9.0, 1.0]
