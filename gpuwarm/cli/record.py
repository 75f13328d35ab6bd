"""`gpuwarm record`."""

import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, Tolerance, WarmupMs, show
from gpuwarm.cli.engine import GpuName, Output, PeriodMs, Simulate, device_for, recording_at
from gpuwarm.cli.parse import DAY_S, progress, within
from gpuwarm.errors import InputError

if TYPE_CHECKING:
    from gpuwarm.recording import Recording
    from gpuwarm.studies.record import Ran

EXIT_NOT_FOUND = 127  # as shells and env have it
Adapt = Annotated[
    bool | None,
    typer.Option(
        "--adapt/--no-adapt",
        help="Change trtexec's flags so that all of its warm-up is seen; left out: ask, at a terminal.",
    ),
]


@app.command(context_settings={"allow_interspersed_args": False})  # what follows the command's name is the command's
def record(
    command: Annotated[
        list[str] | None, typer.Argument(metavar="-- COMMAND...", help="Any program with its arguments.")
    ] = None,
    output: Output = None,
    duration: Annotated[
        float | None, within(0.001, DAY_S, unit="SECONDS", help="Without a command: how long to watch.")
    ] = None,
    adapt: Adapt = None,
    simulate: Simulate = None,
    gpu: GpuName = None,
    period_ms: PeriodMs = None,
    tolerance: Tolerance = 1.0,
    warmup_ms: WarmupMs = None,
    as_json: AsJson = False,
) -> None:
    """Watch the GPU while any command runs, and exit with that command's exit code.

    The command's output stays what it is: what gpuwarm says goes to stderr. With --json the answer alone is on stdout,
    and the command's output on stderr. What trtexec times is joined with what was watched.
    """
    from gpuwarm.analysis import advice
    from gpuwarm.studies.record import Protocol, record_command, record_for

    if bool(command) == (duration is not None):
        raise InputError("give a command, as in `gpuwarm record -- python serve.py`, or else --duration")
    if command and shutil.which(command[0]) is None:
        typer.echo(f"gpuwarm: {command[0]} is no program that can be run here: name one after --", err=True)
        raise typer.Exit(EXIT_NOT_FOUND)
    place = recording_at(output, Path(command[0]).name if command else "record", simulate)
    times = place.with_suffix(".times.json")
    chosen = _chosen(command or [], times, adapt=adapt, gpu=gpu)
    device = device_for(gpu, simulate, place)
    protocol = Protocol(place, shlex.join(["gpuwarm", *sys.argv[1:]]), period_ms)

    def answer(recording: "Recording", *, err: bool) -> None:
        progress(f"recording: {place}")
        found = advice.of(recording, tolerance=tolerance / 100, warmup_ms=warmup_ms or (), source=str(place))
        show([found], as_json=as_json, err=err)

    if duration is not None:
        answer(record_for(device, duration, protocol, progress), err=False)
        return
    with open((sys.stderr if as_json else sys.stdout).fileno(), "wb", buffering=0, closefd=False) as shown:
        recorded = record_command(
            device, chosen, protocol, shown=shown, keep_lines=_is_trtexec(chosen), progress=progress
        )
    if recorded.recording is not None:
        recording = _with_times(recorded.recording, recorded.ran, chosen, place)
        answer(recording, err=not as_json)
    if recorded.trouble is not None:
        typer.echo(f"gpuwarm: {recorded.trouble}", err=True)
    raise typer.Exit(recorded.ran.exit_code or (recorded.trouble.exit_code if recorded.trouble else 0))


def _is_trtexec(command: Sequence[str]) -> bool:
    from gpuwarm.studies import trtexec

    return trtexec.place(command) is not None


def _chosen(command: Sequence[str], times: Path, *, adapt: bool | None, gpu: str | None) -> Sequence[str]:
    """The command to run: of trtexec, with the flags that it lacks, where the user agrees.

    Raises:
        InputError: trtexec runs on another GPU than the one that would be watched.
    """
    from gpuwarm.studies import trtexec

    if trtexec.place(command) is None:
        if adapt and command:
            typer.echo("gpuwarm: no word of the command is trtexec, so --adapt changes nothing", err=True)
        return command
    device = trtexec.value(command, "--device")
    if gpu is None and device not in (None, "0"):
        raise InputError(f"--device={device} counts GPUs as CUDA does: name the one to watch with --gpu")
    if adapt is False:
        return command
    changed = trtexec.adapted(command, times)
    if changed == tuple(command):
        return command
    line = shlex.join(changed)
    if adapt is None and sys.stdin.isatty() and sys.stderr.isatty():
        typer.echo(f"All of trtexec's warm-up is seen with\n  {line}", err=True)
        adapt = typer.confirm("Run that instead?", default=True, err=True)
    elif adapt is None:
        typer.echo(f"gpuwarm: with --adapt all of trtexec's warm-up is seen, by running `{line}`", err=True)
    else:
        typer.echo(f"gpuwarm: running `{line}`", err=True)
    return changed if adapt else command


def _with_times(recording: "Recording", ran: "Ran", command: Sequence[str], place: Path) -> "Recording":
    """The recording with trtexec's times, where it has any."""
    from gpuwarm.studies import trtexec

    if not _is_trtexec(command):
        return recording
    exported = trtexec.value(command, trtexec.EXPORT)
    try:
        found = trtexec.joined(recording, ran, Path(exported) if exported else None)
    except InputError as error:
        typer.echo(f"gpuwarm: trtexec's times are left out: {error}", err=True)
        return recording
    found.save(place)
    return found
