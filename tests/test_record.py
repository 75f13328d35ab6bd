"""gpuwarm record: any command is watched and keeps its output, its signals and its exit code."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import Standin
from running import wait_until

from gpuwarm.errors import InputError
from gpuwarm.metadata import Metadata, Start
from gpuwarm.recording import ITERATION, SAMPLE, Recording
from gpuwarm.studies import record, trtexec

ROOT = Path(__file__).parent.parent
TRTEXEC = Path(__file__).parent / "standin_trtexec" / "trtexec.py"
WITHOUT_DRIVER = 5


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """With trtexec, the stand-in, on the PATH."""
    program = tmp_path / "bin" / "trtexec"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} {TRTEXEC} "$@"\n')
    program.chmod(0o755)
    path = f"{program.parent}:{os.environ['PATH']}"
    return {**os.environ, "PYTHONPATH": str(ROOT), "PATH": path, "COLUMNS": "100"}


class Recorder:
    """Runs `gpuwarm record` on a simulated H200 in a folder."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.output = folder / "a.npz"
        self.environment = environment

    def words(self, *arguments: str, simulate: bool = True) -> list[str]:
        simulated = ["--simulate", "h200"] if simulate else []
        return [sys.executable, "-m", "gpuwarm", "record", *simulated, "-o", str(self.output), *arguments]

    def run(self, *arguments: str, simulate: bool = True) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            self.words(*arguments, simulate=simulate),
            capture_output=True,
            stdin=subprocess.DEVNULL,
            text=True,
            cwd=self.folder,
            env=self.environment,
            timeout=60,
        )

    def recording(self) -> Recording:
        return Recording.load(self.output)


@pytest.fixture
def recorder(tmp_path: Path, environment: dict[str, str]) -> Recorder:
    return Recorder(tmp_path, environment)


def test_a_command_is_watched_from_rest_before_it_to_after_it(recorder: Recorder):
    done = recorder.run("--", "sleep", "0.5")
    assert done.returncode == 0
    assert "the command ran from" in done.stderr
    recording = recorder.recording()
    (start,) = recording.meta.starts
    began, ended = (mark.t_ns for mark in start.marks)
    assert 0.45e9 < ended - began < 5e9
    assert recording.samples["t_ns"][0] < began - 0.5e9
    assert recording.samples["t_ns"][-1] > ended + 0.2e9
    assert "record --simulate h200" in recording.meta.command
    assert sorted(path.name for path in recorder.folder.iterdir()) == ["a.npz", "bin"]


def test_output_and_exit_code_stay_those_of_the_command(recorder: Recorder):
    done = recorder.run("sh", "-c", "echo out; echo err >&2; exit 3")  # -- may be left out
    assert done.returncode == 3
    assert done.stdout == "out\n"
    assert done.stderr.startswith("err\n")
    assert "No inference was timed" in done.stderr
    assert recorder.recording().meta.notes == ("the command ended with exit code 3",)


def test_json_alone_is_on_stdout(recorder: Recorder):
    done = recorder.run("--json", "--", "sh", "-c", "echo out")
    answer = json.loads(done.stdout)
    assert answer["simulated"] == "h200"
    assert answer["steady"] is None
    assert done.stderr == "out\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_is_for_the_command_and_what_was_sampled_is_kept(recorder: Recorder, number: signal.Signals):
    script = "import signal, sys, time\nsignal.signal(%d, lambda *_: sys.exit(7))\nopen('up', 'w')\ntime.sleep(30)"
    words = recorder.words("--", sys.executable, "-c", script % number)
    with subprocess.Popen(words, cwd=recorder.folder, env=recorder.environment, start_new_session=True) as process:
        assert wait_until((recorder.folder / "up").exists)
        process.send_signal(number)
        assert process.wait(20) == 7
    assert recorder.recording().samples.size > 50


