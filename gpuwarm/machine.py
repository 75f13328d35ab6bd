"""What a machine looks like at one moment: its GPUs and, where it was read live, its host. Missing is None."""

from dataclasses import dataclass, field
from typing import Literal

Platform = Literal["linux", "windows", "wsl2", "jetson", "unknown"]
PersistenceMode = Literal["on", "off", "n/a", "unknown"]

# NVML's clock event reasons (nvml.h, nvmlClocksEventReason*): bit -> name as nvidia-smi spells it in its queries.
EVENT_REASONS = {
    0x1: "gpu_idle",
    0x2: "applications_clocks_setting",
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal_slowdown",
    0x40: "hw_thermal_slowdown",
    0x80: "hw_power_brake_slowdown",
    0x100: "display_clock_setting",
}


def event_reason_names(bits: int) -> tuple[str, ...]:
    """The names of the bits that are set; a bit that nvml.h does not name comes as its hexadecimal value."""
    known = tuple(name for bit, name in EVENT_REASONS.items() if bits & bit)
    rest = bits & ~sum(EVENT_REASONS)
    return (*known, f"0x{rest:x}") if rest else known


@dataclass(frozen=True, slots=True)
class GpuProcess:
    """A process that holds the GPU."""

    pid: int | None = None
    name: str | None = None
    kind: str | None = None  # C, G or C+G, as nvidia-smi prints it
    memory_mib: float | None = None


@dataclass(frozen=True, slots=True)
class GpuState:
    """One GPU at one moment. The fields are those of `gpuwarm check --json`, in its units."""

    index: int | None = None
    name: str | None = None
    uuid: str | None = None
    pci_bus_id: str | None = None
    persistence_mode: PersistenceMode = "unknown"  # as printed by the source; what it is worth is for analysis to say
    pstate: int | None = None
    sm_clock_mhz: float | None = None
    sm_clock_max_mhz: float | None = None
    mem_clock_mhz: float | None = None
    mem_clock_max_mhz: float | None = None
    power_w: float | None = None  # as nvidia-smi's power.draw: a 1 s average on Ampere and newer, but for GA100
    power_instant_w: float | None = None  # where the source tells it apart
    power_limit_w: float | None = None
    power_limit_default_w: float | None = None
    temperature_c: float | None = None
    temperature_limit_c: float | None = None  # where slowdown begins
    utilization_pct: float | None = None
    memory_used_mib: float | None = None
    memory_total_mib: float | None = None
    mig_mode: str | None = None  # "enabled" | "disabled" | with " (pending ...)" where a change waits for a reset
    mig_devices: int | None = None  # where MIG is enabled: how many instances exist
    driver_model: str | None = None  # WDDM | TCC | MCDM, Windows only
    virtualization_mode: str | None = None  # nvidia-smi -q's words: VGPU in a guest, Pass-Through, ...; "None"
    compute_mode: str | None = None
    display_active: bool | None = None
    ecc_mode: str | None = None
    event_reasons: tuple[str, ...] | None = None  # None: not readable; (): none is set
    event_reason_counters_us: dict[str, int] = field(default_factory=dict)
    application_sm_clock_mhz: float | None = None
    application_mem_clock_mhz: float | None = None
    pcie_gen: int | None = None
    pcie_gen_max: int | None = None
    pcie_width: int | None = None
    pcie_width_max: int | None = None
    compute_capability: str | None = None
    processes: tuple[GpuProcess, ...] | None = None
    trouble: str | None = None  # what is said in place of its readings: "GPU is lost", ...; None: it answers


@dataclass(frozen=True, slots=True)
class PersistenceDaemon:
    """nvidia-persistenced as the system has it: its process, its socket, its systemd unit."""

    pid: int | None = None  # None: none seen running
    command: tuple[str, ...] = ()  # of the running process
    socket: bool = False
    unit: str | None = None  # path of the unit file that counts; None: none found
    drop_ins: tuple[str, ...] = ()  # paths, in the order systemd applies them
    unit_command: str | None = None  # ExecStart after the drop-ins
    masked: bool = False  # systemctl mask


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """A process with open handles on GPU device files; while it runs, their driver state stays loaded."""

    pid: int
    name: str | None = None
    devices: tuple[str, ...] = ()  # names in /dev: nvidia0, ...


@dataclass(frozen=True, slots=True)
class GpuNode:
    """What the kernel driver says about one GPU in /proc and /sys."""

    pci_bus_id: str
    minor: int | None = None  # its device file is /dev/nvidia<minor>
    runtime_d3: str | None = None  # as printed: "Enabled (fine-grained)", "Disabled by default", ...
    power_control: str | None = None  # "auto": the kernel may power it down; "on": it stays


@dataclass(frozen=True, slots=True)
class CudaCache:
    """Where CUDA keeps what it compiled from PTX."""

    path: str
    exists: bool
    writable: bool | None = None  # the folder, or the nearest parent there is
    file_system: str | None = None  # ext4, nfs4, ...
    used_mib: float | None = None
    free_mib: float | None = None  # on its file system


@dataclass(frozen=True, slots=True)
class DriverLoad:
    """How long opening the GPU's device file took in fresh processes: until the driver is ready."""

    device: str
    alone_ms: tuple[float, ...]  # with no process of ours holding it
    held_ms: tuple[float, ...]  # while a process of ours held it


@dataclass(frozen=True, slots=True)
class HostState:
    """The operating system's side of a machine, read live."""

    hostname: str | None = None
    kernel: str | None = None
    distribution: str | None = None  # as the system names itself
    distribution_ids: tuple[str, ...] = ()  # os-release's ID, then what it is like: ("ubuntu", "debian")
    uptime_s: float | None = None
    container: str | None = None  # docker, podman, kubernetes, lxc, ...; None: none seen
    environment: dict[str, str] = field(default_factory=dict)  # CUDA's variables as set for this process
    persistence_daemon: PersistenceDaemon = PersistenceDaemon()
    holders: tuple[DeviceHolder, ...] = ()
    holders_complete: bool = False  # False: other users' processes could not be looked at
    gpu_nodes: tuple[GpuNode, ...] = ()
    cuda_cache: CudaCache | None = None
    cpu_governor: str | None = None  # several, where CPUs differ, are joined by "+"
    cpu_frequency_driver: str | None = None
    memory_total_mib: float | None = None
    memory_available_mib: float | None = None  # within the container's limit, where there is one
    runtimes: tuple[str, ...] = ()  # importable TensorRT modules, none of them imported
    packages: dict[str, str] = field(default_factory=dict)  # TensorRT's and CUDA's distributions -> version
    driver_load: DriverLoad | None = None  # None: not measured


@dataclass(frozen=True, slots=True)
class MachineState:
    """A machine, and where the reading comes from."""

    source: str = "live"
    platform: Platform = "unknown"
    driver_version: str | None = None
    cuda_version: str | None = None
    nvml_version: str | None = None
    nvidia_smi_version: str | None = None
    gpus: tuple[GpuState, ...] = ()
    host: HostState | None = None
    notes: tuple[str, ...] = ()
