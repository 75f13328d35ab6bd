"""Command lines: parse, call, print. One module a command; heavy imports sit inside the commands."""

import signal
import sys
from importlib import import_module
from typing import NoReturn

import typer

from gpuwarm import __version__
from gpuwarm.errors import GpuwarmError

EXIT_INTERRUPTED = 128 + signal.SIGINT
COMMANDS: tuple[str, ...] = (
    "run",
    "explain",
    "idle",
    "record",
    "watch",
    "analyze",
    "check",
    "plot",
    "report",
    "export",
    "compare",
    "fleet",
)  # modules of this folder, each registers its command; the order is that of --help
app = typer.Typer(
    help="Why a GPU's first inferences are slow, how long to warm up, and whether a machine is set up right.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"gpuwarm {__version__}")
        raise typer.Exit


@app.callback()
def _gpuwarm(
    version: bool = typer.Option(False, "--version", callback=_show_version, is_eager=True, help="Show the version."),
) -> None:
    del version


def main() -> NoReturn:
    """Run the command line; what gpuwarm understands to be wrong, or the system says of a file, is one sentence."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a measurement ended by its job system is kept, too
    for name in COMMANDS:
        import_module(f"gpuwarm.cli.{name}")
    try:
        app()
    except GpuwarmError as error:
        typer.echo(f"gpuwarm: {error}", err=True)
        sys.exit(error.exit_code)
    except OSError as error:
        if error.strerror is None:
            raise
        where = error.filename or "the output"
        typer.echo(
            f"gpuwarm: {where}: {error.strerror}; look at the path, its permissions and the room there", err=True
        )
        sys.exit(GpuwarmError.exit_code)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    sys.exit(0)