def at_a_terminal(recorder: Recorder, *arguments: str, typed: str, after: Path | str) -> tuple[int, str]:
    """Run at a pseudo-terminal; type once a file is there or a text was printed. Exit code and all that was printed."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(recorder.folder)
        words = recorder.words(*arguments)
        os.execve(words[0], words, {**recorder.environment, "TERM": "dumb"})
    printed = b""

    def ready() -> bool:
        return after.exists() if isinstance(after, Path) else after.encode() in printed

    waiting = True
    while True:
        os.set_blocking(terminal, False)
        wait_until(lambda: True)
        try:
            printed += os.read(terminal, 10_000)
        except BlockingIOError:
            wait_until(lambda: False, 0.02)
        except OSError:  # the other end is closed
            break
        if waiting and ready():
            os.write(terminal, typed.encode())
            waiting = False
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), printed.decode()


def test_ctrl_c_reaches_the_command_once(recorder: Recorder):
    script = (
        "import signal, sys, time\nseen = []\nsignal.signal(signal.SIGINT, lambda *_: seen.append(1))\n"
        "open('up', 'w')\nwhile not seen: time.sleep(0.05)\ntime.sleep(0.5); sys.exit(10 + len(seen))"
    )
    code, _ = at_a_terminal(recorder, "--", sys.executable, "-c", script, typed="\x03", after=recorder.folder / "up")
    assert code == 11
    assert recorder.recording().meta.notes == ("the command ended with exit code 11",)


def test_a_duration_alone_samples_for_so_long(recorder: Recorder):
    done = recorder.run("--duration", "0.5", "--period-ms", "20")
    assert done.returncode == 0
    assert "No load begins or ends in it" in " ".join(done.stdout.split())
    recording = recorder.recording()
    assert recording.samples["t_ns"][-1] - recording.samples["t_ns"][0] > 1.4e9  # with the look at the GPU at rest
    assert recording.meta.sampling.period_ms == 20
    assert recording.meta.starts == ()


@pytest.mark.parametrize("arguments", [(), ("--duration", "1", "--", "true")])
def test_there_is_a_command_or_a_duration(recorder: Recorder, arguments: tuple[str, ...]):
    done = recorder.run(*arguments)
    assert done.returncode == 1
    assert "give a command" in done.stderr


def test_a_command_that_is_none_has_a_shells_exit_code(recorder: Recorder):
    done = recorder.run("--", "no-such-program")
    assert done.returncode == 127
    assert "no-such-program is no program" in done.stderr


def test_without_a_gpu_the_command_is_not_run(recorder: Recorder):
    done = recorder.run("--", "touch", "ran", simulate=False)
    assert done.returncode == WITHOUT_DRIVER
    assert "gpuwarm: there is no NVIDIA driver here" in done.stderr
    assert not (recorder.folder / "ran").exists()


def test_an_existing_recording_is_not_overwritten(recorder: Recorder):
    recorder.output.write_bytes(b"precious")
    done = recorder.run("--", "touch", "ran")
    assert done.returncode == 1
    assert "exists: choose another name" in done.stderr
    assert not (recorder.folder / "ran").exists()


def test_load_that_a_real_gpu_shows_is_told(recorder: Recorder, standin_nvml: Standin):
    idle, busy = "pstate=8 sm_clock_mhz=210 power_mw=21000", "pstate=2 sm_clock_mhz=2520 power_mw=310000"
    timeline = f"refresh_ms 20\n0 {idle}\n2.5 {busy} gpu_util_pct=98\n4 {idle} gpu_util_pct=0"
    recorder.environment |= standin_nvml(timeline)
    done = recorder.run("--gpu", "0", "--", "sleep", "3", simulate=False)
    assert done.returncode == 0
    assert "210 MHz at rest and 2520 MHz under load" in " ".join(done.stderr.split())
    assert recorder.recording().meta.simulated is None


def test_a_gpu_that_is_lost_meanwhile_leaves_the_command_its_exit_code(recorder: Recorder, standin_nvml: Standin):
    recorder.environment |= standin_nvml("0 pstate=8\n3 lost=1")
    done = recorder.run("--", "sh", "-c", "sleep 4; exit 3", simulate=False)
    assert done.returncode == 3
    (note, *_) = recorder.recording().meta.notes
    assert "could not be looked at afterwards" in note


# -- in this process


def test_a_command_that_a_signal_ended_has_a_shells_exit_code(tmp_path: Path):
    with (tmp_path / "shown").open("wb") as shown:
        ran = record.run(["sh", "-c", "kill -KILL $$"], shown, keep_lines=False)
    assert ran.exit_code == 128 + signal.SIGKILL


def test_lines_come_with_the_time_they_were_written_at(tmp_path: Path):
    with (tmp_path / "shown").open("wb") as shown:
        ran = record.run(["sh", "-c", "echo a; sleep 0.3; printf b"], shown, keep_lines=True)
    assert (tmp_path / "shown").read_bytes() == b"a\nb"
    (first_ns, first), (second_ns, second) = ran.lines
    assert (first, second) == (b"a\n", b"b")
    assert second_ns - first_ns > 0.25e9
    assert ran.began_ns <= first_ns <= second_ns


def test_a_command_whose_reader_went_away_runs_to_its_end(tmp_path: Path):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb", buffering=0) as shown:
        ran = record.run(["sh", "-c", f"echo a; echo b; touch {tmp_path}/done"], shown, keep_lines=True)
    assert ran.exit_code == 0
    assert (tmp_path / "done").exists()


def test_a_file_that_is_no_program_is_refused(tmp_path: Path):
    broken = tmp_path / "broken"
    broken.write_bytes(b"\0")
    broken.chmod(0o755)
    with (tmp_path / "shown").open("wb") as shown, pytest.raises(InputError, match="Exec format error"):
        record.run([str(broken)], shown, keep_lines=False)


# -- trtexec


def began_ns(recorder: Recorder) -> int:
    return int((recorder.folder / "began").read_text())


def test_trtexec_is_adapted_and_its_times_are_placed_among_the_samples(recorder: Recorder):
    recorder.environment["STANDIN_TRTEXEC_BEGAN"] = str(recorder.folder / "began")
    done = recorder.run("--adapt", "--", "trtexec", "--loadEngine=x.plan", "--warmUp=200", "--duration=1.2")
    assert done.returncode == 0
    times = recorder.folder / "a.times.json"
    line = f"trtexec --loadEngine=x.plan --duration=1.2 --warmUp=0 --exportTimes={times}"
    assert f"gpuwarm: running `{line}`\n" in done.stderr
    assert "Timing trace has 600 queries" in done.stdout
    recording = recorder.recording()
    assert recording.iterations.size == 600
    assert np.median(np.diff(recording.iterations["t_ns"])) == 2e6
    off_ms = (int(recording.iterations["t_ns"][0]) - began_ns(recorder)) / 1e6
    uncertainty_ms = recording.meta.sampling.clock_uncertainty_ms
    assert uncertainty_ms is not None
    assert abs(off_ms) <= uncertainty_ms < 100
    assert recording.meta.time_base == "monotonic"
    assert recording.meta.workload.name == "x.plan"
    assert [mark.name for mark in recording.meta.starts[0].marks] == ["process_start", "process_end"]
    assert recording.samples["t_ns"][0] < recording.iterations["t_ns"][0] < recording.samples["t_ns"][-1]


def test_of_trtexec_as_it_is_the_log_is_read_and_the_change_is_offered(recorder: Recorder):
    done = recorder.run("--", "env", "A=1", "trtexec", "--loadEngine=x.plan", "--duration=0.3")
    assert done.returncode == 0
    assert "gpuwarm: with --adapt all of trtexec's warm-up is seen, by running `env A=1 trtexec" in done.stderr
    assert not (recorder.folder / "a.times.json").exists()
    recording = recorder.recording()
    assert recording.meta.inferences_per_row == 10
    assert recording.iterations.size == 15
    assert "another GPU" in " ".join(recording.meta.notes)


def test_nobody_who_said_no_is_asked(recorder: Recorder):
    done = recorder.run("--no-adapt", "--", "trtexec", "--loadEngine=x.plan", "--duration=0.3", "--exportTimes=t.json")
    assert "--adapt" not in done.stderr
    assert recorder.recording().iterations.size == 150
    assert (recorder.folder / "t.json").exists()


@pytest.mark.parametrize("typed", ["y", "n"])
def test_at_a_terminal_the_change_is_asked_for(recorder: Recorder, typed: str):
    code, printed = at_a_terminal(
        recorder,
        "--",
        "trtexec",
        "--loadEngine=x.plan",
        "--duration=0.3",
        typed=f"{typed}\n",
        after="Run that instead?",
    )
    assert code == 0
    assert "--warmUp=0 --exportTimes=" in printed
    assert (recorder.folder / "a.times.json").exists() is (typed == "y")


def test_a_command_that_cannot_be_adapted_is_said_to(recorder: Recorder):
    ran = recorder.run("--adapt", "--", "sh", "-c", "exit 3")
    assert ran.returncode == 3
    assert "no word of the command is trtexec, so --adapt changes nothing" in ran.stderr


def test_a_trtexec_that_fails_keeps_its_exit_code_and_leaves_the_states(recorder: Recorder):
    done = recorder.run("--adapt", "--", "trtexec")
    assert done.returncode == 1
    assert "gpuwarm: trtexec's times are left out: trtexec's log is of a trtexec that failed" in done.stderr
    assert recorder.recording().samples.size > 50
    assert recorder.recording().iterations.size == 0


def test_trtexec_on_another_gpu_needs_that_gpus_name(recorder: Recorder):
    done = recorder.run("--", "trtexec", "--loadEngine=x.plan", "--duration=0.3", "--device=2")
    assert done.returncode == 1
    assert "--device=2 counts GPUs as CUDA does: name the one to watch with --gpu" in done.stderr


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("trtexec", "trtexec --warmUp=0 --exportTimes=t.json"),
        ("trtexec --warmUp=0 --avgRuns=1", "trtexec --warmUp=0 --avgRuns=1 --exportTimes=t.json"),
        ("trtexec --warmUp=0 --warmUp=9", "trtexec --warmUp=0 --exportTimes=t.json"),
        ("trtexec --exportTimes=mine.json --warmUp=0", "trtexec --exportTimes=mine.json --warmUp=0"),
        ("numactl -N 0 /opt/trtexec --fp16", "numactl -N 0 /opt/trtexec --fp16 --warmUp=0 --exportTimes=t.json"),
        ("trtexec --onnx=a.onnx --buildOnly", "trtexec --onnx=a.onnx --buildOnly"),
        ("trtexec --help", "trtexec --help"),
        ("grep trtexec.log", "grep trtexec.log"),
    ],
)
def test_only_what_is_missing_is_added(command: str, expected: str):
    assert " ".join(trtexec.adapted(command.split(), Path("t.json"))) == expected


def test_a_trtexec_that_knows_the_flag_is_run_without_a_graph(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", environment["PATH"])
    monkeypatch.setenv("STANDIN_TRTEXEC_VERSION", "11")
    assert trtexec.adapted(["trtexec"], Path("t.json"))[-1] == "--noCudaGraph"
    assert "--noCudaGraph" not in trtexec.adapted(["trtexec", "--useCudaGraph"], Path("t.json"))
    monkeypatch.setenv("STANDIN_TRTEXEC_VERSION", "8")
    assert "--noCudaGraph" not in trtexec.adapted(["trtexec"], Path("t.json"))


S = 10**9
FIRST_SAMPLE_NS = 1000 * S  # CLOCK_MONOTONIC of a machine that has been up for a while


def watched(*, load_s: tuple[float, float] | None = None) -> Recording:
    """Ten seconds of samples, each 10 ms; power is refreshed each 100 ms."""
    samples = np.zeros(1000, SAMPLE)
    for name in SAMPLE.names or ():
        samples[name] = 0 if name == "t_ns" else np.nan
    samples["t_ns"] = FIRST_SAMPLE_NS + np.arange(1000) * 10_000_000
    read_at_s = np.floor(np.arange(1000) / 10) / 10
    begin_s, end_s = load_s or (0.0, 0.0)
    loaded = (read_at_s >= begin_s) & (read_at_s < end_s)
    samples["power_mw"] = np.where(loaded, 500_000, 80_000) + 100 * (np.floor(np.arange(1000) / 10) % 7)
    return Recording(samples, np.empty(0, ITERATION), Metadata(starts=(Start(),)))


def trtexec_ran(*lines: tuple[float, str]) -> record.Ran:
    """From 1 to 9.5 s of the samples."""
    stamped = tuple((FIRST_SAMPLE_NS + round(at_s * S), line.encode()) for at_s, line in lines)
    return record.Ran(FIRST_SAMPLE_NS + 1 * S, FIRST_SAMPLE_NS + 9 * S + S // 2, 0, stamped)


def times_of_4_s(folder: Path) -> Path:
    path = folder / "times.json"
    rows = [{"startComputeMs": 2.0 * at, "computeMs": 2.0, "latencyMs": 2.1} for at in range(2000)]
    path.write_text(json.dumps(rows))
    return path


def begins_at_s(found: Recording) -> float:
    return (int(found.iterations["t_ns"][0]) - FIRST_SAMPLE_NS) / S


def test_trtexecs_lines_place_its_times(tmp_path: Path):
    ran = trtexec_ran((3.2, "Starting inference\n"), (7.24, "Warmup completed 0 queries over 0 ms\n"))
    found = trtexec.joined(watched(), ran, times_of_4_s(tmp_path))
    assert begins_at_s(found) == pytest.approx(3.215, abs=0.026)
    assert "by what ran when, +-25 ms" in found.meta.notes[0]


def test_load_places_times_whose_lines_came_late(tmp_path: Path):
    """As where a pipe held all of them back until the end."""
    ran = trtexec_ran((9.4, "Starting inference\n"), (9.4, "Timing trace has 2000 queries over 4 s\n"))
    found = trtexec.joined(watched(load_s=(3.5, 7.5)), ran, times_of_4_s(tmp_path))
    assert begins_at_s(found) == pytest.approx(3.45, abs=0.1)
    assert "by where power rises and falls" in found.meta.notes[0]


def test_load_outside_the_run_does_not_place_it(tmp_path: Path):
    with pytest.raises(InputError, match=r"places a run of 4\.00 s no better than"):
        trtexec.joined(watched(load_s=(5.8, 9.8)), trtexec_ran((2, "no such line\n")), times_of_4_s(tmp_path))


def test_times_of_an_earlier_run_are_not_taken(tmp_path: Path):
    path = times_of_4_s(tmp_path)
    os.utime(path, (1, 1))
    with pytest.raises(InputError, match="Average on N runs"):
        trtexec.joined(watched(), trtexec_ran((2, "Starting inference\n")), path)
