"""Advice as a whole: the answer, the contract in JSON, and recordings that lack almost everything."""

import json
import math
from dataclasses import replace
from pathlib import Path

import hypothesis
import measured
import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import gpuwarm
from gpuwarm.analysis import advice
from gpuwarm.analysis.advice import Advice
from gpuwarm.machine import GpuProcess, GpuState, MachineState
from gpuwarm.metadata import Mark, Metadata, Phase, Start, Workload
from gpuwarm.recording import ITERATION, SAMPLE, Recording

SCHEMA_FILE = Path(gpuwarm.__file__).parent / "data" / "advice-1.schema.json"
CONTRACT = {
    "schema", "source", "simulated", "gpu", "workload", "behaviour", "also", "warmup", "steady", "bias", "cold_start",
    "transitions", "bound", "sampling", "verdict", "reasons", "findings", "flags", "notes",
}  # fmt: skip


def test_a_capped_gpu_is_answered_as_getting_slower_and_says_by_what() -> None:
    found = advice.of(measured.capped())
    assert found.behaviour == "slowdown"
    assert found.answer.startswith(
        "There is no warm-up here, this engine gets slower: from 2.02 ms at first to 2.22 ms"
    )
    assert "the clock is held down by the power limit" in found.answer
    assert found.verdict == "trusted"


def test_a_ramp_is_answered_with_what_to_type_in_ms_and_iterations() -> None:
    found = advice.of(measured.ramp())
    recommended = found.warmup
    assert found.answer.startswith(
        f"Warm up {recommended.recommended_ms:.0f} ms ({recommended.recommended_iterations} iterations): "
    )
    assert 400 <= recommended.recommended_ms <= 600
    assert found.flags["trtexec"] == f"--warmUp={recommended.recommended_ms:.0f}"


def test_a_flat_engine_needs_no_warmup() -> None:
    found = advice.of(measured.flat())
    assert found.answer == "No warm-up is needed: latency is 2.02 ms from the first inference on."
    assert found.flags["trtexec"] == "--warmUp=0"


def test_one_slow_first_inference_is_answered_in_iterations() -> None:
    tables = []
    for n in range(3):
        levels = measured.noisy(np.full(1500, 2.0), seed=n)
        levels[0] = 30.0
        tables.append(measured.inference(n, levels))
    found = advice.of(measured.recording(*tables))
    assert found.answer == (
        "Only the start is slow: 30 ms for the first inference, 2.02 ms once warm. Warm up with 1 iteration."
    )


def test_slow_ones_that_are_rarer_than_p99_shows_are_told() -> None:
    latency_ms = measured.noisy(np.full(2500, 2.0), seed=1)
    latency_ms[400::500] = 30.0
    found = advice.of(measured.recording(measured.inference(0, latency_ms)))
    assert "once warm, 5 of 2,500 took more than twice as long, up to 30 ms" in found.evidence


def test_latency_that_follows_the_host_is_not_laid_on_the_gpu() -> None:
    wander = 2.0 + 0.3 * np.sin(np.arange(3000) / 100) * np.linspace(0.3, 1, 3000)
    rows = measured.inference(0, wander)
    rows["enqueue_ns"] = 0.5 * rows["gpu_ns"]
    found = advice.of(measured.recording(rows))
    assert found.steady is None
    assert "the host moves it, not the GPU's clock" in found.evidence[-1]
    assert found.flags == {}
    rows["enqueue_ns"] = 0.1 * wander.mean() * 1e6 + 0.01 * rows["gpu_ns"]  # as rounding goes with the time of day
    assert "the host moves it" not in " ".join(advice.of(measured.recording(rows)).evidence)


