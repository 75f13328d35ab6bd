"""`gpuwarm plot`."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import Tolerance
from gpuwarm.cli.files import Files, LogColumns, LogGpu, OffsetMs, Smi, only_recording, write


class Kind(str, Enum):
    """What a figure is written as."""

    png = "png"
    svg = "svg"


class Name(str, Enum):
    """The figures there are."""

    timeline = "timeline"
    latency_by_state = "latency_by_state"
    cold_start = "cold_start"
    bias = "bias"
    causes = "causes"  # of `gpuwarm explain`
    pauses = "pauses"  # of `gpuwarm idle`


@app.command()
def plot(
    files: Files,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for the figures.")] = Path(),
    kind: Annotated[Kind, typer.Option("--format", help="Picture format.")] = Kind.png,
    figure: Annotated[
        list[Name] | None,
        typer.Option(metavar="FIGURE", help=f"Only this; may be repeated: {', '.join(each.value for each in Name)}."),
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Start shown by the timeline; left out: the longest to warm up."),
    ] = None,
    tolerance: Tolerance = 1.0,
    smi: Smi = None,
    offset_ms: OffsetMs = None,
    gpu: LogGpu = None,
    columns: LogColumns = None,
) -> None:
    """Draw latency beside GPU state, latency by state, cold starts, and the bias that a warm-up leaves."""
    from gpuwarm.analysis import answers
    from gpuwarm.errors import InputError
    from gpuwarm.show import plot as figures
    from gpuwarm.show.plot.look import NothingToShowError

    source, loaded = only_recording(files, smi=smi, offset_ms=offset_ms, gpu=gpu, columns=columns)
    answer = answers.of(loaded, tolerance=tolerance / 100, source=source)
    number = None if start is None else start - 1
    written = []
    for name in [each.value for each in figure or ()] or figures.names(answer):
        try:
            drawn = figures.draw(name, loaded, answer, start=number)
        except NothingToShowError as nothing:
            typer.echo(f"gpuwarm: no {name}: {nothing}", err=True)
            continue
        written.append(output / f"{files[0].stem}-{name}.{kind.value}")
        write(written[-1], [figures.encoded(drawn, kind.value)])
        typer.echo(written[-1])
    if not written:
        raise InputError(f"{source} holds nothing to draw: measure with `gpuwarm run`")
