"""The only module that imports CUDA: its GPUs, and a context with a stream and memory.

Everything here runs inside a child process of `child.py`. CUDA is imported inside functions: in a cold start that
import is a step of its own.
"""

import ctypes
import os
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from gpuwarm.errors import DeviceError, EngineError

Driver = Any  # the module cuda.bindings.driver
Sync = Literal["block", "spin"]

_REMEDIES = {  # CUresult -> what its user can do
    2: "the GPU has no memory left: end what else runs there",
    46: "another process holds the GPU alone (compute mode exclusive): end it, or `nvidia-smi -c DEFAULT`",
    100: "no GPU is visible: look at CUDA_VISIBLE_DEVICES and, in a container, at --gpus",
    101: "the GPU chosen by CUDA_VISIBLE_DEVICES is not there: `nvidia-smi -L` lists those that are",
    802: "the GPU's fabric is not ready: start nvidia-fabricmanager",
    803: "the driver's library and kernel module are of different versions: reboot, or reload the kernel module",
    804: "this GPU cannot use the forward-compatibility library: remove cuda-compat, or install a newer driver",
    999: "the kernel module does not answer: `sudo modprobe nvidia_uvm`, or reboot",
}
_EVENT_BLOCKS = 1  # CU_EVENT_BLOCKING_SYNC
_HOST_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
_CONTEXT_FLAGS: dict[Sync, int] = {"spin": 1, "block": 4}  # CU_CTX_SCHED_SPIN, CU_CTX_SCHED_BLOCKING_SYNC
_STREAM_NON_BLOCKING = 1
_NAME_BYTES = 256
_MAJOR_VERSION = 1000  # CUDA 12.4 is 12040
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class VisibleGpu(NamedTuple):
    """A GPU as CUDA lists it under the present CUDA_VISIBLE_DEVICES."""

    ordinal: int
    name: str
    pci_bus_id: str  # 0000:06:00.0
    uuid: str  # GPU-..., also where it is a MIG instance
    compute_capability: str


def import_driver() -> Driver:
    """Import CUDA's driver API.

    Raises:
        DeviceError: the bindings are not installed.
    """
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DeviceError(
            f"CUDA's Python bindings are missing ({error}): pip install 'gpuwarm[cu13]', or [cu12] for a driver older "
            "than 580"
        ) from error
    return driver


def initialise(driver: Driver) -> str:
    """Start the driver; returns the newest CUDA version that it serves.

    Raises:
        DeviceError: there is no driver or no GPU, or the bindings are for a later CUDA.
    """
    try:
        outcome = driver.cuInit(0)
    except RuntimeError as error:  # how the bindings say that libcuda.so.1 does not load
        raise DeviceError(
            "this machine has no NVIDIA driver (libcuda.so.1 does not load): install it or, in a container, start that "
            "with --gpus all"
        ) from error
    checked(driver, outcome, "the NVIDIA driver does not start")
    serves = checked(driver, driver.cuDriverGetVersion(), "the NVIDIA driver does not tell its version")
    if serves // _MAJOR_VERSION < driver.CUDA_VERSION // _MAJOR_VERSION:  # it lacks functions that the bindings call
        raise DeviceError(
            f"this driver serves CUDA {_dotted(serves)} at most and the installed cuda-bindings are for CUDA "
            f"{_dotted(driver.CUDA_VERSION)}: update the driver, or pip install 'gpuwarm[cu12]'"
        )
    return _dotted(serves)


def _dotted(version: int) -> str:
    return f"{version // _MAJOR_VERSION}.{version % _MAJOR_VERSION // 10}"


def checked(driver: Driver, outcome: tuple[Any, ...], what: str, kind: type[Exception] = DeviceError) -> Any:
    """What a function of the driver gave, or `kind` with what failed, the driver's code and a remedy."""
    status = int(outcome[0])
    if status != 0:
        name = driver.cuGetErrorName(outcome[0])[1].decode()
        remedy = _REMEDIES.get(status, "see CUDA's documentation of that code, and dmesg")
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        chosen = "" if visible is None else f" with CUDA_VISIBLE_DEVICES={visible}"
        raise kind(f"{what}{chosen}: {name} ({status}); {remedy}")
    return outcome[1] if len(outcome) > 1 else None


