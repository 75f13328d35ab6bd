"""A recording in formats of other tools, in pieces: CSV and JSON here, Perfetto and OpenMetrics beside it."""

import csv
import io
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.advice import Advice
from gpuwarm.machine import EVENT_REASONS, event_reason_names
from gpuwarm.recording import Recording, Rows
from gpuwarm.show.openmetrics import to_openmetrics
from gpuwarm.show.perfetto import to_perfetto
from gpuwarm.show.reduce import Integers, newest_sample

SCHEMA = "gpuwarm.recording/1"
CHUNK_ROWS = 20_000  # written at once
_STATE = {  # the CSV's name -> SAMPLE's; iterations have an sm_clock_mhz of their own
    "nvml_sm_clock_mhz": "sm_clock_mhz",
    "mem_clock_mhz": "mem_clock_mhz",
    "pstate": "pstate",
    "power_mw": "power_mw",
    "power_average_mw": "power_average_mw",
    "temperature_c": "temperature_c",
    "memory_temperature_c": "memory_temperature_c",
    "gpu_util_pct": "gpu_util_pct",
    "pcie_gen": "pcie_gen",
}


def to_csv(recording: Recording, advice: Advice) -> Iterator[str]:
    """A line an iteration, with the newest sample begun before it ended and that sample's age; missing is empty."""
    iterations, found = recording.iterations, newest_sample(recording)
    names = iterations.dtype.names or ()
    yield ",".join(["simulated", *names, "sample_age_ms", *_STATE, "event_reasons"]) + "\n"
    for begin in range(0, len(iterations), CHUNK_ROWS):
        rows = iterations[begin : begin + CHUNK_ROWS]
        own = [[advice.simulated or ""] * len(rows), *(_cells(rows[name]) for name in names)]
        beside = _state_cells(recording.samples, rows, found[begin : begin + CHUNK_ROWS])
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(zip(*own, *beside, strict=True))
        yield text.getvalue()


def _cells(values: NDArray[Any]) -> list[str]:
    """Whole numbers without a point, others with the digits that were measured, NaN as nothing."""
    if values.dtype.kind == "i":
        return [str(value) for value in values.tolist()]
    return ["" if value != value else f"{value:.12g}" for value in values.tolist()]  # noqa: PLR0124 -- NaN


def _state_cells(samples: Rows, rows: Rows, found: Integers) -> list[list[str]]:
    """The columns of each row's sample; empty where it has none."""
    there = found >= 0
    state = np.zeros(len(rows), samples.dtype)
    state[there] = samples[found[there]]
    columns = [(rows["t_ns"] - state["t_ns"]) / 1e6, *(state[name].copy() for name in _STATE.values())]
    for column in columns:
        column[~there] = np.nan
    reasons = np.where(there, state["event_reasons"], np.nan)
    names = {bits: "|".join(event_reason_names(int(bits))) for bits in np.unique(reasons[np.isfinite(reasons)])}
    return [*map(_cells, columns), [names.get(bits, "") for bits in reasons.tolist()]]


def to_json(recording: Recording, advice: Advice) -> Iterator[str]:
    """Everything in a recording: metadata, and its two tables by column; missing is null."""
    del advice  # it has JSON of its own: gpuwarm analyze --json
    reasons = {str(bit): name for bit, name in EVENT_REASONS.items()}
    meta = msgspec.json.encode(recording.meta).decode()
    yield f'{{"schema": "{SCHEMA}", "event_reason_bits": {msgspec.json.encode(reasons).decode()}, "meta": {meta}'
    for table, rows in (("samples", recording.samples), ("iterations", recording.iterations)):
        yield f', "{table}": {{'
        for number, name in enumerate(rows.dtype.names or ()):
            yield f'{", " if number else ""}"{name}": {msgspec.json.encode(rows[name].tolist()).decode()}'
        yield "}"
    yield "}\n"


FORMATS: dict[str, Callable[[Recording, Advice], Iterator[str]]] = {
    "csv": to_csv,
    "json": to_json,
    "perfetto": to_perfetto,
    "openmetrics": to_openmetrics,
}
