"""Warm engines up with `gpuwarm.warm_until_steady`, infer on, and see whether it stopped at the right time.

usage: python scripts/try_warm_until_steady.py [--simulate h200] [--repeats 3] [--seconds 5] ENGINE...

Every warm-up is a process of its own, with NVML's readings and without them in turn, after the GPU has come to rest.
What counts is how far the mean of the second after the warm-up is off the mean of all that follows two seconds later.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import msgspec
import numpy as np

from gpuwarm import warm_until_steady
from gpuwarm.machine import GpuState
from gpuwarm.measure import nvml, selection, simulated
from gpuwarm.measure.seam import ColdStart, Loaded
from gpuwarm.measure.spec import EngineSpec
from gpuwarm.rows import SampleRow
from gpuwarm.studies.device import real_device, simulated_device
from gpuwarm.studies.prepare import Model, Preparation

BENCHMARK_S = 1.0
LATER_S = 2.0
REST_S = 6.0  # an H200 is back at its lowest clock 1 to 2.4 s after a process has ended
MOST_S = 20.0


class Trial(msgspec.Struct):
    """What one process is to do."""

    engine: EngineSpec
    gpu: str | None
    state: bool
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("engines", nargs="+", metavar="ENGINE")
    parser.add_argument("--simulate")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    arguments = parser.parse_args()
    print("engine             state   warm-up                 says             off by of a mean over 1 s")
    for name in arguments.engines:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder)
            device = simulated_device(arguments.simulate, log) if arguments.simulate else real_device(None)
            engine = Preparation(Model(name), device).finish(log, lambda _: None).engine
            for number in range(2 * arguments.repeats):
                time.sleep(REST_S)
                trial = Trial(engine, device.gpu, state=number % 2 == 0, seconds=arguments.seconds)
                told = subprocess.run(
                    [sys.executable, __file__, "--trial"],
                    input=msgspec.json.encode(trial),
                    capture_output=True,
                    env={**os.environ, **device.environment},
                    check=True,
                )
                print(
                    f"{Path(name).name:18} {'read' if trial.state else 'none':7} {told.stdout.decode().strip()}",
                    flush=True,
                )


def attempt(trial: Trial) -> str:
    """Warm up, infer on, and say how that went."""
    if trial.engine.simulate is None:
        from gpuwarm.measure.engine import cold_start  # only where there is a GPU
    else:
        from gpuwarm.measure.simulated import cold_start
    loaded = all_of(cold_start(trial.engine))
    try:
        with nvml.session() if trial.gpu is not None and trial.state else nullcontext():
            state, limits = reader(trial) if trial.state else (None, None)
            warmed = warm_until_steady(loaded.infer, max_seconds=MOST_S, state=state, limits=limits)
        begins_s, latencies_ms = [], []
        begin_s = now_s = time.perf_counter()
        while now_s < begin_s + trial.seconds:
            loaded.infer()
            begins_s.append(now_s - begin_s)
            now_s = time.perf_counter()
            latencies_ms.append((now_s - begin_s - begins_s[-1]) * 1e3)
    finally:
        loaded.close()
    begins, latencies = np.array(begins_s), np.array(latencies_ms)
    benchmark, later = latencies[begins < BENCHMARK_S].mean(), latencies[begins >= LATER_S].mean()
    return (
        f"{warmed.seconds * 1e3:7,.0f} ms {warmed.iterations:7,}  {warmed.stopped_by:11} {warmed.behaviour:12} "
        f"{100 * (benchmark / later - 1):+6.2f} %  ({benchmark:.4f} against {later:.4f} ms)"
    )


def all_of(cold_start: ColdStart) -> Loaded:
    """Do its steps, one after the other."""
    try:
        while True:
            next(cold_start)
    except StopIteration as done:
        loaded: Loaded = done.value
        return loaded


def reader(trial: Trial) -> tuple[Callable[[], SampleRow], GpuState]:
    """How to read the GPU, and its limits."""
    if trial.engine.simulate is not None:
        assert trial.engine.load_log is not None
        machine = simulated.machine_state(trial.engine.simulate, trial.engine.load_log)
        return simulated.open_reader(trial.engine.simulate, trial.engine.load_log), machine.gpus[0]
    gpu = selection.resolve(trial.gpu)
    return gpu.read, gpu.state()


if __name__ == "__main__":
    if sys.argv[1:] == ["--trial"]:
        print(attempt(msgspec.json.decode(sys.stdin.buffer.read(), type=Trial)))
    else:
        main()
