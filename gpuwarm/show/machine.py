"""A checked machine, or many, laid out for a terminal of 80 columns; the words come from the checks."""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gpuwarm.analysis.checks.report import Report
from gpuwarm.analysis.finding import Finding, Severity
from gpuwarm.analysis.fleet import Fleet
from gpuwarm.machine import GpuState

LABEL_COLUMNS = 8
ABOUT_COLUMNS = 80
SHOWN_MACHINES = 6  # of a group; the JSON names them all
_LABELS: dict[Severity, tuple[str, str]] = {  # what a person reads, and its style
    "error": ("error", "bold red"),
    "warning": ("warning", "yellow"),
    "unknown": ("unknown", "magenta"),
    "info": ("note", "cyan"),
    "not_applicable": ("n/a", "dim"),
    "ok": ("ok", "green"),
}
_PLATFORMS = {"linux": "Linux", "windows": "Windows", "wsl2": "WSL2", "jetson": "Jetson", "unknown": "unknown system"}
_ONE_GPU = re.compile(r"(?<= -i )\d+")


def machine(checked: Report) -> Group:
    """First the verdict, then the GPUs, then what was found, worst first."""
    body = Table.grid(padding=(0, 1))
    body.add_column(width=LABEL_COLUMNS, no_wrap=True)
    body.add_column(ratio=1)
    for alike in _alike(checked.findings):
        label, style = _LABELS[alike[0].severity]
        body.add_row(Text(label, style), _finding(alike, gpus=len(checked.gpus)))
    return Group(
        Text(headline(checked), "bold"),
        Text(_subject(checked), "dim"),
        "",
        _gpus(checked.gpus),
        "",
        body,
        *_footer(checked),
    )


def brief(checked: Report) -> Iterator[str]:
    """A line for each GPU; what concerns the whole machine stands first, where there is something."""
    for index in (None, *(gpu.index for gpu in checked.gpus)):
        found = [finding for finding in checked.findings if finding.gpu == index]
        words = "; ".join(f"{_LABELS[finding.severity][0]} {finding.id}" for finding in found)
        name = next((gpu.name for gpu in checked.gpus if gpu.index == index), None)
        if index is not None:
            yield f"GPU {index} {name or 'unknown'}: {words or 'nothing found'}"
        elif found:
            yield f"machine: {words}"


def headline(checked: Report) -> str:
    """The verdict in a sentence."""
    counts = {
        label: [f.id for f in checked.findings if f.severity == severity] for severity, (label, _) in _LABELS.items()
    }
    bad = [
        f"{label}: {', '.join(dict.fromkeys(counts[label]))}"
        for label in ("error", "warning", "unknown")
        if counts[label]
    ]
    if checked.verdict == "ok":
        return "Nothing found that needs mending"
    start = (
        "Something to mend" if checked.verdict == "findings" else "Nothing bad seen, but not everything could be judged"
    )
    return f"{start} - {'; '.join(bad)}"


def about(identifier: str, text: str) -> str:
    """An explanation, wrapped."""
    paragraphs = (textwrap.fill(" ".join(part.split()), ABOUT_COLUMNS) for part in text.split("\n\n"))
    return f"{identifier}\n\n" + "\n\n".join(paragraphs)


def _subject(checked: Report) -> str:
    parts = (
        _PLATFORMS[checked.platform],
        checked.driver_version and f"driver {checked.driver_version}",
        checked.cuda_version and f"CUDA {checked.cuda_version}",
        checked.host and checked.host.distribution,
        checked.host and checked.host.container and f"in a {checked.host.container} container",
        "read live" if checked.source == "live" else f"from {checked.source}",
    )
    return ", ".join(part for part in parts if part)


