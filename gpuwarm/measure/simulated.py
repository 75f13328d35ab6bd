"""A GPU and an engine that exist only in software, behind the same seams as NVML and TensorRT.

Everything here is told by the clock and sleep it is given, so that the same code runs in a worker process against
time itself and in a test against a `VirtualClock`, where hours pass in milliseconds.
"""

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from gpuwarm.errors import EngineError, InputError
from gpuwarm.machine import EVENT_REASONS, GpuProcess, GpuState, MachineState, event_reason_names
from gpuwarm.measure.seam import ColdStart, EngineSpec, Loaded
from gpuwarm.measure.simulation.gpu import Gpu
from gpuwarm.measure.simulation.load_log import BUSY, CLIENT, CONTEXT, Entry, LoadLog
from gpuwarm.measure.simulation.physics import Held
from gpuwarm.measure.simulation.profiles import PROFILES, ColdStep, Profile, Workload
from gpuwarm.rows import SAMPLE_FIELDS, SampleRow

Clock = Callable[[], int]
Sleep = Callable[[float], None]
_SPIN_S = 200e-6  # time.sleep oversleeps by about 60 us, more on a busy machine; the rest is spun
_OUTLIER_FACTORS = (1.2, 2.0)
_AUTOCORRELATION = 0.45  # of GPU times from one iteration to the next; measured on an H200: 0.48 to 0.50
_HOST_NOISE_PCT = 4.0  # of enqueue times; chosen
_STAMP_NOISE_PCT = 0.2  # of the SM clock measured on the GPU; on an H200 3 to 5 of 1650 MHz
_MEMORY_WARMER_C = 11.0  # than the GPU; an H100 log: 69 against 58 C


class VirtualClock:
    """A clock that only moves when somebody sleeps."""

    def __init__(self, t_ns: int = 0) -> None:
        """Start at `t_ns`."""
        self.t_ns = t_ns

    def __call__(self) -> int:
        """The time, ns."""
        return self.t_ns

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.t_ns += max(round(seconds * 1e9), 0)


def sleep_precisely(seconds: float) -> None:
    """Sleep, then spin: within about a microsecond where the machine is not overloaded."""
    end_ns = time.monotonic_ns() + round(seconds * 1e9)
    if seconds > _SPIN_S:
        time.sleep(seconds - _SPIN_S)
    while time.monotonic_ns() < end_ns:
        pass


def profile_named(name: str) -> Profile:
    """The profile a user asked for.

    Raises:
        InputError: there is none of that name.
    """
    if name not in PROFILES:
        raise InputError(f"no simulated GPU is called {name!r}: choose one of {', '.join(sorted(PROFILES))}")
    return PROFILES[name]


@lru_cache(maxsize=8)
def _log_in(folder: str) -> LoadLog:
    return LoadLog(Path(folder))


def _log(load_log: str | LoadLog) -> LoadLog:
    return _log_in(load_log) if isinstance(load_log, str) else load_log


@lru_cache(maxsize=8)
def _gpu(profile: str, log: LoadLog) -> Gpu:
    """One follower for all of a process; forgetting it costs time, not truth."""
    return Gpu(profile_named(profile), log)


@lru_cache(maxsize=8)
def _visitor(log: LoadLog) -> Entry:
    """The entry of this process's short visits, so that polling leaves rows and not files."""
    return log.join()


# -- NVML's side


def past_reader(profile: str, load_log: str | LoadLog) -> Callable[[int], SampleRow]:
    """What NVML would have said at any time, without being a client of it. Ascending times are cheap.

    Returns:
        A function of t_ns to a row in the order of SAMPLE_FIELDS; its read_ns is NaN.
    """
    gpu = Gpu(profile_named(profile), _log(load_log))
    refresh_ns = round(gpu.profile.sensors.refresh_ms * 1e6)
    told_ns, told = -1, _readings(gpu, 0)

    def read(t_ns: int) -> SampleRow:
        nonlocal told_ns, told
        gpu.at(t_ns)
        if t_ns // refresh_ns * refresh_ns != told_ns:
            told_ns = t_ns // refresh_ns * refresh_ns
            told = _readings(gpu, told_ns)
        return (t_ns, math.nan, *told)

    return read


def _readings(gpu: Gpu, t_ns: int) -> tuple[float, ...]:
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


def open_reader(
    profile: str, load_log: str | LoadLog, *, clock: Clock = time.monotonic_ns, sleep: Sleep = sleep_precisely
) -> Callable[[], SampleRow]:
    """Become an NVML client, which loads the driver where nobody holds it, and read in the order of SAMPLE_FIELDS."""
    log = _log(load_log)
    entry = log.join()
    _hold_driver(_gpu(profile, log), entry, clock, sleep)
    read_at = past_reader(profile, log)

    def read() -> SampleRow:
        t_ns = clock()
        row = read_at(t_ns)
        return (t_ns, clock() - t_ns, *row[2:])

    return read


