"""`gpuwarm run`."""

from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, Required, Tolerance, WarmupMs, give
from gpuwarm.cli.engine import Engine, measure, takes_engine
from gpuwarm.cli.parse import DAY_S, within


@app.command()
@takes_engine
def run(
    *,
    starts: Annotated[int, typer.Option(min=1, metavar="N", help="Cold starts, each in a fresh process.")] = 5,
    duration: Annotated[float, within(0, DAY_S, unit="SECONDS", help="Inference per start.")] = 5.0,
    interval_ms: Annotated[
        float | None,
        within(
            0.001,
            1e3 * DAY_S,
            unit="MS",
            help="Begin an inference this often, as a service does; left out: back to back.",
        ),
    ] = None,
    no_copies: Annotated[
        bool, typer.Option("--no-copies", help="Copy inputs and outputs once, not each time.")
    ] = False,
    no_sm_clock: Annotated[
        bool, typer.Option("--no-sm-clock", help="Do not measure the SM clock on the GPU itself.")
    ] = False,
    save_engine: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep the engine built from ONNX.")] = None,
    engine: Engine,
    tolerance: Tolerance = 1.0,
    warmup_ms: WarmupMs = None,
    as_json: AsJson = False,
    required: Required = None,
) -> None:
    """Start cold, infer without a pause, watch the GPU; then say how long to warm up and why.

    An engine file is code: loading it runs what it contains. Load only engines you trust.
    """
    from gpuwarm.analysis import advice
    from gpuwarm.studies.run import Protocol
    from gpuwarm.studies.run import run as run_study

    protocol = Protocol(starts, duration, interval_ms, engine.settle_timeout, engine.period_ms)
    done = measure(engine, run_study, protocol, copies=not no_copies, sm_clock=not no_sm_clock, save_engine=save_engine)
    answer = advice.of(done.recording, tolerance=tolerance / 100, warmup_ms=warmup_ms or (), source=str(done.place))
    done.report(answer)
    give([answer], as_json=as_json, required=required)
