"""Cold start engines on this machine's GPU for two seconds each and print what came of it.

usage: python scripts/try_engine.py ENGINE... [--no-copies] [--spin] [--no-sm-clock] [--seconds S]
"""

import argparse
import json
import math
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np

from gpuwarm.errors import GpuwarmError
from gpuwarm.measure import child, plan
from gpuwarm.measure.cuda import VisibleGpu
from gpuwarm.measure.inspection import Inspection, InspectSpec
from gpuwarm.measure.spec import EngineSpec, InputFile, PhaseSpec, StartSpec
from gpuwarm.metadata import Phase, Tensor
from gpuwarm.recording import ITERATION
from gpuwarm.rows import ITERATION_FIELDS, whole_rows

PLAUSIBLE_MHZ = (200, 2100)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="+", type=Path)
    parser.add_argument("--no-copies", action="store_true")
    parser.add_argument("--spin", action="store_true")
    parser.add_argument("--no-sm-clock", action="store_true")
    parser.add_argument("--seconds", type=float, default=2.0)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        devices = child.start("gpuwarm.measure.cuda:visible_devices", None, stem=folder / "devices").wait()
        for gpu in msgspec.json.decode(devices, type=list[VisibleGpu]):
            print(gpu)
        spec = EngineSpec(
            plan="",
            sync="spin" if arguments.spin else "block",
            copies=not arguments.no_copies,
            sm_clock=not arguments.no_sm_clock,
        )
        for number, engine in enumerate(arguments.engines):
            try:
                run_one(engine, number, spec, seconds=arguments.seconds, folder=folder)
            except GpuwarmError as error:  # noqa: PERF203 -- the next engine may still work
                print(f"{engine.name}: {type(error).__name__}: {error}")


def random_input(tensor: Tensor, folder: Path) -> InputFile:
    """Standard normal values; the engines here take float32."""
    values = np.random.default_rng(0).standard_normal(tensor.shape).astype(tensor.dtype)
    path = folder / f"{tensor.name}.bin"
    path.write_bytes(values.tobytes())
    return InputFile(name=tensor.name, path=str(path), shape=tensor.shape, dtype=tensor.dtype)


def run_one(engine: Path, number: int, spec: EngineSpec, *, seconds: float, folder: Path) -> None:
    model = plan.read_model(engine)
    runtime = plan.choose_runtime(model, plan.installed_runtimes())
    print(f"\n== {engine.name}: built by {model.built_by}, run by {runtime} ({runtime.module})")
    asked = child.start(
        "gpuwarm.measure.inspection:inspect",
        InspectSpec(plan=str(engine), runtime=runtime.module),
        stem=folder / f"inspect-{number}",
    )
    found = msgspec.json.decode(asked.wait(), type=Inspection)
    print(f"   {found}")
    inputs = tuple(random_input(tensor, folder) for tensor in found.inputs)
    phase = PhaseSpec(Phase("busy"), duration_s=seconds)
    start = StartSpec(
        index=number,
        folder=str(folder),
        engine=replace(spec, plan=str(engine), runtime=runtime.module, inputs=inputs),
        phases=(phase,),
    )
    worker = child.start("gpuwarm.measure.start:run", start, stem=folder / f"worker-{number}")
    print(f"   versions {worker.wait().decode()}")
    marks = [json.loads(line) for line in (folder / f"start-{number}.jsonl").read_text().splitlines()]
    last_ns = worker.started_ns
    for mark in marks:
        print(f"   {mark['mark']:18}{(mark['t_ns'] - last_ns) / 1e6:10.2f} ms")
        last_ns = mark["t_ns"]
    rows = np.frombuffer(whole_rows(folder / f"start-{number}.rows", ITERATION_FIELDS), dtype=ITERATION)
    steady = rows[2:]
    for name in ("enqueue_ns", "host_ns", "h2d_ns", "gpu_ns", "d2h_ns", "sm_clock_mhz"):
        column = steady[name]
        known = column[~np.isnan(column)]
        middle = statistics.median(known) if len(known) else math.nan
        unit, scale = ("MHz", 1.0) if name == "sm_clock_mhz" else ("us", 1e-3)
        first = ", ".join(f"{value * scale:.1f}" for value in rows[name][:2])
        print(
            f"   {name:14} first {first} | median {middle * scale:.2f} {unit}, p99 "
            f"{np.percentile(known, 99) * scale if len(known) else math.nan:.2f} | NaN {np.isnan(column).mean():.2%}"
        )
    span_s = (steady["t_ns"][-1] - steady["t_ns"][0]) * 1e-9
    clocks = steady["sm_clock_mhz"][~np.isnan(steady["sm_clock_mhz"])]
    print(f"   {len(steady)} iterations, {len(steady) / span_s:.0f}/s")
    if len(clocks):
        plausible = (clocks > PLAUSIBLE_MHZ[0]) & (clocks < PLAUSIBLE_MHZ[1])
        print(f"   SM clock {clocks.min():.0f} to {clocks.max():.0f} MHz; {(~plausible).sum()} readings not plausible")
    log = (folder / f"worker-{number}.log").read_text()
    print(f"   log: {log.strip()[-1500:] or 'empty'}")


if __name__ == "__main__":
    main()
