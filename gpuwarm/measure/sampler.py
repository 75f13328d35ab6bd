"""Read a GPU at a fixed rate in a process of its own, so that sampling and measuring do not wait for one another."""

import os
import signal
import statistics
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from gpuwarm.measure.refresh import Refresh
from gpuwarm.metadata import Sampling
from gpuwarm.rows import SAMPLE_FIELDS, RowWriter, SampleRow

FIRST_PERIOD_NS = 10_000_000  # until refresh periods are known; a tenth of the usual one
SHORTEST_PERIOD_NS = 5_000_000  # shorter costs more than it shows: the clock ramps known so far take 50 ms and more
# A sensor that has not changed yet has no known period; the driver's own polling is at most every 100 ms (open kernel
# module, RMRusdPollingInterval), and half of that still shows each renewal.
LONGEST_PERIOD_NS = 50_000_000
MOST_READING_SHARE = 0.05  # of the time may go into reading, where one reading is slow
RECENT_COSTS = 100  # readings that the cost of one is judged by
DECIDE_EVERY_NS = 500_000_000
KEPT_NS = 1_000_000  # a deadline is kept when its reading begins this soon after it; later it is left out
P99 = 0.99


@dataclass(frozen=True)
class SamplerSpec:
    """Which GPU to sample, and where to."""

    folder: str  # the measurement's NAME.part; samples.rows must not exist in it
    gpu: str | None = None  # its UUID, where it is real
    simulate: str | None = None  # profile of a simulated GPU
    load_log: str | None = None  # simulated: folder in which processes say what they load the GPU with
    period_ms: float | None = None  # None: 10 ms at first, then half of the shortest refresh period seen


class Sampler:
    """Calls `read` on absolute deadlines until `stopping`; clock and sleep are seams."""

    def __init__(
        self,
        read: Callable[[], SampleRow],
        write: Callable[[SampleRow], None],
        *,
        period_ms: float | None,
        clock: Callable[[], int],
        sleep: Callable[[float], None],
    ) -> None:
        """Begin with the given period and keep it, or with 10 ms and adapt."""
        self.stopping = False
        self._read = read
        self._write = write
        self._clock = clock
        self._sleep = sleep
        self._fixed = period_ms is not None
        self._period_ns = FIRST_PERIOD_NS if period_ms is None else round(period_ms * 1e6)
        self._refresh = Refresh()
        self._costs_ns = array("d")
        self._kept = self._missed = 0

    def run(self) -> Sampling:
        """Sample until `stopping` is set; what it was like."""
        began_ns, began_cpu_ns = self._clock(), time.process_time_ns()
        deadline_ns, decide_ns = began_ns, began_ns + DECIDE_EVERY_NS
        while not self.stopping:
            self._sleep(max(0, deadline_ns - self._clock()) * 1e-9)
            row = self._read()
            self._write(row)
            self._note(row, deadline_ns)
            now_ns = self._clock()
            if now_ns >= decide_ns:
                decide_ns = now_ns + DECIDE_EVERY_NS
                self._decide()
            deadline_ns = self._next(deadline_ns, now_ns)
        elapsed_ns = self._clock() - began_ns
        return self._summary(cpu_share=(time.process_time_ns() - began_cpu_ns) / max(1, elapsed_ns))

    def _note(self, row: SampleRow, deadline_ns: int) -> None:
        if row[0] - deadline_ns < KEPT_NS:
            self._kept += 1
        else:
            self._missed += 1
        self._costs_ns.append(row[1])
        self._refresh.observe(row)

    def _next(self, deadline_ns: int, now_ns: int) -> int:
        """The next deadline that can still be kept; those before it count as missed."""
        following_ns = deadline_ns + self._period_ns
        if now_ns - following_ns < KEPT_NS:
            return following_ns
        missed = 1 + (now_ns - following_ns - KEPT_NS) // self._period_ns
        self._missed += missed
        return following_ns + missed * self._period_ns

    def _decide(self) -> None:
        """Learn from what was sampled so far, and choose the period unless it is fixed."""
        self._refresh.conclude(self._period_ns)
        if self._fixed:
            return
        shortest_ns = self._refresh.shortest_ns()
        wanted_ns = self._period_ns if shortest_ns is None else round(shortest_ns / 2)
        affordable_ns = round(statistics.median(self._costs_ns[-RECENT_COSTS:]) / MOST_READING_SHARE)
        self._period_ns = max(min(wanted_ns, LONGEST_PERIOD_NS), SHORTEST_PERIOD_NS, affordable_ns)

    def _summary(self, *, cpu_share: float) -> Sampling:
        costs_us = sorted(cost_ns / 1e3 for cost_ns in self._costs_ns)
        taken = len(costs_us)
        return Sampling(
            period_ms=self._period_ns / 1e6,
            read_us_median=statistics.median(costs_us) if taken else None,
            read_us_p99=costs_us[int(P99 * taken)] if taken else None,
            cpu_pct=100 * cpu_share,
            deadlines_kept_pct=100 * self._kept / (self._kept + self._missed) if taken else None,
            refresh_ms={name: round(period_ns / 1e6, 1) for name, period_ns in self._refresh.periods_ns.items()},
        )


def run(spec_json: bytes) -> Sampling:
    """The sampler's process: samples into `samples.rows` until SIGTERM.

    Raises:
        DeviceError: no such GPU, or it was lost; what was sampled until then is in the file.
    """
    spec = msgspec.json.decode(spec_json, type=SamplerSpec)
    with reader(spec.gpu, spec.simulate, spec.load_log) as read:
        read()  # the first finds out what this GPU can be asked, which takes milliseconds
        return _sample(read, spec)


@contextmanager
def reader(gpu: str | None, simulate: str | None, load_log: str | None) -> Iterator[Callable[[], SampleRow]]:
    """What reads the GPU's state now; while it lasts, this process is a client of the driver.

    Raises:
        DeviceError: no driver, no such GPU.
    """
    if simulate is not None and load_log is not None:
        from gpuwarm.measure.simulated import open_reader

        yield open_reader(simulate, load_log)
    else:
        from gpuwarm.measure import nvml, selection

        with nvml.session():
            yield selection.choose(gpu, os.environ).read


def _sample(read: Callable[[], SampleRow], spec: SamplerSpec) -> Sampling:
    writer = RowWriter(Path(spec.folder) / "samples.rows", SAMPLE_FIELDS)
    sampler = Sampler(read, writer.append, period_ms=spec.period_ms, clock=time.monotonic_ns, sleep=time.sleep)

    def stop(*_: object) -> None:
        sampler.stopping = True

    signal.signal(signal.SIGTERM, stop)
    try:
        return sampler.run()
    finally:
        writer.close()
