"""What controlled starts show: each cause's effect with its interval, and what is left unexplained."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwarm.analysis.contrast import Estimate, contrast, holm
from gpuwarm.analysis.controlled import BEFORE_DRIVER, Run, by_step
from gpuwarm.analysis.switches import ALL_COLD, DRIVER_FREE, JIT_FORBIDDEN, REFERENCE, SWITCHES, Remedy, Switch
from gpuwarm.metadata import Metadata

CLAIM_P = 0.05  # after Holm's adjustment over all effects of a study
STEP_SHARE = 0.1  # of an effect, from which a step is named as one it acts in
MAX_STEPS = 3

Status = Literal["measured", "ruled_out", "not_tested"]


@dataclass(frozen=True)
class Effect:
    """How much longer something takes where a cause is present."""

    ms: float
    interval_ms: tuple[float, float] | None  # 95 %; None: too few starts
    p_adjusted: float | None  # for all effects of the study
    claimed: bool  # by that, it is there


@dataclass(frozen=True)
class StepChange:
    """How much longer a step of a start takes where a cause is present."""

    step: str
    ms: float


@dataclass(frozen=True)
class Cause:
    """One switch and what it showed."""

    id: str
    cause: str
    does: str
    status: Status
    reason: str | None = None  # why it was not tested, or what rules it out
    first_result: Effect | None = None  # on the time from process start to the first result
    first_inference: Effect | None = None  # on the latency of that inference
    starts_with: int = 0
    starts_without: int = 0
    acts_in: tuple[StepChange, ...] = ()  # those that changed most
    remedy: Remedy | None = None

    @property
    def claimed(self) -> bool:
        """Whether any effect of it was shown."""
        return any(effect is not None and effect.claimed for effect in (self.first_result, self.first_inference))


@dataclass(frozen=True)
class Part:
    """One part of the time to the first result, in the order of a waterfall."""

    name: str  # a step's mark, a cause's id, or "unexplained"
    kind: Literal["step", "cause", "remainder"]
    ms: float
    interval_ms: tuple[float, float] | None
    share_pct: float


def totals_ms(runs: Sequence[Run]) -> list[float]:
    return [run.total_ms for run in runs]


def _with_driver_ms(runs: Sequence[Run]) -> list[float]:
    return [run.driver_ms for run in runs]


def _firsts_ms(runs: Sequence[Run]) -> list[float]:
    return [run.first_ms for run in runs]


# -- causes


def measured(runs: Mapping[str, list[Run]], meta: Metadata) -> tuple[Cause, ...]:
    """Those that were measured by the size of their effect, then the others."""
    compared = {switch.id: _compared(switch, runs) for switch in SWITCHES}
    estimates: dict[tuple[str, str], Estimate] = {}
    for switch_id, (present, absent) in compared.items():
        for response, of in (("result", _with_driver_ms), ("inference", _firsts_ms)):
            estimate = contrast([(1.0, of(runs.get(present, []))), (-1.0, of(runs.get(absent, [])))])
            if estimate is not None and present != absent:
                estimates[switch_id, response] = estimate
    adjusted = holm({key: it.p for key, it in estimates.items() if it.p is not None})
    effects = {
        key: Effect(it.value, it.interval, adjusted.get(key), adjusted.get(key, 1.0) < CLAIM_P)
        for key, it in estimates.items()
    }
    found = []
    for switch in SWITCHES:
        result, inference = (effects.get((switch.id, response)) for response in ("result", "inference"))
        if result is None or inference is None:
            found.append(_untested(switch, meta))
        else:
            found.append(_cause(switch, result, inference, [runs[arm] for arm in compared[switch.id]]))
    return tuple(sorted(found, key=_rank))


def _compared(switch: Switch, runs: Mapping[str, list[Run]]) -> tuple[str, str]:
    """The arms with and without the cause."""
    present, absent = (
        next((arm for arm in arms if runs.get(arm)), arms[0]) for arms in (switch.present, switch.absent)
    )
    return present, absent


def _cause(switch: Switch, result: Effect, inference: Effect, compared: Sequence[Sequence[Run]]) -> Cause:
    present, absent = compared
    shown = next((effect for effect in (result, inference) if effect.claimed), None)
    costs = shown is not None and shown.ms > 0
    return Cause(
        switch.id,
        switch.cause,
        switch.does,
        "measured",
        first_result=result,
        first_inference=inference,
        starts_with=len(present),
        starts_without=len(absent),
        acts_in=_acts_in(result.ms, present, absent) if result.claimed else (),
        remedy=None if shown is None else switch.where_it_costs if costs else switch.where_it_saves,
    )


def _untested(switch: Switch, meta: Metadata) -> Cause:
    if switch.id == "ptx-jit" and any(s.arm == JIT_FORBIDDEN and s.marks and s.failure is None for s in meta.starts):
        why = "a start that is forbidden to compile works, so nothing is compiled here"
        return Cause(switch.id, switch.cause, switch.does, "ruled_out", why)
    assert meta.study is not None
    why = meta.study.not_tested.get(switch.id, "the measurement ended before")
    return Cause(switch.id, switch.cause, switch.does, "not_tested", why)


def _acts_in(effect_ms: float, present: Sequence[Run], absent: Sequence[Run]) -> tuple[StepChange, ...]:
    """The steps that changed most, in the direction of the whole."""
    without = by_step(absent)
    changes = []
    for name, durations_ms in by_step(present).items():
        if name in BEFORE_DRIVER:
            continue
        change = contrast([(1.0, durations_ms), (-1.0, without.get(name, []))])
        if change is not None and change.value / effect_ms >= STEP_SHARE:
            changes.append(StepChange(name, change.value))
    return tuple(sorted(changes, key=lambda change: -abs(change.ms))[:MAX_STEPS])


def _rank(cause: Cause) -> tuple[bool, bool, float]:
    size = abs(cause.first_result.ms) if cause.first_result is not None else 0.0
    return (cause.status != "measured", not cause.claimed, -size)


def lacking(runs: Mapping[str, list[Run]], found: Sequence[Cause]) -> dict[str, list[Run]]:
    """For causes shown to change the first inference, the starts that lack what the reference has."""
    switches = {switch.id: switch for switch in SWITCHES}
    lacking = {}
    for cause in found:
        if cause.first_inference is not None and cause.first_inference.claimed:
            others = [arm for arm in _compared(switches[cause.id], runs) if arm != REFERENCE]
            if len(others) == 1:  # the driver's two arms are both others
                lacking[cause.id] = runs[others[0]]
    return lacking


# -- the time to the first result, part by part

TOTALS = {
    REFERENCE: "from rest, while sampled",
    DRIVER_FREE: "from rest, with no process of gpuwarm holding the driver",
    ALL_COLD: "with everything cold at once: driver not held, engine file on disk, nothing compiled yet",
}
_ON_TOP: dict[str, tuple[str, ...]] = {  # causes within a total that the reference's steps do not show
    REFERENCE: (),
    DRIVER_FREE: ("driver",),
    ALL_COLD: ("ptx-jit", "engine-file", "driver"),
}


def parts(runs: Mapping[str, list[Run]], found: Sequence[Cause], coldest: str, total_ms: float) -> tuple[Part, ...]:
    """The reference's steps, the causes that come on top in the coldest starts, and what then is left."""
    found_parts = []
    for name, durations_ms in by_step(runs[REFERENCE]).items():
        step = contrast([(1.0, durations_ms)])
        if step is not None:
            interval = None if step.interval is None else (max(0.0, step.interval[0]), step.interval[1])
            found_parts.append(Part(name, "step", step.value, interval, 100 * step.value / total_ms))
    totals, effects = Counter({coldest: 1}), Counter[str]()  # by arm: how often each enters what is left
    totals[REFERENCE] -= 1
    switches = {switch.id: switch for switch in SWITCHES}
    for cause in found:
        effect = cause.first_result
        if cause.id in _ON_TOP[coldest] and effect is not None and effect.claimed:
            found_parts.append(Part(cause.id, "cause", effect.ms, effect.interval_ms, 100 * effect.ms / total_ms))
            present, absent = _compared(switches[cause.id], runs)
            effects[present] -= 1
            effects[absent] += 1
    groups = [
        (1.0, [totals[arm] * run.total_ms + effects[arm] * run.driver_ms for run in runs[arm]])
        for arm in {*totals, *effects}
        if totals[arm] or effects[arm]
    ]
    left = contrast(groups) or Estimate(0.0, (0.0, 0.0))
    return (*found_parts, Part("unexplained", "remainder", left.value, left.interval, 100 * left.value / total_ms))


def remainder_note(left: Part) -> str:
    if left.ms == 0:
        return "the steps cover the whole time"
    if left.interval_ms is None:
        return "too few starts to tell it from nothing"
    low, high = left.interval_ms
    if low <= 0 <= high:
        return "not to be told from nothing"
    if left.ms < 0:
        return "negative, as causes overlap: together they cost less than one by one"
    return "in no switch tested here"
