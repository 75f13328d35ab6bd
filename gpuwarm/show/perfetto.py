"""A recording as a Chrome trace, which Perfetto opens: cold starts and inferences as slices, GPU state as counters.

Times are microseconds since the first event. A slice must lie within or apart from every other slice of its thread, so
inferences that overlap go to threads of their own.
"""

import heapq
import json
import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.causes import step_name
from gpuwarm.analysis.stretch import stretches
from gpuwarm.analysis.words import duration
from gpuwarm.metadata import Start
from gpuwarm.recording import Recording, Rows
from gpuwarm.show.reduce import moment_s, reasons_active, spans

Event = dict[str, Any]
GPU_PID = 1
START_PID = 100  # of start 0
COLD_START_TID, FIRST_INFERENCE_TID = 1, 10
PSTATE = "P-state"
TOUCHING_S = 1e-6  # inferences that overlap by less follow one another: their times were rounded
_PARTS = ("enqueue", "h2d", "gpu", "d2h")
_COUNTERS = {  # SAMPLE's name -> the counter's, and what a value is divided by
    "sm_clock_mhz": ("SM clock, NVML (MHz)", 1.0),
    "mem_clock_mhz": ("memory clock, NVML (MHz)", 1.0),
    "power_mw": ("power, instant (W)", 1e3),
    "power_average_mw": ("power, 1 s average (W)", 1e3),
    "temperature_c": ("temperature (°C)", 1.0),
    "memory_temperature_c": ("memory temperature (°C)", 1.0),
    "gpu_util_pct": ("utilization (%)", 1.0),
    "pcie_gen": ("PCIe generation", 1.0),
}


def to_perfetto(recording: Recording, advice: Advice) -> Iterator[str]:
    """The trace as JSON, a line an event."""
    zero_ns = _zero_ns(recording)
    about = {"gpu": advice.gpu.name if advice.gpu else None, "workload": advice.workload.name}
    other = {**about, "simulated": advice.simulated, "driver": recording.meta.versions.get("driver")}
    yield f'{{"displayTimeUnit": "ms", "otherData": {json.dumps(other)}, "traceEvents": [\n'
    separator = ""
    for event in _events(recording, advice, zero_ns):
        yield f"{separator}{json.dumps(event, separators=(',', ':'))}"
        separator = ",\n"
    yield "\n]}\n"


def _zero_ns(recording: Recording) -> int:
    begins = [int(rows["t_ns"].min()) for rows in (recording.samples, recording.iterations) if len(rows)]
    return min([*begins, *(mark.t_ns for start in recording.meta.starts for mark in start.marks)], default=0)


def _events(recording: Recording, advice: Advice, zero_ns: int) -> Iterator[Event]:
    stamp = f"SIMULATED ({advice.simulated}) " if advice.simulated is not None else ""
    name = (advice.gpu.name if advice.gpu else None) or "GPU"
    yield _named("process_name", f"{stamp}{name}", GPU_PID)
    yield from _state(recording.samples, zero_ns)
    starts = recording.meta.starts
    for number in sorted({*range(len(starts)), *np.unique(recording.iterations["start"]).tolist()}):
        pid = START_PID + number
        yield _named("process_name", f"{stamp}start {number + 1}", pid)
        if number < len(starts):
            yield from _cold_start(starts[number], pid, zero_ns)
        yield from _inferences(recording.iterations[recording.iterations["start"] == number], pid, zero_ns)
    yield from _warmup_ends(recording, advice, zero_ns)


def _named(kind: str, name: str, pid: int, tid: int = 0) -> Event:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}


def _us(seconds: float) -> float:
    return round(seconds * 1e6, 3)


def _counter(name: str, pid: int, seconds: float, value: float) -> Event:
    return {"ph": "C", "name": name, "pid": pid, "ts": _us(seconds), "args": {"value": value}}


