"""What people reported in public, as inputs of the same shape, and what ought to be said about each.

Each test names the thread; numbers are the thread's, the inputs are made here.
"""

import json
from pathlib import Path

import numpy as np
import pytest

from gpuwarm.analysis import advice, checks
from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.idled import Idleness, idleness
from gpuwarm.metadata import Mark, Metadata, Phase, Start, Study
from gpuwarm.read import nvidia_smi
from gpuwarm.read.files import recordings
from gpuwarm.recording import ITERATION, SAMPLE, Recording

S = 10**9
NOISE = 0.01  # of a latency


# -- pauses between inferences


def swept(steady_ms: float, after: dict[float, list[float]], *, clock_mhz: float, pstate: int) -> Idleness:
    """Bursts of 40 inferences after pauses of some seconds; first latencies in ms, and the state the GPU falls to."""
    random = np.random.default_rng(3)
    iterations: list[tuple[float, ...]] = []
    samples: list[tuple[int, float, int]] = []
    starts = []
    t_ns = 1000 * S

    def burst(phase: int, first_ms: float | None) -> None:
        nonlocal t_ns
        for number in range(40):
            steady = steady_ms * (1 + NOISE * random.standard_normal())
            ms = first_ms if first_ms is not None and number == 0 else steady
            missing = (np.nan,) * 2
            iterations.append((len(starts), phase, t_ns, 20e3, ms * 1e6, np.nan, ms * 1e6 - 20e3, *missing))
            t_ns += round(ms * 1e6) + 10_000

    for number in range(len(next(iter(after.values())))):
        begun = Mark("process_start", t_ns)
        phases = [Phase("first"), Phase("busy"), *(Phase("after pause", pause_s=gap_s) for gap_s in after)]
        burst(1, None)
        for phase, (gap_s, firsts_ms) in enumerate(after.items(), 2):
            for at_s in np.arange(0, gap_s, 0.05):
                state = (clock_mhz, pstate) if at_s > 0.3 else (1900, 2)
                samples.append((t_ns + round(at_s * S), *state))
            t_ns += round(gap_s * S)
            burst(phase, firsts_ms[number])
        t_ns += 2 * S
        starts.append(Start(arm="context-alive", marks=(begun,), phases=tuple(phases)))
    rows = np.zeros(len(samples), SAMPLE)
    for name in SAMPLE.names or ():
        rows[name] = 0 if name == "t_ns" else np.nan
    for name, column in zip(("t_ns", "sm_clock_mhz", "pstate"), zip(*samples, strict=True), strict=True):
        rows[name] = column
    meta = Metadata(starts=tuple(starts), study=Study("idle", len(starts), 0))
    return idleness(Recording(rows, np.array(iterations, ITERATION), meta))


@pytest.mark.parametrize(
    ("steady_ms", "gap_s", "firsts_ms", "says"),
    [
        pytest.param(
            2.0, 1.0, [14, 15, 13, 14.5, 14], "after 1 s the first inference takes 14.1 ms", id="TensorRT-2107"
        ),
        pytest.param(
            4.0, 10.0, [92, 90, 95, 91, 93], "after 10 s the first inference takes 92.2 ms", id="TensorRT-2042"
        ),
        pytest.param(
            4.0, 0.5, [20, 60, 100, 40, 80], "after 500 ms the first inference takes 60 ms", id="onnxruntime-16135"
        ),
        pytest.param(
            1.7,
            1.0,
            [3.5, 3.8, 3.2, 1.5, 3.9, 1.4, 3.3, 3.6],
            "after 1 s the first inference takes 3.02 ms",
            id="ultralytics-18856",
        ),
    ],
)
def test_a_pause_that_lets_the_clock_fall_is_told_with_its_state(
    steady_ms: float, gap_s: float, firsts_ms: list[float], says: str
):
    found = swept(steady_ms, {0.01: [steady_ms] * len(firsts_ms), gap_s: firsts_ms}, clock_mhz=300, pstate=8)
    (alive,) = found.situations
    assert f"the GPU stays warm through pauses of up to 10 ms; {says}" in found.answer
    assert "the SM clock goes from 1900 to 300 MHz" in found.answer
    assert (alive.after[-1].on_gpu, alive.after[-1].pstate) == ("cold", 8)


