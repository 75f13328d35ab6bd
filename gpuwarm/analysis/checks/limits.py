"""What holds a GPU back from outside its clocks: power, temperature, supply, and the link to the host."""

from collections.abc import Iterator

from gpuwarm.analysis.checks.load import BUSY_PCT, LOW_SHARE, WORKING_PSTATE, at_work, clock_share
from gpuwarm.analysis.checks.product import reference_power_w
from gpuwarm.analysis.finding import Finding
from gpuwarm.machine import GpuState, MachineState

NEAR_LIMIT_SHARE = 0.95  # of the power limit; drivers also set the "power cap" reason at 15 to 45 % of it
BELOW_TOP_SHARE = 0.97  # of the maximum SM clock; a capped H200 runs at 0.83 to 0.92 of it, an uncapped one at 1.0
LOWERED_SHARE = 0.98  # of the default power limit; limits are whole watts
NEAR_SLOWDOWN_C = 5.0  # below the slowdown temperature: sensors round, and lag behind the hottest spot
HOT_C = 85.0  # where the limit is not shown: slowdown begins at 82 to 97 C on the models of the samples
FULL_PCT = 90.0  # utilisation that claims the GPU never rests
IDLE_POWER_SHARE = 0.15  # of the limit; idle samples draw 3 to 15 % of theirs, an H200 with a context 17 %

SLOWED_MIN_S = 1.0  # since the driver was loaded; less is no more than a moment at its start
_COUNTED = {  # reasons whose counters tell the truth, in words
    "sw_thermal_slowdown": "SW thermal slowdown",
    "hw_thermal_slowdown": "HW thermal slowdown",
    "hw_power_brake_slowdown": "HW power brake",
}

ABOUT = {
    "power-cap": """\
The GPU lowers its clocks to stay within its power limit. Under a heavy engine this is normal: the first tens of
milliseconds run faster than what follows, so a short benchmark looks too good (6 to 17 % on an H200), and the plateau
after it is the honest figure. The driver's "SW power cap" reason alone is not believed, because it is also set on idle
GPUs at 15 % of their limit: it counts only near the limit, or where a busy GPU is below its maximum clock. Where a busy
GPU is at less than half of its clock and far from its limit, something else asks it to save power: a warning.""",
    "power-limit-lowered": """\
The power limit is below this model's default. Somebody set it (nvidia-smi -pl, a server's management controller) and
every heavy engine will run at lower clocks than elsewhere. Where a source does not show the default, the reference
board's power is taken for the few models whose figure gpuwarm knows.""",
    "thermal-slowdown": """\
The GPU, or its memory, is too hot and slows down: by steps (SW thermal slowdown), or to half of its clock or less (HW
thermal slowdown). Warming up longer makes it worse. Figures measured now are the
cooling's, not the engine's.""",
    "near-thermal-limit": """\
The GPU is within a few degrees of the temperature at which it slows down. Longer measurements will drift.""",
    "slowed-before": """\
It does not slow down now, but it has for some time since the driver was loaded: too hot, or braked by the power
supply. The driver counts how long. (Its counter for the power cap also grows on GPUs far from their limit, and is not
believed.)""",
    "power-brake": """\
The power supply (or the server) pulls the GPU's power brake: clocks are at half or less until it lets go. That is a
fault or a shortage of the supply, not of the GPU.""",
    "hardware-slowdown": """\
The hardware halves its clocks or more: heat, the power brake, or a fast trigger on supply current. It may also show
for a moment during a change of clocks, so look twice.""",
    "sync-boost": """\
The GPU belongs to a sync-boost group: all of the group run at the clock of the slowest.""",
    "busy-at-idle-power": """\
Utilisation says that some kernel was always running; power says that next to nothing was computed. Tiny kernels do
this, kernels that wait for each other or for the host, and a hung process. It says nothing good about being warm: trust
power and clocks rather than utilisation.""",
    "pcie-below-max": """\
Under load the PCIe link is slower or narrower than GPU and slot allow, and copies take that much longer. A link that
is slow at rest is normal (it saves power) and is not reported.""",
}


