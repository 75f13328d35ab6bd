"""Whether the GPU is whole and one's own: processes, a display, MIG, compute mode, changes that wait for a reset."""

from collections.abc import Iterator

from gpuwarm.analysis.checks.load import busy, user
from gpuwarm.analysis.finding import Finding
from gpuwarm.machine import GpuState, MachineState

ABOUT = {
    "gpu-lost": """\
The driver lists the GPU but cannot talk to it: it fell off the bus, or waits for a reset after an error. nvidia-smi
then shows "GPU is lost", "GPU requires reset" or ERR! in place of temperature, power and clocks. `sudo dmesg`
shows the Xid message that says why. Reset it, or reboot.""",
    "other-processes": """\
Other processes compute on this GPU. While they work, every latency measured here contains theirs, and "warm" has no
fixed meaning. Where they run in another container only their memory shows.""",
    "display-attached": """\
A screen is driven by this GPU. Drawing takes turns with inference, which scatters latencies, and a desktop keeps the
GPU at clocks of its own. For measuring, another GPU or a session without a desktop is better; for use it
is no fault.""",
    "mig-enabled": """\
The GPU is split into MIG instances. A process uses one of them; utilisation is not available for the parts, and clocks
and power are those of the whole GPU, so a neighbour's load shows in one's own latency.""",
    "mig-without-instances": """\
MIG is enabled but no instance exists, so CUDA finds no device to run on. Create instances, or disable MIG.""",
    "mig-pending": """\
A change of the MIG mode was asked for and waits for a reset of the GPU; until then the old mode holds.""",
    "ecc-pending": """\
A change of the ECC mode was asked for and waits for a reboot or a reset of the GPU; until then the old one holds.""",
    "compute-mode-prohibited": """\
The compute mode forbids CUDA on this GPU.""",
    "compute-mode-exclusive": """\
Only one process at a time may use CUDA on this GPU. A second start that begins before the first has ended fails.""",
}


def check_lost(gpu: GpuState) -> Iterator[Finding]:
    """A GPU that is there and does not answer."""
    if gpu.trouble is not None:
        yield Finding(
            "gpu-lost",
            "error",
            "The driver cannot talk to this GPU",
            gpu.index,
            evidence=gpu.trouble,
            advice="Reset it (nvidia-smi --gpu-reset -i GPU), or reboot. Why, as Xid messages:",
            command="sudo dmesg | grep -i xid",
        )


def check(machine: MachineState, gpu: GpuState) -> Iterator[Finding]:
    """Who and what one GPU is shared with."""
    yield from _processes(machine, gpu)
    if gpu.display_active:
        yield Finding(
            "display-attached",
            "info",
            "A display is attached: drawing takes turns with inference",
            gpu.index,
            advice="For measuring, use another GPU or a session without a desktop.",
        )
    yield from _mig(gpu)
    if gpu.ecc_mode and "pending" in gpu.ecc_mode:
        yield Finding("ecc-pending", "warning", f"ECC: {gpu.ecc_mode}, takes effect after a reboot", gpu.index)
    yield from _compute_mode(gpu)


def _processes(machine: MachineState, gpu: GpuState) -> Iterator[Finding]:
    who = user(machine, gpu)
    if who is None:
        return
    at_work = busy(gpu) and machine.host is not None  # read live: not the workload that somebody wants to show
    yield Finding(
        "other-processes",
        "warning" if at_work else "info",
        f"Also used by {who}{': it is at work now' if at_work else ''}",
        gpu.index,
        evidence=None if gpu.utilization_pct is None else f"{gpu.utilization_pct:.0f} % utilisation",
        advice="While others compute, latencies contain their work.",
        command=f"nvidia-smi pmon -i {gpu.index} -c 5",
    )


def _mig(gpu: GpuState) -> Iterator[Finding]:
    mode = gpu.mig_mode or ""
    if "pending" in mode:
        yield Finding(
            "mig-pending",
            "warning",
            f"MIG: {mode}, waits for a reset of the GPU",
            gpu.index,
            advice="While nobody uses it:",
            command=f"sudo nvidia-smi --gpu-reset -i {gpu.index}",
        )
    elif mode == "enabled" and gpu.mig_devices == 0:
        yield Finding(
            "mig-without-instances",
            "error",
            "MIG is enabled but has no instances: CUDA finds no device",
            gpu.index,
            advice="Create an instance (nvidia-smi mig -cgi PROFILE -C; -lgip lists profiles), or disable MIG:",
            command=f"sudo nvidia-smi -i {gpu.index} -mig 0",
        )
    elif mode == "enabled":
        count = "" if gpu.mig_devices is None else f" ({gpu.mig_devices})"
        yield Finding(
            "mig-enabled",
            "info",
            f"Split into MIG instances{count}: clocks and power are shared, utilisation is not shown",
            gpu.index,
        )


def _compute_mode(gpu: GpuState) -> Iterator[Finding]:
    mode = (gpu.compute_mode or "").lower()
    if "prohibited" in mode:
        yield Finding(
            "compute-mode-prohibited",
            "error",
            "The compute mode forbids CUDA on this GPU",
            gpu.index,
            advice="To allow it:",
            command=f"sudo nvidia-smi -i {gpu.index} -c DEFAULT",
        )
    elif "exclusive" in mode:
        yield Finding(
            "compute-mode-exclusive",
            "info",
            "Only one process at a time may use CUDA on this GPU",
            gpu.index,
            evidence=gpu.compute_mode,
        )
