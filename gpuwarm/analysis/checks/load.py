"""Whether a GPU is at work, who works on it, and how people call it: what several checks begin with."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import count

from gpuwarm.analysis.checks.product import platform, product
from gpuwarm.machine import GpuProcess, GpuState, MachineState

BUSY_PCT = 50.0  # of the time some kernel ran; a desktop stays well below, inference back to back well above
IDLE_PCT = 5.0  # what a monitor or a blinking cursor causes
LOW_SHARE = 0.5  # of the maximum SM clock; below it a busy GPU is slow whatever its model
WORKING_PSTATE = 3  # P0 to P3 are states of work, P5 and above of rest
RESTING_PSTATE = 8  # P8 and what lies below it: P10, P12, P15
RESTING_CLOCK_SHARE = (
    0.5  # of the maximum; at rest data-centre GPUs show 0.06 to 0.45 of it, held by a context 0.8 or more
)
CONTEXT_MIB = 100.0  # a CUDA context takes more; without one the driver itself shows 0 to 55 MiB in use


def numbered(gpus: Iterable[GpuState]) -> tuple[GpuState, ...]:
    """GPUs of sources that give no index are called by their place among those that have none."""
    gpus = tuple(gpus)
    taken = {gpu.index for gpu in gpus}
    free = (number for number in count() if number not in taken)
    return tuple(gpu if gpu.index is not None else replace(gpu, index=next(free)) for gpu in gpus)


def busy(gpu: GpuState) -> bool | None:
    """Whether it works most of the time; None where its utilisation is not known."""
    return None if gpu.utilization_pct is None else gpu.utilization_pct >= BUSY_PCT


def idle(gpu: GpuState) -> bool:
    """Whether it is known to do next to nothing."""
    return gpu.utilization_pct is not None and gpu.utilization_pct < IDLE_PCT


def drawing(gpu: GpuState) -> bool:
    """Whether it is busy with a screen, as far as one can see. Then the driver takes what clocks the desktop needs."""
    return bool(busy(gpu)) and bool(gpu.display_active) and all(process.kind != "C" for process in gpu.processes or ())


def at_rest(gpu: GpuState) -> bool:
    """Whether it has let its clocks down for want of work."""
    resting_pstate = gpu.pstate is not None and gpu.pstate >= RESTING_PSTATE
    if busy(gpu):  # at such clocks a mere desktop takes most of the time
        return resting_pstate and drawing(gpu)
    if resting_pstate:
        return True
    says_idle = gpu.event_reasons is not None and "gpu_idle" in gpu.event_reasons
    share = clock_share(gpu)
    return says_idle and idle(gpu) and (share is None or share < RESTING_CLOCK_SHARE)


def at_work(gpu: GpuState) -> bool:
    """Whether it is known to work, and not just to draw."""
    return bool(busy(gpu)) and not drawing(gpu)


def in_use(machine: MachineState, gpu: GpuState) -> bool:
    """Whether anybody is seen to hold it, computing or drawing."""
    return bool(gpu.processes or gpu.display_active) or hidden_memory_mib(machine, gpu) is not None


def clock_share(gpu: GpuState) -> float | None:
    """SM clock as a share of its maximum."""
    if gpu.sm_clock_mhz is None or not gpu.sm_clock_max_mhz:
        return None
    return gpu.sm_clock_mhz / gpu.sm_clock_max_mhz


def compute_processes(machine: MachineState, gpu: GpuState) -> tuple[GpuProcess, ...]:
    """Those that compute. A desktop draws (G), and its compositor or any Windows program may do both (C+G)."""
    kinds = ("C",) if platform(machine, gpu) in ("windows", "wsl2") else ("C", None)  # old tables give no kind
    return tuple(process for process in gpu.processes or () if process.kind in kinds)


def hidden_memory_mib(machine: MachineState, gpu: GpuState) -> float | None:
    """Memory in use by clients that the source does not list, as where they run in other containers."""
    used = gpu.memory_used_mib
    if gpu.processes or used is None or used < CONTEXT_MIB:
        return None
    of_its_own = platform(machine, gpu) in ("linux", "unknown") and product(gpu) != "vgpu"
    return used if of_its_own else None  # elsewhere the host or the hypervisor has memory in use


def user(machine: MachineState, gpu: GpuState) -> str | None:
    """Who computes on it, in words; None where nobody is seen to."""
    processes = compute_processes(machine, gpu)
    if processes:
        return called(processes)
    hidden = hidden_memory_mib(machine, gpu) if gpu.processes == () and not gpu.display_active else None
    return None if hidden is None else f"something that is not listed ({hidden:.0f} MiB in use)"


def called(processes: tuple[GpuProcess, ...]) -> str:
    """Processes in words: "python (pid 812) and 2 more"."""
    first, *more = processes
    name = (first.name or "a process").replace("\\", "/").rsplit("/", 1)[-1]
    pid = "" if first.pid is None else f" (pid {first.pid})"
    return f"{name}{pid}{f' and {len(more)} more' if more else ''}"


def ranges(numbers: Iterable[int]) -> str:
    """Numbers as people write them: 0, 2-4."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)
