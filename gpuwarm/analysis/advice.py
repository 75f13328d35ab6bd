"""Everything known about a recording as one answer: `gpuwarm.advice/1`."""

from dataclasses import dataclass, field
from typing import Literal

from gpuwarm.analysis.causes import ColdStart
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.steady import Behaviour, Bias, Steady, Warmup
from gpuwarm.analysis.transitions import Transition
from gpuwarm.machine import GpuState
from gpuwarm.metadata import Sampling, Workload
from gpuwarm.recording import Recording

SCHEMA = "gpuwarm.advice/1"


@dataclass(frozen=True)
class Advice:
    """The contract of `run --json` and `analyze --json`; what a person reads is rendered from it by `show/`."""

    source: str | None
    simulated: str | None
    gpu: GpuState | None
    workload: Workload
    behaviour: Behaviour
    also: tuple[str, ...]
    evidence: tuple[str, ...]
    warmup: Warmup
    steady: Steady | None
    bias: tuple[Bias, ...]
    cold_start: ColdStart | None
    transitions: tuple[Transition, ...]
    bound: Literal["gpu", "host", "transfer", "unknown"]
    sampling: Sampling
    verdict: Literal["trusted", "degraded", "unusable"]
    reasons: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    flags: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tolerance: float = 0.01  # of steady latency: what `of` was asked for


def of(recording: Recording, *, tolerance: float = 0.01, warmup_ms: tuple[float, ...] = ()) -> Advice:
    """The advice a recording gives; `warmup_ms` adds rows to the bias table."""
    raise NotImplementedError(recording, tolerance, warmup_ms)
