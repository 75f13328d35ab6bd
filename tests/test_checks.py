"""Findings: what is wrong with a machine is said, what is not wrong is not, and what cannot be seen is unknown."""

import ast
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwarm.analysis import checks
from gpuwarm.analysis.finding import Finding, verdict
from gpuwarm.machine import (
    CudaCache,
    DeviceHolder,
    DriverLoad,
    GpuNode,
    GpuProcess,
    GpuState,
    HostState,
    MachineState,
    PersistenceDaemon,
)

GEFORCE = GpuState(
    index=0,
    name="NVIDIA GeForce RTX 4070 Ti",
    uuid="GPU-4070",
    pci_bus_id="00000000:01:00.0",
    persistence_mode="on",
    pstate=8,
    sm_clock_mhz=210.0,
    sm_clock_max_mhz=3105.0,
    mem_clock_mhz=405.0,
    mem_clock_max_mhz=10501.0,
    power_w=11.0,
    power_limit_w=285.0,
    power_limit_default_w=285.0,
    temperature_c=31.0,
    temperature_limit_c=90.0,
    utilization_pct=0.0,
    memory_used_mib=2.0,
    memory_total_mib=12282.0,
    compute_mode="Default",
    display_active=False,
    event_reasons=("gpu_idle",),
    pcie_gen=1,
    pcie_gen_max=4,
    pcie_width=16,
    pcie_width_max=16,
    processes=(),
)
H100 = replace(
    GEFORCE,
    name="NVIDIA H100 PCIe",
    pstate=0,
    sm_clock_mhz=345.0,
    sm_clock_max_mhz=1755.0,
    mem_clock_mhz=1593.0,
    mem_clock_max_mhz=1593.0,
    power_w=48.0,
    power_limit_w=350.0,
    power_limit_default_w=350.0,
    pcie_gen=5,
    pcie_gen_max=5,
    mig_mode="disabled",
    ecc_mode="enabled",
)
AT_WORK: dict[str, Any] = {"utilization_pct": 98.0, "event_reasons": ()}
H100_AT_WORK = replace(H100, sm_clock_mhz=1755.0, power_w=240.0, **AT_WORK)
GEFORCE_AT_WORK = replace(
    GEFORCE, pstate=2, sm_clock_mhz=2760.0, mem_clock_mhz=10251.0, power_w=190.0, pcie_gen=4, **AT_WORK
)
DAEMON = PersistenceDaemon(
    pid=812,
    command=("/usr/bin/nvidia-persistenced", "--user", "nvidia-persistenced"),
    socket=True,
    unit="/usr/lib/systemd/system/nvidia-persistenced.service",
    unit_command="/usr/bin/nvidia-persistenced --user nvidia-persistenced",
)
HOST = HostState(
    hostname="node7",
    distribution="Ubuntu 24.04.1 LTS",
    distribution_ids=("ubuntu", "debian"),
    uptime_s=86_400.0,
    persistence_daemon=DAEMON,
    holders_complete=True,
    gpu_nodes=(GpuNode("0000:01:00.0", 0, "Disabled by default", "on"),),
    cuda_cache=CudaCache("/root/.nv/ComputeCache", True, True, "ext4", 10.0, 50_000.0),
    cpu_governor="performance",
    cpu_frequency_driver="acpi-cpufreq",
    memory_total_mib=64_000.0,
    memory_available_mib=60_000.0,
    runtimes=("tensorrt_lean",),
    packages={"tensorrt-lean-cu13-bindings": "10.16.1"},
)


def from_file(*gpus: GpuState, **machine: Any) -> MachineState:
    return MachineState(**{"source": "paste.txt", "platform": "linux", "gpus": gpus, **machine})


def live(*gpus: GpuState, host: HostState = HOST, **machine: Any) -> MachineState:
    known = {"platform": "linux", "driver_version": "580.95.05", "cuda_version": "13.0"}
    return MachineState(**{**known, "gpus": gpus, "host": host, **machine})


def ids(machine: MachineState) -> set[str]:
    return {finding.id for finding in checks.findings(machine)}


def the(identifier: str, machine: MachineState) -> Finding:
    (finding,) = [finding for finding in checks.findings(machine) if finding.id == identifier]
    return finding


def bad(machine: MachineState) -> set[str]:
    return {finding.id for finding in checks.findings(machine) if finding.severity not in ("ok", "not_applicable")}


def test_a_gpu_without_an_index_takes_none_that_another_has():
    lost = GpuState(trouble="GPU is lost")
    gpus = (replace(GEFORCE, index=0), replace(GEFORCE, index=2), lost)
    (finding,) = [finding for finding in checks.findings(MachineState(gpus=gpus)) if finding.id == "gpu-lost"]
    assert finding.gpu == 1


@pytest.mark.parametrize("gpu", [GEFORCE, GEFORCE_AT_WORK, H100, H100_AT_WORK])
def test_a_machine_set_up_right_has_nothing_to_mend(gpu: GpuState):
    machine = live(gpu)
    assert bad(machine) == set()
    assert verdict(checks.findings(machine)) == "ok"


def test_a_machine_of_which_nothing_is_known_is_unknown():
    machine = from_file(GpuState())
    assert ids(machine) == {"persistence-unknown", "clocks-unknown"}
    assert verdict(checks.findings(machine)) == "unknown"


# Persistence: five situations.


def test_persistence_on_by_the_daemon():
    finding = the("persistence-on", live(H100))
    assert (finding.severity, finding.summary) == ("ok", "Persistence: on (daemon)")
    assert "pid 812" in finding.evidence


