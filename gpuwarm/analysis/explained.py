"""The contract of `gpuwarm explain`: everything a recording of it says, and the answer in a few sentences."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from gpuwarm.analysis import controlled, effects
from gpuwarm.analysis.causes import step_name
from gpuwarm.analysis.contrast import contrast
from gpuwarm.analysis.effects import Cause, Part
from gpuwarm.analysis.first_inference import ClockRise, FirstInference, clock_rise, first_inference
from gpuwarm.analysis.switches import ALL_COLD, DRIVER_FREE, REFERENCE, SWITCHES
from gpuwarm.analysis.words import duration
from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState
from gpuwarm.metadata import Workload
from gpuwarm.recording import Recording

SCHEMA = "gpuwarm.explain/1"
MOST_SHARE_PCT = 75.0  # of the time, which the parts named in the answer make up
MAX_PARTS = 4
SMALL_SHARE_PCT = 1.0  # of the time to the first result: an effect under it does not matter there
NO_REASON_SHARE = 0.1  # of it: what takes no more than this, by its interval, is not what makes a start slow
_IN_FIRST = {  # what part of the first inference a switch's difference is
    "module-loading": "is loading modules at their first use",
    "rest": "is starting from rest",
    "other-context": "would not be there beside another process's context",
}


@dataclass(frozen=True)
class Explanation:
    """The contract of `explain --json`; what a person reads is rendered from it by `show/`."""

    source: str | None
    simulated: str | None
    gpu: GpuState | None
    workload: Workload
    repeats: int
    starts: int
    disturbed: int  # of them; left out
    made_again: int  # of them; in place of disturbed ones
    total_ms: float  # mean time to the first result, which the parts add up to
    total_interval_ms: tuple[float, float] | None
    total_is: str  # which starts that is of
    parts: tuple[Part, ...]
    remainder_note: str
    first_inference: FirstInference | None
    clock: ClockRise
    causes: tuple[Cause, ...]  # by the size of their effect, then those not measured
    notes: tuple[str, ...]
    answer: str  # a few sentences


def explain(recording: Recording, *, source: str | None = None) -> Explanation:
    """What a recording of `gpuwarm explain` shows.

    Raises:
        InputError: it is none, or was cut short before there was anything to compare.
    """
    meta = recording.meta
    if meta.study is None or meta.study.name != "explain":
        raise InputError("this recording holds no controlled starts: make one with `gpuwarm explain MODEL`")
    runs = controlled.runs(recording)
    coldest = next((arm for arm in (ALL_COLD, DRIVER_FREE, REFERENCE) if runs.get(arm)), None)
    total = None if coldest is None else contrast([(1.0, effects.totals_ms(runs[coldest]))])
    if coldest is None or total is None or REFERENCE not in runs:
        left_out = "".join(f"{sentence}; " for sentence in controlled.sentences(meta))
        raise InputError(f"this recording holds no start to compare the others with: {left_out}measure again")
    causes = effects.measured(runs, meta)
    parts = effects.parts(runs, causes, coldest, total.value)
    first = first_inference(runs[REFERENCE], effects.lacking(runs, causes))
    clock = clock_rise(recording)
    largest = f"The first result comes after {duration(total.value)}: {_largest(parts)}."
    return Explanation(
        source=meta.source or source,
        simulated=meta.simulated,
        gpu=meta.machine_before.gpus[0] if meta.machine_before and meta.machine_before.gpus else None,
        workload=meta.workload,
        repeats=meta.study.repeats,
        starts=len(meta.starts),
        disturbed=len(controlled.disturbances(meta)),
        made_again=meta.study.made_again,
        total_ms=total.value,
        total_interval_ms=None if total.interval is None else (max(0.0, total.interval[0]), total.interval[1]),
        total_is=effects.TOTALS[coldest],
        parts=parts,
        remainder_note=effects.remainder_note(parts[-1]),
        first_inference=first,
        clock=clock,
        causes=causes,
        notes=(*controlled.sentences(meta), *meta.notes),
        answer=" ".join(
            [largest, *_about_first(first), *_about_clock(clock, first), *_about_guesses(causes, total.value)]
        ),
    )


def part_name(part: Part) -> str:
    """A step by what it does, a cause by its own name."""
    causes = {switch.id: switch.cause for switch in SWITCHES}
    return causes[part.name] if part.kind == "cause" else step_name(part.name)


def matters(cause: Cause, total_ms: float) -> bool:
    """Whether an effect was shown that somebody may want to do something about."""
    result = cause.first_result
    large = result is not None and result.claimed and abs(result.ms) >= SMALL_SHARE_PCT / 100 * total_ms
    return large or (cause.first_inference is not None and cause.first_inference.claimed)


def _largest(parts: tuple[Part, ...]) -> str:
    named: list[Part] = []
    for part in sorted(parts, key=lambda part: -part.ms)[:MAX_PARTS]:
        if sum(each.share_pct for each in named) < MOST_SHARE_PCT:
            named.append(part)
    return ", ".join(f"{part.share_pct:.0f} % {part_name(part)} ({duration(part.ms)})" for part in named)


def _about_first(first: FirstInference | None) -> Iterator[str]:
    if first is None:
        return
    shown = [(cause, part) for cause, part in first.by_causes if not part.covers(0.0)]
    explained = [f"{duration(part.value)} of that {_IN_FIRST[cause]}" for cause, part in shown]
    more = f", {'; '.join(explained)}" if explained else ""
    yield f"The first inference takes {duration(first.first_ms)}, a steady one {duration(first.steady_ms)}{more}."


def _about_clock(clock: ClockRise, first: FirstInference | None) -> Iterator[str]:
    if clock.rest_mhz is None or clock.load_mhz is None:
        yield "The SM clock was not seen: whether a clock ramp is in the first inference is not shown."
        return
    rise = f"{clock.rest_mhz:.0f} to {clock.load_mhz:.0f} MHz"
    if clock.risen == "before" and clock.lead_ms is not None:
        yield (
            f"The SM clock had risen from {rise} at least {duration(clock.lead_ms)} before the first inference: "
            "no clock ramp is in it."
        )
    elif clock.risen == "during":
        unsure = first is None or first.until_warm.covers(0.0)
        pay = (
            "how much the first inferences pay for that is not shown" if unsure else "the first inferences pay for that"
        )
        yield f"The SM clock rises from {rise} while it infers: {pay}."
    elif clock.risen == "never at rest":
        yield "The SM clock is as high at rest as under load: no ramp is in the first inference."
    else:
        yield f"The SM clock rises from {rise}; whether a clock ramp is in the first inference is not shown."


def _about_guesses(causes: Sequence[Cause], total_ms: float) -> Iterator[str]:
    """What is guessed most often besides the clock, by name: compilation at first use, and persistence off."""
    found = {cause.id: cause for cause in causes}
    jit, driver = found["ptx-jit"], found["driver"]
    if jit.status == "ruled_out":
        yield "No PTX is compiled at first use."
    elif jit.first_result is not None and jit.first_result.claimed:
        yield f"Compiling PTX at first use takes {duration(jit.first_result.ms)}."
    if driver.first_result is not None and driver.first_result.claimed:
        takes = duration(driver.first_result.ms)
        yield f"Loading the driver, as nothing holds it (persistence mode would), takes {takes}."
    elif driver.first_result is not None:
        at_most = driver.first_result.interval_ms
        if at_most is not None and at_most[1] < NO_REASON_SHARE * total_ms:
            yield "Loading the driver is not shown to cost a start anything, so persistence is not the reason."
        else:
            yield "Whether loading the driver costs a start anything (persistence mode would save it) is not shown."


def to_json(explanation: Explanation) -> dict[str, Any]:
    """The explanation under the names of the contract."""
    return {"schema": SCHEMA, **msgspec.to_builtins(explanation)}
