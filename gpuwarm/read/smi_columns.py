"""What a column of an nvidia-smi log holds: by its header, by the query that made it, or by its values."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

from gpuwarm.errors import InputError

LONGEST_NAME = 40  # characters of a column's name in a script of somebody's own; a sentence has more
CELLS_MAX = 600  # of a header; nvidia-smi knows 240 fields
KNOWN_MIN = 2  # fields that a header must name; prose with commas in it names none

# Units to those of nvidia-smi; what is not here counts 1.
SCALES = {
    "ghz": 1000.0,
    "khz": 1e-3,
    "hz": 1e-6,
    "mw": 1e-3,
    "kw": 1000.0,
    "gib": 1024.0,
    "gb": 1000.0,
    "kib": 1 / 1024,
}

_ALIASES = {
    "clocks.current.sm": "clocks.sm",
    "clocks.current.memory": "clocks.mem",
    "clocks.current.graphics": "clocks.gr",
    "clocks.current.video": "clocks.video",
    "gpu_name": "name",
    "gpu_uuid": "uuid",
    "gpu_bus_id": "pci.bus_id",
    "gpu_id": "index",
    "clocks_throttle_reasons.active": "clocks_event_reasons.active",
}
_QUERY_FIELD = re.compile(r"[a-z][a-zA-Z0-9]*(?:[._][a-zA-Z0-9]+)*")
# What nvidia-smi calls its fields, as far as anything here makes use of them.
_FIELDS = frozenset(
    re.findall(
        r"\S+",
        """
        timestamp driver_version kmd_version count name serial uuid pci.bus_id index pstate persistence_mode
        compute_mode compute_cap display_active driver_model.current mig.mode.current mig.mode.pending ecc.mode.current
        ecc.mode.pending utilization.gpu utilization.memory memory.total memory.used memory.free temperature.gpu
        temperature.memory temperature.gpu.tlimit power.draw power.draw.average power.draw.instant power.limit
        enforced.power.limit power.default_limit power.max_limit power.min_limit power.management clocks.sm clocks.mem
        clocks.gr clocks.video clocks.max.sm clocks.max.memory clocks.max.graphics clocks.max.mem clocks.max.gr
        clocks.applications.graphics clocks.applications.memory clocks.applications.gr clocks.applications.mem
        pcie.link.gen.current pcie.link.gen.gpucurrent pcie.link.gen.max pcie.link.width.current pcie.link.width.max
        clocks_event_reasons.active clocks_event_reasons.supported fan.speed vbios_version utilization.encoder
        utilization.decoder
        """,
    )
)
_REASON_FIELD = re.compile(r"clocks_(?:event|throttle)_reasons(?:_counters)?\.\w+")


@dataclass(frozen=True)
class Column:
    """A field of nvidia-smi by its query name ("" where unknown), and the unit its header gives."""

    field: str
    unit: str = ""

    @property
    def scale(self) -> float:
        """What a value without a unit of its own is multiplied by."""
        return SCALES.get(self.unit.lower(), 1.0)


@lru_cache(maxsize=4096)  # many a line is looked at for a header, and most of their cells are alike
def named(cell: str) -> Column:
    """The column under a header cell: nvidia-smi's own, or what somebody's script wrote instead."""
    bare = cell.strip().strip("\"'").strip()
    found = re.fullmatch(r"([^\[(]*?)\s*[\[(]([^\])]*)[\])]", bare)
    name, unit = (found[1], found[2]) if found else (bare, "")
    name = _ALIASES.get(name, name)
    if name in _FIELDS or _REASON_FIELD.fullmatch(name):
        return Column(name.replace("throttle", "event"), unit)
    if _QUERY_FIELD.fullmatch(name) and "." in name:
        return Column("", unit)  # a field of nvidia-smi that nothing here reads
    if len(bare) > LONGEST_NAME or "|" in bare:
        return Column("")
    return Column(_in_words(name), unit or _unit_in(name))


def _unit_in(name: str) -> str:
    found = re.search(r"(?:^|[_ ])(mhz|ghz|mw|w|mib|gib|mb|gb|ms|s|sec|seconds)$", name.lower())
    return found[1] if found else ""


# (all of these words, none of these) -> field; the first that fits. A word counts where it begins one of the name's.
_WORDS: tuple[tuple[tuple[str, ...], tuple[str, ...], str], ...] = (
    (("timestamp",), (), "timestamp"),
    (("time",), ("run", "up"), "timestamp"),
    (("date",), (), "timestamp"),
    (("elapsed",), (), "timestamp"),
    (("uuid",), (), "uuid"),
    (("bus",), ("width",), "pci.bus_id"),
    (("pstate",), (), "pstate"),
    (("perf", "state"), (), "pstate"),
    (("persistence",), (), "persistence_mode"),
    (("temp", "mem"), (), "temperature.memory"),
    (("temp", "hbm"), (), "temperature.memory"),
    (("temp",), ("limit", "max", "fan", "cpu"), "temperature.gpu"),
    (("power", "limit"), (), "power.limit"),
    (("power", "cap"), (), "power.limit"),
    (("power", "inst"), (), "power.draw.instant"),
    (("power", "av"), (), "power.draw.average"),
    (("power",), ("state", "max", "min", "cpu"), "power.draw"),
    (("clock", "mem"), ("max", "util"), "clocks.mem"),
    (("clk", "mem"), ("max", "util"), "clocks.mem"),
    (("freq", "mem"), ("max", "util"), "clocks.mem"),
    (("mclk",), (), "clocks.mem"),
    (("clock", "sm"), ("max",), "clocks.sm"),
    (("clk", "sm"), ("max",), "clocks.sm"),
    (("pclk",), (), "clocks.sm"),
    (("clock",), ("max", "mem", "video", "cpu", "util"), "clocks.gr"),
    (("clk",), ("max", "mem", "video", "cpu", "util"), "clocks.gr"),
    (("freq",), ("max", "mem", "video", "cpu", "util"), "clocks.gr"),
    (("mem", "util"), ("used", "total", "free"), "utilization.memory"),
    (("util",), ("mem", "cpu", "enc", "dec"), "utilization.gpu"),
    (("gpu", "usage"), ("mem",), "utilization.gpu"),
    (("mem", "used"), (), "memory.used"),
    (("mem", "total"), (), "memory.total"),
    (("gpu", "name"), (), "name"),
    (("gpu", "index"), (), "index"),
    (("gpu", "id"), (), "index"),
)


def _in_words(name: str) -> str:
    words = re.findall(r"[a-z]+", re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower())

    def has(stem: str) -> bool:
        return any(word.startswith(stem) for word in words)

    if words in (["gpu"], ["index"], ["idx"]):
        return "index"
    if words == ["name"]:
        return "name"
    return next((f for needed, barred, f in _WORDS if all(map(has, needed)) and not any(map(has, barred))), "")


_FIRST = re.compile(
    r"((?:[\d :-]{10,30},\d{3})?[^,;\t]*?[ >\"]|[^\w,;\t]+)([a-z][\w.]*)(?=(?: \[\S+\])?\s*(?:[,;\t]|$))"
)


def margin(line: str) -> str:
    """What stands in a header before the name of its first field."""
    first = _FIRST.match(line)
    return (
        first[1] if first and (_ALIASES.get(first[2], first[2]) in _FIELDS or _REASON_FIELD.fullmatch(first[2])) else ""
    )


def is_header(cells: Sequence[str]) -> bool:
    """Whether these cells name columns: enough of them are known and none is a value.

    A word alone is none, a field with its unit, its dots or underscores is.
    """
    if len(cells) > CELLS_MAX or any(re.fullmatch(r"[-+\d.,:/ ]+|.*[{}=].*|.*[.?!]", cell.strip()) for cell in cells):
        return False
    if len(cells) == 1:
        if cells[0] in _FIELDS and re.search(r"[._]|pstate", cells[0]):
            return True
        return re.match(r"[\w.]+[.\w]+ \[[A-Za-z%/]+\]$|\w+\.\w+", cells[0]) is not None and bool(named(cells[0]).field)
    return len({field for cell in cells if (field := named(cell).field)}) >= KNOWN_MIN


def given(names: str) -> tuple[Column, ...]:
    """The columns that --columns, or the --query-gpu of a log without header, names.

    Raises:
        InputError: none of them is known.
    """
    columns = tuple(named(name) for name in names.split(","))
    if not any(column.field for column in columns):
        raise InputError(
            f"--columns {names} names no field of nvidia-smi: give those of its --query-gpu, "
            "such as timestamp,pstate,clocks.sm,power.draw,utilization.gpu"
        )
    return columns


def by_values(rows: Sequence[Sequence[str]]) -> tuple[tuple[Column, ...], str | None]:
    """The columns of a log without header by the units and the shape of its values, and what is doubtful about that.

    A unit tells the quantity; two columns of one quantity are told apart only where nvidia-smi's users always order
    them (utilisation: GPU, memory) or where it does not matter (clocks that are equal in every row).
    """
    fields = [_by_shape([row[at] for row in rows]) for at in range(len(rows[0]))]
    doubt = None
    clocks = [at for at, field in enumerate(fields) if field == "clocks.sm"]
    if len(clocks) > 1:
        same = all(row[one].strip() == row[other].strip() for row in rows for one, other in pairwise(clocks))
        for at in clocks[1:] if same else clocks:
            fields[at] = ""
        if not same:
            doubt = "which of its clocks is which cannot be told from the values"
    _keep_first(fields, "utilization.gpu", then="utilization.memory")
    _keep_first(fields, "memory.used", then="")
    _keep_first(fields, "power.draw", then="")
    _keep_first(fields, "temperature.gpu", then="temperature.memory")
    return tuple(Column(field) for field in fields), doubt


def _keep_first(fields: list[str], field: str, *, then: str) -> None:
    places = [at for at, found in enumerate(fields) if found == field]
    for count, at in enumerate(places[1:]):
        fields[at] = then if count == 0 else ""


_SHAPES = (
    (
        r"(?:(?:\d{4}[-/.]\d\d?[-/.]\d\d?|\d\d[-/.]\d\d[-/.]\d{4})[ T])?\d\d?:\d\d:\d\d.*|1\d{9}(?:\.\d+)?|1\d{12}",
        "timestamp",
    ),
    (r"P\d{1,2}", "pstate"),
    (r"[\d.]+ ?[MG]Hz", "clocks.sm"),
    (r"[\d.]+ ?m?W", "power.draw"),
    (r"[\d.]+ ?%", "utilization.gpu"),
    (r"[\d.]+ ?[MG]i?B", "memory.used"),
    (r"0x[0-9a-fA-F]{16}", "clocks_event_reasons.active"),
    (r"GPU-[0-9a-f-]+", "uuid"),
    (r"[0-9A-Fa-f]{8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.\d", "pci.bus_id"),
    (r"(?:NVIDIA|Tesla|GeForce|Quadro) .*", "name"),
)
_TEMPERATURES_C = (15, 110)  # of a GPU that runs; an index is lower, a bare clock or power mostly higher


def _by_shape(values: Sequence[str]) -> str:
    told = [value.strip() for value in values if not re.fullmatch(r"\s*\[?N/A\]?\s*", value)]
    if not told:
        return ""
    for shape, field in _SHAPES:
        if all(re.fullmatch(shape, value) for value in told):
            return field
    if not all(re.fullmatch(r"\d{1,3}", value) for value in told):
        return ""
    numbers = [int(value) for value in told]
    if _TEMPERATURES_C[0] <= min(numbers) and max(numbers) <= _TEMPERATURES_C[1]:
        return "temperature.gpu"
    return "index" if numbers == sorted(set(numbers)) or _cycles(numbers) else ""


def _cycles(numbers: list[int]) -> bool:
    """0 1 2 3 0 1 2 3 ..., as GPUs are listed."""
    count = max(numbers) + 1
    return numbers == [(numbers[0] + at) % count for at in range(len(numbers))] and len(numbers) > 1
