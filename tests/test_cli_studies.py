"""`gpuwarm explain` and `gpuwarm idle` on stand-ins for NVML, CUDA and TensorRT, as their users meet them."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from test_cli_run import gpuwarm, machine  # noqa: F401 -- machine is a fixture
from test_engine import Environment, data, engine, spec_of
from test_page_cache import on_memory

from gpuwarm.measure import child
from gpuwarm.measure.holder import HoldSpec
from gpuwarm.measure.spec import PhaseSpec, StartSpec
from gpuwarm.metadata import Phase
from gpuwarm.recording import ITERATION, Recording
from gpuwarm.rows import ITERATION_FIELDS, whole_rows
from tests.running import wait_until


def test_an_engine_file_is_dropped_from_memory_and_a_context_held_next_door(
    tmp_path: Path,
    machine: Callable[[str], Environment],  # noqa: F811
):
    environment = machine("driver 580.95.05\n0 persistence=1 pstate=0 sm_clock_mhz=1500")
    plan = engine(tmp_path, busy_us=300)
    options = ("--repeats", "2", "--only", "engine-file", "--only", "other-context", "-o", "a.npz", "--json")
    told = gpuwarm(tmp_path, "explain", plan, *options, environment=environment)
    assert told.stderr == ""
    answer = json.loads(told.stdout)
    assert answer["simulated"] is None
    by_id = {cause["id"]: cause for cause in answer["causes"]}
    assert by_id["other-context"]["status"] == "measured"
    assert answer["clock"]["risen"] == "never at rest"
    recording = Recording.load(tmp_path / "a.npz")
    cached = {start.arm: start.engine_file_cached_pct for start in recording.meta.starts}
    if on_memory(tmp_path):
        assert "kept 100 %" in by_id["engine-file"]["reason"]
    else:
        assert by_id["engine-file"]["status"] == "measured"
        assert (cached["file-dropped"], cached["reference"]) == (0, 100)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"a.html", "a.npz"} < names
    assert "a.part" not in names


def test_a_holder_of_the_driver_holds_it_until_it_is_ended(tmp_path: Path, machine: Callable[[str], Environment]):  # noqa: F811
    spec = HoldSpec("driver", str(tmp_path / "ready"), gpu="0")
    holder = child.start(
        "gpuwarm.measure.holder:hold", spec, stem=tmp_path / "holder", environment=machine("0 pstate=8")
    )
    assert wait_until((tmp_path / "ready").exists)
    assert holder.alive()
    holder.end()
    assert holder.wait() == b"null"


def test_a_small_kernel_runs_in_a_pause_that_keeps_its_length(tmp_path: Path, standin_tensorrt: Environment):
    phases = (
        PhaseSpec(Phase("busy"), 1.0, max_iterations=5),
        PhaseSpec(Phase("after pause", pause_s=0.3, keep_alive_ms=50.0), 1.0, max_iterations=5),
    )
    start = StartSpec(index=0, folder=str(tmp_path), engine=spec_of(engine(tmp_path), data(tmp_path)), phases=phases)
    child.start("gpuwarm.measure.start:run", start, stem=tmp_path / "start", environment=standin_tensorrt).wait(30)
    rows = np.frombuffer(whole_rows(tmp_path / "start-0.rows", ITERATION_FIELDS), ITERATION)
    before, after = rows[rows["phase"] == 1][-1], rows[rows["phase"] == 2][0]
    paused_s = (after["t_ns"] - before["t_ns"] - before["host_ns"]) * 1e-9
    assert 0.3 <= paused_s < 0.6
    assert np.isfinite(after["sm_clock_mhz"])  # the stamps of the pause have not confused those of inferences
