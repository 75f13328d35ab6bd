"""`gpuwarm analyze`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, Required, Tolerance, WarmupMs, give

if TYPE_CHECKING:
    from gpuwarm.recording import Recording


@app.command()
def analyze(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Recordings; each is answered by itself.")],
    warmup_ms: WarmupMs = None,
    tolerance: Tolerance = 1.0,
    as_json: AsJson = False,
    required: Required = None,
) -> None:
    """Say how long to warm up, and why, from what was measured."""
    from gpuwarm.analysis import advice

    answers = [
        advice.of(recording_of(path), tolerance=tolerance / 100, warmup_ms=warmup_ms or (), source=str(path))
        for path in files
    ]
    give(answers, as_json=as_json, required=required)


def recording_of(path: Path) -> "Recording":
    """The recording that a file holds, whatever made the file.

    Raises:
        RecordingError: it holds none.
    """
    from gpuwarm.recording import Recording

    return Recording.load(path)
