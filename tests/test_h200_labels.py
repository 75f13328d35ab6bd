"""The traces of a real H200 against what was read off their plots before any rule saw them."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwarm.analysis import steady, transitions
from gpuwarm.analysis.course import course
from gpuwarm.analysis.movement import mover
from gpuwarm.analysis.stretch import stretches
from gpuwarm.recording import Recording

SCRIPT = Path(__file__).parents[1] / "scripts" / "convert_traces.py"
LABELS = json.loads((Path(__file__).parent / "data" / "h200_labels.json").read_text())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h200")


@pytest.fixture
def trace(h200: Path, folder: Path) -> Callable[[str], Recording]:
    if not list(folder.iterdir()):
        subprocess.run([sys.executable, str(SCRIPT), str(h200 / "traces"), str(folder)], check=True)
    return lambda name: Recording.load(folder / f"{name}.npz")


@pytest.mark.parametrize("name", sorted(LABELS["traces"]))
def test_behaviour_and_end_are_as_labelled(name: str, trace: Callable[[str], Recording]) -> None:
    label = LABELS["traces"][name]
    judgement = steady.judge(trace(name))
    assert judgement.behaviour in label["behaviour"]
    if label["end_ms"] is None:
        assert judgement.behaviour == "warmup" or judgement.warmup.time_ms is None
    else:
        low, high = label["end_ms"]
        assert low <= judgement.warmup.time_ms <= high
        assert judgement.warmup.recommended_ms <= 1.2 * high


@pytest.mark.parametrize("name", [name for name, label in sorted(LABELS["traces"].items()) if label["nvml_lag_ms"]])
def test_nvml_lags_as_labelled_and_the_clock_explains_the_slowdown(
    name: str, trace: Callable[[str], Recording]
) -> None:
    first = next(each for each in transitions.find(trace(name)) if each.kind == "sm_clock")
    low, high = LABELS["traces"][name]["nvml_lag_ms"]
    assert low <= first.lag_ms <= high
    assert first.explained == "yes"
    assert abs(first.latency_change_pct - first.predicted_by_clock_pct) <= 3.0


@pytest.mark.parametrize("name", sorted(LABELS["traces"]))
def test_what_moves_latency_is_what_was_labelled(name: str, trace: Callable[[str], Recording]) -> None:
    changes: list[dict[str, Any]] = LABELS["traces"][name]["changes"]
    recording = trace(name)
    judgement = steady.judge(recording)
    (stretch,) = stretches(recording)
    moved = mover(recording, stretch, judgement, tolerance=0.01)
    if changes[0]["caused_by"] == "host":
        assert moved is not None
        assert moved.cause == "host"
        assert not [each for each in transitions.find(recording) if each.kind == "sm_clock"]
    else:
        assert moved is None or moved.cause == "clock"


@pytest.mark.parametrize("name", sorted(LABELS["trtexec"]))
def test_times_that_trtexec_exported_are_as_labelled(name: str, h200: Path) -> None:
    label = LABELS["trtexec"][name]
    rows = json.loads((h200 / "trtexec" / f"{name}.json").read_text())
    begins, latencies = (np.array([row[key] for row in rows]) for key in ("startComputeMs", "computeMs"))
    found = course(begins, latencies)
    assert found.behaviour in label["behaviour"]
    if found.end is not None:
        low, high = label["end_ms"]
        assert low <= begins[found.end] <= high
