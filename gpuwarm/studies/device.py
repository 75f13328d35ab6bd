"""What differs between a real and a simulated GPU while it is being measured."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuwarm.machine import GpuProcess, MachineState
from gpuwarm.measure import host, nvml, selection, simulated


@dataclass(frozen=True)
class Device:
    """One GPU to measure. Its functions open NVML and close it again, so that nothing of ours holds the driver."""

    state: Callable[[], MachineState]  # this GPU alone, and the host
    counters_us: Callable[[], dict[str, int]]  # event-reason counters
    processes: Callable[[], tuple[GpuProcess, ...] | None]  # on this GPU; None: not to be seen
    gpu: str | None = None  # UUID, for the sampler
    simulate: str | None = None
    load_log: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)  # for the workers


def real_device(selector: str | None) -> Device:
    """The GPU that `selector` (index, UUID, PCI bus id) names, or else the first that CUDA may use here.

    Raises:
        DeviceError: no driver, no GPU, or none of that name.
        InputError: it cannot be told which is meant.
    """
    with nvml.session():
        chosen = selection.choose(selector, os.environ)
        uuid, cuda_uuid = chosen.uuid, chosen.cuda_uuid

    def state() -> MachineState:
        with nvml.session():
            return replace(nvml.machine_state(selection.resolve(uuid)), host=host.read())

    def counters_us() -> dict[str, int]:
        with nvml.session():
            return selection.resolve(uuid).counters_us()

    def processes() -> tuple[GpuProcess, ...] | None:
        with nvml.session():
            return selection.resolve(uuid).state().processes

    # CUDA counts GPUs in another order than NVML: workers get the UUID.
    return Device(state, counters_us, processes, gpu=uuid, environment={"CUDA_VISIBLE_DEVICES": cuda_uuid})


def simulated_device(profile: str, folder: Path) -> Device:
    """A GPU that exists only in software; what loads it is logged in `folder`.

    Raises:
        InputError: no such profile.
    """
    simulated.profile_named(profile)
    load_log = str(folder)
    return Device(
        state=lambda: simulated.machine_state(profile, load_log),
        counters_us=lambda: simulated.counters_us(profile, load_log),
        processes=lambda: simulated.machine_state(profile, load_log).gpus[0].processes,
        simulate=profile,
        load_log=load_log,
    )
