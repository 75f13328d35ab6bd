"""trtexec under `gpuwarm record`: what to change in its command line, and what it timed, among the samples."""

import shutil
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path, PurePath

import numpy as np

from gpuwarm.metadata import Metadata
from gpuwarm.read import trtexec
from gpuwarm.read.join import Alignment, Bounds, align, stranger
from gpuwarm.read.smi_log import Samples
from gpuwarm.recording import ITERATION, Recording
from gpuwarm.studies.record import Ran

NAMES = ("trtexec", "trtexec.exe", "tensorrt_rtx")
EXPORT, WARM_UP, NO_GRAPH = "--exportTimes", "--warmUp", "--noCudaGraph"
_WITHOUT_INFERENCE = ("--buildOnly", "--skipInference", "--help", "-h")
_HELP_S = 30.0  # loading TensorRT's libraries from a cold disk takes seconds
# trtexec's last line before it infers, and its first ones after that; it flushes each.
BEFORE_INFERENCE = b"Starting inference"
AFTER_INFERENCE = (b"Warmup completed", b"Timing trace has")
LINE_LATE_NS = 10_000_000  # by which a line may be seen after it was written, on a busy host
FILE_TIME_S = 2.0  # the coarsest step of files' times, FAT's


def place(command: Sequence[str]) -> int | None:
    """Which word of a command is trtexec, also behind numactl and the like; None where none is."""
    return next((at for at, word in enumerate(command) if PurePath(word).name in NAMES), None)


def adapted(command: Sequence[str], times: Path) -> tuple[str, ...]:
    """The command with what shows all of trtexec's warm-up; the same where it shows that already.

    Args:
        command: of trtexec, somewhere.
        times: file for its times, where the command names none.
    """
    at = place(command)
    if at is None or any(word in _WITHOUT_INFERENCE for word in command[at:]):
        return tuple(command)
    head, flags = command[: at + 1], command[at + 1 :]
    changed = [word for word in flags if not word.startswith(f"{WARM_UP}=")] + [f"{WARM_UP}=0"]
    if value(command, WARM_UP) == "0":
        changed = list(flags)
    if value(command, EXPORT) is None:
        changed.append(f"{EXPORT}={times}")
    if not any(word in (NO_GRAPH, "--useCudaGraph") for word in flags) and _knows(command[at], NO_GRAPH):
        changed.append(NO_GRAPH)
    return (*head, *changed)


def value(command: Sequence[str], flag: str) -> str | None:
    """What a command says for a flag; the last one counts."""
    said = [word.removeprefix(f"{flag}=") for word in command if word.startswith(f"{flag}=")]
    return said[-1] if said else None


def _knows(program: str, flag: str) -> bool:
    """Whether this trtexec has a flag: an older one refuses to run with what it does not know."""
    if shutil.which(program) is None:  # within a container
        return False
    try:
        told = subprocess.run([program, "--help"], capture_output=True, stdin=subprocess.DEVNULL, timeout=_HELP_S)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return flag.encode() in told.stdout


def joined(recording: Recording, ran: Ran, times: Path | None) -> Recording:
    """A recording of states with what trtexec timed meanwhile.

    Args:
        recording: with monotonic time.
        ran: with the lines of trtexec's log.
        times: its --exportTimes.

    Raises:
        InputError: it timed nothing, or where among the samples that was cannot be told; the message is the reason.
    """
    files = [("trtexec's log", b"".join(line for _, line in ran.lines))]
    if times is not None and _written_during(times, ran):
        files.append((times.name, times.read_bytes()))
    trace = trtexec.traces(files)[0]  # of the times, where there are both
    zero_ns = int(recording.samples["t_ns"][0])
    found = align(trace, _from_zero(recording, zero_ns), windows=tuple(_windows(ran, zero_ns)))
    iterations = trace.recording.iterations.copy()
    iterations["t_ns"] += zero_ns + found.zero_ns
    meta = _about(recording.meta, trace.recording.meta, found)
    return Recording(recording.samples, iterations, replace(meta, notes=(*meta.notes, *stranger(trace, recording))))


def _written_during(times: Path, ran: Ran) -> bool:
    """Whether a file is there and not of an earlier run."""
    began_s = time.time() - (time.monotonic_ns() - ran.began_ns) * 1e-9
    return times.is_file() and times.stat().st_mtime > began_s - FILE_TIME_S


def _from_zero(recording: Recording, zero_ns: int) -> Samples:
    rows = recording.samples.copy()
    rows["t_ns"] -= zero_ns
    return Samples(Recording(rows, np.empty(0, ITERATION), recording.meta), None)


def _windows(ran: Ran, zero_ns: int) -> Iterator[Bounds]:
    """What inference lies within: two of trtexec's lines, if these came as they were written, and its process."""
    before = [t_ns for t_ns, line in ran.lines if BEFORE_INFERENCE in line]
    after = [t_ns for t_ns, line in ran.lines if any(word in line for word in AFTER_INFERENCE)]
    if before and after:
        yield Bounds(before[-1] - LINE_LATE_NS - zero_ns, after[0] - zero_ns)
    yield Bounds(ran.began_ns - zero_ns, ran.ended_ns - zero_ns)


def _about(meta: Metadata, timed: Metadata, found: Alignment) -> Metadata:
    words = f"trtexec's times were placed among the samples by {found.by}, +-{found.uncertainty_ms:.0f} ms"
    start = replace(
        timed.starts[0],
        marks=meta.starts[0].marks,
        counters_before_us=meta.starts[0].counters_before_us,
        counters_after_us=meta.starts[0].counters_after_us,
    )
    return replace(
        meta,
        source=f"{timed.source} + gpuwarm's samples",
        versions={**meta.versions, **timed.versions},
        workload=timed.workload,
        starts=(start,),
        inferences_per_row=timed.inferences_per_row,
        sampling=replace(meta.sampling, clock_uncertainty_ms=found.uncertainty_ms),
        notes=(words, *timed.notes, *meta.notes),
    )
