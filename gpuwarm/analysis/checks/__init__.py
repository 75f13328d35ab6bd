"""Machine states to findings: every word about how a machine is set up lives here, live or from a file."""

from dataclasses import replace

from gpuwarm.analysis.checks import baseline, clocks, cuda_setup, limits, persistence, sharing, tensorrt_setup
from gpuwarm.analysis.checks.load import numbered
from gpuwarm.analysis.checks.product import platform
from gpuwarm.analysis.finding import Finding, worst_first
from gpuwarm.errors import InputError
from gpuwarm.machine import MachineState, Platform

ABOUT: dict[str, str] = {  # finding's id -> what it means
    identifier: text
    for module in (persistence, clocks, limits, sharing, cuda_setup, tensorrt_setup, baseline)
    for identifier, text in module.ABOUT.items()
}
_WINDOWS_EVENTS = "Get-WinEvent -FilterHashtable @{LogName='System'; ProviderName='nvlddmkm'} -MaxEvents 20"
_OF_A_GPU = (persistence.check, clocks.check, limits.check, sharing.check, cuda_setup.check)
_OF_A_MACHINE = (clocks.check_alike, cuda_setup.check_machine, tensorrt_setup.check_machine)


def findings(state: MachineState) -> tuple[Finding, ...]:
    """All findings, worst first; among equals those of the machine, then by GPU."""
    machine = replace(state, gpus=numbered(state.gpus))
    found = [finding for check in _OF_A_MACHINE for finding in check(machine)]
    for gpu in machine.gpus:
        lost = tuple(sharing.check_lost(gpu))
        found += lost or [finding for check in _OF_A_GPU for finding in check(machine, gpu)]
    systems = {gpu.index: platform(machine, gpu) for gpu in machine.gpus}
    return worst_first(_as_run_on(systems.get(finding.gpu, machine.platform), finding) for finding in found)


def _as_run_on(system: Platform, finding: Finding) -> Finding:
    """The finding with its command as this system takes it: Windows knows no sudo, and WSL2 leaves settings to it."""
    command = finding.command or ""
    if system not in ("windows", "wsl2") or not command.startswith("sudo "):
        return finding
    if "dmesg" in command:
        return replace(finding, command=_WINDOWS_EVENTS)
    if "nvidia-smi" not in command:  # what is set within WSL2
        return finding
    host = " on the Windows host" if system == "wsl2" else ""
    advice = (finding.advice or "").removesuffix(":").removesuffix(".")
    return replace(
        finding,
        advice=f"{advice}, as administrator{host}:",
        command=command.removeprefix("sudo ").replace("nvidia-smi ", "nvidia-smi.exe " if host else "nvidia-smi "),
    )


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
