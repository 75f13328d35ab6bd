"""What the children of tests run."""

import ctypes
import os
import signal
import sys
import time

import msgspec

from gpuwarm.errors import EngineError
from gpuwarm.measure import cuda
from gpuwarm.measure.cuda import Sync
from gpuwarm.measure.engine import Session, cold_start
from gpuwarm.measure.inference import Inference
from gpuwarm.measure.spec import EngineSpec


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


def time_inferences(spec_json: bytes) -> list[tuple[float, ...]]:
    """Two inferences that keep the stand-in's stream busy for so long, then twenty with the SM clock."""
    sync, busy_us, copied_bytes, pause_s = msgspec.json.decode(spec_json, type=tuple[Sync, int, int, float])
    driver = cuda.import_driver()
    cuda.initialise(driver)
    context = cuda.Context(driver, sync)
    busy = ctypes.CDLL("libcuda.so.1").standin_busy

    def enqueue(_stream: int) -> bool:
        busy(busy_us, None, None, 0)
        return True

    buffers = (context.buffer(copied_bytes),) if copied_bytes else ()
    inference = Inference(context, enqueue, copy_in=buffers, copy_out=buffers)
    rows = [inference.infer() for _ in range(2)]
    inference.attach_clock()
    for _ in range(20):
        time.sleep(pause_s)
        rows.append(inference.infer())
    return rows


def start_without_asking_for_a_driver(spec_json: bytes) -> None:
    """What gpuwarm never does: TensorRT 10 and 11 die of it on a machine without a driver."""
    session = Session(msgspec.json.decode(spec_json, type=str), verbose=False)
    session.start((), allow_host_code=False)


def load_and_list_modules(spec_json: bytes) -> tuple[list[str], list[str]]:
    """The steps of a cold start, and what was imported by its end."""
    loading = cold_start(msgspec.json.decode(spec_json, type=EngineSpec))
    return list(loading), sorted(sys.modules)
