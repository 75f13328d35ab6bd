"""Findings from NVML itself, through the real binding: there, not there, not supported, and failing."""

import os
import subprocess
import sys

import msgspec
import pytest
from conftest import Standin

from gpuwarm.analysis import checks
from gpuwarm.analysis.finding import Finding
from gpuwarm.machine import MachineState

READ = """
import msgspec, sys
from gpuwarm.measure import nvml
with nvml.session():
    sys.stdout.buffer.write(msgspec.json.encode(nvml.machine_state()))
"""
GEFORCE = "memory_used_mib=2 gpu_util_pct=0"
GEFORCE_AT_WORK = f"{GEFORCE} gpu_util_pct=97 pstate=2 sm_clock_mhz=2700 mem_clock_mhz=10251 event_reasons=0 pcie_gen=4"
H100 = (
    'name="NVIDIA H100 PCIe" cc=9.0 persistence=1 pstate=0 sm_clock_max_mhz=1755 mem_clock_mhz=1593 memory_used_mib=2'
    " mem_clock_max_mhz=1593 power_limit_mw=350000 power_limit_default_mw=350000 pcie_gen=4 mig_mode=0 ecc_mode=1"
    " ecc_pending=1 sm_clock_mhz=345"
)
H100_AT_WORK = f"{H100} gpu_util_pct=97 sm_clock_mhz=1755 event_reasons=0 power_usage_mw=240000"
SHARED = "processes=71:C:python:300"


def state(environment: dict[str, str]) -> MachineState:
    command = [sys.executable, "-c", READ]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **environment}, check=True)
    return msgspec.json.decode(done.stdout, type=MachineState)


def found(environment: dict[str, str]) -> tuple[Finding, ...]:
    return checks.findings(state(environment))


@pytest.mark.parametrize(
    ("identifier", "there", "not_there", "key"),
    [
        ("persistence-on", f"{H100} persistence=1", "persistence=0", "persistence"),
        ("persistence-off", f"{H100} persistence=0", "persistence=1", "persistence"),
        ("persistence-off-masked", f"{GEFORCE} display_active=1", "display_active=0", "display_active"),
        ("at-rest", f"{GEFORCE} event_reasons=0", "gpu_util_pct=97", "pstate"),
        ("held-by-context", f"{GEFORCE} pstate=2 event_reasons=0 {SHARED}", "pstate=8", "processes"),
        ("clock-held-at-rest", f"{H100} sm_clock_mhz=1740 event_reasons=0", "sm_clock_mhz=345", "sm_clock_mhz"),
        ("cuda-p2", GEFORCE_AT_WORK, "pstate=0", "pstate"),
        ("slow-under-load", f"{H100_AT_WORK} sm_clock_mhz=345", "sm_clock_mhz=1755", "sm_clock_mhz"),
        ("clock-limited", f"{H100_AT_WORK} sm_clock_mhz=1410", "sm_clock_mhz=1755", "event_reasons"),
        ("application-clocks", f"{H100_AT_WORK} event_reasons=0x2", "event_reasons=0", "event_reasons"),
        ("memory-clock-low", f"{H100_AT_WORK} mem_clock_mhz=800", "mem_clock_mhz=1593", "mem_clock_max_mhz"),
        ("power-cap", f"{H100_AT_WORK} sm_clock_mhz=1400 event_reasons=4", "event_reasons=0", "event_reasons"),
        ("power-limit-lowered", f"{H100} power_limit_mw=200000", "power_limit_mw=350000", "power_limit_mw"),
        ("busy-at-idle-power", f"{H100_AT_WORK} power_usage_mw=40000", "power_usage_mw=240000", "power_usage_mw"),
        ("thermal-slowdown", f"{H100_AT_WORK} event_reasons=0x20", "event_reasons=0", "event_reasons"),
        ("near-thermal-limit", f"{H100_AT_WORK} temperature_c=87", "temperature_c=60", "temperature_c"),
        ("power-brake", f"{H100_AT_WORK} event_reasons=0x88", "event_reasons=0", "event_reasons"),
        ("hardware-slowdown", f"{H100_AT_WORK} event_reasons=0x8", "event_reasons=0", "event_reasons"),
        ("sync-boost", f"{H100_AT_WORK} event_reasons=0x10", "event_reasons=0", "event_reasons"),
        ("pcie-below-max", f"{H100_AT_WORK} pcie_width=8", "pcie_width=16", "pcie_width"),
        ("other-processes", f"{H100} {SHARED}", 'processes=""', "processes"),
        ("display-attached", f"{H100} display_active=1", "display_active=0", "display_active"),
        ("mig-enabled", f"{H100} mig_mode=1 mig_pending=1 mig_devices=2", "mig_mode=0 mig_pending=0", "mig_mode"),
        ("mig-without-instances", f"{H100} mig_mode=1 mig_pending=1", "mig_devices=1", "mig_slots"),
        ("mig-pending", f"{H100} mig_pending=1", "mig_pending=0", "mig_mode"),
        ("ecc-pending", f"{H100} ecc_pending=0", "ecc_pending=1", "ecc_mode"),
        ("compute-mode-prohibited", f"{H100} compute_mode=2", "compute_mode=0", "compute_mode"),
        ("compute-mode-exclusive", f"{H100} compute_mode=3", "compute_mode=0", "compute_mode"),
    ],
)
def test_a_finding_is_made_where_it_is_so_and_nowhere_else(
    standin_nvml: Standin, identifier: str, there: str, not_there: str, key: str
):
    """GPU 0 has it, GPU 1 has not, GPU 2 does not support the reading, and on GPU 3 the reading fails."""
    environment = standin_nvml(
        f"gpus 4\n0 {there}\n0 gpu=1 {not_there}\n0 gpu=2 {key}=unsupported\n0 gpu=3 {key}=error:999"
    )
    assert {finding.gpu for finding in found(environment) if finding.id == identifier} == {0}


def test_persistence_that_cannot_be_read_is_unknown_and_not_off(standin_nvml: Standin):
    environment = standin_nvml(f"gpus 2\n0 {H100}\n0 gpu=0 persistence=unsupported\n0 gpu=1 persistence=error:999")
    unknown = [finding for finding in found(environment) if finding.id == "persistence-unknown"]
    assert [(finding.gpu, finding.severity) for finding in unknown] == [(0, "unknown"), (1, "unknown")]


def test_clocks_that_cannot_be_read_are_unknown_and_not_at_rest(standin_nvml: Standin):
    environment = standin_nvml(f"0 {H100} pstate=unsupported sm_clock_mhz=error:999")
    assert {finding.id for finding in found(environment)} == {"persistence-on", "clocks-unknown"}


def test_neighbours_are_compared(standin_nvml: Standin):
    timeline = f"gpus 3\n0 {H100} power_usage_mw=90000 event_reasons=0\n0 gpu=2 sm_clock_mhz=1700 power_usage_mw=110000"
    (finding,) = [finding for finding in found(standin_nvml(timeline)) if finding.id == "clocks-differ"]
    assert "2 at 1700 MHz" in finding.summary
    unread = found(standin_nvml(f"{timeline} sm_clock_mhz=unsupported"))
    assert "clocks-differ" not in {finding.id for finding in unread}


def test_forward_compatibility_needs_both_versions(standin_nvml: Standin):
    newer = f"driver 535.183.06\ncuda 12060\n0 {H100}"
    assert "forward-compatibility" in {finding.id for finding in found(standin_nvml(newer))}
    unread = found(standin_nvml(f"error nvmlSystemGetDriverVersion 999\n{newer}"))
    assert "forward-compatibility" not in {finding.id for finding in unread}
