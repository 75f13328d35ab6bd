"""`gpuwarm run`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, Required, Tolerance, WarmupMs, give
from gpuwarm.cli.engine import (
    DAY_S,
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
    recording_at,
)
from gpuwarm.cli.parse import named_files, named_shapes, progress
from gpuwarm.errors import InputError


@app.command()
def run(
    model: ModelPath = None,
    output: Output = None,
    simulate: Simulate = None,
    starts: Annotated[int, typer.Option(min=1, help="Cold starts, each in a fresh process.")] = 5,
    duration: Annotated[float, typer.Option(min=0, max=DAY_S, help="Seconds of inference per start.")] = 5.0,
    interval_ms: Annotated[
        float | None, typer.Option(min=0.001, max=1e3 * DAY_S, help="Pace the inferences; left out: back to back.")
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
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write the HTML report beside the recording.")
    ] = True,
    verbose: Verbose = False,
) -> None:
    """Start cold, infer without a pause, watch the GPU; then say how long to warm up and why.

    An engine file is code: loading it runs what it contains. Load only engines you trust.
    """
    from gpuwarm.analysis import advice
    from gpuwarm.studies.prepare import Model
    from gpuwarm.studies.run import Protocol
    from gpuwarm.studies.run import run as run_study

    place = recording_at(output, model, simulate)
    page = place.with_suffix(".html")
    if report and page.exists():
        raise InputError(f"{page} exists, and the report would replace it: choose another name with --output")
    device = device_for(gpu, simulate, place)
    wanted = Model(
        path=model,
        shapes=named_shapes(shape or []),
        inputs=named_files(input_file or []),
        profile=profile,
        plugins=tuple(plugin or ()),
        fp16=fp16,
        save_engine=save_engine,
        allow_host_code=allow_host_code,
        seed=seed,
        sync=sync.value,
        copies=copies,
        sm_clock=sm_clock,
        verbose=verbose,
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
    if report:
        from gpuwarm.cli.files import write
        from gpuwarm.show import html

        write(page, [html.page(recording, answer).encode()])
        progress(f"report:    {page}")
    give([answer], as_json=as_json, required=required)
