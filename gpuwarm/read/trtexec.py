"""What trtexec wrote, its log and its --exportTimes, together or alone -> traces of inference."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath

import numpy as np

from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.metadata import Metadata, Phase, Start, Tensor, Workload
from gpuwarm.read import smi_fields, trtexec_log, trtexec_times
from gpuwarm.read.text import plain_lines, utf8
from gpuwarm.read.trtexec_log import Average, Run
from gpuwarm.read.trtexec_times import GOOD_COMMAND, Times, blank_iterations
from gpuwarm.recording import SAMPLE, Floats, Recording, Rows

PHASES = (
    Phase("first"),
    Phase("busy"),
)  # of a run; trtexec does not mark its first inferences, so all are of the second
BUSY = 1
ALIKE_SHARE = 0.25  # by which the medians of several starts of one workload may differ; other batches differ by more
SAME_RUN_SHARE = 0.03  # by which the medians of a run's log and times may: the log's is without warm-up
WRITTEN = ("--export", "--save", "--dump", "--verbose")  # flags that do not change what is inferred
WORK = ("enqueue_ns", "h2d_ns", "gpu_ns", "d2h_ns")  # of an inference
PACED_TIMES, PACED_MIN_NS = 2.0, 1_000_000  # so much longer than the work, and a launch that waits for a busy host
PACED_MIN_ROWS = 10
GPU_SHARE_MIN = 0.9  # of the wall time spent computing, or the GPU waited
NEIGHBOUR_MIB = 1500.0  # in use before an engine is loaded; a CUDA context alone takes 250 to 600
NS_PER_MS = 1e6


@dataclass(frozen=True)
class Trace:
    """Iterations of one start or of several alike, and when inference began on the log's wall clock."""

    recording: Recording
    began_local_ns: int | None = None  # of the only start, to a second


def traces(files: Sequence[tuple[str, bytes]]) -> tuple[Trace, ...]:
    """The traces in files of trtexec: logs lend times files the command, the device and the engine.

    Args:
        files: name and content of each; all are trtexec's (`recognise`).

    Raises:
        InputError: one of them has no inference in it.
    """
    times: list[tuple[str, tuple[Times, ...]]] = []
    logs: list[tuple[str, tuple[Run, ...]]] = []
    for source, data in files:
        text = utf8(data, source)
        if trtexec_times.recognise(text):
            times.append((source, trtexec_times.read(text, source)))
        else:
            logs.append((source, trtexec_log.runs(plain_lines(text))))
    known = [run for _, runs in logs for run in runs]
    found: list[Trace] = []
    lent: list[Run] = []
    for source, arrays in times:
        owners = [_run_of(array, known) for array in arrays]
        lent += [run for run in owners if run is not None]
        found += _grouped([_of_times(source, *pair) for pair in zip(arrays, owners, strict=True)])
    for source, runs in logs:
        told = any(run.averages for run in runs) or not times  # else the times tell what the log does not
        if told and not any(run is owner for run in runs for owner in lent):
            found += _of_runs(source, runs)
    return tuple(found)


def recognise(data: bytes, source: str) -> bool:
    """Whether a file is trtexec's log or its --exportTimes."""
    text = utf8(data, source)
    return trtexec_times.recognise(text) or trtexec_log.recognise(text)


def _of_runs(source: str, runs: Sequence[Run]) -> tuple[Trace, ...]:
    timed = [run for run in runs if run.averages]
    if timed:
        return _grouped([_of_log(source, run) for run in timed])
    errors = [error for run in runs for error in run.errors]
    if errors or any(run.failed for run in runs):
        raise InputError(
            f"{source} is of a trtexec that failed" + (f": {errors[0]}" if errors else "; mend that first")
        )
    if runs and not any(run.infers() for run in runs):
        raise InputError(f"{source} is of a trtexec that was not to infer; time its engine with `{GOOD_COMMAND}`")
    gpu = next((run.summary["gpu"] for run in runs if run.summary.get("gpu")), None)
    only = "" if gpu is None else f", only a summary (GPU compute time {_numbers(gpu)} ms)"
    raise InputError(
        f"{source} has no line `Average on N runs` of trtexec{only}, so it does not show how latency moved; "
        f"give the whole log, or better `{GOOD_COMMAND}`"
    )


def _numbers(summary: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in summary.items())


def _run_of(times: Times, runs: Sequence[Run]) -> Run | None:
    """The run whose log these times are of, told by the median of its compute times."""
    known = times.iterations["gpu_ns"][np.isfinite(times.iterations["gpu_ns"])]
    if not known.size:
        return None
    median_ms = float(np.median(known)) / NS_PER_MS
    alike = [
        (abs(run.summary["gpu"]["median"] - median_ms), number)
        for number, run in enumerate(runs)
        if run.summary.get("gpu", {}).get("median")
    ]
    if alike and min(alike)[0] <= SAME_RUN_SHARE * median_ms:
        return runs[min(alike)[1]]
    return runs[0] if len(runs) == 1 and not alike else None


