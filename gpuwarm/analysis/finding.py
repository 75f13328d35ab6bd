"""What every analysis hands to a reader of findings: one thing worth saying, how bad it is, what to do."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Severity = Literal["ok", "info", "warning", "error", "unknown", "not_applicable"]
Verdict = Literal["ok", "findings", "unknown"]

SEVERITIES: tuple[Severity, ...] = ("error", "warning", "unknown", "info", "not_applicable", "ok")  # worst first


@dataclass(frozen=True, slots=True)
class Finding:
    """Something worth saying about a machine, with what it rests on and what to do."""

    id: str  # kebab-case, stable: users pass it to --only and --ignore
    severity: Severity
    summary: str
    gpu: int | None = None  # index; None: the whole machine
    evidence: str | None = None
    advice: str | None = None
    command: str | None = None  # exact, for this system; printed, never run


def worst_first(found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Among equals in the order they came."""
    return tuple(sorted(found, key=lambda finding: SEVERITIES.index(finding.severity)))


def verdict(found: Iterable[Finding]) -> Verdict:
    """Findings where something should be done; else unknown where something that decides could not be seen."""
    severities = {finding.severity for finding in found}
    if severities & {"error", "warning"}:
        return "findings"
    return "unknown" if "unknown" in severities else "ok"


def at_or_above(severity: Severity) -> tuple[Severity, ...]:
    """Severities at least as bad; of what is unknown nobody can say that it is bad."""
    return SEVERITIES[: SEVERITIES.index(severity) + 1]
