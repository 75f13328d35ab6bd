"""`gpuwarm run`."""

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, Required, Tolerance, WarmupMs, give
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
def run(
    model: ModelPath = None,
    output: Output = None,
    simulate: Simulate = None,
    starts: Annotated[int, typer.Option(min=1, help="Cold starts, each in a fresh process.")] = 5,
    duration: Annotated[float, within(0, DAY_S, help="Seconds of inference per start.")] = 5.0,
    interval_ms: Annotated[
        float | None,
        within(0.001, 1e3 * DAY_S, help="Begin an inference this often, as a service does; left out: back to back."),
    ] = None,
    sync: SyncHow = Sync.block,
    copies: Annotated[bool, typer.Option("--copies/--no-copies", help="Copy inputs and outputs each time.")] = True,
    sm_clock: Annotated[
        bool, typer.Option("--sm-clock/--no-sm-clock", help="Measure the SM clock on the GPU itself.")
    ] = True,
    gpu: GpuName = None,
    shape: Shapes = None,
    input_file: InputFiles = None,
    profile: EngineProfile = 0,
    plugin: Plugins = None,
    allow_host_code: AllowHostCode = False,
    fp16: Fp16 = False,
    save_engine: Annotated[Path | None, typer.Option(help="Keep the engine built from ONNX.")] = None,
    settle_timeout: SettleTimeout = 30.0,
    period_ms: PeriodMs = None,
    seed: Seed = 0,
    tolerance: Tolerance = 1.0,
    warmup_ms: WarmupMs = None,
    as_json: AsJson = False,
    required: Required = None,
    report: WithReport = True,
    verbose: Verbose = False,
) -> None:
    """Start cold, infer without a pause, watch the GPU; then say how long to warm up and why.

    An engine file is code: loading it runs what it contains. Load only engines you trust.
    """
    from gpuwarm.analysis import advice
    from gpuwarm.studies.run import Protocol
    from gpuwarm.studies.run import run as run_study

    place = recording_at(output, model, simulate)
    page = report_at(place, wanted=report)
    device = device_for(gpu, simulate, place)
    wanted = replace(
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
        save_engine=save_engine,
        copies=copies,
        sm_clock=sm_clock,
    )
    recording = run_study(
        device,
        wanted,
        Protocol(starts, duration, interval_ms, settle_timeout, period_ms),
        output=place,
        command=shlex.join(["gpuwarm", *sys.argv[1:]]),
        progress=progress,
    )
    answer = advice.of(recording, tolerance=tolerance / 100, warmup_ms=warmup_ms or (), source=str(place))
    progress(f"recording: {place}")
    if page is not None:
        write_report(page, recording, answer)
        progress(f"report:    {page}")
    give([answer], as_json=as_json, required=required)
