"""An engine on a simulated GPU: what an inference takes follows from the clocks while it runs."""

import math
import random
from dataclasses import dataclass

from gpuwarm.measure.simulation.clock import Clock, Sleep
from gpuwarm.measure.simulation.gpu import Gpu
from gpuwarm.measure.simulation.load_log import BUSY, Entry
from gpuwarm.measure.simulation.physics import Held
from gpuwarm.measure.simulation.profiles import Workload

_OUTLIER_FACTORS = (1.2, 2.0)
_AUTOCORRELATION = 0.45  # of GPU times from one iteration to the next; measured on an H200: 0.48 to 0.50
_TOUCH_NS = 10_000  # a stamp with its launch; chosen
_STAMP_NOISE_PCT = 0.2  # of the SM clock measured on the GPU; on an H200 3 to 5 of 1650 MHz


@dataclass
class Engine:
    """One engine in one process: each inference takes what the simulated clocks make of its workload."""

    workload: Workload
    load: int  # its index in the profile
    gpu: Gpu
    entry: Entry
    noise: random.Random
    clock: Clock
    sleep: Sleep
    lazy: bool  # kernels load in the first inferences
    copies: bool
    stamps: bool = False
    _inferences: int = 0
    _deviation: float = 0.0  # of GPU time from what clocks say, relative

    def infer(self) -> tuple[int, float, float, float, float, float, float]:
        """One inference; returns when it is over."""
        work = self.workload
        extra_gpu_ns, extra_host_ns = self._loading_ns()
        t_ns = self.clock()
        held = self.gpu.at(t_ns)
        h2d_ns = d2h_ns = 0.0
        if self.copies:
            slower = 2 ** (self.gpu.profile.ladder[-1].pcie_gen - held.pcie_gen)  # a PCIe generation doubles the rate
            h2d_ns, d2h_ns = work.h2d_us * slower * 1e3, work.d2h_us * slower * 1e3
        enqueue_ns = work.enqueue_us * 1e3 * (1 + self.noise.gauss(0, work.host_noise_pct / 100)) + extra_host_ns
        begin_ns = t_ns + round(h2d_ns + work.launch_us * 1e3)
        gpu_ns, sm_clock_mhz = self._compute(t_ns, begin_ns, extra_gpu_ns)
        done_ns = max(t_ns + h2d_ns + enqueue_ns, begin_ns + gpu_ns) + d2h_ns + work.synchronise_us * 1e3
        self.sleep((done_ns - self.clock()) * 1e-9)
        self._inferences += 1
        return (
            t_ns,
            enqueue_ns,
            float(self.clock() - t_ns),
            h2d_ns if self.copies else math.nan,
            gpu_ns,
            d2h_ns if self.copies else math.nan,
            sm_clock_mhz * (1 + self.noise.gauss(0, _STAMP_NOISE_PCT / 100)) if self.stamps else math.nan,
        )

    def _loading_ns(self) -> tuple[float, float]:
        """What lazy loading adds on the GPU and on the host."""
        work = self.workload
        if not self.lazy or self._inferences > 1:
            return 0.0, 0.0
        if self._inferences == 1:
            return work.second_gpu_us * 1e3, 0.0
        return work.first_gpu_us * 1e3, work.first_host_us * 1e3

    def _compute(self, copy_ns: int, begin_ns: int, extra_ns: float) -> tuple[float, float]:
        """Run the kernels through whatever the clocks do meanwhile; returns gpu_ns and the mean SM clock.

        To the GPU the copy before them is work, too.
        """
        factor = self._factor()
        t_ns, left, cycles = begin_ns, 1.0, 0.0
        self.entry.busy(copy_ns, begin_ns + 1, self.load)
        while True:
            held = self.gpu.at(t_ns)
            whole_ns = self._latency_ns(held) * factor * held.state.count(BUSY) + extra_ns
            end_ns = t_ns + max(round(left * whole_ns), 1)
            self.entry.busy(copy_ns, end_ns, self.load)
            until_ns = min(end_ns, max(held.changes_ns, t_ns + 1))
            cycles += (until_ns - t_ns) * held.sm_clock_mhz
            if until_ns == end_ns:
                return float(end_ns - begin_ns), cycles / (end_ns - begin_ns)
            left -= (until_ns - t_ns) / whole_ns
            t_ns = until_ns

    def _latency_ns(self, held: Held) -> float:
        memory_slower = self.gpu.profile.ladder[-1].mem_clock_mhz / held.mem_clock_mhz
        return self.workload.sm_kcycles * 1e6 / held.sm_clock_mhz + self.workload.memory_us * 1e3 * memory_slower

    def _factor(self) -> float:
        """Autocorrelated noise, and now and then an outlier."""
        fresh = self.noise.gauss(0, self.workload.noise_pct / 100 * math.sqrt(1 - _AUTOCORRELATION**2))
        self._deviation = _AUTOCORRELATION * self._deviation + fresh
        outlier = self.noise.uniform(*_OUTLIER_FACTORS) if self.noise.random() < self.workload.outliers else 1.0
        return max(1 + self._deviation, 0.5) * outlier

    def attach_clock(self) -> None:
        """Load the stamps that measure the SM clock on the GPU."""
        self.sleep(self.gpu.profile.stamps_ms * 1e-3)
        self.stamps = True

    def touch(self) -> None:
        """Run one stamp: to the GPU it is work, however short."""
        if self.stamps:
            t_ns = self.clock()
            self.entry.busy(t_ns, t_ns + _TOUCH_NS, self.load)
            self.sleep(_TOUCH_NS * 1e-9)

    def close(self) -> None:
        """Give back the context and leave."""
        self.entry.end(self.clock())
