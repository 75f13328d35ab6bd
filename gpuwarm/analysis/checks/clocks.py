"""Whether a GPU's clocks fit its load: at rest, held up, held down, or unlike its neighbours'."""

from collections.abc import Iterator
from itertools import groupby

from gpuwarm.analysis.checks.load import (
    LOW_SHARE,
    WORKING_PSTATE,
    at_rest,
    at_work,
    busy,
    clock_share,
    idle,
    in_use,
    ranges,
    user,
)
from gpuwarm.analysis.checks.product import always_p0, product, reaches
from gpuwarm.analysis.finding import Finding
from gpuwarm.machine import GpuState, MachineState

HELD_SHARE = 0.8  # of the maximum SM clock; above it an idle GPU's clock is held up
LIMITED_SHARE = 0.9  # of the maximum SM clock, which data-centre GPUs reach under load (A100, L40S, H100, H200 samples)
MEMORY_LOW_SHARE = 0.9  # of the maximum memory clock; P2 takes 2 to 3 % off it
ALIKE_RATIO = 1.5  # of SM clocks between GPUs of one model in the same state; boost bins and temperature make 1.1
SAME_WORK_RATIO = 2.0  # of power; GPUs further apart do different work, and their clocks may differ
CUDA_PSTATE = 2  # where CUDA holds GeForce
CLOCK_STEP_MHZ = 15.0  # NVIDIA's SM clocks come in steps of 15 MHz (7.5 on some)
# What explains a low clock by itself; each has a finding of its own.
_LIMITS = frozenset(
    {
        "sw_power_cap",
        "hw_slowdown",
        "sw_thermal_slowdown",
        "hw_thermal_slowdown",
        "hw_power_brake_slowdown",
        "sync_boost",
    }
)

Clocked = tuple[float, int, float | None]  # a GPU's SM clock, index and power

ABOUT = {
    "at-rest": """\
The GPU has let its clocks down because nobody uses it: what it should do. An inference that finds it so starts at
those clocks; on GeForce and workstation cards it takes some tens to hundreds of milliseconds of work until they are
up, and a pause long enough lets them down again. The ratio of maximum to present SM clock bounds how much slower the
first inferences can be for this reason; anything beyond it has another cause. Data-centre GPUs with stacked memory
(V100 to B300) report P0 even at rest: only the clock tells, and on an H200 it is up before the first inference,
because creating a CUDA context raises it. `gpuwarm run` measures what this GPU does.""",
    "held-by-context": """\
A process holds a CUDA context, and that alone keeps clocks (and power: about 50 W more on an A100, H100 or L40S) up
though it computes nothing. For a server that must answer at once this is welcome. It also means that an idle GPU
without this process will behave differently. On drivers from 580 on, CUDA_DISABLE_PERF_BOOST=1 lets it rest.""",
    "clock-held-at-rest": """\
Nobody uses the GPU, yet its SM clock is near its maximum. Either it is locked there (nvidia-smi -lgc; undone by
-rgc), which avoids a clock ramp at the price of idle power, or it did not come down after a job, which a reset of the
GPU cures.""",
    "cuda-p2": """\
CUDA holds GeForce (and related workstation) GPUs to P2 rather than P0: the memory clock is 2 to 3 % lower, the SM
clock is free. P2 is this GPU's warm state under CUDA; waiting for P0 would wait for ever.""",
    "slow-under-load": """\
The GPU works, but at clocks of a GPU at rest, and no event reason explains it. Right after work begins this is the
ramp itself; look again while the load lasts. If it stays, the clocks are locked low (nvidia-smi -rgc unlocks them),
the power source is weak (a laptop on battery), or the GPU needs a reset.""",
    "clock-limited": """\
A data-centre GPU reaches its maximum SM clock under load unless something limits it. Here it does not, and no event
reason is set: usually clocks locked by an administrator (nvidia-smi -lgc), for which there is no query. Locked clocks
make benchmarks repeatable; they should be known, not found out.""",
    "application-clocks": """\
The SM clock is held by the application-clocks setting (nvidia-smi -ac), which some boards ship below their maximum.
Drivers from 590 on no longer show the setting; the event reason still tells. `nvidia-smi -rac` returns to the board's
default, `nvidia-smi -ac MEMORY,SM` sets it; on newer drivers -lgc takes its place.""",
    "memory-clock-low": """\
Under load the memory clock should be at its maximum (P2 on GeForce: 2 to 3 % below). Many inference engines are bound
by memory, and then this is the clock that counts.""",
    "clocks-differ": """\
GPUs of one machine, in the same state and drawing similar power, run at clocks more than 1.5 times apart. Where nobody
is seen to use them, the fast ones may not have come down after a job (a GPU reset cures it) or are locked; at work the
slow ones are nearer to their power or temperature limit, or compute something else.""",
    "clocks-unknown": """\
The source shows neither a P-state nor an SM clock, so whether the GPU is at rest, warm or held back is open. On
Jetson nvidia-smi shows none of them at all; jetson_clocks and tegrastats do.""",
}