def _of_times(source: str, times: Times, run: Run | None) -> Trace:
    notes = list(times.notes)
    if run is not None and _uses_graph(run):
        notes.append(
            "trtexec replayed a CUDA graph: it ran the first inference, to capture it, before the times begin; "
            "--noCudaGraph shows it"
        )
    phases = (PHASES[0], replace(PHASES[BUSY], interval_ms=_interval_ms(times.iterations)))
    start = Start(phases=phases, removed_warmup_ms=times.removed_warmup_ms)
    times.iterations["phase"] = BUSY
    return _trace(source, times.iterations, start, notes, run)


def _interval_ms(iterations: Rows) -> float | None:
    """From one inference to the next, where the GPU waits for longer than all the work takes, as with --idleTime."""
    if iterations.size < PACED_MIN_ROWS:
        return None
    step_ns = float(np.median(np.diff(iterations["t_ns"])))
    known = (column for column in (iterations[name] for name in WORK) if np.isfinite(column).any())
    work_ns = sum(float(np.nanmedian(column)) for column in known)
    return step_ns / NS_PER_MS if step_ns > PACED_TIMES * work_ns + PACED_MIN_NS else None


def _trace(source: str, iterations: Rows, start: Start, notes: Sequence[str], run: Run | None) -> Trace:
    known = Run() if run is None else run
    meta = Metadata(
        time_base="relative",
        source=source,
        command=known.command,
        versions={"tensorrt": known.version} if known.version else {},
        machine_before=_machine(source, known),
        workload=_workload(known),
        starts=(start,),
        notes=(*notes, *_said(known)),
    )
    return Trace(Recording(np.empty(0, SAMPLE), iterations, meta), known.inference_ns)


def _machine(source: str, run: Run) -> MachineState | None:
    if run.device is None:
        return None
    gpu = GpuState(name=run.device, compute_capability=run.compute_capability, memory_total_mib=run.memory_total_mib)
    return MachineState(source=source, platform=smi_fields.platform([gpu], smi_version=None, driver=None), gpus=(gpu,))


def _workload(run: Run) -> Workload:
    model = run.model()
    batch = run.batch()
    if run.inputs and any(shape[:1] != (batch,) for _, shape in run.inputs):
        batch = None  # the shapes have it, and trtexec's "Batch: 1" stands for nothing
    shown = (
        "Duration",
        "Streams",
        "Inference Streams",
        "Data transfers",
        "Spin-wait",
        "CUDA Graph",
        "Sleep time",
        "Idle time",
    )
    return Workload(
        name=None if model is None else PurePath(model).name,
        runtime=f"trtexec of TensorRT {run.version}" if run.version else None,
        inputs=tuple(Tensor(name, shape, "unknown") for name, shape in run.inputs),
        outputs=tuple(Tensor(name, shape, "unknown") for name, shape in run.outputs),
        batch=batch,
        options={label: run.options[label] for label in shown if label in run.options},
    )


def _uses_graph(run: Run) -> bool:
    return run.options.get("CUDA Graph") == "Enabled" or "useCudaGraph" in run.flags


def _said(run: Run) -> Iterator[str]:
    """What a log says about its run, in sentences."""
    gpu = run.summary.get("gpu", {})
    if gpu:
        qps = "" if run.throughput_qps is None else f", {run.throughput_qps:g} queries/s"
        cov = (
            ""
            if run.cov_pct is None
            else f"; it calls that unstable, with a coefficient of variance of {run.cov_pct:g} %"
        )
        yield f"trtexec's own summary: GPU compute time {_numbers(gpu)} ms{qps}{cov}"
    if run.built_s is not None:
        yield f"the engine was built in {run.built_s:g} s before that"
    if run.walltime_s and run.compute_total_s and run.compute_total_s < GPU_SHARE_MIN * run.walltime_s:
        busy = run.compute_total_s / run.walltime_s
        yield f"the GPU computed {busy:.0%} of the time; else it waited for the host or for copies"
    if run.memory_before_mib is not None and run.memory_before_mib > NEIGHBOUR_MIB and _has_own_memory(run):
        yield (
            f"{run.memory_before_mib:,.0f} MiB of the GPU's memory were in use before the engine was there: "
            "another process shares the GPU, and its work shows in these times"
        )
    yield from (f"trtexec warns: {warning.removeprefix('* ')}" for warning in run.warnings if _is_about_time(warning))


def _has_own_memory(run: Run) -> bool:
    """Jetsons' GPUs use the machine's."""
    return smi_fields.platform([GpuState(name=run.device)], smi_version=None, driver=None) != "jetson"


def _is_about_time(warning: str) -> bool:
    return warning.startswith("* ") and "coefficient of variance" not in warning


