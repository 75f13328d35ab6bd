"""A checked machine, or many, laid out for a terminal of 80 columns; the words come from the checks."""

import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gpuwarm.analysis.checks.load import ranges
from gpuwarm.analysis.checks.report import Report
from gpuwarm.analysis.finding import Finding, Severity
from gpuwarm.analysis.fleet import Fleet
from gpuwarm.machine import GpuState
from gpuwarm.show.terminal import prose, to_copy

LABEL_COLUMNS = 9
ABOUT_COLUMNS = 80
NEARLY_ALL = 0.995  # would be rounded to 100 %
SHOWN_MACHINES = 6  # of a group; the JSON names them all
_LABELS: dict[Severity, tuple[str, str]] = {  # what a person reads, and its style
    "error": ("error", "bold red"),
    "warning": ("warning", "yellow"),
    "unknown": ("unknown", "magenta"),
    "info": ("note", "cyan"),
    "not_applicable": ("n/a", "dim"),
    "ok": ("ok", "green"),
}
_PLATFORMS = {"linux": "Linux", "windows": "Windows", "wsl2": "WSL2", "jetson": "Jetson", "unknown": "Unknown system"}
_ONE_GPU = re.compile(r"(?<= -i )\d+")


def machine(checked: Report) -> Group:
    """First the verdict, then the GPUs, then what was found, worst first."""
    found = [part for alike in _alike(checked.findings) for part in _finding(alike, gpus=len(checked.gpus))]
    head = [prose(headline(checked), "bold"), prose(_subject(checked), "dim")]
    return Group(*head, "", _gpus(checked.gpus), "", *found, *_footer(checked))


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
    if checked.verdict == "ok":
        return "Nothing found that needs mending"
    worst = ("error", "warning") if checked.verdict == "findings" else ("unknown",)
    names = ", ".join(dict.fromkeys(finding.id for finding in checked.findings if finding.severity in worst))
    return (
        f"To mend: {names}"
        if checked.verdict == "findings"
        else f"Nothing bad seen, but not everything could be: {names}"
    )


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
    for heading in ("state", "SM MHz", "power W", "temp", "busy", "persistence"):
        table.add_column(heading, justify="right", no_wrap=True)
    for gpu in gpus:
        table.add_row(
            str(gpu.index),
            (gpu.name or "unknown").removeprefix("NVIDIA "),
            "" if gpu.pstate is None else f"P{gpu.pstate}",
            _of(gpu.sm_clock_mhz, gpu.sm_clock_max_mhz),
            _of(gpu.power_w, gpu.power_limit_w),
            "" if gpu.temperature_c is None else f"{gpu.temperature_c:.0f} C",
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


def _finding(alike: list[Finding], *, gpus: int) -> Iterator[RenderableType]:
    finding = alike[0]
    label, style = _LABELS[finding.severity]
    indices = [other.gpu for other in alike if other.gpu is not None]
    title = Text.assemble((f"{label:<{LABEL_COLUMNS}}", style), (finding.id, "bold"))
    if indices and gpus > 1:
        title.append(f"  GPU {ranges(indices)}", "dim")
    yield title
    yield _indented(f"{_shared(alike, 'summary')}.")
    if finding.evidence:
        yield _indented(f"Seen: {_shared(alike, 'evidence')}.", "dim")
    if finding.advice:
        yield _indented(finding.advice)
    if finding.command:
        command = _ONE_GPU.sub(",".join(map(str, indices)), finding.command) if indices else finding.command
        yield to_copy(f"{'':{LABEL_COLUMNS + 2}}{command}", "green")


def _indented(text: str, style: str = "") -> Padding:
    return Padding(prose(text, style), (0, 0, 0, LABEL_COLUMNS))


def _shared(alike: list[Finding], field: str) -> str:
    """What all of them say; where it differs, the first's, marked as that GPU's."""
    values = [getattr(finding, field) for finding in alike]
    return str(values[0]) if len(set(values)) == 1 else f"{values[0]} (GPU {alike[0].gpu}; the others alike)"


def _footer(checked: Report) -> Iterator[RenderableType]:
    yield ""
    if checked.only:
        yield prose(f"Reported alone, as asked: {', '.join(checked.only)}.", "dim")
    if checked.ignored:
        yield prose(f"Ignored as asked: {', '.join(checked.ignored)}.", "dim")
    for note in checked.notes:
        yield prose(f"Note: {note}.", "dim")
    if checked.not_judged and not checked.notes:
        more = "" if checked.source == "live" else "; `gpuwarm check` on the machine itself sees more"
        yield prose(f"Not shown by this source, so not judged: {', '.join(checked.not_judged)}{more}.", "dim")
    if checked.findings:
        yield prose("`gpuwarm check --about ID` explains a finding.", "dim")


def fleet(merged: Fleet) -> Group:
    """Machines with the same findings together, the rare ones first; then what differs from its kind."""
    table = Table(box=None, padding=(0, 1), show_edge=False, header_style="dim", pad_edge=False)
    table.add_column("machines", justify="right", no_wrap=True)
    table.add_column("findings", ratio=2)
    table.add_column("GPUs", ratio=2)
    table.add_column("which", ratio=3)
    for group in merged.groups:
        models = "; ".join(group.models).replace("NVIDIA ", "")
        words = ", ".join(f"{identifier} ({_LABELS[severity][0]})" for identifier, severity in group.findings)
        table.add_row(
            str(len(group.machines)),
            words or "none",
            models,
            _some(group.machines),
        )
    odd = [
        prose(
            f"{one.model}: {one.what}: {one.majority} for {_share(one.share)} of the machines, but "
            + "; ".join(f"{value} for {_some(names)}" for value, names in one.others.items())
        )
        for one in merged.odd
    ]
    head = f"{merged.machines:,} machines, {len(merged.groups):,} kinds of findings"
    rest = [Text("\nUnlike their kind", "bold"), *odd] if odd else []
    if merged.unreadable:
        words = f"Could not be used, so that nothing is known of their machines: {_some(merged.unreadable)}"
        rest += [Text(""), prose(words, "magenta")]
    if merged.superseded:
        words = f"Not counted, because a later file is of the same machine: {_some(merged.superseded)}"
        rest += [Text(""), prose(words, "dim")]
    return Group(Text(head, "bold"), "", table, *rest)


def _share(share: float) -> str:
    """Never 100 % where it is not all."""
    return f"{share:.0%}" if share < NEARLY_ALL else "over 99%"


def _some(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_MACHINES
    return ", ".join(names[:SHOWN_MACHINES]) + (f" and {more:,} more" if more > 0 else "")
