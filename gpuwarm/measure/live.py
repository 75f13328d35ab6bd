"""This machine, whole: its GPUs through NVML, its host from the operating system, its driver's start by trying."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from gpuwarm.errors import DeviceError
from gpuwarm.machine import GpuState, HostState, MachineState
from gpuwarm.measure import driver_load, host, nvml, selection

SLOW_READING_S = 1.0  # with the driver loaded, reading eight GPUs takes some 0.1 s


def machine_state(gpu: str | None = None) -> MachineState:
    """Everything `check` looks at, of all GPUs or the one that `gpu` names (index, UUID or PCI bus id).

    Raises:
        DeviceError: no driver, no GPU, or not that one.
    """
    seen = host.read()  # before this process itself holds the GPUs
    began_s = time.monotonic()
    with nvml.session():
        state = nvml.machine_state(None if gpu is None else selection.resolve(gpu))
    took_s = time.monotonic() - began_s
    notes = state.notes
    if took_s > SLOW_READING_S:
        notes = (*notes, f"reading the GPUs took {took_s:.1f} s: most likely the driver had to be loaded for it")
    return replace(state, host=seen, notes=notes)


def with_driver_load(state: MachineState) -> MachineState:
    """With the driver's start timed, on a GPU without persistence if there is one; or a note why that failed."""
    if state.host is None:
        return state
    gpu = min(state.gpus, key=lambda gpu: gpu.persistence_mode != "off")
    try:
        measured = driver_load.measure(_device(state.host, gpu))
    except (DeviceError, OSError) as error:
        return replace(state, notes=(*state.notes, f"the driver's start was not measured: {error}"))
    return replace(state, host=replace(state.host, driver_load=measured))


def _device(seen: HostState, gpu: GpuState) -> Path:
    bus_id = (gpu.pci_bus_id or "").lower()
    minors = (node.minor for node in seen.gpu_nodes if bus_id.endswith(node.pci_bus_id.lower()))
    minor = next(minors, None)
    return Path(f"/dev/nvidia{gpu.index if minor is None else minor}")


def wait_for_boot(enough_s: float, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Return once the machine has been up for `enough_s` seconds."""
    uptime_s = host.read().uptime_s
    if uptime_s is not None and uptime_s < enough_s:
        sleep(enough_s - uptime_s)
