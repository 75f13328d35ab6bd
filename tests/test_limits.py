"""What limits a warm workload: signs that agree make a claim, one alone does not."""

from dataclasses import replace

import measured
import numpy as np
import pytest

from gpuwarm.analysis import limits
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.limits import Parts
from gpuwarm.analysis.pace import Pace
from gpuwarm.analysis.stretch import follows_enqueue, stretches
from gpuwarm.machine import GpuState
from gpuwarm.recording import Recording

SW_POWER_CAP, SW_THERMAL = 4.0, 32.0


@pytest.mark.parametrize(
    ("parts", "bound"),
    [
        (Parts(gpu_ms=2.84, enqueue_ms=0.3), "gpu"),  # medians of the heavy, tiny and medium engines on an H200
        (Parts(gpu_ms=0.035, enqueue_ms=0.052), "host"),
        (Parts(gpu_ms=0.150, enqueue_ms=0.089), "gpu"),
        (Parts(gpu_ms=1.0, enqueue_ms=0.1, h2d_ms=1.2, d2h_ms=0.1), "transfer"),
        (Parts(gpu_ms=1.0, enqueue_ms=0.1, h2d_ms=0.1, d2h_ms=1.2), "transfer"),
        (Parts(gpu_ms=1.0, enqueue_ms=0.1, h2d_ms=0.3, d2h_ms=0.2), "gpu"),
        (Parts(0.092, enqueue_ms=0.022, h2d_ms=0.006, gpu_ms=0.031, d2h_ms=0.005), "host"),  # most of it is waking up
        (Parts(0.289, enqueue_ms=0.089, h2d_ms=0.094, gpu_ms=0.144, d2h_ms=0.007), "gpu"),
        (Parts(gpu_ms=1.0), "unknown"),
        (Parts(enqueue_ms=1.0, host_ms=2.0), "unknown"),
        (Parts(), "unknown"),
    ],
)
def test_the_bound_is_what_takes_longest(parts: Parts, bound: str) -> None:
    assert limits.bound(parts)[0] == bound


def test_the_bound_says_its_numbers() -> None:
    assert limits.bound(Parts(gpu_ms=0.035, enqueue_ms=0.052))[1] == (
        "the enqueue takes the host 52 us, the inference 35 us on the GPU"
    )


def test_a_gpu_that_waits_for_its_launches_is_bound_by_the_host() -> None:
    assert limits.bound(Parts(0.05, enqueue_ms=0.022, gpu_ms=0.031), gpu_per_enqueue=0.69) == (
        "host",
        "the enqueue takes the host 22 us, the inference 31 us on the GPU, 62 % of the 50 us until synchronised; "
        "where the enqueue takes longer, the GPU does too: it waits for the host",
    )
    assert limits.bound(Parts(0.17, enqueue_ms=0.089, gpu_ms=0.15), gpu_per_enqueue=0.18)[0] == "gpu"