def _restless_host(*, sync: str = "block", by_us: float = 15.0) -> Recording:
    """144 us on the GPU; the caller waits 295 us, more or less by some, which never settles."""
    tables = []
    for n in range(3):
        rows = measured.inference(n, measured.noisy(np.full(12_000, 0.144), seed=n, noise=0.002))
        wander = 0.295 + by_us / 1e3 * np.sign(np.sin(np.arange(rows.size) ** 1.2 / 3000 + n))
        rows["host_ns"] = measured.noisy(wander, seed=10 + n, noise=0.002) * measured.MS
        rows["t_ns"] = rows["t_ns"][0] + np.concatenate([[0], np.cumsum(rows["host_ns"])[:-1]]).astype(np.int64)
        tables.append(rows)
    return measured.recording(*tables, workload=Workload("medium", options={"sync": sync, "copies": "no"}))


def test_a_steady_gpu_under_a_restless_host_is_degraded_and_says_how_far_latency_wanders() -> None:
    found = advice.of(_restless_host())
    assert found.steady.quantity == "gpu"
    assert found.verdict == "degraded"
    assert found.reasons == ("what the caller waits for is not steady, the GPU's own time alone is",)
    assert found.answer.endswith(
        "What the caller waits for wanders from 280 to 310 us (11 %), which no warm-up ends. What helps: "
        "a spin wait (--sync spin), a CPU core of its own (taskset) at a fixed clock (governor performance), "
        "a CUDA graph."
    )
    host = next(finding for finding in found.findings if finding.id == "host-unrest")
    assert host.evidence.startswith("136 to 166 us of it lie outside the GPU's own work")


def test_a_host_that_wanders_little_takes_nothing_from_the_gpus_number() -> None:
    found = advice.of(_restless_host(by_us=5))
    assert (found.steady.quantity, found.verdict, found.reasons) == ("gpu", "trusted", ())
    assert "wanders" not in found.answer
    assert "judged by the GPU's own time: what the host adds to it finds no rest" in found.evidence


def test_the_answer_for_a_paced_service_is_about_its_pace() -> None:
    clock_mhz = measured.steps((500.0, 100), (700.0, 900))
    found = advice.of(measured.paced(clock_mhz=clock_mhz, between_mhz=345.0))
    assert found.answer.endswith(
        "All this is at one inference each 20 ms, which keeps the GPU busy 10 % of the time: the SM clock is 700 MHz "
        "while it infers, 35 % of its maximum, and falls to 345 MHz in between. `gpuwarm run` without --interval-ms "
        "shows what a full load reaches, `gpuwarm idle` what keeps it."
    )
    assert "locked" not in str(found)
    assert found.flags.keys() == {"perf_analyzer"}
    assert found.flags["perf_analyzer"].startswith("--request-rate-range=50 --warmup-request-count=")
    full = advice.of(measured.paced(clock_mhz=np.full(1000, 1980.0), between_mhz=1980.0))
    assert full.answer.endswith("busy 10 % of the time: the SM clock is 1980 MHz while it infers.")


def test_a_gpu_that_drifts_under_a_restless_host_is_not_said_to_be_moved_by_the_host() -> None:
    found = _restless_host()
    for n in range(3):
        own = found.iterations["start"] == n
        drift = np.linspace(1, 1.1, int(own.sum()))
        found.iterations["gpu_ns"][own] *= drift
        found.iterations["sm_clock_mhz"][own] /= drift
    answer = advice.of(found)
    assert answer.steady is None
    assert "the host, not the GPU" not in answer.answer


def test_what_was_done_already_is_not_advised() -> None:
    assert "spin" not in advice.of(_restless_host(sync="spin")).answer


def test_a_wander_within_the_tolerance_up_and_down_is_not_worth_a_word() -> None:
    assert [finding.id for finding in advice.of(_restless_host(by_us=2.5)).findings] == ["throttling"]


def test_json_has_the_keys_of_the_contract_and_a_transition_goes_from_to() -> None:
    content = advice.to_json(advice.of(measured.capped()))
    assert set(content) >= CONTRACT
    assert content["schema"] == "gpuwarm.advice/1"
    clock = next(each for each in content["transitions"] if each["kind"] == "sm_clock")
    assert (clock["from"], clock["to"]) == (1980.0, 1800.0)
    assert set(content["sampling"]) == {"period_ms", "refresh_ms", "clock_uncertainty_ms", "cost"}
    assert content["sampling"]["cost"]["read_us_median"] == 22.0


