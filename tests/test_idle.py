"""`gpuwarm idle`: what pauses do to simulated GPUs is found as it was planted."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner
from virtual import S
from virtual_sweep import sweep

from gpuwarm.analysis.contrast import Estimate
from gpuwarm.analysis.gaps import Situation
from gpuwarm.analysis.idled import Idleness, costs, idleness
from gpuwarm.analysis.pauses import ALIVE, KEPT
from gpuwarm.cli import app
from gpuwarm.cli import idle as _command  # noqa: F401 -- registers itself
from gpuwarm.errors import InputError
from gpuwarm.metadata import Phase
from gpuwarm.studies.device import simulated_device
from gpuwarm.studies.idle import Protocol, idle, within_budget
from gpuwarm.studies.prepare import Model


def alive(found: Idleness) -> Situation:
    return next(each for each in found.situations if each.name == ALIVE)


def test_a_geforce_is_cold_after_the_pause_in_which_its_clock_falls(tmp_path: Path):
    made = sweep(tmp_path, "geforce", (0.01, 0.3, 3.0, 19.0, 30.0))
    found = idleness(made.recording(), tolerance=0.1)
    after = {each.gap_s: each for each in alive(found).after}
    assert [each.on_gpu for each in after.values()] == ["warm", "warm", "warm", "cold", "cold"]
    assert alive(found).warm_on_gpu_until_s == 3.0
    assert (after[30.0].pstate, after[30.0].sm_clock_mhz) == (8, 300)
    assert (after[0.3].pstate, after[0.3].sm_clock_mhz) == (2, 2055)
    assert after[30.0].until_steady > 50
    assert after[3.0].until_steady <= 1
    assert alive(found).alike_from_s == 30.0
    assert "stays warm through pauses of up to 3 s; after 19 s the first" in found.answer


def test_an_h200_with_a_live_context_does_not_get_cold_however_long_the_pause(tmp_path: Path):
    for seed in range(3):
        found = idleness(sweep(tmp_path, "h200", (0.05, 5.0, 10.0), seed=seed).recording(), tolerance=0.1)
        assert {each.on_gpu for each in alive(found).after} == {"warm"}
        assert alive(found).alike_from_s == 0.05
        assert not alive(found).depends
        assert "does not get cold: after pauses of up to 10 s" in found.answer


def test_clock_and_pstate_fall_after_the_process_as_planted(tmp_path: Path):
    found = idleness(sweep(tmp_path, "h200", (0.5,)).recording(), tolerance=0.1)
    with_context, without = found.decay
    assert [step.sm_clock_mhz for step in with_context.steps] == [1980]
    assert "stays at 1980 MHz for the 500 ms that were seen" in found.answer
    assert [step.sm_clock_mhz for step in without.steps] == [1980, 480, 435, 405, 360, 345]
    assert without.settled_s == pytest.approx(1.0, abs=0.2)
    assert "from 1980 to 345 MHz within" in found.answer


def test_a_small_kernel_now_and_then_keeps_a_geforce_warm_and_costs_power(tmp_path: Path):
    made = sweep(tmp_path, "geforce", (3.0, 40.0), repeats=3)
    for period_ms in (25_000.0, 6_000.0):
        made.start(KEPT, [Phase("after pause", pause_s=40.0, keep_alive_ms=period_ms)] * 3)
    found = idleness(made.recording(), tolerance=0.1)
    assert found.keep_alive.period_ms == 6_000
    assert found.keep_alive.over_s == 40
    assert found.keep_alive.extra.interval[0] > 5  # 60 W at P2 against a mean on the way down to 39 W
    assert "A small kernel each 6 s keeps it warm over pauses of 40 s, for +" in found.answer


def test_what_varies_too_much_is_called_unknown_and_not_warm(tmp_path: Path):
    recording = sweep(tmp_path, "h200", (0.05, 0.5), repeats=3).recording()
    rows = recording.iterations
    firsts = np.flatnonzero(np.diff(rows["phase"]) > 0) + 1
    rows["host_ns"][firsts] *= np.random.default_rng(1).uniform(1, 5, firsts.size)
    found = idleness(recording, tolerance=0.1)
    assert {each.latency for each in alive(found).after} == {"unknown"}
    assert alive(found).warm_until_s is None
    assert "Measure more of them (--repeats)" in found.answer


def test_whether_a_small_kernel_is_needed_is_not_known_where_the_cold_is_not(tmp_path: Path):
    made = sweep(tmp_path, "h200", (0.05, 0.5), repeats=3)
    made.start(KEPT, [Phase("after pause", pause_s=0.5, keep_alive_ms=250.0)] * 3)
    recording = made.recording()
    rows = recording.iterations
    firsts = np.flatnonzero(np.diff(rows["phase"]) > 0) + 1
    varied = firsts[rows["start"][firsts] == rows["start"][0]]
    rows["host_ns"][varied] *= np.random.default_rng(1).uniform(1, 5, varied.size)
    answer = idleness(recording, tolerance=0.9).answer
    assert "not shown: after" in answer
    assert "keeps it warm over pauses of 500 ms; whether it is needed is not shown" in answer


def test_a_slow_host_is_not_a_cold_gpu(tmp_path: Path):
    recording = sweep(tmp_path, "h200", (0.05, 0.5), repeats=4).recording()
    rows = recording.iterations
    rows["host_ns"][np.flatnonzero(np.diff(rows["phase"]) > 0) + 1] += 150_000
    found = idleness(recording, tolerance=0.1)
    assert {(each.latency, each.on_gpu) for each in alive(found).after} == {("cold", "warm")}
    assert "The GPU itself takes no longer: it is the host that has to wake up." in found.answer


def test_a_gpu_that_waits_for_a_slow_enqueue_is_not_cold(tmp_path: Path):
    recording = sweep(tmp_path, "h200", (0.05, 0.5), repeats=4).recording()
    rows = recording.iterations
    firsts = np.flatnonzero(np.diff(rows["phase"]) > 0) + 1
    for name in ("host_ns", "gpu_ns"):
        rows[name][firsts] += 150_000
    rows["enqueue_ns"][firsts] = rows["gpu_ns"][firsts]
    found = idleness(recording, tolerance=0.1)
    assert {(each.latency, each.on_gpu) for each in alive(found).after} == {("cold", "unknown")}
    assert "it is the host that has to wake up, which takes 3" in found.answer


def test_a_clock_that_rises_again_is_somebody_elses_and_ends_the_decay(tmp_path: Path):
    recording = sweep(tmp_path, "h200", (0.5,)).recording()
    undisturbed = idleness(recording, tolerance=0.1).decay[1]
    late = recording.samples["t_ns"] > recording.samples["t_ns"][-1] - 2 * S
    recording.samples["sm_clock_mhz"][late] = 1700
    assert idleness(recording, tolerance=0.1).decay[1].steps == undisturbed.steps


def test_how_the_clock_falls_is_not_told_from_beside_a_disturbed_start(tmp_path: Path):
    recording = sweep(tmp_path, "h200", (0.5,)).recording()
    *others, last = recording.meta.starts
    disturbed = (*others, replace(last, disturbed="a process had come to this GPU"))
    found = idleness(replace(recording, meta=replace(recording.meta, starts=disturbed)), tolerance=0.1)
    assert found.decay[1].courses == len(others) - 1


def test_a_budget_costs_repeats_first_and_then_the_longest_pauses():
    whole = Protocol(max_gap_s=30.0, repeats=5)
    less = within_budget(replace(whole, budget_s=whole.estimate_s() - 1))
    assert (less.repeats, less.max_gap_s) == (4, 30.0)
    short = within_budget(replace(whole, budget_s=120.0))
    assert (short.repeats, short.max_gap_s) == (3, 3.0)
    assert short.estimate_s() <= 120
    assert within_budget(whole) == whole


def test_a_recording_without_pauses_is_refused(tmp_path: Path):
    recording = sweep(tmp_path, "h200", (0.05,), repeats=3).recording()
    with pytest.raises(InputError, match="holds no pauses"):
        idleness(replace(recording, meta=replace(recording.meta, study=None)), tolerance=0.1)


def test_three_situations_are_measured_and_the_answer_can_be_given_again(tmp_path: Path):
    output = tmp_path / "a.npz"
    device = simulated_device("h200", output.with_suffix(".part") / "load")
    chosen = Protocol(max_gap_s=0.1, repeats=3, warm_s=0.2, burst_s=0.1, settle_timeout_s=5.0)
    idle(device, Model(path="tiny"), chosen, output=output, command="gpuwarm idle", progress=lambda _: None)
    printed = CliRunner().invoke(app, ["idle", "--from", str(output), "--json"])
    answered = json.loads(printed.stdout)
    assert answered["schema"] == "gpuwarm.idle/1"
    assert {each["name"] for each in answered["situations"]} == {"context-alive", "keep-alive", "no-context"}
    assert [step["sm_clock_mhz"] for step in answered["decay"][1]["steps"]][-1] == 345
    assert "SIMULATED" in CliRunner().invoke(app, ["idle", "--from", str(output)]).stdout
    assert list(tmp_path.iterdir()) == [output]


def test_a_cost_that_may_be_nothing_is_said_to():
    assert costs(Estimate(-0.16, (-1.5, 1.2))) == "; what it costs while idling, -0.16 (-1.5 to 1.2) W, may be nothing"
    assert costs(Estimate(3.0, (2.5, 3.5))) == ", for +3 (2.5 to 3.5) W while idling"
