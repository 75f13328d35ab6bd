"""The one way a child process is started, watched and ended.

A child runs `module:function` on a JSON specification. It dies with its parent, however that dies; it does not see
the terminal's Ctrl-C (its parent ends it); its failure, a death by signal included, becomes one sentence in the parent.
The child's side is in `entry.py`.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

import gpuwarm
from gpuwarm import errors
from gpuwarm.errors import GpuwarmError

# Without the working folder, which Python puts first: a user's own tensorrt.py or json.py may lie there.
_ROOT = str(Path(gpuwarm.__file__).parent.parent)
_ENTER = (
    f"import sys; sys.path[:] = filter(None, sys.path); {_ROOT!r} in sys.path or sys.path.insert(0, {_ROOT!r}); "
    "from gpuwarm.measure.entry import main; main()"
)
_LAST_MESSAGES_LINES = 3
_REMEDIES: dict[int, str] = {  # signal -> what its user can do
    signal.SIGKILL: "where nobody did that, memory ran out: see `sudo dmesg`",
    signal.SIGBUS: "is there room on the disk?",
    signal.SIGTERM: "somebody asked it to stop: run again",
}
_REMEDY = "a library or the driver broke down: see more with --verbose, and with another engine whether it is this one"
_END_GRACE_S = 5.0  # CUDA tears a context down in about 0.1 s; a child that needs longer hangs


class Child:
    """A running child of `start`."""

    def __init__(self, process: "subprocess.Popen[bytes]", started_ns: int, stem: Path, *, show_log: bool) -> None:
        """Wrap a process started at `started_ns` (CLOCK_MONOTONIC) whose files begin with `stem`."""
        self.process = process
        self.started_ns = started_ns
        self._stem = stem
        self._show_log = show_log

    def alive(self) -> bool:
        """Whether it still runs."""
        return self.process.poll() is None

    def wait(self, timeout_s: float | None = None) -> bytes:
        """Wait for its end and return the JSON its function returned.

        Raises:
            GpuwarmError: the class the child raised, with its sentence; or how it died, with its last messages.
            subprocess.TimeoutExpired: it still runs.
        """
        self.process.wait(timeout_s)
        if self._show_log:
            sys.stderr.write(self.log())
        result = self._stem.with_suffix(".result")
        if result.exists():
            return result.read_bytes()
        failure = self._stem.with_suffix(".error")
        if failure.exists():
            kind, message = msgspec.json.decode(failure.read_bytes(), type=tuple[str, str])
            raise getattr(errors, kind)(message)
        raise GpuwarmError(self._death())

    def end(self) -> None:
        """Ask it to stop (SIGTERM), then make it; returns once it is gone."""
        if not self.alive():
            return
        self.process.terminate()
        try:
            self.process.wait(_END_GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def _death(self) -> str:
        code = self.process.returncode
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        lines = [line for line in self.log().splitlines() if line.strip()][-_LAST_MESSAGES_LINES:]
        said = f"; its last messages: {' | '.join(lines)}" if lines else " without a message"
        return f"the process for {self._stem.name} {how}{said}; {_REMEDIES.get(-code, _REMEDY)}"

    def log(self) -> str:
        """What it wrote to stdout and stderr so far."""
        return self._stem.with_suffix(".log").read_text(errors="replace")


def start(
    target: str,
    spec: object,
    *,
    stem: Path,
    environment: Mapping[str, str] | None = None,
    show_log: bool = False,
) -> Child:
    """Start `module:function` on `spec` in a process of its own.

    Args:
        target: the function; it takes the specification's JSON bytes and returns something msgspec can encode, or None.
        spec: what it works on; anything msgspec can encode.
        stem: its files are `stem`.spec, .log, .result or .error.
        environment: variables to set on top of this process's own.
        show_log: write what it said to stderr once it has ended.
    """
    for outcome in (".result", ".error"):  # of an earlier child of that name
        stem.with_suffix(outcome).unlink(missing_ok=True)
    stem.with_suffix(".spec").write_bytes(msgspec.json.encode(spec))
    command = [sys.executable, "-c", _ENTER, target, str(stem), str(os.getpid())]
    with stem.with_suffix(".log").open("wb") as log:
        started_ns = time.monotonic_ns()
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={**os.environ, **(environment or {})},
        )
    return Child(process, started_ns, stem, show_log=show_log)