def test_a_mild_dip_is_told_by_its_size_and_state():
    """In pytorch 44504 fp16 takes 22.9 ms in a loop and 25.6 ms with pauses of 100 ms."""
    found = swept(22.9, {0.01: [22.9] * 5, 0.1: [25.6, 25.5, 25.7, 25.6, 25.8]}, clock_mhz=1900, pstate=2)
    assert "after 100 ms the first inference takes 25.6 ms (+12 %)" in found.answer
    assert found.situations[0].after[-1].pstate == 2


def test_what_varies_as_much_as_it_is_slow_is_not_claimed():
    """In mmdeploy 2391 55 ms in a loop, 60 to 300 ms with pauses of 100 to 200 ms."""
    after = {0.01: [55.0] * 5, 0.1: [60.0, 120, 300, 80, 200], 0.2: [65.0, 300, 150, 210, 90]}
    found = swept(55, after, clock_mhz=1900, pstate=2)
    assert "that varies too much from one pause to the next" in found.answer


def test_a_spike_at_a_clock_that_never_fell_is_not_laid_on_the_pstate():
    """In onnxruntime 13366 clocks are locked, and after 10 s an inference of 1 ms takes 18 ms."""
    found = swept(1, {0.01: [1.0] * 5, 10.0: [18.0, 17, 19, 18, 18.5]}, clock_mhz=1900, pstate=0)
    assert "after 10 s the first inference takes 18.1 ms" in found.answer
    assert "the SM clock stays at 1900 MHz" in found.answer


# -- a run from its begin


def answered(folder: Path, *stretches: tuple[int, float]) -> Advice:
    """The advice on trtexec's times of stretches of (inferences, ms)."""
    random = np.random.default_rng(5)
    rows, at_ms = [], 0.5
    for count, level_ms in stretches:
        for ms in level_ms * (1 + NOISE * random.standard_normal(count)):
            rows.append({"startComputeMs": at_ms, "endComputeMs": at_ms + ms, "computeMs": ms, "latencyMs": ms + 0.1})
            at_ms += ms + 0.02
    path = folder / "times.json"
    path.write_text(json.dumps(rows))
    ((_, recording),) = recordings([path])
    return advice.of(recording)


@pytest.mark.parametrize(
    ("first_ms", "steady_ms", "says"),
    [
        pytest.param(2975, 2.5, "for the first inference, 2.5 ms once warm", id="onnxruntime-9667"),
        pytest.param(63_000, 15, " s on the GPU for the first inference, 15 ms once warm", id="onnxruntime-10110"),
    ],
)
def test_initialisation_is_a_figure_of_its_own(tmp_path: Path, first_ms: float, steady_ms: float, says: str):
    found = answered(tmp_path, (1, first_ms), (8000, steady_ms))
    assert found.answer.startswith("Only the start is slow")
    assert says in found.answer
    assert found.answer.endswith("Warm up with 1 iteration.")
    assert found.steady.median_ms == pytest.approx(steady_ms, rel=0.01)


def test_a_step_tells_how_many_iterations_are_enough(tmp_path: Path):
    """In tensorrtx 1043 24 calls of 6.8 ms, then 4.95 ms; ten calls of warm-up are too few."""
    found = answered(tmp_path, (24, 6.81), (600, 4.95))
    assert found.behaviour == "warmup"
    assert 24 <= found.warmup.recommended_iterations <= 40
    assert 160 <= found.warmup.recommended_ms <= 250
    assert "4.95 ms" in found.answer


def test_a_level_it_goes_back_to_is_no_warmup(tmp_path: Path):
    """The same thread: later it takes 7 ms again."""
    found = answered(tmp_path, (24, 6.81), (600, 4.95), (100, 7.0))
    assert found.warmup.recommended_ms is None
    assert "latency does not settle" in found.answer


def test_a_fast_start_with_a_slower_plateau_is_measured_past(tmp_path: Path):
    """In flashinfer 2899 a B200 gets 15 % slower after 40 to 70 iterations."""
    found = answered(tmp_path, (55, 10.0), (400, 11.5))
    assert found.behaviour == "slowdown"
    assert "There is no warm-up here, this engine gets slower" in found.answer
    assert "(+15 %)" in found.answer
    assert found.warmup.recommended_iterations >= 55
    assert found.steady.median_ms == pytest.approx(11.5, rel=0.01)


