"""The answer of `explain` in a few sentences: what takes the time, and what was shown to change it."""

from collections.abc import Iterator

from gpuwarm.analysis.causes import step_name
from gpuwarm.analysis.effects import Cause, Explanation, Part
from gpuwarm.analysis.first_inference import ClockRise, FirstInference
from gpuwarm.analysis.switches import SWITCHES
from gpuwarm.analysis.words import duration

MOST_SHARE_PCT = 75.0  # of the time, which the parts named in the answer make up
MAX_PARTS = 4
SMALL_SHARE_PCT = 1.0  # of the time to the first result: an effect under it does not matter there


def answer(explanation: Explanation) -> str:
    """What takes the time, why the first inference is slow, and which causes make a difference here."""
    sentences = [
        f"The first result comes after {duration(explanation.total_ms)}: {_largest(explanation.parts)}.",
        *_about_first(explanation.first_inference),
        *_about_clock(explanation.clock),
    ]
    return " ".join(sentences)


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
    causes = {switch.id: switch.cause for switch in SWITCHES}
    explained = [
        f"{duration(part.value)} of that would go away without {causes[name]}"
        if name != "module-loading"
        else f"{duration(part.value)} of that is loading modules at their first use"
        for name, part in first.by_causes
    ]
    more = f", {'; '.join(explained)}" if explained else ""
    yield f"The first inference takes {duration(first.first_ms)}, a steady one {duration(first.steady_ms)}{more}."


def _about_clock(clock: ClockRise) -> Iterator[str]:
    if clock.rest_mhz is None or clock.load_mhz is None:
        return
    rise = f"{clock.rest_mhz:.0f} to {clock.load_mhz:.0f} MHz"
    if clock.risen == "before" and clock.lead_ms is not None:
        yield (
            f"The SM clock had risen from {rise} at least {duration(clock.lead_ms)} before the first inference: "
            "no clock ramp is in it."
        )
    elif clock.risen == "during":
        yield f"The SM clock rises from {rise} while it infers: the first inferences pay for that."
    elif clock.risen == "never at rest":
        yield "The SM clock is as high at rest as under load: no ramp is in the first inference."
