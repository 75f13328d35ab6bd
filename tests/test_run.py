"""The whole measurement on a simulated GPU: real processes, real files."""

import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest
from running import WORKER_STEPS, Running, wait_until

from gpuwarm.analysis.steady import judge
from gpuwarm.errors import InputError, RecordingError
from gpuwarm.recording import ITERATION, Recording
from gpuwarm.rows import ITERATION_FIELDS, whole_rows
from gpuwarm.studies.device import simulated_device
from gpuwarm.studies.prepare import Model
from gpuwarm.studies.run import Protocol, run


def measure(output: Path, profile: str = "h200", model: str = "tiny", **protocol: float) -> Recording:
    device = simulated_device(profile, output.with_suffix(".part") / "load")
    chosen = Protocol(**{"starts": 2, "duration_s": 0.3, "settle_timeout_s": 5.0, **protocol})
    return run(device, Model(path=model), chosen, output=output, command="gpuwarm run", progress=lambda _: None)


@pytest.fixture(scope="module")
def h200(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    return measure(tmp_path_factory.mktemp("run") / "h200.npz")


def test_every_start_has_every_step_in_order(h200: Recording):
    for start in h200.meta.starts:
        assert [mark.name for mark in start.marks] == ["process_start", *WORKER_STEPS]
        times = [mark.t_ns for mark in start.marks]
        assert times == sorted(times)


def test_the_two_cold_inferences_come_before_the_clock_stamps(h200: Recording):
    for number, start in enumerate(h200.meta.starts):
        rows = h200.iterations[h200.iterations["start"] == number]
        stamps_ns = next(mark.t_ns for mark in start.marks if mark.name == "sm_clock")
        assert (rows["phase"][:3] == [0, 0, 1]).all()
        assert rows["t_ns"][1] < stamps_ns < rows["t_ns"][2]
        assert np.isnan(rows["sm_clock_mhz"][:2]).all()
        assert np.isfinite(rows["sm_clock_mhz"][2:]).all()


def test_inference_is_back_to_back_for_the_duration(h200: Recording):
    for number in range(2):
        rows = h200.iterations[(h200.iterations["start"] == number) & (h200.iterations["phase"] == 1)]
        assert 0.25e9 < rows["t_ns"][-1] - rows["t_ns"][0] < 0.4e9
        assert rows["host_ns"].sum() > 0.5 * (rows["t_ns"][-1] - rows["t_ns"][0])


def test_state_is_sampled_from_before_the_first_start_to_after_the_last(h200: Recording):
    assert h200.samples["t_ns"][0] < h200.meta.starts[0].marks[0].t_ns
    assert h200.samples["t_ns"][-1] > h200.iterations["t_ns"][-1]
    assert {345.0, 1980.0} <= set(h200.samples["sm_clock_mhz"])


def test_the_second_start_begins_at_rest(h200: Recording):
    rest = h200.meta.starts[1].rest
    assert rest.reached
    assert rest.sm_clock_mhz == rest.reference_sm_clock_mhz == 345.0


def test_it_is_labelled_as_simulated_and_leaves_nothing_but_the_recording(tmp_path: Path):
    recording = measure(tmp_path / "a.npz", starts=1, duration_s=0.1)
    assert recording.meta.simulated == "h200"
    assert recording.meta.machine_before.gpus[0].name.startswith("Simulated")
    assert [path.name for path in tmp_path.iterdir()] == ["a.npz"]


def test_without_persistence_three_starts_pay_the_driver_load_that_sampling_hides(tmp_path: Path):
    recording = measure(tmp_path / "a.npz", "cold-driver", starts=1, duration_s=0.1)
    arms = [start.arm for start in recording.meta.starts]
    assert arms == ["sampled", "unsampled", "unsampled", "unsampled"]

    def driver_init_s(start) -> float:
        times = {mark.name: mark.t_ns for mark in start.marks}
        return (times["driver_init"] - times["cuda_import"]) * 1e-9

    sampled, *unsampled = map(driver_init_s, recording.meta.starts)
    assert sampled < 0.5
    assert min(unsampled) > 1.0


def test_starts_that_only_time_the_driver_do_not_judge_the_warmup(tmp_path: Path):
    recording = measure(tmp_path / "a.npz", "geforce", starts=1, duration_s=1.0)
    assert len(recording.meta.starts) > 1
    assert judge(recording).warmup.starts == 1


def test_paced_inference_keeps_its_interval(tmp_path: Path):
    recording = measure(tmp_path / "a.npz", starts=1, duration_s=0.3, interval_ms=10.0)
    rows = recording.iterations[recording.iterations["phase"] == 1]
    assert np.median(np.diff(rows["t_ns"])) == pytest.approx(10e6, rel=0.1)


def test_an_existing_recording_is_never_overwritten(tmp_path: Path):
    (tmp_path / "a.npz").write_bytes(b"precious")
    with pytest.raises(RecordingError, match="exists: choose another name"):
        measure(tmp_path / "a.npz")
    assert (tmp_path / "a.npz").read_bytes() == b"precious"


def test_what_a_simulated_gpu_cannot_do_is_refused_and_leaves_nothing(tmp_path: Path):
    with pytest.raises(InputError, match="tiny, medium, heavy"):
        measure(tmp_path / "a.npz", model="resnet.onnx")
    with pytest.raises(InputError, match="choose one of"):
        measure(tmp_path / "a.npz", profile="voodoo")
    assert list(tmp_path.iterdir()) == []


# --- killed in the middle ---


@pytest.mark.parametrize("delay_s", [0.05, 0.6, 1.1])
def test_sigkill_of_the_main_process_leaves_no_child_and_a_folder_that_loads(tmp_path: Path, delay_s: float):
    running = Running(tmp_path, "run", "tiny", "--starts", "3", "--duration", "0.5", "--no-report")
    running.wait_for("start:run")
    time.sleep(delay_s)
    running.process.kill()
    running.process.communicate()
    assert running.no_child_left()
    assert any("cut short" in note for note in Recording.load(running.output.with_suffix(".part")).meta.notes)


@pytest.mark.parametrize("delay_s", [0.05, 0.9])
@pytest.mark.parametrize(("target", "said"), [("sampler:run", "sampl"), ("start:run", "start 1 was cut short")])
def test_sigkill_of_a_child_is_noted_and_the_rest_goes_on(tmp_path: Path, target: str, said: str, delay_s: float):
    running = Running(tmp_path, "run", "tiny", "--starts", "3", "--duration", "0.5", "--no-report")
    victim = running.wait_for(target)
    time.sleep(delay_s)
    os.kill(victim, signal.SIGKILL)
    running.process.communicate(timeout=60)
    recording = Recording.load(running.output)
    assert any(said in note and "SIGKILL" in note for note in recording.meta.notes)
    assert set(recording.iterations["start"]) >= {1, 2}
    assert running.no_child_left()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_what_was_measured_and_exits_130(tmp_path: Path, number: signal.Signals):
    running = Running(tmp_path, "run", "tiny", "--starts", "3", "--duration", "0.5", "--no-report")
    rows = running.output.with_suffix(".part") / "start-0.rows"
    assert wait_until(lambda: rows.exists() and len(whole_rows(rows, ITERATION_FIELDS)) > 101 * ITERATION.itemsize)
    running.process.send_signal(number)
    running.process.communicate(timeout=30)
    assert running.process.returncode == 130
    assert running.no_child_left()
    recording = Recording.load(running.output)
    assert len(recording.iterations) > 100
    assert any("interrupted" in note for note in recording.meta.notes)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.npz"]
