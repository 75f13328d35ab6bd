"""`gpuwarm analyze` as scripts and people use it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import measured
import numpy as np
import pytest

from gpuwarm.recording import Recording


def gpuwarm(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gpuwarm", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | environment,
    )


def saved(recording: Recording, path: Path) -> Path:
    recording.save(path)
    return path


@pytest.fixture(scope="module")
def flat(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(measured.flat(), tmp_path_factory.mktemp("recordings") / "flat.npz")


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = measured.flat()
    labelled = replace(found, meta=replace(found.meta, simulated="h200"))
    return saved(labelled, tmp_path_factory.mktemp("recordings") / "simulated.npz")


def test_it_answers_and_exits_with_0(flat: Path) -> None:
    done = gpuwarm("analyze", flat, "--require", "trusted")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("No warm-up is needed: latency is 2.02 ms from the first inference on.\n")


def test_json_is_one_object_for_one_file_and_a_list_for_several(flat: Path, simulated: Path) -> None:
    one = json.loads(gpuwarm("analyze", flat, "--json", "--warmup-ms", "50", "--tolerance", "2").stdout)
    assert (one["schema"], one["source"], one["tolerance"]) == ("gpuwarm.advice/1", str(flat), 0.02)
    assert 50.0 in [row["warmup_ms"] for row in one["bias"]]
    several = json.loads(gpuwarm("analyze", flat, simulated, "--json").stdout)
    assert [each["simulated"] for each in several] == [None, "h200"]


def test_a_verdict_below_what_is_required_is_exit_4(simulated: Path) -> None:
    assert gpuwarm("analyze", simulated).returncode == 0
    assert gpuwarm("analyze", simulated, "--require", "degraded").returncode == 0
    refused = gpuwarm("analyze", simulated, "--require", "trusted")
    assert refused.returncode == 4
    assert refused.stdout.startswith("SIMULATED GPU, profile h200")


def test_no_steady_state_is_exit_4_with_the_answer(tmp_path: Path) -> None:
    drifting = measured.recording(measured.inference(0, np.linspace(2.0, 4.0, 1500)))
    done = gpuwarm("analyze", saved(drifting, tmp_path / "drifting.npz"))
    assert done.returncode == 4
    assert done.stdout.startswith("No warm-up length can be given")


def test_what_is_no_recording_is_one_sentence_and_exit_1(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    done = gpuwarm("analyze", tmp_path / "notes.txt")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("gpuwarm: ")
    assert done.stderr.count("\n") == 1


def test_a_terminal_without_unicode_gets_plain_bars(flat: Path) -> None:
    done = gpuwarm("analyze", flat, PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "initialise driver   200 ms 200 ms to 200 ms #########\n" in done.stdout