def visible_gpu(driver: Driver, ordinal: int) -> VisibleGpu:
    """What CUDA says about one of its GPUs; needs no context."""
    device = checked(driver, driver.cuDeviceGet(ordinal), f"GPU {ordinal} cannot be opened")

    def ask(function: Callable[..., tuple[Any, ...]], *arguments: object) -> Any:
        return checked(driver, function(*arguments, device), f"GPU {ordinal} does not answer")

    # The second version, which tells MIG instances apart, is the only one since CUDA 13 and then has the first's name.
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", driver.cuDeviceGetUuid)
    digits = bytes(ask(get_uuid).bytes[:16]).hex()
    uuid = "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))
    attribute = driver.CUdevice_attribute
    major, minor = (ask(driver.cuDeviceGetAttribute, attribute(number)) for number in (_MAJOR, _MINOR))
    return VisibleGpu(
        ordinal=ordinal,
        name=_text(ask(driver.cuDeviceGetName, _NAME_BYTES)),
        pci_bus_id=_text(ask(driver.cuDeviceGetPCIBusId, _NAME_BYTES)).lower(),
        uuid=f"GPU-{uuid}",
        compute_capability=f"{major}.{minor}",
    )


def _text(padded: bytes) -> str:
    return padded.split(b"\0")[0].decode()


def visible_devices(_: bytes) -> list[VisibleGpu]:
    """Child target: the GPUs in CUDA's order, which is not NVML's.

    Raises:
        DeviceError: there is no driver or no GPU.
    """
    driver = import_driver()
    initialise(driver)
    count = checked(driver, driver.cuDeviceGetCount(), "CUDA cannot count its GPUs")
    return [visible_gpu(driver, ordinal) for ordinal in range(count)]


class Buffer(NamedTuple):
    """Page-locked memory of the host and its twin on the GPU."""

    host: int
    device: Any  # CUdeviceptr
    size: int  # bytes


class Context:
    """The primary context of the first visible GPU, current in this thread, and one stream."""

    def __init__(self, driver: Driver, sync: Sync) -> None:
        """Create the context: the step of a start in which the GPU leaves its rest.

        Raises:
            DeviceError: the GPU cannot be used.
        """
        self.driver = driver
        self.sync = sync
        device = self.call(driver.cuDeviceGet, 0)
        self.call(driver.cuDevicePrimaryCtxSetFlags, device, _CONTEXT_FLAGS[sync])
        self.call(driver.cuCtxSetCurrent, self.call(driver.cuDevicePrimaryCtxRetain, device))
        self.stream = self.call(driver.cuStreamCreate, _STREAM_NON_BLOCKING)
        self.handle = int(self.stream)  # as other libraries take it

    def call(self, function: Callable[..., tuple[Any, ...]], *arguments: object) -> Any:
        """Call a function of the driver and return what it gives."""
        return checked(self.driver, function(*arguments), f"{function.__name__} failed")

    def event(self) -> Any:
        """A new event with timing; waiting for it blocks or spins as the context does."""
        return self.call(self.driver.cuEventCreate, _EVENT_BLOCKS if self.sync == "block" else 0)

    def elapsed_ns(self, begin: object, end: object) -> float:
        """The time between two events that are over, in whole ns: they resolve some 500, and digits cost space."""
        milliseconds: float = self.driver.cuEventElapsedTime(begin, end)[1]
        return round(milliseconds * 1e6)

    def pinned(self, size: int) -> int:
        """The address of new page-locked host memory that the GPU can write too."""
        address: int = self.call(self.driver.cuMemHostAlloc, max(size, 1), _HOST_MAPPED)
        return address

    def buffer(self, size: int) -> Buffer:
        """New memory on both sides."""
        return Buffer(self.pinned(size), self.call(self.driver.cuMemAlloc, max(size, 1)), size)

    def upload(self, buffer: Buffer) -> None:
        """Copy to the GPU and wait."""
        self.call(self.driver.cuMemcpyHtoDAsync, buffer.device, buffer.host, buffer.size, self.stream)
        self.synchronise()

    def synchronise(self) -> None:
        """Wait until the stream has done everything."""
        self.call(self.driver.cuStreamSynchronize, self.stream)


def fill(address: int, size: int, path: str) -> None:
    """Read a file of exactly `size` bytes into memory of the host."""
    target = (ctypes.c_char * size).from_address(address)
    with open(path, "rb") as file:
        if file.readinto(target) != size or file.read(1):
            raise EngineError(f"{path} does not hold the {size} bytes that its input takes: write the inputs again")