def test_persistence_on_the_legacy_way_lasts_until_the_reboot():
    finding = the("persistence-on", live(H100, host=replace(HOST, persistence_daemon=PersistenceDaemon())))
    assert (finding.severity, finding.summary) == ("info", "Persistence: on (legacy), until the next reboot")
    assert finding.command is None  # on Ubuntu nothing is known that would make it last
    stopped = replace(HOST, persistence_daemon=replace(DAEMON, pid=None, command=(), socket=False))
    assert the("persistence-on", live(H100, host=stopped)).command.startswith("sudo systemctl enable --now")


def test_a_running_daemon_that_keeps_nothing_is_not_persistence():
    daemon = replace(
        DAEMON,
        command=(*DAEMON.command, "--no-persistence-mode"),
        unit_command=f"{DAEMON.unit_command} --no-persistence-mode --verbose",
    )
    finding = the(
        "persistence-off", live(replace(H100, persistence_mode="off"), host=replace(HOST, persistence_daemon=daemon))
    )
    assert finding.severity == "warning"
    assert "--no-persistence-mode" in finding.evidence
    assert (
        r"ExecStart=\nExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --persistence-mode --verbose\n"
        in finding.command
    )
    assert "zz-persistence-mode.conf" in finding.command


@pytest.mark.parametrize(
    ("daemon", "distribution", "command"),
    [
        (DAEMON, ("rocky", "rhel"), "sudo systemctl restart nvidia-persistenced"),  # somebody did nvidia-smi -pm 0
        (replace(DAEMON, pid=None, command=()), ("rocky",), "sudo systemctl enable --now nvidia-persistenced"),
        (
            replace(DAEMON, masked=True, unit_command=None),
            ("ubuntu", "debian"),
            "sudo systemctl unmask nvidia-persistenced && sudo systemctl enable --now nvidia-persistenced",
        ),
        (PersistenceDaemon(), ("ubuntu", "debian"), "sudo nvidia-smi -pm 1"),  # its driver is not Ubuntu's
        (
            PersistenceDaemon(),
            ("debian",),
            "sudo apt-get install nvidia-persistenced && sudo systemctl enable --now nvidia-persistenced",
        ),
        (
            PersistenceDaemon(),
            ("rocky", "rhel", "centos"),
            "sudo dnf install nvidia-persistenced && sudo systemctl enable --now nvidia-persistenced",
        ),
        (PersistenceDaemon(), ("talos",), "sudo nvidia-smi -pm 1"),
    ],
)
def test_persistence_is_turned_on_in_this_systems_own_way(
    daemon: PersistenceDaemon, distribution: tuple[str, ...], command: str
):
    host = replace(HOST, persistence_daemon=daemon, distribution_ids=distribution)
    assert the("persistence-off", live(replace(H100, persistence_mode="off"), host=host)).command == command


def test_persistence_off_and_what_it_costs_when_measured():
    load = DriverLoad("nvidia0", alone_ms=(1900.0, 1840.0, 1850.0), held_ms=(0.1, 0.2, 0.1))
    finding = the("persistence-off", live(replace(H100, persistence_mode="off"), host=replace(HOST, driver_load=load)))
    assert finding.severity == "warning"
    assert finding.summary == "Persistence: off, and costs 1850 ms here (measured)"
    assert "opening nvidia0 3 times took 1840.0 to 1900.0 ms, while a process held it 0.1 to 0.2 ms" in finding.evidence


def test_persistence_off_that_costs_nothing_is_no_warning():
    load = DriverLoad("nvidia0", alone_ms=(0.3, 0.2, 0.3), held_ms=(0.2, 0.2, 0.3))
    finding = the("persistence-off", live(replace(H100, persistence_mode="off"), host=replace(HOST, driver_load=load)))
    assert finding.severity == "info"
    assert "something keeps it loaded" in finding.summary


@pytest.mark.parametrize(
    ("change", "holder"),
    [
        ({"processes": (GpuProcess(1203, "/usr/lib/xorg/Xorg", "G", 4.0),)}, "Xorg (pid 1203)"),
        ({"processes": (GpuProcess(9, "a", "C"), GpuProcess(10, "b", "C"))}, "a (pid 9) and 1 more"),
        ({"display_active": True, "processes": None}, "the display session"),
        ({"memory_used_mib": 900.0}, "a client that is not listed (900 MiB in use)"),
    ],
)
def test_persistence_off_behind_somebody_who_holds_the_device(change: dict[str, Any], holder: str):
    finding = the("persistence-off-masked", from_file(replace(GEFORCE, persistence_mode="off", **change)))
    assert finding.severity == "info"
    assert f"masked by {holder} holding the device" in finding.summary
    assert "cost returns" in finding.summary


def test_an_open_device_file_masks_persistence_on_its_own_gpu_alone():
    host = replace(
        HOST,
        holders=(DeviceHolder(44, "dcgm-exporter", ("nvidia3",)), DeviceHolder(812, "nvidia-persiste", ("nvidia1",))),
        gpu_nodes=(GpuNode("0000:01:00.0", 3), GpuNode("0000:02:00.0", 1)),
    )
    first = replace(H100, persistence_mode="off")
    second = replace(first, index=1, pci_bus_id="00000000:02:00.0")
    machine = live(first, second, host=host)
    assert the("persistence-off-masked", machine).gpu == 0
    assert the("persistence-off", machine).gpu == 1
    assert "dcgm-exporter (pid 44)" in the("persistence-off-masked", machine).summary


