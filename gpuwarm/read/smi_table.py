"""nvidia-smi's table of any generation, however it was pasted -> MachineState.

The grammar: rules (`+---+`, `|===|`) part sections; a section's rows are cells between bars; the header's cells name
what the cells below them hold. Nothing is read by its column number, so lost blanks, wrapped lines and text around the
table cost nothing, and a cut table costs what was cut.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise, takewhile
from typing import Any

from gpuwarm.errors import InputError
from gpuwarm.machine import GpuProcess, GpuState, MachineState
from gpuwarm.read import smi_fields
from gpuwarm.read.text import without_margin

GPU_COLUMNS = 3
MIG_COLUMNS = 4
LONGEST_ROW = 10_000  # characters; what has no end by then is no row
LONGEST_CELL = 300
LONGEST_RULE = 500  # characters; the widest table so far has 91, a margin before it some more
TELLS_MORE = "a table leaves out clocks, event reasons, default power limit and PCIe link: `nvidia-smi -q` tells them"

_INNER_RULE = re.compile(r"[+|][-=]{5,}(?:[+|][-=]{5,})*[+|]?")
_MARGIN = re.compile(r"(.*?)(?:\+(?:[-=]+\+)+|\|(?:[-=]+[+|])+)$")
_BUS_ID = re.compile(r"\b([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\b")
_FIRST_ROW = re.compile(r"\|\s*" + _BUS_ID.pattern)  # of a GPU; in other tools' tables the bus id is in a sentence
_SECOND_ROW = re.compile(r"/ {0,9}\S{1,9} {0,9}\| {0,9}\d{1,9} ?Mi?B {0,9}/ {0,9}\d{1,9} ?Mi?B {0,9}\|")
_LABELS = (
    ("index", re.compile(r"\b(?:GPU|Nb\.)(?=\s+Name)")),
    ("name", re.compile(r"\bName\b")),
    ("persistence", re.compile(r"\bPersistence-M\b")),
    ("driver_model", re.compile(r"\bDriver-Model\b|\bTCC/WDDM\b")),
    ("bus", re.compile(r"\bBus.Id\b")),
    ("display", re.compile(r"\bDisp\.")),
    ("ecc", re.compile(r"\bVolatile\b")),
    ("power", re.compile(r"\bP(?:wr:|ower )Usage\b")),
    ("memory", re.compile(r"\bMemory.Usage\b")),
    ("utilization", re.compile(r"\bGPU.Util\b")),
    ("mig", re.compile(r"\bMIG M\.")),
)
Header = tuple[tuple[frozenset[str], ...], ...]  # of each row, of each cell: what is in it
# What a table without its head is taken for: in every generation these are the rows of a GPU.
_DEFAULT_HEADER: Header = (
    (frozenset({"index", "name", "persistence"}), frozenset({"bus", "display"}), frozenset({"ecc"})),
    (frozenset({"power"}), frozenset({"memory"}), frozenset({"utilization"})),
    (frozenset(), frozenset(), frozenset({"mig"})),
)


@dataclass
class _Table:
    """One nvidia-smi table while it is read."""

    versions: dict[str, str] = field(default_factory=dict)
    header: Header = ()
    gpus: list[dict[str, Any]] = field(default_factory=list)
    rows_of_gpu: int = 0
    mig_devices: list[int] | None = None  # GPU index of each
    mig_devices_ended: bool = False  # something stands below the last of them, or it is said that there are none
    processes: list[tuple[int, GpuProcess]] | None = None
    with_instances: bool = False  # the process table has the columns GI and CI
    processes_begun: bool = False  # the rule below their header is there
    processes_ended: bool = False  # the rule below the last of them is there

    def complete(self) -> bool:
        """Whether every GPU has more than its first row."""
        return bool(self.gpus) and all("memory_row" in gpu for gpu in self.gpus)


def recognise(text: str) -> bool:
    """Whether there is a table in it, with or without its head."""
    lines = text.splitlines()
    if any("NVIDIA-SMI" in line and "|" in line for line in lines):
        return True
    return any(line.count("|") > 1 and (_FIRST_ROW.search(line) or _SECOND_ROW.search(line)) for line in lines)


def machine_state(lines: list[str], source: str) -> MachineState:
    """The machine of the last whole table among the lines.

    Raises:
        InputError: no GPU can be read from it.
    """
    lines = [line.replace("\\|", "|") for line in lines]
    rules = (_MARGIN.match(line) for line in lines if len(line) < LONGEST_RULE)
    tables = [table for table in _tables(without_margin(lines, (rule[1] for rule in rules if rule))) if table.gpus]
    if not tables:
        raise InputError(
            f"{source} has the head of an nvidia-smi table and no GPU below it; give all that nvidia-smi prints, or -q"
        )
    if any(len(table.gpus) > smi_fields.GPUS_MAX for table in tables):
        raise InputError(
            f"{source} has more than {smi_fields.GPUS_MAX} GPUs in a table; give what nvidia-smi prints once"
        )
    most = max(len(table.gpus) for table in tables)
    whole = [table for table in tables if table.complete() and len(table.gpus) == most]
    table = (whole or tables)[-1]
    notes = [TELLS_MORE]
    if len(tables) > 1:
        notes.append(f"{source} holds {len(tables)} tables; the last whole one is read")
    return _state(table, source, notes)


def _tables(lines: list[str]) -> list[_Table]:
    tables = [_Table()]
    read_section = _read_gpus
    for rows, rule in _sections(lines):
        table, said = tables[-1], " ".join(rows)
        if table.processes_begun and "-" in rule:
            table.processes_ended = True
        if "NVIDIA-SMI" in said:
            if table.gpus:
                tables.append(_Table())
            tables[-1].versions = _versions(rows)
            read_section = _read_gpus
            read_section(tables[-1], [row for row in rows if "NVIDIA-SMI" not in row])  # grep drops rules
        elif "MIG devices" in said:
            table.mig_devices = []
            table.mig_devices_ended = "No MIG devices" in said
            read_section = _read_mig_devices
        elif "rocesses:" in said:
            table.processes = []
            table.mig_devices_ended = True
            table.processes_begun = "=" in rule
            table.with_instances = bool(re.search(r"\bGI\b", said))
            read_section = _read_processes
        else:
            read_section(table, rows)
    return tables


def _sections(lines: list[str]) -> Iterator[tuple[list[str], str]]:
    """(the lines between two rules, the second rule); the rule is "" where the text ends before one.

    Where a terminal cut all lines at its width, they are padded to it, so that joining them restores the blanks. Else
    lines end in a blank, so that joining them keeps words apart.
    """
    lines = list(_parted(lines))
    width = _terminal_width(lines)
    content: list[str] = []
    for before, line in pairwise(["", *lines]):
        if _is_rule(line):
            yield content, line
            content = []
        elif line.strip() and not (line == "|" and _is_rule(before)):  # a rule's end, wrapped
            content.append(line.ljust(width) if width else line + " ")
    yield content, ""


def _is_rule(line: str) -> bool:
    return not line.strip("-=+| ") and any(sign in line for sign in "-=+")


def _terminal_width(lines: list[str]) -> int:
    """The width of a rule that goes on in the next line; 0 where none does."""
    for line, below in pairwise(lines):
        if _is_rule(line) and _is_rule(below) and line[-1] not in "+|" and below.lstrip()[0] in "-=+":
            return len(line)
    return 0


def _parted(lines: list[str]) -> Iterator[str]:
    """Lines, parted where a rule stands inside one: a web page may have joined them all."""
    for line in lines:
        at = 0
        if not _is_rule(line):
            for rule in _INNER_RULE.finditer(line):
                yield from (line[at : rule.start()], rule[0])
                at = rule.end()
        yield line[at:]


def _rows(lines: Iterable[str], columns: int) -> Iterator[list[str]]:
    """The cells of each row. Lines are joined until a row has all its bars; a cut row comes as far as it goes."""
    row = ""
    for line in lines:
        joined = row + line
        if row and (_has_too_much(joined, columns) or len(joined) > LONGEST_ROW):
            yield _cells(row.split("|"))
            joined = line
        pieces = joined.split("|")
        at = 0
        while len(pieces) - at > columns + 1:
            yield _cells(pieces[at : at + columns + 1])
            at += columns + 1
        row = "|".join(pieces[at:]) if len(pieces) - at > 1 else ""  # text around the table has no bars
    if row:
        yield _cells(row.split("|"))


def _cells(pieces: list[str]) -> list[str]:
    """Behind each bar; what stands before the first is not the table's."""
    return [piece.strip()[:LONGEST_CELL] for piece in pieces[1:]]


