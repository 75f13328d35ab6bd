"""Where a cold start's time goes, and (between controlled runs) what causes it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class ColdPhase:
    """One step of a cold start over all starts."""

    name: str
    median_ms: float
    interval_ms: tuple[float, float] | None  # range over the starts
    share_pct: float  # of the median total


@dataclass(frozen=True)
class ColdStart:
    """From process start to the first result."""

    phases: tuple[ColdPhase, ...]
    total_ms: float
    first_ms: float | None  # latency of the first inference, median over starts
    second_ms: float | None
    starts: int
    unsampled_total_ms: float | None = None  # with no NVML client of ours alive, where that was measured