@pytest.mark.parametrize(
    ("gpu", "platform", "system", "command"),
    [
        (replace(GEFORCE, persistence_mode="on"), "wsl2", "WSL2 guest", "nvidia-smi.exe -i 0 -q -d PERFORMANCE,CLOCK"),
        (replace(GEFORCE, driver_model="WDDM", persistence_mode="n/a"), "windows", "Windows", "driver_model.current"),
        (replace(GEFORCE, driver_model="WDDM", persistence_mode="unknown"), "unknown", "Windows", "driver_model"),
        (GpuState(index=0, name="Orin (nvgpu)", persistence_mode="off"), "jetson", "Jetson", "jetson_clocks --show"),
        (
            GpuState(index=0, name="GRID V100D-16Q", persistence_mode="on", pstate=0),
            "linux",
            "vGPU guest",
            "nvidia-smi",
        ),
        (
            GpuState(index=0, name="NVIDIA A40-8C", persistence_mode="off", pstate=8),
            "linux",
            "vGPU guest",
            "nvidia-smi",
        ),
        (GpuState(index=0, name="NVIDIA H100-1-10CME", persistence_mode="off"), "linux", "vGPU guest", "nvidia-smi"),
    ],
)
def test_persistence_is_not_applicable_where_it_is_no_setting(gpu: GpuState, platform: str, system: str, command: str):
    finding = the("persistence-not-applicable", from_file(gpu, platform=platform))
    assert finding.severity == "not_applicable"
    assert finding.summary == f"Persistence: not applicable here ({system})"
    assert command in finding.command
    assert "-pm" not in f"{finding.advice} {finding.command}"


def test_off_inside_a_container_cannot_tell_the_hosts_setting():
    finding = the(
        "persistence-unknown", live(replace(H100, persistence_mode="off"), host=replace(HOST, container="docker"))
    )
    assert (finding.severity, finding.summary) == ("unknown", "Persistence: cannot tell")
    assert finding.advice == "On the host:"


def test_on_inside_a_container_is_on():
    finding = the(
        "persistence-on", live(H100, host=replace(HOST, container="docker", persistence_daemon=PersistenceDaemon()))
    )
    assert finding.severity == "ok"


def test_a_machine_that_has_just_booted_gives_no_alarm():
    finding = the("persistence-unknown", live(replace(H100, persistence_mode="off"), host=replace(HOST, uptime_s=41.0)))
    assert "41 s after boot" in finding.evidence
    assert finding.command == "gpuwarm check --wait"


def test_a_daemon_hidden_from_this_user_is_seen_by_its_socket():
    hidden = replace(DAEMON, pid=None, command=())
    finding = the("persistence-on", live(H100, host=replace(HOST, persistence_daemon=hidden)))
    assert finding.summary == "Persistence: on (daemon)"


def test_two_minutes_after_boot_off_is_off():
    assert "persistence-off" in ids(live(replace(H100, persistence_mode="off"), host=replace(HOST, uptime_s=121.0)))


def test_a_query_that_woke_the_gpu_is_said():
    gpu = replace(GEFORCE, persistence_mode="off", pstate=0, sm_clock_mhz=2535.0, event_reasons=(), power_w=36.0)
    assert "looking at it has just loaded the driver" in the("persistence-off", from_file(gpu)).evidence


@pytest.mark.parametrize(
    "change",
    [
        {"processes": None},  # nobody knows who uses it
        {"name": "NVIDIA A100-SXM4-40GB", "sm_clock_mhz": None},  # P0 is what it always shows
        {"name": "Tesla V100-PCIE-16GB", "sm_clock_mhz": None},
    ],
)
def test_a_query_is_not_said_to_have_woken_what_may_have_been_awake(change: dict[str, Any]):
    woken = replace(GEFORCE, persistence_mode="off", pstate=0, sm_clock_mhz=2535.0, event_reasons=())
    assert "looking at it" not in the("persistence-off", from_file(replace(woken, **change))).evidence


def test_the_evidence_says_what_it_could_not_see():
    off = replace(H100, persistence_mode="off")
    assert the("persistence-off", from_file(off)).evidence == "the flag is off; no process is listed"
    assert (
        "a monitor that is in no list may hold it" in the("persistence-off", from_file(replace(off, pstate=8))).evidence
    )
    assert "whether something holds the device is not shown" in (
        the("persistence-off", from_file(replace(off, processes=None))).evidence
    )
    assert "root can" not in the("persistence-off", live(off)).evidence
    assert "root can" in the("persistence-off", live(off, host=replace(HOST, holders_complete=False))).evidence


def test_what_was_not_measured_can_be_on_this_machine_alone():
    off = replace(H100, persistence_mode="off")
    assert "gpuwarm check --measure" in the("persistence-off", live(off)).summary
    assert "--measure" not in the("persistence-off", from_file(off)).summary


def test_wsl2s_constant_is_called_one():
    constant = the("persistence-not-applicable", from_file(replace(GEFORCE, driver_model="WDDM"), platform="wsl2"))
    assert constant.evidence == "shown as on, a constant here; driver model WDDM"
    unseen = the("persistence-not-applicable", from_file(replace(GEFORCE, persistence_mode="n/a"), platform="windows"))
    assert unseen.evidence is None


def test_a_gpu_at_work_was_not_woken_by_the_query():
    gpu = replace(H100_AT_WORK, persistence_mode="off")
    assert "looking at it" not in the("persistence-off", from_file(gpu)).evidence
    assert "looking at it" not in the("persistence-off", from_file(replace(H100, persistence_mode="off"))).evidence


# Clocks.


def test_rest_is_explained_with_what_it_means_for_the_first_inference():
    finding = the("at-rest", from_file(GEFORCE))
    assert finding.severity == "ok"
    assert "P8, SM 210 of 3105 MHz" in finding.summary
    assert "at most 15 times" in finding.advice


