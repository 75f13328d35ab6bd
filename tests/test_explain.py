"""`gpuwarm explain`: causes planted in simulated GPUs are found, others are not, and nothing is left behind."""

import json
import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from running import Running
from typer.testing import CliRunner
from virtual_study import COMPARED, VirtualStudy, still

from gpuwarm.analysis import controlled, effects, switches
from gpuwarm.analysis.contrast import Estimate
from gpuwarm.analysis.effects import Cause
from gpuwarm.analysis.explained import Explanation
from gpuwarm.analysis.explained import explain as explained
from gpuwarm.analysis.first_inference import ClockRise
from gpuwarm.cli import app
from gpuwarm.cli import explain as _command  # noqa: F401 -- registers itself
from gpuwarm.errors import InputError
from gpuwarm.machine import GpuProcess, GpuState, MachineState
from gpuwarm.measure.simulation.load_log import CONTEXT, LoadLog
from gpuwarm.measure.simulation.profiles import PROFILES
from gpuwarm.metadata import Metadata, Start, Study
from gpuwarm.recording import Recording
from gpuwarm.show.explanation import sections
from gpuwarm.studies.device import simulated_device
from gpuwarm.studies.explain import Protocol, arms_of, explain
from gpuwarm.studies.order import order
from gpuwarm.studies.prepare import Model


def study(profile: str, seed: int = 0, *, arms: tuple[str, ...] = COMPARED, repeats: int = 5) -> Explanation:
    return explained(VirtualStudy(profile, "medium", seed).run(arms, repeats))


def cause(found: Explanation, wanted: str) -> Cause:
    return next(each for each in found.causes if each.id == wanted)


# --- what is planted is found ---


@pytest.mark.parametrize("profile", ["h200", "geforce"])
def test_planted_effects_lie_within_their_intervals_and_nothing_else_is_claimed(
    profile: str, monkeypatch: pytest.MonkeyPatch
):
    """A small edition of scripts/bench_explain.py, which holds 1,000 studies to the bars."""
    monkeypatch.setitem(PROFILES, "still", still(PROFILES[profile]))
    truth = {each.id: each for each in study("still", repeats=2).causes if each.status == "measured"}
    covered, falsely = [], 0
    for seed in range(40):
        found = study(profile, seed)
        claims = []
        for switch, true in truth.items():
            for response in ("first_result", "first_inference"):
                effect, ms = getattr(cause(found, switch), response), getattr(true, response).ms
                covered.append(effect.interval_ms[0] <= ms <= effect.interval_ms[1])
                claims.append(effect.claimed and abs(ms) < 0.01)
        falsely += any(claims)
    assert len(covered) == 320
    assert np.mean(covered) > 0.92
    assert falsely <= 4


def test_the_driver_load_is_found_where_the_driver_is_not_kept():
    found = study("cold-driver", repeats=3)
    driver = cause(found, "driver")
    assert driver.first_result.claimed
    assert driver.first_result.ms == pytest.approx(3200, rel=0.05)
    assert driver.acts_in[0].step == "driver_init"
    assert driver.remedy.command == "gpuwarm check --about persistence-off"
    assert "87 % loading the driver (3.2" in found.answer
    assert "Loading the driver, as nothing holds it (persistence mode would), takes 3.2" in found.answer


def test_a_driver_that_is_kept_is_said_not_to_be_the_reason():
    assert "so persistence is not the reason" in study("h200", repeats=3).answer


def test_parts_add_up_to_the_total():
    found = study("cold-driver", repeats=3)
    assert sum(part.ms for part in found.parts) == pytest.approx(found.total_ms)
    left = found.parts[-1]
    assert left.kind == "remainder"
    assert left.interval_ms[0] < 0 < left.interval_ms[1]
    assert found.remainder_note == "not to be told from nothing"
    assert abs(left.ms) < 0.02 * found.total_ms


def test_the_first_inference_is_split_into_lazy_loading_and_a_gpu_that_is_not_warm():
    first = study("geforce", repeats=8).first_inference
    assert first.until_warm.value > 1
    lazy = study("h200").first_inference
    parts = dict(lazy.by_causes)
    assert list(parts) == ["module-loading"]
    assert parts["module-loading"].value == pytest.approx(0.198, rel=0.1)
    assert lazy.until_warm.interval[0] < 0.02
    whole = lazy.until_warm.value + parts["module-loading"].value + lazy.remainder.value
    assert whole == pytest.approx(lazy.first_ms - lazy.steady_ms)


def test_compiling_ptx_is_measured_where_it_happens(monkeypatch: pytest.MonkeyPatch):
    profile = PROFILES["h200"]
    steps = tuple(replace(step, compile_ms=400.0 if step.name == "deserialise" else 0.0) for step in profile.cold_start)
    monkeypatch.setitem(PROFILES, "compiles", replace(profile, cold_start=steps))
    found = cause(study("compiles", arms=(switches.REFERENCE, switches.JIT_CACHE_EMPTY)), "ptx-jit")
    assert found.first_result.ms == pytest.approx(400, rel=0.1)
    assert [change.step for change in found.acts_in] == ["deserialise"]
    assert found.remedy.command.startswith("export CUDA_CACHE_PATH=")


