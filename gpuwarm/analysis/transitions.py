"""Changes of the GPU's state joined to the change of latency around them."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["sm_clock", "mem_clock", "pstate", "event_reasons", "power"]


@dataclass(frozen=True)
class Transition:
    """One change of state."""

    start: int
    t_ms: float  # since the start's first inference
    kind: Kind
    before: float | str | None  # `from` in JSON
    after: float | str | None  # `to` in JSON
    latency_change_pct: float | None = None
    predicted_by_clock_pct: float | None = None  # if cycles per inference were constant
    explained: Literal["yes", "partly", "no", "unknown"] = "unknown"