def test_a_ramp_longer_than_trtexecs_default_is_told_so(tmp_path: Path):
    """trt-engine-explorer's MobileNet on a TITAN RTX: 0.346 ms for 210 ms, then 0.268 and 0.259 ms."""
    found = answered(tmp_path, (600, 0.346), (200, 0.268), (9000, 0.259))
    assert found.behaviour == "warmup"
    assert found.warmup.recommended_ms > 200
    assert found.steady.p99_ms < 0.28
    short = next(each for each in found.bias if each.warmup_ms == 200)
    assert short.p99_bias_pct > 20  # the ramp is in the percentiles


# -- a log of states


def logged(folder: Path, *stretches: tuple[int, float, str]) -> Advice:
    """The advice on a log of stretches of (rows, seconds between them, state as the columns name it)."""
    lines = [
        "timestamp, pstate, clocks.sm [MHz], clocks.mem [MHz], power.draw [W], utilization.gpu [%], "
        "clocks_event_reasons.active"
    ]
    at_s = 0.0
    for count, period_s, state in stretches:
        for _ in range(count):
            lines.append(f"2025/03/01 10:{int(at_s) // 60:02d}:{at_s % 60:06.3f}, {state}")
            at_s += period_s
    path = folder / "gpu.csv"
    path.write_text("\n".join(lines) + "\n")
    ((_, recording),) = recordings([path])
    return advice.of(recording)


def test_a_gpu_that_is_not_used_is_not_called_cold(tmp_path: Path):
    """A game at 6 FPS on an RTX 4060 Laptop: P8, 210 MHz, 3 W, 1 % busy."""
    found = logged(tmp_path, (100, 0.1, "P8, 210 MHz, 405 MHz, 3.00 W, 1 %, 0x1"))
    assert "No load begins or ends in it; the SM clock was 210 MHz throughout" in found.answer
    assert "as far as this log shows, nothing ran on the GPU" in found.evidence[-1]


def test_a_coarse_log_says_what_it_cannot_show(tmp_path: Path):
    """An RTX 3070 works 30 ms in each second, and a recorder looks once a second."""
    found = logged(tmp_path, (60, 1.0, "P8, 210 MHz, 405 MHz, 20.00 W, 1 %, 0x1"))
    assert any(
        "rows are 1 s apart: what the GPU did in between is not seen; log with -lms 100" in line
        for line in found.evidence
    )


def test_a_power_cap_that_binds_is_named(tmp_path: Path):
    """In ninfer-3090 72 315 W bind in nearly all samples."""
    rest = (50, 0.1, "P8, 210 MHz, 405 MHz, 20.00 W, 0 %, 0x1")
    busy = [
        (10, 0.1, f"P2, {mhz} MHz, 9501 MHz, 31{at % 5}.00 W, 100 %, 0x4")
        for at, mhz in enumerate(list(range(1500, 1650, 15)) * 3)
    ]
    found = logged(tmp_path, rest, (5, 0.1, "P2, 1950 MHz, 9501 MHz, 280.00 W, 100 %, 0x0"), *busy)
    assert "the clock is held down by the power limit" in found.answer


def test_one_value_that_failed_is_a_missing_value(tmp_path: Path):
    """In azhpc-diagnostics 77 ERR! in the power column goes away by itself."""
    good, bad = (f"P0, 1530 MHz, 877 MHz, {power}, 99 %, 0x0" for power in ("250.00 W", "ERR!"))
    found = logged(tmp_path, (50, 0.1, good), (1, 0.1, bad), (50, 0.1, good))
    assert found.gpu.trouble is None
    assert "1530 MHz under load" in found.answer


# -- how a machine is set up

HEADER = (  # as with --format=csv,nounits
    "index, name, driver_version, driver_model.current, persistence_mode, pstate, clocks.current.sm [MHz], "
    "clocks.max.sm [MHz], clocks.current.memory [MHz], power.draw [W], power.limit [W], power.default_limit [W], "
    "utilization.gpu [%], clocks_event_reasons.active, temperature.gpu"
)


def found_in(*rows: str) -> dict[str, Finding]:
    state = nvidia_smi.machine_state("\n".join([HEADER, *rows, ""]).encode(), "gpu.csv")
    return {finding.id: finding for finding in checks.findings(state)}


def words(finding: Finding) -> str:
    return " ".join(filter(None, (finding.summary, finding.evidence, finding.advice, finding.command)))