def _slice(name: str, place: tuple[int, int], begin_s: float, end_s: float, args: Event | None = None) -> Event:
    times = {"ts": _us(begin_s), "dur": round(_us(end_s) - _us(begin_s), 3)}
    return {"ph": "X", "name": name, "pid": place[0], "tid": place[1], **times, **({"args": args} if args else {})}


def _state(samples: Rows, zero_ns: int) -> Iterator[Event]:
    """Counters with one series each, an event where the value changes; P-states and event reasons as slices."""
    if not len(samples):
        return
    seconds = (samples["t_ns"] - zero_ns) * 1e-9
    end_s = float(seconds[-1])
    for column, (name, unit) in _COUNTERS.items():
        for span in spans(seconds, samples[column], end_s):
            yield _counter(name, GPU_PID, span.begin_s, span.value / unit)
    lanes = {PSTATE: samples["pstate"], **reasons_active(samples)}
    for tid, (name, values) in enumerate(lanes.items(), 1):
        yield _named("thread_name", name.replace("_", " "), GPU_PID, tid)
        for span in spans(seconds, values, end_s):
            if name == PSTATE or span.value:
                label = f"P{span.value:.0f}" if name == PSTATE else name
                yield _slice(label, (GPU_PID, tid), span.begin_s, span.end_s)


def _cold_start(start: Start, pid: int, zero_ns: int) -> Iterator[Event]:
    yield _named("thread_name", "cold start", pid, COLD_START_TID)
    for before, after in pairwise(sorted(start.marks, key=lambda mark: mark.t_ns)):
        times = ((before.t_ns - zero_ns) * 1e-9, (after.t_ns - zero_ns) * 1e-9)
        yield _slice(step_name(after.name), (pid, COLD_START_TID), *times)


def _inferences(rows: Rows, pid: int, zero_ns: int) -> Iterator[Event]:
    """A slice from enqueue to synchronised each, and the SM clock measured with it."""
    begins_s = ((rows["t_ns"] - zero_ns) * 1e-9).tolist()
    lengths_s = np.nan_to_num(np.where(np.isfinite(rows["host_ns"]), rows["host_ns"], rows["gpu_ns"])) * 1e-9
    with np.errstate(invalid="ignore"):  # a damaged file may hold a signalling NaN
        parts = {f"{name}_us": (rows[f"{name}_ns"] / 1e3).round(3).tolist() for name in _PARTS}
    clocks = rows["sm_clock_mhz"].round(1).tolist()
    free: list[tuple[float, int]] = []  # when each thread's last inference ended, earliest first
    for index, (begun_s, length_s) in enumerate(zip(begins_s, lengths_s.tolist(), strict=True)):
        begin_s, end_s = begun_s, begun_s + length_s
        if free and free[0][0] - begin_s < TOUCHING_S:
            freed_s, tid = heapq.heappop(free)
            begin_s = max(begin_s, freed_s)
        else:
            tid = FIRST_INFERENCE_TID + len(free)
            yield _named("thread_name", "inferences", pid, tid)
        heapq.heappush(free, (max(begin_s, end_s), tid))
        args = {name: values[index] for name, values in parts.items() if math.isfinite(values[index])}
        yield _slice("inference", (pid, tid), begin_s, max(begin_s, end_s), args)
        if math.isfinite(clocks[index]):
            yield _counter("SM clock, measured on the GPU (MHz)", pid, begun_s, clocks[index])


def _warmup_ends(recording: Recording, advice: Advice, zero_ns: int) -> Iterator[Event]:
    """An instant in every start that inferred for so long."""
    if advice.warmup.time_ms is None:
        return
    for stretch in stretches(recording):
        at_s = moment_s(recording, stretch, advice.warmup.time_ms, zero_ns=zero_ns)
        if at_s is not None:
            name = f"warm-up ends: {duration(advice.warmup.time_ms)}"
            yield {"ph": "i", "s": "p", "name": name, "pid": START_PID + stretch.start, "tid": 0, "ts": _us(at_s)}
