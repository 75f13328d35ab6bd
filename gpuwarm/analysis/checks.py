"""Machine states to findings: every word about how a machine is set up lives here, live or from a file."""

from gpuwarm.analysis.finding import Finding
from gpuwarm.machine import MachineState


def findings(state: MachineState) -> tuple[Finding, ...]:
    """All findings, worst first."""
    raise NotImplementedError(state)
