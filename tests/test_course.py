"""What series with known answers did: one example of each behaviour, then what holds for all."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwarm.analysis.course import Behaviour, Course, course
from gpuwarm.recording import Floats

N = 6000
TIME_MS = np.arange(N) * 1.0
QUICKLY = settings(max_examples=25, deadline=None, derandomize=True)


def noise(seed: int = 1, size: float = 0.01, n: int = N) -> Floats:
    return 1 + size * np.random.default_rng(seed).standard_normal(n)


def of(levels: Floats, *, seed: int = 1, size: float = 0.01) -> Course:
    values = levels * noise(seed, size, levels.size)
    return course(TIME_MS[: levels.size], values)


def ramp(size: float, tau_ms: float) -> Floats:
    return 1 + size * np.exp(-TIME_MS / tau_ms)


def end_of(levels: Floats, tolerance: float = 0.01) -> int:
    """The true end of a warm-up to level 1."""
    outside = np.flatnonzero(np.abs(levels - 1) > tolerance)
    return int(outside[-1]) + 1 if outside.size else 0


def test_a_constant_is_flat() -> None:
    found = of(np.ones(N))
    assert (found.behaviour, found.end, found.interval) == ("flat", 0, (0, 0))


@pytest.mark.parametrize("slow", [1, 2])
def test_slow_first_iterations_are_a_warmup_of_as_many(slow: int) -> None:
    levels = np.ones(N)
    levels[:slow] = 4.0
    found = of(levels)
    assert (found.behaviour, found.also, found.end) == ("warmup", ("slow_first",), slow)


@pytest.mark.parametrize(("size", "tau_ms"), [(0.03, 100), (0.1, 30), (0.5, 400), (1.0, 10)])
def test_a_ramp_ends_where_it_comes_within_the_tolerance(size: float, tau_ms: float) -> None:
    levels = ramp(size, tau_ms)
    found = of(levels, size=0.02)
    assert found.behaviour == "warmup"
    assert found.end is not None
    true = end_of(levels)
    assert abs(levels[found.end] - 1) < 0.015
    assert found.end <= max(true + 100, 1.8 * true)


def test_a_staircase_ends_with_its_last_tread() -> None:
    found = of(np.repeat([1.6, 1.3, 1.04, 1.0], [100, 900, 1200, N - 2200]))
    assert found.behaviour == "warmup"
    assert found.end == pytest.approx(2200, abs=40)


def test_a_cap_is_a_slowdown_with_its_moment() -> None:
    found = of(np.repeat([0.93, 1.0], [50, N - 50]))
    assert (found.behaviour, found.also) == ("slowdown", ())
    assert found.end == pytest.approx(50, abs=3)
    assert "-7.0 %" in found.evidence[1]


def test_a_slow_first_before_a_cap_is_a_slowdown_and_says_both() -> None:
    levels = np.repeat([0.93, 1.0], [50, N - 50])
    levels[0] = 3.0
    found = of(levels)
    assert (found.behaviour, found.also) == ("slowdown", ("slow_first",))


def test_a_ramp_before_a_cap_is_a_slowdown_and_also_a_warmup() -> None:
    levels = np.where(TIME_MS < 600, 0.9 * ramp(0.5, 80), 1.0)
    found = of(levels)
    assert (found.behaviour, found.also) == ("slowdown", ("warmup",))
    assert found.end == pytest.approx(600, abs=30)


@pytest.mark.parametrize("shape", [np.sin, lambda phase: np.sign(np.sin(phase))], ids=["sine", "square"])
def test_what_goes_up_and_down_for_ever_is_cyclic_with_its_period(shape: Callable[[Floats], Floats]) -> None:
    found = of(1 + 0.03 * shape(2 * np.pi * TIME_MS / 310), size=0.02)
    assert found.behaviour == "cyclic"
    assert found.period_ms == pytest.approx(310, rel=0.01)
    assert found.end is None


def test_two_latencies_in_turn_are_a_mixture_not_a_cycle() -> None:
    assert of(np.where(np.arange(N) % 4 < 2, 1.0, 1.1)).behaviour == "flat"


def test_a_straight_line_drifts_with_its_slope_and_no_end() -> None:
    found = of(1 + 0.01 * TIME_MS / 1e3)
    assert found.behaviour == "drift"
    assert found.slope_pct_per_s == pytest.approx(0.95, abs=0.1)
    assert found.settles_ms is None or found.settles_ms[2] > 20_000


def test_heat_that_has_not_settled_drifts_towards_an_end_that_is_estimated() -> None:
    found = of(1 - 0.1 * np.exp(-TIME_MS / 5000), size=0.003)
    assert found.behaviour == "drift"
    assert found.settles_ms is not None
    estimate_ms, earliest_ms, latest_ms = found.settles_ms
    assert estimate_ms == pytest.approx(5000 * np.log(10), rel=0.3)
    assert earliest_ms <= estimate_ms <= latest_ms


def test_levels_that_come_and_go_have_no_steady_state() -> None:
    found = of(np.repeat([1.0, 1.05, 0.97, 1.04, 1.0, 1.06, 0.98, 1.03], N // 8))
    assert found.behaviour in ("no_steady_state", "cyclic")
    assert found.end is None


def test_a_level_reached_just_before_the_end_is_no_steady_state() -> None:
    found = of(np.repeat([1.1, 1.0], [N - N // 10, N // 10]))
    assert (found.behaviour, found.end) == ("no_steady_state", None)


def test_a_passing_disturbance_does_not_lengthen_the_warmup() -> None:
    levels = np.repeat([1.2, 1.0], [300, N - 300])
    levels[4000:4030] = 1.1
    found = of(levels)
    assert found.behaviour == "warmup"
    assert found.end == pytest.approx(300, abs=10)


@pytest.mark.parametrize(("n", "step_ms"), [(0, 1.0), (1, 1.0), (29, 1000.0), (1000, 0.1)])
def test_few_iterations_or_little_time_are_too_short(n: int, step_ms: float) -> None:
    assert course(np.arange(n) * step_ms, np.full(n, 1.0)).behaviour == "too_short"


def test_noise_that_hides_the_tolerance_is_too_short() -> None:
    assert of(np.ones(60), size=0.2).behaviour == "too_short"


def test_slow_and_quick_settling_are_two_times() -> None:
    levels = np.where(TIME_MS < 50, 0.85, 1 - 0.04 * np.exp(-(TIME_MS - 50) / 600))
    found = of(levels, size=0.004)
    assert found.behaviour == "slowdown"
    assert found.fast_ms == pytest.approx(50, abs=10)
    assert found.end is not None
    assert 500 < found.end < 1600


def test_times_of_six_digits_are_as_good_as_exact_ones() -> None:
    levels = np.repeat([0.93, 1.0], [50, N - 50]) * 1.23456 * noise()
    rough = np.array([float(f"{value:.6g}") for value in levels])
    times = np.array([float(f"{value:.6g}") for value in TIME_MS * 1.2345])
    assert course(times, rough).end == course(TIME_MS * 1.2345, levels).end


def test_latency_that_never_varies_is_flat() -> None:
    assert course(TIME_MS, np.ones(N)).behaviour == "flat"


@pytest.mark.parametrize("kind", ["student", "outliers", "bimodal", "autocorrelated"])
def test_no_kind_of_noise_is_taken_for_a_behaviour(kind: str) -> None:
    rng = np.random.default_rng(3)
    values = {
        "student": lambda: 1 + 0.02 * rng.standard_t(3, N),
        "outliers": lambda: np.where(rng.random(N) < 0.01, 5.0, noise()),
        "bimodal": lambda: np.where(rng.random(N) < 0.3, 1.1, 1.0) * noise(),
        "autocorrelated": lambda: 1 + 0.005 * np.convolve(rng.standard_normal(N + 29), 0.9 ** np.arange(30), "valid"),
    }[kind]()
    values[:5] = 1.0
    assert course(TIME_MS, values).behaviour == "flat"


SHAPES: dict[Behaviour, Floats] = {
    "flat": np.ones(N),
    "warmup": ramp(0.4, 150),
    "slowdown": np.repeat([0.9, 1.0], [200, N - 200]),
    "cyclic": 1 + 0.04 * np.sin(TIME_MS / 40),
    "drift": 1 + 0.02 * TIME_MS / 1e3,
}
SHAPE = st.sampled_from(sorted(SHAPES))
SEED = st.integers(0, 2**32 - 1)


@QUICKLY
@given(shape=SHAPE, seed=SEED, factor=st.floats(1e-3, 1e3))
def test_scaling_latency_scales_latencies_and_leaves_times_alone(shape: Behaviour, seed: int, factor: float) -> None:
    values = SHAPES[shape] * noise(seed)
    one, other = course(TIME_MS, values), course(TIME_MS, factor * values)
    assert (other.behaviour, other.end, other.interval) == (one.behaviour, one.end, one.interval)
    assert other.period_ms == one.period_ms
    if one.level_ms is not None:
        assert other.level_ms == pytest.approx(factor * one.level_ms)


@QUICKLY
@given(shape=SHAPE, seed=SEED, shift_ms=st.integers(-(10**9), 10**9))
def test_a_shift_of_time_changes_nothing(shape: Behaviour, seed: int, shift_ms: int) -> None:
    values = SHAPES[shape] * noise(seed)
    assert course(TIME_MS + shift_ms, values) == course(TIME_MS, values)


@QUICKLY
@given(size=st.floats(0.05, 1.0), tau_ms=st.floats(10, 400), seed=SEED, more=st.integers(500, 20_000))
def test_more_of_the_steady_state_never_lengthens_the_warmup_beyond_its_interval(
    size: float, tau_ms: float, seed: int, more: int
) -> None:
    values = ramp(size, tau_ms) * noise(seed)
    longer = np.concatenate([values, noise(seed + 1, n=more)])
    before, after = course(TIME_MS, values), course(np.arange(longer.size) * 1.0, longer)
    assert before.interval is not None
    assert after.end is not None
    assert after.end <= max(before.interval[1], 1.1 * (before.end or 0))


@QUICKLY
@given(shape=st.sampled_from(["warmup", "slowdown"]), seed=SEED)
def test_without_its_warmup_a_series_is_flat(shape: Behaviour, seed: int) -> None:
    values = SHAPES[shape] * noise(seed)
    found = course(TIME_MS, values)
    assert found.behaviour == shape
    assert found.interval is not None
    rest = values[found.interval[1] :]
    assert course(TIME_MS[: rest.size], rest).behaviour == "flat"


@QUICKLY
@given(shape=SHAPE, seed=SEED)
def test_its_behaviour_is_that_of_its_shape(shape: Behaviour, seed: int) -> None:
    assert course(TIME_MS, SHAPES[shape] * noise(seed)).behaviour == shape


def test_a_level_shorter_than_a_tread_before_it_may_be_a_tread_too() -> None:
    levels = np.repeat([1.5, 1.2, 1.0], [500, 3500, 2000])
    assert of(levels).behaviour == "no_steady_state"
    assert of(np.repeat([1.5, 1.2, 1.0], [500, 1500, 4000])).behaviour == "warmup"
