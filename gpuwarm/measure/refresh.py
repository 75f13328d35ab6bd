"""How often a GPU's sensors are renewed, from the spacing of their changes; knows neither NVML nor time.

Drivers renew what NVML reports on a grid of their own: every 100 ms on one machine and 500 ms on the next, and not the
same for every sensor. Reading faster than that only disturbs. At rest a grid cannot be seen (nothing changes, or the
driver polls less), so only changes under load count.
"""

import math
from collections import deque

from gpuwarm.rows import SAMPLE_FIELDS, SampleRow

_PLACE = {name: position for position, name in enumerate(SAMPLE_FIELDS)}
SENSORS = (
    "sm_clock_mhz",
    "mem_clock_mhz",
    "power_mw",
    "power_average_mw",
    "temperature_c",
    "memory_temperature_c",
    "gpu_util_pct",
)
PACING = SENSORS[:4]  # temperature and utilisation are slow by nature: how often they are renewed sets no pace
MIN_SPACINGS = 10  # before anything is concluded; about 1 s under load on the usual 100 ms grid
MAX_SPACINGS = 64
SHORTEST_SHARE = 0.1  # of the spacings: below it are stalls of the sampling itself
ALWAYS_NEW = 1.25  # sampling periods: the spacing below which most changes are of a sensor new at every sample
GPU_IDLE = 0x1  # event reason


class Refresh:
    """What is known so far about each sensor's refresh period."""

    def __init__(self) -> None:
        """Nothing, before the first sample."""
        self.periods_ns: dict[str, float] = {}
        self._values = dict.fromkeys(SENSORS, math.nan)
        self._changed_ns: dict[str, float] = {}
        self._spacings: dict[str, deque[float]] = {name: deque(maxlen=MAX_SPACINGS) for name in SENSORS}

    def observe(self, row: SampleRow) -> None:
        """Take in the next sample."""
        t_ns, values, loaded = row[0], self._values, _under_load(row)
        if not loaded:
            self._changed_ns.clear()
        for name in SENSORS:
            value = row[_PLACE[name]]
            before = values[name]
            if value == before or math.isnan(value):
                continue
            values[name] = value
            if loaded and not math.isnan(before):
                if name in self._changed_ns:
                    self._spacings[name].append(t_ns - self._changed_ns[name])
                self._changed_ns[name] = t_ns

    def conclude(self, sampling_period_ns: float) -> None:
        """Judge the latest spacings; `periods_ns` then says what is known.

        The first judgement is the finest, as sampling gets coarser by it; only a sensor that then turns out to be new
        at every sample is judged again. Its period is at most the sampling period, and is given as that.
        """
        for name, spacings in self._spacings.items():
            if len(spacings) < MIN_SPACINGS:
                continue
            ordered = sorted(spacings)
            shortest = ordered[int(SHORTEST_SHARE * len(ordered))]
            alike = [spacing for spacing in ordered if abs(spacing - shortest) <= sampling_period_ns]
            period_ns = sum(alike) / len(alike)
            always_new = ordered[len(ordered) // 2] < ALWAYS_NEW * sampling_period_ns
            if name not in self.periods_ns or (always_new and period_ns < self.periods_ns[name]):
                self.periods_ns[name] = period_ns

    def shortest_ns(self) -> float | None:
        """The shortest refresh period among the sensors that a sampling period is chosen for; None: none is known."""
        return min((self.periods_ns[name] for name in PACING if name in self.periods_ns), default=None)


def _under_load(row: SampleRow) -> bool:
    """By utilisation; where there is none to read, as with MIG, by the driver's own word for idle."""
    utilization = row[_PLACE["gpu_util_pct"]]
    if not math.isnan(utilization):
        return utilization > 0
    reasons = row[_PLACE["event_reasons"]]
    return not math.isnan(reasons) and not int(reasons) & GPU_IDLE
