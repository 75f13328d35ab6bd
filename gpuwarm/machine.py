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


@dataclass(frozen=True)
class GpuProcess:
    """A process that holds the GPU."""

    pid: int | None = None
    name: str | None = None
    kind: str | None = None  # C, G or C+G, as nvidia-smi prints it
    memory_mib: float | None = None


@dataclass(frozen=True)
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
    mig_devices: int | None = None
    driver_model: str | None = None  # WDDM | TCC | MCDM, Windows only
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


@dataclass(frozen=True)
class HostState:
    """The operating system's side of a machine, read live."""

    hostname: str | None = None
    kernel: str | None = None
    distribution: str | None = None
    uptime_s: float | None = None
    container: str | None = None  # docker, podman, kubernetes, lxc, ...; None: none seen
    environment: dict[str, str] = field(default_factory=dict)  # CUDA_* and NVIDIA_* as set for this process


@dataclass(frozen=True)
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
