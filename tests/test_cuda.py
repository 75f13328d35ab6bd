"""The CUDA door, met by a stand-in libcuda.so.1 in child processes: GPUs, sentences, and the timing of an inference."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from gpuwarm.errors import DeviceError, EngineError
from gpuwarm.measure import child, cuda
from gpuwarm.measure.sm_clock import STAMP_PTX
from gpuwarm.rows import ITERATION_FIELDS

TIMED = list(ITERATION_FIELDS)[2:]  # t_ns and what follows


def with_tests(environment: dict[str, str]) -> dict[str, str]:
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {"PYTHONPATH": path, **environment}


def devices(tmp_path: Path, environment: dict[str, str]) -> list[cuda.VisibleGpu]:
    started = child.start(
        "gpuwarm.measure.cuda:visible_devices", None, stem=tmp_path / "devices", environment=environment
    )
    return msgspec.json.decode(started.wait(30), type=list[cuda.VisibleGpu])


def timings(
    tmp_path: Path,
    environment: dict[str, str],
    *,
    sync: cuda.Sync = "block",
    busy_us: int = 30,
    copied_bytes: int = 0,
    pause_s: float = 0.0,
) -> list[dict[str, float | None]]:
    """Rows by field; what is not measured is None."""
    started = child.start(
        "child_targets:time_inferences",
        (sync, busy_us, copied_bytes, pause_s),
        stem=tmp_path / "timings",
        environment=with_tests(environment),
    )
    rows = msgspec.json.decode(started.wait(30), type=list[tuple[float | None, ...]])
    return [dict(zip(TIMED, row, strict=True)) for row in rows]


def test_gpus_come_in_cudas_order_with_what_identifies_them(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    first, second = devices(tmp_path, {**standin_cuda, "STANDIN_CUDA_GPUS": "2"})
    assert first == cuda.VisibleGpu(
        ordinal=0,
        name="Stand-in 0",
        pci_bus_id="0000:a0:00.0",
        uuid="GPU-00102030-4050-6070-8090-a0b0c0d0e0f0",
        compute_capability="9.0",
    )
    assert (second.ordinal, second.pci_bus_id) == (1, "0000:a1:00.0")
    assert second.uuid == "GPU-01112131-4151-6171-8191-a1b1c1d1e1f1"


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_a_machine_without_a_driver_is_told_so_and_exits_5(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"has no NVIDIA driver \(libcuda.so.1 does not load\).*--gpus all") as caught:
        devices(tmp_path, {})
    assert caught.value.exit_code == 5


def test_no_visible_gpu_names_the_variable_that_hides_it(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    environment = {**standin_cuda, "STANDIN_CUDA_INIT": "100", "CUDA_VISIBLE_DEVICES": "7"}
    with pytest.raises(DeviceError, match=r"with CUDA_VISIBLE_DEVICES=7: CUDA_ERROR_NO_DEVICE \(100\); no GPU is vis"):
        devices(tmp_path, environment)


def test_a_driver_older_than_the_bindings_is_told_so(
    tmp_path: Path, standin_cuda: dict[str, str], package_folder: Callable[[str], Path]
) -> None:
    old = {**standin_cuda, "STANDIN_CUDA_VERSION": "12040"}
    path = os.pathsep.join([str(package_folder("cuda-13.5")), os.environ.get("PYTHONPATH", "")])
    with pytest.raises(DeviceError, match=r"serves CUDA 12.4 at most and .*cuda-bindings are for CUDA 13.5: update"):
        devices(tmp_path, {**old, "PYTHONPATH": path})


def test_the_bindings_of_cuda_12_serve_an_older_driver(
    tmp_path: Path, standin_cuda: dict[str, str], package_folder: Callable[[str], Path]
) -> None:
    path = os.pathsep.join([str(package_folder("cuda-12.8")), os.environ.get("PYTHONPATH", "")])
    old = {**standin_cuda, "STANDIN_CUDA_VERSION": "12040", "PYTHONPATH": path}
    (gpu,) = devices(tmp_path, old)
    assert gpu.uuid == "GPU-00102030-4050-6070-8090-a0b0c0d0e0f0"


def test_missing_bindings_name_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "__init__.py").write_text("")
    with pytest.raises(DeviceError, match=r"CUDA's Python bindings are missing .* pip install 'gpuwarm\[cu13\]'"):
        devices(tmp_path, {"PYTHONPATH": f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"})


@pytest.mark.parametrize("sync", ["block", "spin"])
def test_an_inference_is_timed_by_host_and_events_and_copies_are_apart(
    tmp_path: Path, standin_cuda: dict[str, str], sync: cuda.Sync
) -> None:
    for row in timings(tmp_path, standin_cuda, sync=sync, busy_us=300, copied_bytes=64_000):
        assert row["gpu_ns"] == pytest.approx(300_000)
        assert row["h2d_ns"] == row["d2h_ns"] == pytest.approx(64_000)
        assert row["host_ns"] > 300_000
        assert row["enqueue_ns"] < row["host_ns"]


def test_without_copies_their_times_are_missing_not_zero(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    for row in timings(tmp_path, standin_cuda):
        assert row["h2d_ns"] is None
        assert row["d2h_ns"] is None


def test_the_sm_clock_is_measured_from_the_third_inference_on(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    rows = timings(tmp_path, {**standin_cuda, "STANDIN_CUDA_MHZ": "1234"})
    clocks = [row["sm_clock_mhz"] for row in rows]
    assert clocks[:2] == [None, None]
    assert clocks[2:] == [pytest.approx(1234, rel=0.002)] * 20


def test_stamps_from_two_sms_give_no_clock(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    rows = timings(tmp_path, {**standin_cuda, "STANDIN_CUDA_SMS": "2"})
    assert [row["sm_clock_mhz"] for row in rows] == [None] * 22


def test_a_coarse_timer_gives_a_clock_only_over_several_iterations(
    tmp_path: Path, standin_cuda: dict[str, str]
) -> None:
    # A step of 1 us is half a percent of 200 us; at 32 us between stamps it takes ten, whose errors grow by their root.
    coarse = {**standin_cuda, "STANDIN_CUDA_STEP_NS": "1000"}
    clocks = [row["sm_clock_mhz"] for row in timings(tmp_path, coarse, busy_us=200)]
    assert clocks[2:] == [pytest.approx(1500, rel=0.01)] * 20
    clocks = [row["sm_clock_mhz"] for row in timings(tmp_path, coarse, busy_us=30)]
    assert clocks[2:] == [None] * 9 + [pytest.approx(1500, rel=0.01)] * 11


def test_iterations_far_apart_are_not_added_up(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    coarse = {**standin_cuda, "STANDIN_CUDA_STEP_NS": "100000", "STANDIN_CUDA_IDLES": "1"}
    rows = timings(tmp_path, coarse, busy_us=30, pause_s=0.03)
    assert [row["sm_clock_mhz"] for row in rows] == [None] * 22


def test_a_timer_that_never_moves_gives_no_clock(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    rows = timings(tmp_path, {**standin_cuda, "STANDIN_CUDA_STEP_NS": str(2**62)})
    assert [row["sm_clock_mhz"] for row in rows] == [None] * 22


def test_an_inference_that_fails_on_the_gpu_is_the_engines_fault(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    environment = {**standin_cuda, "STANDIN_CUDA_FAIL": "cuEventSynchronize"}
    with pytest.raises(EngineError, match=r"the inference failed on the GPU: CUDA_ERROR_ILLEGAL_ADDRESS \(700\)"):
        timings(tmp_path, environment)


def test_a_context_that_cannot_be_had_is_the_devices_fault(tmp_path: Path, standin_cuda: dict[str, str]) -> None:
    environment = {**standin_cuda, "STANDIN_CUDA_FAIL": "cuDevicePrimaryCtxRetain"}
    with pytest.raises(DeviceError, match=r"cuDevicePrimaryCtxRetain failed: CUDA_ERROR_ILLEGAL_ADDRESS"):
        timings(tmp_path, environment)


@pytest.mark.parametrize("architecture", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_the_stamp_kernels_compile_for_every_architecture(tmp_path: Path, architecture: str) -> None:
    if shutil.which("ptxas") is None:
        pytest.skip("needs ptxas of the CUDA toolkit")
    source = tmp_path / "stamp.ptx"
    source.write_bytes(STAMP_PTX.rstrip(b"\0"))
    subprocess.run(
        ["ptxas", "--warning-as-error", f"--gpu-name={architecture}", source, "-o", tmp_path / "x"], check=True
    )
    assert b".target sm_50" in STAMP_PTX
