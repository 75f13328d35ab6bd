"""Sample a GPU while any command runs, or for a time."""

import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO, BinaryIO

from gpuwarm.errors import DeviceError, GpuwarmError, InputError
from gpuwarm.metadata import Mark, Metadata, Start
from gpuwarm.recording import Recording
from gpuwarm.studies.bench import Bench, Progress
from gpuwarm.studies.device import Device

AFTER_S = 3.0  # at most, until the GPU rests again: an H200's clocks fall after 1 s, and the command's caller waits
DRAIN_S = 1.0  # for what a command left in its pipe; a grandchild may hold that open for ever
SIGNAL_EXIT = 128  # a shell's exit code for a command that signal N ended is 128 + N


@dataclass(frozen=True)
class Protocol:
    """What `record` does around a command."""

    output: Path  # the recording
    command_line: str  # gpuwarm's own
    period_ms: float | None = None  # of sampling; None: half of the sensors' refresh period, once that is seen


@dataclass(frozen=True)
class Ran:
    """How a command ran; times are of CLOCK_MONOTONIC, as the samples'."""

    began_ns: int
    ended_ns: int
    exit_code: int  # as a shell tells it
    lines: tuple[tuple[int, bytes], ...] = ()  # of its standard output, and when each came; where they were kept


@dataclass(frozen=True)
class Recorded:
    """What came of a command that was run."""

    ran: Ran
    recording: Recording | None  # None: it could not be kept
    trouble: GpuwarmError | None = None  # why


def record_for(device: Device, duration_s: float, protocol: Protocol, progress: Progress) -> Recording:
    """Sample for a time.

    Raises:
        GpuwarmError: with the sentence to show.
        KeyboardInterrupt: after what was sampled has been written.
    """
    with _bench(device, protocol, progress):
        time.sleep(duration_s)
    return Recording.load(protocol.output)


def record_command(
    device: Device,
    command: Sequence[str],
    protocol: Protocol,
    *,
    shown: BinaryIO,
    keep_lines: bool,
    progress: Progress,
) -> Recorded:
    """Sample while a command runs, from rest before it to rest after it, or a little after it.

    Args:
        device: the GPU to sample.
        command: what to run; it sees the environment, the terminal and the signals it would see without gpuwarm.
        protocol: how to sample, and where to.
        shown: where the command's standard output goes.
        keep_lines: also return that output.
        progress: told what goes on.

    Raises:
        GpuwarmError: the command was not run; the sentence says why.
    """
    ran = None
    try:
        with _bench(device, protocol, progress) as bench:
            before_us = device.counters_us()
            ran = run(command, shown, keep_lines=keep_lines)
            _describe(bench, ran, before_us)
            with suppress(KeyboardInterrupt):  # whoever ended the command need not wait for this either
                bench.settle(AFTER_S)
        return Recorded(ran, Recording.load(protocol.output))
    except GpuwarmError as error:
        if ran is None:
            raise
        return Recorded(ran, None, error)


def _describe(bench: Bench, ran: Ran, before_us: dict[str, int]) -> None:
    """Keep what is known about the command."""
    marks = (Mark("process_start", ran.began_ns), Mark("process_end", ran.ended_ns))
    start = Start(marks=marks, counters_before_us=before_us)
    try:
        start = replace(start, counters_after_us=bench.device.counters_us())
    except DeviceError as error:
        bench.note(f"the GPU could not be looked at afterwards: {error}")
    bench.keep(replace(bench.meta, starts=(start,)))
    if ran.exit_code:
        bench.note(f"the command ended with exit code {ran.exit_code}")


@contextmanager
def _bench(device: Device, protocol: Protocol, progress: Progress) -> Iterator[Bench]:
    meta = Metadata(command=protocol.command_line, simulated=device.simulate)
    with Bench(device, protocol.output, meta, progress, states_suffice=True) as bench:
        bench.begin_sampling(protocol.period_ms)
        yield bench


def run(command: Sequence[str], shown: BinaryIO, *, keep_lines: bool) -> Ran:
    """Run a command to its end.

    Raises:
        InputError: it cannot be run.
    """
    began_ns = time.monotonic_ns()
    try:
        process = subprocess.Popen(command, stdout=subprocess.PIPE if keep_lines else shown)
    except OSError as error:
        raise InputError(f"cannot run {command[0]}: {error.strerror}; name a program after --") from error
    with _signals_passed_to(process), _lines_passed(process.stdout, shown) as lines:
        code = process.wait()
        ended_ns = time.monotonic_ns()
    return Ran(began_ns, ended_ns, code if code >= 0 else SIGNAL_EXIT - code, tuple(lines))


@contextmanager
def _lines_passed(pipe: IO[bytes] | None, shown: BinaryIO) -> Iterator[list[tuple[int, bytes]]]:
    """Show what comes out of a pipe, and gather its lines and when each came; without a pipe there are none."""
    lines: list[tuple[int, bytes]] = []
    if pipe is None:
        yield lines
        return

    def pass_on() -> None:
        watched = True
        with pipe:
            for line in pipe:
                lines.append((time.monotonic_ns(), line))
                try:
                    watched = watched and shown.write(line) is not None
                except OSError:  # nobody reads any more; the command goes on
                    watched = False

    reader = threading.Thread(target=pass_on, daemon=True)
    reader.start()
    yield lines
    reader.join(DRAIN_S)


@contextmanager
def _signals_passed_to(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    """While a command runs, signals to gpuwarm are for the command, which says by its end what becomes of them."""

    def pass_on(number: int, frame: FrameType | None) -> None:
        del frame
        if number != signal.SIGINT or not _terminal_tells_all():
            process.send_signal(number)

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:  # as under nohup; the command ignores it, too
            before[number] = signal.signal(number, pass_on)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _terminal_tells_all() -> bool:
    """Whether a Ctrl-C at the terminal reaches the command without us: it does for all processes in the foreground."""
    try:
        with Path("/dev/tty").open("rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
