"""A GPU's state against a latency that seems steady."""

import measured
import numpy as np
import pytest

from gpuwarm.analysis.settling import Settling, settling
from gpuwarm.analysis.stretch import stretches
from gpuwarm.analysis.transitions import find
from gpuwarm.recording import Floats, Rows

N = 2500  # of 2 ms
SINCE_MS = 2.02


def of(rows: Rows, samples: Rows, *, steady_ms: float = 0.0) -> Settling:
    recording = measured.recording(rows, samples=[samples])
    (stretch,) = stretches(recording)
    return settling(recording, stretch, find(recording), steady_ms=steady_ms)


def steady(clock: Floats | float = np.nan) -> Rows:
    return measured.inference(0, measured.noisy(np.full(N, 2.0), seed=1), clock)


def after(rows: Rows, samples: Rows, time_ms: float) -> np.ndarray:
    return (samples["t_ns"] - rows["t_ns"][0]) / measured.MS >= time_ms


def test_a_state_that_stands_still_says_nothing() -> None:
    rows = steady(1980.0)
    found = of(rows, measured.sampled(rows, sm_clock_mhz=1980.0, pstate=0.0, power_mw=4e5, event_reasons=0.0))
    assert found == Settling(clock_warm_ms=0.0)


def test_a_clock_that_changes_near_the_end_vetoes() -> None:
    clock = measured.steps((1980.0, N - 100), (1500.0, 100))
    rows = steady(clock)
    (veto,) = of(rows, measured.sampled(rows)).vetoes
    assert "from 1,980 to 1,500 MHz near the end" in veto


def test_a_clock_that_comes_back_to_where_it_was_does_not() -> None:
    clock = measured.steps((1980.0, 800), (1500.0, 900), (1980.0, N - 1700))
    rows = steady(clock)
    assert of(rows, measured.sampled(rows)).vetoes == ()


@pytest.mark.parametrize(
    ("column", "before", "late", "said"),
    [("pstate", 5.0, 2.0, "the P-state went from P5 to P2"), ("mem_clock_mhz", 810.0, 9501.0, "the memory clock")],
)
def test_a_p_state_or_memory_clock_that_changes_near_the_end_vetoes(
    column: str, before: float, late: float, said: str
) -> None:
    rows = steady()
    samples = measured.sampled(rows, **{column: before})
    samples[column][after(rows, samples, N * SINCE_MS - 200)] = late
    (veto,) = of(rows, samples).vetoes
    assert veto.startswith(said)


def test_the_clock_is_warm_when_it_stays_as_the_gpu_itself_measures() -> None:
    clock = measured.steps((1000.0, 100), (1980.0, N - 100))
    rows = steady(clock)
    assert of(rows, measured.sampled(rows), steady_ms=250.0).clock_warm_ms == pytest.approx(100 * SINCE_MS, abs=20)


def test_nvmls_clock_is_taken_back_by_its_lag() -> None:
    rows = measured.inference(0, measured.noisy(measured.steps((3.0, 200), (2.0, N)), seed=2), np.nan)
    changed_ms = float(rows["t_ns"][200] - rows["t_ns"][0]) / measured.MS
    samples = measured.sampled(rows, sm_clock_mhz=1320.0)
    samples["sm_clock_mhz"][after(rows, samples, changed_ms + 150)] = 1980.0
    assert of(rows, samples, steady_ms=changed_ms).clock_warm_ms == pytest.approx(changed_ms, abs=30)


def test_power_that_goes_on_rising_is_flagged_and_no_veto() -> None:
    rows = steady(1980.0)
    samples = measured.sampled(rows, sm_clock_mhz=1980.0)
    samples["power_average_mw"] = np.linspace(300e3, 500e3, samples.size)
    found = of(rows, samples)
    assert found.vetoes == ()
    assert found.flags[0].startswith("power went from")


def test_a_slowdown_reason_that_is_new_at_the_end_is_flagged() -> None:
    rows = steady(1980.0)
    samples = measured.sampled(rows, event_reasons=0.0)
    samples["event_reasons"][-3:] = 0x40
    assert of(rows, samples).flags == ("hw_thermal_slowdown was reported near the end for the first time",)


def test_a_clock_that_moves_on_while_latency_stays_is_flagged() -> None:
    clock = measured.steps((1500.0, 1000), (1980.0, N - 1000))
    rows = steady(clock)
    (flag,) = of(rows, measured.sampled(rows)).flags
    assert "latency did not follow it" in flag


def test_unsampled_starts_have_no_state() -> None:
    rows = steady(measured.steps((1980.0, N - 100), (1500.0, 100)))
    recording = measured.recording(rows)
    unsampled = tuple(type(start)(sampled=False, phases=start.phases) for start in recording.meta.starts)
    recording = measured.recording(rows, starts=unsampled)
    assert settling(recording, stretches(recording)[0], (), steady_ms=0.0) == Settling()