def check(machine: MachineState, gpu: GpuState) -> Iterator[Finding]:
    """What one GPU's clocks say."""
    if gpu.pstate is None and gpu.sm_clock_mhz is None:
        yield _unknown(gpu)
    elif at_rest(gpu):
        yield _at_rest(gpu)
    elif idle(gpu):
        yield from _held(machine, gpu)
    elif at_work(gpu):
        yield from _at_work(gpu)
    if gpu.pstate == CUDA_PSTATE and product(gpu) == "geforce":
        yield Finding(
            "cuda-p2",
            "ok",
            "P2 is the top state of a GeForce under CUDA: this is as warm as it gets",
            gpu.index,
            evidence=_state(gpu),
        )


def check_alike(machine: MachineState) -> Iterator[Finding]:
    """GPUs of one model in one state whose clocks differ: all at work, or none used by anybody."""
    comparable = [gpu for gpu in machine.gpus if at_work(gpu) or _left_alone(machine, gpu)]
    for (_, state), group in groupby(sorted(comparable, key=_likeness), _likeness):
        alike = [(gpu.sm_clock_mhz, gpu.index or 0, gpu.power_w) for gpu in group if gpu.sm_clock_mhz]
        powers = [power_w for _, _, power_w in alike if power_w]
        if len(powers) < len(alike) or not powers or max(powers) >= SAME_WORK_RATIO * min(powers):
            continue  # they do different work, as far as one can see
        fast_mhz = ALIKE_RATIO * min(alike)[0]
        fast, slow = ([gpu for gpu in alike if (gpu[0] >= fast_mhz) is faster] for faster in (True, False))
        if fast and slow:
            yield _differ(fast, slow, state)


def _left_alone(machine: MachineState, gpu: GpuState) -> bool:
    """Whether it should have come to rest. Without persistence the very query wakes GPUs, one later than another."""
    settled = idle(gpu) or gpu.utilization_pct is None
    return settled and gpu.persistence_mode != "off" and not in_use(machine, gpu)


def _differ(fast: list[Clocked], slow: list[Clocked], state: str) -> Finding:
    summary = f"GPUs that should be alike differ: {_group(fast)}; {_group(slow)}"
    if state == "busy":
        return Finding(
            "clocks-differ",
            "info",
            summary,
            advice="At the same power some are slower: see which are at their power or temperature limit.",
            command="nvidia-smi -q -d PERFORMANCE,POWER,TEMPERATURE",
        )
    return Finding(
        "clocks-differ",
        "warning",
        summary,
        advice="If nobody locked their clocks, the fast ones did not come down after a job: reset them while unused.",
        command=f"sudo nvidia-smi --gpu-reset -i {','.join(str(index) for index in _indices(fast))}",
    )


def _unknown(gpu: GpuState) -> Finding:
    jetson = product(gpu) == "jetson"
    return Finding(
        "clocks-unknown",
        "unknown",
        "Clocks: cannot tell, neither P-state nor SM clock is shown",
        gpu.index,
        advice="What would tell:",
        command="sudo jetson_clocks --show" if jetson else f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,CLOCK",
    )


def _at_rest(gpu: GpuState) -> Finding:
    share = clock_share(gpu)
    bound = "" if not share else f" (by the clock alone at most {1 / share:.0f} times)"
    meaning = (
        "On this kind of GPU creating a CUDA context raises the clock, so the first inference does not meet it."
        if always_p0(gpu)
        else f"An inference that finds it so is slower at first{bound}; the clocks follow within some hundred "
        "milliseconds of work, and a pause lets them down again."
    )
    return Finding(
        "at-rest",
        "ok",
        f"{'At the clocks of rest, with a display to draw' if busy(gpu) else 'At rest, as an idle GPU should be'}: "
        f"{_state(gpu)}",
        gpu.index,
        evidence=_use(gpu),
        advice=meaning,
    )


def _held(machine: MachineState, gpu: GpuState) -> Iterator[Finding]:
    share = clock_share(gpu)
    up_by_clock = share is not None and share >= HELD_SHARE
    up_by_pstate = gpu.pstate is not None and gpu.pstate <= WORKING_PSTATE and not always_p0(gpu)
    holder = user(machine, gpu)
    if holder and (up_by_clock or up_by_pstate):
        yield Finding(
            "held-by-context",
            "info",
            f"Idle, yet its clocks are held up by {holder}",
            gpu.index,
            evidence=f"{_state(gpu)}; {_use(gpu)}",
            advice="Normal where a CUDA context lives; without it the GPU rests, and starts colder.",
        )
    elif up_by_clock and gpu.processes == () and gpu.persistence_mode == "on":
        yield Finding(
            "clock-held-at-rest",
            "info",
            "Idle and used by nobody, yet its SM clock is near its maximum: locked, or stuck after a job",
            gpu.index,
            evidence=f"{_state(gpu)}; {_use(gpu)}",
            advice="If nobody locked it on purpose, unlock it; if that does not help, reset the GPU.",
            command=f"sudo nvidia-smi -i {gpu.index} -rgc",
        )


