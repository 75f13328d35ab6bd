"""What NVML says about a simulated GPU: late, on a grid, and not all of it true."""

import math
import random

from gpuwarm.machine import EVENT_REASONS, GpuProcess, GpuState, event_reason_names
from gpuwarm.measure.simulation.gpu import Gpu
from gpuwarm.measure.simulation.load_log import BUSY, CONTEXT
from gpuwarm.rows import SAMPLE_FIELDS

_MEMORY_WARMER_C = 11.0  # than the GPU; an H100 log: 69 against 58 C


def readings(gpu: Gpu, t_ns: int) -> tuple[float, ...]:
    """The values NVML refreshes at `t_ns`, in the order of SAMPLE_FIELDS from pstate on."""
    sensors, noise = gpu.profile.sensors, random.Random(t_ns)  # the same whoever reads
    held, now = gpu.past(t_ns - round(sensors.lag_ms * 1e6)), gpu.past(t_ns)
    governed = held.event_reasons and held.state.count(BUSY)  # then the clock goes up and down by a step
    wobble_mhz = sensors.clock_noise_mhz * noise.choice((-1, 0, 0, 0, 1)) if governed else 0.0
    power_noise_pct = noise.gauss(0, sensors.power_noise_pct) if now.state.count(BUSY) else 0.0
    temperature_c = math.floor(gpu.temperature_c(t_ns))
    return (
        held.pstate,
        held.nvml_clock_mhz + wobble_mhz,
        held.mem_clock_mhz,
        round(now.power_w * 1e3 * (1 + power_noise_pct / 100)),
        _average_mw(gpu, t_ns),
        temperature_c,
        temperature_c + _MEMORY_WARMER_C if sensors.memory_temperature else math.nan,
        held.event_reasons,
        _utilization_pct(gpu, t_ns),
        held.pcie_gen,
    )


def _average_mw(gpu: Gpu, t_ns: int) -> float:
    window_s = gpu.profile.sensors.average_s
    if window_s is None:
        return math.nan
    return round((gpu.energy_j(t_ns) - gpu.energy_j(t_ns - round(window_s * 1e9))) / window_s * 1e3)


def _utilization_pct(gpu: Gpu, t_ns: int) -> float:
    window_ns = round(gpu.profile.sensors.utilization_ms * 1e6)
    end_ns = t_ns // window_ns * window_ns
    return round(100 * (gpu.utilized_ns(end_ns) - gpu.utilized_ns(end_ns - window_ns)) / window_ns)


def counters_us(gpu: Gpu, t_ns: int) -> dict[str, int]:
    held = gpu.past(t_ns)
    state, since_ns = held.state, t_ns - held.state.t_ns
    counted = {0x4: state.capped_ns, 0x10: 0, 0x20: state.hot_ns, 0x40: 0, 0x80: 0}
    return {
        EVENT_REASONS[bit]: (ns + (since_ns if held.event_reasons & bit else 0)) // 1000 for bit, ns in counted.items()
    }


def gpu_state(gpu: Gpu, t_ns: int) -> GpuState:
    profile, top = gpu.profile, gpu.profile.ladder[-1]
    told = dict(zip(list(SAMPLE_FIELDS)[2:], readings(gpu, t_ns), strict=True))
    contexts = [span for span in gpu.past(t_ns).state.active if span.kind == CONTEXT]
    return GpuState(
        index=0,
        name=f"Simulated {profile.gpu}",
        persistence_mode="on" if profile.persistence else "off",
        pstate=int(told["pstate"]),
        sm_clock_mhz=told["sm_clock_mhz"],
        sm_clock_max_mhz=profile.sm_clock_max_mhz,
        mem_clock_mhz=told["mem_clock_mhz"],
        mem_clock_max_mhz=profile.mem_clock_max_mhz,
        power_w=told["power_mw"] / 1e3,
        power_limit_w=profile.power_limit_w,
        power_limit_default_w=profile.power_limit_w,
        temperature_c=told["temperature_c"],
        utilization_pct=told["gpu_util_pct"],
        memory_total_mib=profile.memory_mib,
        compute_mode="Default",
        display_active=profile.display,
        event_reasons=event_reason_names(int(told["event_reasons"])),
        event_reason_counters_us=counters_us(gpu, t_ns),
        pcie_gen=int(told["pcie_gen"]),
        pcie_gen_max=top.pcie_gen,
        pcie_width=16,
        pcie_width_max=16,
        compute_capability=profile.compute_capability,
        processes=tuple(GpuProcess(pid=span.pid, name="simulated engine", kind="C") for span in contexts),
    )
