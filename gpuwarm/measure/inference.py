"""One inference, timed by the host, by CUDA events and by the GPU's own clock."""

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpuwarm.errors import EngineError
from gpuwarm.measure.cuda import Buffer, Context, checked
from gpuwarm.measure.sm_clock import SmClock


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
        checked(self._context.driver, (status,), "the inference failed on the GPU", EngineError)
        raise EngineError("TensorRT did not accept the inference: run again with --verbose for its messages")
