"""What a cold-start worker needs from an engine, real or simulated: the seam between `start.py` and engines."""

from collections.abc import Callable, Generator
from typing import NamedTuple

# One inference, synchronised: (t_ns, enqueue_ns, host_ns, h2d_ns, gpu_ns, d2h_ns, sm_clock_mhz), the fields of
# ITERATION after start and phase. What was not measured is NaN.
Infer = Callable[[], tuple[int, float, float, float, float, float, float]]


class Loaded(NamedTuple):
    """An engine ready to infer."""

    infer: Infer
    attach_clock: Callable[[], None]  # load the SM-clock stamps; before it, sm_clock_mhz is NaN
    touch: Callable[[], None]  # run a stamp, the smallest kernel there is; before attach_clock, nothing
    close: Callable[[], None]
    versions: dict[str, str]  # cuda, driver, tensorrt, runtime


# Yields the name of each step just after it is done: cuda_import, driver_init, context, tensorrt_import, runtime,
# deserialise, execution_context, buffers. A simulated one yields the same names.
ColdStart = Generator[str, None, Loaded]
