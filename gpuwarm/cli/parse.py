"""What commands share in reading their arguments and in talking while they work."""

import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import typer

from gpuwarm.errors import InputError

DAY_S = 86_400.0  # no measurement is longer; also keeps "inf" out


def within(least: float, most: float, *, unit: str, help: str) -> Any:  # noqa: A002 -- typer's name for it
    """A typer option that takes a number within bounds, which its help leaves out; typer itself lets nan pass."""

    def checked(value: float | list[float] | None) -> float | list[float] | None:
        values = value if isinstance(value, list) else [] if value is None else [value]
        if not all(least <= each <= most for each in values):
            raise typer.BadParameter(f"a number from {least:g} to {most:g} is needed")
        return value

    return typer.Option(metavar=unit, help=help, callback=checked)


def named_shapes(arguments: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """`name:1x3x224x224`, each; the name may hold colons.

    Raises:
        InputError: not of that form.
    """
    shapes = {}
    for argument in arguments:
        name, _, sizes = argument.rpartition(":")
        if not name or not all(size.isdecimal() and int(size) > 0 for size in sizes.split("x")):
            raise InputError(f"--shape {argument!r} is not a shape: write it as --shape images:1x3x224x224")
        shapes[name] = tuple(int(size) for size in sizes.split("x"))
    return shapes


def named_files(arguments: Sequence[str]) -> dict[str, Path]:
    """`name=file.npy`, each.

    Raises:
        InputError: not of that form, or no such file.
    """
    files = {}
    for argument in arguments:
        name, _, path = argument.partition("=")
        if not name or not path:
            raise InputError(f"--input {argument!r} is not an input: write it as --input ids=ids.npy")
        if not Path(path).is_file():
            raise InputError(f"--input {argument!r}: there is no file {path}; save one with numpy.save")
        files[name] = Path(path)
    return files


def default_output(model: str | None, simulate: str | None) -> Path:
    """A recording's name that says what it is and when it was made."""
    stem = Path(model).stem if model is not None else "bundled"
    now = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return Path("-".join(filter(None, ("gpuwarm", simulate, stem, now))) + ".npz")


def progress(sentence: str) -> None:
    """Say what goes on, to a person; nothing where nobody watches."""
    if sys.stderr.isatty():
        typer.echo(sentence, err=True)
