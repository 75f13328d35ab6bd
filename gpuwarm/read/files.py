"""Whatever file a user has -> recordings, told by its content and never by its name."""

import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from gpuwarm.errors import InputError
from gpuwarm.read import nvidia_smi, trtexec
from gpuwarm.read.join import join
from gpuwarm.read.looks import looks_like
from gpuwarm.read.smi_log import Samples
from gpuwarm.read.text import plain_lines, utf8
from gpuwarm.read.trtexec import Trace
from gpuwarm.recording import Recording

STANDARD_INPUT = Path("-")
_ARCHIVE = b"PK"  # a recording is a zip archive of arrays


def recordings(
    paths: Sequence[Path],
    *,
    smi: Path | None = None,
    offset_ms: float | None = None,
    gpu: str | None = None,
    columns: str | None = None,
) -> tuple[tuple[str, Recording], ...]:
    """All that some files tell: gpuwarm's recordings, trtexec's logs and times, nvidia-smi's logs.

    A trtexec log lends a times file among them what it knows of the run. One nvidia-smi log is joined with what was
    timed beside it; several, or one alone, stand for themselves. Each recording comes with the name of its file.

    Args:
        paths: the files; `-` is standard input.
        smi: an nvidia-smi log to join with what trtexec timed.
        offset_ms: from that log's first row to the begin of inference, where the user knows it.
        gpu: of a log of several GPUs the one to take: index, bus id or UUID.
        columns: of a log without header the fields, as in --query-gpu.

    Raises:
        InputError: a file is none of these, or cannot be read or joined.
        RecordingError: a recording is damaged.
    """
    own: list[tuple[str, Recording]] = []
    of_trtexec: list[tuple[str, bytes]] = []
    sampled: list[Samples] = []
    for path in paths:
        if path.is_dir() or (not path.exists() and path.with_suffix(".part").is_dir()):
            own.append((str(path), Recording.load(path)))
            continue
        data = content(path)
        if data.startswith(_ARCHIVE):
            own.append((str(path), Recording.load(path)))
        elif trtexec.recognise(data, path.name):
            of_trtexec.append((path.name, data))
        else:
            sampled.append(_samples(path, data, gpu, columns))
    traces = trtexec.traces(of_trtexec)
    if smi is not None:
        if not traces:
            raise InputError(f"--smi joins {smi.name} with what trtexec timed, and none of the files is trtexec's")
        beside = _samples(smi, content(smi), gpu, columns)
        found = [*_joined(traces, beside, offset_ms), *(each.recording for each in sampled)]
    elif traces and len(sampled) == 1:
        found = _joined(traces, sampled[0], offset_ms)
    else:
        found = [*(trace.recording for trace in traces), *(each.recording for each in sampled)]
    return (*own, *((recording.meta.source or "", recording) for recording in found))


def content(path: Path) -> bytes:
    """A file's bytes, or standard input's for `-`.

    Raises:
        InputError: it cannot be read.
    """
    try:
        return sys.stdin.buffer.read() if path == STANDARD_INPUT else path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; look at its path and permissions") from error


def _samples(path: Path, data: bytes, gpu: str | None, columns: str | None) -> Samples:
    found = nvidia_smi.samples(data, path.name, gpu=gpu, columns=columns)
    if found is None:
        looks = looks_like("\n".join(plain_lines(utf8(data, path.name))))
        raise InputError(
            f"{path.name} looks like {looks}; expected is a recording of gpuwarm, trtexec's log or --exportTimes, "
            "or a log of `nvidia-smi --query-gpu=... -lms 100` or `nvidia-smi dmon`"
        )
    return found


def _joined(traces: Sequence[Trace], beside: Samples, offset_ms: float | None) -> list[Recording]:
    """Each run beside the log's states; one GPU's log shows one run at a time."""
    found = [join(trace, beside, offset_ms=offset_ms) for trace in traces]
    by_begin = sorted(found, key=lambda recording: -int(recording.samples["t_ns"][0]))
    for one, other in pairwise(by_begin):
        later_ns = int(one.samples["t_ns"][0] - other.samples["t_ns"][0])
        if later_ns < int(one.iterations["t_ns"][-1]):
            raise InputError(
                f"{one.meta.source} and {other.meta.source} would have run at the same time: which of them the load in "
                "the log is of cannot be told; give the times of one alone"
            )
    return found
