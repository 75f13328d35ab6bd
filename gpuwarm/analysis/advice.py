"""Everything known about a recording as one answer: `gpuwarm.advice/1`."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from gpuwarm.analysis import causes, checks, limits, statelog, states, trust
from gpuwarm.analysis.answer import answer, before, paced
from gpuwarm.analysis.averages import Average
from gpuwarm.analysis.bias import Bias
from gpuwarm.analysis.causes import ColdStart
from gpuwarm.analysis.contract import with_every_key
from gpuwarm.analysis.course import Behaviour
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.flags import flags
from gpuwarm.analysis.limits import Bound, Parts
from gpuwarm.analysis.movement import Mover, mover, restless
from gpuwarm.analysis.pace import Pace
from gpuwarm.analysis.statelog import StateLog
from gpuwarm.analysis.states import ClockState
from gpuwarm.analysis.steady import Judgement, Steady, Warmup, judge
from gpuwarm.analysis.stretch import Stretch, stretches
from gpuwarm.analysis.transitions import Transition
from gpuwarm.analysis.trust import VERDICTS, Verdict
from gpuwarm.analysis.unrest import is_restless, unrest
from gpuwarm.analysis.words import duration
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.metadata import Sampling, Workload
from gpuwarm.recording import Recording

SCHEMA = "gpuwarm.advice/1"
_JSON_NAMES = {"before": "from", "after": "to"}  # of a transition: `from` is a keyword in Python
_SAMPLING_KEYS = ("period_ms", "refresh_ms", "clock_uncertainty_ms")  # the others say what sampling cost


_MATTERS_ELSEWHERE = ("persistence-off-masked",)  # measured with a monitor running, deployed without
_DRIVER_NOT_KEPT = "persistence-off"
_IN_REASONS = "other-processes"  # a finding that is among the reasons of the verdict already


@dataclass(frozen=True)
class Advice:
    """The contract of `run --json` and `analyze --json`; what a person reads is rendered from it by `show/`."""

    source: str | None
    simulated: str | None
    gpu: GpuState | None
    workload: Workload
    behaviour: Behaviour
    also: tuple[str, ...]
    evidence: tuple[str, ...]
    warmup: Warmup
    steady: Steady | None
    average: Average | None  # where latency finds no rest and a mean does
    bias: tuple[Bias, ...]
    cold_start: ColdStart | None
    transitions: tuple[Transition, ...]
    bound: Bound
    sampling: Sampling
    verdict: Verdict
    reasons: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    flags: dict[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    tolerance: float = 0.01  # of steady latency: what `of` was asked for
    answer: str = ""  # one or two sentences
    states: tuple[ClockState, ...] = ()  # of the start that took longest to warm up
    parts: Parts = field(default_factory=Parts)
    bound_evidence: str = ""
    pace: Pace | None = None  # None: back to back
    timed: bool = True  # False: a log of states alone, in which no inference was to be timed


def of(
    recording: Recording,
    *,
    tolerance: float = 0.01,
    warmup_ms: Sequence[float] = (),
    source: str | None = None,
) -> Advice:
    """The advice a recording gives.

    Args:
        recording: anything that loads; what it lacks is missing in the advice, too.
        tolerance: of steady latency.
        warmup_ms: other warm-up lengths to judge in the bias table.
        source: the file the recording is from, where it does not name one itself.
    """
    advice = _of_inferences(recording, tolerance, warmup_ms, recording.meta.source or source)
    inferred = recording.iterations.size or any(start.phases for start in recording.meta.starts)
    if inferred or not recording.samples.size:
        return advice
    return _of_states(replace(advice, notes=recording.meta.notes), statelog.of(recording, advice.gpu))


def _of_inferences(recording: Recording, tolerance: float, warmup_ms: Sequence[float], source: str | None) -> Advice:
    meta = recording.meta
    gpu = meta.machine_before.gpus[0] if meta.machine_before and meta.machine_before.gpus else None
    found = stretches(recording)
    judged = judge(recording, tolerance=tolerance, warmup_ms=warmup_ms, found=found)
    shown = _shown(found, judged)
    moved = _moved(recording, shown, judged, tolerance)
    limit = limits.of(recording, found, gpu, warm_after_ms=judged.warmup.time_ms)
    swings = restless(recording, found, after_ms=judged.warmup.time_ms) if is_restless(judged, moved) else None
    host = None if swings is None else unrest(swings, judged, meta, tolerance=tolerance)
    verdict, reasons = trust.verdict(recording, judged, limit.throttling, host, starts=len(found))
    cold = causes.cold_start(recording)
    lines, lines_notes = flags(meta, judged.behaviour, judged.warmup, limit.pace)
    told = answer(judged, before(recording, found, judged), limit.throttling, moved, host)
    return Advice(
        source=source,
        simulated=meta.simulated,
        gpu=gpu,
        workload=meta.workload,
        behaviour=judged.behaviour,
        also=judged.also,
        evidence=judged.evidence if moved is None else (*judged.evidence, moved.evidence),
        warmup=judged.warmup,
        steady=judged.steady,
        average=judged.average,
        bias=judged.bias,
        cold_start=cold,
        transitions=judged.transitions,
        bound=limit.bound,
        sampling=meta.sampling,
        verdict=verdict,
        reasons=reasons,
        findings=(limit.throttling, *([host] if host else []), *_machine_findings(meta.machine_before, cold)),
        flags=lines,
        # Of another tool's file the notes say how it was read; of a measurement they are among the reasons.
        notes=(*lines_notes, *meta.notes) if meta.source else lines_notes,
        tolerance=tolerance,
        answer=told if limit.pace is None else f"{told} {paced(limit.pace, gpu)}",
        states=() if shown is None else states.passed_through(recording, shown),
        parts=limit.parts,
        bound_evidence=limit.bound_evidence,
        pace=limit.pace,
    )


def _moved(recording: Recording, shown: Stretch | None, judged: Judgement, tolerance: float) -> Mover | None:
    """What moves the latency that was judged: where that is the GPU's own, it is asked of that."""
    if "host_unsteady" in judged.also:
        shown = _shown(stretches(recording, quantity="gpu"), judged)
    return None if shown is None else mover(recording, shown, judged, tolerance=tolerance)


