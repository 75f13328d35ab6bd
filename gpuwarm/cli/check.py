"""`gpuwarm check`."""

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwarm.cli import app

if TYPE_CHECKING:
    from gpuwarm.analysis.checks.report import Report
    from gpuwarm.machine import MachineState

EXIT_FINDINGS = 3  # findings at or above --fail-on, or a machine unlike its baseline


class FailOn(str, Enum):
    """The mildest finding that makes a script stop."""

    warning = "warning"
    error = "error"


def known_ids(identifiers: str) -> tuple[str, ...]:
    """Ids of findings, separated by commas; one that does not exist is a mistake in the command line."""
    import difflib

    from gpuwarm.analysis.checks import ABOUT

    given = tuple(part.strip() for part in identifiers.split(",") if part.strip())
    for identifier in given:
        if identifier not in ABOUT:
            near = difflib.get_close_matches(identifier, ABOUT, n=1)
            instead = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(ABOUT))}"
            raise typer.BadParameter(f"there is no finding {identifier!r}; {instead}")
    return given


def _explain(identifiers: str | None) -> None:
    """Print what findings mean, and end."""
    if identifiers is None:
        return
    from gpuwarm.analysis.checks import ABOUT
    from gpuwarm.show.machine import about

    typer.echo("\n\n".join(about(identifier, ABOUT[identifier]) for identifier in known_ids(identifiers)))
    raise typer.Exit


@app.command()
def check(
    source: Annotated[
        str | None,
        typer.Argument(metavar="FILE|-", help="What nvidia-smi or check --json printed; left out: this machine."),
    ] = None,
    *,
    gpu: Annotated[
        str | None, typer.Option(metavar="GPU", help="Index, UUID or PCI bus id, as nvidia-smi prints them.")
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="FIELD,...", help="Of a log without header: what --query-gpu asked for.")
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Time the driver's start in fresh processes; changes nothing.")
    ] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until two minutes after boot.")] = False,
    baseline: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Compare with this --json of a machine known to be good.")
    ] = None,
    only: Annotated[str, typer.Option(metavar="ID,...", help="Report these findings alone.")] = "",
    ignore: Annotated[str, typer.Option(metavar="ID,...", help="Leave these findings out; the output says so.")] = "",
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 3 for findings as bad as this.")] = FailOn.error,
    brief: Annotated[bool, typer.Option("--brief", help="A line for each GPU.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print the contract gpuwarm.check/1.")] = False,
    about: Annotated[
        str | None,
        typer.Option(metavar="ID", callback=_explain, is_eager=True, help="Explain a finding, and do nothing else."),
    ] = None,
) -> None:
    """Say whether a machine is set up right: this one, or the one that nvidia-smi's output comes from."""
    from gpuwarm.analysis import checks
    from gpuwarm.analysis.checks import baseline as compare
    from gpuwarm.analysis.checks import report
    from gpuwarm.analysis.finding import at_or_above, worst_first

    del about
    wanted, unwanted = known_ids(only), known_ids(ignore)
    good = None if baseline is None else report.decode(_bytes(baseline), str(baseline))
    if source is None:
        if columns is not None:
            raise typer.BadParameter("--columns is for a file, not for this machine")
        machine = _live(gpu, measure=measure, wait=wait)
    else:
        if measure or wait:
            raise typer.BadParameter("--measure and --wait are for this machine, not for a file")
        machine = _from_file(source, gpu=gpu, columns=columns)
    found = checks.findings(machine)
    if good is not None:
        found = worst_first([*compare.differences(good, machine), *found])
    checked = report.report(machine, found, only=wanted, ignore=unwanted)
    _print(checked, json=json, brief=brief)
    if any(finding.severity in at_or_above(fail_on.value) for finding in checked.findings):
        raise typer.Exit(EXIT_FINDINGS)
    if any(finding.id in compare.ABOUT for finding in checked.findings):
        raise typer.Exit(EXIT_FINDINGS)


def _from_file(source: str, *, gpu: str | None, columns: str | None) -> "MachineState":
    from gpuwarm.analysis.checks import narrowed, report
    from gpuwarm.read import nvidia_smi

    data = sys.stdin.buffer.read() if source == "-" else _bytes(Path(source))
    name = "stdin" if source == "-" else source
    if report.recognise(data):
        state = report.machine(report.decode(data, name), name)
    else:
        state = nvidia_smi.machine_state(data, name, columns=columns)
    return state if gpu is None else narrowed(state, gpu)


def _live(gpu: str | None, *, measure: bool, wait: bool) -> "MachineState":
    from gpuwarm.analysis.checks.persistence import JUST_BOOTED_S
    from gpuwarm.measure import live

    if wait:
        live.wait_for_boot(JUST_BOOTED_S)
    state = live.machine_state(gpu)
    return live.with_driver_load(state) if measure else state


def _bytes(path: Path) -> bytes:
    from gpuwarm.errors import InputError

    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(
            f"{path} cannot be read ({error.strerror}): give a file with what nvidia-smi or `check --json` printed"
        ) from error


def _print(checked: "Report", *, json: bool, brief: bool) -> None:
    from gpuwarm.analysis.checks import report

    if json:
        typer.echo(report.encode(checked))
        return
    from gpuwarm.show import machine, terminal

    if brief:
        typer.echo("\n".join(machine.brief(checked)))
    else:
        terminal.say(machine.machine(checked))
