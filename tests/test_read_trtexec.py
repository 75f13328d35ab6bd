"""trtexec's times and logs become traces: every generation's keys, cut files, many runs, and what is odd about them."""

import json
from typing import Any

import numpy as np
import pytest

from gpuwarm.errors import InputError
from gpuwarm.read import trtexec
from gpuwarm.read.trtexec import Trace

MS = 10**6


def row(begin_ms: float, compute_ms: float, **other: float) -> dict[str, float]:
    h2d, d2h = other.pop("h2d", 0.02), other.pop("d2h", 0.01)
    values = {
        "startEnqMs": begin_ms - 0.05,
        "endEnqMs": begin_ms - 0.01,
        "startH2dMs": begin_ms - h2d,
        "endH2dMs": begin_ms,
        "startComputeMs": begin_ms,
        "endComputeMs": begin_ms + compute_ms,
        "startD2hMs": begin_ms + compute_ms,
        "endD2hMs": begin_ms + compute_ms + d2h,
        "h2dMs": h2d,
        "computeMs": compute_ms,
        "d2hMs": d2h,
        "latencyMs": h2d + compute_ms + d2h,
    }
    return {**values, **other}


def rows(count: int, *, compute_ms: float = 2.0, begin_ms: float = 0.5, step_ms: float = 2.0) -> list[dict[str, float]]:
    return [row(begin_ms + at * step_ms, compute_ms) for at in range(count)]


def dumped(content: list[dict[str, Any]]) -> str:
    """As trtexec writes it: a row a line."""
    return "[\n  " + "\n, ".join(json.dumps(each) for each in content) + "\n]\n"


def read(*contents: str, name: str = "times.json") -> tuple[Trace, ...]:
    return trtexec.traces(
        [(name if number == 0 else f"log{number}", text.encode()) for number, text in enumerate(contents)]
    )


def said(trace: Trace) -> str:
    return " | ".join(trace.recording.meta.notes)


def test_times_become_iterations_since_the_run_began():
    (trace,) = read(dumped(rows(3)))
    iterations = trace.recording.iterations
    assert iterations["t_ns"].tolist() == [500_000, 2_500_000, 4_500_000]
    assert iterations["gpu_ns"].tolist() == [2 * MS] * 3
    assert iterations["enqueue_ns"] == pytest.approx([40_000] * 3)
    assert (iterations["h2d_ns"][0], iterations["d2h_ns"][0]) == (20_000, 10_000)
    assert np.isnan(iterations["host_ns"]).all()
    assert trace.recording.meta.time_base == "relative"
    assert said(trace) == ""


def test_copies_that_were_not_timed_are_missing_not_free():
    (trace,) = read(dumped([row(1.0 + at, 1.0, h2d=0.0, d2h=0.0) for at in range(3)]))
    assert np.isnan(trace.recording.iterations["h2d_ns"]).all()
    assert "copies to and from the GPU are not in the file" in said(trace)


def test_a_file_that_ends_in_the_middle_is_read_as_far_as_it_goes():
    text = dumped(rows(50))
    for cut in (30, 200, 400):
        (trace,) = read(text[:-cut])
        assert 47 <= trace.recording.iterations.size <= 50
        assert "is cut or damaged" in said(trace)


def test_what_cpp_prints_for_no_number_is_a_missing_time():
    text = (
        dumped(rows(4))
        .replace('"computeMs": 2.0', '"computeMs": -nan(ind)', 1)
        .replace('"computeMs": 2.0', '"computeMs": nan', 1)
    )
    (trace,) = read(text)
    assert np.isnan(trace.recording.iterations["gpu_ns"]).tolist() == [True, True, False, False]
    assert "2 of its 4 rows have no compute time" in said(trace)


