"""What the children of test_child.py run."""

import os
import signal
import time

import msgspec

from gpuwarm.errors import EngineError


def double(spec_json: bytes) -> int:
    return 2 * msgspec.json.decode(spec_json, type=int)


def refuse(_spec_json: bytes) -> None:
    raise EngineError("this engine is no engine: give another")


def stumble(_spec_json: bytes) -> None:
    raise KeyError("forgotten")


def crash(_spec_json: bytes) -> None:
    os.write(2, b"[TRT] [E] about to go wrong\n")
    os.kill(os.getpid(), signal.SIGSEGV)


def sleep(_spec_json: bytes) -> None:
    time.sleep(60)


def refuse_to_stop(_spec_json: bytes) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.write(1, b"ready\n")
    time.sleep(60)
