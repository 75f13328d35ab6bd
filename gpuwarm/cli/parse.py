"""What commands share in reading their arguments and in talking while they work."""

import math
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import typer

from gpuwarm.errors import InputError

DAY_S = 86_400.0  # no measurement is longer; also keeps "inf" out


def within(least: float, most: float, **option: Any) -> Any:
    """A typer option that takes a number within bounds; typer itself, up to 0.28, lets nan pass."""
    return typer.Option(min=least, max=most, callback=_no_nan, **option)


def _no_nan(value: float | list[float] | None) -> float | list[float] | None:
    values = value if isinstance(value, list) else [] if value is None else [value]
    if any(map(math.isnan, values)):
        raise typer.BadParameter("nan is not a number")
    return value


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
