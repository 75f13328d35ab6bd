"""How a recording was made, as tables: versions, workload, starts, and the machine before and after."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np

from gpuwarm.analysis.words import duration, number
from gpuwarm.machine import MachineState
from gpuwarm.metadata import Phase, Rest, Start
from gpuwarm.recording import Recording
from gpuwarm.show.sections import Table

_UNITS = {"mhz": "MHz", "w": "W", "mw": "mW", "c": "°C", "pct": "%", "mib": "MiB", "us": "us", "ms": "ms", "s": "s"}
_ACRONYMS = {"sm": "SM", "pcie": "PCIe", "pci": "PCI", "uuid": "UUID", "mig": "MIG", "ecc": "ECC", "cuda": "CUDA"}


def tables(recording: Recording) -> Iterator[tuple[str, Table]]:
    """Each with its caption; one without rows is left out."""
    meta = recording.meta
    about = {"started": meta.started_utc, "read from": meta.source, "simulated": meta.simulated, **meta.versions}
    candidates = {
        "Recording and versions": _pairs({name: value for name, value in about.items() if value}),
        "Workload": _pairs(dict(_facts(meta.workload))),
        "Starts": _starts(recording),
        "The machine before and after": _machines(meta.machine_before, meta.machine_after),
    }
    for caption, table in candidates.items():
        if table.rows:
            yield caption, table


def _pairs(facts: Mapping[str, str]) -> Table:
    return Table(("what", "value"), (False, False), tuple(facts.items()))


def _machines(before: MachineState | None, after: MachineState | None) -> Table:
    known = [dict(_machine(state)) if state else {} for state in (before, after)]
    names = dict.fromkeys(name for facts in known for name in facts)
    rows = tuple((name, *(facts.get(name, "") for facts in known)) for name in names)
    return Table(("what", "before", "after"), (False, False, False), rows)


def _machine(state: MachineState) -> Iterator[tuple[str, str]]:
    """The measured GPU's facts, then the machine's."""
    for gpu in state.gpus:
        yield from _facts(gpu, "GPU: ")
    yield from _facts(replace(state, gpus=()))


def _starts(recording: Recording) -> Table:
    starts = recording.meta.starts
    counts = np.bincount(recording.iterations["start"], minlength=len(starts))
    rows = tuple(
        (
            str(place + 1),
            start.arm,
            f"{counts[place]:,}",
            "; ".join(_phase(phase) for phase in start.phases),
            _rest(start.rest),
            _reasons(start),
            start.failure or "",
        )
        for place, start in enumerate(starts)
    )
    heading = ("start", "arm", "inferences", "phases", "rest before it", "event reasons grew by", "failure")
    return Table(heading, (True, False, True, False, False, False, False), rows)


def _phase(phase: Phase) -> str:
    return phase.name if phase.interval_ms is None else f"{phase.name}, one each {duration(phase.interval_ms)}"


def _rest(rest: Rest | None) -> str:
    if rest is None:
        return ""
    reached = "reached" if rest.reached else "not reached"
    return f"{reached} after {duration(1e3 * rest.waited_s)}"


def _reasons(start: Start) -> str:
    grown = {
        name: after - start.counters_before_us[name]
        for name, after in start.counters_after_us.items()
        if name in start.counters_before_us
    }
    return "; ".join(f"{name} {duration(value / 1e3)}" for name, value in grown.items() if value)


def _facts(what: object, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Names and values of a dataclass, in words and in order; what is missing or empty is left out."""
    if not is_dataclass(what):
        return
    for field in fields(what):
        value = getattr(what, field.name)
        name, unit = _name(field.name)
        if is_dataclass(value):
            yield from _facts(value, f"{prefix}{name}: ")
        elif (text := _text(value)) != "":
            yield f"{prefix}{name}", f"{text} {unit}".strip()


def _name(field: str) -> tuple[str, str]:
    """power_limit_w is ("power limit", "W")."""
    words = field.split("_")
    unit = _UNITS.get(words[-1], "") if len(words) > 1 else ""
    return " ".join(_ACRONYMS.get(word, word) for word in (words[:-1] if unit else words)), unit


def _text(value: Any) -> str:
    """A value in words; nothing for None and what is empty."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return number(value)
    if isinstance(value, dict):
        return "; ".join(f"{name} {_text(inner)}" for name, inner in value.items())
    if isinstance(value, tuple):
        return ("x" if value and isinstance(value[0], int) else "; ").join(map(_text, value))
    if is_dataclass(value):
        return ", ".join(f"{name} {text}" for name, text in _facts(value))
    return "" if value is None else str(value)