def _hold_driver(gpu: Gpu, entry: Entry, clock: Clock, sleep: Sleep) -> None:
    """Become a client of the driver and wait until it is loaded."""
    t_ns = clock()
    entry.open(CLIENT, t_ns)
    if gpu.profile.persistence or gpu.profile.driver_load_s == 0:
        return
    since_ns = gpu.at(t_ns).state.held_since_ns
    loaded_ns = (t_ns if since_ns is None else since_ns) + round(gpu.profile.driver_load_s * 1e9)
    sleep(max(loaded_ns - t_ns, 0) * 1e-9)


@contextmanager
def _visit(gpu: Gpu, clock: Clock, sleep: Sleep) -> Iterator[int]:
    """Be an NVML client for a moment; yields the time."""
    entry = _visitor(gpu.log)
    _hold_driver(gpu, entry, clock, sleep)
    t_ns = clock()
    gpu.at(t_ns)
    try:
        yield t_ns
    finally:
        entry.close(CLIENT, clock())


def counters_us(
    profile: str, load_log: str | LoadLog, *, clock: Clock = time.monotonic_ns, sleep: Sleep = sleep_precisely
) -> dict[str, int]:
    """The event-reason counters, by the names of EVENT_REASONS."""
    gpu = _gpu(profile, _log(load_log))
    with _visit(gpu, clock, sleep) as t_ns:
        return _counters_us(gpu, t_ns)


def _counters_us(gpu: Gpu, t_ns: int) -> dict[str, int]:
    held = gpu.past(t_ns)
    state, since_ns = held.state, t_ns - held.state.t_ns
    counted = {0x4: state.capped_ns, 0x10: 0, 0x20: state.hot_ns, 0x40: 0, 0x80: 0}
    return {
        EVENT_REASONS[bit]: (ns + (since_ns if held.event_reasons & bit else 0)) // 1000 for bit, ns in counted.items()
    }


def machine_state(
    profile: str, load_log: str | LoadLog, *, clock: Clock = time.monotonic_ns, sleep: Sleep = sleep_precisely
) -> MachineState:
    """The simulated machine as a one-time NVML client sees it."""
    log = _log(load_log)
    gpu = _gpu(profile, log)
    with _visit(gpu, clock, sleep) as t_ns:
        return MachineState(
            source=f"simulated: {profile}",
            platform="linux",
            driver_version="simulated",
            gpus=(_gpu_state(gpu, t_ns),),
            notes=(f"this GPU exists only in software: gpuwarm's profile {profile}",),
        )


def _gpu_state(gpu: Gpu, t_ns: int) -> GpuState:
    profile, top = gpu.profile, gpu.profile.ladder[-1]
    told = dict(zip(list(SAMPLE_FIELDS)[2:], _readings(gpu, t_ns), strict=True))
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
        event_reason_counters_us=_counters_us(gpu, t_ns),
        pcie_gen=int(told["pcie_gen"]),
        pcie_gen_max=top.pcie_gen,
        pcie_width=16,
        pcie_width_max=16,
        compute_capability=profile.compute_capability,
        processes=tuple(GpuProcess(pid=span.pid, name="simulated engine", kind="C") for span in contexts),
    )


# -- the engine's side


def cold_start(
    spec: EngineSpec,
    *,
    clock: Clock = time.monotonic_ns,
    sleep: Sleep = sleep_precisely,
    log: LoadLog | None = None,
    environment: Mapping[str, str] = os.environ,
) -> ColdStart:
    """Load an engine on a simulated GPU, step by step.

    Raises:
        InputError: there is no such profile.
        EngineError: there is no such workload.
    """
    assert spec.simulate is not None
    profile = profile_named(spec.simulate)
    if spec.plan not in profile.workloads:
        raise EngineError(f"a simulated GPU runs {', '.join(profile.workloads)}, not {spec.plan}: choose one of these")
    if log is None:
        log = _log(spec.load_log) if spec.load_log is not None else LoadLog()
    gpu, entry = _gpu(spec.simulate, log), log.join()
    noise = random.Random(f"{spec.simulate} {spec.plan} {spec.seed} {len(log.entries)}")  # another start, other noise
    eager = environment.get("CUDA_MODULE_LOADING") == "EAGER"
    for step in profile.cold_start:
        if step.name == "driver_init":
            _hold_driver(gpu, entry, clock, sleep)
        beside = gpu.at(clock()).state.count(CONTEXT) > 0
        if step.name == "context":
            entry.open(CONTEXT, clock())
        sleep(_step_s(step, eager=eager, beside=beside) * (1 + noise.gauss(0, profile.cold_noise_pct / 100)))
        yield step.name
    engine = Engine(
        workload=profile.workloads[spec.plan],
        load=list(profile.workloads).index(spec.plan),
        gpu=gpu,
        entry=entry,
        noise=noise,
        clock=clock,
        sleep=sleep,
        lazy=not eager,
        copies=spec.copies,
    )
    return Loaded(
        infer=engine.infer,
        attach_clock=engine.attach_clock if spec.sm_clock else _nothing,
        close=engine.close,
        versions={"driver": "simulated", "cuda": "simulated", "runtime": f"simulated {spec.simulate}"},
    )


