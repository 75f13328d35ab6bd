"""The child's side of `child.py`: run one function on a specification, and leave its result or its error beside that.

Every cold start pays for what is imported here, in `start.py` and by the engines, and no user's own program does: so
none of them imports dataclasses, msgspec or pathlib (scripts/bench_worker.py times it).
"""
# ruff: noqa: E402 -- the stamp comes before the imports that it separates from the interpreter's own start

import time

BEGAN_NS = time.monotonic_ns()  # CLOCK_MONOTONIC once the interpreter is up

import ctypes
import faulthandler
import json
import os
import signal
import sys
from importlib import import_module

from gpuwarm.errors import GpuwarmError

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Run `sys.argv`: the target (module:function), the stem of its files, its parent's process id."""
    target, stem, parent_pid = sys.argv[1:]
    _die_with(int(parent_pid))
    # A file of its own: the log's last lines are what the library that crashed had to say.
    faulthandler.enable(open(f"{stem}.trace", "w"))  # noqa: SIM115 -- open until the process ends
    outcome, content = _run(target, stem)
    with open(f"{stem}.outcome", "wb") as file:
        file.write(content)
    os.replace(f"{stem}.outcome", stem + outcome)
    sys.exit(outcome != ".result")


def _die_with(parent_pid: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # it died before the line above
        os._exit(1)


def _run(target: str, stem: str) -> tuple[str, bytes]:
    """What its file is called, and what is in it."""
    module, function = target.split(":")
    try:
        with open(f"{stem}.spec", "rb") as file:
            spec_json = file.read()
        result = getattr(import_module(module), function)(spec_json)
        import msgspec  # noqa: PLC0415 -- after everything that is timed

        return ".result", msgspec.json.encode(result)
    except GpuwarmError as error:
        return ".error", json.dumps((type(error).__name__, str(error))).encode()
    except Exception as error:  # noqa: BLE001 -- the process boundary: the parent raises it
        sys.excepthook(type(error), error, error.__traceback__)
        message = f"unexpected {type(error).__name__} in {target}: {error}; please report it with this message"
        return ".error", json.dumps(("GpuwarmError", message)).encode()
