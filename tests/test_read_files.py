"""Whatever file is named, its content tells what it is."""

import json
from pathlib import Path

import numpy as np
import pytest

from gpuwarm.errors import InputError, RecordingError
from gpuwarm.metadata import Metadata
from gpuwarm.read.files import recordings
from gpuwarm.recording import ITERATION, SAMPLE, Recording

MS = 10**6


def times(*, compute_ms: float = 2.0, count: int = 2000) -> str:
    rows = [
        {
            "startComputeMs": at * compute_ms,
            "endComputeMs": (at + 1) * compute_ms,
            "computeMs": compute_ms,
            "h2dMs": 0.01,
        }
        for at in range(count)
    ]
    return json.dumps(rows)


def smi(*, begin_s: float = 1.5, length_s: float = 4.0, gpus: int = 1) -> str:
    lines = ["timestamp, index, power.draw.instant [W], clocks.current.sm [MHz]"]
    for at in range(400):
        busy = begin_s <= at / 50 < begin_s + length_s
        for gpu in range(gpus):
            watts = 300 + at % 7 if busy and gpu == 0 else 80 + at % 3
            lines.append(f"2025/03/04 10:00:{at // 50:02d}.{at % 50 * 20:03d}, {gpu}, {watts}.00 W, 1500 MHz")
    return "\n".join(lines) + "\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "times.txt").write_text(times())
    (tmp_path / "gpu.log").write_text(smi())
    (tmp_path / "four.csv").write_text(smi(gpus=4))
    return tmp_path


def test_names_do_not_matter(folder: Path):
    found = recordings([folder / "times.txt", folder / "gpu.log"])
    assert [source for source, _ in found] == ["times.txt + gpu.log"]
    joined = found[0][1]
    assert joined.iterations.size == 2000
    assert joined.samples["t_ns"][0] / MS == pytest.approx(-1500, abs=60)


def test_a_log_may_be_named_by_option_and_its_gpu_too(folder: Path):
    ((_, joined),) = recordings([folder / "times.txt"], smi=folder / "four.csv", gpu="0")
    assert joined.samples.size == 400
    with pytest.raises(InputError, match="holds 4 GPUs"):
        recordings([folder / "times.txt"], smi=folder / "four.csv")
    ((_, told),) = recordings([folder / "times.txt"], smi=folder / "gpu.log", offset_ms=20)
    assert told.samples["t_ns"][1] == 0


def test_one_load_is_not_joined_with_two_runs(folder: Path):
    (folder / "other.json").write_text(times(compute_ms=2.01))
    with pytest.raises(InputError, match=r"gpu.log and .* would have run at the same time: which of them"):
        recordings([folder / "times.txt", folder / "other.json"], smi=folder / "gpu.log")
    (folder / "short.json").write_text(times(count=500))
    later = [line for line in smi(begin_s=6.5, length_s=1.0).split("\n")[1:] if line > "2025/03/04 10:00:06"]
    both = smi().split("\n2025/03/04 10:00:06")[0] + "\n" + "\n".join(later)
    (folder / "both.log").write_text(both)
    found = recordings([folder / "short.json", folder / "times.txt"], smi=folder / "both.log")
    assert [round(joined.samples["t_ns"][0] / MS, -2) for _, joined in found] == [-6500, -1500]


def test_a_log_alone_is_samples_alone(folder: Path):
    ((source, alone),) = recordings([folder / "gpu.log"])
    assert (source, alone.iterations.size, alone.samples.size) == ("gpu.log", 0, 400)


def test_recordings_are_recordings(folder: Path):
    Recording(np.zeros(2, SAMPLE), np.zeros(3, ITERATION), Metadata()).save(folder / "own.data")
    ((source, own),) = recordings([folder / "own.data"])
    assert (source, own.iterations.size) == (str(folder / "own.data"), 3)
    (folder / "cut.npz").write_bytes((folder / "own.data").read_bytes()[:100])
    with pytest.raises(RecordingError, match="not a whole gpuwarm recording"):
        recordings([folder / "cut.npz"])


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("hello", 'looks like text that begins "hello"; expected is a recording of gpuwarm, trtexec'),
        (
            "| NVIDIA-SMI 570.86  Driver Version: 570.86 |",
            "what nvidia-smi says of one moment: `gpuwarm check` takes it",
        ),
        ('[{"name": "conv", "averageMs": 0.1}]', "trtexec's --exportProfile"),
        ("", "is empty"),
    ],
)
def test_a_file_of_another_kind_is_named(tmp_path: Path, content: str, says: str):
    (tmp_path / "x").write_text(content)
    with pytest.raises(InputError, match=says.replace("|", r"\|")):
        recordings([tmp_path / "x"])


def test_what_cannot_be_read_or_joined_is_one_sentence(folder: Path):
    with pytest.raises(InputError, match=r"cannot read .*nothing: No such file or directory"):
        recordings([folder / "nothing"])
    with pytest.raises(InputError, match=r"--smi joins gpu\.log with what trtexec timed, and none of the files"):
        recordings([folder / "gpu.log"], smi=folder / "gpu.log")
