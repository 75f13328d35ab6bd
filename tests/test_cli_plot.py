"""`gpuwarm plot` as its user sees it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from gpuwarm import cli
from gpuwarm.cli import plot as command
from gpuwarm.errors import InputError
from gpuwarm.show import plot
from tests.examples import staircase


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "box.npz"
    staircase().save(path)
    return path


def gpuwarm(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def test_all_figures_are_written_and_named(recording: Path, tmp_path: Path):
    result = gpuwarm("plot", recording, "-o", tmp_path / "new" / "folder")
    assert result.exit_code == 0, result.output
    names = [Path(line).name for line in result.stdout.split("\n") if line]
    assert names == [f"box-{name}.png" for name in plot.FIGURES]
    assert all((tmp_path / "new" / "folder" / name).read_bytes().startswith(b"\x89PNG") for name in names)


def test_one_figure_of_one_start_as_svg(recording: Path, tmp_path: Path):
    options = ("--figure", "timeline", "--start", 3, "--format", "svg", "-o", tmp_path)
    assert gpuwarm("plot", recording, *options).exit_code == 0
    assert [path.name for path in tmp_path.glob("*.svg")] == ["box-timeline.svg"]
    assert "<svg" in (tmp_path / "box-timeline.svg").read_text()


def test_a_start_that_is_not_there_is_said(recording: Path):
    result = gpuwarm("plot", recording, "--start", 7)
    assert isinstance(result.exception, InputError)
    assert "no inference of a start 7: choose one of 1, 2, 3" in str(result.exception)


def test_what_cannot_be_drawn_is_left_out_and_said(tmp_path: Path):
    whole = staircase(starts=1)
    replace(whole, samples=whole.samples[:0], meta=replace(whole.meta, starts=())).save(tmp_path / "a.npz")
    result = gpuwarm("plot", tmp_path / "a.npz", "-o", tmp_path)
    assert result.exit_code == 0
    assert "no cold_start: the steps of no cold start were recorded" in result.stderr
    assert not (tmp_path / "a-cold_start.png").exists()
    assert (tmp_path / "a-timeline.png").exists()


def test_a_recording_of_nothing_is_an_error(tmp_path: Path):
    whole = staircase(starts=1)
    nothing = replace(whole, samples=whole.samples[:0], iterations=whole.iterations[:0])
    replace(nothing, meta=replace(whole.meta, starts=())).save(tmp_path / "a.npz")
    result = gpuwarm("plot", tmp_path / "a.npz", "-o", tmp_path)
    assert isinstance(result.exception, InputError)
    assert "holds nothing to draw" in str(result.exception)


def test_a_place_that_cannot_be_written_is_one_sentence(recording: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    result = gpuwarm("plot", recording, "--figure", "bias", "-o", tmp_path / "file" / "folder")
    assert isinstance(result.exception, InputError)
    assert "choose another place with --output" in str(result.exception)


def test_the_tolerance_is_the_figures(recording: Path, tmp_path: Path):
    for tolerance in ("1", "5"):
        gpuwarm("plot", recording, "--figure", "bias", "--tolerance", tolerance, "-o", tmp_path / tolerance)
    one, five = ((tmp_path / tolerance / "box-bias.png").read_bytes() for tolerance in ("1", "5"))
    assert one != five


def test_the_command_offers_every_figure():
    assert [name.value for name in command.Name] == [*plot.FIGURES, plot.CAUSES, plot.PAUSES]
    assert [kind.value for kind in command.Kind] == ["png", "svg"]


def test_trtexecs_times_are_drawn_beside_an_nvidia_smi_log(tmp_path: Path):
    nothing = dict.fromkeys(("startH2dMs", "endH2dMs", "startD2hMs", "endD2hMs", "h2dMs", "d2hMs"), 0.0)
    rows = [
        {"startEnqMs": at, "endEnqMs": at + 0.1, "startComputeMs": at, "endComputeMs": at + 1.9}
        | {"computeMs": 1.9, "latencyMs": 1.9, **nothing}
        for at in range(0, 800, 2)
    ]
    (tmp_path / "times.json").write_text(json.dumps(rows))
    stamps = (f"2025/11/30 21:00:{at / 1e3:06.3f}" for at in range(0, 3000, 100))
    lines = "".join(f"{stamp}, P2, 1905 MHz\n" for stamp in stamps)
    (tmp_path / "smi.csv").write_text(f"timestamp, pstate, clocks.current.sm [MHz]\n{lines}")
    beside = ("--smi", tmp_path / "smi.csv", "--offset-ms", 1000, "--format", "svg", "-o", tmp_path)
    result = gpuwarm("plot", tmp_path / "times.json", *beside)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "times-latency_by_state.svg").exists()


def test_two_recordings_are_one_too_many(recording: Path, tmp_path: Path):
    staircase(starts=1).save(tmp_path / "b.npz")
    result = gpuwarm("plot", recording, tmp_path / "b.npz")
    assert isinstance(result.exception, InputError)
    assert "2 runs, and one is shown at a time" in str(result.exception)


def test_a_home_that_cannot_be_written_is_no_matter(recording: Path, tmp_path: Path):
    """Matplotlib keeps caches there, and says so at length where it cannot."""
    caches = {"HOME": "/proc/none", "MPLCONFIGDIR": "", "XDG_CACHE_HOME": "", "XDG_CONFIG_HOME": ""}
    told = subprocess.run(
        [sys.executable, "-m", "gpuwarm", "plot", str(recording), "-o", str(tmp_path), "--figure", "cold_start"],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent), **caches},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stderr == ""
    assert told.stdout.endswith("-cold_start.png\n")