def test_what_the_user_switched_to_eager_is_compared_with_lazy():
    assert switches.LAZY in arms_of(["module-loading"], None, {"CUDA_MODULE_LOADING": "EAGER"})
    assert switches.EAGER in arms_of(["module-loading"], None, {})
    old = MachineState(platform="linux", cuda_version="11.8")
    assert switches.LAZY in arms_of(["module-loading"], old, {})
    found = cause(study("h200", arms=(switches.REFERENCE, switches.LAZY)), "module-loading")
    assert found.status == "measured"
    assert not found.claimed  # both load lazily here


def test_the_order_is_random_from_its_seed_and_interleaved():
    arms = ["a", "b", "c", "d"]
    found = order(arms, 5, seed=1)
    assert found == order(arms, 5, seed=1)
    assert found != order(arms, 5, seed=2)
    assert all(sorted(one_round) == arms for one_round in found)


# --- disturbed starts ---


def starts(*changed: Start) -> Metadata:
    gpu = GpuState(processes=(GpuProcess(7, "Xorg", "G"),))
    quiet = [Start(arm="reference", counters_before_us={"sw_thermal_slowdown": 5}) for _ in range(6)]
    return Metadata(starts=(*quiet, *changed), machine_before=MachineState(gpus=(gpu,)), study=Study("explain", 5, 0))


def test_a_start_beside_a_process_that_came_is_disturbed_and_beside_one_that_was_there_is_not():
    known, new = GpuProcess(7, "Xorg", "G"), GpuProcess(9, "train.py", "C")
    found = controlled.disturbances(starts(Start(neighbours=(known,)), Start(neighbours=(known, new))))
    assert found == {7: "train.py (pid 9) had come to this GPU"}


def test_heat_disturbs_a_start_unless_most_starts_are_hot():
    hot = Start(counters_before_us={"sw_thermal_slowdown": 5}, counters_after_us={"sw_thermal_slowdown": 6})
    assert list(controlled.disturbances(starts(hot))) == [6]
    assert controlled.disturbances(starts(*[hot] * 7)) == {}


def test_disturbed_starts_are_counted_and_left_out():
    recording = VirtualStudy("h200", "medium", 0).run((switches.REFERENCE, switches.EAGER), 5)
    first = next(n for n, start in enumerate(recording.meta.starts) if start.arm == switches.EAGER)
    changed = list(recording.meta.starts)
    changed[first] = replace(changed[first], failure="it was killed by SIGKILL")
    found = explained(replace(recording, meta=replace(recording.meta, starts=tuple(changed))))
    assert found.disturbed == 1
    assert "1 of 10 starts left out: cut short" in found.notes
    assert (cause(found, "module-loading").starts_with, cause(found, "module-loading").starts_without) == (4, 5)


def test_where_every_start_to_compare_with_was_disturbed_the_reason_is_told():
    recording = VirtualStudy("h200", "tiny", 0).run((switches.REFERENCE,), 2)
    lost = tuple(replace(start, disturbed="a neighbour came") for start in recording.meta.starts)
    with pytest.raises(InputError, match="compare the others with: 2 of 2 starts left out: a neighbour came; measure"):
        explained(replace(recording, meta=replace(recording.meta, starts=lost)))


def test_a_recording_of_other_starts_is_refused():
    with pytest.raises(InputError, match="no controlled starts"):
        explained(replace(VirtualStudy("h200", "tiny", 0).run((switches.REFERENCE,), 2), meta=Metadata()))


# --- with real processes ---


def measure(output: Path, profile: str = "h200", progress=lambda _: None, **protocol: object) -> Recording:
    device = simulated_device(profile, output.with_suffix(".part") / "load")
    chosen = Protocol(**{"repeats": 2, "steady_s": 0.1, "settle_timeout_s": 5.0, **protocol})
    return explain(device, Model(path="tiny"), chosen, output=output, command="gpuwarm explain", progress=progress)


def test_a_process_that_comes_in_the_middle_costs_the_starts_beside_it_which_are_made_again(tmp_path: Path):
    output = tmp_path / "a.npz"
    told: list[str] = []
    neighbour = []

    def progress(sentence: str) -> None:
        told.append(sentence)
        if sentence.startswith("start 3 of"):
            neighbour.append(LoadLog(output.with_suffix(".part") / "load").join())
            neighbour[0].open(CONTEXT, time.monotonic_ns())
        elif neighbour and neighbour[0].ended_ns is None:
            neighbour[0].leave()

    recording = measure(output, progress=progress, only=("module-loading",))
    found = explained(recording)
    assert found.disturbed == 1
    assert any("had come to this GPU" in note for note in found.notes)
    assert [start.arm for start in recording.meta.starts].count("first") == 1
    module_loading = cause(found, "module-loading")
    assert (module_loading.starts_with, module_loading.starts_without) == (2, 2)
    assert cause(found, "rest").reason == "not asked for"
    assert list(tmp_path.iterdir()) == [output]


