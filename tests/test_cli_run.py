"""`gpuwarm run` as its user meets it: on stand-ins for NVML, CUDA and TensorRT, and where it goes wrong."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from running import wait_until
from test_engine import DYNAMIC_X, DYNAMIC_Y, Environment, engine
from typer.testing import CliRunner

from gpuwarm import cli
from gpuwarm.cli import run  # noqa: F401 -- it makes the command known
from gpuwarm.errors import GpuwarmError
from gpuwarm.recording import Recording

ROOT = str(Path(__file__).parent.parent)
SIMULATED = ("run", "tiny", "--simulate", "h200", "--starts", "1", "--duration", "0")
SHORT = ("--starts", "1", "--duration", "0.2")


def gpuwarm(folder: Path, *arguments: str, environment: Environment | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a folder of its own."""
    path = os.pathsep.join([ROOT, (environment or {}).get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "gpuwarm", *arguments]
    variables = {**os.environ, **(environment or {}), "PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=120)


@pytest.fixture
def machine(standin_nvml: Callable[..., Environment], standin_tensorrt: Environment) -> Callable[[str], Environment]:
    """Make an environment in which NVML follows a timeline, and CUDA and TensorRT are stand-ins."""

    def of(timeline: str) -> Environment:
        nvml = standin_nvml(timeline)
        libraries = os.pathsep.join([nvml["LD_LIBRARY_PATH"], standin_tensorrt["LD_LIBRARY_PATH"]])
        return {**standin_tensorrt, **nvml, "LD_LIBRARY_PATH": libraries}

    return of


def test_an_engine_is_measured_from_rest_to_answer(tmp_path: Path, machine: Callable[[str], Environment]):
    environment = machine("driver 580.95.05\n0 persistence=1 pstate=0 sm_clock_mhz=1500 gpu_util_pct=90")
    plan = engine(tmp_path, busy_us=300)
    told = gpuwarm(tmp_path, "run", plan, "--starts", "2", "--duration", "0.5", "--json", environment=environment)
    answer = json.loads(told.stdout)
    assert answer["simulated"] is None
    assert answer["gpu"]["name"] == "NVIDIA GeForce RTX 4090"
    assert [phase["name"] for phase in answer["cold_start"]["phases"]][:2] == ["interpreter", "cuda_import"]
    (path,) = tmp_path.glob("gpuwarm-net-*.npz")
    recording = Recording.load(path)
    assert recording.meta.versions.keys() >= {"gpuwarm", "python", "driver", "nvml", "cuda", "tensorrt", "runtime"}
    assert recording.meta.versions["driver"] == "580.95.05"
    assert recording.meta.workload.input_data == "random, seed 0"
    assert [start.failure for start in recording.meta.starts] == [None, None]
    for number in range(2):
        rows = recording.iterations[recording.iterations["start"] == number]
        assert np.median(rows["gpu_ns"][2:]) == pytest.approx(300e3, rel=0.02)
    assert set(recording.samples["sm_clock_mhz"]) == {1500.0}


def test_a_gpu_lost_on_the_way_costs_its_state_and_not_the_run(tmp_path: Path, machine: Callable[[str], Environment]):
    environment = machine("0 persistence=1\n3 lost=1")
    plan = engine(tmp_path)
    told = gpuwarm(tmp_path, "run", plan, "--starts", "3", "--duration", "1", "-o", "a.npz", environment=environment)
    assert "Traceback" not in told.stderr
    recording = Recording.load(tmp_path / "a.npz")
    assert any("is lost" in note for note in recording.meta.notes)
    assert recording.iterations.size > 0


def test_an_engine_that_crashes_is_a_sentence_with_what_to_do(tmp_path: Path, machine: Callable[[str], Environment]):
    told = gpuwarm(tmp_path, "run", engine(tmp_path, crash=11), *SHORT, environment=machine("0 persistence=1"))
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr.startswith("gpuwarm: the process for inspection was killed by SIGSEGV without a message; ")
    assert "--verbose" in told.stderr
    assert [path.name for path in tmp_path.glob("gpuwarm-*")] == []


def test_verbose_shows_what_tensorrt_says(tmp_path: Path, machine: Callable[[str], Environment]):
    environment, plan = machine("0 persistence=1"), engine(tmp_path, refuses=True)
    assert "Deserializing" not in gpuwarm(tmp_path, "run", plan, *SHORT, environment=environment).stderr
    assert (
        "TensorRT verbose: Deserializing"
        in gpuwarm(tmp_path, "run", plan, *SHORT, "--verbose", environment=environment).stderr
    )


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--input", "z=double.npy"], "the engine has no input z: name one of x"),
        (["--fp16"], "--fp16: {plan} is an engine already"),
        (["--save-engine", "x.plan"], "--save-engine: {plan} is an engine already"),
    ],
)
def test_what_an_engine_cannot_be_given_is_one_sentence(
    tmp_path: Path, machine: Callable[[str], Environment], arguments: list[str], sentence: str
):
    np.save(tmp_path / "double.npy", np.ones((4, 3)))
    plan = engine(tmp_path, DYNAMIC_X, DYNAMIC_Y, profiles=2)
    told = gpuwarm(tmp_path, "run", plan, *arguments, *SHORT, environment=machine("0 persistence=1"))
    assert told.stderr.startswith(f"gpuwarm: {sentence.format(plan=plan)}"), told.stderr
    assert told.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["-o", "."], "--output . is a folder: name a file in it, as in --output run.npz"),
        (["-o", "/"], "--output / is a folder"),
        (["-o", "/proc/a.npz"], "cannot make /proc/a.part"),
        (["-o", "seen.npz"], "seen.npz exists: choose another name"),
        (["-o", "page.npz"], "page.html exists, and the report would replace it"),
        (["--gpu", "0"], "--gpu chooses among real GPUs"),
        (["--shape", "x:1x3"], "--shape: a simulated GPU runs workloads of its own"),
        (["--fp16"], "--fp16: a simulated GPU runs workloads of its own"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], sentence: str
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen.npz").touch()
    (tmp_path / "page.html").write_text("precious")
    told = CliRunner().invoke(cli.app, [*SIMULATED, *arguments])
    assert isinstance(told.exception, GpuwarmError)
    assert str(told.exception).startswith(sentence)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["page.html", "seen.npz"]
    assert (tmp_path / "page.html").read_text() == "precious"


