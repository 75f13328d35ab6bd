"""`gpuwarm analyze`."""

from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, Required, Tolerance, WarmupMs, give
from gpuwarm.cli.files import LogColumns, LogGpu, OffsetMs, Smi
from gpuwarm.errors import InputError


@app.command()
def analyze(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Recordings, trtexec's logs or --exportTimes, nvidia-smi's logs; each is answered by itself.",
        ),
    ],
    warmup_ms: WarmupMs = None,
    tolerance: Tolerance = 1.0,
    as_json: AsJson = False,
    required: Required = None,
    smi: Smi = None,
    offset_ms: OffsetMs = None,
    gpu: LogGpu = None,
    columns: LogColumns = None,
) -> None:
    """Say how long to warm up, and why, from what was measured."""
    from gpuwarm.analysis import advice
    from gpuwarm.read.files import recordings

    found = recordings(files, smi=smi, offset_ms=offset_ms, gpu=gpu, columns=columns)
    for source, recording in found:
        if recording.meta.study is not None:
            name = recording.meta.study.name
            raise InputError(
                f"{source} was measured by `gpuwarm {name}`: show it with `gpuwarm {name} --from {source}`"
            )
    answers = [
        advice.of(recording, tolerance=tolerance / 100, warmup_ms=warmup_ms or (), source=source)
        for source, recording in found
    ]
    give(answers, as_json=as_json, required=required)
