"""A log of states without inferences tells states, how long they lasted, load, decay, and what it cannot tell."""

from pathlib import Path

import numpy as np
import pytest

from gpuwarm.analysis import advice, statelog
from gpuwarm.machine import GpuState
from gpuwarm.metadata import Metadata, Sampling
from gpuwarm.read.files import recordings
from gpuwarm.recording import ITERATION, SAMPLE, Recording

MS = 10**6


def log(*stretches: tuple[float, dict[str, float]], period_ms: float = 100.0) -> Recording:
    """Stretches of (seconds, values of SAMPLE); what none names is missing."""
    rows = np.zeros(sum(round(seconds * 1e3 / period_ms) for seconds, _ in stretches), SAMPLE)
    for name in SAMPLE.names or ():
        if name != "t_ns":
            rows[name] = np.nan
    rows["t_ns"] = np.arange(rows.size) * period_ms * MS
    begin = 0
    for seconds, values in stretches:
        end = begin + round(seconds * 1e3 / period_ms)
        for name, value in values.items():
            rows[name][begin:end] = value
        begin = end
    meta = Metadata(time_base="relative", source="gpu.csv", sampling=Sampling(period_ms=period_ms))
    return Recording(rows, np.empty(0, ITERATION), meta)


REST = {"sm_clock_mhz": 300.0, "power_mw": 30e3, "gpu_util_pct": 0.0, "mem_clock_mhz": 405.0}
OPENED = REST | {"sm_clock_mhz": 2000.0, "power_mw": 60e3, "mem_clock_mhz": 7000.0}
BUSY = OPENED | {"power_mw": 245e3, "gpu_util_pct": 100.0}


def test_rest_load_and_decay_are_told():
    shown = statelog.of(log((3, REST), (0.5, OPENED), (5, BUSY), (2, OPENED), (3, REST)), None)
    assert shown.answer.endswith("The SM clock was 300 MHz at rest and 2000 MHz under load.")
    seen = " | ".join(shown.evidence)
    assert "2000 MHz 56 %, 300 MHz 44 %" in seen
    assert "the SM clock rose 500 ms before the load did" in seen
    assert "after the load the SM clock stayed up at 2000 MHz for 2 s and was down at 300 MHz after 2 s" in seen
    assert "after the load the memory clock stayed up at 7000 MHz for 2 s" in seen
    kinds = [(each.kind, each.before, each.after) for each in shown.transitions if each.kind == "sm_clock"]
    assert kinds == [("sm_clock", 300.0, 2000.0), ("sm_clock", 2000.0, 300.0)]
    assert [state.sm_clock_mhz for state in shown.states] == [300, 2000, 300]


def test_a_power_cap_is_claimed_by_reason_and_power_near_its_limit():
    capped = BUSY | {"sm_clock_mhz": 1500.0, "event_reasons": 4.0}
    shown = statelog.of(log((3, REST), (1, BUSY | {"event_reasons": 0.0}), (6, capped)), GpuState(power_limit_w=250.0))
    assert "2000 MHz at its highest and 1500 MHz under load; the clock is held down by the power limit" in shown.answer
    assert shown.throttling.severity == "info"
    assert [each.after for each in shown.transitions if each.kind == "event_reasons"] == ["sw_power_cap"]


def test_heat_is_told_by_a_clock_that_falls_while_power_does_not_rise():
    hot = [(1.0, BUSY | {"sm_clock_mhz": 2000.0 - 50 * at, "temperature_c": 60.0 + 3 * at}) for at in range(10)]
    shown = statelog.of(log((3, REST | {"temperature_c": 50.0}), *hot), None)
    assert "held down by heat" in shown.answer
    assert any("a longer warm-up makes it slower still" in line for line in shown.evidence)
    cool = [(1.0, values | {"temperature_c": 60.0}) for _, values in hot]
    assert "heat" not in statelog.of(log((3, REST), *cool), None).answer


def test_a_gpu_that_is_always_busy_is_under_load():
    shown = statelog.of(log((5, BUSY)), None)
    assert shown.answer.endswith("The SM clock was 2000 MHz under load.")