def launched(*, follows: float) -> Recording:
    """Enqueues of 20 to 30 us; the GPU takes 100 us, and `follows` of what the enqueue takes longer."""
    enqueue_ms = 0.02 + 0.01 * (np.arange(2000) // 100 % 2)
    rows = measured.inference(0, 0.1 + follows * (enqueue_ms - 0.02))
    rows["enqueue_ns"] = enqueue_ms * measured.MS
    return measured.recording(rows)


def test_what_the_gpu_takes_longer_with_the_enqueue_is_measured() -> None:
    for follows in (0.3, 0.7):
        found = launched(follows=follows)
        assert follows_enqueue(found, stretches(found)[0]) == pytest.approx(follows)
        assert limits.of(found, stretches(found), None, warm_after_ms=0.0).bound == ("host" if follows > 0.5 else "gpu")
    assert follows_enqueue(measured.flat(), stretches(measured.flat())[0]) == 0.0
    unknown = launched(follows=0.7)
    unknown.iterations["enqueue_ns"][5] = np.nan
    assert follows_enqueue(unknown, stretches(unknown)[0]) is None


def throttling(recording: Recording, gpu: GpuState = measured.H200) -> Finding:
    found = stretches(recording)
    return limits.throttling(limits.since(recording, found, 0.0), limits.since(recording, found, None), gpu)


def held(
    *, clock: tuple[float, float] = (1980.0, 1980.0), at: int = 100, gpu: GpuState = measured.H200, **columns: float
) -> Recording:
    """One start whose clock goes from the first to the second at an iteration of 2 ms, with constant samples."""
    rows = measured.inference(0, np.full(1000, 2.0), measured.steps((clock[0], at), (clock[1], 1000 - at)))
    return measured.recording(rows, samples=[measured.sampled(rows, **columns)], gpu=gpu)


def test_a_power_cap_is_claimed_at_the_limit() -> None:
    found = throttling(held(event_reasons=SW_POWER_CAP, power_mw=690e3))
    assert (found.severity, found.summary) == ("info", "the clock is held down by the power limit")
    assert "690 W of 700 W; sw_power_cap active 100 % of the time" in found.evidence


def test_a_power_cap_is_claimed_below_the_limit_where_the_clock_fell() -> None:
    """On an H200 the average power of a capped engine is 616 of 700 W."""
    found = throttling(held(clock=(1810.0, 1660.0), event_reasons=SW_POWER_CAP, power_mw=616e3))
    assert found.summary == "the clock is held down by the power limit"
    assert "SM clock 1660 MHz against 1810 MHz reached (-8.3 %)" in found.evidence


def test_a_power_cap_that_the_driver_reports_on_a_gpu_at_ease_is_not_believed() -> None:
    found = throttling(held(event_reasons=SW_POWER_CAP, power_mw=112e3))
    assert found.severity == "ok"
    assert found.summary.startswith("none: sw_power_cap was reported, but")


def test_heat_is_a_warning_and_is_claimed_near_the_slowdown_temperature_only() -> None:
    laptop = GpuState(temperature_limit_c=87.0)
    hot = held(event_reasons=SW_THERMAL, temperature_c=86.0)
    assert throttling(hot, laptop).severity == "warning"
    assert throttling(hot, laptop).summary == "the clock is held down by temperature"
    assert throttling(held(event_reasons=SW_THERMAL, temperature_c=60.0), laptop).severity == "ok"


def test_counters_are_believed_over_bits() -> None:
    found = held(event_reasons=0.0, power_mw=690e3)
    counted = replace(
        found.meta.starts[0],
        counters_before_us={"sw_power_cap": 5_000_000},
        counters_after_us={"sw_power_cap": 6_000_000},
    )
    grown = replace(found, meta=replace(found.meta, starts=(counted,)))
    assert "sw_power_cap active 50 % of the time" in throttling(grown).evidence
    assert throttling(found).summary == "none"


def test_a_reason_before_the_warmup_was_over_is_no_throttle() -> None:
    found = held(event_reasons=0.0, power_mw=690e3)
    found.samples["event_reasons"][:50] = SW_POWER_CAP
    assert throttling(found).summary == "none"


def test_a_clock_that_falls_without_a_reason_is_said_to() -> None:
    assert throttling(held(clock=(1980.0, 1800.0), event_reasons=0.0)).summary == (
        "the clock fell while busy; no event reason says why"
    )
    assert throttling(held(clock=(1980.0, 1800.0))).summary == (
        "the clock fell while busy; event reasons were not recorded"
    )


def test_a_boost_that_ends_as_the_load_begins_is_no_clock_that_was_reached() -> None:
    """An H200 rests at 1980 MHz with a context and runs a medium load at 1807 MHz, far from every limit."""
    rows = measured.inference(0, np.full(20_000, 0.144), 1807.0)
    for boosted in (rows[:10], rows[700:710], rows[9_000:9_010]):
        boosted["sm_clock_mhz"] = 1882.0
    found = throttling(measured.recording(rows, samples=[measured.sampled(rows, event_reasons=0.0, power_mw=321e3)]))
    assert (found.severity, found.summary) == ("ok", "none")
    assert "SM clock 1807 MHz, not below what it had reached" in found.evidence


def test_a_clock_that_nvml_shows_late_was_not_reached_under_load() -> None:
    rows = measured.inference(0, np.full(2000, 2.0), np.nan)
    samples = measured.sampled(rows, sm_clock_mhz=1980.0, event_reasons=0.0)
    samples["sm_clock_mhz"][samples["t_ns"] > rows["t_ns"][0] + 200 * measured.MS] = 1807.0
    assert throttling(measured.recording(rows, samples=[samples])).summary == "none"
    samples["sm_clock_mhz"][samples["t_ns"] < rows["t_ns"][0] + 900 * measured.MS] = 1980.0
    assert throttling(measured.recording(rows, samples=[samples])).summary.startswith("the clock fell while busy")


def test_a_clock_held_for_50_ms_backs_a_reason_but_is_no_throttle_by_itself() -> None:
    capped = held(clock=(1810.0, 1660.0), event_reasons=SW_POWER_CAP, power_mw=616e3, at=25)
    assert throttling(capped).summary == "the clock is held down by the power limit"
    assert throttling(held(clock=(1810.0, 1660.0), event_reasons=0.0, power_mw=616e3, at=25)).summary == "none"


def test_one_odd_stamp_is_not_the_highest_clock() -> None:
    found = held(event_reasons=0.0)
    found.iterations["sm_clock_mhz"][500] = 4000.0
    assert throttling(found).summary == "none"


def test_a_clock_far_below_the_maximum_is_asked_about() -> None:
    found = throttling(held(clock=(1000.0, 1000.0), event_reasons=0.0))
    assert found.summary == "the clock stays at 51 % of 1980 MHz: is it locked?"


def test_a_clock_that_rose_was_not_reached_before() -> None:
    """A staircase that is still climbing at the end: the later half of it holds both levels."""
    rising = held(clock=(1350.0, 1980.0), at=800, event_reasons=0.0)
    assert throttling(rising).evidence.startswith("SM clock 1350 MHz, not below what it had reached")
    assert throttling(rising).summary == "the clock stays at 68 % of 1980 MHz: is it locked?"
    assert throttling(rising, replace(measured.H200, sm_clock_max_mhz=1500.0)).summary == "none"


def test_a_paced_gpu_that_idles_is_not_asked_whether_it_is_locked() -> None:
    for clock, said in (((700.0, 700.0), "the clock stays at 35 % of 1980 MHz"), ((1980.0, 1500.0), "the clock fell")):
        found = measured.paced(clock_mhz=measured.steps((clock[0], 100), (clock[1], 400)), between_mhz=345.0)
        limit = limits.of(found, stretches(found), measured.H200, warm_after_ms=4000.0)
        assert limit.throttling.severity in ("ok", "unknown")
        assert limit.throttling.summary == f"{said}: one inference each 20 ms keeps the GPU busy 10 % of the time"
        assert limit.pace == Pace(20.0, pytest.approx(10.0), clock[1], 345.0)


def test_a_pace_that_inference_cannot_keep_is_back_to_back() -> None:
    found = measured.paced(clock_mhz=np.full(500, 1980.0), between_mhz=345.0, gpu_ms=21.0)
    assert limits.of(found, stretches(found), measured.H200, warm_after_ms=0.0).pace is None


def test_without_event_reasons_it_is_not_known() -> None:
    assert throttling(held()).severity == "unknown"


def test_a_reason_that_nothing_can_be_compared_with_is_neither_believed_nor_denied() -> None:
    capped = held(event_reasons=SW_POWER_CAP, power_mw=345e3)
    found = throttling(capped, GpuState())  # a log without the limit, capped from its first row on
    assert (found.severity, found.summary[:10]) == ("unknown", "not known:")
    capped.samples["event_reasons"][: capped.samples.size // 2] = 0.0
    assert throttling(capped, GpuState()).summary.startswith("none: sw_power_cap was reported, but the clock did not")


def test_a_gpu_that_takes_much_longer_than_its_enqueue_does_not_wait_for_it() -> None:
    found = launched(follows=5.0)
    assert follows_enqueue(found, stretches(found)[0]) == 0.0
    assert limits.of(found, stretches(found), None, warm_after_ms=0.0).bound == "gpu"


def test_an_enqueue_that_is_known_of_the_first_inferences_alone_is_told() -> None:
    found = held()
    found.iterations["enqueue_ns"][100:] = np.nan
    assert limits.of(found, stretches(found), None, warm_after_ms=1000.0).parts.enqueue_ms == pytest.approx(0.05)
