"""Two recordings: whether the second is as fast as the first once warm, whether its clock says why, what differs."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from gpuwarm.analysis import advice
from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.checks.baseline import GPU_FIELDS, HOST_FIELDS
from gpuwarm.analysis.contrast import contrast
from gpuwarm.analysis.course import Behaviour
from gpuwarm.analysis.limits import since
from gpuwarm.analysis.stretch import Quantity, stretches
from gpuwarm.analysis.transitions import MOST
from gpuwarm.analysis.trust import Verdict
from gpuwarm.analysis.words import median, number, percent
from gpuwarm.errors import InputError
from gpuwarm.metadata import Metadata, Tensor
from gpuwarm.recording import Floats, Recording

SCHEMA = "gpuwarm.compare/1"
BLOCKS = 20  # that the steady latencies of too few starts are cut into, to see how much they move
MIN_STARTS = 2  # of each recording, to see how much starts differ
SAME_CLOCK_PCT = 1.0  # a smaller difference of the SM clock is its dithering
Outcome = Literal["same", "slower", "faster", "undecided", "not_comparable"]


@dataclass(frozen=True)
class Side:
    """What is compared of one recording; the GPU's state is its median once warm."""

    source: str
    simulated: str | None
    gpu: str | None
    workload: str | None
    starts: int
    behaviour: Behaviour
    verdict: Verdict
    latency_ms: float | None  # steady: the median over the starts of their medians
    warmup_ms: float | None  # recommended
    first_ms: float | None  # the first inference
    cold_start_ms: float | None
    sm_clock_mhz: float | None  # measured on the GPU in both, or else NVML's in both
    mem_clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class Change:
    """Of B's steady latency against A's."""

    pct: float
    interval_pct: tuple[float, float] | None  # 95 %; None: nothing to have it from
    basis: Literal["starts", "blocks within starts"]
    quantity: Quantity  # the latency that is compared: the caller's, or the GPU's own time
    predicted_by_clock_pct: float | None = None  # if cycles per inference were constant


@dataclass(frozen=True)
class Difference:
    """Something that was not the same. What one of the two does not tell is not compared."""

    name: str
    a: str
    b: str


@dataclass(frozen=True)
class Comparison:
    """B against A."""

    outcome: Outcome
    answer: str
    a: Side
    b: Side
    tolerance: float
    change: Change | None = None
    differences: tuple[Difference, ...] = ()
    reasons: tuple[str, ...] = ()  # for care with the comparison


@dataclass(frozen=True)
class _Given:
    """One of the two, and what is known of it."""

    letter: str
    source: str
    recording: Recording
    advice: Advice
    warm: Recording


def compare(a: Recording, b: Recording, *, tolerance: float = 0.01, sources: tuple[str, str]) -> Comparison:
    """How fast B is against A once both are warm.

    The interval rests on how much the starts of each differ; where one of the two has a single start, on how much
    latency moves within the starts, which says nothing about another start.

    Raises:
        InputError: the starts of one differ on purpose.
    """
    left, right = (_given(*each, tolerance) for each in zip("AB", sources, (a, b), strict=True))
    clock = "gpu" if all(_clock_mhz(each, "gpu") is not None for each in (left, right)) else "nvml"
    change = _change(left, right, clock)
    outcome = _outcome(left, right, change, tolerance)
    return Comparison(
        outcome=outcome,
        answer=_answer(left, right, outcome, change, tolerance),
        a=_side(left, change, clock),
        b=_side(right, change, clock),
        tolerance=tolerance,
        change=change,
        differences=tuple(_differences(left, right)),
        reasons=tuple(_reasons(left, right, change)),
    )


def _given(letter: str, source: str, recording: Recording, tolerance: float) -> _Given:
    study = recording.meta.study
    if study is not None:
        raise InputError(
            f"{source} is of `gpuwarm {study.name}`, whose starts differ on purpose: compare those of `run`"
        )
    told = advice.of(recording, tolerance=tolerance, source=source)
    warm = since(recording, stretches(recording), told.warmup.time_ms)
    return _Given(letter, source, recording, told, warm)


def _change(left: _Given, right: _Given, clock: str) -> Change | None:
    """None where one of the two has no steady latency of the kind the other has."""
    quantity = _quantity(left, right)
    levels = [_levels(each, quantity) for each in (left, right)]
    if not all(levels):
        return None
    by_start = min(map(len, levels)) >= MIN_STARTS
    values = [[_log_median(level) for level in (own if by_start else _blocks(own))] for own in levels]
    estimate = contrast([(-1.0, values[0]), (1.0, values[1])])
    if estimate is None:
        return None
    clocks = [_clock_mhz(each, clock) for each in (left, right)]
    return Change(
        pct=_pct(estimate.value),
        interval_pct=None if estimate.interval is None else (_pct(estimate.interval[0]), _pct(estimate.interval[1])),
        basis="starts" if by_start else "blocks within starts",
        quantity=quantity,
        predicted_by_clock_pct=100 * (clocks[0] / clocks[1] - 1) if clocks[0] and clocks[1] else None,
    )


def _quantity(left: _Given, right: _Given) -> Quantity:
    """The one that both answers are about; where they differ, the GPU's own time, if both have it."""
    kinds = {each.advice.steady.quantity for each in (left, right) if each.advice.steady}
    if len(kinds) == 1:
        return kinds.pop()
    return "gpu" if all(np.isfinite(each.warm.iterations["gpu_ns"]).any() for each in (left, right)) else "host"


def _levels(given: _Given, quantity: Quantity) -> list[Floats]:
    """Each start's latencies from the end of the warm-up on."""
    end_ms = given.advice.warmup.time_ms
    if end_ms is None:
        return []
    found = stretches(given.recording, quantity=quantity)
    return [kept for each in found if (kept := each.latency_ms[each.elapsed_ms >= end_ms]).size]