def _has_too_much(joined: str, columns: int) -> bool:
    """Whether what was joined belongs to two rows: the first of them was cut off at its right."""
    bars = joined.count("|")
    return bars > columns + 1 or (bars == columns + 1 and not joined.rstrip().endswith("|"))


def _versions(rows: list[str]) -> dict[str, str]:
    said = " ".join(cells[0] for cells in _rows(rows, 1) if cells)
    patterns = {
        "smi": r"NVIDIA-SMI\s+(\d+(?:\.\d+)*)",
        "driver": r"(?:Driver|KMD)\s+Version:\s*(\d+(?:\.\d+)*)",
        "cuda": r"CUDA\s+(?:UMD\s+)?Version:\s*(\d+(?:\.\d+)*)",
    }
    return {name: found[1] for name, pattern in patterns.items() if (found := re.search(pattern, said))}


def _read_gpus(table: _Table, lines: list[str]) -> None:
    own = takewhile(lambda line: "rocesses:" not in line, lines)  # where the rules are lost, processes follow
    for cells in _rows(own, GPU_COLUMNS):
        named = tuple(frozenset(name for name, label in _LABELS if label.search(cell)) for cell in cells)
        if any(named):
            table.header += (named,)
            continue
        if re.match(r"\d{1,3}\\?\.?\s", cells[0]) and (table.header or _BUS_ID.search("|".join(cells))):
            table.gpus.append({})
            table.rows_of_gpu = 0
        elif _SECOND_ROW.search("|".join(cells)) and (not table.gpus or "memory_row" in table.gpus[-1]):
            table.gpus.append({})  # grep left this row alone
            table.rows_of_gpu = 1
        elif not table.gpus:
            continue
        header = table.header or _DEFAULT_HEADER
        if table.rows_of_gpu < len(header):
            for cell, names in zip(cells, header[table.rows_of_gpu], strict=False):
                _read_cell(table.gpus[-1], names, cell)
        table.rows_of_gpu += 1


