"""Machine states to findings: every word about how a machine is set up lives here, live or from a file."""

from dataclasses import dataclass
from typing import Literal

from gpuwarm.machine import MachineState

Severity = Literal["ok", "info", "warning", "error", "unknown", "not_applicable"]


@dataclass(frozen=True)
class Finding:
    """Something worth saying about a machine, with what it rests on and what to do."""

    id: str  # kebab-case, stable: users pass it to --only and --ignore
    severity: Severity
    summary: str
    gpu: int | None = None  # index; None: the whole machine
    evidence: str | None = None
    advice: str | None = None
    command: str | None = None  # exact, for this system; printed, never run


def findings(state: MachineState) -> tuple[Finding, ...]:
    """All findings, worst first."""
    raise NotImplementedError(state)