def _step_s(step: ColdStep, *, eager: bool, beside: bool) -> float:
    return (step.ms + (step.eager_ms if eager else 0.0) + (step.beside_context_ms if beside else 0.0)) * 1e-3


def _nothing() -> None:
    """Attach no clock: the user asked for none."""


@dataclass
class Engine:
    """One engine in one process: each inference takes what the simulated clocks make of its workload."""

    workload: Workload
    load: int  # its index in the profile
    gpu: Gpu
    entry: Entry
    noise: random.Random
    clock: Clock
    sleep: Sleep
    lazy: bool  # kernels load in the first inferences
    copies: bool
    stamps: bool = False
    _inferences: int = 0
    _deviation: float = 0.0  # of GPU time from what clocks say, relative

    def infer(self) -> tuple[int, float, float, float, float, float, float]:
        """One inference; returns when it is over."""
        work = self.workload
        extra_gpu_ns, extra_host_ns = self._loading_ns()
        t_ns = self.clock()
        held = self.gpu.at(t_ns)
        h2d_ns = d2h_ns = 0.0
        if self.copies:
            slower = 2 ** (self.gpu.profile.ladder[-1].pcie_gen - held.pcie_gen)  # a PCIe generation doubles the rate
            h2d_ns, d2h_ns = work.h2d_us * slower * 1e3, work.d2h_us * slower * 1e3
        enqueue_ns = work.enqueue_us * 1e3 * (1 + self.noise.gauss(0, _HOST_NOISE_PCT / 100)) + extra_host_ns
        begin_ns = t_ns + round(h2d_ns + work.launch_us * 1e3)
        gpu_ns, sm_clock_mhz = self._compute(t_ns, begin_ns, extra_gpu_ns)
        done_ns = max(t_ns + h2d_ns + enqueue_ns, begin_ns + gpu_ns) + d2h_ns + work.synchronise_us * 1e3
        self.sleep((done_ns - self.clock()) * 1e-9)
        self._inferences += 1
        return (
            t_ns,
            enqueue_ns,
            float(self.clock() - t_ns),
            h2d_ns if self.copies else math.nan,
            gpu_ns,
            d2h_ns if self.copies else math.nan,
            sm_clock_mhz * (1 + self.noise.gauss(0, _STAMP_NOISE_PCT / 100)) if self.stamps else math.nan,
        )

    def _loading_ns(self) -> tuple[float, float]:
        """What lazy loading adds on the GPU and on the host."""
        work = self.workload
        if not self.lazy or self._inferences > 1:
            return 0.0, 0.0
        if self._inferences == 1:
            return work.second_gpu_us * 1e3, 0.0
        return work.first_gpu_us * 1e3, work.first_host_us * 1e3

    def _compute(self, copy_ns: int, begin_ns: int, extra_ns: float) -> tuple[float, float]:
        """Run the kernels through whatever the clocks do meanwhile; returns gpu_ns and the mean SM clock.

        To the GPU the copy before them is work, too.
        """
        factor = self._factor()
        t_ns, left, cycles = begin_ns, 1.0, 0.0
        self.entry.busy(copy_ns, begin_ns + 1, self.load)
        while True:
            held = self.gpu.at(t_ns)
            whole_ns = self._latency_ns(held) * factor * held.state.count(BUSY) + extra_ns
            end_ns = t_ns + max(round(left * whole_ns), 1)
            self.entry.busy(copy_ns, end_ns, self.load)
            until_ns = min(end_ns, max(held.changes_ns, t_ns + 1))
            cycles += (until_ns - t_ns) * held.sm_clock_mhz
            if until_ns == end_ns:
                return float(end_ns - begin_ns), cycles / (end_ns - begin_ns)
            left -= (until_ns - t_ns) / whole_ns
            t_ns = until_ns

    def _latency_ns(self, held: Held) -> float:
        memory_slower = self.gpu.profile.ladder[-1].mem_clock_mhz / held.mem_clock_mhz
        return self.workload.sm_kcycles * 1e6 / held.sm_clock_mhz + self.workload.memory_us * 1e3 * memory_slower

    def _factor(self) -> float:
        """Autocorrelated noise, and now and then an outlier."""
        fresh = self.noise.gauss(0, self.workload.noise_pct / 100 * math.sqrt(1 - _AUTOCORRELATION**2))
        self._deviation = _AUTOCORRELATION * self._deviation + fresh
        outlier = self.noise.uniform(*_OUTLIER_FACTORS) if self.noise.random() < self.workload.outliers else 1.0
        return max(1 + self._deviation, 0.5) * outlier

    def attach_clock(self) -> None:
        """Load the stamps that measure the SM clock on the GPU."""
        self.sleep(self.gpu.profile.stamps_ms * 1e-3)
        self.stamps = True

    def close(self) -> None:
        """Give back the context and leave."""
        self.entry.end(self.clock())
