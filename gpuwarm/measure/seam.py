"""What a cold-start worker needs from an engine, real or simulated: the seam between `start.py` and engines."""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Literal

# One inference, synchronised: (t_ns, enqueue_ns, host_ns, h2d_ns, gpu_ns, d2h_ns, sm_clock_mhz), the fields of
# ITERATION after start and phase. What was not measured is NaN.
Infer = Callable[[], tuple[int, float, float, float, float, float, float]]


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
class Loaded:
    """An engine ready to infer."""

    infer: Infer
    attach_clock: Callable[[], None]  # load the SM-clock stamps; before it, sm_clock_mhz is NaN
    close: Callable[[], None]
    versions: dict[str, str] = field(default_factory=dict)  # cuda, driver, tensorrt, runtime


# Yields the name of each step just after it is done: cuda_import, driver_init, context, tensorrt_import, runtime,
# deserialise, execution_context, buffers. A simulated one yields the same names.
ColdStart = Generator[str, None, Loaded]
