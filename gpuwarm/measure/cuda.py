"""The only module that talks to CUDA: a GPU's context and stream, one timed inference, and the GPU's own clock.

Everything here runs inside a child process of `child.py`. CUDA is imported inside functions: in a cold start that
import is a step of its own.
"""

import ctypes
import math
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
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
_WORDS = 4  # of 64 bits a stamp leaves: cycles, nanoseconds, SM, whether it is there
_STAMP_BYTES = 64  # apart, so that the two stamps never share a cache line
_STEP_READS = 1 << 16  # of the timer: some milliseconds, many steps of the slowest one known (1 us)
_TIMER_SHARE = 0.01  # of the time a clock is differenced over, which the timer's step may cost
_SEVERAL_NS = 20_000_000  # iterations this near may be added up: a clock moves little in that time
_POLLS = 2000  # of a stamp's flag, about 0.1 ms; a stamp takes 2 us
_EVENT_BLOCKS = 1  # CU_EVENT_BLOCKING_SYNC
_HOST_MAPPED = 2  # CU_MEMHOSTALLOC_DEVICEMAP
_CONTEXT_FLAGS: dict[Sync, int] = {"spin": 1, "block": 4}  # CU_CTX_SCHED_SPIN, CU_CTX_SCHED_BLOCKING_SYNC
_STREAM_NON_BLOCKING = 1
_NAME_BYTES = 256
_MAJOR_VERSION = 1000  # CUDA 12.4 is 12040
_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*

# PTX 4.0 for sm_50, so that every driver since Maxwell compiles it for its own GPU: no NVRTC, no fat binary.
STAMP_PTX = b"""
.version 4.0
.target sm_50
.address_size 64

.visible .entry stamp(.param .u64 out)
{
    .reg .u64 %to, %cycles, %ns;
    .reg .u32 %sm;
    ld.param.u64 %to, [out];
    mov.u64 %ns, %globaltimer;
    mov.u64 %cycles, %clock64;
    mov.u32 %sm, %smid;
    st.volatile.global.u64 [%to], %cycles;
    st.volatile.global.u64 [%to+8], %ns;
    st.volatile.global.u32 [%to+16], %sm;
    membar.sys;
    st.volatile.global.u32 [%to+24], 1;
    ret;
}

.visible .entry timer_step(.param .u64 out, .param .u32 reads)
{
    .reg .u64 %to, %last, %now, %step, %least;
    .reg .u32 %left;
    .reg .pred %same, %more;
    ld.param.u64 %to, [out];
    ld.param.u32 %left, [reads];
    mov.u64 %least, 0x7fffffffffffffff;
    mov.u64 %last, %globaltimer;
again:
    mov.u64 %now, %globaltimer;
    sub.u64 %step, %now, %last;
    mov.u64 %last, %now;
    setp.eq.u64 %same, %step, 0;
    @%same bra next;
    min.u64 %least, %least, %step;
next:
    sub.u32 %left, %left, 1;
    setp.ne.u32 %more, %left, 0;
    @%more bra again;
    st.volatile.global.u64 [%to], %least;
    ret;
}
\0"""


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
    _checked(driver, outcome, "the NVIDIA driver does not start")
    serves = _checked(driver, driver.cuDriverGetVersion(), "the NVIDIA driver does not tell its version")
    if serves // _MAJOR_VERSION < driver.CUDA_VERSION // _MAJOR_VERSION:  # it lacks functions that the bindings call
        raise DeviceError(
            f"this driver serves CUDA {_dotted(serves)} at most and the installed cuda-bindings are for CUDA "
            f"{_dotted(driver.CUDA_VERSION)}: update the driver, or pip install 'gpuwarm[cu12]'"
        )
    return _dotted(serves)


def _dotted(version: int) -> str:
    return f"{version // _MAJOR_VERSION}.{version % _MAJOR_VERSION // 10}"


def _checked(driver: Driver, outcome: tuple[Any, ...], what: str, kind: type[Exception] = DeviceError) -> Any:
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
    device = _checked(driver, driver.cuDeviceGet(ordinal), f"GPU {ordinal} cannot be opened")

    def ask(function: Callable[..., tuple[Any, ...]], *arguments: object) -> Any:
        return _checked(driver, function(*arguments, device), f"GPU {ordinal} does not answer")

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
    count = _checked(driver, driver.cuDeviceGetCount(), "CUDA cannot count its GPUs")
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
        return _checked(self.driver, function(*arguments), f"{function.__name__} failed")

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


