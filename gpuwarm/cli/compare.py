"""`gpuwarm compare`."""

import json
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, Tolerance
from gpuwarm.cli.files import only_recording

EXIT_FAILED = 3


class FailOn(str, Enum):
    """What B may not be; each includes those before it, and two recordings that cannot be compared."""

    slower = "slower"
    different = "different"
    undecided = "undecided"


FAILURES = {
    FailOn.slower: {"not_comparable", "slower"},
    FailOn.different: {"not_comparable", "slower", "faster"},
    FailOn.undecided: {"not_comparable", "slower", "faster", "undecided"},
}


@app.command()
def compare(
    a: Annotated[Path, typer.Argument(metavar="A", help="A recording, or trtexec's log or --exportTimes.")],
    b: Annotated[Path, typer.Argument(metavar="B", help="The one to judge against it.")],
    tolerance: Tolerance = 1.0,
    fail_on: Annotated[FailOn, typer.Option(help="Exit with 3 where B is this.")] = FailOn.slower,
    as_json: AsJson = False,
) -> None:
    """Is B as fast as A once warm, and what else differs?"""
    from gpuwarm.analysis.compare import compare as compared
    from gpuwarm.analysis.compare import to_json
    from gpuwarm.show import comparison, terminal

    recordings = [only_recording([path])[1] for path in (a, b)]
    found = compared(*recordings, tolerance=tolerance / 100, sources=(str(a), str(b)))
    if as_json:
        typer.echo(json.dumps(to_json(found), indent=2))
    else:
        terminal.say(comparison.page(found))
    if found.outcome in FAILURES[fail_on]:
        raise typer.Exit(EXIT_FAILED)
