"""A GPU and an engine that exist only in software, behind the same seams as NVML and TensorRT.

Everything here is told by the clock and sleep it is given, so that the same code runs in a worker process against
time itself and in a test against a virtual clock, where hours pass in milliseconds.
"""

import math
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwarm.errors import EngineError, InputError
from gpuwarm.machine import MachineState
from gpuwarm.measure.seam import ColdStart, Loaded
from gpuwarm.measure.simulation import sensors
from gpuwarm.measure.simulation.clock import Clock, Sleep, sleep_precisely
from gpuwarm.measure.simulation.engine import Engine
from gpuwarm.measure.simulation.gpu import Gpu
from gpuwarm.measure.simulation.load_log import CLIENT, CONTEXT, Entry, LoadLog
from gpuwarm.measure.simulation.profiles import PROFILES, ColdStep, Profile
from gpuwarm.rows import SampleRow

if TYPE_CHECKING:
    from gpuwarm.measure.spec import EngineSpec


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
    told_ns, told = -1, sensors.readings(gpu, 0)

    def read(t_ns: int) -> SampleRow:
        nonlocal told_ns, told
        gpu.at(t_ns)
        if t_ns // refresh_ns * refresh_ns != told_ns:
            told_ns = t_ns // refresh_ns * refresh_ns
            told = sensors.readings(gpu, told_ns)
        return (t_ns, math.nan, *told)

    return read


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
def held(
    profile: str,
    load_log: str | LoadLog,
    kind: int,
    *,
    clock: Clock = time.monotonic_ns,
    sleep: Sleep = sleep_precisely,
) -> Iterator[None]:
    """Have a client of the driver (CLIENT) or a context, too (CONTEXT), and do nothing with it."""
    log = _log(load_log)
    gpu, entry = _gpu(profile, log), log.join()
    _hold_driver(gpu, entry, clock, sleep)
    if kind == CONTEXT:
        entry.open(CONTEXT, clock())
    try:
        yield
    finally:
        entry.end(clock())


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
        return sensors.counters_us(gpu, t_ns)


def machine_state(
    profile: str, load_log: str | LoadLog, *, clock: Clock = time.monotonic_ns, sleep: Sleep = sleep_precisely
) -> MachineState:
    """The simulated machine as a one-time NVML client sees it."""
    gpu = _gpu(profile, _log(load_log))
    with _visit(gpu, clock, sleep) as t_ns:
        return MachineState(
            source=f"simulated: {profile}",
            platform="linux",
            driver_version="simulated",
            gpus=(sensors.gpu_state(gpu, t_ns),),
            notes=(f"this GPU exists only in software: gpuwarm's profile {profile}",),
        )


# -- the engine's side


def cold_start(
    spec: "EngineSpec",
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
    gpu.at(clock())  # take in who was here before
    noise = random.Random(f"{spec.simulate} {spec.plan} {spec.seed} {len(log.entries)}")  # another start, other noise
    eager = environment.get("CUDA_MODULE_LOADING") == "EAGER"
    for step in profile.cold_start:
        if step.name == "driver_init":
            _hold_driver(gpu, entry, clock, sleep)
        beside = gpu.at(clock()).state.count(CONTEXT) > 0
        if step.name == "context":
            entry.open(CONTEXT, clock())
        more_ms = _compile_ms(step, environment)
        seconds = _step_s(step, eager=eager, beside=beside) + more_ms * 1e-3
        sleep(seconds * (1 + noise.gauss(0, profile.cold_noise_pct / 100)))
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
        attach_clock=engine.attach_clock if spec.sm_clock else lambda: None,
        touch=engine.touch,
        close=engine.close,
        versions={"driver": "simulated", "cuda": "simulated", "runtime": f"simulated {spec.simulate}"},
    )


def _step_s(step: ColdStep, *, eager: bool, beside: bool) -> float:
    return (step.ms + (step.eager_ms if eager else 0.0) + (step.beside_context_ms if beside else 0.0)) * 1e-3


def _compile_ms(step: ColdStep, environment: Mapping[str, str]) -> float:
    """What compiling PTX adds; without a cache of our own, somebody has filled the usual one.

    Raises:
        EngineError: it must be compiled and may not.
    """
    if not step.compile_ms:
        return 0.0
    if environment.get("CUDA_DISABLE_PTX_JIT") == "1":
        raise EngineError("a kernel exists as PTX alone: unset CUDA_DISABLE_PTX_JIT, so that it can be compiled")
    if environment.get("CUDA_CACHE_DISABLE") == "1":
        return step.compile_ms
    if "CUDA_CACHE_PATH" not in environment:
        return 0.0
    compiled = Path(environment["CUDA_CACHE_PATH"]) / step.name
    if compiled.exists():
        return 0.0
    compiled.parent.mkdir(parents=True, exist_ok=True)
    compiled.touch()
    return step.compile_ms
