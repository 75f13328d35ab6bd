"""Recordings with known contents, and advice written by hand to go with them."""

import numpy as np

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.bias import Bias
from gpuwarm.analysis.causes import OWN, ColdPhase, ColdStart
from gpuwarm.analysis.steady import Steady, Warmup
from gpuwarm.analysis.transitions import Transition
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.metadata import Mark, Metadata, Phase, Sampling, Start, Tensor, Workload
from gpuwarm.recording import ITERATION, SAMPLE, Recording, Rows

MS = 1_000_000
STEPS = (  # from s after the first inference: P-state, SM clock, memory clock, as a GeForce that comes from idle
    (-9.0, 8, 210.0, 405.0),
    (-0.15, 8, 345.0, 405.0),
    (0.12, 5, 1155.0, 810.0),
    (0.31, 3, 1605.0, 5001.0),
    (0.62, 2, 1920.0, 9251.0),
)
MARKS = (
    ("process_start", -900),
    ("interpreter", -880),
    ("gpuwarm", -860),
    ("cuda_import", -800),
    ("driver_init", -560),
    ("context", -330),
    ("tensorrt_import", -290),
    ("runtime", -270),
    ("deserialise", -120),
    ("execution_context", -40),
    ("buffers", -1),
    ("first_inference", 40),
    ("second_inference", 55),
)
GEFORCE = GpuState(
    index=0, name="NVIDIA GeForce RTX 4070", persistence_mode="off", sm_clock_max_mhz=3105.0, power_limit_w=200.0
)
PHASES = (Phase("first"), Phase("busy"))


def _step(t_s: np.ndarray, column: int) -> np.ndarray:
    begins = [step[0] for step in STEPS]
    return np.array([step[column] for step in STEPS], float)[np.searchsorted(begins, t_s, "right") - 1]


def _samples(zero_ns: int, begin_s: float, end_s: float, lag_s: float = 0.1) -> Rows:
    """A reading each 20 ms that shows the state of 100 ms ago."""
    t_s = np.arange(begin_s, end_s, 0.02)
    rows = np.zeros(len(t_s), SAMPLE)
    for name in (SAMPLE.names or ())[1:]:
        rows[name] = np.nan
    rows["t_ns"] = zero_ns + np.round(t_s * 1e9).astype(np.int64)
    rows["read_ns"] = 22_000.0
    seen = np.maximum(t_s - lag_s, STEPS[0][0])
    for name, column in (("pstate", 1), ("sm_clock_mhz", 2), ("mem_clock_mhz", 3)):
        rows[name] = _step(seen, column)
    rows["power_mw"] = np.round(22e3 + 150e3 * rows["sm_clock_mhz"] / 1920.0 * (seen > 0))
    rows["temperature_c"] = np.round(38 + 12 * (1 - np.exp(-np.maximum(seen, 0) / 3.0)))
    rows["event_reasons"] = np.where(seen < 0, 0x1, np.where(rows["power_mw"] > 170e3, 0x4, 0))
    return rows


def _iterations(start: int, zero_ns: int, duration_s: float, steady_ns: float, random: np.random.Generator) -> Rows:
    """Constant cycles, 1 % noise, one iteration in 200 slower by up to three times; the very first five times."""
    rows: list[tuple[float, ...]] = []
    t_s = 0.0
    while t_s < duration_s:
        clock_mhz = float(_step(np.array([t_s]), 2)[0])
        gpu_ns = steady_ns * 1920.0 / clock_mhz * (1 + 0.01 * random.standard_normal())
        gpu_ns *= 1 + 2 * random.random() if random.random() < 0.005 else 1.0
        gpu_ns *= 1.0 if rows else 5.0
        phase = 0 if len(rows) < 2 else 1
        host_ns = gpu_ns + 30_000.0
        at_ns = zero_ns + round(t_s * 1e9)
        rows.append((start, phase, at_ns, 20_000.0, host_ns, 8e3, gpu_ns, 4e3, clock_mhz if phase else np.nan))
        t_s += host_ns * 1e-9
    return np.array(rows, ITERATION)


