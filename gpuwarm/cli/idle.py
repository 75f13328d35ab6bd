"""`gpuwarm idle`."""

from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, show_study
from gpuwarm.cli.engine import Engine, Measured, measure, takes_engine
from gpuwarm.cli.parse import DAY_S, within


@app.command()
@takes_engine
def idle(
    *,
    recorded: Annotated[
        Path | None, typer.Option("--from", metavar="RECORDING", help="Answer again from what was measured before.")
    ] = None,
    max_gap: Annotated[float, within(0.001, DAY_S, unit="SECONDS", help="Longest pause.")] = 30.0,
    repeats: Annotated[int, typer.Option(min=3, metavar="N", help="Pauses of each length.")] = 5,
    tolerance: Annotated[
        float | None,
        within(0.05, 100, unit="PERCENT", help="Warm is what stays this near to steady; usually 10."),
    ] = None,
    budget_s: Annotated[
        float | None,
        within(0, DAY_S, unit="SECONDS", help="Fewer repeats, then shorter pauses, until it fits into this time."),
    ] = None,
    engine: Engine,
    as_json: AsJson = False,
) -> None:
    """Find how long the GPU may idle before it is cold again, and what keeps it warm.

    An engine file is code: loading it runs what it contains. Load only engines you trust.
    """
    from gpuwarm.analysis.idled import DEFAULT_TOLERANCE, idleness, to_json
    from gpuwarm.recording import Recording
    from gpuwarm.studies.idle import Protocol
    from gpuwarm.studies.idle import idle as idle_study

    if recorded is not None:
        done = Measured(Recording.load(recorded), recorded, page=None)
    else:
        protocol = Protocol(
            max_gap_s=max_gap,
            repeats=repeats,
            seed=engine.seed,
            tolerance=DEFAULT_TOLERANCE if tolerance is None else tolerance / 100,
            budget_s=budget_s,
            settle_timeout_s=engine.settle_timeout,
            period_ms=engine.period_ms,
        )
        done = measure(engine, idle_study, protocol)
    found = idleness(done.recording, tolerance=None if tolerance is None else tolerance / 100, source=str(done.place))
    done.report(found)
    show_study(found, to_json(found), as_json=as_json)
