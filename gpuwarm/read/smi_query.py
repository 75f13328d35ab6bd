"""`nvidia-smi -q`, as text or XML, whole or part -> MachineState.

Both are the same tree under names that differ little. It is read into leaves that know the sections they lie in, so
that neither the order of sections nor a key that several sections share matters.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any
from xml.parsers import expat

from gpuwarm.errors import InputError
from gpuwarm.machine import GpuProcess, GpuState, MachineState
from gpuwarm.read import smi_fields
from gpuwarm.read.text import without_margin

DEEPEST = 32  # levels; nvidia-smi nests 7

_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])$")
_OWN_KEYS = frozenset(  # that nobody else writes: one is enough
    (
        "persistence mode",
        "performance state",
        "sw power cap",
        "gpu current temp",
        "gpu t.limit temp",
        "average power draw",
        "instantaneous power draw",
        "current power limit",
    )
)
_GPU_KEYS = _OWN_KEYS | {"product name", "gpu uuid", "compute mode", "power draw", "graphics", "sm"}
_KNOWN_KEYS = _GPU_KEYS | {"driver version", "attached gpus", "cuda version"}
KNOWN_KEYS_MIN = 2  # of them make text a part of -q
_REASONS = ("clocks event reasons", "clocks throttle reasons")
_COUNTERS = "clocks event reasons counters"


@dataclass
class _Gpu:
    """One GPU's leaves: what a section's key says; section "" holds every key under its own name."""

    bus_id: str | None
    leaves: dict[tuple[str, str], str] = field(default_factory=dict)
    processes: list[dict[str, str]] | None = None
    mig_devices: int = 0

    def add(self, path: tuple[str, ...], key: str, value: str) -> None:
        """Keep a leaf; what lies in a MIG device is not the GPU's."""
        if any(section.startswith("mig device") for section in path):
            return
        self.leaves.setdefault(("", key), value)
        for section in path:
            self.leaves[section, key] = value


@dataclass
class _Log:
    """What is common to the GPUs, and the GPUs."""

    head: dict[str, str] = field(default_factory=dict)
    before: list[tuple[tuple[str, ...], str, str]] = field(default_factory=list)  # leaves above the first GPU
    gpus: list[_Gpu] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def recognise(lines: list[str]) -> bool:
    """Whether there is `-q` text in it, or a part of it."""
    if any("NVSMI LOG" in line for line in lines):
        return True
    keys = {leaf[0].lower() for line in lines if (leaf := _leaf(line))}
    return bool(keys & _OWN_KEYS) or len(keys & _KNOWN_KEYS) >= KNOWN_KEYS_MIN


def has_gpus(lines: list[str]) -> bool:
    """Whether there is an answer of `-q` in it, with a GPU."""
    log = next((number for number, line in enumerate(lines) if "NVSMI LOG" in line), None)
    return log is not None and any(_GPU.search(line) for line in lines[log:])


def _leaf(line: str) -> tuple[str, str] | None:
    """Key and value around the first colon with a blank behind it; None where a line is a section's name."""
    at = line.find(":")
    while 0 <= at < len(line) - 1 and line[at + 1] != " ":
        at = line.find(":", at + 1)
    return None if at < 0 else (line[:at].strip(), line[at + 1 :].strip())


def _margin(line: str) -> str | None:
    """What stands before a line that begins at the left edge."""
    if "===NVSMI LOG" in line:
        return line[: line.index("NVSMI")].rstrip("=")
    return line[: line.rindex("GPU ")] if _GPU.search(line) else None


def machine_state(lines: list[str], source: str) -> MachineState:
    """The machine of `nvidia-smi -q` text; of the last one where several follow each other.

    Raises:
        InputError: there is no GPU in it.
    """
    lines = without_margin(lines, (margin for line in lines if (margin := _margin(line)) is not None))
    begins = [number for number, line in enumerate(lines) if "NVSMI LOG" in line]
    log = _read_text(lines[begins[-1] :] if begins else lines)
    if len(begins) > 1:
        log.notes.append(f"{source} holds {len(begins)} answers; the last one is read")
    _refuse_too_many(log, source)
    if not log.gpus:
        raise InputError(f"{source} has the head of `nvidia-smi -q` and no GPU below it; give all that it prints")
    return _state(log, source)


def _refuse_too_many(log: _Log, source: str) -> None:
    if len(log.gpus) > smi_fields.GPUS_MAX:
        raise InputError(f"{source} has more than {smi_fields.GPUS_MAX} GPUs; give what `nvidia-smi -q` prints once")


