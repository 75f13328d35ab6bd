"""One reading of a GPU's state as a line, for a person or a program."""

import math
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import msgspec

from gpuwarm.analysis.transitions import CLOCK_STEP
from gpuwarm.analysis.words import number
from gpuwarm.machine import GpuState, event_reason_names
from gpuwarm.rows import SAMPLE_FIELDS, SampleRow

SCHEMA = "gpuwarm.watch/1"


@dataclass(frozen=True)
class Reading:
    """A line of `watch --json`; None is what this GPU or driver does not tell."""

    time_utc: str
    simulated: str | None
    pstate: int | None
    sm_clock_mhz: float | None
    mem_clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    utilization_pct: float | None
    event_reasons: tuple[str, ...] | None

    def same_state(self, other: "Reading") -> bool:
        """Whether P-state, clocks and event reasons are the same, the dithering of clocks aside."""
        clocks = ((self.sm_clock_mhz, other.sm_clock_mhz), (self.mem_clock_mhz, other.mem_clock_mhz))
        moved = any(a is not None and b is not None and abs(a - b) > CLOCK_STEP * b for a, b in clocks)
        return not moved and (self.pstate, self.event_reasons) == (other.pstate, other.event_reasons)


def reading(row: SampleRow, simulated: str | None) -> Reading:
    """What a row of SAMPLE_FIELDS says, read just now."""
    known = {name: None if math.isnan(value) else value for name, value in zip(SAMPLE_FIELDS, row, strict=True)}
    pstate, reasons = known["pstate"], known["event_reasons"]
    power_mw = known["power_average_mw"] if known["power_mw"] is None else known["power_mw"]
    return Reading(
        time_utc=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
        simulated=simulated,
        pstate=None if pstate is None else int(pstate),
        sm_clock_mhz=known["sm_clock_mhz"],
        mem_clock_mhz=known["mem_clock_mhz"],
        power_w=None if power_mw is None else power_mw / 1e3,
        temperature_c=known["temperature_c"],
        utilization_pct=known["gpu_util_pct"],
        event_reasons=None if reasons is None else event_reason_names(int(reasons)),
    )


def heading(gpu: GpuState, simulated: str | None) -> str:
    """What the lines are about."""
    stamp = "" if simulated is None else f"SIMULATED GPU, profile {simulated}: no hardware is read\n"
    limits = (
        "" if gpu.sm_clock_max_mhz is None else f", SM clock up to {gpu.sm_clock_max_mhz:.0f} MHz",
        "" if gpu.power_limit_w is None else f", power limit {number(gpu.power_limit_w)} W",
    )
    return f"{stamp}{gpu.name or 'unnamed GPU'}{''.join(limits)}"


def line(of: Reading) -> str:
    """For a terminal: less than 80 columns where no more than one event reason is active."""
    local_time = datetime.fromisoformat(of.time_utc).astimezone().strftime("%H:%M:%S")
    cells = (
        "P?" if of.pstate is None else f"P{of.pstate}",
        f"SM {_shown(of.sm_clock_mhz, 4)} MHz",
        f"memory {_shown(of.mem_clock_mhz, 5)} MHz",
        f"{_shown(of.power_w, 3)} W",
        f"{_shown(of.temperature_c, 2)} C",
        f"{_shown(of.utilization_pct, 3)} %",
        "reasons ?" if of.event_reasons is None else ", ".join(of.event_reasons),
    )
    return f"{local_time}  {'  '.join(cells)}".rstrip()


def _shown(value: float | None, width: int) -> str:
    return f"{'?' if value is None else format(value, '.0f'):>{width}}"


def to_json(of: Reading) -> dict[str, Any]:
    """The reading under its schema's name."""
    return {"schema": SCHEMA, **msgspec.to_builtins(of)}
