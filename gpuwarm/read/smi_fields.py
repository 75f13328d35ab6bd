"""The fields of nvidia-smi under the names of each of its outputs, and how it spells values and missing ones."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwarm.machine import EVENT_REASONS, GpuState, PersistenceMode, Platform, event_reason_names

GPUS_MAX = 256  # of one machine; a file with more holds something else

_NUMBER = re.compile(r"\s*([-+]?\d{1,15}(?:\.\d{1,9})?)")
_VERSION = re.compile(r"\s*v?(\d[\d.]*\d)")
_MISSING = re.compile(
    r"|n/?a|none|not (?:supported|available|found)(?: in .*)?|unknown(?: error)?|err|insufficient permissions|"
    r"gpu requires reset|gpu is lost|requested functionality has been deprecated|function not found",
    re.IGNORECASE,
)


def number(text: str) -> float | None:
    """The number a value begins with, in the unit nvidia-smi gives it; None for every spelling of "missing"."""
    found = _NUMBER.match(text)
    return float(found[1]) if found else None


def whole(text: str) -> int | None:
    """As `number`, for what is counted: a width of "16x", "0" or "P8" without its letter."""
    value = number(text)
    return None if value is None else int(value)


def words(text: str) -> str | None:
    """A value in words; None where the words say that there is none."""
    bare = text.strip(" \t\n[]")
    return None if _MISSING.fullmatch(bare.strip("-!.")) else bare


def version(text: str) -> str | None:
    """A version number, without what nvidia-smi writes behind it."""
    found = _VERSION.match(text)
    return found[1] if found else None


def pstate(text: str) -> int | None:
    """P0 to P15; 32, NVML's "unknown", is missing."""
    found = re.match(r"\s*P(\d{1,2})\b", text)
    return int(found[1]) if found and int(found[1]) <= 15 else None  # noqa: PLR2004 -- nvml.h: NVML_PSTATE_15


def persistence(text: str) -> PersistenceMode | None:
    """As printed; "n/a" where the source says so, None where it failed to read it."""
    spelled = text.strip().strip("[]").lower()
    if spelled in {"on", "enabled"}:
        return "on"
    if spelled in {"off", "disabled"}:
        return "off"
    return "n/a" if spelled in {"n/a", "not supported"} else None


def switch(text: str) -> bool | None:
    """Enabled, On, Active, Yes and their opposites."""
    spelled = text.strip().lower()
    if spelled in {"enabled", "on", "active", "yes"}:
        return True
    return False if spelled in {"disabled", "off", "not active", "no"} else None


def on_off(text: str) -> str | None:
    """A mode as "enabled" or "disabled"."""
    value = switch(text)
    return None if value is None else ("enabled" if value else "disabled")


def mode_with_pending(current: str | None, pending: str | None) -> str | None:
    """A mode that changes with the next reset says what it changes to."""
    return f"{current} (pending {pending})" if current and pending and current != pending else current


_COMPUTE_MODES = {
    "e. process": "Exclusive_Process",
    "e.process": "Exclusive_Process",
    "e. thread": "Exclusive_Thread",
    "e.thread": "Exclusive_Thread",
}


def compute_mode(text: str) -> str | None:
    """The long name, as -q has it; the table abbreviates."""
    spelled = words(text)
    return None if spelled is None else _COMPUTE_MODES.get(spelled.lower(), spelled)


def driver_model(text: str) -> str | None:
    """WDDM, TCC or MCDM."""
    found = re.match(r"\s*(WDDM|TCC|MCDM)\b", text, re.IGNORECASE)
    return found[1].upper() if found else None


@dataclass(frozen=True)
class Field:
    """Where one field of GpuState is found; the first place that has a value wins."""

    convert: Callable[[str], object]
    log: tuple[str, ...]  # in -q and -q -x: "section/key" or "key", underscores as blanks
    query: tuple[str, ...] = ()  # in --query-gpu


