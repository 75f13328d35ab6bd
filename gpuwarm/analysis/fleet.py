"""Many checked machines as one table: which have the same findings, and which differ from their like."""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass

import msgspec

from gpuwarm.analysis.checks.load import at_rest, idle
from gpuwarm.analysis.checks.report import Report
from gpuwarm.analysis.finding import SEVERITIES, Finding, Severity, Verdict, verdict
from gpuwarm.machine import GpuState

SCHEMA = "gpuwarm.fleet/1"
MAJORITY_SHARE = 0.5  # of the machines; only more than half of them say what is usual

_COMMON = {
    "persistence_mode": "persistence",
    "power_limit_w": "power limit (W)",
    "sm_clock_max_mhz": "maximum SM clock (MHz)",
    "mem_clock_max_mhz": "maximum memory clock (MHz)",
    "pcie_gen_max": "PCIe generation",
    "pcie_width": "PCIe width",
}


@dataclass(frozen=True)
class Group:
    """Machines with the same findings, `ok` ones and wording aside."""

    findings: tuple[tuple[str, Severity], ...]
    models: tuple[str, ...]  # "8x NVIDIA H100 80GB HBM3"
    verdict: Verdict
    machines: tuple[str, ...]


@dataclass(frozen=True)
class Odd:
    """Machines that differ from the majority of the same GPU model."""

    model: str
    what: str
    majority: str
    share: float  # of the machines with that model
    others: dict[str, tuple[str, ...]]  # value -> machines


@dataclass(frozen=True)
class Fleet:
    """The contract of `fleet merge --json`."""

    schema: str
    machines: int
    verdict: Verdict
    groups: tuple[Group, ...]  # the largest last: what is odd comes first
    odd: tuple[Odd, ...]
    unreadable: tuple[str, ...] = ()  # reports that could not be used
    superseded: tuple[str, ...] = ()  # reports of a machine that a later one is of


def merge(reports: Mapping[str, Report], *, ignore: Collection[str] = (), unreadable: Collection[str] = ()) -> Fleet:
    """All machines together, called by their own names, or by the reports' where those are not known.

    Args:
        reports: by name; of several of one machine the last counts.
        ignore: ids of findings to leave out.
        unreadable: names of reports that could not be used: of those machines nothing is known.
    """
    latest = {_identity(name, machine): name for name, machine in reports.items()}
    members = [(_called(name, reports[name]), reports[name]) for name in latest.values()]
    kept = [[finding for finding in machine.findings if finding.id not in ignore] for _, machine in members]
    grouped: dict[tuple[tuple[str, Severity], ...], list[int]] = defaultdict(list)
    for number, findings in enumerate(kept):
        grouped[_signature(findings)].append(number)
    groups = [
        Group(
            findings=signature,
            models=tuple(sorted({_models(members[number][1]) for number in numbers})),
            verdict=verdict(kept[numbers[0]]),
            machines=tuple(sorted(members[number][0] for number in numbers)),
        )
        for signature, numbers in grouped.items()
    ]
    overall = verdict([finding for findings in kept for finding in findings])
    return Fleet(
        schema=SCHEMA,
        machines=len(members),
        verdict="unknown" if overall == "ok" and (unreadable or not members) else overall,
        groups=tuple(sorted(groups, key=lambda group: (len(group.machines), group.machines))),
        odd=tuple(_odd_ones(members)),
        unreadable=tuple(unreadable),
        superseded=tuple(sorted(reports.keys() - latest.values())),
    )


def _called(name: str, machine: Report) -> str:
    return (machine.host and machine.host.hostname) or name


def _identity(name: str, machine: Report) -> Hashable:
    """Equal for reports of one machine: the same host name, which may be a default one, with the same GPUs."""
    uuids = frozenset(gpu.uuid for gpu in machine.gpus if gpu.uuid)
    return (_called(name, machine), uuids) if uuids else name


def encode(merged: Fleet) -> bytes:
    """As JSON."""
    return msgspec.json.format(msgspec.json.encode(merged), indent=2)


def _signature(findings: Iterable[Finding]) -> tuple[tuple[str, Severity], ...]:
    found = {(finding.id, finding.severity) for finding in findings if finding.severity != "ok"}
    return tuple(sorted(found, key=lambda pair: (SEVERITIES.index(pair[1]), pair[0])))


def _models(machine: Report) -> str:
    counts = Counter(gpu.name or "unknown GPU" for gpu in machine.gpus)
    return ", ".join(f"{count}x {name}" for name, count in sorted(counts.items())) or "no GPU"


def _odd_ones(members: Iterable[tuple[str, Report]]) -> Iterable[Odd]:
    """Per model and property: who differs from what more than half of the machines have."""
    seen: dict[tuple[str, str], dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for name, machine in members:
        for gpu in machine.gpus:
            for words, value in _common(machine, gpu):
                seen[gpu.name or "unknown GPU", words][value].add(name)
    for (model, words), values in sorted(seen.items()):
        everybody = len(set().union(*values.values()))
        majority = max(values, key=lambda value: len(values[value]))
        share = len(values[majority]) / everybody
        if len(values) > 1 and share > MAJORITY_SHARE:
            others = {value: tuple(sorted(names)) for value, names in sorted(values.items()) if value != majority}
            yield Odd(model, words, majority, share, others)


def _common(machine: Report, gpu: GpuState) -> Iterable[tuple[str, str]]:
    """What GPUs of one model should have in common, as far as it is known: property and value in words."""
    if machine.driver_version is not None:
        yield "driver", machine.driver_version
    for field, words in _COMMON.items():
        value = getattr(gpu, field)
        if value is not None:
            yield words, f"{value:g}" if isinstance(value, float) else str(value)
    if idle(gpu) and gpu.sm_clock_mhz is not None:
        yield "SM clock while idle", "down" if at_rest(gpu) else "up"
