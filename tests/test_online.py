"""Warming up until steady, in somebody's own loop."""

import itertools
import math
import time
import tracemalloc
from collections.abc import Iterator

import numpy as np
import pytest

import gpuwarm
from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState
from gpuwarm.online import warm_until_steady
from gpuwarm.recording import Floats
from gpuwarm.rows import SAMPLE_FIELDS, SampleRow

LIMITS = GpuState(sm_clock_max_mhz=2000.0, mem_clock_max_mhz=10000.0)


def noisy(latency_s: Floats, *, seed: int, noise: float = 0.01) -> Iterator[float]:
    return iter((latency_s * (1 + noise * np.random.default_rng(seed).standard_normal(latency_s.size))).tolist())


def row(**values: float) -> SampleRow:
    return tuple(values.get(name, math.nan) for name in SAMPLE_FIELDS)


class Staircase:
    """A GPU whose latency and state go up in treads: (from iteration, latency in s, P-state, SM MHz, memory MHz)."""

    TREADS = ((0, 4e-3, 8.0, 300.0, 400.0), (50, 2e-3, 5.0, 900.0, 800.0), (1500, 1e-3, 2.0, 1950.0, 9500.0))

    def __init__(self) -> None:
        self._noise = np.random.default_rng(1)
        self.count = 0

    def tread(self) -> tuple[int, float, float, float, float]:
        return [tread for tread in self.TREADS if tread[0] <= self.count][-1]

    def latencies(self) -> Iterator[float]:
        while True:
            yield self.tread()[1] * (1 + 0.01 * self._noise.standard_normal())
            self.count += 1

    def read(self) -> SampleRow:
        _, _, pstate, sm_clock_mhz, mem_clock_mhz = self.tread()
        return row(pstate=pstate, sm_clock_mhz=sm_clock_mhz, mem_clock_mhz=mem_clock_mhz, event_reasons=0.0)


def test_a_steady_loop_stops_soon_and_says_what_bias_to_expect() -> None:
    warmed = warm_until_steady(noisy(np.full(5000, 1e-3), seed=1))
    assert (warmed.steady, warmed.behaviour, warmed.stopped_by) == (True, "flat", "steady")
    assert warmed.seconds <= 1.3
    assert warmed.latency_ms == pytest.approx(1.0, rel=0.002)
    assert warmed.bias_pct is not None
    assert warmed.bias_pct < 0.5


def test_a_ramp_is_waited_for() -> None:
    time_s = np.arange(10_000) * 1e-3
    warmed = warm_until_steady(noisy(1e-3 * (1 + 0.5 * np.exp(-time_s / 0.3)), seed=2))
    assert (warmed.steady, warmed.behaviour) == (True, "warmup")
    assert 0.5 * math.exp(-warmed.iterations * 1e-3 / 0.3) < 0.01


def test_a_cap_that_bites_after_50_ms_is_a_slowdown() -> None:
    warmed = warm_until_steady(noisy(np.repeat([2.64e-3, 2.84e-3], [20, 3000]), seed=3, noise=0.004))
    assert (warmed.steady, warmed.behaviour) == (True, "slowdown")
    assert warmed.latency_ms == pytest.approx(2.84, rel=0.002)


def test_a_tread_of_a_staircase_is_not_the_top_where_the_state_says_so() -> None:
    gpu = Staircase()
    warmed = warm_until_steady(gpu.latencies(), state=gpu.read, limits=LIMITS)
    assert warmed.iterations > 1500
    assert warmed.latency_ms == pytest.approx(1.0, rel=0.005)


def test_without_a_state_latency_alone_decides() -> None:
    gpu = Staircase()
    assert warm_until_steady(gpu.latencies()).iterations < 1500


def test_a_clock_held_down_by_a_power_cap_is_at_its_top() -> None:
    capped = row(pstate=0.0, sm_clock_mhz=1400.0, mem_clock_mhz=10000.0, event_reasons=float(0x4))
    warmed = warm_until_steady(noisy(np.full(5000, 1e-3), seed=4), state=lambda: capped, limits=LIMITS)
    assert warmed.steady
    assert warmed.seconds < 1.5