def test_a_context_next_door_and_no_jit_are_tested_and_the_answer_can_be_given_again(tmp_path: Path):
    recording = measure(tmp_path / "a.npz", "geforce", only=("ptx-jit", "other-context"))
    arms = [start.arm for start in recording.meta.starts]
    assert arms[:2] == ["first", "jit-forbidden"]
    assert sorted(arms[2:]) == ["beside-context"] * 2 + ["reference"] * 2
    printed = CliRunner().invoke(app, ["explain", "--from", str(tmp_path / "a.npz"), "--json"])
    answered = json.loads(printed.stdout)
    assert answered["schema"] == "gpuwarm.explain/1"
    assert answered["simulated"] == "geforce"
    by_id = {each["id"]: each for each in answered["causes"]}
    assert by_id["ptx-jit"]["status"] == "ruled_out"
    assert by_id["other-context"]["first_result"]["ms"] < 0
    assert by_id["engine-file"]["status"] == "not_tested"
    assert "SIMULATED" in CliRunner().invoke(app, ["explain", "--from", str(tmp_path / "a.npz")]).stdout


def test_a_budget_leaves_out_the_least_telling_switch_first_and_says_so(tmp_path: Path):
    recording = measure(tmp_path / "a.npz", budget_s=1.0, only=("module-loading", "rest"), repeats=5)
    why = "it did not fit into --budget-s 1"
    assert list(recording.meta.study.not_tested.items())[-2:] == [("rest", why), ("module-loading", why)]
    assert [start.arm for start in recording.meta.starts] == ["first", "reference", "reference"]
    assert cause(explained(recording), "rest").reason == why


@pytest.mark.parametrize("delay_s", [0.1, 0.7])
def test_sigkill_leaves_no_process_and_a_folder_that_loads(tmp_path: Path, delay_s: float):
    running = Running(tmp_path, "explain", "tiny", "--only", "other-context", "--repeats", "2", "--no-report")
    running.wait_for("holder:hold")
    time.sleep(delay_s)
    running.process.kill()
    running.process.communicate()
    assert running.no_child_left()
    assert Recording.load(running.output.with_suffix(".part")).meta.study.name == "explain"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.part"]


def test_ctrl_c_ends_the_holder_and_keeps_what_was_measured(tmp_path: Path):
    running = Running(tmp_path, "explain", "tiny", "--only", "other-context", "--repeats", "2", "--no-report")
    os.kill(running.wait_for("holder:hold"), 0)
    running.process.send_signal(signal.SIGINT)
    running.process.communicate(timeout=30)
    assert running.process.returncode == 130
    assert running.no_child_left()
    assert Recording.load(running.output).meta.starts[0].arm == "first"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz"]


def test_a_step_takes_no_less_than_nothing():
    runs = [controlled.Run(ms, ms, {"interpreter": ms}, 1.0, None, None) for ms in (5.0, 60.0)]
    (step, _) = effects.parts({effects.REFERENCE: runs}, [], effects.REFERENCE, 32.5)
    assert (step.kind, step.ms, step.interval_ms[0]) == ("step", 32.5, 0.0)


@pytest.mark.parametrize(
    ("clock", "repeats", "said"),
    [
        (ClockRise("during", 300, 2055), 8, "while it infers: the first inferences pay for that."),
        (ClockRise("unknown", 300, 2055), 8, "whether a clock ramp is in the first inference is not shown."),
        (ClockRise("unknown"), 8, "whether a clock ramp is in the first inference is not shown."),
    ],
)
def test_a_clock_ramp_is_always_answered(
    clock: ClockRise, repeats: int, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuwarm.analysis.explained.clock_rise", lambda _: clock)
    assert said in study("geforce", repeats=repeats).answer


def test_what_may_be_chance_is_not_claimed(monkeypatch: pytest.MonkeyPatch):
    first = study("geforce", repeats=2).first_inference
    unsure = replace(
        first,
        until_warm=Estimate(5.8, (-10.8, 22.3)),
        by_causes=(("rest", Estimate(2.1, (-66.9, 71.1))),),
        remainder=Estimate(2.2, (1.0, 3.4)),
    )
    monkeypatch.setattr("gpuwarm.analysis.explained.clock_rise", lambda _: ClockRise("during", 300, 2055))
    monkeypatch.setattr("gpuwarm.analysis.explained.first_inference", lambda *_: unsure)
    found = study("geforce", repeats=2)
    assert "how much the first inferences pay for that is not shown." in found.answer
    lines = [line.text for section in sections(found) if section.title == "First" for line in section.lines]
    assert lines[1:] == [
        "+5.8 (-10.8 to 22.3) ms still paid by those right after it, which may be chance",
        "+2.1 (-66.9 to 71.1) ms by rest, which may be chance",
        "+2.2 (1 to 3.4) ms paid once, by no switch tested here",
    ]
    assert "of that" not in found.answer
    assert found.total_interval_ms[0] >= 0


def test_persistence_is_not_ruled_out_by_an_interval_that_leaves_room_for_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpuwarm.analysis.explained.NO_REASON_SHARE", 0.001)
    answer = study("h200", repeats=3).answer
    assert "Whether loading the driver costs a start anything (persistence mode would save it) is not shown." in answer