def check(_: MachineState, gpu: GpuState) -> Iterator[Finding]:
    """What limits one GPU."""
    reasons = frozenset(gpu.event_reasons or ())
    yield from _power(gpu, reasons)
    yield from _temperature(gpu, reasons)
    yield from _supply(gpu, reasons)
    yield from _past(gpu, reasons)
    yield from _link(gpu)


def _power(gpu: GpuState, reasons: frozenset[str]) -> Iterator[Finding]:
    limit, default, drawn = gpu.power_limit_w, gpu.power_limit_default_w, gpu.power_w
    if "sw_power_cap" in reasons:
        yield from _cap(gpu)
    usual = default or reference_power_w(gpu)
    if limit is not None and usual is not None and limit < LOWERED_SHARE * usual:
        yield Finding(
            "power-limit-lowered",
            "warning" if default else "info",
            f"Power limit {limit:.0f} W, below the {usual:.0f} W {'default' if default else 'of the reference board'}",
            gpu.index,
            advice="Heavy engines will run at lower clocks than elsewhere. To lift it until the next reboot:",
            command=f"sudo nvidia-smi -i {gpu.index} -pl {usual:.0f}",
        )
    full = gpu.utilization_pct is not None and gpu.utilization_pct >= FULL_PCT
    if full and at_work(gpu) and limit and drawn is not None and drawn <= IDLE_POWER_SHARE * limit:
        yield Finding(
            "busy-at-idle-power",
            "warning",
            f"{gpu.utilization_pct:.0f} % utilisation at the power of an idle GPU",
            gpu.index,
            evidence=f"{_drawn(gpu)}; {_clock(gpu)}",
            advice="Tiny kernels do this, and programs that wait for each other, or hang: see who.",
            command=f"nvidia-smi pmon -i {gpu.index} -c 5",
        )


def _cap(gpu: GpuState) -> Iterator[Finding]:
    """The "power cap" reason where it is to be believed, and what stands behind it."""
    share = clock_share(gpu)
    if gpu.power_w is not None and gpu.power_limit_w and gpu.power_w >= NEAR_LIMIT_SHARE * gpu.power_limit_w:
        yield Finding(
            "power-cap",
            "info",
            "At its power limit: clocks are lowered to stay within it",
            gpu.index,
            evidence=f"{_drawn(gpu)}; {_clock(gpu)}",
            advice="Normal under a heavy engine. Measure past it: the first moments are faster than what stays.",
        )
    elif at_work(gpu) and share is not None and share < LOW_SHARE:
        yield Finding(
            "power-cap",
            "warning",
            "Its clocks are held low to save power, and not by its own power limit",
            gpu.index,
            evidence=f"{_drawn(gpu)}; {_clock(gpu)}",
            advice="A laptop does so on battery or in a quiet mode, a server when it is short of power. The limits:",
            command=f"nvidia-smi -i {gpu.index} -q -d POWER,PERFORMANCE",
        )
    elif at_work(gpu) and share is not None and share < BELOW_TOP_SHARE:
        yield Finding(
            "power-cap",
            "info",
            "Clocks are lowered to save power",
            gpu.index,
            evidence=f"{_drawn(gpu)}; {_clock(gpu)}",
            advice="Peaks may reach the limit where the average stays below it. Measure past the first moments.",
        )


def _temperature(gpu: GpuState, reasons: frozenset[str]) -> Iterator[Finding]:
    shown = "temperature not shown" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} C"
    limit = gpu.temperature_limit_c
    if reasons & {"sw_thermal_slowdown", "hw_thermal_slowdown"}:
        hard = "hw_thermal_slowdown" in reasons
        yield Finding(
            "thermal-slowdown",
            "error" if hard else "warning",
            f"Too hot: it slows down{' to half of its clock or less' if hard else ''}",
            gpu.index,
            evidence=f"{shown}; {_clock(gpu)}",
            advice="Improve the cooling; a longer warm-up makes it worse. Temperatures and their limits:",
            command=f"nvidia-smi -i {gpu.index} -q -d TEMPERATURE,PERFORMANCE",
        )
    elif gpu.temperature_c is not None and gpu.temperature_c >= (HOT_C if limit is None else limit - NEAR_SLOWDOWN_C):
        yield Finding(
            "near-thermal-limit",
            "info" if limit is None else "warning",
            f"Hot: {shown}"
            + (", where many models begin to slow down" if limit is None else f", slowdown at {limit:.0f} C"),
            gpu.index,
            advice="Measurements will drift; improve the cooling. The limits:",
            command=f"nvidia-smi -i {gpu.index} -q -d TEMPERATURE",
        )