def test_pauses_between_inferences_are_a_pace():
    (trace,) = read(dumped(rows(40, step_ms=52.0)))
    assert [phase.interval_ms for phase in trace.recording.meta.starts[0].phases] == [None, 52.0]
    for back_to_back in (rows(40), rows(40, compute_ms=0.03, step_ms=0.2), rows(5, step_ms=52.0)):
        (trace,) = read(dumped(back_to_back))
        assert trace.recording.meta.starts[0].phases[1].interval_ms is None


def test_a_time_that_is_none_is_missing():
    (trace,) = read(dumped([row(0.5, 2.0), row(2.5, -0.5), row(4.5, 0.0), row(6.5, 2.0)]))
    assert np.isnan(trace.recording.iterations["gpu_ns"]).tolist() == [False, True, True, False]


def test_rows_without_brackets_are_whole():
    (trace,) = read("\n".join(json.dumps(each) for each in rows(4)) + "\n")
    assert said(trace) == ""


def test_rows_that_are_none_are_counted():
    (trace,) = read(dumped(rows(4)).replace('"computeMs": 2.0', '"computeMs": "fast"', 1))
    assert trace.recording.iterations.size == 3
    assert "1 of its rows could not be read" in said(trace)


def test_several_streams_are_told_by_their_overlap():
    (trace,) = read(dumped([row(1.0 + at, 1.9) for at in range(40)]))
    assert "several streams ran at once" in said(trace)


def test_a_late_first_row_means_that_the_warmup_was_left_out():
    (trace,) = read(dumped(rows(40, begin_ms=200.3)))
    assert trace.recording.meta.starts[0].removed_warmup_ms == pytest.approx(200.3)
    (slow,) = read(dumped(rows(40, begin_ms=200.3, compute_ms=150.0, step_ms=151.0)))
    assert slow.recording.meta.starts[0].removed_warmup_ms is None  # one inference may well take so long to begin


def test_six_digits_are_said_where_they_matter():
    (long,) = read(dumped(rows(10, step_ms=2000.0)))
    assert "six digits, in steps of 0.1 ms at the end" in said(long)
    # A difference of times so coarse would be a time to enqueue that is none.
    assert np.isnan(long.recording.iterations["enqueue_ns"]).tolist() == [False] * 5 + [True] * 5


def test_alike_arrays_are_starts_of_one_recording_and_others_are_not():
    (joined,) = read(dumped(rows(30)) + dumped(rows(40, compute_ms=2.1)))
    assert joined.recording.iterations["start"].tolist() == [0] * 30 + [1] * 40
    assert len(joined.recording.meta.starts) == 2
    apart = read(dumped(rows(30)) + dumped(rows(40, compute_ms=5.0, step_ms=5.0)))
    assert [trace.recording.iterations.size for trace in apart] == [30, 40]
    assert "holds 2 runs that are not alike: this is number 2" in said(apart[1])


def test_an_export_without_a_whole_row_is_refused():
    with pytest.raises(InputError, match="no row can be read; make it again: `trtexec"):
        read('[ { "startComputeMs" : 1.0, "computeMs')


