"""The H200 traces as recordings: every number where the next reader looks for it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from gpuwarm.recording import Recording

SCRIPT = Path(__file__).parents[1] / "scripts" / "convert_traces.py"


@pytest.fixture
def heavy(h200: Path, tmp_path: Path) -> Recording:
    subprocess.run([sys.executable, str(SCRIPT), str(h200 / "traces"), str(tmp_path)], check=True)
    return Recording.load(tmp_path / "h200_heavy_continuous.npz")


def test_a_trace_keeps_its_latencies_and_gets_its_sm_clock_from_the_stamps(heavy: Recording) -> None:
    later = heavy.iterations[heavy.iterations["t_ns"] > heavy.iterations["t_ns"][0] + 2_000_000_000]
    assert np.median(later["gpu_ns"]) == pytest.approx(2.836e6, rel=0.002)  # read off the trace by hand
    assert np.median(later["sm_clock_mhz"]) == pytest.approx(1660, abs=5)


def test_the_cold_inferences_come_first_and_carry_what_was_measured_of_them(heavy: Recording) -> None:
    cold = heavy.iterations[:2]
    assert cold["phase"].tolist() == [0, 0]
    assert cold["host_ns"].tolist() == [2779256.0, 2717741.0]
    assert np.isnan(cold["gpu_ns"]).all()
    assert (np.diff(heavy.iterations["t_ns"]) > 0).all()


def test_marks_run_from_process_start_to_the_first_continuous_iteration(heavy: Recording) -> None:
    marks = heavy.meta.starts[0].marks
    assert [marks[0].name, marks[-1].name] == ["process_start", "sm_clock"]
    assert marks[-1].t_ns == heavy.iterations["t_ns"][2]
    times = [mark.t_ns for mark in marks]
    assert times == sorted(times)


def test_the_power_of_a_trace_is_the_one_second_average(heavy: Recording) -> None:
    assert np.isnan(heavy.samples["power_mw"]).all()
    assert heavy.samples["power_average_mw"].max() > 600_000
