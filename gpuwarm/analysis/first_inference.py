"""Why a process's first inference is slower than a steady one: what is paid once, and what until the GPU is warm."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuwarm.analysis.contrast import Estimate, contrast
from gpuwarm.analysis.controlled import EARLY_ITERATIONS, Run
from gpuwarm.analysis.switches import REFERENCE
from gpuwarm.analysis.words import median
from gpuwarm.recording import Recording, Rows

RAISED_SHARE = 0.9  # of its clock under load, from which a clock counts as raised
RAMP_SHARE = 0.95  # of its later clock, below which the GPU's own clock in the first inferences shows a ramp
LOOK_BACK_NS = 300_000_000  # before a process: what rest looked like

Rise = Literal["before", "during", "never at rest", "unknown"]


@dataclass(frozen=True)
class FirstInference:
    """Means over the reference's starts; the estimates are in ms."""

    first_ms: float
    steady_ms: float
    until_warm: Estimate  # of its excess over a steady one, the part that inferences right after it still pay
    by_causes: tuple[tuple[str, Estimate], ...]  # of the rest, paid once, what switches have shown to cause, by id
    remainder: Estimate


@dataclass(frozen=True)
class ClockRise:
    """Whether the SM clock had risen by the first inference, in every start of the reference."""

    risen: Rise
    rest_mhz: float | None = None
    load_mhz: float | None = None
    lead_ms: float | None = None  # how long before the first inference it was seen raised, at the least


def first_inference(reference: Sequence[Run], others: Mapping[str, Sequence[Run]]) -> FirstInference | None:
    """Split the excess; None where the reference's starts are too short to know what steady is.

    Args:
        reference: its starts.
        others: by cause, starts that lack what the reference has; of causes shown to change the first inference.
    """
    known = [run for run in reference if run.until_warm_ms is not None]
    if not known:
        return None
    once = _once(known)
    shown = []
    groups: list[tuple[float, Sequence[float]]] = []
    for cause, runs in others.items():
        theirs = _once(runs)
        part = contrast([(1.0, once), (-1.0, theirs)])
        if part is not None and part.value > 0:
            shown.append((cause, part))
            groups.append((1.0, theirs))
    until_warm = contrast([(1.0, [run.until_warm_ms for run in known if run.until_warm_ms is not None])])
    left = contrast([group for group in [(1.0 - len(shown), once), *groups] if group[0]])
    assert until_warm is not None
    assert left is not None
    return FirstInference(
        first_ms=float(np.mean([run.first_ms for run in known])),
        steady_ms=float(np.mean([run.steady_ms for run in known if run.steady_ms is not None])),
        until_warm=until_warm,
        by_causes=tuple(shown),
        remainder=left,
    )


def _once(runs: Sequence[Run]) -> list[float]:
    return [run.once_ms for run in runs if run.once_ms is not None]


def clock_rise(recording: Recording) -> ClockRise:
    """By NVML, which is late by up to 250 ms: what it shows before the first inference has certainly happened."""
    seen = [rise for rise in _rises(recording) if rise is not None]
    if not seen:
        return ClockRise("unknown")
    rest_mhz = float(np.median([rise.rest_mhz for rise in seen]))
    load_mhz = float(np.median([rise.load_mhz for rise in seen]))
    leads_ms = [rise.lead_ms for rise in seen]
    if rest_mhz >= RAISED_SHARE * load_mhz:
        return ClockRise("never at rest", rest_mhz, load_mhz)
    if all(lead is not None and lead > 0 for lead in leads_ms):
        return ClockRise("before", rest_mhz, load_mhz, min(lead for lead in leads_ms if lead is not None))
    if any(rise.ramp for rise in seen):
        return ClockRise("during", rest_mhz, load_mhz)
    return ClockRise("unknown", rest_mhz, load_mhz)


@dataclass(frozen=True)
class _Seen:
    rest_mhz: float
    load_mhz: float
    lead_ms: float | None
    ramp: bool


def _rises(recording: Recording) -> Iterator[_Seen | None]:
    for index, start in enumerate(recording.meta.starts):
        if start.arm == REFERENCE and start.marks:
            rows = recording.iterations[recording.iterations["start"] == index]
            if rows.size:
                yield _rise(recording.samples, start.marks[0].t_ns, rows)


def _rise(samples: Rows, process_ns: int, rows: Rows) -> _Seen | None:
    """What was seen in one start; None where the clock was not."""
    samples = samples[np.isfinite(samples["sm_clock_mhz"])]
    times, clocks = samples["t_ns"], samples["sm_clock_mhz"]
    first_ns, last_ns = int(rows["t_ns"][0]), int(rows["t_ns"][-1])
    middle_ns = (first_ns + last_ns) // 2
    rest_mhz = median(clocks[(times > process_ns - LOOK_BACK_NS) & (times <= process_ns)])
    load_mhz = median(clocks[(times > middle_ns) & (times <= last_ns)])
    if rest_mhz is None or load_mhz is None:
        return None
    after = (times > process_ns) & (times <= last_ns)
    raised = times[after & (clocks >= RAISED_SHARE * load_mhz)]
    lead_ms = float(first_ns - raised[0]) / 1e6 if raised.size else None
    own = rows["sm_clock_mhz"][np.isfinite(rows["sm_clock_mhz"])]
    ramp = own.size >= 2 * EARLY_ITERATIONS and bool(
        np.median(own[:EARLY_ITERATIONS]) < RAMP_SHARE * np.median(own[own.size // 2 :])
    )
    return _Seen(rest_mhz, load_mhz, lead_ms, ramp)
