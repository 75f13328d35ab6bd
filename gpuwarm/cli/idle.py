"""`gpuwarm idle`."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson
from gpuwarm.cli.engine import (
    AllowHostCode,
    EngineProfile,
    Fp16,
    GpuName,
    InputFiles,
    ModelPath,
    Output,
    PeriodMs,
    Plugins,
    Seed,
    SettleTimeout,
    Shapes,
    Simulate,
    Sync,
    SyncHow,
    Verbose,
    device_for,
    model_of,
    recording_at,
)
from gpuwarm.cli.files import WithReport, report_at, write_report
from gpuwarm.cli.parse import DAY_S, progress, within


@app.command()
def idle(
    model: ModelPath = None,
    output: Output = None,
    recorded: Annotated[
        Path | None, typer.Option("--from", metavar="RECORDING", help="Answer again from what was measured before.")
    ] = None,
    simulate: Simulate = None,
    max_gap: Annotated[float, within(0.001, DAY_S, help="Longest pause, in seconds.")] = 30.0,
    repeats: Annotated[int, typer.Option(min=3, help="Pauses of each length.")] = 5,
    tolerance: Annotated[
        float | None,
        within(0.05, 100, metavar="PERCENT", help="Warm is what stays this near to steady; usually 10."),
    ] = None,
    budget_s: Annotated[
        float | None,
        within(0, DAY_S, help="Fewer repeats, then shorter pauses, until it fits into this time."),
    ] = None,
    sync: SyncHow = Sync.block,
    gpu: GpuName = None,
    shape: Shapes = None,
    input_file: InputFiles = None,
    profile: EngineProfile = 0,
    plugin: Plugins = None,
    allow_host_code: AllowHostCode = False,
    fp16: Fp16 = False,
    settle_timeout: SettleTimeout = 30.0,
    period_ms: PeriodMs = None,
    seed: Seed = 0,
    as_json: AsJson = False,
    report: WithReport = True,
    verbose: Verbose = False,
) -> None:
    """Find how long the GPU may idle before it is cold again, and what keeps it warm.

    An engine file is code: loading it runs what it contains. Load only engines you trust.
    """
    from gpuwarm.analysis.idled import DEFAULT_TOLERANCE, idleness, to_json
    from gpuwarm.recording import Recording
    from gpuwarm.show import terminal, text
    from gpuwarm.studies.idle import Protocol
    from gpuwarm.studies.idle import idle as idle_study

    if recorded is not None:
        place, recording, page = recorded, Recording.load(recorded), None
    else:
        place = recording_at(output, model, simulate)
        page = report_at(place, wanted=report)
        recording = idle_study(
            device_for(gpu, simulate, place),
            model_of(
                model,
                shape=shape,
                input_file=input_file,
                profile=profile,
                plugin=plugin,
                fp16=fp16,
                allow_host_code=allow_host_code,
                seed=seed,
                sync=sync,
                verbose=verbose,
            ),
            Protocol(
                max_gap_s=max_gap,
                repeats=repeats,
                seed=seed,
                tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance / 100,
                budget_s=budget_s,
                settle_timeout_s=settle_timeout,
                period_ms=period_ms,
            ),
            output=place,
            command=shlex.join(["gpuwarm", *sys.argv[1:]]),
            progress=progress,
        )
        progress(f"recording: {place}")
    found = idleness(recording, tolerance=None if tolerance is None else tolerance / 100, source=str(place))
    if page is not None:
        write_report(page, recording, found)
        progress(f"report:    {page}")
    if as_json:
        typer.echo(json.dumps(to_json(found), indent=2))
    else:
        terminal.say(text.answer(found))
