"""What a cold-start worker imports: nothing that would delay a start without being a cost of its user's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from test_engine import Environment, data, engine, spec_of

from gpuwarm.measure.spec import PhaseSpec, StartSpec
from gpuwarm.metadata import Phase

HEAVY = {
    "dataclasses",
    "datetime",
    "gpuwarm.machine",
    "gpuwarm.metadata",
    "gpuwarm.recording",
    "hashlib",
    "importlib.metadata",
    "inspect",
    "msgspec",
    "numpy",
    "pathlib",
    "pynvml",
    "subprocess",
    "tempfile",
    "traceback",
    "typing_extensions",
    "uuid",
}
WORKER = "from gpuwarm.measure import entry, start, engine"


def run(code: str, environment: Environment) -> list[str]:
    """What a Python of its own prints as JSON."""
    root = str(Path(__file__).parent.parent)
    path = os.pathsep.join([root, environment.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", f"import sys, json; {code}"]
    printed = subprocess.run(
        command, capture_output=True, check=True, env={**os.environ, **environment, "PYTHONPATH": path}
    )
    return json.loads(printed.stdout)


def modules(code: str) -> set[str]:
    return set(run(f"{code}; print(json.dumps(sorted(sys.modules)))", {}))


def test_a_worker_imports_nothing_heavy():
    needed = modules("import ctypes, mmap, struct")  # what this installation loads in any process counts to no one
    assert (modules(WORKER) - needed) & HEAVY == set()


def test_a_heavy_import_would_be_seen():
    assert (modules("import gpuwarm.metadata") - modules("pass")) & HEAVY >= {"dataclasses", "inspect"}


def test_from_its_first_step_on_a_worker_imports_nothing_of_gpuwarms(
    tmp_path: Path, standin_tensorrt: Environment
) -> None:
    phase = PhaseSpec(Phase("busy"), duration_s=5.0, max_iterations=5)
    spec = StartSpec(0, str(tmp_path), spec_of(engine(tmp_path), data(tmp_path)), (phase,))
    told = msgspec.json.encode(spec)
    code = (
        f"{WORKER}; ready = set(sys.modules); start.run({told!r}); print(json.dumps(sorted(set(sys.modules) - ready)))"
    )
    later = run(code, standin_tensorrt)
    assert "tensorrt_lean" in later
    assert [name for name in later if name.startswith("gpuwarm")] == []


@pytest.mark.parametrize("name", ["json", "msgspec"])
def test_a_users_file_of_a_modules_name_in_the_working_folder_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
):
    from test_child import start

    monkeypatch.chdir(tmp_path)
    (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    assert start("double", 21, tmp_path).wait() == b"42"