def _of_states(advice: Advice, log: StateLog) -> Advice:
    """Advice on a log without inferences: what the states tell."""
    return replace(
        advice,
        evidence=log.evidence,
        transitions=log.transitions,
        findings=(log.throttling, *advice.findings[1:]),
        answer=log.answer,
        states=log.states,
        timed=False,
    )


def accepted(advice: Advice, required: Verdict | None = None) -> bool:
    """Whether there is a steady state, where inference was timed, and the verdict is at least `required`."""
    known = advice.steady is not None or not advice.timed
    return known and (required is None or VERDICTS.index(advice.verdict) >= VERDICTS.index(required))


def _shown(found: Sequence[Stretch], judged: Judgement) -> Stretch | None:
    """The start that stands for all where only one can be shown: the one that decided the warm-up, or the first."""
    deciding = [stretch for stretch in found if stretch.start == judged.warmup.longest_start]
    return next(iter(deciding or found), None)


def _machine_findings(machine: MachineState | None, cold: ColdStart | None) -> tuple[Finding, ...]:
    """What of the machine's set-up changes what this run is worth elsewhere, with what the starts measured of it."""
    found = () if machine is None else checks.findings(machine)
    kept = tuple(
        finding
        for finding in found
        if (finding.severity in ("warning", "error") or finding.id in _MATTERS_ELSEWHERE) and finding.id != _IN_REASONS
    )
    masked = None if cold is None else causes.driver_load_masked(cold)
    if masked is None or masked.unsampled_ms is None:
        return kept
    cost = f"loading the driver costs each start {duration(masked.unsampled_ms - masked.median_ms)}"
    evidence = (
        f"driver initialisation took {duration(masked.unsampled_ms)} with no client of gpuwarm alive, "
        f"{duration(masked.median_ms)} while it sampled"
    )
    if not any(finding.id == _DRIVER_NOT_KEPT for finding in kept):
        return (*kept, Finding("driver-load-masked", "warning", f"{cost}, which sampling hides", evidence=evidence))
    return tuple(
        replace(finding, summary=f"Persistence: off, and {cost}", evidence=evidence)
        if finding.id == _DRIVER_NOT_KEPT
        else finding
        for finding in kept
    )


def to_json(advice: Advice) -> dict[str, Any]:
    """The advice under the names of the contract; what is missing is None, as no JSON has a NaN."""
    content = {"schema": SCHEMA, **_without_nan(msgspec.to_builtins(advice))}
    content["transitions"] = [
        {_JSON_NAMES.get(name, name): value for name, value in transition.items()}
        for transition in content["transitions"]
    ]
    content["sampling"] = _with_cost(content["sampling"])
    return content


def _with_cost(sampling: dict[str, Any]) -> dict[str, Any]:
    cost = {name: value for name, value in sampling.items() if name not in _SAMPLING_KEYS}
    return {**{name: sampling[name] for name in _SAMPLING_KEYS}, "cost": cost}


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def json_schema() -> dict[str, Any]:
    """The JSON Schema of what `to_json` returns."""
    schema = msgspec.json.schema(Advice)
    definitions = schema["$defs"]
    transition, sampling, advice = (definitions[name] for name in ("Transition", "Sampling", "Advice"))
    for part in ("properties", "required"):
        names = transition[part]
        transition[part] = (
            {_JSON_NAMES.get(name, name): value for name, value in names.items()}
            if isinstance(names, dict)
            else [_JSON_NAMES.get(name, name) for name in names]
        )
    costs = _with_cost(sampling["properties"])
    sampling["properties"] = {**costs, "cost": {"type": "object", "properties": costs["cost"]}}
    advice["properties"] = {"schema": {"const": SCHEMA}, **advice["properties"]}
    return with_every_key(schema)