def _read_text(lines: list[str]) -> _Log:
    log = _Log()
    indented = _keeps_indentation(lines)
    path: list[tuple[int, str]] = []
    for line in lines:
        said = line.strip()
        leaf = _leaf(said)
        gpu = _GPU.match(said)
        if gpu:
            log.gpus.append(_Gpu(gpu[1]))
            path = []
            continue
        if not said:
            continue
        indent = len(line) - len(line.lstrip())
        path = [(at, section) for at, section in path if at < indent][:DEEPEST] if indented else path[-1:]
        if leaf:
            _tell(log, tuple(section for _, section in path), leaf[0].lower(), leaf[1])
        elif log.gpus:
            _open(log.gpus[-1], said.lower())
        if indented or not leaf:
            path.append((indent, (leaf[0] if leaf else said).lower()))
    return log


def _tell(log: _Log, path: tuple[str, ...], key: str, value: str) -> None:
    """Give a leaf to its GPU; in a part without lines that name GPUs, the next one begins where a key recurs."""
    if not log.gpus:
        log.head[key] = value
        log.before.append((path, key, value))
        if key in _GPU_KEYS:
            log.gpus.append(_Gpu(None))
            for leaf in log.before[:-1]:
                log.gpus[0].add(*leaf)
    elif log.gpus[-1].bus_id is None and key in _OWN_KEYS and (path[-1] if path else "", key) in log.gpus[-1].leaves:
        log.gpus.append(_Gpu(None))
    if log.gpus:
        _keep(log.gpus[-1], path, key, value)


def _open(gpu: _Gpu, section: str) -> None:
    if section.startswith("mig device"):
        gpu.mig_devices += 1
    elif section == "processes":
        gpu.processes = []


def _keep(gpu: _Gpu, path: tuple[str, ...], key: str, value: str) -> None:
    if key == "processes":
        gpu.processes = [] if value.lower() == "none" else None
    elif key == "process id" and gpu.processes is not None:
        gpu.processes.append({"pid": value})
    elif key in {"type", "name", "used gpu memory"} and gpu.processes and "processes" in path:
        gpu.processes[-1].setdefault(key, value)
    else:
        gpu.add(path, key, value)


def _keeps_indentation(lines: list[str]) -> bool:
    """Whether what follows a section's name is indented under it; a paste may have lost that."""
    sections, deeper = 0, 0
    for line, below in pairwise([line for line in lines if line.strip()]):
        if not _leaf(line.strip()) and not _GPU.match(line.strip()) and _leaf(below.strip()):
            sections += 1
            deeper += len(below) - len(below.lstrip()) > len(line) - len(line.lstrip())
    return 2 * deeper >= sections


def xml_machine_state(text: str, source: str) -> MachineState:
    """The machine of `nvidia-smi -q -x`; of the last one where several follow each other.

    Raises:
        InputError: it is not nvidia-smi's XML, or declares entities (nvidia-smi never does).
    """
    if "<!ENTITY" in text:
        raise InputError(f"{source} declares XML entities, nvidia-smi never does; give what `nvidia-smi -q -x` prints")
    if "<nvidia_smi_log" not in text:  # one GPU was cut out of it
        text = f"<nvidia_smi_log>{text[text.index('<gpu id=') :]}"
    lines = text.split("\n")
    margins = (line[: line.index("<nvidia_smi_log")] for line in lines if "<nvidia_smi_log" in line)
    text = "\n".join(without_margin(lines, margins))
    logs = []
    for document in text.split("<nvidia_smi_log")[1:]:
        body, end, _ = document.partition("</nvidia_smi_log>")
        reader = _XmlReader(source)
        reader.read("<nvidia_smi_log" + body + end)
        _refuse_too_many(reader.log, source)
        if reader.log.gpus:
            logs.append(reader.log)
    if not logs:
        raise InputError(f"{source} is XML without a GPU of nvidia-smi; give all that `nvidia-smi -q -x` prints")
    if len(logs) > 1:
        logs[-1].notes.append(f"{source} holds {len(logs)} answers; the last one is read")
    return _state(logs[-1], source)


