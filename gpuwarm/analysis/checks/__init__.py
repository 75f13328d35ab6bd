"""Machine states to findings: every word about how a machine is set up lives here, live or from a file."""

from dataclasses import replace

from gpuwarm.analysis.checks import baseline, clocks, cuda_setup, limits, persistence, sharing, tensorrt_setup
from gpuwarm.analysis.checks.load import numbered
from gpuwarm.analysis.finding import Finding, worst_first
from gpuwarm.errors import InputError
from gpuwarm.machine import MachineState

ABOUT: dict[str, str] = {  # finding's id -> what it means
    identifier: text
    for module in (persistence, clocks, limits, sharing, cuda_setup, tensorrt_setup, baseline)
    for identifier, text in module.ABOUT.items()
}
_OF_A_GPU = (persistence.check, clocks.check, limits.check, sharing.check, cuda_setup.check)
_OF_A_MACHINE = (clocks.check_alike, cuda_setup.check_machine, tensorrt_setup.check_machine)


def findings(state: MachineState) -> tuple[Finding, ...]:
    """All findings, worst first; among equals those of the machine, then by GPU."""
    machine = replace(state, gpus=numbered(state.gpus))
    found = [finding for check in _OF_A_MACHINE for finding in check(machine)]
    for gpu in machine.gpus:
        lost = tuple(sharing.check_lost(gpu))
        found += lost or [finding for check in _OF_A_GPU for finding in check(machine, gpu)]
    return worst_first(found)


def narrowed(state: MachineState, selector: str) -> MachineState:
    """The machine with one GPU alone, by index, UUID or PCI bus id.

    Raises:
        InputError: it has no such GPU.
    """
    wanted = selector.strip().lower()
    gpus = numbered(state.gpus)
    for gpu in gpus:
        names = (str(gpu.index), (gpu.uuid or "").lower(), (gpu.pci_bus_id or "").lower())
        if wanted in names:
            return replace(state, gpus=(gpu,))
    there = ", ".join(f"{gpu.index} ({gpu.name or 'unknown'})" for gpu in gpus)
    raise InputError(f"{state.source} has no GPU {selector!r}: name one of {there}")
