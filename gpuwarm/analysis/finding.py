"""What every analysis hands to a reader of findings: one thing worth saying, how bad it is, what to do."""

from dataclasses import dataclass
from typing import Literal

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
