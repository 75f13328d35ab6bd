"""How the commands that show one recording read it, and write what they made of it."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwarm.cli.parse import within
from gpuwarm.errors import InputError

if TYPE_CHECKING:
    from gpuwarm.analysis.answers import Answer
    from gpuwarm.recording import Recording

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="A recording; or trtexec's log, --exportTimes or both, and an nvidia-smi log.",
    ),
]

LONGEST_LOG_MS = 1e12  # thirty years; also keeps "inf" out

# How trtexec's files are joined with an nvidia-smi log.
Smi = Annotated[Path | None, typer.Option(metavar="FILE", help="An nvidia-smi log written while trtexec ran, to join.")]
OffsetMs = Annotated[
    float | None,
    within(
        -LONGEST_LOG_MS,
        LONGEST_LOG_MS,
        unit="MS",
        help="When inference began, after the first row of that log.",
    ),
]
LogGpu = Annotated[
    str | None, typer.Option("--gpu", metavar="GPU", help="Of an nvidia-smi log: which GPU, by index, bus id or UUID.")
]
LogColumns = Annotated[
    str | None,
    typer.Option("--columns", metavar="FIELDS", help="Of an nvidia-smi log without header: its --query-gpu."),
]


def only_recording(
    files: Sequence[Path],
    *,
    smi: Path | None = None,
    offset_ms: float | None = None,
    gpu: str | None = None,
    columns: str | None = None,
) -> tuple[str, "Recording"]:
    """The one recording that some files tell, whatever made them, and what it is from.

    Raises:
        InputError: they tell none, or several.
        RecordingError: a recording is damaged.
    """
    from gpuwarm.read.files import recordings

    found = recordings(files, smi=smi, offset_ms=offset_ms, gpu=gpu, columns=columns)
    if len(found) != 1:
        names = ", ".join(str(path) for path in files)
        raise InputError(f"{names}: {len(found)} runs, and one is shown at a time: name the files of one")
    return found[0]


def report_at(place: Path, *, wanted: bool) -> Path | None:
    """Where the report beside a recording goes; None where nobody wants one.

    Raises:
        InputError: something is there already.
    """
    page = place.with_suffix(".html")
    if wanted and page.exists():
        raise InputError(f"{page} exists, and the report would replace it: choose another name with --output")
    return page if wanted else None


def write_report(page: Path, recording: "Recording", answer: "Answer") -> None:
    """Write what `gpuwarm report` would.

    Raises:
        InputError: the place cannot be written.
    """
    from gpuwarm.show import html

    write(page, [html.page(recording, answer).encode()])


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