def _gpus(gpus: Sequence[GpuState]) -> Table:
    """The state that the findings rest on; a reading that is missing stays empty."""
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="dim", pad_edge=False)
    table.add_column("GPU", justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, overflow="ellipsis", ratio=1)
    for heading in ("state", "SM MHz", "power W", "C", "busy", "persistence"):
        table.add_column(heading, justify="right", no_wrap=True)
    for place, gpu in enumerate(gpus):
        table.add_row(
            str(place if gpu.index is None else gpu.index),
            (gpu.name or "unknown").removeprefix("NVIDIA "),
            "" if gpu.pstate is None else f"P{gpu.pstate}",
            _of(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
            _of(gpu.power_w, gpu.power_limit_w),
            _of(gpu.temperature_c, None),
            "" if gpu.utilization_pct is None else f"{gpu.utilization_pct:.0f} %",
            gpu.persistence_mode,
        )
    return table


def _of(now: float | None, top: float | None) -> str:
    if now is None:
        return ""
    return f"{now:.0f}" if top is None else f"{now:.0f}/{top:.0f}"


def _alike(findings: Sequence[Finding]) -> Iterator[list[Finding]]:
    """Findings that differ by GPU alone are one paragraph."""

    def kind(finding: Finding) -> tuple[str, str, str]:
        return finding.id, finding.severity, finding.summary if finding.gpu is None else ""

    first: dict[tuple[str, str, str], int] = {}
    for place, finding in enumerate(findings):
        first.setdefault(kind(finding), place)
    for _, group in groupby(sorted(findings, key=lambda finding: first[kind(finding)]), kind):
        yield list(group)


def _finding(alike: list[Finding], *, gpus: int) -> Text:
    finding = alike[0]
    indices = [other.gpu for other in alike if other.gpu is not None]
    text = Text(finding.id, "bold")
    if indices and gpus > 1:
        text.append(f"  GPU {_ranges(indices)}", "dim")
    text.append(f"\n{_shared(alike, 'summary')}.")
    if finding.evidence:
        text.append(f"\nSeen: {_shared(alike, 'evidence')}.", "dim")
    if finding.advice:
        text.append(f"\n{finding.advice}")
    if finding.command:
        command = finding.command if len(indices) < 2 else _ONE_GPU.sub(",".join(map(str, indices)), finding.command)  # noqa: PLR2004
        text.append(f"\n  {command}", "green")
    return text


def _shared(alike: list[Finding], field: str) -> str:
    """What all of them say; where it differs, the first's, marked as that GPU's."""
    values = [getattr(finding, field) for finding in alike]
    return str(values[0]) if len(set(values)) == 1 else f"{values[0]} (GPU {alike[0].gpu}; the others alike)"


def _ranges(numbers: Iterable[int]) -> str:
    """Numbers as people write them: 0, 2-4."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs)


def _footer(checked: Report) -> Iterator[RenderableType]:
    yield ""
    if checked.ignored:
        yield Text(f"Ignored as asked: {', '.join(checked.ignored)}.", "dim")
    for note in checked.notes:
        yield Text(f"Note: {note}", "dim")
    if checked.not_judged:
        more = "" if checked.source == "live" else "; `nvidia-smi -q` shows more, `gpuwarm check` on the machine most"
        yield Text(f"Not shown by this source, so not judged: {', '.join(checked.not_judged)}{more}.", "dim")
    if checked.findings:
        yield Text("`gpuwarm check --about ID` explains a finding.", "dim")


def fleet(merged: Fleet) -> Group:
    """Machines with the same findings together, the rare ones first; then what differs from its kind."""
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="dim", pad_edge=False)
    table.add_column("machines", justify="right", no_wrap=True)
    table.add_column("findings", ratio=2)
    table.add_column("GPUs", ratio=2)
    table.add_column("which", ratio=3)
    for group in merged.groups:
        words = ", ".join(f"{identifier} ({_LABELS[severity][0]})" for identifier, severity in group.findings)
        table.add_row(str(len(group.machines)), words or "none", "; ".join(group.models), _some(group.machines))
    odd = [
        Text(
            f"{one.model}: {one.what} is {one.majority} on {one.share:.0%} of the machines, but "
            + "; ".join(f"{value} on {_some(names)}" for value, names in one.others.items())
        )
        for one in merged.odd
    ]
    head = f"{merged.machines:,} machines, {len(merged.groups):,} kinds of findings"
    return Group(Text(head, "bold"), "", table, *([Text("\nUnlike their kind", "bold"), *odd] if odd else []))


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_MACHINES
    return ", ".join(names[:SHOWN_MACHINES]) + (f" and {more:,} more" if more > 0 else "")
