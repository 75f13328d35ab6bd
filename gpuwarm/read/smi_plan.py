"""The fields of SAMPLE in a log of nvidia-smi's: which columns give each, and in which unit."""

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from gpuwarm.machine import EVENT_REASONS
from gpuwarm.read import cells
from gpuwarm.read.cells import Block
from gpuwarm.read.smi_fields import averages_power, reason_name
from gpuwarm.read.smi_layout import Layout
from gpuwarm.recording import Floats

# Fields of SAMPLE and the queries that give them, the first that is there
_SAMPLED = {
    "sm_clock_mhz": ("clocks.sm", "clocks.gr"),
    "mem_clock_mhz": ("clocks.mem",),
    "temperature_c": ("temperature.gpu",),
    "memory_temperature_c": ("temperature.memory",),
    "gpu_util_pct": ("utilization.gpu",),
    "pcie_gen": ("pcie.link.gen.gpucurrent", "pcie.link.gen.current"),
}
_VIOLATIONS = {"violation.power": "sw_power_cap", "violation.thermal": "sw_thermal_slowdown"}
_MW_PER_W = 1000.0
Read = Callable[[Block], Floats]
Plan = dict[str, Read]


def plan(layout: Layout, first: Block) -> tuple[Plan, tuple[str, ...]]:
    """How to read the fields of SAMPLE from a block, judged by the first; and what is in doubt."""
    found: Plan = {}
    for name, queries in _SAMPLED.items():
        read = next((read for query in queries if (read := _numbers(layout, query, first))), None)
        if read:
            found[name] = read
    place = layout.place("pstate")
    if place is not None:
        found["pstate"] = lambda block: cells.numbers_after(block.column(place), b"P")
    power, doubts = _power(layout, first)
    return found | power | _event_reasons(layout), doubts


def _numbers(layout: Layout, query: str, block: Block, factor: float = 1.0) -> Read | None:
    """Reads a column in nvidia-smi's unit; None where it is not there or says nothing."""
    place = layout.place(query)
    if place is None or np.isnan(cells.numbers(block.column(place))).all():
        return None
    unit = re.match(r"-?[\d.]+\s*([A-Za-z]+)", block.column(place).text(0))
    column = layout.columns[place]
    scale = factor * (replace(column, unit=unit[1]) if unit else column).scale
    return lambda block: cells.numbers(block.column(place)) * scale


def _power(layout: Layout, block: Block) -> tuple[Plan, tuple[str, ...]]:
    """Instant and average power; power.draw is one or the other by the GPU's generation."""
    draw, average, instant = (
        _numbers(layout, query, block, _MW_PER_W)
        for query in ("power.draw", "power.draw.average", "power.draw.instant")
    )
    place = layout.place("name")
    doubts: tuple[str, ...] = ()
    averages = averages_power(None if place is None else block.column(place).text(0))
    if draw and not average and (averages or (averages is None and instant)):
        average = draw
    elif draw and not instant:
        instant = draw
        if averages is None and not average:
            doubts = (
                "power.draw is a 1 s average on some GPUs, and this log does not name its GPU; "
                "power.draw.instant never is one",
            )
    return {name: read for name, read in (("power_mw", instant), ("power_average_mw", average)) if read}, doubts


def _event_reasons(layout: Layout) -> Plan:
    """From the mask, or from a column for each reason."""
    mask = layout.place("clocks_event_reasons.active")
    if mask is not None:
        return {"event_reasons": lambda block: cells.hexadecimals(block.column(mask))}
    bits = {name: bit for bit, name in EVENT_REASONS.items()}
    places = [
        (at, bits[name])
        for at, column in enumerate(layout.columns)
        if column.field.startswith("clocks_event_reasons.") and (name := reason_name(column.field))
    ]

    def read(block: Block) -> Floats:
        active = [(cells.begins_with(block.column(at), b"Active"), bit) for at, bit in places]
        told = np.any(
            [
                is_active | cells.begins_with(block.column(at), b"Not")
                for (is_active, _), (at, _) in zip(active, places, strict=True)
            ],
            axis=0,
        )
        return np.where(told, sum(is_active * float(bit) for is_active, bit in active), np.nan)

    return {"event_reasons": read} if places else _violations(layout)


def _violations(layout: Layout) -> Plan:
    """From dmon's columns of power and thermal violations, in per cent of the time or as a flag."""
    bits = {name: bit for bit, name in EVENT_REASONS.items()}
    places = [(at, bits[name]) for field, name in _VIOLATIONS.items() if (at := layout.place(field)) is not None]

    def read(block: Block) -> Floats:
        shares = [(cells.numbers(block.column(at)), bit) for at, bit in places]
        bits_set = np.sum([(share > 0) * float(bit) for share, bit in shares], axis=0)
        return np.where(np.any([np.isfinite(share) for share, _ in shares], axis=0), bits_set, np.nan)

    return {"event_reasons": read} if places else {}