def _of_log(source: str, run: Run) -> Trace:
    """A row for each average, placed by the counts the log gives."""
    inferences = run.averages[0].inferences
    averages = [average for average in run.averages if average.inferences == inferences]
    total = None if run.queries is None else run.queries // (run.batch() or 1)
    left_out = 0 if total is None else max(0, total // inferences - len(averages))
    notes = []
    if run.omitted_after is not None:
        notes.append(f"trtexec left {left_out or 'some'} of its averages out, after the first {run.omitted_after}")
    elif left_out and run.cut():
        notes.append(f"the log ends after {len(averages)} of its {left_out + len(averages)} averages")
    elif left_out:
        notes.append(
            f"{left_out} of {left_out + len(averages)} averages are not in the log: when the others were is a guess"
        )
    if run.queries is None and run.warmup_queries is None and run.warmup_ms is not None:
        notes.append(
            "the log counts 0 queries, as TensorRT 7 does: how many there were, and how many a second, is unknown"
        )
    if _uses_graph(run):
        notes.append("with a CUDA graph trtexec runs the first inference before what it logs; --noCudaGraph shows it")
    if inferences > 1:
        notes.append(
            f"each row is the mean of {inferences} inferences, so a single slow one cannot be seen; "
            f"--exportTimes has every one: `{GOOD_COMMAND}`"
        )
    iterations = blank_iterations(len(averages))
    iterations["phase"] = BUSY
    iterations["t_ns"] = np.round(_begin_ms(run, averages, left_out) * NS_PER_MS)
    iterations["gpu_ns"] = [average.gpu_ms * NS_PER_MS for average in averages]
    iterations["enqueue_ns"] = [
        np.nan if average.enqueue_ms is None else average.enqueue_ms * NS_PER_MS for average in averages
    ]
    trace = _trace(source, iterations, Start(phases=PHASES, removed_warmup_ms=run.warmup_ms or None), notes, run)
    meta = replace(trace.recording.meta, inferences_per_row=inferences)
    return replace(trace, recording=replace(trace.recording, meta=meta))


def _begin_ms(run: Run, averages: Sequence[Average], left_out: int) -> Floats:
    """When each average's inferences began, since the begin of the run: they follow each other within the wall time."""
    took_ms = np.array([average.inferences * average.gpu_ms for average in averages])
    left_out_ms = left_out * float(np.median(took_ms))
    begin_ms = np.concatenate([[0.0], np.cumsum(took_ms)])
    if run.omitted_after is not None:
        begin_ms[run.omitted_after :] += left_out_ms
    elif run.cut():
        begin_ms[-1] += left_out_ms
    paused = 1.0 if not run.walltime_s or begin_ms[-1] <= 0 else max(1.0, run.walltime_s * 1e3 / begin_ms[-1])
    warmup_ms = run.warmup_ms or 0.0  # None: the part of the log that says so is not there
    begun: Floats = warmup_ms + paused * begin_ms[:-1]
    return begun


def _grouped(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """Traces of one workload become starts of one recording; others stay recordings of their own."""
    groups: list[list[Trace]] = []
    for trace in traces:
        if groups and _alike(groups[-1][0].recording, trace.recording):
            groups[-1].append(trace)
        else:
            groups.append([trace])
    if len(groups) == 1:
        return (_joined(groups[0]),)
    return tuple(_numbered(_joined(group), number, len(groups)) for number, group in enumerate(groups, 1))


def _alike(one: Recording, other: Recording) -> bool:
    return (
        _what_ran(one.meta) == _what_ran(other.meta)
        and one.meta.workload.name == other.meta.workload.name
        and one.meta.workload.batch == other.meta.workload.batch
        and one.meta.inferences_per_row == other.meta.inferences_per_row
        and abs(_level_ns(one) - _level_ns(other)) <= ALIKE_SHARE * _level_ns(other)
    )


def _what_ran(meta: Metadata) -> tuple[object, ...]:
    """A command without the files it writes, and the shapes it inferred."""
    words = (meta.command or "").split()
    return (
        {word for word in words if word.startswith("--") and not word.startswith(WRITTEN)},
        meta.workload.inputs,
    )


def _level_ns(recording: Recording) -> float:
    """The median of the later half, as a run's own warm-up is in the first."""
    gpu_ns = recording.iterations["gpu_ns"]
    known = gpu_ns[np.isfinite(gpu_ns)]
    return float(np.median(known[known.size // 2 :])) if known.size else np.nan


def _joined(group: Sequence[Trace]) -> Trace:
    if len(group) == 1:
        return group[0]
    tables = [trace.recording.iterations.copy() for trace in group]
    for number, table in enumerate(tables):
        table["start"] = number
    first = group[0].recording.meta
    notes = dict.fromkeys(note for trace in group for note in trace.recording.meta.notes)
    starts = tuple(start for trace in group for start in trace.recording.meta.starts)
    meta = replace(first, starts=starts, notes=(f"{len(group)} runs of one workload, taken as its starts", *notes))
    return Trace(Recording(group[0].recording.samples, np.concatenate(tables), meta))


def _numbered(trace: Trace, number: int, many: int) -> Trace:
    meta = trace.recording.meta
    note = f"{meta.source} holds {many} runs that are not alike: this is number {number}"
    meta = replace(meta, source=f"{meta.source}, run {number}", notes=(note, *meta.notes))
    return replace(trace, recording=replace(trace.recording, meta=meta))
