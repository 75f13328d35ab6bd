"""How commands write what they made."""

from collections.abc import Iterable
from pathlib import Path

from gpuwarm.errors import InputError


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