def _past(gpu: GpuState, reasons: frozenset[str]) -> Iterator[Finding]:
    times_s = {
        words: gpu.event_reason_counters_us.get(reason, 0) / 1e6  # a counter that is not there says nothing
        for reason, words in _COUNTED.items()
        if reason not in reasons
    }
    long = [f"{words} {time_s:.0f} s" for words, time_s in times_s.items() if time_s >= SLOWED_MIN_S]
    if long:
        yield Finding(
            "slowed-before",
            "info",
            f"Has been slowed down since the driver was loaded: {', '.join(long)}",
            gpu.index,
            advice="Not now. Whether it grows under your load:",
            command=f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE",
        )


def _supply(gpu: GpuState, reasons: frozenset[str]) -> Iterator[Finding]:
    if "hw_power_brake_slowdown" in reasons:
        yield Finding(
            "power-brake",
            "error",
            "The power supply brakes the GPU: clocks at half or less",
            gpu.index,
            evidence=_clock(gpu),
            advice="Look at the supply, its cables and the server's power management.",
            command=f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE,POWER",
        )
    elif "hw_slowdown" in reasons and "hw_thermal_slowdown" not in reasons and at_work(gpu):
        yield Finding(
            "hardware-slowdown",
            "warning",
            "The hardware slows the GPU down, to half of its clock or less",
            gpu.index,
            evidence=_clock(gpu),
            advice="It may be a change of clocks caught in the act: look again.",
            command=f"nvidia-smi -i {gpu.index} -q -d PERFORMANCE",
        )
    if "sync_boost" in reasons:
        yield Finding(
            "sync-boost",
            "info",
            "Held to the clock of the slowest GPU of its sync-boost group",
            gpu.index,
            evidence=_clock(gpu),
        )


def _link(gpu: GpuState) -> Iterator[Finding]:
    up = gpu.pstate is None or gpu.pstate <= WORKING_PSTATE  # below, the link's generation goes with the P-state
    slower = up and gpu.pcie_gen and gpu.pcie_gen_max and gpu.pcie_gen < gpu.pcie_gen_max
    narrower = gpu.pcie_width and gpu.pcie_width_max and gpu.pcie_width < gpu.pcie_width_max
    if at_work(gpu) and (slower or narrower):
        yield Finding(
            "pcie-below-max",
            "warning",
            f"PCIe generation {gpu.pcie_gen} x{gpu.pcie_width} under load, of {gpu.pcie_gen_max} x{gpu.pcie_width_max}",
            gpu.index,
            evidence=f"{gpu.utilization_pct:.0f} % utilisation (busy from {BUSY_PCT:.0f} %)",
            advice="Copies to and from the GPU take longer. Look at slot, riser and BIOS set-up; errors on the link:",
            command=f"nvidia-smi pci -i {gpu.index} -gErrCnt",
        )


def _drawn(gpu: GpuState) -> str:
    drawn = "power not shown" if gpu.power_w is None else f"{gpu.power_w:.0f} W"
    return f"{drawn}, limit not shown" if gpu.power_limit_w is None else f"{drawn} of {gpu.power_limit_w:.0f} W"


def _clock(gpu: GpuState) -> str:
    if gpu.sm_clock_mhz is None:
        return "SM clock not shown"
    top = "" if gpu.sm_clock_max_mhz is None else f" of {gpu.sm_clock_max_mhz:.0f}"
    return f"SM {gpu.sm_clock_mhz:.0f}{top} MHz"