def test_a_name_without_npz_gets_it_and_keeps_its_own_dots(tmp_path: Path):
    told = gpuwarm(tmp_path, *SIMULATED, "-o", "run.v1")
    assert told.returncode == 4  # nothing to judge
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.v1.html", "run.v1.npz"]


def test_a_measurement_that_goes_on_is_not_called_cut_short(tmp_path: Path):
    command = [sys.executable, "-m", "gpuwarm", *SIMULATED, "--duration", "60", "-o", "a.npz"]
    first = subprocess.Popen(command, cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}, stdout=subprocess.DEVNULL)
    assert wait_until(lambda: (tmp_path / "a.part" / "samples.rows").exists())
    assert "another gpuwarm is measuring into a.part" in gpuwarm(tmp_path, *SIMULATED, "-o", "a.npz").stderr
    first.send_signal(9)
    first.wait()
    assert "a.part holds a measurement that was cut short" in gpuwarm(tmp_path, *SIMULATED, "-o", "a.npz").stderr


def test_a_full_disk_is_one_sentence(tmp_path: Path):
    limited = f"ulimit -f 512; exec {sys.executable} -m gpuwarm {' '.join(SIMULATED)} -o a.npz"  # blocks of 1 KiB
    told = subprocess.run(
        ["bash", "-c", limited], cwd=tmp_path, env={**os.environ, "PYTHONPATH": ROOT}, capture_output=True, check=False
    )
    assert told.returncode == 1
    assert told.stderr.decode().startswith("gpuwarm: no room for ")
    assert told.stderr.count(b"\n") == 1


def test_what_the_system_says_of_a_file_is_one_sentence(tmp_path: Path):
    told = gpuwarm(tmp_path, "analyze", "x" * 300)
    assert (told.returncode, told.stderr.count("\n")) == (1, 1)
    assert "File name too long" in told.stderr


def test_a_file_that_is_not_there_is_said_before_a_gpu_is_missed(tmp_path: Path):
    told = gpuwarm(tmp_path, "run", "nosuch.plan")
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == "gpuwarm: there is no file nosuch.plan: name a .plan, .engine or .onnx, or leave it out\n"
    assert list(tmp_path.iterdir()) == []
