"""What the commands that end with an answer share: their options, how it is printed, and the exit code."""

import json
from collections.abc import Sequence
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuwarm.cli.parse import DAY_S, within

if TYPE_CHECKING:
    from gpuwarm.analysis.advice import Advice
    from gpuwarm.analysis.explained import Explanation
    from gpuwarm.analysis.idled import Idleness

EXIT_NOT_ACCEPTED = 4  # no steady state, or a verdict below --require


class Require(str, Enum):
    """The worst verdict that is good enough."""

    trusted = "trusted"
    degraded = "degraded"


WarmupMs = Annotated[
    list[float] | None,
    within(0, 1e3 * DAY_S, unit="MS", help="Another warm-up length to judge; may be repeated."),
]
Tolerance = Annotated[float, within(0.05, 50, unit="PERCENT", help="Steady is what stays this near to its own level.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print the answer as JSON.")]
Required = Annotated[
    Require | None,
    typer.Option("--require", metavar="VERDICT", help="Exit with 4 where it is worse than this: trusted or degraded."),
]


def give(answers: Sequence["Advice"], *, as_json: bool, required: Require | None) -> None:
    """Print answers; JSON is one object, or a list where there are several.

    Raises:
        typer.Exit: with 4 where one has no steady state or too bad a verdict.
    """
    from gpuwarm.analysis.advice import accepted

    show(answers, as_json=as_json)
    if not all(accepted(answer, required.value if required else None) for answer in answers):
        raise typer.Exit(EXIT_NOT_ACCEPTED)


def show(answers: Sequence["Advice"], *, as_json: bool, err: bool = False) -> None:
    """Print answers to stdout or stderr, whatever they say."""
    from gpuwarm.analysis.advice import to_json
    from gpuwarm.show import terminal, text

    if as_json:
        objects = [to_json(answer) for answer in answers]
        typer.echo(json.dumps(objects[0] if len(objects) == 1 else objects, indent=2), err=err)
        return
    for number, answer in enumerate(answers):
        if number:
            typer.echo(err=err)
        if len(answers) > 1:
            typer.echo(f"{answer.source}:", err=err)
        terminal.say(text.answer(answer), err=err)


def show_study(found: "Explanation | Idleness", content: dict[str, Any], *, as_json: bool) -> None:
    """Print what a study found, or its content under the names of its contract."""
    from gpuwarm.show import terminal, text

    if as_json:
        typer.echo(json.dumps(content, indent=2))
    else:
        terminal.say(text.answer(found))