LOG = """\
&&&& RUNNING TensorRT.trtexec [TensorRT v{version}] # trtexec --loadEngine=/x/net.plan --warmUp=100
[01/02/2025-10:00:00] [I] === Model Options ===
[01/02/2025-10:00:00] [I] Format: *
[01/02/2025-10:00:00] [I] === Inference Options ===
[01/02/2025-10:00:00] [I] Batch: Explicit
[01/02/2025-10:00:00] [I] Duration: 3s (+ 100ms warm up)
[01/02/2025-10:00:00] [I] CUDA Graph: {graph}
[01/02/2025-10:00:00] [I] === Device Information ===
[01/02/2025-10:00:01] [I] Selected Device: NVIDIA L4
[01/02/2025-10:00:01] [I] Compute Capability: 8.9
[01/02/2025-10:00:01] [I] Device Global Memory: 22563 MiB
[01/02/2025-10:00:01] [I] Engine deserialized in 0.0123 sec.
[01/02/2025-10:00:01] [I] Input binding for data with dimensions 4x3x8x8 is created.
[01/02/2025-10:00:02] [I] Starting inference
[01/02/2025-10:00:05] [I] Warmup completed 50 queries over 100 ms
[01/02/2025-10:00:05] [I] Timing trace has {queries} queries over 3 s
[01/02/2025-10:00:05] [I] === Trace details ===
[01/02/2025-10:00:05] [I] Trace averages of 10 runs:
{averages}
[01/02/2025-10:00:05] [I] === Performance summary ===
[01/02/2025-10:00:05] [I] Throughput: 500 qps
[01/02/2025-10:00:05] [I] Latency: min = 2.1 ms, max = 2.5 ms, mean = 2.1 ms, median = 2.1 ms, percentile(99%) = 2.4 ms
[01/02/2025-10:00:05] [I] GPU Compute Time: min = 1.9 ms, max = 2.3 ms, median = 2 ms, percentile(99%) = 2.2 ms
[01/02/2025-10:00:05] [I] Total Host Walltime: 3 s
[01/02/2025-10:00:05] [I] Total GPU Compute Time: 2.99 s
[01/02/2025-10:00:05] [W] * GPU compute time is unstable, with coefficient of variance = 3.1%.
[01/02/2025-10:00:05] [W] * Throughput may be bound by Enqueue Time rather than GPU Compute.
&&&& PASSED TensorRT.trtexec [TensorRT v{version}] # trtexec --loadEngine=/x/net.plan --warmUp=100
"""
AVERAGE = "[01/02/2025-10:00:05] [I] Average on 10 runs - GPU latency: {} ms - Host latency: {} ms (enqueue 0.2 ms)"


def log(*gpu_ms: float, version: str = "100700", queries: int | None = None, graph: str = "Disabled") -> str:
    averages = "\n".join(AVERAGE.format(value, value + 0.1) for value in gpu_ms)
    return LOG.format(version=version, queries=queries or 10 * len(gpu_ms), averages=averages, graph=graph)


def test_a_log_tells_the_run_and_a_coarse_series():
    (trace,) = read(log(*[3.0] * 20, *[2.0] * 120))
    meta, iterations = trace.recording.meta, trace.recording.iterations
    assert meta.inferences_per_row == 10
    assert (iterations["gpu_ns"][[0, -1]] / MS).tolist() == [3.0, 2.0]
    assert iterations["t_ns"][0] == 100 * MS
    assert iterations["t_ns"][20] / MS == pytest.approx(700, abs=1)  # 200 inferences of 3 ms later
    assert meta.starts[0].removed_warmup_ms == 100
    assert (meta.workload.name, meta.workload.inputs[0].shape) == ("net.plan", (4, 3, 8, 8))
    assert meta.versions == {"tensorrt": "10.7.0"}
    assert meta.machine_before is not None
    assert meta.machine_before.gpus[0].name == "NVIDIA L4"
    assert "coefficient of variance of 3.1 %" in said(trace)
    assert "bound by Enqueue Time" in said(trace)


@pytest.mark.parametrize(
    ("tag", "version"), [("8001", "8.0.1"), ("8601", "8.6.1"), ("100700", "10.7.0"), ("110000", "11.0.0")]
)
def test_the_banner_tells_the_version(tag: str, version: str):
    assert read(log(2.0, version=tag))[0].recording.meta.versions == {"tensorrt": version}


def test_averages_left_out_in_the_middle_leave_a_gap():
    text = log(*[2.0] * 20, queries=1500).replace(AVERAGE.format(2.0, 2.1) + "\n", AVERAGE.format(2.0, 2.1) + "\n", 1)
    lines = text.split("\n")
    tenth = [number for number, line in enumerate(lines) if "Average on" in line][10]
    lines.insert(tenth, "[01/02/2025-10:00:05] [I] ... Omitting 1300 lines")
    (trace,) = read("\n".join(lines))
    t_ms = trace.recording.iterations["t_ns"] / MS
    assert t_ms[10] - t_ms[9] == pytest.approx(20 * 131, rel=0.01)
    assert t_ms[-1] == pytest.approx(3080, abs=5)
    assert "left 130 of its averages out, after the first 10" in said(trace)


