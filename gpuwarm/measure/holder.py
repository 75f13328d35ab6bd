"""A process that holds a GPU's driver, or a CUDA context, and does nothing with it: the neighbour of a cold start."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from gpuwarm.measure import cuda, nvml, simulated
from gpuwarm.measure.simulation.load_log import CLIENT, CONTEXT

Held = Literal["driver", "context"]


@dataclass(frozen=True)
class HoldSpec:
    """What to hold, and of which GPU."""

    what: Held
    ready: str  # file to make once it is held
    gpu: str | None = None  # its UUID, for the driver; a context is made on the first GPU that CUDA sees
    simulate: str | None = None
    load_log: str | None = None


def hold(spec_json: bytes) -> None:
    """Child target: hold until SIGTERM.

    Raises:
        DeviceError: it cannot be had.
    """
    spec = msgspec.json.decode(spec_json, type=HoldSpec)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with _held(spec):
        Path(spec.ready).touch()
        signal.sigwait({signal.SIGTERM})


@contextmanager
def _held(spec: HoldSpec) -> Iterator[None]:
    if spec.simulate is not None and spec.load_log is not None:
        with simulated.held(spec.simulate, spec.load_log, CONTEXT if spec.what == "context" else CLIENT):
            yield
    elif spec.what == "driver":
        with nvml.session():
            yield
    else:
        driver = cuda.import_driver()
        cuda.initialise(driver)
        cuda.Context(driver, "block")
        yield