def test_rest_of_a_data_centre_gpu_is_told_by_its_clock():
    finding = the("at-rest", from_file(H100))
    assert "P0, SM 345 of 1755 MHz" in finding.summary
    assert "context raises the clock" in finding.advice


def test_a_desktop_that_keeps_a_resting_gpu_busy_is_rest_and_a_program_that_computes_is_not():
    desktop = replace(GEFORCE, utilization_pct=61.0, display_active=True, processes=(GpuProcess(7, "Xorg", "G"),))
    assert ids(from_file(desktop)) == {"persistence-on", "at-rest", "display-attached"}
    computing = replace(desktop, processes=(GpuProcess(8, "python", "C"),))
    assert "slow-under-load" in ids(from_file(computing))
    assert "slow-under-load" in ids(from_file(replace(desktop, display_active=False)))


@pytest.mark.parametrize("pstate", [8, 5, 3, 0])
def test_a_desktop_may_take_all_of_a_slow_gpus_time(pstate: int):
    drawing = replace(
        GEFORCE,
        pstate=pstate,
        sm_clock_mhz=700.0,
        mem_clock_mhz=810.0,
        utilization_pct=97.0,
        display_active=True,
        processes=(GpuProcess(7, "Xorg", "G"), GpuProcess(8, "firefox.exe", "C+G")),
    )
    assert ids(from_file(drawing)) - {"at-rest"} == {"persistence-on", "display-attached"}


def test_a_stale_idle_reason_under_load_is_not_rest():
    assert "at-rest" not in ids(from_file(replace(GEFORCE_AT_WORK, event_reasons=("gpu_idle",))))


def test_a_resting_gpu_marked_power_capped_by_the_driver_is_just_at_rest():
    gpu = replace(GEFORCE, event_reasons=("sw_power_cap",), power_w=19.0)
    assert ids(from_file(gpu)) == {"persistence-on", "at-rest"}


def test_p2_is_a_geforces_warm_state():
    assert the("cuda-p2", from_file(GEFORCE_AT_WORK)).severity == "ok"
    assert "slow-under-load" not in ids(from_file(GEFORCE_AT_WORK))


@pytest.mark.parametrize(
    "gpu",
    [
        replace(GEFORCE_AT_WORK, pstate=5, sm_clock_mhz=None),
        replace(GEFORCE_AT_WORK, sm_clock_mhz=900.0),
        replace(H100_AT_WORK, name="Tesla T4", pstate=2, sm_clock_mhz=None),
        replace(H100_AT_WORK, sm_clock_mhz=345.0),
    ],
)
def test_resting_clocks_under_load_are_a_warning(gpu: GpuState):
    assert the("slow-under-load", from_file(gpu)).severity == "warning"


def test_a_low_clock_with_a_reason_is_left_to_that_reason():
    gpu = replace(H100_AT_WORK, sm_clock_mhz=700.0, event_reasons=("sw_thermal_slowdown",))
    assert ids(from_file(gpu)) == {"persistence-on", "thermal-slowdown"}


def test_locked_clocks_show_in_a_busy_data_centre_gpu_without_any_reason():
    gpu = replace(H100_AT_WORK, sm_clock_mhz=1410.0)
    assert the("clock-limited", from_file(gpu)).severity == "info"
    assert "clock-limited" not in ids(from_file(replace(gpu, event_reasons=None)))


def test_a_geforces_own_boost_is_not_a_locked_clock():
    assert "clock-limited" not in ids(from_file(replace(GEFORCE_AT_WORK, sm_clock_mhz=2620.0)))


@pytest.mark.parametrize(
    "change",
    [
        {"event_reasons": ("applications_clocks_setting",), "sm_clock_mhz": 1200.0},
        {"application_sm_clock_mhz": 1200.0, "sm_clock_mhz": 1200.0},
    ],
)
def test_application_clocks_are_seen_by_their_reason_or_by_their_value(change: dict[str, Any]):
    assert the("application-clocks", from_file(replace(H100_AT_WORK, **change))).severity == "info"


def test_a_gpu_that_boosts_beyond_its_application_clocks_is_not_held_by_them():
    gpu = replace(H100_AT_WORK, application_sm_clock_mhz=1095.0, event_reasons=("applications_clocks_setting",))
    assert "application-clocks" not in ids(from_file(gpu))


def test_application_clocks_at_the_maximum_hold_nothing():
    assert "application-clocks" not in ids(from_file(replace(H100_AT_WORK, application_sm_clock_mhz=1755.0)))


@pytest.mark.parametrize(
    "gpu",
    [
        replace(GEFORCE, pstate=2, event_reasons=(), sm_clock_mhz=None),
        replace(H100, sm_clock_mhz=1755.0, event_reasons=()),
    ],
)
def test_an_idle_gpu_held_up_by_a_context(gpu: GpuState):
    used = replace(gpu, processes=(GpuProcess(5, "python", "C"),))
    finding = the("held-by-context", from_file(used))
    assert finding.severity == "info"
    assert "python (pid 5)" in finding.summary
    assert "held-by-context" not in ids(from_file(gpu))


def test_an_idle_gpu_at_full_clock_without_anybody_is_locked_or_stuck():
    gpu = replace(H100, sm_clock_mhz=1755.0, event_reasons=())
    assert "clock-held-at-rest" in ids(from_file(gpu))
    assert "clock-held-at-rest" not in ids(from_file(replace(gpu, processes=None)))
    hidden = ids(from_file(replace(gpu, memory_used_mib=600.0)))  # as in a container that sees no other's processes
    assert "held-by-context" in hidden
    assert "clock-held-at-rest" not in hidden