def _read_cell(gpu: dict[str, Any], names: frozenset[str], cell: str) -> None:
    name = next((name for name in _READERS if name in names), None)
    if name is not None:
        gpu.update(_READERS[name](cell))
        if "ERR!" in cell:
            gpu["failed"] = [*gpu.get("failed", ()), name]


def _name(cell: str) -> dict[str, Any]:
    found = re.match(r"(\d{1,4})\\?\.?\s+(.*)", cell)  # a web page may have escaped the dot of old ones
    return {"index": int(found[1]), "name": smi_fields.words(found[2])} if found else {}


def _name_and_persistence(cell: str) -> dict[str, Any]:
    name, _, last = cell.rpartition(" ")
    if smi_fields.driver_model(last):  # a Windows table without its head
        return _name_and_driver_model(cell)
    return {**_name(name), "persistence_mode": smi_fields.persistence(last) or "unknown"}


def _name_and_driver_model(cell: str) -> dict[str, Any]:
    name, _, last = cell.rpartition(" ")
    return {**_name(name), "persistence_mode": "n/a", "driver_model": smi_fields.driver_model(last)}


def _bus(cell: str) -> dict[str, Any]:
    found = _BUS_ID.search(cell)
    return {"pci_bus_id": found[1], "display_active": smi_fields.switch(cell[found.end() :])} if found else {}


def _state_and_power(cell: str) -> dict[str, Any]:
    """`30%   47C    P8    36W / 350W`: told apart by their form, for each may read N/A or ERR!."""
    state: dict[str, Any] = {}
    if temperature := re.search(r"\b(\d{1,4}) ?C\b", cell):
        state["temperature_c"] = float(temperature[1])
    if performance := re.search(r"\bP\d+\b", cell):
        state["pstate"] = smi_fields.pstate(performance[0])
    if power := re.search(r"(\S+)\s*/\s*(\S+)$", cell):
        state["power_w"], state["power_limit_w"] = map(smi_fields.number, power.groups())
    return state


def _memory(cell: str) -> dict[str, Any]:
    found = re.search(r"\b(\d{1,9}) ?Mi?B\s*/\s*(\d{1,9}) ?Mi?B", cell)
    sizes = {"memory_used_mib": float(found[1]), "memory_total_mib": float(found[2])} if found else {}
    return {"memory_row": True, **sizes}


def _utilization(cell: str) -> dict[str, Any]:
    found = re.match(r"(\d+ ?%|\[?N/A\]?|ERR!)\s*(.*)", cell)
    used, compute = found.groups() if found else ("", "")
    return {"utilization_pct": smi_fields.number(used), "compute_mode": smi_fields.compute_mode(compute)}


