"""`gpuwarm report`."""

from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import Tolerance, WarmupMs
from gpuwarm.cli.files import Files, LogColumns, LogGpu, OffsetMs, Smi, only_recording, write_report


@app.command()
def report(
    files: Files,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The HTML file.")] = Path(
        "report.html"
    ),
    tolerance: Tolerance = 1.0,
    smi: Smi = None,
    offset_ms: OffsetMs = None,
    gpu: LogGpu = None,
    columns: LogColumns = None,
    warmup_ms: WarmupMs = None,
) -> None:
    """Write one HTML file with the answer, what it rests on, the figures, and how it was measured."""
    from gpuwarm.analysis import answers

    source, loaded = only_recording(files, smi=smi, offset_ms=offset_ms, gpu=gpu, columns=columns)
    answer = answers.of(loaded, tolerance=tolerance / 100, warmup_ms=warmup_ms or (), source=source)
    write_report(output, loaded, answer)
    typer.echo(output)