def test_a_power_cap_that_hunts_does_not_keep_it_waiting() -> None:
    clocks = itertools.cycle((1725.0, 1440.0, 1605.0))  # one reading after the other: never still
    hunted = (row(pstate=0.0, sm_clock_mhz=clock, mem_clock_mhz=10000.0, event_reasons=float(0x4)) for clock in clocks)
    warmed = warm_until_steady(noisy(np.full(5000, 1e-3), seed=4), state=lambda: next(hunted), limits=LIMITS)
    assert warmed.steady
    assert warmed.seconds < 2


def test_a_state_that_cannot_be_read_does_not_keep_it_waiting() -> None:
    warmed = warm_until_steady(noisy(np.full(5000, 1e-3), seed=4), state=lambda: row(), limits=LIMITS)
    assert warmed.steady


def test_what_finds_no_rest_stops_at_max_seconds_and_says_so() -> None:
    up_and_down = 1e-3 * (1 + 0.1 * np.sin(np.arange(20_000) / 50))
    warmed = warm_until_steady(noisy(up_and_down, seed=5), max_seconds=5.0)
    assert (warmed.steady, warmed.stopped_by) == (False, "max_seconds")
    assert warmed.seconds == pytest.approx(5.0, abs=0.01)
    assert warmed.behaviour in ("cyclic", "no_steady_state")


def test_durations_that_run_out_are_judged_as_far_as_they_go() -> None:
    warmed = warm_until_steady(noisy(np.full(100, 1e-3), seed=6))
    assert (warmed.steady, warmed.stopped_by, warmed.iterations) == (False, "exhausted", 100)


def test_no_durations_at_all_are_too_short() -> None:
    warmed = warm_until_steady(iter(()))
    assert (warmed.behaviour, warmed.iterations) == ("too_short", 0)


def test_a_function_is_called_and_timed() -> None:
    calls = itertools.count()

    def step() -> None:
        next(calls)
        until = time.perf_counter() + 2e-3
        while time.perf_counter() < until:
            pass

    warmed = gpuwarm.warm_until_steady(step, max_seconds=0.3)
    assert warmed.iterations == next(calls)
    assert warmed.seconds == pytest.approx(0.3, abs=0.1)


def test_at_least_min_iterations_are_done() -> None:
    warmed = warm_until_steady(noisy(np.full(9000, 1e-3), seed=7), min_iterations=3000)
    assert warmed.steady
    assert warmed.iterations >= 3000


def test_memory_is_bounded_however_long_it_takes() -> None:
    def wandering() -> Iterator[float]:
        rng, level = np.random.default_rng(8), 1e-4
        for _ in range(100):
            level *= 1 + 0.05 * rng.standard_normal()
            yield from (level * (1 + 0.01 * rng.standard_normal(3000))).tolist()

    tracemalloc.start()
    warmed = warm_until_steady(wandering(), max_seconds=1000.0)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert warmed.iterations == 300_000
    assert most < 8_000_000


@pytest.mark.parametrize(("tolerance", "max_seconds"), [(0.0, 30.0), (1.5, 30.0), (0.01, 0.0)])
def test_senseless_arguments_are_refused(tolerance: float, max_seconds: float) -> None:
    with pytest.raises(InputError, match="are usual"):
        warm_until_steady(iter(()), tolerance=tolerance, max_seconds=max_seconds)


def test_a_slow_first_call_is_seen_however_many_follow() -> None:
    latency_s = np.full(40_000, 5e-5)
    latency_s[0] = 5e-3
    warmed = warm_until_steady(noisy(latency_s, seed=9))
    assert (warmed.steady, warmed.behaviour) == (True, "warmup")


@pytest.mark.parametrize("odd", [-1.0, math.nan])
def test_a_duration_that_is_none_is_refused(odd: float) -> None:
    with pytest.raises(InputError, match="one was negative or no number"):
        warm_until_steady(iter([1e-3] * 500 + [odd] + [1e-3] * 4000))


def test_a_step_too_short_for_the_clock_does_not_divide_by_zero() -> None:
    assert warm_until_steady(iter([0.0] * 5000), max_seconds=1.0).stopped_by == "exhausted"
