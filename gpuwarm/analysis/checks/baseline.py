"""How a machine differs from one known to be good."""

from collections.abc import Iterator, Mapping

from gpuwarm.analysis.checks.load import at_rest, busy
from gpuwarm.analysis.checks.report import Report
from gpuwarm.analysis.finding import Finding
from gpuwarm.machine import GpuState, HostState, MachineState

SAME_CLOCK_SHARE = 0.03  # two busy GPUs within this of each other's SM clock run alike
CLOCK_SHARE = 0.1  # SM clocks further apart than this in the same state are a difference
POWER_SHARE = 0.1  # less power than this below the other's at the same clock: the supply is short, or less is done

GPU_FIELDS = {
    "name": "GPU model",
    "persistence_mode": "persistence mode",
    "power_limit_w": "power limit (W)",
    "sm_clock_max_mhz": "maximum SM clock (MHz)",
    "mem_clock_max_mhz": "maximum memory clock (MHz)",
    "application_sm_clock_mhz": "application SM clock (MHz)",
    "pcie_gen_max": "PCIe generation",
    "pcie_width": "PCIe width",
    "mig_mode": "MIG mode",
    "ecc_mode": "ECC mode",
    "compute_mode": "compute mode",
    "driver_model": "driver model",
    "display_active": "display",
}
HOST_FIELDS = {
    "distribution": "distribution",
    "kernel": "kernel",
    "container": "container",
    "cpu_governor": "CPU governor",
    "environment": "CUDA variables",
    "packages": "packages",
}
ABOUT = {
    "differs-from-baseline": """\
Something is not as on the machine that was given as known to be good (--baseline): set-up such as driver, power limit,
persistence, link width or CUDA variables; or, for GPUs in the same state, the SM clock or the power at the same clock.
The last is the only trace of a GPU that is short of power without any event reason (seen on GB10). What one of the two
does not show is not compared."""
}


def differences(good: Report, machine: MachineState) -> Iterator[Finding]:
    """One finding for each thing that differs. GPUs are compared in their order."""
    for field, words in {"driver_version": "driver", "cuda_version": "CUDA", "platform": "platform"}.items():
        yield from _differs(words, getattr(good, field), getattr(machine, field))
    yield from _differs("number of GPUs", len(good.gpus), len(machine.gpus))
    if good.host is not None and machine.host is not None:
        yield from _of_hosts(good.host, machine.host)
    for place, (theirs, ours) in enumerate(zip(good.gpus, machine.gpus, strict=False)):
        index = place if ours.index is None else ours.index
        for field, words in GPU_FIELDS.items():
            yield from _differs(words, getattr(theirs, field), getattr(ours, field), gpu=index)
        yield from _in_the_same_state(theirs, ours, index)


def _of_hosts(good: HostState, host: HostState) -> Iterator[Finding]:
    for field, words in HOST_FIELDS.items():
        theirs, ours = getattr(good, field), getattr(host, field)
        if isinstance(theirs, Mapping) and isinstance(ours, Mapping):
            for name in sorted({*theirs, *ours}):
                yield from _differs(name, theirs.get(name, "not set"), ours.get(name, "not set"))
        else:
            yield from _differs(words, theirs, ours)


def _in_the_same_state(good: GpuState, gpu: GpuState, index: int) -> Iterator[Finding]:
    same = (at_rest(good) and at_rest(gpu)) or (busy(good) and busy(gpu))
    if not same or not good.sm_clock_mhz or not gpu.sm_clock_mhz:
        return
    ratio = gpu.sm_clock_mhz / good.sm_clock_mhz
    if abs(ratio - 1) > CLOCK_SHARE:
        yield from _differs("SM clock in the same state (MHz)", good.sm_clock_mhz, gpu.sm_clock_mhz, gpu=index)
    power = gpu.power_w / good.power_w if gpu.power_w and good.power_w else 1.0
    if busy(gpu) and abs(ratio - 1) <= SAME_CLOCK_SHARE and power < 1 - POWER_SHARE:
        yield from _differs("power at the same SM clock (W)", good.power_w, gpu.power_w, gpu=index)


def _differs(words: str, theirs: object, ours: object, *, gpu: int | None = None) -> Iterator[Finding]:
    if theirs is None or ours is None or theirs == ours:
        return
    yield Finding(
        "differs-from-baseline",
        "warning",
        f"{words}: {_shown(ours)} here, {_shown(theirs)} in the baseline",
        gpu,
    )


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