class SmClock:
    """The clock of the SMs as they count it themselves, from two stamps in the stream around an inference.

    A stamp is a kernel of one thread that leaves the SM's cycle counter, the GPU's nanosecond timer and the SM's
    number in memory of the host.
    """

    def __init__(self, context: Context) -> None:
        """Load the kernels and measure the timer's step on this GPU.

        Raises:
            DeviceError: the driver cannot compile or run them.
        """
        driver = context.driver
        self._context = context
        self._module = context.call(driver.cuModuleLoadData, STAMP_PTX)
        self._keep: list[object] = []  # the launches' parameters, which CUDA reads by address
        memory = context.pinned(2 * _STAMP_BYTES)
        self._begin, self._end = (self._words(memory + offset) for offset in (0, _STAMP_BYTES))
        address = context.call(driver.cuMemHostGetDevicePointer, memory, 0)
        stamp = context.call(driver.cuModuleGetFunction, self._module, b"stamp")
        self.begin = self._launcher(stamp, ctypes.c_uint64(int(address)))
        self.end = self._launcher(stamp, ctypes.c_uint64(int(address) + _STAMP_BYTES))
        self.step_ns = self._timer_step(int(address))
        self._recent: deque[tuple[int, int, int]] = deque()  # (begin, cycles, ns) of iterations too short by themselves
        self._cycles = self._ns = 0  # sums over them

    def _words(self, address: int) -> memoryview:
        words = memoryview((ctypes.c_uint64 * _WORDS).from_address(address)).cast("B").cast("Q")
        words[:] = memoryview(bytes(8 * _WORDS)).cast("Q")
        return words

    def _launcher(self, function: object, *parameters: Any) -> Callable[[], tuple[Any, ...]]:
        addresses = (ctypes.c_void_p * len(parameters))(*(ctypes.addressof(parameter) for parameter in parameters))
        self._keep += [*parameters, addresses]
        where = ctypes.addressof(addresses)  # as an integer: the bindings then build nothing a launch
        launch, stream = self._context.driver.cuLaunchKernel, self._context.stream
        return lambda: launch(function, 1, 1, 1, 1, 1, 1, 0, stream, where, 0)

    def _timer_step(self, address: int) -> int:
        context = self._context
        function = context.call(context.driver.cuModuleGetFunction, self._module, b"timer_step")
        context.call(self._launcher(function, ctypes.c_uint64(address), ctypes.c_uint32(_STEP_READS)))
        context.synchronise()
        return self._begin[0]

    def read_mhz(self) -> float:
        """The clock between the last two stamps, once the second is there; NaN where it cannot be told to 1 %.

        Where one iteration is too short for the timer's step, cycles and times of several are added up.
        """
        begin, end = self._begin, self._end
        for _ in range(_POLLS):
            if end[3]:
                break
        else:
            self._context.synchronise()
        end[3] = 0
        if begin[2] != end[2]:
            return math.nan  # two SMs count apart
        cycles, ns = end[0] - begin[0], end[1] - begin[1]
        if ns * _TIMER_SHARE >= self.step_ns:
            return _to_step(cycles / ns * 1e3)
        return self._over_several(begin[1], cycles, ns)

    def _over_several(self, begin_ns: int, cycles: int, ns: int) -> float:
        recent = self._recent
        recent.append((begin_ns, cycles, ns))
        self._cycles += cycles
        self._ns += ns
        while begin_ns - recent[0][0] > _SEVERAL_NS or self._tells(self._ns - recent[0][2], len(recent) - 1):
            _, old_cycles, old_ns = recent.popleft()
            self._cycles -= old_cycles
            self._ns -= old_ns
        return _to_step(self._cycles / self._ns * 1e3) if self._tells(self._ns, len(recent)) else math.nan

    def _tells(self, ns: int, count: int) -> bool:
        """Whether `count` differences that add up to `ns`, each wrong by up to a step, are right to the share."""
        return ns * _TIMER_SHARE >= self.step_ns * math.sqrt(count) and count > 0


