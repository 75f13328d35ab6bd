"""`gpuwarm explain`."""

import json
import shlex
import sys
from enum import Enum
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


class SwitchId(str, Enum):
    """What can be switched, the most telling first."""

    module_loading = "module-loading"
    ptx_jit = "ptx-jit"
    engine_file = "engine-file"
    driver = "driver"
    other_context = "other-context"
    rest = "rest"


@app.command()
def explain(
    model: ModelPath = None,
    output: Output = None,
    recorded: Annotated[
        Path | None, typer.Option("--from", metavar="RECORDING", help="Explain again what was measured before.")
    ] = None,
    simulate: Simulate = None,
    repeats: Annotated[int, typer.Option(min=2, help="Starts of each kind.")] = 5,
    only: Annotated[list[SwitchId] | None, typer.Option(help="Test only this; may be repeated.")] = None,
    budget_s: Annotated[
        float | None,
        within(0, DAY_S, help="Leave out, the least telling first, what does not fit into this time."),
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
    """Find what makes a start slow: starts that differ in one thing, repeated in random order, and compared.

    An engine file is code: loading it runs what it contains. Load only engines you trust.
    """
    from gpuwarm.analysis.explained import explain as explained
    from gpuwarm.analysis.explained import to_json
    from gpuwarm.recording import Recording
    from gpuwarm.show import terminal, text
    from gpuwarm.studies.explain import Protocol
    from gpuwarm.studies.explain import explain as explain_study

    if recorded is not None:
        place, recording, page = recorded, Recording.load(recorded), None
    else:
        place = recording_at(output, model, simulate)
        page = report_at(place, wanted=report)
        recording = explain_study(
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
                repeats=repeats,
                seed=seed,
                only=tuple(each.value for each in only or ()),
                budget_s=budget_s,
                settle_timeout_s=settle_timeout,
                period_ms=period_ms,
            ),
            output=place,
            command=shlex.join(["gpuwarm", *sys.argv[1:]]),
            progress=progress,
        )
        progress(f"recording: {place}")
    found = explained(recording, source=str(place))
    if page is not None:
        write_report(page, recording, found)
        progress(f"report:    {page}")
    if as_json:
        typer.echo(json.dumps(to_json(found), indent=2))
    else:
        terminal.say(text.answer(found))