FIELDS: Mapping[str, Field] = {
    "index": Field(whole, (), ("index", "gpu_id")),
    "name": Field(words, ("product name",), ("name", "gpu_name")),
    "uuid": Field(words, ("gpu uuid", "uuid"), ("uuid", "gpu_uuid")),
    "pci_bus_id": Field(words, ("pci/bus id", "pci/pci bus id"), ("pci.bus_id", "gpu_bus_id")),
    "persistence_mode": Field(persistence, ("persistence mode",), ("persistence_mode",)),
    "pstate": Field(pstate, ("performance state",), ("pstate",)),
    "sm_clock_mhz": Field(
        number,
        ("clocks/sm", "clocks/sm clock", "clocks/graphics", "clocks/graphics clock"),
        ("clocks.current.sm", "clocks.sm", "clocks.current.graphics", "clocks.gr"),
    ),
    "sm_clock_max_mhz": Field(
        number,
        ("max clocks/sm", "max clocks/sm clock", "max clocks/graphics", "max clocks/graphics clock"),
        ("clocks.max.sm", "clocks.max.graphics", "clocks.max.gr"),
    ),
    "mem_clock_mhz": Field(number, ("clocks/memory", "clocks/mem clock"), ("clocks.current.memory", "clocks.mem")),
    "mem_clock_max_mhz": Field(
        number, ("max clocks/memory", "max clocks/mem clock"), ("clocks.max.memory", "clocks.max.mem")
    ),
    "power_w": Field(
        number,
        (
            "gpu power readings/power draw",
            "power readings/power draw",
            "gpu power readings/average power draw",
            "gpu power readings/instantaneous power draw",
            "gpu power readings/instant power draw",
        ),
        ("power.draw", "power.draw.average", "power.draw.instant"),
    ),
    "power_instant_w": Field(
        number,
        ("gpu power readings/instantaneous power draw", "gpu power readings/instant power draw"),
        ("power.draw.instant",),
    ),
    "power_limit_w": Field(
        number,
        (
            "power readings/enforced power limit",
            "gpu ceiling power limit/current power limit",
            "gpu power readings/current power limit",
            "power readings/power limit",
        ),
        ("enforced.power.limit", "power.limit"),
    ),
    "power_limit_default_w": Field(
        number,
        (
            "gpu ceiling power limit/default power limit",
            "gpu power readings/default power limit",
            "power readings/default power limit",
        ),
        ("power.default_limit",),
    ),
    "temperature_c": Field(
        number, ("temperature/gpu current temp", "temperature/gpu temp", "temperature/gpu"), ("temperature.gpu",)
    ),
    "temperature_limit_c": Field(number, ("temperature/gpu slowdown temp", "temperature/gpu temp slow threshold")),
    "utilization_pct": Field(number, ("utilization/gpu", "utilization/gpu util"), ("utilization.gpu",)),
    "memory_used_mib": Field(number, ("fb memory usage/used", "memory usage/used"), ("memory.used",)),
    "memory_total_mib": Field(number, ("fb memory usage/total", "memory usage/total"), ("memory.total",)),
    "driver_model": Field(driver_model, ("driver model/current", "driver model/current dm"), ("driver_model.current",)),
    "virtualization_mode": Field(str.strip, ("gpu virtualization mode/virtualization mode",)),
    "compute_mode": Field(compute_mode, ("compute mode",), ("compute_mode",)),
    "display_active": Field(switch, ("display active",), ("display_active",)),
    "application_sm_clock_mhz": Field(
        number,
        ("applications clocks/graphics", "applications clocks/graphics clock"),
        ("clocks.applications.graphics", "clocks.applications.gr"),
    ),
    "application_mem_clock_mhz": Field(
        number,
        ("applications clocks/memory", "applications clocks/mem clock"),
        ("clocks.applications.memory", "clocks.applications.mem"),
    ),
    "pcie_gen": Field(
        whole,
        ("pcie generation/current", "pcie gen/current link gen"),
        ("pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
    ),
    "pcie_gen_max": Field(whole, ("pcie generation/max", "pcie gen/max link gen"), ("pcie.link.gen.max",)),
    "pcie_width": Field(whole, ("link width/current", "link widths/current link width"), ("pcie.link.width.current",)),
    "pcie_width_max": Field(whole, ("link width/max", "link widths/max link width"), ("pcie.link.width.max",)),
    "compute_capability": Field(version, (), ("compute_cap",)),
}


def gpu_fields(candidates: Callable[[Field], Iterable[str]]) -> dict[str, Any]:
    """Values for GpuState: of each field, the first candidate text that is not missing."""
    values: dict[str, Any] = {}
    for name, field in FIELDS.items():
        for text in candidates(field):
            value = field.convert(text)
            if value is not None:
                values[name] = value
                break
    answers = (text for name in _VITAL for text in candidates(FIELDS[name]))
    values["trouble"] = trouble(answers, values)
    return values


_VITAL = ("temperature_c", "power_w", "sm_clock_mhz", "pstate")
_TROUBLE = re.compile(r"\W*(GPU is lost|GPU requires reset|Unknown Error|ERR!)", re.IGNORECASE)


def trouble(answers: Iterable[str], values: Mapping[str, object]) -> str | None:
    """What a GPU says that cannot be read; None where it gives a reading that needs the GPU itself."""
    if any(values.get(name) is not None for name in ("temperature_c", "power_w", "sm_clock_mhz")):
        return None
    return next((found[1] for answer in answers if (found := _TROUBLE.match(answer))), None)


# How -q, -q -x and --query-gpu shorten the names of event reasons and of their counters.
_REASONS = {name.replace("_", " "): name for name in EVENT_REASONS.values()} | {
    "idle": "gpu_idle",
    "display clocks setting": "display_clock_setting",
    "sw power capping": "sw_power_cap",
    "hw power brake": "hw_power_brake_slowdown",
    "hw power braking": "hw_power_brake_slowdown",
    "sw therm slowdown": "sw_thermal_slowdown",
    "hw therm slowdown": "hw_thermal_slowdown",
}
_REASON_PREFIX = re.compile(r"clocks (?:event|throttle) reasons?(?: counters)? ")


def reason_name(label: str) -> str | None:
    """NVML's name of an event reason as any output of nvidia-smi labels it."""
    return _REASONS.get(_REASON_PREFIX.sub("", re.sub(r"[._ ]+", " ", label.lower()).strip()))


def active_reasons(labelled: Iterable[tuple[str, str]]) -> tuple[str, ...] | None:
    """The reasons that are active among (label, "Active" or "Not Active"); None where none could be read."""
    read = {name: switch(text) for label, text in labelled if (name := reason_name(label))}
    if all(value is None for value in read.values()):
        return None
    return tuple(name for name in EVENT_REASONS.values() if read.get(name))


def mask_reasons(text: str) -> tuple[str, ...] | None:
    """The reasons of a mask like 0x0000000000000004."""
    found = re.match(r"\s*0x([0-9a-fA-F]{1,16})\b", text)
    return event_reason_names(int(found[1], 16)) if found else None


def reason_counters(labelled: Iterable[tuple[str, str]]) -> Iterator[tuple[str, int]]:
    """(reason, microseconds) of the counters that could be read."""
    for label, text in labelled:
        name, value = reason_name(label), whole(text)
        if name is not None and value is not None:
            yield name, value


WSL_DRIVER_MIN = 450  # the first Windows driver with CUDA in WSL2 was 455
_JETSON = re.compile(r"\b(?:thor|orin|xavier|tegra|jetson)\b|\(nvgpu\)", re.IGNORECASE)


def platform(gpus: Iterable[GpuState], *, smi_version: str | None, driver: str | None) -> Platform:
    """The platform that the values betray.

    A Windows driver names its driver model; WSL2 has one too, but a Linux nvidia-smi (persistence is a word there),
    whose version differs from the driver's.
    """
    gpus = tuple(gpus)
    if any(gpu.name and _JETSON.search(gpu.name) for gpu in gpus):
        return "jetson"
    if differ(smi_version, driver):
        return "wsl2"
    if any(gpu.driver_model for gpu in gpus):
        return "wsl2" if any(gpu.persistence_mode in {"on", "off"} for gpu in gpus) else "windows"
    processes = [process for gpu in gpus for process in gpu.processes or ()]
    if any(process.name and re.match(r"(?i)[a-z]:\\|.*\.exe$", process.name) for process in processes):
        return "windows"
    if any(process.name == "/Xwayland" for process in processes):  # WSLg's; elsewhere it has a path
        return "wsl2"
    return "linux" if any(gpu.persistence_mode in {"on", "off"} for gpu in gpus) else "unknown"


def differ(smi_version: str | None, driver: str | None) -> bool:
    """Whether nvidia-smi is not the driver's own, which happens in WSL2 alone; old ones prefixed their version."""
    if smi_version is None or driver is None or smi_version == driver:
        return False
    major = number(driver.split(".")[0])
    return not smi_version.endswith(driver) and major is not None and major >= WSL_DRIVER_MIN


def power_note(gpu: GpuState) -> str | None:
    """Which of two power readings is used, where they tell different stories."""
    if gpu.power_w is None or gpu.power_instant_w is None or gpu.power_w == gpu.power_instant_w:
        return None
    which = "" if gpu.index is None else f" of GPU {gpu.index}"
    return f"power{which} is the 1 s average, {gpu.power_w:g} W; at that instant it was {gpu.power_instant_w:g} W"


# nvml.h on nvmlDeviceGetPowerUsage: a 1 s average on Ampere and newer but for GA100, instantaneous before.
_INSTANTANEOUS = re.compile(
    r"\b(?:[KMP]\d+|V100\w*|T4|T\d{3,4}|A100\w*|A30|GTX|MX\d+|TITAN|Tesla|GRID|Quadro (?:[KMPT]|GV|RTX)\w*|"
    r"RTX 20\d\d)\b"
)
_AVERAGED = re.compile(
    r"\b(?:RTX [345]0\d\d|RTX A?\d{4}|RTX PRO|A(?:2|10|16|40)G?|L4|L20|L40S?|H20|H[128]00|G?B[123]00|GH200|GB10)\b"
)


def averages_power(name: str | None) -> bool | None:
    """Whether power.draw is an average on this GPU; None where its name does not tell."""
    if name is None:
        return None
    if _INSTANTANEOUS.search(name):
        return False
    return True if _AVERAGED.search(name) else None
