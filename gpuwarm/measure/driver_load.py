"""Time the kernel driver's own start: opening a GPU's device file returns once the GPU is initialised.

Nothing is changed: where no process holds the GPU, the driver starts for us and stops again, as for any program.
"""

import os
import subprocess
import tempfile
import time
from pathlib import Path

import msgspec

from gpuwarm.errors import DeviceError
from gpuwarm.machine import DriverLoad
from gpuwarm.measure import child

OPENS = 5  # of each kind, taken in turn
_TIMEOUT_S = 60.0  # eight GPUs with ECC memory to clear take some ten seconds


def measure(device: Path) -> DriverLoad:
    """Open `device` in fresh processes, in turn with and without this process holding it.

    Raises:
        DeviceError: it cannot be opened, or that does not end.
    """
    alone_ms, held_ms = [], []
    for _ in range(OPENS):
        alone_ms.append(_in_a_fresh_process(device))
        holding = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        try:
            held_ms.append(_in_a_fresh_process(device))
        finally:
            os.close(holding)
    return DriverLoad(device.name, tuple(alone_ms), tuple(held_ms))


def _in_a_fresh_process(device: Path) -> float:
    with tempfile.TemporaryDirectory(prefix="gpuwarm-") as folder:
        opener = child.start(f"{__name__}:open_ms", str(device), stem=Path(folder) / "driver-load")
        try:
            return msgspec.json.decode(opener.wait(_TIMEOUT_S), type=float)
        except subprocess.TimeoutExpired as error:
            raise DeviceError(
                f"{device} did not open within {_TIMEOUT_S:.0f} s: look for messages of NVRM in `sudo dmesg`"
            ) from error
        finally:
            opener.end()


def open_ms(device_json: bytes) -> float:
    """The child's side: how long opening took."""
    device = msgspec.json.decode(device_json, type=str)
    began_ns = time.perf_counter_ns()
    try:
        handle = os.open(device, os.O_RDWR | os.O_CLOEXEC)
    except OSError as error:
        raise DeviceError(f"{device} cannot be opened ({error.strerror}): see `ls -l /dev/nvidia*`") from error
    took_ms = (time.perf_counter_ns() - began_ns) / 1e6
    os.close(handle)
    return took_ms
