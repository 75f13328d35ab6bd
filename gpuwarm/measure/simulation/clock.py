"""What time is to a simulated GPU: a clock and a sleep, so that tests can let hours pass in milliseconds."""

import time
from collections.abc import Callable

Clock = Callable[[], int]
Sleep = Callable[[float], None]
_SPIN_S = 200e-6  # time.sleep oversleeps by about 60 us, more on a busy machine; the rest is spun


def sleep_precisely(seconds: float) -> None:
    """Sleep, then spin: within about a microsecond where the machine is not overloaded."""
    end_ns = time.monotonic_ns() + round(seconds * 1e9)
    if seconds > _SPIN_S:
        time.sleep(seconds - _SPIN_S)
    while time.monotonic_ns() < end_ns:
        pass
