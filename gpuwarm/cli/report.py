"""`gpuwarm report`."""

from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import Tolerance, WarmupMs


@app.command()
def report(
    recording: Annotated[Path, typer.Argument(help="A recording made by `gpuwarm run`.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The HTML file.")] = Path("report.html"),
    tolerance: Tolerance = 1.0,
    warmup_ms: WarmupMs = None,
) -> None:
    """Write one HTML file with the answer, what it rests on, the figures, and how it was measured."""
    from gpuwarm.analysis import advice
    from gpuwarm.cli.analyze import recording_of
    from gpuwarm.cli.files import write
    from gpuwarm.show import html

    loaded = recording_of(recording)
    answer = advice.of(loaded, tolerance=tolerance / 100, warmup_ms=warmup_ms or (), source=str(recording))
    write(output, [html.page(loaded, answer).encode()])
    typer.echo(output)
