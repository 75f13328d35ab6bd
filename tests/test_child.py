"""A child's result, its failure and its end, as its parent sees them."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuwarm.errors import EngineError, GpuwarmError
from gpuwarm.measure import child

HERE = Path(__file__).parent


def start(name: str, spec: object, folder: Path) -> child.Child:
    environment = {"PYTHONPATH": f"{HERE}:{HERE.parent}"}
    return child.start(f"child_targets:{name}", spec, stem=folder / name, environment=environment)


def gone(pid: int) -> bool:
    """Whether a process has ended; a zombie, which only waits for its parent's look, has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def wait_until(condition, limit_s: float = 20.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def test_what_the_function_returns_comes_back(tmp_path: Path):
    before = time.monotonic_ns()
    running = start("double", 21, tmp_path)
    assert running.wait() == b"42"
    assert before < running.started_ns < time.monotonic_ns()


def test_an_error_keeps_its_class_and_its_sentence(tmp_path: Path):
    with pytest.raises(EngineError, match="this engine is no engine: give another"):
        start("refuse", None, tmp_path).wait()


def test_an_unforeseen_exception_is_one_sentence_and_its_trace_is_in_the_log(tmp_path: Path):
    running = start("stumble", None, tmp_path)
    with pytest.raises(GpuwarmError, match=r"unexpected KeyError in child_targets:stumble: 'forgotten'"):
        running.wait()
    assert "Traceback" in running.log()


def test_death_by_signal_tells_the_signal_and_the_last_messages(tmp_path: Path):
    with pytest.raises(GpuwarmError, match=r"killed by SIGSEGV.*about to go wrong"):
        start("crash", None, tmp_path).wait()


def test_a_child_that_will_not_stop_is_made_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(child, "_END_GRACE_S", 0.2)
    running = start("refuse_to_stop", None, tmp_path)
    assert wait_until(lambda: "ready" in running.log())
    running.end()
    assert gone(running.process.pid)


def test_a_child_dies_with_its_parent_even_by_sigkill(tmp_path: Path):
    parent_code = f"""
import sys, time
from pathlib import Path
from gpuwarm.measure import child
running = child.start("child_targets:sleep", None, stem=Path({str(tmp_path)!r}) / "orphan")
print(running.process.pid, flush=True)
time.sleep(60)
"""
    environment = {**os.environ, "PYTHONPATH": f"{HERE}:{HERE.parent}"}
    with subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, env=environment) as parent:
        pid = int(parent.stdout.readline())
        assert not gone(pid)
        parent.send_signal(signal.SIGKILL)
    assert wait_until(lambda: gone(pid))


def test_a_second_child_of_the_same_name_does_not_inherit_the_first_ones_result(tmp_path: Path):
    assert start("double", 21, tmp_path).wait() == b"42"
    second = start("double", "not a number", tmp_path)
    with pytest.raises(GpuwarmError, match="unexpected ValidationError"):
        second.wait()