# What a cell is read by: the first of these that its header names.
_READERS: dict[str, Callable[[str], dict[str, Any]]] = {
    "persistence": _name_and_persistence,
    "driver_model": _name_and_driver_model,
    "index": _name,
    "bus": _bus,
    "ecc": lambda cell: {"ecc_mode": "enabled" if cell.isdigit() else smi_fields.on_off(cell)},
    "power": _state_and_power,
    "memory": _memory,
    "utilization": _utilization,
    "mig": lambda cell: {"mig_mode": _mig_mode(cell)},
}


def _mig_mode(cell: str) -> str | None:
    """A star says that the other mode comes with the next reset."""
    mode = smi_fields.on_off(cell.rstrip("*"))
    if mode is None or not cell.endswith("*"):
        return mode
    return smi_fields.mode_with_pending(mode, "enabled" if mode == "disabled" else "disabled")


def _read_mig_devices(table: _Table, lines: list[str]) -> None:
    for cells in _rows(lines, MIG_COLUMNS):
        found = re.match(r"\s*(\d{1,4})(?:\s+(?:\d+|N/A)){2,3}\s*$", cells[0])  # GPU GI CI, MIG device
        if found and table.mig_devices is not None:
            table.mig_devices.append(int(found[1]))


_PROCESS = re.compile(
    r"\s*(?P<gpu>\d{1,4})\s+(?P<pid>\d+|N/A)\s+(?:(?P<kind>M?\+?C\+G|M\+C|[CGM])\s+)?"
    r"(?P<name>.*?)\s*(?P<memory>\d+ ?Mi?B|N/A)?\s*$"
)
_INSTANCES = re.compile(r"(\s*\d+)\s+(?:\d+|N/A)\s+(?:\d+|N/A)(?=\s+(?:\d+|N/A)\s)")


def _read_processes(table: _Table, lines: list[str]) -> None:
    for cells in _rows(lines, 1):
        row = cells[0] if cells else ""
        if "ot Supported" in row:
            table.processes = None
            return
        found = _PROCESS.match(_INSTANCES.sub(r"\1", row, count=1) if table.with_instances else row)
        if found and table.processes is not None:
            process = GpuProcess(
                pid=smi_fields.whole(found["pid"]),
                name=smi_fields.words(found["name"]),
                kind=found["kind"],
                memory_mib=smi_fields.number(found["memory"] or ""),
            )
            table.processes.append((int(found["gpu"]), process))


def _state(table: _Table, source: str, notes: list[str]) -> MachineState:
    gpus = tuple(_gpu(table, gpu) for gpu in table.gpus)
    notes += [
        f"{failed} of GPU {gpu.get('index', '?')} read ERR! at that moment"
        for gpu in table.gpus
        for failed in gpu.get("failed", ())
    ]
    if table.header and not any(names & {"persistence", "driver_model"} for row in table.header for names in row):
        notes.append("a table this old tells neither persistence mode nor performance state")
    if table.processes is None:
        notes.append("the table does not tell which processes hold the GPU: `nvidia-smi -q -d PIDS` does")
    elif not table.processes_ended:
        notes.append("the table is cut off within its processes: `nvidia-smi -q -d PIDS` tells them all")
    if any(gpu.name and gpu.name.endswith("...") for gpu in gpus):
        notes.append("the table cuts names: `nvidia-smi -L` prints them in full")
    smi, driver = table.versions.get("smi"), table.versions.get("driver")
    return MachineState(
        source=source,
        platform=smi_fields.platform(gpus, smi_version=smi, driver=driver),
        driver_version=driver,
        cuda_version=table.versions.get("cuda"),
        nvidia_smi_version=smi,
        gpus=gpus,
        notes=tuple(notes),
    )


def _gpu(table: _Table, values: dict[str, Any]) -> GpuState:
    index = values.get("index")
    known = {name: value for name, value in values.items() if name not in {"memory_row", "failed"}}
    known["trouble"] = smi_fields.trouble(["ERR!"] if "power" in values.get("failed", ()) else [], values)
    if table.processes is not None and (table.processes or table.processes_ended):
        known["processes"] = tuple(process for gpu, process in table.processes if gpu == index)
    if table.mig_devices is not None:
        none = 0 if table.mig_devices_ended else None
        known["mig_devices"] = None if index is None else table.mig_devices.count(index) or none
    return GpuState(**known)