def _to_step(clock_mhz: float) -> float:
    """To an eighth of a MHz, 0.01 % of a busy clock and far below what the timer tells: digits cost space."""
    return round(clock_mhz * 8) / 8


class _NoClock:
    """Stands where the stamps will be: nothing of ours runs on the GPU before the second inference."""

    def begin(self) -> None:
        """Leave no stamp."""

    def end(self) -> None:
        """Leave no stamp."""

    def read_mhz(self) -> float:
        """Not measured."""
        return math.nan


class _Copies:
    """Copies of one direction between two events."""

    def __init__(self, context: Context, copy: Callable[..., object], arguments: Sequence[tuple[object, ...]]) -> None:
        self._context = context
        self._copy = copy
        self._arguments = [(*argument, context.stream) for argument in arguments]
        self._begin, self.done = context.event(), context.event()

    def enqueue(self) -> None:
        record, stream, copy = self._context.driver.cuEventRecord, self._context.stream, self._copy
        record(self._begin, stream)
        for argument in self._arguments:
            copy(*argument)
        record(self.done, stream)

    def took_ns(self) -> float:
        return self._context.elapsed_ns(self._begin, self.done)


class Inference:
    """One inference at a time, timed by the host, by CUDA events and, once attached, by the GPU's own clock."""

    def __init__(
        self,
        context: Context,
        enqueue: Callable[[int], bool],
        *,
        copy_in: Sequence[Buffer] = (),
        copy_out: Sequence[Buffer] = (),
    ) -> None:
        """Make the events.

        Args:
            context: where it runs.
            enqueue: puts the work into the stream of that handle; False: it could not.
            copy_in: what is copied to the GPU before it.
            copy_out: what is copied back after it.
        """
        driver = context.driver
        self._context = context
        self._enqueue = enqueue
        self._clock: SmClock | _NoClock = _NoClock()
        self._begin, self._end = context.event(), context.event()
        upload, download = driver.cuMemcpyHtoDAsync, driver.cuMemcpyDtoHAsync
        self._copy_in = _Copies(context, upload, [(it.device, it.host, it.size) for it in copy_in]) if copy_in else None
        self._copy_out = (
            _Copies(context, download, [(it.host, it.device, it.size) for it in copy_out]) if copy_out else None
        )

    def attach_clock(self) -> None:
        """Load the stamps; from here on they are taken around every inference."""
        self._clock = SmClock(self._context)

    def touch(self) -> None:
        """Run one stamp and wait for it, to keep the GPU from resting."""
        self._clock.begin()
        self._context.synchronise()

    def infer(self) -> tuple[int, float, float, float, float, float, float]:
        """Run it once and wait for it. The stamps lie outside the events, the copies outside the stamps."""
        context, clock, now = self._context, self._clock, time.monotonic_ns
        driver, stream, copy_in, copy_out = context.driver, context.stream, self._copy_in, self._copy_out
        begun_ns = now()
        if copy_in is not None:
            copy_in.enqueue()
        clock.begin()
        driver.cuEventRecord(self._begin, stream)
        before_ns = now()
        enqueued = self._enqueue(context.handle)
        after_ns = now()
        driver.cuEventRecord(self._end, stream)
        clock.end()
        if copy_out is not None:
            copy_out.enqueue()
        status = driver.cuEventSynchronize(self._end if copy_out is None else copy_out.done)[0]
        done_ns = now()
        if status != 0 or not enqueued:
            self._failed(status)
        return (
            begun_ns,
            after_ns - before_ns,
            done_ns - begun_ns,
            math.nan if copy_in is None else copy_in.took_ns(),
            context.elapsed_ns(self._begin, self._end),
            math.nan if copy_out is None else copy_out.took_ns(),
            clock.read_mhz(),
        )

    def let_go(self) -> None:
        """Hold nothing of the engine any more."""
        self._enqueue = lambda _: False

    def _failed(self, status: Any) -> None:
        _checked(self._context.driver, (status,), "the inference failed on the GPU", EngineError)
        raise EngineError("TensorRT did not accept the inference: run again with --verbose for its messages")
