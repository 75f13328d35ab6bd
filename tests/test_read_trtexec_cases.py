"""Real logs and times of trtexec, read as their index says they are to be read: one test a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwarm.read import trtexec, trtexec_log
from gpuwarm.read.text import plain_lines, utf8
from gpuwarm.read.trtexec import Trace
from gpuwarm.read.trtexec_log import Run

MS = 1e6  # nanoseconds

# file -> what its (only) run was; "gpu" are numbers of the summary, "inferences" and "averages" of the coarse series
LOGS: dict[str, dict[str, Any]] = {
    "trt107_cuda_graph_fragment.txt": {
        "version": "10.7.0",
        "device": None,
        "throughput_qps": 32.7494,
        "gpu": {"median": 30.1722, "99%": 30.9484},
        "warmup_queries": 14,
        "queries": 101,
        "averages": [30.211],
        "inferences": 100,
    },
    "trt7form_v100_pytorch_notebook_0_queries.txt": {
        "version": None,
        "device": "Tesla V100-DGXS-16GB",
        "throughput_qps": None,
        "warmup_queries": None,
        "queries": None,
        "gpu": {"median": 5.35571, "99%": 5.41693},
        "latency": {"median": 6.22021},
        "compute_total_s": 2.00961,
        "walltime_s": 2.9909,
        "said": ["counts 0 queries", "the GPU computed 67% of the time"],
    },
    "trt7form_v100_tensorflow_notebook_0_queries.txt": {
        "device": "Tesla V100-DGXS-16GB",
        "queries": None,
        "throughput_qps": None,
        "gpu": {"median": 5.48969, "max": 5.82251, "99%": 5.53986},
    },
    "trt801_jetson_nano_tail.txt": {
        "version": "8.0.1",
        "device": "NVIDIA Tegra X1",
        "warmup_queries": 1,
        "warmup_ms": 50.0,
        "queries": 100,
        "walltime_s": 4.04082,
        "throughput_qps": 24.7474,
        "gpu": {"median": 39.875, "99%": 40.1282},
        "platform": "jetson",
    },
    "trt801_t4_avg50_lines_after_passed.txt": {
        "version": "8.0.1",
        "device": "NVIDIA Tesla T4",
        "warmup_queries": 18,
        "queries": 1071,
        "throughput_qps": 106.854,
        "gpu": {"median": 9.31836, "99%": 9.73608},
        "latency": {"median": 9.42383},  # not the 18.56 of end to end
        "inferences": 50,
    },
    "trt861_h100_nohup_broken_line_cov25_shared_gpu.txt": {
        "version": "8.6.1",
        "device": "NVIDIA H100 PCIe",
        "built_s": 1033.79,
        "warmup_queries": 96,
        "queries": 1457,
        "throughput_qps": 484.641,
        "gpu": {"median": 1.97192, "90%": 3.27051, "99%": 3.66565, "max": 5.46997},
        "cov_pct": 25.6499,
        "memory_before_mib": 7363.0,
        "averages": [2.21112, 1.95534, 2.14648, 1.93361],
        "said": ["121 of 145 averages are not in the log", "another process shares the GPU"],
    },
    "trt861_t4_unstable_4p76.txt": {
        "version": "8.6.1",
        "device": "Tesla T4",
        "warmup_queries": 5,
        "queries": 136,
        "throughput_qps": 44.0045,
        "gpu": {"min": 21.4507, "median": 22.0431, "95%": 24.494, "99%": 26.1577, "max": 26.4669},
        "cov_pct": 4.75734,
        "averages": [22.0757, 21.6743, 21.752, 22.8301, 23.9037],
    },
}
MANY = "trt71_jetson_7runs_concatenated.txt"


def runs(path: Path) -> tuple[Run, ...]:
    return trtexec_log.runs(plain_lines(utf8(path.read_bytes(), path.name)))


def traces(*paths: Path) -> tuple[Trace, ...]:
    return trtexec.traces([(path.name, path.read_bytes()) for path in paths])


@pytest.mark.parametrize("file", LOGS)
def test_a_real_log_is_read_as_the_index_says(cases: Path, file: str):
    expected = LOGS[file]
    path = cases / "trtexec_log" / file
    (run,) = runs(path)
    for name, value in expected.items():
        if name in ("gpu", "latency"):
            assert {key: run.summary[name][key] for key in value} == value
        elif name == "averages":
            assert [average.gpu_ms for average in run.averages][: len(value)] == value
        elif name == "inferences":
            assert {average.inferences for average in run.averages} == {value}
        elif name not in ("said", "platform"):
            assert getattr(run, name) == value
    (trace,) = traces(path)
    meta = trace.recording.meta
    assert all(any(text in note for note in meta.notes) for text in expected.get("said", ()))
    assert meta.inferences_per_row == expected.get("inferences", 10)
    if "platform" in expected:
        assert meta.machine_before is not None
        assert meta.machine_before.platform == expected["platform"]


def test_seven_runs_in_one_log_are_seven_recordings(cases: Path):
    path = cases / "trtexec_log" / MANY
    found = runs(path)
    medians = [3.03919, 6.51056, 11.0895, 21.8337, 37.782, 72.633, 247.036]
    assert [run.summary["gpu"]["median"] for run in found] == medians
    assert [run.batch() for run in found] == [1, 4, 8, 16, 32, 64, 128]
    assert (found[1].queries, found[1].warmup_queries) == (1792, 116)
    assert found[0].averages[0].gpu_ms == 3.41618
    assert found[0].averages[0].enqueue_ms == 3.42271
    recordings = [trace.recording for trace in traces(path)]
    assert [recording.meta.workload.batch for recording in recordings] == [1, 4, 8, 16, 32, 64, 128]
    assert recordings[1].iterations.size == 44  # 1792 queries are 448 iterations of a batch of 4
    assert all(note.count("left out") == 0 for recording in recordings for note in recording.meta.notes)


def test_every_real_log_has_its_expectation(cases: Path):
    assert {path.name for path in (cases / "trtexec_log").iterdir()} == {MANY, *LOGS}


# rows, first begin and last end in ms, first compute, median of the first 20, of the last 200, largest and where
TIMES: dict[str, tuple[Any, ...]] = {
    "a100_resnet_fp32_starts_fast_gets_slower.json": (764, 3.7, 1529.5, 1.938, 1.9149, 1.9937, 2.059, 456),
    "orin_nano_trt103_ramp_after_500ms_warmup.json": (719, 500.8, 2310.7, 2.960, 2.9698, 2.411, 3.012, 51),
    "titan_rtx_mobilenet_v2_qat_ramp_after_warmup.json": (758, 3.5, 263.6, 0.361, 0.3466, 0.2715, 0.9015, 577),
}


@pytest.mark.parametrize("file", TIMES)
def test_real_times_are_read_as_the_index_says(cases: Path, file: str):
    rows, begin, end, first, early, late, largest, where = TIMES[file]
    (trace,) = traces(cases / "trtexec_times" / file)
    iterations = trace.recording.iterations
    compute_ms = iterations["gpu_ns"] / MS
    assert iterations.size == rows
    assert iterations["t_ns"][0] / MS == pytest.approx(begin, abs=0.05)
    assert iterations["t_ns"][-1] / MS + compute_ms[-1] == pytest.approx(end, abs=0.06)
    assert compute_ms[0] == pytest.approx(first, abs=0.001)
    assert np.median(compute_ms[:20]) == pytest.approx(early, abs=0.0001)
    assert np.median(compute_ms[-200:]) == pytest.approx(late, abs=0.0001)
    assert compute_ms.max() == pytest.approx(largest, abs=0.001)
    assert compute_ms.argmax() == where


def test_warmup_that_trtexec_left_out_is_said(cases: Path):
    (trace,) = traces(cases / "trtexec_times/orin_nano_trt103_ramp_after_500ms_warmup.json")
    assert trace.recording.meta.starts[0].removed_warmup_ms == pytest.approx(500.76)
    assert any("--warmUp=0" in note for note in trace.recording.meta.notes)
    (whole,) = traces(cases / "trtexec_times/titan_rtx_mobilenet_v2_qat_ramp_after_warmup.json")
    assert whole.recording.meta.starts[0].removed_warmup_ms is None


def test_the_names_of_tensorrt_7_are_read_and_its_swapped_times_put_right(cases: Path):
    (trace,) = traces(cases / "trtexec_times/jetson_trt71_legacy_keys_ramp.json")
    iterations = trace.recording.iterations
    assert iterations.size == 672
    assert (iterations["gpu_ns"][:4] / MS).round(3).tolist() == [6.882, 8.869, 6.234, 3.615]
    assert np.median(iterations["gpu_ns"]) / MS == pytest.approx(3.044, abs=0.001)
    assert np.median(iterations["enqueue_ns"]) / MS == pytest.approx(3.06, abs=0.01)  # it spins while the GPU works
    assert np.median(iterations["h2d_ns"]) / MS == pytest.approx(0.0386, abs=0.001)
    assert trace.recording.meta.starts[0].removed_warmup_ms is None


def test_arrays_one_after_another_are_runs_and_find_their_logs(cases: Path):
    times = cases / "trtexec_times/jetson_trt71_several_arrays_invalid_json.json"
    assert len(traces(times)) == 4
    found = traces(times, cases / "trtexec_log" / MANY)
    assert [trace.recording.meta.workload.batch for trace in found] == [16, 32, 64, 128]


def test_times_and_their_log_are_a_pair(cases: Path):
    (trace,) = traces(cases / "trtexec_times/jetson_trt71_legacy_keys_ramp.json", cases / "trtexec_log" / MANY)
    meta = trace.recording.meta
    assert (meta.workload.name, meta.workload.batch) == ("ResNet50_N2.prototxt", 1)
    assert "--batch=1" in (meta.command or "")


def test_every_real_times_file_has_its_test(cases: Path):
    others = {"jetson_trt71_legacy_keys_ramp.json", "jetson_trt71_several_arrays_invalid_json.json"}
    assert {path.name for path in (cases / "trtexec_times").iterdir()} == {*TIMES, *others}
