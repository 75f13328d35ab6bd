"""`gpuwarm run`."""

import shlex
import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, Required, Tolerance, WarmupMs, give
from gpuwarm.cli.parse import default_output, named_files, named_shapes, progress


class Sync(str, Enum):
    """How the host waits for the GPU."""

    block = "block"
    spin = "spin"


@app.command()
def run(
    model: Annotated[
        str | None, typer.Argument(help=".plan, .engine or .onnx; left out: a tiny bundled model.")
    ] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Recording to write (.npz).")] = None,
    simulate: Annotated[
        str | None, typer.Option(help="Use a simulated GPU: geforce, h200, laptop or cold-driver.")
    ] = None,
    starts: Annotated[int, typer.Option(min=1, help="Cold starts, each in a fresh process.")] = 5,
    duration: Annotated[float, typer.Option(min=0, help="Seconds of inference per start.")] = 5.0,
    interval_ms: Annotated[
        float | None, typer.Option(min=0.001, help="Pace the inferences; left out: back to back.")
    ] = None,
    sync: Annotated[Sync, typer.Option(help="How the host waits for the GPU.")] = Sync.block,
    copies: Annotated[bool, typer.Option("--copies/--no-copies", help="Copy inputs and outputs each time.")] = True,
    sm_clock: Annotated[
        bool, typer.Option("--sm-clock/--no-sm-clock", help="Measure the SM clock on the GPU itself.")
    ] = True,
    gpu: Annotated[str | None, typer.Option(help="Index, UUID or PCI bus id, as nvidia-smi prints them.")] = None,
    shape: Annotated[
        list[str] | None, typer.Option(help="NAME:1x3x224x224, for a dynamic input; may be repeated.")
    ] = None,
    input_file: Annotated[
        list[str] | None, typer.Option("--input", help="NAME=FILE.npy instead of random data; may be repeated.")
    ] = None,
    profile: Annotated[int, typer.Option(min=0, help="Optimisation profile of the engine.")] = 0,
    plugin: Annotated[list[Path] | None, typer.Option(help="Library with TensorRT plugins; may be repeated.")] = None,
    allow_host_code: Annotated[
        bool, typer.Option("--allow-host-code", help="Load an engine that embeds code for the host.")
    ] = False,
    fp16: Annotated[bool, typer.Option("--fp16", help="Build from ONNX with FP16 kernels allowed.")] = False,
    save_engine: Annotated[Path | None, typer.Option(help="Keep the engine built from ONNX.")] = None,
    settle_timeout: Annotated[
        float, typer.Option(min=0, help="Seconds to wait for the GPU to come to rest before a start.")
    ] = 30.0,
    period_ms: Annotated[
        float | None, typer.Option(min=0.5, help="Sampling period; left out: half of the sensors' refresh period.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of random inputs and of simulated noise.")] = 0,
    tolerance: Tolerance = 1.0,
    warmup_ms: WarmupMs = None,
    as_json: AsJson = False,
    required: Required = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write the HTML report beside the recording.")
    ] = True,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show TensorRT's own messages.")] = False,
) -> None:
    """Start cold, infer without a pause, watch the GPU; then say how long to warm up and why.

    An engine file is code: loading it runs what it contains. Load only engines you trust.
    """
    from gpuwarm.analysis import advice
    from gpuwarm.studies.device import real_device, simulated_device
    from gpuwarm.studies.prepare import Model
    from gpuwarm.studies.run import Protocol
    from gpuwarm.studies.run import run as run_study

    place = output or default_output(model, simulate)
    device = real_device(gpu) if simulate is None else simulated_device(simulate, place.with_suffix(".part") / "load")
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

        write(place.with_suffix(".html"), [html.page(recording, answer).encode()])
        progress(f"report:    {place.with_suffix('.html')}")
    give([answer], as_json=as_json, required=required)