@pytest.mark.parametrize("build", [measured.flat, measured.ramp, measured.capped])
def test_json_loses_nothing(build) -> None:
    found = advice.of(build())
    content = json.loads(json.dumps(advice.to_json(found), allow_nan=False))
    content["sampling"] |= content["sampling"].pop("cost")
    for transition in content["transitions"]:
        transition["before"], transition["after"] = transition.pop("from"), transition.pop("to")
    assert msgspec.convert(content, Advice) == found


def test_the_schema_in_the_package_is_that_of_the_advice() -> None:
    written = json.loads(SCHEMA_FILE.read_text())
    assert written == advice.json_schema(), "after a change of the contract run: python scripts/write_schemas.py"


def test_the_schema_names_every_key_that_is_written() -> None:
    definitions = advice.json_schema()["$defs"]
    content = advice.to_json(advice.of(measured.capped()))
    for name, written in (
        ("Advice", content),
        ("Transition", content["transitions"][0]),
        ("Sampling", content["sampling"]),
        ("Warmup", content["warmup"]),
        ("ColdPhase", content["cold_start"]["phases"][0]),
    ):
        assert set(definitions[name]["properties"]) == set(written) == set(definitions[name]["required"])


def test_a_number_is_accepted_only_with_a_steady_state_and_the_verdict_asked_for() -> None:
    good = advice.of(measured.flat())
    assert advice.accepted(good, "trusted")
    assert not advice.accepted(replace(good, verdict="degraded"), "trusted")
    assert advice.accepted(replace(good, verdict="degraded"), "degraded")
    assert advice.accepted(replace(good, verdict="degraded"))
    assert not advice.accepted(replace(good, steady=None))


def _slow_to_load_the_driver(*, persistence: str) -> Recording:
    """Five starts, three of them without sampling, which pay for the driver."""
    found = measured.flat(starts=5)
    slow = measured.STEPS_MS | {"driver_init": 1500.0}
    starts = [
        replace(start, sampled=False, marks=measured.marks(found.iterations[found.iterations["start"] == n], slow))
        if n >= 2
        else start
        for n, start in enumerate(found.meta.starts)
    ]
    before = MachineState(platform="linux", gpus=(replace(measured.H200, persistence_mode=persistence),))
    return replace(found, meta=replace(found.meta, starts=tuple(starts), machine_before=before))


def test_a_driver_load_that_sampling_hides_is_a_finding_with_both_times() -> None:
    finding = advice.of(_slow_to_load_the_driver(persistence="unknown")).findings[1]
    assert (finding.id, finding.severity) == ("driver-load-masked", "warning")
    assert finding.summary == "loading the driver costs each start 1.3 s, which sampling hides"
    assert finding.evidence.endswith("1.5 s with no client of gpuwarm alive, 200 ms while it sampled")


def test_persistence_off_is_told_with_the_cost_that_the_starts_measured() -> None:
    findings = advice.of(_slow_to_load_the_driver(persistence="off")).findings
    assert [finding.id for finding in findings] == ["throttling", "persistence-off"]
    assert findings[1].summary == "Persistence: off, and loading the driver costs each start 1.3 s"
    assert findings[1].command is not None


def test_what_is_wrong_with_the_machine_is_part_of_the_advice_and_nothing_is_said_twice() -> None:
    found = measured.flat()
    shared = GpuState(
        index=0, name="NVIDIA H200", persistence_mode="off", processes=(GpuProcess(7, "python", "C", 9000.0),)
    )
    before = MachineState(platform="linux", gpus=(shared,))
    answer = advice.of(replace(found, meta=replace(found.meta, machine_before=before)))
    assert [finding.id for finding in answer.findings] == ["throttling", "persistence-off-masked"]
    assert answer.reasons == ("1 other process on this GPU before the run: python (pid 7)",)


EMPTY = Recording(np.empty(0, SAMPLE), np.empty(0, ITERATION), Metadata())


