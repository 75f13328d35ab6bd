"""The clock of the SMs as they count it themselves, by kernels of one thread around each inference."""

import ctypes
import math
from collections import deque
from collections.abc import Callable
from typing import Any

from gpuwarm.measure.cuda import Context

_WORDS = 4  # of 64 bits a stamp leaves: cycles, nanoseconds, SM, whether it is there
_STAMP_BYTES = 64  # apart, so that the two stamps never share a cache line
_STEP_READS = 1 << 16  # of the timer: some milliseconds, many steps of the slowest one known (1 us)
_TIMER_SHARE = 0.01  # of the time a clock is differenced over, which the timer's step may cost
_SEVERAL_NS = 20_000_000  # iterations this near may be added up: a clock moves little in that time
_POLLS = 2000  # of a stamp's flag, about 0.1 ms; a stamp takes 2 us

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