def test_a_memory_clock_far_below_its_maximum_counts_under_load_only():
    assert the("memory-clock-low", from_file(replace(GEFORCE_AT_WORK, mem_clock_mhz=5001.0))).severity == "warning"
    assert "memory-clock-low" not in ids(from_file(GEFORCE))


def stuck(index: int, sm_clock_mhz: float, power_w: float, utilization_pct: float | None = 0.0) -> GpuState:
    return replace(
        H100,
        index=index,
        sm_clock_mhz=sm_clock_mhz,
        power_w=power_w,
        utilization_pct=utilization_pct,
        event_reasons=None,
    )


def test_neighbours_whose_clocks_did_not_come_down_stand_out():
    gpus = [stuck(0, 150.0, 90.0), stuck(1, 1700.0, 130.0), stuck(2, 150.0, 91.0), stuck(3, 1700.0, 131.0)]
    finding = the("clocks-differ", from_file(*gpus))
    assert finding.severity == "warning"
    assert finding.gpu is None
    assert finding.summary.endswith("1, 3 at 1700 MHz and 130-131 W; 0, 2 at 150 MHz and 90-91 W")
    assert finding.command == "sudo nvidia-smi --gpu-reset -i 1,3"


def test_neighbours_at_the_same_power_under_load_are_worth_a_note():
    gpus = [stuck(0, 1200.0, 299.0, 100.0), stuck(1, 1900.0, 294.0, 99.0)]
    assert the("clocks-differ", from_file(*gpus)).severity == "info"


@pytest.mark.parametrize(
    "gpus",
    [
        (stuck(0, 150.0, 90.0), stuck(1, 1700.0, 300.0)),  # it works
        (stuck(0, 150.0, 90.0, 0.0), stuck(1, 1700.0, 130.0, 80.0)),  # in another state
        (stuck(0, 150.0, 90.0), replace(stuck(1, 1700.0, 130.0), name="NVIDIA A100")),  # another model
        (stuck(0, 1500.0, 90.0), stuck(1, 1700.0, 130.0)),  # near enough
        (stuck(0, 150.0, 90.0), replace(stuck(1, 1700.0, 130.0), processes=(GpuProcess(5, "python", "C"),))),
        (stuck(0, 150.0, 90.0), replace(stuck(1, 1700.0, 130.0), memory_used_mib=700.0)),  # used from a container
        (stuck(0, 150.0, 20.0), replace(stuck(1, 735.0, 30.0), display_active=True)),
        (stuck(0, 150.0, 20.0, 8.0), stuck(1, 735.0, 30.0, 30.0)),  # both do a little
        tuple(replace(stuck(i, (150.0, 1700.0)[i], 90.0), persistence_mode="off") for i in (0, 1)),  # just woken
    ],
)
def test_neighbours_with_a_reason_to_differ_do_not_stand_out(gpus: tuple[GpuState, ...]):
    assert "clocks-differ" not in ids(from_file(*gpus))


# Limits.


@pytest.mark.parametrize(
    ("gpu", "capped"),
    [
        (replace(GEFORCE_AT_WORK, event_reasons=("sw_power_cap",), power_w=283.0), True),
        (replace(H100_AT_WORK, event_reasons=("sw_power_cap",), sm_clock_mhz=1500.0, power_w=290.0), True),
        (replace(H100_AT_WORK, event_reasons=("sw_power_cap",), power_w=200.0), False),  # full clock: nothing is lost
        (replace(GEFORCE_AT_WORK, utilization_pct=None, event_reasons=("sw_power_cap",), power_w=283.0), True),
        (replace(GEFORCE_AT_WORK, power_w=284.0), False),  # near the limit, but not held
        (replace(GEFORCE, utilization_pct=None, event_reasons=("sw_power_cap",), power_w=19.0), False),
    ],
)
def test_a_power_cap_is_believed_only_near_the_limit_or_below_full_clock(gpu: GpuState, *, capped: bool):
    assert ("power-cap" in ids(from_file(gpu))) == capped


def test_a_gpu_held_low_far_from_its_limit_is_short_of_power():
    battery = replace(
        GEFORCE_AT_WORK,
        name="NVIDIA GeForce RTX 4070 Laptop GPU",
        pstate=5,
        sm_clock_mhz=705.0,
        mem_clock_mhz=810.0,
        pcie_gen=1,
        power_w=21.0,
        power_limit_w=None,
        power_limit_default_w=None,
        event_reasons=("sw_power_cap",),
    )
    assert bad(from_file(battery)) == {"power-cap"}
    finding = the("power-cap", from_file(battery))
    assert finding.severity == "warning"
    assert "on battery" in finding.advice
    assert finding.evidence == "21 W, limit not shown; SM 705 of 3105 MHz"
    near = replace(battery, power_limit_w=22.0)
    assert the("power-cap", from_file(near)).severity == "info"


def test_a_gpu_in_a_state_of_rest_under_load_is_one_warning():
    gpu = replace(GEFORCE_AT_WORK, pstate=5, sm_clock_mhz=705.0, mem_clock_mhz=810.0, pcie_gen=1)
    assert bad(from_file(gpu)) == {"slow-under-load"}


def test_a_power_cap_alone_is_nothing_to_mend():
    gpu = replace(GEFORCE_AT_WORK, event_reasons=("sw_power_cap",), power_w=283.0)
    assert verdict(checks.findings(from_file(gpu))) == "ok"