@pytest.mark.parametrize(
    ("row", "finding", "says"),
    [
        pytest.param(
            "0, NVIDIA T600, 511.65, WDDM, N/A, P0, 1335, 1755, 5000, 30, 40, 40, 60, 0x0, 60",
            "persistence-not-applicable",
            "WDDM hands work to the GPU in batches, so latencies scatter",
            id="TensorRT-2229",
        ),
        pytest.param(
            "0, NVIDIA GeForce RTX 3080, 528.49, WDDM, Enabled, P8, 210, 2100, 405, 20, 320, 320, 0, 0x1, 40",
            "persistence-not-applicable",
            "shown as on, a constant here",
            id="nvidia-docker-1604",
        ),
        pytest.param(
            "0, Tesla K80, 470.57, N/A, Enabled, P0, 562, 875, 2505, 60, 149, 149, 0, 0x0, 40",
            "persistence-on",
            "Persistence: on",
            id="nvidia-docker-379",
        ),
        pytest.param(
            "0, NVIDIA GeForce GTX 980 Ti, 352.63, N/A, Disabled, P2, 1316, 1391, 3304, 180, 250, 250, 99, 0x0, 70",
            "cuda-p2",
            "P2 is the top state of a GeForce under CUDA",
            id="mcx-18",
        ),
        pytest.param(
            "0, Tesla P100-PCIE-16GB, 470.57, N/A, Enabled, P0, 405, 1328, 715, 27, 250, 250, 0, 0x1, 35",
            "at-rest",
            "P0, SM 405 of 1328 MHz",
            id="nvidia-pstated-7",
        ),
        pytest.param(
            "0, NVIDIA GeForce RTX 3090, 570.1, N/A, Enabled, P2, 1575, 2100, 9501, 314, 315, 350, 100, 0x4, 70",
            "power-limit-lowered",
            "Power limit 315 W, below the 350 W default",
            id="ninfer-3090-72",
        ),
        pytest.param(
            "0, NVIDIA GeForce GTX 1650, 570.1, N/A, Disabled, P2, 600, 1785, 4000, 25, 50, 50, 100, 0x20, 94",
            "thermal-slowdown",
            "a longer warm-up makes it worse",
            id="tensorflow-40042",
        ),
        pytest.param(
            "0, NVIDIA GeForce RTX 4060 Laptop GPU, 551.23, WDDM, N/A, P8, 210, 3105, 405, 3, 115, 115, 1, 0x1, 40",
            "at-rest",
            "At rest, as an idle GPU should be: P8",
            id="game-at-6-fps",
        ),
    ],
)
def test_a_machine_is_told_what_the_thread_found(row: str, finding: str, says: str):
    assert says in words(found_in(row)[finding])


def test_persistence_off_on_all_gpus_is_a_warning_with_its_command():
    """In arrayfire 2467 the first call takes 5 to 10 s, the longer the more GPUs there are."""
    row = "%d, Tesla V100-SXM2-16GB, 470.57, N/A, Disabled, P0, 135, 1530, 877, 40, 300, 300, 0, 0x1, 35"
    finding = found_in(*(row % index for index in range(4)))["persistence-off"]
    assert finding.severity == "warning"
    assert "Every new process pays for loading the driver" in words(finding)
    assert "nvidia-smi -pm 1" in words(finding)


def test_gpus_of_one_kind_that_differ_at_rest_are_told_apart():
    """IBM Cloud's B300: six GPUs at 120 MHz and 135 W, two at 2017 MHz and 188 W."""
    row = "%d, NVIDIA B300 SXM6 AC, 580.95.05, N/A, Enabled, P0, %s, 1100, 1100, 0, %s, 35"
    slow, fast = ("120, 2032, 3996, 135", "0x1"), ("2017, 2032, 3996, 188", "0x0")
    finding = found_in(*(row % (index, *(slow if index < 6 else fast)) for index in range(8)))["clocks-differ"]
    assert "6-7 at 2017 MHz and 188 W; 0-5 at 120 MHz and 135 W" in finding.summary


def test_a_context_that_holds_the_clocks_up_is_named():
    """In open-gpu-kernel-modules 874 an A40 idles at P0 and 110 W with a process on it."""
    table = """
| NVIDIA-SMI 570.133.20             Driver Version: 570.133.20     CUDA Version: 12.8     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|=========================================+========================+======================|
|   0  NVIDIA A40                     On  |   00000000:65:00.0 Off |                    0 |
|  0%   45C    P0            110W /  300W |   11521MiB /  46068MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A           41213      C   python3                               11512MiB |
+-----------------------------------------------------------------------------------------+
"""
    state = nvidia_smi.machine_state(table.encode(), "pasted")
    told = " ".join(words(finding) for finding in checks.findings(state))
    assert "python3" in told
    assert "context" in told
