"""State changes that NVML shows late, joined to what latency did."""

import measured
import numpy as np
import pytest

from gpuwarm.analysis.transitions import Transition, find
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.recording import Floats, Recording, Rows

LAG_MS = 130


def seen(rows: Rows, times_ms: list[float], **columns: list[float]) -> Rows:
    """Samples whose columns step at these times after the first inference, shown LAG_MS late."""
    samples = measured.sampled(rows, period_ms=10.0)
    since_ms = (samples["t_ns"] - rows["t_ns"][0]) / measured.MS
    for name, values in columns.items():
        samples[name] = np.array(values)[np.searchsorted(np.array(times_ms) + LAG_MS, since_ms, side="right")]
    return samples


def stepped(before_ms: float, after_ms: float, *, clock: Floats | float = np.nan, seed: int = 1) -> Rows:
    """The GPU's own time steps at iteration 200 of 1500."""
    return measured.inference(0, measured.noisy(measured.steps((before_ms, 200), (after_ms, 1300)), seed=seed), clock)


def change_ms(rows: Rows) -> float:
    return float(rows["t_ns"][200] - rows["t_ns"][0]) / measured.MS


def clocks(found: tuple[Transition, ...]) -> list[Transition]:
    return [each for each in found if each.kind == "sm_clock"]


def test_a_clock_change_is_explained_and_nvmls_lag_behind_latency_is_told() -> None:
    rows = stepped(2.0, 2.2)
    samples = seen(rows, [change_ms(rows)], sm_clock_mhz=[1980.0, 1800.0])
    (found,) = clocks(find(measured.recording(rows, samples=[samples])))
    assert (found.before, found.after, found.explained) == (1980.0, 1800.0, "yes")
    assert found.latency_change_pct == pytest.approx(10.0, abs=0.5)
    assert found.predicted_by_clock_pct == pytest.approx(10.0)
    assert found.lag_ms == pytest.approx(LAG_MS, abs=12)


def test_the_clock_measured_on_the_gpu_is_believed_before_nvmls() -> None:
    clock = measured.steps((1810.0, 200), (1700.0, 1300))
    rows = stepped(2.0, 2.0 * 1810 / 1700, clock=clock)
    samples = seen(rows, [change_ms(rows)], sm_clock_mhz=[1980.0, 1845.0])
    (found,) = clocks(find(measured.recording(rows, samples=[samples])))
    assert found.predicted_by_clock_pct == pytest.approx(100 * (1810 / 1700 - 1), abs=0.1)
    assert found.lag_ms == pytest.approx(LAG_MS, abs=12)


@pytest.mark.parametrize(("after_ms", "explained"), [(2.0, "no"), (2.15, "partly"), (2.38, "yes")])
def test_an_engine_may_follow_the_clock_partly_or_not_at_all(after_ms: float, explained: str) -> None:
    clock = measured.steps((1980.0, 200), (1650.0, 1300))  # 20 % more time for constant cycles
    rows = stepped(2.0, after_ms, clock=clock)
    samples = seen(rows, [change_ms(rows)], sm_clock_mhz=[1980.0, 1650.0])
    assert [found.explained for found in clocks(find(measured.recording(rows, samples=[samples])))] == [explained]


def test_a_latency_that_moves_without_the_clock_is_no_transition() -> None:
    rows = stepped(2.0, 2.2, clock=1980.0)
    samples = seen(rows, [], sm_clock_mhz=[1980.0], pstate=[0.0])
    assert find(measured.recording(rows, samples=[samples])) == ()


def test_other_state_is_shown_in_words_and_shares_the_lag() -> None:
    rows = stepped(4.0, 2.0)
    samples = seen(
        rows,
        [change_ms(rows)],
        sm_clock_mhz=[900.0, 1800.0],
        mem_clock_mhz=[810.0, 9501.0],
        pstate=[5.0, 2.0],
        event_reasons=[1.0, 0.0],
    )
    found = {each.kind: each for each in find(measured.recording(rows, samples=[samples]))}
    assert (found["pstate"].before, found["pstate"].after) == ("P5", "P2")
    assert (found["event_reasons"].before, found["event_reasons"].after) == ("gpu_idle", "none")
    assert found["mem_clock"].latency_change_pct == pytest.approx(-50.0, abs=1.0)
    assert found["mem_clock"].lag_ms == pytest.approx(LAG_MS, abs=12)


def test_dithering_under_a_cap_is_no_transition() -> None:
    rows = measured.inference(0, measured.noisy(np.full(1500, 2.0), seed=1), np.nan)
    samples = measured.sampled(rows)
    samples["sm_clock_mhz"] = 1815.0 + 15.0 * np.random.default_rng(1).integers(0, 3, samples.size)
    assert find(measured.recording(rows, samples=[samples])) == ()


def test_two_changes_one_after_the_other_do_not_lend_each_other_their_latencies() -> None:
    levels = measured.steps((4.0, 100), (2.0, 60), (1.0, 1500))
    rows = measured.inference(0, measured.noisy(levels, seed=2), np.nan)
    times = [float(rows["t_ns"][at] - rows["t_ns"][0]) / measured.MS for at in (100, 160)]
    samples = seen(rows, times, sm_clock_mhz=[500.0, 1000.0, 2000.0])
    changes = [each.latency_change_pct for each in clocks(find(measured.recording(rows, samples=[samples])))]
    assert changes == pytest.approx([-50.0, -50.0], abs=2.0)


def test_missing_readings_are_no_change_of_state() -> None:
    rows = stepped(2.0, 2.0)
    samples = measured.sampled(rows, sm_clock_mhz=1980.0)
    samples["sm_clock_mhz"][::3] = np.nan
    assert find(measured.recording(rows, samples=[samples])) == ()


def test_a_start_that_was_not_sampled_has_no_transitions() -> None:
    rows = stepped(2.0, 2.2)
    samples = seen(rows, [change_ms(rows)], sm_clock_mhz=[1980.0, 1800.0])
    recording = measured.recording(rows, samples=[samples])
    unsampled = [type(start)(sampled=False, phases=start.phases) for start in recording.meta.starts]
    assert find(measured.recording(rows, samples=[samples], starts=tuple(unsampled))) == ()


def test_a_power_limit_that_changed_during_the_measurement_is_one() -> None:
    limits = [MachineState(gpus=(GpuState(power_limit_w=limit),)) for limit in (700.0, 500.0)]
    recording = measured.recording(stepped(2.0, 2.0), machine_before=limits[0], machine_after=limits[1])
    (found,) = find(recording)
    assert (found.kind, found.before, found.after) == ("power", 700.0, 500.0)


def test_a_thousand_changes_are_joined_each_with_its_own_surroundings() -> None:
    rows: Recording | Rows = measured.inference(0, measured.noisy(np.full(4000, 5.0), seed=3), np.nan)
    samples = measured.sampled(rows, period_ms=10.0)
    samples["sm_clock_mhz"] = np.where(np.arange(samples.size) // 2 % 2, 1980.0, 1500.0)
    found = find(measured.recording(rows, samples=[samples]))
    assert len(found) > 900
    assert all(each.explained in ("no", "unknown") for each in found)