def test_a_lowered_power_limit():
    finding = the("power-limit-lowered", from_file(replace(GEFORCE, power_limit_w=220.0)))
    assert finding.severity == "warning"
    assert finding.command == "sudo nvidia-smi -i 0 -pl 285"
    assert "power-limit-lowered" not in ids(from_file(replace(GEFORCE, power_limit_w=300.0)))


def test_a_limit_below_the_reference_board_is_a_note_where_the_default_is_not_shown():
    gpu = replace(GEFORCE, name="NVIDIA GeForce RTX 4090", power_limit_w=350.0, power_limit_default_w=None)
    assert the("power-limit-lowered", from_file(gpu)).severity == "info"
    assert "power-limit-lowered" not in ids(from_file(replace(gpu, name="NVIDIA GeForce RTX 4099")))


@pytest.mark.parametrize(
    ("reason", "identifier", "severity"),
    [
        ("sw_thermal_slowdown", "thermal-slowdown", "warning"),
        ("hw_thermal_slowdown", "thermal-slowdown", "error"),
        ("hw_power_brake_slowdown", "power-brake", "error"),
        ("hw_slowdown", "hardware-slowdown", "warning"),
        ("sync_boost", "sync-boost", "info"),
    ],
)
def test_what_holds_a_busy_gpu_down(reason: str, identifier: str, severity: str):
    assert the(identifier, from_file(replace(H100_AT_WORK, event_reasons=(reason,)))).severity == severity


def test_time_spent_slowed_down_is_worth_a_note_and_the_power_caps_counter_is_not():
    counters = {"sw_power_cap": 221_310_321, "hw_thermal_slowdown": 12_400_000, "sw_thermal_slowdown": 900_000}
    machine = from_file(replace(GEFORCE, event_reason_counters_us=counters))
    finding = the("slowed-before", machine)
    assert (finding.severity, finding.summary.split(": ")[1]) == ("info", "HW thermal slowdown 12 s")
    now = replace(GEFORCE_AT_WORK, event_reasons=("hw_thermal_slowdown",), event_reason_counters_us=counters)
    assert bad(from_file(now)) == {"thermal-slowdown"}


def test_a_slowdown_flag_during_a_change_of_clocks_at_rest_is_no_fault():
    assert "hardware-slowdown" not in ids(from_file(replace(GEFORCE, event_reasons=("hw_slowdown",))))


@pytest.mark.parametrize(
    ("temperature_c", "limit_c", "severity"),
    [(86.0, 90.0, "warning"), (84.0, 90.0, None), (85.0, None, "info"), (84.0, None, None), (None, 90.0, None)],
)
def test_heat_near_the_limit(temperature_c: float | None, limit_c: float | None, severity: str | None):
    machine = from_file(replace(GEFORCE_AT_WORK, temperature_c=temperature_c, temperature_limit_c=limit_c))
    assert [f.severity for f in checks.findings(machine) if f.id == "near-thermal-limit"] == [severity] * bool(severity)


def test_full_utilisation_at_idle_power_is_suspicious():
    assert "busy-at-idle-power" in ids(from_file(replace(H100_AT_WORK, power_w=45.0)))
    assert "busy-at-idle-power" not in ids(from_file(replace(H100_AT_WORK, power_w=90.0)))


@pytest.mark.parametrize("change", [{"pcie_gen": 1}, {"pcie_width": 8}])
def test_a_slow_link_counts_under_load_only(change: dict[str, int]):
    assert the("pcie-below-max", from_file(replace(GEFORCE_AT_WORK, **change))).severity == "warning"
    assert "pcie-below-max" not in ids(from_file(replace(GEFORCE, **change)))


# Sharing.


def test_others_at_work_on_a_live_gpu_are_a_warning():
    gpu = replace(H100_AT_WORK, processes=(GpuProcess(5, "train.py", "C"),))
    assert the("other-processes", live(gpu)).severity == "warning"
    assert the("other-processes", from_file(gpu)).severity == "info"


def test_a_desktop_is_not_another_process_that_computes():
    gpu = replace(GEFORCE, processes=(GpuProcess(5, "kwin_wayland", "C+G"), GpuProcess(6, "Xwayland", "G")))
    assert "other-processes" not in ids(from_file(gpu))


def test_memory_in_use_without_a_listed_process_is_somebody_elses():
    assert "900 MiB" in the("other-processes", from_file(replace(H100, memory_used_mib=900.0))).summary
    assert "other-processes" not in ids(from_file(replace(H100, memory_used_mib=900.0, processes=None)))
    vgpu = replace(H100, name="GRID T4-16Q", memory_used_mib=900.0)
    assert "other-processes" not in ids(from_file(vgpu))


@pytest.mark.parametrize(
    ("change", "identifier", "severity"),
    [
        ({"display_active": True}, "display-attached", "info"),
        ({"mig_mode": "disabled (pending enabled)"}, "mig-pending", "warning"),
        ({"mig_mode": "enabled", "mig_devices": 0}, "mig-without-instances", "error"),
        ({"mig_mode": "enabled", "mig_devices": 3}, "mig-enabled", "info"),
        ({"mig_mode": "enabled", "mig_devices": None}, "mig-enabled", "info"),
        ({"ecc_mode": "enabled (pending disabled)"}, "ecc-pending", "warning"),
        ({"compute_mode": "Prohibited"}, "compute-mode-prohibited", "error"),
        ({"compute_mode": "Exclusive_Process"}, "compute-mode-exclusive", "info"),
    ],
)
def test_what_a_gpu_is_shared_with(change: dict[str, Any], identifier: str, severity: str):
    assert the(identifier, from_file(replace(H100, **change))).severity == severity


