"""Recordings with known answers, as a measurement would have left them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from gpuwarm.machine import GpuState, MachineState
from gpuwarm.metadata import Mark, Metadata, Phase, Rest, Sampling, Start, Tensor, Workload
from gpuwarm.recording import ITERATION, SAMPLE, Floats, Recording, Rows

MS = 1_000_000
S = 1_000_000_000
START_EVERY_NS = 60 * S
STEPS_MS = {  # of a cold start, in order
    "interpreter": 20.0,
    "gpuwarm": 20.0,
    "cuda_import": 60.0,
    "driver_init": 200.0,
    "context": 120.0,
    "tensorrt_import": 15.0,
    "runtime": 3.0,
    "deserialise": 18.0,
    "execution_context": 7.0,
    "buffers": 1.0,
}
H200 = GpuState(index=0, name="NVIDIA H200", sm_clock_max_mhz=1980.0, power_limit_w=700.0, processes=())


def noisy(levels: Floats, *, seed: int, noise: float = 0.005) -> Floats:
    return levels * (1 + noise * np.random.default_rng(seed).standard_normal(levels.size))


def steps(*parts: tuple[float, int]) -> Floats:
    """(level, how many), one after another."""
    return np.concatenate([np.full(size, level) for level, size in parts])


def inference(start: int, gpu_ms: Floats, clock_mhz: Floats | float = 1980.0, *, enqueue_ms: float = 0.05) -> Rows:
    """Back to back; the host adds 0.02 ms to the GPU's time. The first two rows are the cold inferences."""
    rows = np.zeros(gpu_ms.size, ITERATION)
    rows["start"] = start
    rows["phase"] = np.minimum(np.arange(gpu_ms.size) // 2, 1)
    rows["gpu_ns"] = gpu_ms * MS
    rows["host_ns"] = rows["gpu_ns"] + 0.02 * MS
    rows["enqueue_ns"] = enqueue_ms * MS
    rows["h2d_ns"] = rows["d2h_ns"] = 0.01 * MS
    rows["sm_clock_mhz"] = clock_mhz
    rows["sm_clock_mhz"][:2] = math.nan
    begin = np.concatenate([[0], np.cumsum(rows["host_ns"])[:-1]]).astype(np.int64)
    rows["t_ns"] = (start + 1) * START_EVERY_NS + begin
    return rows


def sampled(rows: Rows, *, period_ms: float = 20.0, **columns: float) -> Rows:
    """Samples from a second before a start's first inference to its last, each column constant, the others missing."""
    begin, end = int(rows["t_ns"][0]) - S, int(rows["t_ns"][-1])
    times = np.arange(begin, end, round(period_ms * MS))
    samples = np.zeros(times.size, SAMPLE)
    samples["t_ns"] = times
    for name in set(SAMPLE.names or ()) - {"t_ns"}:
        samples[name] = columns.get(name, math.nan)
    return samples


def marks(rows: Rows, steps_ms: Mapping[str, float] = STEPS_MS) -> tuple[Mark, ...]:
    """A cold start that ends with the first of `rows`."""
    first_ns = int(rows["t_ns"][0])
    t_ns = first_ns - round(sum(steps_ms.values()) * MS)
    found = [Mark("process_start", t_ns)]
    for name, duration_ms in steps_ms.items():
        t_ns += round(duration_ms * MS)
        found.append(Mark(name, t_ns))
    return (*found, Mark("first_inference", first_ns + round(float(rows["host_ns"][0]))))


def recording(*tables: Rows, samples: Sequence[Rows] | None = None, gpu: GpuState = H200, **meta: object) -> Recording:
    """Starts as measured live, all sampled, at rest before each; `meta` replaces fields of the metadata."""
    if samples is None:
        samples = [sampled(rows, sm_clock_mhz=1980.0, pstate=0.0, power_mw=400e3, event_reasons=0.0) for rows in tables]
    starts = tuple(
        Start(marks=marks(rows), phases=(Phase("first"), Phase("busy")), rest=Rest(reached=True, waited_s=1.0))
        for rows in tables
    )
    known = Metadata(
        versions={"driver": "580.159.04", "tensorrt": "10.13.3"},
        machine_before=MachineState(platform="linux", gpus=(gpu,)),
        workload=Workload(
            name="resnet50.plan",
            runtime="tensorrt 10.13.3",
            batch=8,
            inputs=(Tensor("input", (8, 3, 224, 224), "float32"),),
        ),
        starts=starts,
        sampling=Sampling(20.0, 22.0, 57.0, 0.4, 99.9, {"sm_clock_mhz": 100.0}),
    )
    return Recording(
        np.concatenate([np.empty(0, SAMPLE), *samples]),
        np.concatenate([np.empty(0, ITERATION), *tables]),
        replace(known, **meta),
    )


def paced(*, clock_mhz: Floats, between_mhz: float, gpu_ms: float = 2.0, interval_ms: float = 20.0) -> Recording:
    """One start at a pace, as a service has it; NVML mostly shows the clock between two inferences."""
    rows = inference(0, noisy(np.full(clock_mhz.size, gpu_ms), seed=1, noise=1e-4), clock_mhz)
    rows["t_ns"] = START_EVERY_NS + np.arange(rows.size) * round(interval_ms * MS)
    found = recording(rows, samples=[sampled(rows, sm_clock_mhz=between_mhz, event_reasons=1.0, power_mw=90e3)])
    phases = (Phase("first"), Phase("paced", interval_ms))
    return replace(found, meta=replace(found.meta, starts=(replace(found.meta.starts[0], phases=phases),)))


def flat(starts: int = 3) -> Recording:
    return recording(*[inference(n, noisy(np.full(1500, 2.0), seed=n)) for n in range(starts)])


def ramp(starts: int = 3) -> Recording:
    """2 ms once the clock has gone from 1000 to 2000 MHz, which takes 400 ms; constant cycles."""
    tables = []
    for n in range(starts):
        clock = steps((1000.0, 100), (2000.0, 1500))
        tables.append(inference(n, noisy(4000.0 / clock, seed=n), clock))
    return recording(*tables)


def capped(starts: int = 3) -> Recording:
    """2.0 ms at 1980 MHz until the power limit bites after 100 ms: 2.2 ms at 1800 MHz, 690 of 700 W."""
    tables, samples = [], []
    for n in range(starts):
        clock = steps((1980.0, 50), (1800.0, 1500))
        rows = inference(n, noisy(3960.0 / clock, seed=n), clock)
        seen = sampled(rows, sm_clock_mhz=1980.0, pstate=0.0, power_mw=690e3, event_reasons=0.0)
        late = seen["t_ns"] > rows["t_ns"][0] + 200 * MS
        seen["sm_clock_mhz"][late], seen["event_reasons"][late] = 1800.0, 4.0
        tables.append(rows)
        samples.append(seen)
    return recording(*tables, samples=samples)
