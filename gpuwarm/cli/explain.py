"""`gpuwarm explain`."""

from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from gpuwarm.cli import app
from gpuwarm.cli.answering import AsJson, show_study
from gpuwarm.cli.engine import Engine, Measured, measure, takes_engine
from gpuwarm.cli.parse import DAY_S, within


class SwitchId(str, Enum):
    """What can be switched, the most telling first."""

    module_loading = "module-loading"
    ptx_jit = "ptx-jit"
    engine_file = "engine-file"
    driver = "driver"
    other_context = "other-context"
    rest = "rest"


@app.command()
@takes_engine
def explain(
    *,
    recorded: Annotated[
        Path | None, typer.Option("--from", metavar="RECORDING", help="Explain again what was measured before.")
    ] = None,
    repeats: Annotated[int, typer.Option(min=2, metavar="N", help="Starts of each kind.")] = 5,
    only: Annotated[
        list[SwitchId] | None,
        typer.Option(
            metavar="SWITCH", help=f"Test only this; may be repeated: {', '.join(each.value for each in SwitchId)}."
        ),
    ] = None,
    budget_s: Annotated[
        float | None,
        within(0, DAY_S, unit="SECONDS", help="Leave out, the least telling first, what does not fit into this time."),
    ] = None,
    engine: Engine,
    as_json: AsJson = False,
) -> None:
    """Find what makes a start slow: starts that differ in one thing, repeated in random order, and compared.

    An engine file is code: loading it runs what it contains. Load only engines you trust.
    """
    from gpuwarm.analysis.explained import explain as explained
    from gpuwarm.analysis.explained import to_json
    from gpuwarm.recording import Recording
    from gpuwarm.studies.explain import Protocol
    from gpuwarm.studies.explain import explain as explain_study

    if recorded is not None:
        done = Measured(Recording.load(recorded), recorded, page=None)
    else:
        protocol = Protocol(
            repeats=repeats,
            seed=engine.seed,
            only=tuple(each.value for each in only or ()),
            budget_s=budget_s,
            settle_timeout_s=engine.settle_timeout,
            period_ms=engine.period_ms,
        )
        done = measure(engine, explain_study, protocol)
    found = explained(done.recording, source=str(done.place))
    done.report(found)
    show_study(found, to_json(found), as_json=as_json)