def test_a_lost_gpu_is_one_error_and_not_three_unknowns():
    machine = live(H100, GpuState(index=1, trouble="GPU 1 is lost"))
    assert [(f.id, f.evidence) for f in checks.findings(machine) if f.gpu == 1] == [("gpu-lost", "GPU 1 is lost")]
    assert verdict(checks.findings(machine)) == "findings"


# CUDA and TensorRT.


@pytest.mark.parametrize(
    ("driver", "cuda", "found"),
    [
        ("450.80.02", "11.3", True),
        ("450.80.02", "11.0", False),
        ("535.183.06", "12.2", False),
        ("535.183.06", "12.6", True),
        ("999.1", "20.0", False),  # newer than the table
        (None, "12.2", False),
    ],
)
def test_cuda_newer_than_the_drivers_own_is_forward_compatibility(driver: str | None, cuda: str, *, found: bool):
    machine = from_file(H100, driver_version=driver, cuda_version=cuda)
    assert ("forward-compatibility" in ids(machine)) == found


@pytest.mark.parametrize(
    ("variable", "value", "identifier", "severity"),
    [
        ("CUDA_MODULE_LOADING", "EAGER", "cuda-eager-loading", "warning"),
        ("CUDA_CACHE_DISABLE", "1", "cuda-cache-disabled", "warning"),
        ("CUDA_FORCE_PTX_JIT", "1", "cuda-force-ptx-jit", "warning"),
        ("CUDA_LAUNCH_BLOCKING", "1", "cuda-launch-blocking", "warning"),
        ("CUDA_VISIBLE_DEVICES", "", "cuda-no-visible-device", "error"),
        ("CUDA_VISIBLE_DEVICES", "-1", "cuda-no-visible-device", "error"),
        ("CUDA_CACHE_MAXSIZE", str(32 << 20), "cuda-cache-small", "warning"),
    ],
)
def test_variables_that_make_a_start_slow(variable: str, value: str, identifier: str, severity: str):
    assert the(identifier, live(H100, host=replace(HOST, environment={variable: value}))).severity == severity


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CUDA_MODULE_LOADING", "LAZY"),
        ("CUDA_CACHE_DISABLE", "0"),
        ("CUDA_VISIBLE_DEVICES", "0"),
        ("CUDA_FORCE_PTX_JIT", "0"),
    ],
)
def test_the_same_variables_set_well_are_nothing(variable: str, value: str):
    assert bad(live(H100, host=replace(HOST, environment={variable: value}))) == set()


CACHE = CudaCache("/home/ada/.nv/ComputeCache", True, True, "ext4", 10.0, 50_000.0)


@pytest.mark.parametrize(
    ("change", "identifier"),
    [
        ({"writable": False}, "cuda-cache-unwritable"),
        ({"file_system": "nfs4"}, "cuda-cache-on-network"),
        ({"file_system": "lustre"}, "cuda-cache-on-network"),
        ({"used_mib": 1000.0}, "cuda-cache-small"),
        ({"exists": False, "used_mib": None, "free_mib": 80.0}, "cuda-cache-small"),
    ],
)
def test_a_compile_cache_that_does_not_keep(change: dict[str, Any], identifier: str):
    machine = live(H100, host=replace(HOST, cuda_cache=replace(CACHE, **change)))
    assert the(identifier, machine).severity == "warning"


def test_a_cache_that_is_off_is_said_once():
    host = replace(HOST, environment={"CUDA_CACHE_DISABLE": "1"}, cuda_cache=replace(CACHE, writable=False))
    assert bad(live(H100, host=host)) == {"cuda-cache-disabled"}


def test_a_cache_that_is_said_to_be_on_is_looked_at():
    host = replace(HOST, environment={"CUDA_CACHE_DISABLE": "0"}, cuda_cache=replace(CACHE, writable=False))
    assert bad(live(H100, host=host)) == {"cuda-cache-unwritable"}


def test_a_cache_that_does_not_exist_yet_is_fine():
    cache = replace(CACHE, exists=False, used_mib=None)
    assert bad(live(H100, host=replace(HOST, cuda_cache=cache))) == set()


@pytest.mark.parametrize(
    ("governor", "driver", "found"),
    [
        ("powersave", "acpi-cpufreq", True),
        ("performance+powersave", "cppc_cpufreq", True),
        ("powersave", "intel_pstate", False),  # its ordinary, dynamic governor
        ("schedutil", "acpi-cpufreq", False),
        (None, None, False),
    ],
)
def test_a_cpu_kept_slow(governor: str | None, driver: str | None, *, found: bool):
    host = replace(HOST, cpu_governor=governor, cpu_frequency_driver=driver)
    assert ("cpu-governor" in ids(live(H100, host=host))) == found


def test_little_memory_is_a_warning_and_unknown_memory_is_not():
    assert "low-memory" in ids(live(H100, host=replace(HOST, memory_available_mib=700.0)))
    assert "low-memory" not in ids(live(H100, host=replace(HOST, memory_available_mib=None)))


@pytest.mark.parametrize(
    ("status", "control", "found"),
    [
        ("Enabled (fine-grained)", "auto", True),
        ("Enabled (fine-grained)", "on", False),
        ("Disabled by default", "auto", False),
    ],
)
def test_a_gpu_that_the_kernel_may_switch_off(status: str, control: str, *, found: bool):
    host = replace(HOST, gpu_nodes=(GpuNode("0000:01:00.0", 0, status, control),))
    assert ("runtime-d3" in ids(live(GEFORCE, host=host))) == found


