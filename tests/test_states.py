"""The states a GPU passed through, and what a moving latency moves with."""

import measured
import numpy as np
import pytest

from gpuwarm.analysis.movement import Mover, mover, restless
from gpuwarm.analysis.states import passed_through
from gpuwarm.analysis.steady import Judgement
from gpuwarm.analysis.stretch import stretches
from gpuwarm.recording import Floats, Recording, Rows

UNSETTLED = Judgement("no_steady_state")


def moved(recording: Recording, judged: Judgement = UNSETTLED, *, tolerance: float = 0.01) -> Mover | None:
    return mover(recording, stretches(recording)[0], judged, tolerance=tolerance)


def states(rows: Rows, samples: Rows) -> list[tuple[str, float, int | None]]:
    recording = measured.recording(rows, samples=[samples])
    found = passed_through(recording, stretches(recording)[0])
    return [(state.source, round(state.sm_clock_mhz), state.pstate) for state in found]


def staircase() -> tuple[Rows, Rows]:
    rows = measured.inference(0, np.full(1000, 2.0), np.nan)
    samples = measured.sampled(rows, pstate=8.0, sm_clock_mhz=210.0, mem_clock_mhz=405.0)
    for at_ms, pstate, sm_mhz, mem_mhz in ((0, 5, 1155, 810), (300, 3, 1155, 5001), (620, 2, 1920, 9251)):
        later = samples["t_ns"] >= rows["t_ns"][0] + at_ms * measured.MS
        samples["pstate"][later], samples["sm_clock_mhz"][later], samples["mem_clock_mhz"][later] = (
            pstate,
            sm_mhz,
            mem_mhz,
        )
    return rows, samples


def test_a_staircase_is_its_treads_also_where_only_the_memory_clock_steps() -> None:
    assert states(*staircase()) == [("nvml", 210, 8), ("nvml", 1155, 5), ("nvml", 1155, 3), ("nvml", 1920, 2)]


def test_dithering_under_a_cap_and_a_single_odd_reading_are_no_states() -> None:
    rows, samples = staircase()
    samples["pstate"], samples["mem_clock_mhz"] = 0.0, 3201.0
    samples["sm_clock_mhz"] = 1815.0 + 15.0 * np.random.default_rng(1).integers(0, 3, samples.size)
    samples["sm_clock_mhz"][60] = 345.0
    assert [state[0::2] for state in states(rows, samples)] == [("nvml", 0)]


def test_the_way_down_from_the_start_before_is_left_out_and_the_rise_has_its_step() -> None:
    rows = measured.inference(0, np.full(1000, 2.0), np.nan)
    samples = measured.sampled(rows, pstate=0.0, sm_clock_mhz=1980.0)
    since_ms = (samples["t_ns"] - rows["t_ns"][0]) / measured.MS
    for until_ms, mhz in ((-100, 345.0), (-350, 405.0), (-700, 480.0), (-900, 1980.0)):  # begins at -464 ms
        samples["sm_clock_mhz"][since_ms < until_ms] = mhz
    recording = measured.recording(rows, samples=[samples])
    found = passed_through(recording, stretches(recording)[0])
    assert [(state.sm_clock_mhz, state.during) for state in found] == [(345.0, "driver_init"), (1980.0, "context")]


def test_a_clock_measured_on_the_gpu_comes_with_the_latency_at_it() -> None:
    clock = measured.steps((1810.0, 50), (1660.0, 950))
    recording = measured.recording(measured.inference(0, 3600.0 / clock, clock), samples=[])
    fast, slow = passed_through(recording, stretches(recording)[0])
    assert (fast.source, fast.latency_ms, slow.latency_ms) == pytest.approx(
        ("gpu", 3600 / 1810 + 0.02, 3600 / 1660 + 0.02)
    )
    assert slow.from_ms == pytest.approx(50 * (3600 / 1810 + 0.02))


def wandering(*, clock: bool = False, enqueue: bool = False, noise: float = 0.0) -> Recording:
    wander = 1 + 0.05 * np.sin(np.linspace(0, 20, 2000))
    rows = measured.inference(0, measured.noisy(2.0 * wander, seed=1), 1980.0 / wander if clock else 1980.0)
    if enqueue:
        rows["enqueue_ns"] *= measured.noisy(wander, seed=2, noise=noise)
    return measured.recording(rows)


def test_what_moves_with_the_enqueue_at_a_constant_clock_is_the_hosts() -> None:
    found = moved(wandering(enqueue=True, noise=0.01))
    assert found.cause == "host"
    assert found.evidence.endswith("the SM clock by 0.0 %: the host moves it, not the GPU's clock")


def test_what_moves_with_the_clock_is_the_clocks_even_where_the_host_goes_along() -> None:
    assert moved(wandering(clock=True, enqueue=True)).cause == "clock"


def wakes_up_late(*, clock: Floats | float = 1980.0) -> Recording:
    """31 us on the GPU; until synchronised 80 us, then 120 us."""
    rows = measured.inference(0, measured.noisy(np.full(2000, 0.031), seed=1), clock)
    rows["host_ns"] = measured.noisy(measured.steps((80e3, 900), (120e3, 1100)), seed=2)
    return measured.recording(rows)


def test_what_moves_outside_the_gpus_own_work_is_the_hosts_though_no_enqueue_takes_longer() -> None:
    found = moved(wakes_up_late())
    assert found.cause == "host"
    assert "100 % of that lies outside the GPU's own work (launch, copies, waking up)" in found.evidence
    assert moved(wakes_up_late(clock=measured.steps((1980.0, 900), (1320.0, 1100)))).cause == "clock"


def test_how_far_the_callers_latency_wanders_is_told_with_the_hosts_part_of_it() -> None:
    recording = wakes_up_late()
    found = restless(recording, stretches(recording), after_ms=None)
    assert found.latency_ms == pytest.approx((0.080, 0.120), rel=0.01)
    assert found.host_ms == pytest.approx((0.049, 0.089), rel=0.01)
    late_ms = stretches(recording)[0].elapsed_ms[900]
    assert restless(recording, stretches(recording), after_ms=late_ms).latency_ms[0] == pytest.approx(0.120, rel=0.01)


def test_a_staircase_is_the_clocks_though_latency_falls_further_than_the_clock_rises() -> None:
    """A GeForce: the memory clock rises, too."""
    clock = measured.steps((765.0, 30), (1350.0, 100), (2055.0, 400))
    latency = measured.steps((2.75, 30), (0.98, 100), (0.65, 400))
    assert moved(measured.recording(measured.inference(0, latency, clock))).cause == "clock"


def test_what_moves_with_neither_is_not_explained() -> None:
    assert moved(wandering()) is None


def test_what_does_not_move_needs_no_cause() -> None:
    assert moved(wandering(enqueue=True), tolerance=0.2) is None
    assert moved(wandering(enqueue=True), Judgement("flat")) is None