def staircase(
    *, starts: int = 3, duration_s: float = 3.0, steady_ns: float = 2e6, simulated: str | None = "geforce"
) -> Recording:
    """P8 -> P5 -> P3 -> P2 within 620 ms, in each start; starts are 8 s apart."""
    random = np.random.default_rng(1)
    zeros = [(3 + 8 * start) * 10**9 for start in range(starts)]
    samples = [_samples(zero, -1.5, duration_s + 0.5) for zero in zeros]
    iterations = [_iterations(start, zero, duration_s, steady_ns, random) for start, zero in enumerate(zeros)]
    slower = [1 + 0.05 * start for start in range(starts)]
    meta = Metadata(
        started_utc="2025-11-30T21:00:00Z",
        simulated=simulated,
        command="gpuwarm run resnet50.plan",
        versions={"gpuwarm": "0.1", "driver": "580.95.05", "cuda": "13.0", "tensorrt": "10.13.3"},
        machine_before=MachineState(platform="linux", driver_version="580.95.05", gpus=(GEFORCE,)),
        workload=Workload(name="resnet50", inputs=(Tensor("input", (8, 3, 224, 224), "float16"),), batch=8),
        starts=tuple(
            Start(
                marks=tuple(Mark(name, zero + round(ms * MS * (factor if ms < 0 else 1.0))) for name, ms in MARKS),
                phases=PHASES,
            )
            for zero, factor in zip(zeros, slower, strict=True)
        ),
        sampling=Sampling(period_ms=20.0, read_us_median=22.0, refresh_ms={"sm_clock_mhz": 100.0}),
    )
    return Recording(np.concatenate(samples), np.concatenate(iterations), meta)


def staircase_advice(recording: Recording) -> Advice:
    """What a person would say about `staircase`."""
    steps = [(end, begin) for end, begin in zip(MARKS[1:-1], MARKS[:-2], strict=True) if end[0] != OWN]
    whole = sum(end - begin for (_, end), (_, begin) in steps)
    total = [whole * (1 + 0.05 * start) for start in range(len(recording.meta.starts))]
    return Advice(
        source=None,
        simulated=recording.meta.simulated,
        gpu=GEFORCE,
        workload=recording.meta.workload,
        behaviour="warmup",
        also=("slow first inference",),
        evidence=("latency fell from 18.3 ms to 2.0 ms while the SM clock rose from 345 to 1920 MHz",),
        warmup=Warmup(
            time_ms=622.0,
            longest_start=1,
            iterations=118,
            recommended_ms=700.0,
            recommended_iterations=150,
            starts=3,
            coverage=0.75,
            interval_ms=(618.0, 622.0),
            interval_kind="range over starts",
            ends_ms=(620.0, 622.0, 618.0)[: len(recording.meta.starts)],
        ),
        steady=Steady(2.0, 2.01, 2.08, 1.1, 118, 1190),
        average=None,
        bias=(Bias(0.0, 21.0, 2.5, 640.0), Bias(200.0, 4.1, 1.2, 20.5), Bias(700.0, 0.05, 0.04, 0.3)),
        cold_start=ColdStart(
            phases=tuple(
                ColdPhase(name, float(end - begin), (end - begin, (end - begin) * 1.1), 100 * (end - begin) / total[0])
                for (name, end), (_, begin) in steps
            ),
            total_ms=float(np.median(total)),
            first_ms=40.0,
            second_ms=15.0,
            starts=3,
            own_ms=20.0,
        ),
        transitions=(Transition(1, 120.0, "pstate", 8.0, 5.0, -70.0, -70.1, "yes"),),
        bound="gpu",
        sampling=recording.meta.sampling,
        verdict="trusted",
        reasons=("the clock settled in every start",),
        flags={"trtexec": "--warmUp=700"},
        answer="Warm up 700 ms (150 iterations): until then latency is up to 9 times as long.",
        notes=("a server needs 2 inferences to load what is loaded at first use",),
        bound_evidence="the enqueue takes the host 20 us, the inference 2 ms on the GPU",
    )
