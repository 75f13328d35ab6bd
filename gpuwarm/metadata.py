"""What was done to get a recording's rows: machine, workload, starts, sampling. No numpy: workers use it too."""

from dataclasses import dataclass, field
from typing import Literal

from gpuwarm.machine import GpuProcess, MachineState


@dataclass(frozen=True, slots=True)
class Mark:
    """A step of a cold start and the moment it was done. The first, `process_start`, is stamped by the parent."""

    name: str
    t_ns: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A stretch of iterations under one regime; ITERATION.phase indexes a start's phases."""

    name: str  # "first" (the two cold inferences), then "busy" or "paced"
    interval_ms: float | None = None  # between enqueues where paced; None: back to back
    pause_s: float = 0.0  # idle before it begins
    keep_alive_ms: float | None = None  # between the small kernels that run during that pause; None: none do


@dataclass(frozen=True, slots=True)
class Rest:
    """Whether the GPU was back at rest before a start."""

    reached: bool
    waited_s: float
    sm_clock_mhz: float | None = None
    pstate: int | None = None
    temperature_c: float | None = None
    reference_sm_clock_mhz: float | None = None
    reference_temperature_c: float | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """One process from its birth to its last iteration."""

    arm: str = "sampled"  # "sampled", "unsampled" (no NVML client of ours alive), or a study's own name
    sampled: bool = True
    marks: tuple[Mark, ...] = ()
    phases: tuple[Phase, ...] = ()
    rest: Rest | None = None
    removed_warmup_ms: float | None = None  # inference before the first row that is not in the rows
    counters_before_us: dict[str, int] = field(default_factory=dict)  # event-reason counters
    counters_after_us: dict[str, int] = field(default_factory=dict)
    failure: str | None = None  # the sentence its user saw
    disturbed: str | None = None  # by what, where something from outside was seen to change it while it ran
    neighbours: tuple[GpuProcess, ...] | None = None  # on the GPU just after it, none of them ours; None: not looked
    engine_file_cached_pct: float | None = None  # of its pages in memory just before; None: not looked


@dataclass(frozen=True, slots=True)
class Study:
    """A set of controlled starts, each of one arm."""

    name: Literal["explain", "idle"]
    repeats: int  # of each arm
    seed: int  # of their order
    tolerance: float | None = None  # of steady latency, that was asked for
    not_tested: dict[str, str] = field(default_factory=dict)  # what was left out, and why
    made_again: int = 0  # starts in place of disturbed ones


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output of the engine."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # numpy's name


@dataclass(frozen=True, slots=True)
class Workload:
    """What was inferred."""

    name: str | None = None
    sha256: str | None = None
    built_by: str | None = None  # TensorRT version that built the plan
    runtime: str | None = None  # package and version that ran it
    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    batch: int | None = None
    input_data: str | None = None  # "random, seed 0" or the files' names
    options: dict[str, str] = field(default_factory=dict)  # sync, copies, precision, ...


@dataclass(frozen=True, slots=True)
class Sampling:
    """What sampling was like and what it cost."""

    period_ms: float | None = None  # in use at the end
    read_us_median: float | None = None
    read_us_p99: float | None = None
    cpu_pct: float | None = None  # of one core
    deadlines_kept_pct: float | None = None  # within 1 ms
    refresh_ms: dict[str, float] = field(default_factory=dict)  # by SAMPLE field, as seen under load
    clock_uncertainty_ms: float | None = None  # where two clocks stamped samples and iterations


@dataclass(frozen=True, slots=True)
class Metadata:
    """Everything about a recording that is not a row."""

    started_utc: str | None = None  # ISO 8601
    time_base: Literal["monotonic", "relative"] = "monotonic"
    simulated: str | None = None  # the profile's name; None: real hardware
    source: str | None = None  # file(s) it was read from, where another tool made it
    command: str | None = None
    versions: dict[str, str] = field(default_factory=dict)  # gpuwarm, driver, cuda, nvml, tensorrt, runtime, python
    machine_before: MachineState | None = None  # its gpus hold the measured GPU alone
    machine_after: MachineState | None = None
    workload: Workload = Workload()
    starts: tuple[Start, ...] = ()
    study: Study | None = None  # None: starts all alike, by `gpuwarm run` or another tool
    inferences_per_row: int = 1  # above 1, each row of iterations is a mean over so many (a trtexec log)
    sampling: Sampling = Sampling()
    complete: bool = True  # False while measuring, and for ever where that was cut short
    notes: tuple[str, ...] = ()  # sentences about what went otherwise than planned
