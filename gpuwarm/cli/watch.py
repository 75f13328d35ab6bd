"""`gpuwarm watch`."""

import json
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.engine import GpuName, Simulate, device_for
from gpuwarm.cli.parse import DAY_S, within


@app.command()
def watch(
    duration: Annotated[
        float | None, within(0, DAY_S, unit="SECONDS", help="How long; left out: until Ctrl-C.")
    ] = None,
    period_ms: Annotated[float, within(20, 1e3 * DAY_S, unit="MS", help="Between two readings.")] = 500.0,
    gpu: GpuName = None,
    simulate: Simulate = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a reading, each on a line.")] = False,
) -> None:
    """Show a GPU's P-state, clocks, power and event reasons as they are now; nothing is kept.

    On a terminal the last line is renewed, and a new one begins where the state changes. `gpuwarm record` keeps what it
    sees. Where persistence is off, watching keeps the driver loaded.
    """
    from gpuwarm.show import live
    from gpuwarm.studies.watch import readings

    renewed = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    before = None
    with tempfile.TemporaryDirectory() as folder:
        device = device_for(gpu, simulate, Path(folder) / "watch")
        if not as_json:
            typer.echo(live.heading(device.state().gpus[0], simulate))
        try:
            for row in readings(device, period_ms / 1e3, duration, clock=time.monotonic, sleep=time.sleep):
                now = live.reading(row, simulate)
                if as_json:
                    typer.echo(json.dumps(live.to_json(now)))
                elif not renewed:
                    typer.echo(live.line(now))
                else:
                    begin = "" if before is None else "\r\x1b[K" if now.same_state(before) else "\n"
                    columns = shutil.get_terminal_size().columns  # a line that wraps cannot be renewed
                    typer.echo(begin + live.line(now)[: columns - 1], nl=False)
                before = now
        finally:
            if renewed and not as_json:
                typer.echo()