def test_a_gpu_that_was_not_used_is_not_called_cold():
    shown = statelog.of(log((5, REST), (5, OPENED)), None)
    assert "No load begins or ends in it; the SM clock was between 300 and 2000 MHz" in shown.answer
    assert any("utilisation is 0 %: as far as this log shows, nothing ran" in line for line in shown.evidence)
    assert shown.throttling.severity == "unknown"


def test_what_the_log_lacks_is_said():
    shown = statelog.of(log((5, {"power_mw": 30e3}), (5, {"power_mw": 90e3})), None)
    assert "It has no SM clock, so whether the GPU was warm cannot be told" in shown.answer
    coarse = statelog.of(log((50, REST), (50, BUSY), period_ms=5000), None)
    assert any("rows are 5 s apart" in line for line in coarse.evidence)


def test_a_pause_ends_a_load_and_its_states():
    two = log((3, REST), (4, BUSY), (4, BUSY))
    two.samples["t_ns"][70:] += 3600 * 10**9
    shown = statelog.of(two, None)
    assert {each.start for each in shown.transitions} <= {0, 1}
    assert all(state.until_ms - state.from_ms < 10_000 for state in shown.states)


def test_the_advice_on_a_log_is_what_its_states_tell():
    answered = advice.of(log((3, REST), (5, BUSY)))
    assert answered.answer.startswith("No inference was timed beside this log")
    assert not answered.timed
    assert advice.accepted(answered)
    assert not advice.accepted(answered, "degraded")
    assert answered.steady is None
    assert answered.warmup.recommended_ms is None


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("laptop_5s_noheader_ramp_210_1890_thermal.csv", "held down by heat"),
        ("laptop_5s_noheader_11h_gap_then_cool_run_2580.csv", "210 MHz at rest and 2580 MHz under load"),
        ("h100_pcie_burst_345_1755_then_powercap_8ms.csv", "345 MHz at rest, 1755 MHz at its highest"),
        ("h800_sxm_allreasons_P0_345_885_1980_dvfs.csv", "the clock is held down by the power limit"),
        ("wrapper_epoch_timestamps_custom_header.csv", "no SM clock, so whether the GPU was warm cannot be told"),
        ("header_repeated_every_sample.csv", "no SM clock"),
    ],
)
def test_real_logs_are_told_as_their_index_has_it(cases: Path, file: str, says: str):
    ((_, recording),) = recordings([cases / "smi_csv" / file])
    assert says in advice.of(recording).answer


@pytest.mark.parametrize("period_ms", [20.0, 1000.0])
def test_a_clock_that_is_up_again_after_the_load_was_held_down(period_ms: float):
    capped = BUSY | {"sm_clock_mhz": 1500.0, "event_reasons": 4.0}
    free = OPENED | {"event_reasons": 0.0}
    shown = statelog.of(log((3, REST), (20, capped), (4, free), (3, REST), period_ms=period_ms), None)
    assert shown.answer.endswith("1500 MHz under load; the clock is held down by the power limit.")


def test_why_a_clock_is_lower_under_load_is_said_to_be_unknown_where_it_is():
    slower = BUSY | {"sm_clock_mhz": 1500.0}
    shown = statelog.of(log((3, REST), (0.3, OPENED), (6, slower), (3, REST)), None)
    assert shown.answer.endswith("what holds it down is not known: no event reasons were recorded.")
    shown = statelog.of(log((3, REST), (0.3, OPENED), (6, slower | {"event_reasons": 0.0}), (3, REST)), None)
    assert shown.answer.endswith("and 1500 MHz under load.")
    always = OPENED | {"sm_clock_mhz": 1410.0, "gpu_util_pct": 0.0}
    shown = statelog.of(log((3, always), (6, BUSY | {"sm_clock_mhz": 1410.0}), (3, always)), None)
    assert shown.answer.endswith("The SM clock was 1410 MHz, at rest as under load.")


def test_changes_in_a_log_of_an_hour_are_timed_as_those_in_a_short_one():
    rounds = [(3, REST), (0.5, OPENED), (2, BUSY | {"sm_clock_mhz": 1500.0}), (3.5, REST)] * 400
    shown = statelog.of(log(*rounds), None)
    changes = [(each.t_ms, each.before, each.after) for each in shown.transitions if each.kind == "sm_clock"]
    assert len(changes) == 3 * 400
    assert changes[-3:] == [(3_594_000, 300, 2000), (3_594_500, 2000, 1500), (3_596_500, 1500, 300)]