def _without_gpu_times() -> Recording:
    found = measured.flat()
    found.iterations["gpu_ns"] = math.nan
    return found


def _without_any_latency() -> Recording:
    found = _without_gpu_times()
    found.iterations["host_ns"] = math.nan
    return found


def _relative() -> Recording:
    found = measured.flat(1)
    found.iterations["t_ns"] -= found.iterations["t_ns"][0]
    return Recording(EMPTY.samples, found.iterations, Metadata(time_base="relative", source="times.json"))


def _samples_alone() -> Recording:
    found = measured.flat(1)
    return Recording(found.samples, EMPTY.iterations, Metadata())


def _one_iteration() -> Recording:
    found = measured.flat(1)
    return Recording(found.samples, found.iterations[:1], found.meta)


@pytest.mark.parametrize(
    ("build", "verdict", "reason"),
    [
        (lambda: EMPTY, "unusable", "no inference was recorded"),
        (_samples_alone, "unusable", "no inference was recorded"),
        (_one_iteration, "unusable", "too short to judge: 1 inference in all"),
        (_without_any_latency, "unusable", "too short to judge: 4,500 inferences in all"),
        (_without_gpu_times, "trusted", None),
        (_relative, "degraded", "1 start only: how much starts differ is not known"),
    ],
)
def test_what_a_recording_lacks_is_missing_not_an_error(build, verdict: str, reason: str | None) -> None:
    found = advice.of(build(), warmup_ms=(0.0, 50.0))
    assert found.verdict == verdict
    assert reason is None or reason in found.reasons
    json.dumps(advice.to_json(found), allow_nan=False)


def test_without_gpu_times_the_bound_is_unknown() -> None:
    assert advice.of(_without_gpu_times()).bound == "unknown"


NUMBERS = st.one_of(st.sampled_from([math.nan, math.nan, 0.0, -1.0, 4.0]), st.floats(1e3, 1e9))
TIMES = st.integers(0, 2**60)
GAPS = st.one_of(st.integers(1, 10**10), st.sampled_from([20_000, 2_000_000]))  # ns between rows


@st.composite
def tables(draw, dtype: np.dtype, *, whole: tuple[str, ...] = ()) -> np.ndarray:
    """Rows by start and time, as a recording holds them; everything else is anything."""
    rows = np.zeros(draw(st.integers(0, 80)), dtype)
    for name in dtype.names:
        elements = st.integers(0, 3) if name in whole else GAPS if name == "t_ns" else NUMBERS
        rows[name] = draw(hnp.arrays(dtype[name], rows.size, elements=elements))
    rows["t_ns"] = draw(TIMES) + np.cumsum(rows["t_ns"])
    for name in whole:
        rows[name].sort()
    return rows


STARTS = st.builds(
    Start,
    sampled=st.booleans(),
    marks=st.lists(
        st.builds(Mark, st.sampled_from(["process_start", "context", "first_inference"]), TIMES), max_size=4
    ).map(tuple),
    phases=st.lists(st.builds(Phase, st.sampled_from(["first", "busy"]), st.none() | st.floats(0, 10)), max_size=3).map(
        tuple
    ),
    counters_before_us=st.dictionaries(st.sampled_from(["sw_power_cap", "?"]), st.integers(0, 9)),
    counters_after_us=st.dictionaries(st.sampled_from(["sw_power_cap", "?"]), st.integers(0, 9)),
)
RECORDINGS = st.builds(
    Recording,
    tables(SAMPLE),
    tables(ITERATION, whole=("start", "phase")),
    st.builds(
        Metadata,
        machine_before=st.none()
        | st.just(MachineState())
        | st.builds(MachineState, gpus=st.tuples(st.builds(GpuState))),
        workload=st.builds(Workload),
        starts=st.lists(STARTS, max_size=3).map(tuple),
    ),
)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck), phases=[hypothesis.Phase.generate])
@given(RECORDINGS)
def test_no_recording_that_loads_is_too_odd_for_advice(recording: Recording) -> None:
    json.dumps(advice.to_json(advice.of(recording)), allow_nan=False)