def _blocks(levels: Sequence[Floats]) -> list[Floats]:
    cut = [np.array_split(level, max(1, BLOCKS // len(levels))) for level in levels]
    return [block for blocks in cut for block in blocks if block.size]


def _log_median(values: Floats) -> float:
    return math.log(float(np.median(values)))


def _pct(log_ratio: float) -> float:
    return 100 * math.expm1(log_ratio)


def _clock_mhz(given: _Given, source: str) -> float | None:
    rows = given.warm.iterations if source == "gpu" else given.warm.samples
    return median(rows["sm_clock_mhz"])


def _outcome(left: _Given, right: _Given, change: Change | None, tolerance: float) -> Outcome:
    if change is None or "unusable" in (left.advice.verdict, right.advice.verdict):
        return "not_comparable"
    if change.interval_pct is None:
        return "undecided"
    low, high = change.interval_pct
    limit = 100 * tolerance
    if low > limit:
        return "slower"
    if high < -limit:
        return "faster"
    return "same" if low >= -limit and high <= limit else "undecided"


def _side(given: _Given, change: Change | None, clock: str) -> Side:
    told, cold, samples = given.advice, given.advice.cold_start, given.warm.samples
    levels = _levels(given, change.quantity) if change else []
    power_mw = median(samples["power_mw"])
    return Side(
        source=given.source,
        simulated=told.simulated,
        gpu=told.gpu.name if told.gpu else None,
        workload=told.workload.name,
        starts=told.warmup.starts,
        behaviour=told.behaviour,
        verdict=told.verdict,
        latency_ms=median([np.median(level) for level in levels]),
        warmup_ms=told.warmup.recommended_ms,
        first_ms=cold.first_ms if cold else None,
        cold_start_ms=cold.total_ms if cold else None,
        sm_clock_mhz=_clock_mhz(given, clock),
        mem_clock_mhz=median(samples["mem_clock_mhz"]),
        power_w=None if power_mw is None else power_mw / 1e3,
        temperature_c=median(samples["temperature_c"]),
    )


def _answer(left: _Given, right: _Given, outcome: Outcome, change: Change | None, tolerance: float) -> str:
    if change is None or outcome == "not_comparable":
        without = [each.letter for each in (left, right) if each.advice.verdict == "unusable"]
        return f"Not comparable: no steady latency in {' and '.join(without) or 'one of the two'}."
    moved = f"steady latency {percent(change.pct)}"
    if change.interval_pct is not None:
        moved += f" (95 %: {' to '.join(percent(end) for end in change.interval_pct)})"
    within = f"{number(100 * tolerance)} %"
    if outcome == "undecided":
        return (
            f"Not decided: B against A has {moved}, which is neither within {within} nor beyond. Measure more starts."
        )
    if outcome == "same":
        return f"B is as fast as A: {moved}, within {within}."
    why = ", as its SM clock explains" if explained_by_clock(change) else ""
    return f"B is {outcome} than A: {moved}{why}."


def explained_by_clock(change: Change) -> bool | None:
    """Whether the SM clock alone would make about this difference; None where it is much the same, or not known."""
    predicted = change.predicted_by_clock_pct
    if predicted is None or abs(predicted) < SAME_CLOCK_PCT:
        return None
    return MOST <= change.pct / predicted <= 1 / MOST


def _reasons(left: _Given, right: _Given, change: Change | None) -> Iterator[str]:
    """Against the comparison itself first, then what each recording says of itself."""
    if left.advice.simulated != right.advice.simulated:
        kinds = (
            f"simulated ({each.advice.simulated})" if each.advice.simulated else "measured" for each in (left, right)
        )
        yield "A is {}, B is {}".format(*kinds)
    if change is not None and change.basis != "starts":
        yield "one of the two has a single start: the interval tells how latency moves within starts, not between them"
    for each in (left, right):
        for reason in each.advice.reasons:
            yield f"{each.letter}: {reason}"


def _differences(left: _Given, right: _Given) -> Iterator[Difference]:
    """What was set up or run otherwise, where both tell it."""
    ours, theirs = _described(left.recording.meta), _described(right.recording.meta)
    for name in ours:
        if name in theirs and ours[name] != theirs[name]:
            yield Difference(name, ours[name], theirs[name])


def _described(meta: Metadata) -> dict[str, str]:
    """Set-up and workload by name, as far as they are told."""
    work, state = meta.workload, meta.machine_before
    told: dict[str, object] = {**meta.versions}
    told |= {"engine": work.name, "engine's SHA-256": work.sha256 and work.sha256[:12], "batch": work.batch}
    told |= {"input data": work.input_data, "inputs": ", ".join(_tensor(each) for each in work.inputs)}
    told |= dict(work.options)
    if state is not None and state.gpus:
        told |= {words: getattr(state.gpus[0], field) for field, words in GPU_FIELDS.items()}
    if state is not None and state.host is not None:
        told |= {"host name": state.host.hostname}
        told |= {words: getattr(state.host, field) for field, words in HOST_FIELDS.items()}
    return {name: _shown(value) for name, value in told.items() if value not in (None, "", {}, "unknown")}


def _tensor(tensor: Tensor) -> str:
    return f"{tensor.name} {'x'.join(map(str, tensor.shape))} {tensor.dtype}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {inner}" for name, inner in sorted(value.items()))
    return number(value) if isinstance(value, float) else str(value)


def to_json(comparison: Comparison) -> dict[str, Any]:
    """The comparison under its schema's name."""
    return {"schema": SCHEMA, **msgspec.to_builtins(comparison)}