def test_a_cuda_graph_hides_the_first_inference():
    assert "--noCudaGraph" in said(read(log(2.0, graph="Enabled"))[0])
    (trace,) = read(dumped(rows(100)), log(*[2.0] * 10, graph="Enabled"))
    assert "--noCudaGraph" in said(trace)


def test_many_runs_with_or_without_a_banner_are_told_apart():
    headless = log(*[4.0] * 40).split("\n", 1)[1]
    found = read(log(*[2.0] * 40) + "make: done\n" + headless)
    assert [float(trace.recording.iterations["gpu_ns"][0]) / MS for trace in found] == [2.0, 4.0]
    (alike,) = read(log(*[2.0] * 40) + log(*[2.05] * 40))
    assert len(alike.recording.meta.starts) == 2


def test_runs_of_other_shapes_or_flags_are_no_starts_of_one_workload():
    for changed in ("--loadEngine=/x/net.plan --useSpinWait", "--loadEngine=/x/net.plan --shapes=x:8x3x8x8"):
        other = log(*[2.1] * 40).replace("--loadEngine=/x/net.plan", changed)
        assert len(read(log(*[2.0] * 40) + other)) == 2
    written = log(*[2.1] * 40).replace("--loadEngine=/x/net.plan", "--loadEngine=/x/net.plan --exportTimes=2.json")
    assert len(read(log(*[2.0] * 40) + written)) == 1


def test_lines_of_other_programs_and_broken_lines_cost_nothing():
    lines = log(*[2.0] * 40).split("\n")
    noisy = [
        f"tegrastats | RAM 1/2MB\n{line}" if number % 3 else f"[TRT] buil{line}" for number, line in enumerate(lines)
    ]
    (trace,) = read("\n".join(noisy))
    assert trace.recording.iterations.size == 40


def test_the_averages_of_tensorrt_5_are_read():
    (trace,) = read("[I] Average over 10 runs is 1.5 ms (host walltime is 1.6 ms, 99% percentile time is 1.7).\n" * 3)
    assert trace.recording.iterations["gpu_ns"].tolist() == [1.5 * MS] * 3


def test_times_and_the_log_of_another_run_stay_apart():
    found = read(dumped(rows(50)), log(*[7.0] * 20).replace("median = 2 ms", "median = 7 ms"))
    assert [trace.recording.meta.workload.name for trace in found] == [None, "net.plan"]


def test_what_a_verbose_builder_prints_costs_nothing_and_hides_nothing():
    chatter = "[01/02/2025-10:00:01] [V] [TRT] Tactic: 0x1 Time: 0.01\n" * 50
    broken = "[01/02/2025-10:00:01] [V] [TRT] builder pas" + AVERAGE.format(9.0, 9.1) + "\n"
    text = log(*[2.0] * 40).replace(AVERAGE.format(2.0, 2.1), chatter + broken + AVERAGE.format(2.0, 2.1), 1)
    (trace,) = read(text)
    assert (trace.recording.iterations["gpu_ns"][:2] / MS).tolist() == [9.0, 2.0]
    assert trace.recording.iterations.size == 41


def test_a_failed_run_says_what_failed():
    text = (
        "&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=x\n"
        "[01/02/2025-10:00:00] [E] Could not open file x\n&&&& FAILED TensorRT.trtexec"
    )
    with pytest.raises(InputError, match="of a trtexec that failed: Could not open file x"):
        read(text)


