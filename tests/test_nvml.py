"""The real pynvml binding against a stand-in library: what NVML cannot say costs a field, never the run."""

import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Standin
from standin_nvml.build import setters

from gpuwarm.rows import SAMPLE_FIELDS

PRELUDE = """
import msgspec, os, pynvml, sys, time
from pathlib import Path
from gpuwarm.errors import GpuwarmError
from gpuwarm.measure import nvml, selection
from gpuwarm.rows import SAMPLE_FIELDS
def sample(gpu):
    return dict(zip(SAMPLE_FIELDS, gpu.read()))
try:
    with nvml.session():
        answer = {expression}
except GpuwarmError as error:
    answer = {{"error": str(error), "exit_code": error.exit_code}}
sys.stdout.buffer.write(msgspec.json.encode(answer))
"""


def run(environment: dict[str, str], expression: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", PRELUDE.format(expression=expression)]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


def told(environment: dict[str, str], expression: str):
    """The expression's value in a process that meets the stand-in library; NaN comes as None."""
    done = run(environment, expression)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def calls(environment: dict[str, str]) -> dict[str, tuple[int, int]]:
    """Function -> how often it was called and how often it failed."""
    lines = Path(environment["STANDIN_NVML_TIMELINE"] + ".calls").read_text().splitlines()
    return {name: (int(count), int(failures)) for name, count, failures in map(str.split, lines)}


def test_a_sample_holds_what_nvml_says(standin_nvml: Standin):
    environment = standin_nvml(
        "0 pstate=2 sm_clock_mhz=2520 mem_clock_mhz=10251 power_mw=300000 power_average_mw=250000 temperature_c=61"
        " memory_temperature_c=70 event_reasons=0x4 gpu_util_pct=97 pcie_gen=4"
    )
    row = told(environment, "sample(nvml.Gpu(0))")
    t_ns, read_ns = row.pop("t_ns"), row.pop("read_ns")
    assert row == {
        "pstate": 2,
        "sm_clock_mhz": 2520,
        "mem_clock_mhz": 10251,
        "power_mw": 300000,
        "power_average_mw": 250000,
        "temperature_c": 61,
        "memory_temperature_c": 70,
        "event_reasons": 4,
        "gpu_util_pct": 97,
        "pcie_gen": 4,
    }
    assert t_ns > int(Path(environment["STANDIN_NVML_TIMELINE"] + ".epoch").read_text())
    assert 0 < read_ns < 1e9
    assert "nvmlDeviceGetPowerUsage" not in calls(environment)  # its reading is there, by the name of what it is


def test_what_is_not_supported_is_nan_and_is_not_asked_again(standin_nvml: Standin):
    environment = standin_nvml(
        "0 pstate=32 gpu_util_pct=unsupported pcie_gen=unsupported power_average_mw=unsupported event_reasons=error:2"
        " power_usage_mw=unsupported"
    )
    rows = told(environment, "(lambda gpu: [sample(gpu) for _ in range(50)])(nvml.Gpu(0))")
    missing = {name for name in SAMPLE_FIELDS if rows[-1][name] is None}
    assert missing == {
        "pstate",
        "gpu_util_pct",
        "pcie_gen",
        "power_average_mw",
        "memory_temperature_c",
        "event_reasons",
    }
    failed = {name: failures for name, (_, failures) in calls(environment).items() if failures}
    assert failed == {
        "nvmlDeviceGetUtilizationRates": 1,
        "nvmlDeviceGetCurrPcieLinkGeneration": 1,
        "nvmlDeviceGetCurrentClocksEventReasons": 1,
        "nvmlDeviceGetCurrentClocksThrottleReasons": 1,
        "nvmlDeviceGetPowerUsage": 1,
    }


def test_an_error_that_passes_costs_the_samples_it_lasts(standin_nvml: Standin):
    environment = standin_nvml("0 temperature_c=error:999 power_mw=error:10\n0.3 temperature_c=40 power_mw=90000")
    expression = "(lambda gpu: [sample(gpu), time.sleep(0.4), sample(gpu)])(nvml.Gpu(0))"
    before, _, after = told(environment, expression)
    assert (before["temperature_c"], before["power_mw"]) == (None, None)
    assert (after["temperature_c"], after["power_mw"]) == (40, 90000)
    assert before["sm_clock_mhz"] == 210


@pytest.mark.parametrize(
    ("missing", "lost"),
    [
        (["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV"], set()),  # a driver before 535
        (["nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetTemperature"], set()),  # a driver to come
        (["nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"], {"event_reasons"}),
        (["nvmlDeviceGetPerformanceState"], {"pstate"}),
        (["nvmlDeviceGetFieldValues"], {"power_mw"}),  # nvmlDeviceGetPowerUsage still gives the average
    ],
)
def test_a_missing_symbol_costs_at_most_its_field(standin_nvml: Standin, missing: list[str], lost: set[str]):
    environment = standin_nvml("0 memory_temperature_c=unsupported", missing=missing)
    row, state = told(environment, "(lambda gpu: [sample(gpu), gpu.state()])(nvml.Gpu(0))")
    assert {name for name in SAMPLE_FIELDS if row[name] is None} == lost | {"memory_temperature_c"}
    assert (state["event_reasons"] is None) == ("event_reasons" in lost)
    assert state["temperature_c"] == 35


@pytest.mark.parametrize(
    ("capability", "field"),
    [
        ("7.5", "power_mw"),  # Turing
        ("8.0", "power_mw"),  # GA100
        ("8.6", "power_average_mw"),
        ("9.0", "power_average_mw"),
        ("unsupported", None),
    ],
)
def test_power_usage_goes_where_it_means_the_same(standin_nvml: Standin, capability: str, field: str | None):
    environment = standin_nvml(
        f"0 cc={capability} power_mw=unsupported power_average_mw=unsupported power_usage_mw=77000"
    )
    row = told(environment, "sample(nvml.Gpu(0))")
    powers = {name: row[name] for name in ("power_mw", "power_average_mw")}
    assert powers == {"power_mw": None, "power_average_mw": None, **({field: 77000} if field else {})}


def test_a_slow_reading_stays_out_of_the_loop(standin_nvml: Standin):
    environment = standin_nvml(
        "slow nvmlDeviceGetCurrPcieLinkGeneration 2500\nslow nvmlDeviceGetPerformanceState 2500\n0 pcie_gen=3"
    )
    row, state = told(environment, "(lambda gpu: [sample(gpu), gpu.state()])(nvml.Gpu(0))")
    assert row["pcie_gen"] is None
    assert state["pcie_gen"] == 3
    assert row["pstate"] == 8  # without it a sample would not be worth having


@pytest.mark.parametrize("code", [2, 26])  # invalid argument, deprecated
def test_a_call_that_was_retired_has_a_stand_in(standin_nvml: Standin, code: int):
    environment = standin_nvml(
        "0 event_reasons=0x8\n"
        f"error nvmlDeviceGetCurrentClocksEventReasons {code}\nerror nvmlDeviceGetTemperature {code}"
    )
    row, state = told(environment, "(lambda gpu: [sample(gpu), gpu.state()])(nvml.Gpu(0))")
    assert row["event_reasons"] == 8
    assert state["event_reasons"] == ["hw_slowdown"]
    assert (row["temperature_c"], state["temperature_c"]) == (35, 35)


def test_a_gpu_that_wants_a_reset_is_lost_too(standin_nvml: Standin):
    answer = told(standin_nvml("0 sm_clock_mhz=error:16"), "nvml.Gpu(0).read()")
    assert answer["error"].startswith("GPU 0 (NVIDIA GeForce RTX 4090) is lost (GPU requires restart)")


def test_where_every_gpu_is_lost_that_is_said(standin_nvml: Standin):
    answer = told(standin_nvml("gpus 2\n0 lost=1"), "selection.resolve('GPU-00000001')")
    assert "is lost" in answer["error"]


def test_a_lost_gpu_is_a_sentence(standin_nvml: Standin):
    environment = standin_nvml("0 lost=0\n0.3 lost=1")
    answer = told(environment, "(lambda gpu: [gpu.read(), time.sleep(0.4), gpu.read()])(nvml.Gpu(0))")
    assert answer["exit_code"] == 5
    assert answer["error"] == (
        "GPU 0 (NVIDIA GeForce RTX 4090) is lost (GPU is lost): look for Xid messages in `sudo dmesg`, then reset it"
        " or reboot"
    )


def test_a_lost_gpu_does_not_hide_its_neighbours(standin_nvml: Standin):
    environment = standin_nvml("gpus 3\n0 gpu=1 lost=1")
    state, found = told(environment, "[nvml.machine_state(), selection.resolve('GPU-00000002').index]")
    assert [gpu["pstate"] for gpu in state["gpus"]] == [8, None, 8]
    assert [note.split(":")[0] for note in state["notes"]] == ["GPU 1 (unknown) is lost (GPU is lost)"]
    assert found == 2


def test_counters_are_microseconds_and_absent_where_not_counted(standin_nvml: Standin):
    environment = standin_nvml("0 sw_power_cap_us=1500000 hw_thermal_slowdown_us=unsupported sync_boost_us=error:999")
    assert told(environment, "nvml.Gpu(0).counters_us()") == {
        "sw_power_cap": 1500000,
        "sw_thermal_slowdown": 0,
        "hw_power_brake_slowdown": 0,
    }
    without = standin_nvml("", missing=["nvmlDeviceGetFieldValues"])
    assert told(without, "nvml.Gpu(0).counters_us()") == {}


def test_the_machine_is_read_in_the_words_of_check(standin_nvml: Standin):
    environment = standin_nvml(
        "gpus 2\ndriver 610.57.04\ncuda 13030\n"
        '0 name="NVIDIA H200" cc=9.0 persistence=1 mig_mode=0 mig_pending=1 ecc_mode=1 ecc_pending=1 pstate=0\n'
        "0 event_reasons=0x1 temperature_limit_c=unsupported temperature_c=37 temperature_margin_c=50\n"
        "0 gpu=1 persistence=error:999 compute_mode=3 display_active=1 processes=71:C:python:300,71:G:python:20,9:G:X:5"
    )
    state = told(environment, "nvml.machine_state()")
    assert (state["driver_version"], state["cuda_version"], state["source"]) == ("610.57.04", "13.3", "live")
    first, second = state["gpus"]
    assert (first["name"], first["compute_capability"], first["pci_bus_id"]) == (
        "NVIDIA H200",
        "9.0",
        "00000000:01:00.0",
    )
    assert (first["persistence_mode"], second["persistence_mode"]) == ("on", "unknown")
    assert (first["mig_mode"], first["mig_devices"], first["ecc_mode"]) == (
        "disabled (pending enabled)",
        None,
        "enabled",
    )
    assert first["event_reasons"] == ["gpu_idle"]
    assert (first["power_w"], first["power_instant_w"], first["power_limit_w"]) == (20.0, 21.0, 450.0)
    assert first["temperature_limit_c"] == 87  # newer data-centre parts give the distance alone
    assert (first["application_sm_clock_mhz"], first["driver_model"], first["processes"]) == (None, None, [])
    assert (second["compute_mode"], second["display_active"]) == ("Exclusive_Process", True)
    assert [(p["pid"], p["name"], p["kind"], p["memory_mib"]) for p in second["processes"]] == [
        (9, "X", "G", 5.0),
        (71, "python", "C+G", 20.0),
    ]


def test_mig_instances_are_counted_and_name_their_gpu(standin_nvml: Standin):
    environment = standin_nvml("gpus 2\n0 gpu=1 mig_mode=1 mig_pending=1 mig_devices=3 mig_uuid=MIG-5c")
    state = told(environment, "nvml.machine_state(nvml.Gpu(1))")
    assert [(gpu["index"], gpu["mig_mode"], gpu["mig_devices"]) for gpu in state["gpus"]] == [(1, "enabled", 3)]
    chosen = told(environment, "(lambda gpu: [gpu.index, gpu.uuid, gpu.cuda_uuid])(selection.resolve('MIG-5c'))")
    assert chosen == [1, "GPU-00000001-0000-4000-8000-000000000000", "MIG-5c"]


def test_persistence_that_does_not_exist_is_not_off(standin_nvml: Standin):
    environment = standin_nvml("0 persistence=unsupported")
    assert told(environment, "nvml.machine_state().gpus[0].persistence_mode") == "n/a"


FOUR = """gpus 4
0 gpu=0 pci=00000000:3B:00.0 uuid=GPU-aa111111-0000
0 gpu=1 pci=00000000:AF:00.0 uuid=GPU-aa222222-0000
0 gpu=2 pci=00010000:3B:00.0 uuid=GPU-bb333333-0000
0 gpu=3 pci=00000000:0A:00.0 uuid=GPU-cc444444-0000
"""


def test_a_gpu_is_named_by_index_uuid_or_bus_id_in_any_spelling(standin_nvml: Standin):
    names = {
        "0": 0,
        "3": 3,
        "GPU-aa222222-0000": 1,
        "GPU-bb": 2,
        "gpu-CC4": 3,
        "cc444": 3,
        "00000000:AF:00.0": 1,
        "0000:af:00.0": 1,
        "af:00.0": 1,
        "AF:00": 1,
        "3b:0.0": 0,
        "10000:3b:00.0": 2,
        "a:0": 3,
    }
    found = told(standin_nvml(FOUR), f"[selection.resolve(name).index for name in {list(names)}]")
    assert dict(zip(names, found, strict=True)) == names


@pytest.mark.parametrize("name", ["4", "GPU-dd", "b0:00.0", "first", "", "MIG-1"])
def test_a_gpu_that_is_not_there_is_said_with_those_that_are(standin_nvml: Standin, name: str):
    answer = told(standin_nvml(FOUR), f"selection.resolve({name!r})")
    assert answer["exit_code"] == 5
    assert "GPU-aa111111-0000, 00000000:3B:00.0" in answer["error"] or "nvidia-smi -L" in answer["error"]


def test_the_beginning_of_two_uuids_is_not_guessed(standin_nvml: Standin):
    answer = told(standin_nvml(FOUR), "selection.resolve('GPU-aa')")
    assert answer == {"error": "several GPUs have a UUID that begins with GPU-aa: give more of it", "exit_code": 1}


def test_cuda_numbers_are_mapped_by_bus_id(standin_nvml: Standin):
    """NVML's order here is 3b, af, 10000:3b, 0a; CUDA's in PCI order is 0a, 3b, af, 10000:3b."""
    choices = [
        ("None", {}, 0),
        ("None", {"CUDA_VISIBLE_DEVICES": "0"}, 3),
        ("None", {"CUDA_VISIBLE_DEVICES": "2,0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, 1),
        ("None", {"CUDA_VISIBLE_DEVICES": "GPU-bb333333-0000"}, 2),
        ("'1'", {"CUDA_VISIBLE_DEVICES": "0"}, 1),
    ]
    expression = "[" + ",".join(f"selection.choose({selector}, {given}).index" for selector, given, _ in choices) + "]"
    assert told(standin_nvml(FOUR), expression) == [index for _, _, index in choices]


@pytest.mark.parametrize("visible", ["", "-1", "7", "NoDevFiles"])
def test_hidden_gpus_are_not_measured_behind_cudas_back(standin_nvml: Standin, visible: str):
    answer = told(standin_nvml(FOUR), f"selection.choose(None, {{'CUDA_VISIBLE_DEVICES': {visible!r}}})")
    assert answer["error"] == f"CUDA_VISIBLE_DEVICES={visible} hides every GPU from CUDA: unset it, or give --gpu"


def test_a_cuda_number_among_mixed_models_is_not_guessed(standin_nvml: Standin):
    environment = standin_nvml('gpus 2\n0 gpu=1 name="NVIDIA T1000"')
    numbered = {"CUDA_VISIBLE_DEVICES": "1"}
    assert told(environment, f"selection.choose(None, {numbered})")["exit_code"] == 1
    ordered = {**numbered, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    assert told(environment, f"selection.choose(None, {ordered}).name") == "NVIDIA T1000"


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (9, "the NVIDIA driver is installed but not loaded: try `sudo modprobe nvidia`"),
        (18, "the NVIDIA driver was updated while the old one is still loaded: reboot"),
        (4, "this user may not open the GPU's device files"),
        (999, "NVML does not start (Unknown Error): see whether `nvidia-smi` does"),
    ],
)
def test_a_driver_that_does_not_start_is_one_sentence_with_a_remedy(standin_nvml: Standin, code: int, said: str):
    answer = told(standin_nvml(f"error nvmlInitWithFlags {code}"), "1")
    assert answer["error"].startswith(said)
    assert answer["exit_code"] == 5


def test_no_driver_and_no_gpu_are_one_sentence(standin_nvml: Standin, tmp_path: Path):
    without_library = told({"LD_LIBRARY_PATH": str(tmp_path)}, "1")
    assert without_library["error"].startswith("there is no NVIDIA driver here (libnvidia-ml.so.1 was not found)")
    without_gpu = told(standin_nvml("gpus 0"), "1")
    assert without_gpu["error"].startswith("the NVIDIA driver finds no GPU")
    assert without_library["exit_code"] == without_gpu["exit_code"] == 5


@pytest.mark.parametrize(
    ("files", "platform"),
    [
        ({"proc/version": "Linux version 6.8.0-45-generic"}, "linux"),
        ({"proc/version": "Linux version 5.15.167.4-microsoft-standard-WSL2"}, "wsl2"),
        ({"proc/version": "Linux version 6.6", "dev/dxg": ""}, "wsl2"),
        ({"proc/version": "Linux version 5.15.148-tegra", "etc/nv_tegra_release": "# R36"}, "jetson"),
        ({"proc/device-tree/compatible": "nvidia,p3737\0nvidia,tegra234\0"}, "jetson"),
        ({}, "linux"),
    ],
)
def test_the_platform_is_told_from_the_system(
    standin_nvml: Standin, tmp_path: Path, files: dict[str, str], platform: str
):
    for name, content in files.items():
        (tmp_path / "root" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "root" / name).write_text(content)
    state = told(standin_nvml(""), f"nvml.machine_state(root=Path({str(tmp_path / 'root')!r}))")
    assert state["platform"] == platform


def test_the_stand_in_aborts_on_every_setter_of_the_binding(standin_nvml: Standin):
    """So that a test anywhere which sets something dies."""
    names = setters()
    assert {"nvmlDeviceSetPersistenceMode", "nvmlDeviceSetGpuLockedClocks", "nvmlSystemSetNvlinkBwMode"} <= set(names)
    environment = standin_nvml("")
    died = run(environment, "pynvml.nvmlDeviceSetPersistenceMode(nvml.Gpu(0)._handle, 1)")
    assert died.returncode == -signal.SIGABRT
    assert "a setter was called: nvmlDeviceSetPersistenceMode" in died.stderr
    present = "[hasattr(pynvml.nvmlLib, name) for name in " + repr(names) + "]"
    assert all(told(environment, present))


def test_a_sample_says_nan_for_missing(standin_nvml: Standin):
    row = told(standin_nvml("0 pcie_gen=unsupported"), "[str(value) for value in nvml.Gpu(0).read()]")
    assert math.isnan(float(row[list(SAMPLE_FIELDS).index("pcie_gen")]))
