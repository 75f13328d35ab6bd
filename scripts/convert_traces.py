"""Turn the H200 traces that came before recordings existed (`h200_*.npz`) into recordings: FOLDER OUT."""

import argparse
from pathlib import Path

import numpy as np

from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.metadata import Mark, Metadata, Phase, Sampling, Start, Workload
from gpuwarm.recording import ITERATION, SAMPLE, Recording, Rows

MARKS = {  # the traces' names -> those of gpuwarm's own workers
    "import_cuda": "cuda_import",
    "cuInit": "driver_init",
    "ctx": "context",
    "import_trt": "tensorrt_import",
    "runtime": "runtime",
    "deserialize": "deserialise",
    "context": "execution_context",
    "buffers": "buffers",
    "first": "first_inference",
}
SAMPLE_COLUMNS = {  # SAMPLE's name -> the traces'
    "t_ns": "t_begin_ns",
    "pstate": "pstate",
    "sm_clock_mhz": "sm_mhz",
    "mem_clock_mhz": "mem_mhz",
    "power_average_mw": "power_mw",  # nvmlDeviceGetPowerUsage: the average of one second on this GPU
    "temperature_c": "temperature_c",
    "event_reasons": "clock_event_reasons",
    "gpu_util_pct": "gpu_util_pct",
}
MACHINE = MachineState(
    source="h200_*.npz",
    platform="linux",
    driver_version="580.159.04",
    cuda_version="13.0",
    gpus=(
        GpuState(
            name="NVIDIA H200",
            persistence_mode="on",
            sm_clock_max_mhz=1980.0,
            mem_clock_max_mhz=3201.0,
            power_limit_w=700.0,
            power_limit_default_w=700.0,
            compute_capability="9.0",
        ),
    ),
)
NOTES = (
    "Converted from a trace that was measured before recordings existed, by a script of its own.",
    "Its marks are times since process start on a clock of their own; they are placed so that the last one (the "
    "stamp kernels are ready) touches the first continuous iteration, which is a little late.",
    "Of the two cold inferences only the host's duration is known.",
)
NO_SAMPLES_NOTE = "Its GPU state was logged by nvidia-smi beside it, on another clock: there are no samples."


def convert(path: Path) -> Recording:
    """The recording of one trace."""
    with np.load(path, allow_pickle=False) as trace:
        marks = dict(zip(trace["mark_names"].tolist(), trace["marks_ns"].tolist(), strict=True))
        continuous = _continuous(trace["iterations"])
        samples = _samples(trace["states"]) if "states" in trace else np.empty(0, SAMPLE)
        phases = len(trace["phases"]) if "phases" in trace else 1
    process_start_ns = int(continuous["t_ns"][0]) - marks["stamp_ready"]
    start = Start(
        marks=_marks(marks, process_start_ns),
        phases=(Phase("first"), *[Phase("busy")] * phases),
    )
    meta = Metadata(
        source=path.name,
        versions={"driver": "580.159.04", "cuda": "13.0", "tensorrt": "8.6.0", "runtime": "tensorrt 8.6.0"},
        machine_before=MACHINE,
        workload=Workload(
            name=path.stem.split("_")[1], built_by="8.6.0", runtime="tensorrt 8.6.0", options={"copies": "no"}
        ),
        starts=(start,),
        sampling=Sampling(refresh_ms={"sm_clock_mhz": 100.0, "power_average_mw": 100.0, "gpu_util_pct": 200.0}),
        notes=NOTES if samples.size else (*NOTES, NO_SAMPLES_NOTE),
    )
    return Recording(samples, np.concatenate([_cold(marks, process_start_ns), continuous]), meta)


def _marks(marks: dict[str, int], process_start_ns: int) -> tuple[Mark, ...]:
    known = [Mark(name, process_start_ns + marks[old]) for old, name in MARKS.items()]
    second = Mark("second_inference", process_start_ns + marks["first"] + marks["second_infer_ns"])
    ready = Mark("sm_clock", process_start_ns + marks["stamp_ready"])
    return (Mark("process_start", process_start_ns), *known, second, ready)


def _cold(marks: dict[str, int], process_start_ns: int) -> Rows:
    """The two cold inferences: phase 0."""
    rows = _blank(2)
    first_done_ns = process_start_ns + marks["first"]
    rows["t_ns"] = first_done_ns - marks["first_infer_ns"], first_done_ns
    rows["host_ns"] = marks["first_infer_ns"], marks["second_infer_ns"]
    return rows


def _continuous(trace: Rows) -> Rows:
    rows = _blank(len(trace))
    rows["phase"] = trace["phase"] + 1
    rows["t_ns"] = trace["t_enqueue_ns"]
    rows["enqueue_ns"] = trace["t_enqueued_ns"] - trace["t_enqueue_ns"]
    rows["host_ns"] = trace["t_done_ns"] - trace["t_enqueue_ns"]
    rows["gpu_ns"] = trace["gpu_ns"]
    cycles = (trace["clk1"] - trace["clk0"]).astype(np.float64)
    rows["sm_clock_mhz"] = cycles / (trace["gtimer1_ns"] - trace["gtimer0_ns"]) * 1e3
    return rows


def _samples(states: Rows) -> Rows:
    rows = np.zeros(len(states), SAMPLE)
    for name in SAMPLE.names or ():
        rows[name] = states[SAMPLE_COLUMNS[name]] if name in SAMPLE_COLUMNS else np.nan
    rows["read_ns"] = states["t_end_ns"] - states["t_begin_ns"]
    return rows


def _blank(count: int) -> Rows:
    rows = np.zeros(count, ITERATION)
    for name in ("enqueue_ns", "host_ns", "h2d_ns", "gpu_ns", "d2h_ns", "sm_clock_mhz"):
        rows[name] = np.nan
    return rows


def main() -> None:
    """Convert every trace of a folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="holds h200_*.npz")
    parser.add_argument("out", type=Path, help="where the recordings go")
    arguments = parser.parse_args()
    traces = sorted(arguments.folder.glob("h200_*.npz"))
    if not traces:
        raise InputError(f"{arguments.folder} holds no h200_*.npz: name the folder of the traces")
    arguments.out.mkdir(parents=True, exist_ok=True)
    for trace in traces:
        recording = convert(trace)
        path = arguments.out / trace.name
        recording.save(path)
        print(f"{path}: {recording.iterations.size} iterations, {recording.samples.size} samples")


if __name__ == "__main__":
    main()
