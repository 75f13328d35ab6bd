"""`gpuwarm export`."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import Tolerance
from gpuwarm.cli.files import Files, LogColumns, LogGpu, OffsetMs, Smi, only_recording, write


class Format(str, Enum):
    """What a recording is exported as."""

    csv = "csv"
    json = "json"
    perfetto = "perfetto"
    openmetrics = "openmetrics"


@app.command()
def export(
    files: Files,
    form: Annotated[
        Format,
        typer.Option(
            "--format",
            metavar="FORMAT",
            help="csv: inferences with the GPU's state; json: the whole recording; perfetto: a trace for "
            "ui.perfetto.dev; openmetrics: the answer as metrics.",
        ),
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Left out: standard output.")
    ] = None,
    tolerance: Tolerance = 1.0,
    smi: Smi = None,
    offset_ms: OffsetMs = None,
    gpu: LogGpu = None,
    columns: LogColumns = None,
) -> None:
    """Write a recording for other tools."""
    from gpuwarm.analysis import advice
    from gpuwarm.show.export import FORMATS

    source, loaded = only_recording(files, smi=smi, offset_ms=offset_ms, gpu=gpu, columns=columns)
    pieces = FORMATS[form.value](loaded, advice.of(loaded, tolerance=tolerance / 100, source=source))
    if output is None:
        for piece in pieces:
            typer.echo(piece, nl=False)
    else:
        write(output, (piece.encode() for piece in pieces))
