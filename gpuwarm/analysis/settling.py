"""Whether a GPU's state has settled too: it can veto a steady latency, and tell a warm clock from a warm heat sink."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuwarm.analysis.stretch import Stretch
from gpuwarm.analysis.transitions import Transition
from gpuwarm.analysis.words import duration, number
from gpuwarm.machine import EVENT_REASONS
from gpuwarm.recording import Floats, Recording, Rows

SAME_CLOCK_SHARE = 0.03  # a power cap makes the SM clock wander by 1 to 2 %
SAME_POWER_SHARE = 0.05  # with every kernel power moves by some percent
LATE_SHARE, LATE_MS = 0.1, 500.0  # of the time at the end, the longer: what changes there has not shown its effect yet
LAST_SHARE = 0.2  # of the readings in that time say where the clock ends
POWER_WINDOW_MS = 1000.0  # a data-centre GPU's average power is that of the last second
BLOCKS = 400  # medians, so that an odd stamp is no change
FOLLOWS = 0.7  # correlation of a latency with its slowing clock: 0.97 to 1.0 on an H200 under a power limit that hunts
SLOWING = tuple(bit for bit, name in EVENT_REASONS.items() if "slowdown" in name or name == "sw_power_cap")


@dataclass(frozen=True)
class Settling:
    """What the GPU's state says about one start's steady latency."""

    clock_warm_ms: float | None = (
        None  # from then on the SM clock stays, as the GPU's own stamps or NVML less its lag say
    )
    vetoes: tuple[str, ...] = ()  # changes too late for their effect to be seen
    flags: tuple[str, ...] = ()  # what went on moving while latency was steady


def settling(recording: Recording, stretch: Stretch, changes: tuple[Transition, ...], *, steady_ms: float) -> Settling:
    """How the state of a start settled, against a latency steady from `steady_ms`; `changes` are the start's own.

    NVML's lag is taken off before times are compared, so the state never makes a warm-up longer than the latency does.
    """
    starts = recording.meta.starts
    if stretch.start < len(starts) and not starts[stretch.start].sampled:
        return Settling()
    samples = _during(recording, stretch)
    lag_ms = max((change.lag_ms for change in changes if change.lag_ms is not None), default=0.0)
    times_ms, clocks_mhz = _clock(recording, stretch, samples, lag_ms)
    span_ms = float(stretch.elapsed_ms[-1])
    late_ms = span_ms - max(LATE_SHARE * span_ms, LATE_MS)
    if late_ms <= steady_ms:
        return Settling(_last_outside_ms(times_ms, clocks_mhz))
    settled = (times_ms >= steady_ms) & (times_ms < late_ms)
    vetoes = [*_new_clock(clocks_mhz[settled], clocks_mhz[times_ms >= late_ms])]
    for change in changes:
        if change.kind in _NAMES and change.t_ms - lag_ms >= late_ms:
            ago = duration(span_ms - change.t_ms)
            vetoes.append(f"{_NAMES[change.kind]} went from {change.before} to {change.after} {ago} before the end")
    flags = [*_late_power(samples, late_ms, steady_ms), *_late_reasons(samples, late_ms)]
    warm_ms = _last_outside_ms(times_ms, clocks_mhz)
    if warm_ms is not None and warm_ms > steady_ms + LATE_MS and not vetoes:
        flags.append(
            f"the SM clock went on moving until {duration(warm_ms)}; {_followed(recording, stretch, steady_ms)}"
        )
    return Settling(warm_ms, tuple(vetoes), tuple(flags))


_NAMES = {"mem_clock": "the memory clock", "pstate": "the P-state"}


@dataclass(frozen=True)
class _Samples:
    times_ms: Floats
    rows: Rows


def _during(recording: Recording, stretch: Stretch) -> _Samples:
    begin_ns = recording.iterations["t_ns"][stretch.rows]
    times = recording.samples["t_ns"]
    rows = recording.samples[(times >= begin_ns[0]) & (times <= begin_ns[-1])]
    return _Samples(np.interp(rows["t_ns"], begin_ns, stretch.elapsed_ms), rows)


def _clock(recording: Recording, stretch: Stretch, samples: _Samples, lag_ms: float) -> tuple[Floats, Floats]:
    """SM clock and when: measured on the GPU where it is, else NVML's, earlier by its lag."""
    own = recording.iterations["sm_clock_mhz"][stretch.rows]
    known = np.flatnonzero(np.isfinite(own))
    if known.size:
        size = max(5, known.size // BLOCKS)
        blocks = known[: known.size // size * size].reshape(-1, size)
        return stretch.elapsed_ms[blocks[:, 0]], np.median(own[blocks], axis=1)
    clocks = samples.rows["sm_clock_mhz"]
    seen = np.isfinite(clocks)
    return samples.times_ms[seen] - lag_ms, clocks[seen]


def _followed(recording: Recording, stretch: Stretch, steady_ms: float) -> str:
    """Whether a steady latency follows a clock that moves to and fro, as under a power limit that hunts."""
    clocks_mhz = recording.iterations["sm_clock_mhz"][stretch.rows]
    kept = np.flatnonzero(np.isfinite(clocks_mhz) & (stretch.elapsed_ms >= steady_ms))
    size = max(1, kept.size // BLOCKS)
    blocks = kept[: kept.size // size * size].reshape(-1, size)
    clock, latency = (np.median(values[blocks], axis=1) for values in (clocks_mhz, stretch.latency_ms))
    if len(blocks) < 4 or np.ptp(clock) == 0 or np.ptp(latency) == 0:  # noqa: PLR2004 -- fewer go together by chance
        return "the level of latency stayed"
    if np.corrcoef(clock, latency)[0, 1] > -FOLLOWS:
        return "latency did not follow it"
    return "latency follows it from moment to moment, but swings about one level"


def _last_outside_ms(times_ms: Floats, clocks_mhz: Floats) -> float | None:
    """From when the clock stays at its last level; None where it is not known, or never does."""
    if clocks_mhz.size < 4:  # noqa: PLR2004 -- quarters
        return None
    last = float(np.median(clocks_mhz[-(clocks_mhz.size // 4) :]))
    outside = np.flatnonzero(np.abs(clocks_mhz - last) > SAME_CLOCK_SHARE * last)
    if outside.size == 0:
        return 0.0
    return float(max(0.0, times_ms[outside[-1] + 1])) if outside[-1] + 1 < times_ms.size else None


def _new_clock(before_mhz: Floats, late_mhz: Floats) -> Iterator[str]:
    """Whether the clock ends where it never was while latency was steady."""
    last_mhz = late_mhz[-max(1, int(LAST_SHARE * late_mhz.size)) :]
    if before_mhz.size == 0 or last_mhz.size == 0:
        return
    now, low, high = float(np.median(last_mhz)), float(before_mhz.min()), float(before_mhz.max())
    if now < low * (1 - SAME_CLOCK_SHARE) or now > high * (1 + SAME_CLOCK_SHARE):
        yield f"the SM clock went from {number(float(np.median(before_mhz)))} to {number(now)} MHz near the end"


def _late_power(samples: _Samples, late_ms: float, steady_ms: float) -> Iterator[str]:
    """Power that is still on its way, once its average has had its second."""
    for column, settles_ms in (("power_mw", 0.0), ("power_average_mw", POWER_WINDOW_MS)):
        power_w = samples.rows[column] / 1e3
        known = np.isfinite(power_w)
        settled = power_w[(samples.times_ms >= steady_ms + settles_ms) & (samples.times_ms < late_ms) & known]
        late = power_w[(samples.times_ms >= late_ms) & known]
        if settled.size and late.size:
            before, now = float(np.median(settled)), float(np.median(late))
            if abs(now - before) > SAME_POWER_SHARE * before:
                yield f"power went from {number(before)} to {number(now)} W near the end"


def _late_reasons(samples: _Samples, late_ms: float) -> Iterator[str]:
    reasons = samples.rows["event_reasons"]
    known = np.isfinite(reasons) & (reasons >= 0) & (reasons < 2**63)
    bits = reasons[known].astype(np.int64)
    late = samples.times_ms[known] >= late_ms
    for bit in SLOWING:
        seen = bits & bit != 0
        if seen[late].any() and not seen[~late].any():
            yield f"{EVENT_REASONS[bit]} was reported near the end for the first time"