def test_runtimes_are_named_with_what_they_load():
    finding = the("tensorrt-runtimes", live(H100))
    assert finding.summary == "TensorRT here: tensorrt-lean 10.16.1"
    assert "version-compatible engines" in finding.evidence


def test_no_runtime_is_a_note_with_the_extra_for_this_driver():
    host = replace(HOST, runtimes=(), packages={})
    finding = the("tensorrt-missing", live(H100, host=host, cuda_version="12.4"))
    assert finding.severity == "info"
    assert finding.command == "pip install 'gpuwarm[cu12]'"
    unknown = the("tensorrt-missing", live(H100, host=host, cuda_version=None))
    assert unknown.command == "pip install 'gpuwarm[cu13]'"


def test_a_runtime_for_a_newer_cuda_than_the_drivers_is_an_error():
    finding = the("driver-too-old", live(H100, driver_version="550.54.14", cuda_version="12.4"))
    assert finding.severity == "error"
    assert finding.command == "pip install tensorrt-lean-cu12-bindings"


# The list of findings as a whole.


@pytest.mark.parametrize(("name", "command"), [("Orin", "sudo jetson_clocks --show"), ("NVIDIA L4", "nvidia-smi -i 0")])
def test_what_would_tell_the_clocks_depends_on_the_system(name: str, command: str):
    assert the("clocks-unknown", from_file(GpuState(name=name))).command.startswith(command)


def test_findings_come_worst_first():
    gpu = replace(H100, ecc_mode="disabled (pending enabled)", compute_mode="Prohibited", display_active=True)
    machine = live(gpu)
    severities = [finding.severity for finding in checks.findings(machine)]
    assert severities == ["error", "warning", "info", "ok", "ok", "ok"]


@pytest.mark.parametrize(
    ("platform", "model", "command", "advice"),
    [
        ("linux", None, "sudo nvidia-smi -i 0 -pl 285", "until the next reboot:"),
        ("windows", "WDDM", "nvidia-smi -i 0 -pl 285", "until the next reboot, as administrator:"),
        ("unknown", "WDDM", "nvidia-smi -i 0 -pl 285", "until the next reboot, as administrator:"),
        ("wsl2", "WDDM", "nvidia-smi.exe -i 0 -pl 285", "as administrator on the Windows host:"),
    ],
)
def test_a_command_is_the_systems_own(platform: str, model: str | None, command: str, advice: str):
    gpu = replace(GEFORCE, power_limit_w=220.0, driver_model=model)
    finding = the("power-limit-lowered", from_file(gpu, platform=platform))
    assert finding.command == command
    assert finding.advice.endswith(advice)


def test_no_windows_machine_is_told_to_sudo():
    ill = replace(
        H100_AT_WORK,
        driver_model="TCC",
        sm_clock_mhz=345.0,
        mem_clock_mhz=405.0,
        power_limit_w=200.0,
        mig_mode="enabled",
        mig_devices=0,
        compute_mode="Prohibited",
    )
    lost = replace(ill, index=1, trouble="GPU is lost")
    for system in ("windows", "wsl2"):
        commands = [finding.command or "" for finding in checks.findings(from_file(ill, lost, platform=system))]
        assert len(commands) > 5
        assert not any("sudo" in command for command in commands)


def test_gpus_without_an_index_are_called_by_their_place():
    machine = from_file(replace(H100, index=None), replace(H100, index=None))
    assert {finding.gpu for finding in checks.findings(machine)} == {0, 1}


def test_the_input_is_left_as_it_was():
    machine = from_file(replace(H100, index=None))
    checks.findings(machine)
    assert machine.gpus[0].index is None


NUMBERS = st.none() | st.floats(min_value=-1e6, max_value=1e6)
GPUS = st.builds(
    GpuState,
    **{field.name: NUMBERS for field in fields(GpuState) if "float" in str(field.type)},
    name=st.none() | st.just("A40"),
)
MACHINES = st.builds(
    MachineState,
    source=st.just("any"),
    platform=st.sampled_from(["linux", "windows", "wsl2", "jetson", "unknown"]),
    driver_version=st.none() | st.text(max_size=12),
    cuda_version=st.none() | st.from_regex(r"\A\d{1,2}\.\d\Z"),
    gpus=st.lists(GPUS, max_size=4).map(tuple),
    host=st.none() | st.just(HOST),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(MACHINES)
def test_whatever_a_machine_says_every_gpu_has_one_word_on_persistence(machine: MachineState):
    found = checks.findings(machine)
    assert {finding.id for finding in found} <= set(checks.ABOUT)
    assert sum(f.id.startswith("persistence-") or f.id == "gpu-lost" for f in found) == len(machine.gpus)


def _texts(tree: ast.AST) -> list[str]:
    return [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def test_every_finding_is_explained_and_every_explanation_has_its_finding():
    sources = [ast.parse(path.read_text()) for path in Path(checks.__file__).parent.glob("*.py")]
    calls = [node for tree in sources for node in ast.walk(tree) if isinstance(node, ast.Call)]
    made = {
        call.args[0].value
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "Finding" and isinstance(call.args[0], ast.Constant)
    }
    assert made <= set(checks.ABOUT)
    texts = [text for tree in sources for text in _texts(tree)]
    assert [identifier for identifier in checks.ABOUT if texts.count(identifier) < 2] == []


@pytest.mark.parametrize("version", ["N/A", "", "9" * 5000])
def test_a_cuda_version_that_is_none_is_not_known(version: str):
    host = replace(HOST, runtimes=(), environment={"CUDA_CACHE_MAXSIZE": "\u00b2"})
    assert "gpuwarm[cu13]" in str(the("tensorrt-missing", live(H100, host=host, cuda_version=version)).command)
