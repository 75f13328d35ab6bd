"""A checked machine as the contract `gpuwarm.check/1`: what `check --json` prints and `fleet merge` reads."""

import re
from collections.abc import Collection
from dataclasses import dataclass

import msgspec

from gpuwarm.analysis.checks.load import numbered
from gpuwarm.analysis.finding import Finding, Verdict, verdict
from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState, HostState, MachineState, Platform

SCHEMA = "gpuwarm.check/1"
# What checks would like to see, in words, by field: where no GPU shows it, nothing was said about it.
_READINGS = {
    "sm_clock_mhz": "clocks",
    "event_reasons": "event reasons",
    "power_limit_w": "power limit",
    "temperature_limit_c": "temperature limit",
    "pcie_gen": "PCIe link",
    "processes": "processes",
}


@dataclass(frozen=True, slots=True)
class Report:
    """One machine with its findings."""

    schema: str
    source: str
    platform: Platform
    driver_version: str | None
    cuda_version: str | None
    nvidia_smi_version: str | None
    host: HostState | None
    verdict: Verdict
    gpus: tuple[GpuState, ...]
    findings: tuple[Finding, ...]
    nvml_version: str | None = None
    only: tuple[str, ...] = ()  # ids that were asked for; none: all
    ignored: tuple[str, ...] = ()  # ids that were asked not to be reported
    not_judged: tuple[str, ...] = ()  # what the source does not show
    notes: tuple[str, ...] = ()


def report(
    machine: MachineState,
    found: Collection[Finding],
    *,
    only: Collection[str] = (),
    ignore: Collection[str] = (),
) -> Report:
    """The findings asked for, and the verdict they give; `only` nothing means all."""
    kept = tuple(finding for finding in found if finding.id not in ignore and (not only or finding.id in only))
    return Report(
        schema=SCHEMA,
        source=machine.source,
        platform=machine.platform,
        driver_version=machine.driver_version,
        cuda_version=machine.cuda_version,
        nvidia_smi_version=machine.nvidia_smi_version,
        host=machine.host,
        verdict=verdict(kept),
        gpus=numbered(machine.gpus),  # as the findings call them
        findings=kept,
        nvml_version=machine.nvml_version,
        only=tuple(only),
        ignored=tuple(ignore),
        not_judged=_not_judged(machine),
        notes=machine.notes,
    )


def encode(checked: Report) -> bytes:
    """As JSON."""
    return msgspec.json.format(msgspec.json.encode(checked), indent=2)


def decode(data: bytes, source: str) -> Report:
    """From JSON.

    Raises:
        InputError: not the output of `gpuwarm check --json`, or of a version that this one does not know.
    """
    remedy = "make one with `gpuwarm check --json`"
    if not data.strip():
        raise InputError(f"{source} is empty: see why `gpuwarm check --json` printed nothing there")
    try:
        checked = msgspec.json.decode(data, type=Report)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{source} is not a check report ({error}): {remedy}") from error
    if checked.schema != SCHEMA:
        raise InputError(f"{source} has schema {checked.schema}, not {SCHEMA}: {remedy} of this version of gpuwarm")
    return checked


def recognise(data: bytes) -> bool:
    """Whether it is meant to be such a report, readable or not."""
    return re.match(rb'\s*{\s*"schema":\s*"gpuwarm\.check/', data) is not None


def machine(checked: Report, source: str) -> MachineState:
    """The machine a report is about, to be judged anew."""
    return MachineState(
        source=source,
        platform=checked.platform,
        driver_version=checked.driver_version,
        cuda_version=checked.cuda_version,
        nvml_version=checked.nvml_version,
        nvidia_smi_version=checked.nvidia_smi_version,
        gpus=checked.gpus,
        host=checked.host,
        notes=checked.notes,
    )


def _not_judged(machine: MachineState) -> tuple[str, ...]:
    missing = [words for field, words in _READINGS.items() if all(getattr(gpu, field) is None for gpu in machine.gpus)]
    return (*missing, *(("host",) if machine.host is None else ()))
