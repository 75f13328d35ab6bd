"""Inference at a pace, as a service has it, and not back to back: what the GPU does in between."""

from dataclasses import dataclass

from gpuwarm.analysis.words import duration, median
from gpuwarm.recording import Recording

MOSTLY_IDLE_PCT = 50.0  # busy less than this, most of NVML's readings fall between inferences
CONTINUOUS = 1  # the phase after the cold inferences, the same in all starts


@dataclass(frozen=True)
class Pace:
    """Of a warm stretch; clocks are medians, None where not known."""

    interval_ms: float  # from one inference's begin to the next
    busy_pct: float  # of that, the GPU was inferring
    sm_clock_mhz: float | None  # measured on the GPU while it inferred
    between_mhz: float | None  # as NVML shows it, where the GPU mostly idles

    @property
    def words(self) -> str:
        """How often."""
        return f"one inference each {duration(self.interval_ms)}"

    @property
    def load(self) -> str:
        """What that is for the GPU."""
        return f"keeps the GPU busy {self.busy_pct:.2g} % of the time"


def pace_of(warm: Recording, *, latency_ms: float | None, gpu_ms: float | None) -> Pace | None:
    """None where inference was back to back, which it also is where one takes longer than the interval."""
    phases = [phase for start in warm.meta.starts for phase in start.phases[CONTINUOUS : CONTINUOUS + 1]]
    interval_ms = phases[0].interval_ms if phases else None
    busy_ms = latency_ms if gpu_ms is None else gpu_ms
    if interval_ms is None or busy_ms is None or max(busy_ms, latency_ms or 0.0) >= interval_ms:
        return None
    busy_pct = 100 * busy_ms / interval_ms
    between_mhz = median(warm.samples["sm_clock_mhz"]) if busy_pct < MOSTLY_IDLE_PCT else None
    return Pace(interval_ms, busy_pct, median(warm.iterations["sm_clock_mhz"]), between_mhz)
