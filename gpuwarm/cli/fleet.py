"""`gpuwarm fleet merge`."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.check import EXIT_FINDINGS, FailOn, known_ids
from gpuwarm.errors import InputError

if TYPE_CHECKING:
    from gpuwarm.analysis.checks.report import Report

EXIT_UNREADABLE = 1  # some machines' files could not be used
fleet = typer.Typer(
    help="Many machines, from the JSON that `gpuwarm check --json` printed on each.", no_args_is_help=True
)
app.add_typer(fleet, name="fleet")


@fleet.callback()
def _fleet() -> None:
    pass


@fleet.command()
def merge(
    places: Annotated[list[Path], typer.Argument(metavar="DIR_OR_FILE", help="Folders of .json files, or files.")],
    ignore: Annotated[str, typer.Option(metavar="ID,...", help="Leave these findings out.")] = "",
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 3 for findings as bad as this.")] = FailOn.error,
    json: Annotated[bool, typer.Option("--json", help="Print the contract gpuwarm.fleet/1.")] = False,
) -> None:
    """Group machines by what was found on them, and name those unlike their kind."""
    from gpuwarm.analysis import fleet as fleets
    from gpuwarm.analysis.finding import at_or_above
    from gpuwarm.show import machine, terminal

    unwanted = known_ids(ignore)
    reports = {str(path): _report(path) for path in _files(places)}
    readable = {name: checked for name, checked in reports.items() if checked is not None}
    merged = fleets.merge(readable, ignore=unwanted, unreadable=[name for name in reports if name not in readable])
    if json:
        typer.echo(fleets.encode(merged))
    else:
        terminal.say(machine.fleet(merged))
    if any(severity in at_or_above(fail_on.value) for group in merged.groups for _, severity in group.findings):
        raise typer.Exit(EXIT_FINDINGS)
    if merged.unreadable:
        raise typer.Exit(EXIT_UNREADABLE)


def _report(path: Path) -> "Report | None":
    """None for a file that cannot be used; one machine's trouble must not hide the others."""
    from gpuwarm.analysis.checks import report

    try:
        return report.decode(path.read_bytes(), str(path))
    except (InputError, OSError) as error:
        typer.echo(f"gpuwarm: {error}", err=True)
        return None


def _files(places: Iterable[Path]) -> Iterator[Path]:
    for place in places:
        if place.is_dir():
            found = sorted(place.rglob("*.json"))
            if not found:
                raise InputError(f"there is no .json file in {place}: put the output of `gpuwarm check --json` there")
            yield from found
        elif place.is_file():
            yield place
        else:
            raise InputError(f"there is no {place}: give folders or files with the output of `gpuwarm check --json`")
