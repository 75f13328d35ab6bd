"""What a cold-start worker is told: which engine to load, and what to infer after the two cold inferences.

The parent's side alone knows these as dataclasses; the worker reads their JSON by name (see `start.py`).
"""

from dataclasses import dataclass
from typing import Literal

from gpuwarm.metadata import Phase

FIRST = Phase("first")  # phase 0 of every start: the two cold inferences


@dataclass(frozen=True)
class InputFile:
    """Raw bytes of one input in C order."""

    name: str
    path: str
    shape: tuple[int, ...]
    dtype: str  # numpy's name


@dataclass(frozen=True)
class EngineSpec:
    """Which engine to load and how to run it."""

    plan: str  # path of a serialised engine; for a simulated GPU the workload's name: tiny | medium | heavy
    runtime: str | None = None  # module to import: tensorrt, tensorrt_lean, tensorrt_rtx, ...; None where simulated
    simulate: str | None = None  # profile of a simulated GPU
    load_log: str | None = None  # simulated: folder where every process leaves what it loads the GPU with
    seed: int = 0  # simulated noise
    inputs: tuple[InputFile, ...] = ()
    profile: int = 0  # optimisation profile
    plugins: tuple[str, ...] = ()
    allow_host_code: bool = False
    sync: Literal["block", "spin"] = "block"
    copies: bool = True
    sm_clock: bool = True
    verbose: bool = False


@dataclass(frozen=True)
class PhaseSpec:
    """How long to infer and how densely."""

    phase: Phase
    duration_s: float
    max_iterations: int | None = None


@dataclass(frozen=True)
class StartSpec:
    """One start: its number, its engine and what to do after the two cold inferences."""

    index: int
    folder: str  # the measurement's NAME.part
    engine: EngineSpec
    phases: tuple[PhaseSpec, ...] = ()
