"""What other tools read from a recording."""

import csv
import io
import json
import math
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from gpuwarm import cli
from gpuwarm.analysis import advice
from gpuwarm.cli import export as command
from gpuwarm.errors import InputError
from gpuwarm.recording import Recording
from gpuwarm.show.export import FORMATS
from tests.examples import staircase

RECORDING = staircase(starts=2, duration_s=1.5)
ADVICE = advice.of(RECORDING)


def exported(form: str, recording: Recording = RECORDING) -> str:
    return "".join(FORMATS[form](recording, ADVICE if recording is RECORDING else advice.of(recording)))


def lines(recording: Recording = RECORDING) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(exported("csv", recording))))


def trace(recording: Recording = RECORDING) -> list[dict[str, Any]]:
    return json.loads(exported("perfetto", recording))["traceEvents"]


def metrics(recording: Recording = RECORDING) -> dict[str, float]:
    """Samples by name and labels, without those that say of what."""
    found = {}
    for line in exported("openmetrics", recording).split("\n"):
        if line and not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            found[re.sub(r'(simulated|gpu|workload)="[^"]*",?', "", name).replace(",}", "}").replace("{}", "")] = value
    return {name: float(value) for name, value in found.items()}


def test_csv_has_a_line_an_iteration_beside_the_newest_state():
    rows = lines()
    assert len(rows) == len(RECORDING.iterations)
    last = rows[len(rows) // 2 - 1]
    assert (last["pstate"], last["nvml_sm_clock_mhz"], last["mem_clock_mhz"]) == ("2", "1920", "9251")
    assert last["event_reasons"] == "sw_power_cap"
    assert last["sm_clock_mhz"] == "1920"
    assert 0 <= float(last["sample_age_ms"]) + float(last["host_ns"]) / 1e6 <= 20.1
    assert rows[0]["sm_clock_mhz"] == ""
    assert int(rows[0]["t_ns"]) == RECORDING.iterations["t_ns"][0]


def test_csv_keeps_every_digit_of_a_clock_that_ran_for_years():
    recording = replace(RECORDING, iterations=RECORDING.iterations.copy(), samples=RECORDING.samples[:0])
    recording.iterations["t_ns"] += 10**17 + 1
    assert int(lines(recording)[5]["t_ns"]) == recording.iterations["t_ns"][5]


def test_csv_without_samples_leaves_the_state_empty():
    row = lines(replace(RECORDING, samples=RECORDING.samples[:0]))[100]
    assert row["pstate"] == row["sample_age_ms"] == row["event_reasons"] == ""
    assert float(row["gpu_ns"]) > 0


def test_csv_of_a_stale_sample_leaves_the_state_empty():
    early = RECORDING.samples["t_ns"] < RECORDING.iterations["t_ns"][0] - 2 * 10**9
    samples = np.concatenate([RECORDING.samples[early], RECORDING.samples[:1]])[:1]
    samples["t_ns"] = 0
    assert {row["pstate"] for row in lines(replace(RECORDING, samples=samples))} == {""}


def test_csv_says_in_each_line_that_it_is_simulated():
    assert {row["simulated"] for row in lines()} == {"geforce"}
    assert {row["simulated"] for row in lines(staircase(starts=1, duration_s=0.3, simulated=None))} == {""}


def test_json_holds_the_whole_recording():
    content = json.loads(exported("json"))
    assert content["schema"] == "gpuwarm.recording/1"
    assert content["meta"]["simulated"] == "geforce"
    assert content["samples"]["t_ns"] == RECORDING.samples["t_ns"].tolist()
    assert content["iterations"]["host_ns"] == RECORDING.iterations["host_ns"].tolist()
    assert content["iterations"]["sm_clock_mhz"][0] is None
    assert content["event_reason_bits"]["4"] == "sw_power_cap"


def test_a_trace_has_one_series_a_counter():
    counters = [event for event in trace() if event["ph"] == "C"]
    assert {tuple(event["args"]) for event in counters} == {("value",)}
    clocks = [event["args"]["value"] for event in counters if event["name"] == "SM clock, NVML (MHz)"]
    assert clocks[:5] == [210, 345, 1155, 1605, 1920]
    power = [event["args"]["value"] for event in counters if event["name"] == "power, instant (W)"]
    assert max(power) == 172.0


def test_slices_of_a_thread_lie_within_or_apart_from_one_another():
    recording = replace(RECORDING, iterations=RECORDING.iterations.copy())
    recording.iterations["host_ns"] *= 1.7  # overlaps, as with two streams
    for events in (trace(), trace(recording)):
        assert_nested(events)
    threads = {event["tid"] for event in trace(recording) if event["ph"] == "X" and event["name"] == "inference"}
    assert threads >= {10, 11}


def assert_nested(events: list[dict[str, Any]]) -> None:
    """No slice ends within another of its thread."""
    threads: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in events:
        if event["ph"] == "X":
            end = event["ts"] + event["dur"]
            threads.setdefault((event["pid"], event["tid"]), []).append((event["ts"], end))
    for slices in threads.values():
        for (_, end), (begin, _) in pairwise(sorted(slices)):
            assert begin >= end - 1e-6


def test_back_to_back_inferences_share_a_thread():
    inferences = [event for event in trace() if event["name"] == "inference"]
    assert {event["tid"] for event in inferences} == {10}
    assert len(inferences) == len(RECORDING.iterations)
    assert inferences[3]["args"]["gpu_us"] == pytest.approx(RECORDING.iterations["gpu_ns"][3] / 1e3, abs=1e-3)


def test_a_trace_shows_cold_starts_states_and_the_end_of_warmup():
    events = trace()
    cold = [event for event in events if event["ph"] == "X" and event["pid"] == 100 and event["tid"] == 1]
    assert [event["name"] for event in cold][:3] == ["Python", "gpuwarm's own imports", "import CUDA"]
    assert cold[3]["dur"] == pytest.approx(240_000)
    pstates = [event["name"] for event in events if event["ph"] == "X" and event["pid"] == 1 and event["tid"] == 1]
    assert pstates[:4] == ["P8", "P5", "P3", "P2"]
    ends = [event for event in events if event["ph"] == "i"]
    zero = next(event["ts"] for event in events if event["name"] == "inference")
    assert (ends[0]["ts"] - zero) / 1e3 == pytest.approx(ADVICE.warmup.time_ms, abs=0.1)


def test_a_trace_begins_at_0_and_names_what_is_simulated():
    events = trace()
    assert min(event["ts"] for event in events if "ts" in event) == 0
    names = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert names[0] == "SIMULATED (geforce) NVIDIA GeForce RTX 4070"
    assert names[2] == "SIMULATED (geforce) start 2"


def test_metrics_are_in_base_units_and_end_as_the_format_asks():
    text = exported("openmetrics")
    assert text.endswith("# EOF\n")
    units = dict(re.findall(r"# UNIT (\S+) (\S+)", text))
    assert all(name.endswith(f"_{unit}") for name, unit in units.items())
    assert set(units.values()) == {"seconds", "ratio", "hertz", "watts", "celsius"}
    found = metrics()
    assert found["gpuwarm_warmup_recommended_seconds"] == ADVICE.warmup.recommended_ms / 1e3
    assert found['gpuwarm_steady_latency_seconds{statistic="median",quantity="host"}'] == pytest.approx(
        2.03e-3, rel=0.01
    )
    assert found['gpuwarm_sm_clock_hertz{source="nvml"}'] == 1920e6
    assert found['gpuwarm_power_watts{window="instant"}'] == 172.0
    assert found["gpuwarm_inferences_total"] == len(RECORDING.iterations)


def test_each_metric_has_its_type_before_its_samples_and_once():
    text = exported("openmetrics").split("\n")
    types = [line.split()[2] for line in text if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    current = ""
    for line in text:
        if line.startswith("# TYPE"):
            current = line.split()[2]
        elif line and not line.startswith("#"):
            assert re.match(rf"{current}(_total|_info)?\{{", line)


def test_every_sample_of_a_simulated_recording_says_so():
    samples = [line for line in exported("openmetrics").split("\n") if line and not line.startswith("#")]
    assert all('simulated="geforce"' in line for line in samples)
    assert "simulated" not in exported("openmetrics", staircase(starts=1, duration_s=1.0, simulated=None))


def test_exactly_one_behaviour_and_one_verdict_hold():
    found = metrics()
    for metric, value in (("behaviour", ADVICE.behaviour), ("verdict", ADVICE.verdict)):
        states = {name: held for name, held in found.items() if name.startswith(f"gpuwarm_{metric}{{")}
        assert sum(states.values()) == 1
        assert states[f'gpuwarm_{metric}{{gpuwarm_{metric}="{value}"}}'] == 1


def test_event_reason_counters_are_added_up_over_the_starts():
    starts = [
        replace(start, counters_before_us={"sw_power_cap": 10}, counters_after_us={"sw_power_cap": 1_000_010})
        for start in RECORDING.meta.starts
    ]
    recording = replace(RECORDING, meta=replace(RECORDING.meta, starts=tuple(starts)))
    assert metrics(recording)['gpuwarm_event_reason_seconds_total{reason="sw_power_cap"}'] == 2.0


def test_what_is_missing_is_no_metric():
    recording = replace(RECORDING, samples=RECORDING.samples[:0], iterations=RECORDING.iterations[:5])
    names = set(metrics(recording))
    assert not any(name.startswith(("gpuwarm_warmup", "gpuwarm_power_watts", "gpuwarm_steady")) for name in names)
    assert "nan" not in exported("openmetrics", recording).lower().replace("gpuwarm", "")


def test_names_with_quotes_and_newlines_are_escaped():
    workload = replace(RECORDING.meta.workload, name='a"b\\c\nd')
    recording = replace(RECORDING, meta=replace(RECORDING.meta, workload=workload))
    assert 'workload="a\\"b\\\\c\\nd"' in exported("openmetrics", recording)
    assert json.loads(exported("perfetto", recording))["otherData"]["workload"] == 'a"b\\c\nd'


@pytest.mark.parametrize("form", FORMATS)
def test_a_recording_of_nothing_can_be_exported(form: str):
    meta = replace(RECORDING.meta, starts=())
    nothing = Recording(RECORDING.samples[:0], RECORDING.iterations[:0], meta)
    text = exported(form, nothing)
    if form in ("json", "perfetto"):
        json.loads(text)
    assert text.endswith("\n")


@pytest.mark.parametrize("form", FORMATS)
def test_unknown_values_are_never_nan_in_the_text(form: str):
    recording = staircase(starts=1, duration_s=0.5)
    recording.iterations["host_ns"][::7] = math.nan
    recording.iterations["gpu_ns"][::3] = math.nan
    recording.samples["power_mw"][::2] = math.nan
    recording.samples["event_reasons"][::5] = math.nan
    assert not re.search(r"\bnan\b", exported(form, recording), re.IGNORECASE)


def test_the_command_writes_to_standard_output_or_to_a_file(tmp_path: Path):
    RECORDING.save(tmp_path / "a.npz")
    run = CliRunner().invoke(cli.app, ["export", str(tmp_path / "a.npz"), "--format", "openmetrics"])
    assert run.exit_code == 0
    assert run.stdout.endswith("# EOF\n")
    arguments = ["export", str(tmp_path / "a.npz"), "--format", "openmetrics", "-o", str(tmp_path / "x" / "b.txt")]
    assert CliRunner().invoke(cli.app, arguments).stdout == ""
    assert (tmp_path / "x" / "b.txt").read_text() == run.stdout
    arguments[-1] = str(tmp_path / "a.npz" / "b.txt")
    assert isinstance(CliRunner().invoke(cli.app, arguments).exception, InputError)


def test_the_command_offers_every_format():
    assert [form.value for form in command.Format] == list(FORMATS)
