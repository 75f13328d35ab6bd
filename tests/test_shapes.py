"""Decays and cycles with known constants."""

import numpy as np
import pytest

from gpuwarm.analysis.shapes import Cycle, cycle, decay, decay_ends
from gpuwarm.recording import Floats

T = np.arange(1000) * 1.0
EVEN = np.ones(T.size)


def noise(seed: int, n: int = 1000) -> Floats:
    return 0.01 * np.random.default_rng(seed).standard_normal(n)


def found(values: Floats, *, rival: Floats | None = None) -> Cycle | None:
    against = np.full(values.size, values.mean()) if rival is None else rival
    return cycle(values, rival=against, shortest=4, least=0.005)


def test_a_decay_gives_back_what_it_was_made_of() -> None:
    fit = decay(T, 2 + 0.5 * np.exp(-T / 80) + noise(1), EVEN, shortest=1, slack=4e-4)
    assert fit.level == pytest.approx(2.0, abs=0.005)
    assert fit.size == pytest.approx(0.5, rel=0.1)
    assert fit.tau == pytest.approx(80, rel=0.15)
    assert fit.reaches(0.02) == pytest.approx(80 * np.log(25), rel=0.1)


def test_the_interval_of_tau_holds_the_true_one_nearly_always() -> None:
    fits = [
        decay(T, 2 + 0.5 * np.exp(-T / 80) + noise(seed), EVEN, shortest=1, slack=4e-4).tau_interval
        for seed in range(20)
    ]
    assert sum(low <= 80 <= high for low, high in fits) >= 17
    assert max(high / low for low, high in fits) < 1.2


def test_a_straight_line_never_arrives() -> None:
    fit = decay(T, 2 + T / 1000 + noise(2), EVEN, shortest=1, slack=4e-4)
    assert not np.isfinite(fit.tau) or fit.left(T[-1]) > 0.3
    assert fit.tau_interval[1] == np.inf


def test_many_decays_end_where_one_does() -> None:
    draws = np.array([2 + 0.5 * np.exp(-T / 80) + noise(seed) for seed in range(20)])
    ends = decay_ends(T, draws, EVEN, near=90.0, tolerance=0.01)
    assert np.median(ends) == pytest.approx(80 * np.log(25), rel=0.1)


@pytest.mark.parametrize("shape", ["sine", "square", "sawtooth"])
def test_a_cycle_has_its_period_and_its_size(shape: str) -> None:
    phase = np.arange(3000) / 137 % 1
    wave = {"sine": np.sin(2 * np.pi * phase), "square": np.sign(phase - 0.5), "sawtooth": 2 * phase - 1}[shape]
    seen = found(1 + 0.05 * wave + noise(3, 3000))
    assert seen is not None
    assert seen.period == pytest.approx(137, rel=0.01)
    power = {"sine": 1.0, "square": 2.0, "sawtooth": 2 / 3}[shape]
    assert seen.amplitude == pytest.approx(0.05 * np.sqrt(power), rel=0.1)
    assert seen.share > 0.85


def test_a_cycle_explains_more_than_levels_that_do_not_follow_it_and_less_than_those_that_do() -> None:
    wave = 1 + 0.05 * np.sign(np.sin(np.arange(3000) / 60))
    values = wave + noise(4, 3000)
    flat, exact = found(values), found(values, rival=wave)
    assert flat is not None
    assert exact is not None
    assert flat.gain_over_rival > 1000
    assert exact.gain_over_rival < 0


def test_noise_has_no_cycle_to_speak_of() -> None:
    seen = found(1 + noise(5, 3000))
    assert seen is None or seen.gain < 60


def test_too_few_values_have_no_room_for_one() -> None:
    assert found(np.ones(20)) is None