def _at_work(gpu: GpuState) -> Iterator[Finding]:
    yield from _sm_clock_at_work(gpu)
    if gpu.pstate is not None and gpu.pstate > WORKING_PSTATE:
        return  # the memory clock goes with the P-state
    if gpu.mem_clock_mhz and gpu.mem_clock_max_mhz and gpu.mem_clock_mhz < MEMORY_LOW_SHARE * gpu.mem_clock_max_mhz:
        yield Finding(
            "memory-clock-low",
            "warning",
            f"Memory clock {gpu.mem_clock_mhz:.0f} of {gpu.mem_clock_max_mhz:.0f} MHz under load",
            gpu.index,
            evidence=f"{_state(gpu)}; {_use(gpu)}",
            advice="If it stays so under load, reset locked memory clocks.",
            command=f"sudo nvidia-smi -i {gpu.index} -rmc",
        )


def _sm_clock_at_work(gpu: GpuState) -> Iterator[Finding]:
    """At most one reason why a busy GPU's SM clock is low."""
    reasons = frozenset(gpu.event_reasons or ())
    share, top = clock_share(gpu), reaches(gpu)
    low = (share is not None and share < LOW_SHARE) or (top is not None and gpu.pstate is not None and gpu.pstate > top)
    if reasons & _LIMITS:
        return
    if _held_by_application_clocks(gpu):
        yield Finding(
            "application-clocks",
            "info",
            "The SM clock is held by the application-clocks setting",
            gpu.index,
            evidence=_state(gpu),
            advice="Below the maximum on purpose, or the board's default. What it is, and how to raise it (-ac):",
            command=f"nvidia-smi -i {gpu.index} -q -d CLOCK,SUPPORTED_CLOCKS",
        )
    elif low:
        yield Finding(
            "slow-under-load",
            "warning",
            f"At work, but slow: {_state(gpu)}",
            gpu.index,
            evidence=f"{_use(gpu)}; {_reasons(gpu)}",
            advice="Look again while the load lasts; if it stays, unlock the clocks, then reset the GPU.",
            command=f"sudo nvidia-smi -i {gpu.index} -rgc",
        )
    elif share is not None and share < LIMITED_SHARE and product(gpu) == "datacentre" and gpu.event_reasons == ():
        yield Finding(
            "clock-limited",
            "info",
            f"At work below its maximum without any event reason, as locked clocks do: {_state(gpu)}",
            gpu.index,
            evidence=_use(gpu),
            advice="If nobody locked them on purpose:",
            command=f"sudo nvidia-smi -i {gpu.index} -rgc",
        )


def _held_by_application_clocks(gpu: GpuState) -> bool:
    """By the reason, or by running at the setting; K80s that boost beyond it show the reason all the same."""
    setting, top, now = gpu.application_sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.sm_clock_mhz
    reason = "applications_clocks_setting" in (gpu.event_reasons or ())
    if setting is None or top is None or now is None:
        return reason
    within = now <= setting + CLOCK_STEP_MHZ
    return within and (reason or setting - CLOCK_STEP_MHZ <= now < top - CLOCK_STEP_MHZ)


def _likeness(gpu: GpuState) -> tuple[str, str]:
    works = busy(gpu)
    return gpu.name or "", "unknown" if works is None else "busy" if works else "idle"


def _indices(gpus: list[Clocked]) -> list[int]:
    return sorted(index for _, index, _ in gpus)


def _group(gpus: list[Clocked]) -> str:
    clocks, _, powers = zip(*gpus, strict=True)
    return f"{ranges(_indices(gpus))} at {_span(clocks)} MHz and {_span(powers)} W"


def _span(values: tuple[float, ...]) -> str:
    low, high = f"{min(values):.0f}", f"{max(values):.0f}"
    return low if low == high else f"{low}-{high}"


def _state(gpu: GpuState) -> str:
    """P-state and clocks as far as they are known."""
    parts = [] if gpu.pstate is None else [f"P{gpu.pstate}"]
    for word, now, top in (
        ("SM", gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
        ("memory", gpu.mem_clock_mhz, gpu.mem_clock_max_mhz),
    ):
        if now is not None:
            parts.append(f"{word} {now:.0f}{'' if top is None else f' of {top:.0f}'} MHz")
    return ", ".join(parts)


def _use(gpu: GpuState) -> str:
    parts = [] if gpu.utilization_pct is None else [f"{gpu.utilization_pct:.0f} % utilisation"]
    if gpu.power_w is not None:
        parts.append(f"{gpu.power_w:.0f} W")
    return ", ".join(parts) or "utilisation not shown"


def _reasons(gpu: GpuState) -> str:
    if gpu.event_reasons is None:
        return "event reasons not shown"
    return f"event reasons: {', '.join(gpu.event_reasons) or 'none'}"