def test_a_log_without_averages_says_what_to_give():
    with pytest.raises(InputError, match="of a trtexec that was not to infer; time its engine with `trtexec"):
        read("&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --skipInference")
    with pytest.raises(InputError, match="no line `Average on N runs` of trtexec, so it"):
        read("&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --loadEngine=x")
    with pytest.raises(InputError, match=r"only a summary \(GPU compute time min 1.9, max 2.3, median 2, 99% 2.2 ms\)"):
        read("\n".join(line for line in log(2.0).split("\n") if "Average on" not in line))


PREFIXES = {
    "of a container": "trt-1  | {}",
    "of the journal": "Nov 30 20:52:10 node7 trtexec[4711]: {}",
    "of mail": "> > {}",
    "of a robot": "[trtexec-1] [INFO] [1764535957.000000042] [trt_node]: {}",
}


@pytest.mark.parametrize("prefix", PREFIXES.values(), ids=PREFIXES)
def test_what_stands_before_every_line_hides_neither_command_nor_runs(prefix: str):
    text = log(*[2.0] * 40) + log(*[4.0] * 40)
    found = read("\n".join(prefix.format(line) for line in text.split("\n")))
    assert [trace.recording.meta.workload.name for trace in found] == ["net.plan"] * 2
    assert [trace.recording.meta.versions for trace in found] == [{"tensorrt": "10.7.0"}] * 2


def test_a_log_within_json_or_printed_by_python_is_read():
    text = log(*[2.0] * 40)
    lines = (json.dumps({"log": line + "\n", "stream": "stdout"}) for line in text.split("\n"))
    for written in (
        "\n".join(lines).replace("&", "\\u0026"),
        json.dumps({"stdout": text, "rc": 0}),
        repr(text.encode()),
        repr(text.replace("\n", "\r\n")),
        *(written("\n".join(f"\x1b[32m{line}\x1b[0m" for line in text.split("\n"))) for written in (json.dumps, repr)),
    ):
        (trace,) = read(written)
        assert trace.recording.iterations.size == 40
        assert trace.recording.meta.workload.name == "net.plan"
        assert trace.recording.meta.machine_before is not None
        assert trace.recording.meta.machine_before.gpus[0].name == "NVIDIA L4"


def test_a_log_that_ends_among_its_averages_keeps_the_time_of_those_it_has():
    whole, (cut,) = read(log(*[3.0] * 20, *[2.0] * 120))[0], read(log(*[3.0] * 20, *[2.0] * 120)[:-7000])
    known = cut.recording.iterations["t_ns"]
    assert 40 < known.size < 120
    assert known == pytest.approx(whole.recording.iterations["t_ns"][: known.size], rel=0.02)
    assert f"the log ends after {known.size} of its 140 averages" in said(cut)


def test_averages_over_one_inference_are_inferences():
    (trace,) = read(log(*[2.0] * 40).replace("Average on 10", "Average on 1"))
    assert trace.recording.meta.inferences_per_row == 1
    assert "the mean of" not in said(trace)


def test_the_averages_of_tensorrt_3_are_read():
    for more in ("", " (percentile time is 1.7)"):
        (trace,) = read("name=data, bindingIndex=0\n" + f"Average over 10 runs is 1.5 ms{more}.\n" * 3)
        assert trace.recording.iterations["gpu_ns"].tolist() == [1.5 * MS] * 3


def test_times_of_zero_are_read_like_others():
    """Of a damaged file; trtexec itself writes none."""
    zeros = [row(at, 0.0) for at in range(9)]
    several = "\n".join(dumped(content) for content in (rows(9), zeros, rows(9)))
    assert len(trtexec.traces([("times.json", several.encode())])) == 3
    log = "[I] GPU Compute Time: min = 1 ms, max = 1 ms, mean = 1 ms, median = 1 ms, percentile(99%) = 1 ms\n"
    files = [("times.json", dumped(zeros).encode()), ("trtexec.log", f"&&&& RUNNING TensorRT.trtexec\n{log}".encode())]
    (trace,) = trtexec.traces(files)
    assert trace.recording.iterations.size == 9
