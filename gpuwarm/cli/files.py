"""How the commands that show one recording read it, and write what they made of it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwarm.errors import InputError

if TYPE_CHECKING:
    from gpuwarm.recording import Recording

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="A recording; or trtexec's log, --exportTimes or both, and an nvidia-smi log.",
    ),
]


def only_recording(files: Sequence[Path]) -> tuple[str, "Recording"]:
    """The one recording that some files tell, whatever made them, and what it is from.

    Raises:
        InputError: they tell none, or several.
        RecordingError: a recording is damaged.
    """
    from gpuwarm.read.files import recordings

    found = recordings(files)
    if len(found) != 1:
        names = ", ".join(str(path) for path in files)
        raise InputError(f"{names}: {len(found)} runs, and one is shown at a time: name the files of one")
    return found[0]


def write(path: Path, pieces: Iterable[bytes]) -> None:
    """Write a file, its folder too where that is missing.

    Raises:
        InputError: the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            file.writelines(pieces)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place with --output") from error
