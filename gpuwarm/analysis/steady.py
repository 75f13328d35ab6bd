"""Where warm-up ends, what kind of behaviour it was, and what a shorter warm-up would cost."""

from dataclasses import dataclass, field
from typing import Literal

Behaviour = Literal["flat", "warmup", "slowdown", "cyclic", "drift", "no_steady_state", "too_short"]


@dataclass(frozen=True)
class Warmup:
    """How long to warm up. Times are continuous inference; None where there is no steady state."""

    time_ms: float | None = None  # where it ends in the data (the longest over the starts)
    longest_start: int | None = None  # the start that `time_ms` is of
    iterations: int | None = None
    recommended_ms: float | None = None  # what to type: rounded up
    recommended_iterations: int | None = None
    starts: int = 0
    coverage: float | None = None  # n/(n+1): probability that the next start is warm by then; None within one start
    interval_ms: tuple[float, float] | None = None
    interval_kind: str | None = None  # "range over starts" | "block bootstrap within one start"
    clock_warm_ms: float | None = None
    heat_steady_ms: float | None = None  # where it differs from clock_warm_ms


@dataclass(frozen=True)
class Steady:
    """Latency once steady."""

    median_ms: float
    mean_ms: float
    p99_ms: float
    cov_pct: float
    from_iteration: int
    iterations: int


@dataclass(frozen=True)
class Bias:
    """What a benchmark that begins after `warmup_ms` gets wrong."""

    warmup_ms: float
    mean_bias_pct: float | None
    p99_bias_pct: float | None


@dataclass(frozen=True)
class Judgement:
    """The answer for one recording."""

    behaviour: Behaviour
    also: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()  # sentences with the numbers that decided it
    warmup: Warmup = Warmup()
    steady: Steady | None = None
    bias: tuple[Bias, ...] = ()
    period_ms: float | None = None  # of a cyclic one
    slope_pct_per_s: float | None = None  # of a drifting one
    per_start: tuple[Behaviour, ...] = field(default_factory=tuple)
