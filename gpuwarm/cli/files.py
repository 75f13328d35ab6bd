"""How commands write what they made."""

from pathlib import Path

from gpuwarm.errors import InputError


def write(path: Path, content: bytes) -> None:
    """Write a file, its folder too where that is missing.

    Raises:
        InputError: the place cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}; choose another place with --output") from error