class _XmlReader:
    """Collects a document's leaves, however far it goes."""

    def __init__(self, source: str) -> None:
        """Begin with an empty log."""
        self.log = _Log()
        self._source = source
        self._path: list[str] = []
        self._text: list[str] = []
        self._is_leaf = False

    def read(self, document: str) -> None:
        """Read to the document's end, or to where it is cut or damaged."""
        parser = expat.ParserCreate(encoding="utf-8")
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text.append
        try:
            parser.Parse(document.encode(), True)  # noqa: FBT003 -- expat takes no keyword: this is the last piece
        except expat.ExpatError as error:
            self.log.notes.append(f"the XML ends or is damaged at line {error.lineno}; what lies beyond is not read")

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        name = tag.replace("_", " ")
        if len(self._path) > DEEPEST:
            raise InputError(f"{self._source} nests deeper than nvidia-smi does; give what `nvidia-smi -q -x` prints")
        if name == "gpu" and len(self._path) == 1:
            self.log.gpus.append(_Gpu(attributes.get("id")))
        elif self.log.gpus:
            gpu = self.log.gpus[-1]
            if name == "mig device":
                gpu.mig_devices += 1
            elif name == "process info":
                gpu.processes = [*(gpu.processes or []), {}]
        self._path.append(name)
        self._text.clear()
        self._is_leaf = True

    def _end(self, tag: str) -> None:
        self._path.pop()
        name, value = tag.replace("_", " "), " ".join("".join(self._text).split())
        self._text.clear()
        if self._is_leaf and not self.log.gpus:
            self.log.head[name] = value
        elif self._is_leaf:
            gpu = self.log.gpus[-1]
            if name == "processes" and value.lower() in {"", "none"}:
                gpu.processes = []
            elif self._path[-1:] == ["process info"] and gpu.processes:
                gpu.processes[-1][_PROCESS_TAGS.get(name, name)] = value
            else:
                gpu.add(tuple(self._path[2:]), name, value)
        self._is_leaf = False


_PROCESS_TAGS = {"process name": "name", "used memory": "used gpu memory"}


def _state(log: _Log, source: str) -> MachineState:
    attached = smi_fields.whole(log.head.get("attached gpus", ""))
    all_listed = attached is None or attached == len(log.gpus) or len(log.gpus) > 1
    gpus = tuple(_gpu(gpu, index if all_listed else None) for index, gpu in enumerate(log.gpus))
    driver = smi_fields.version(log.head.get("kmd version") or log.head.get("driver version", ""))
    notes = [*log.notes, *(note for gpu in gpus if (note := smi_fields.power_note(gpu)))]
    if attached is not None and attached > len(gpus):
        notes.append(f"{attached} GPUs are attached, {len(gpus)} of them told: `nvidia-smi -q` without -i tells all")
    return MachineState(
        source=source,
        platform=smi_fields.platform(gpus, smi_version=None, driver=driver),
        driver_version=driver,
        cuda_version=smi_fields.version(log.head.get("cuda umd version") or log.head.get("cuda version", "")),
        gpus=gpus,
        notes=tuple(notes),
    )


def _gpu(gpu: _Gpu, index: int | None) -> GpuState:
    def candidates(field: smi_fields.Field) -> Iterator[str]:
        for place in field.log:
            section, _, key = place.rpartition("/")
            if (section, key) in gpu.leaves:
                yield gpu.leaves[section, key]

    def mode(section: str, suffix: str, convert: Any) -> str | None:
        current, pending = (
            convert(gpu.leaves.get((section, when + suffix)) or gpu.leaves.get((section, when), ""))
            for when in ("current", "pending")
        )
        return smi_fields.mode_with_pending(current, pending)

    told_all = ("", "accounting mode") in gpu.leaves  # what follows MIG devices in every version
    values = smi_fields.gpu_fields(candidates)
    mig_mode = mode("mig mode", " mig", smi_fields.on_off)
    reasons, grepped = (
        [(key, value) for (section, key), value in gpu.leaves.items() if section in sections]
        for sections in (_REASONS, ("",))
    )
    counters = [(key, value) for (section, key), value in gpu.leaves.items() if section == _COUNTERS]
    return GpuState(
        **{
            "pci_bus_id": gpu.bus_id,
            **values,
            "index": index,
            "mig_mode": mig_mode,
            "mig_devices": None if mig_mode is None else gpu.mig_devices or (0 if told_all else None),
            "ecc_mode": mode("ecc mode", " ecc", smi_fields.on_off),
            "event_reasons": smi_fields.active_reasons(reasons or grepped),
            "event_reason_counters_us": dict(smi_fields.reason_counters(counters)),
            "processes": _processes(gpu.processes),
        }
    )


def _processes(read: list[dict[str, str]] | None) -> tuple[GpuProcess, ...] | None:
    if read is None:
        return None
    return tuple(
        GpuProcess(
            pid=smi_fields.whole(process.get("pid", "")),
            name=smi_fields.words(process.get("name", "")),
            kind=smi_fields.words(process.get("type", "")),
            memory_mib=smi_fields.number(process.get("used gpu memory", "")),
        )
        for process in read
    )
