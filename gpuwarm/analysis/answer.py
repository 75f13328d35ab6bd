"""The answer in one or two sentences: how long to warm up, or why no length helps."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuwarm.analysis.averages import Average
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.limits import CLOCK_DROP_SHARE, LOW_CLOCK_SHARE
from gpuwarm.analysis.movement import Mover
from gpuwarm.analysis.pace import Pace
from gpuwarm.analysis.steady import Judgement, Steady, Warmup, round_up
from gpuwarm.analysis.stretch import Quantity, Stretch, stretches
from gpuwarm.analysis.words import count, duration, number, percent
from gpuwarm.machine import GpuState
from gpuwarm.recording import Recording

SAME_SHARE = 0.01  # levels this near are one in words
FEW_ITERATIONS = 3  # slow for being first, not for want of time: said in iterations
AT_FIRST_MS = 25.0  # what a short benchmark without warm-up sees; an H200's power limit bites after 50 ms
AT_FIRST_SHARE = 0.5  # of the time of the warm-up, where that is shorter
AT_FIRST_MIN = 5  # iterations, so that one or two slow ones do not stand for all
PARTS = 20  # of the time before steady, whose medians are compared: a single quick inference is none


@dataclass(frozen=True)
class Before:
    """Latency before the warm-up was over."""

    first_ms: float  # the very first's
    level_ms: float  # median at first
    fastest_ms: float  # the least that lasted


def before(recording: Recording, found: Sequence[Stretch], judged: Judgement) -> Before | None:
    """What the middle start saw, of two the slower; None where there is no warm-up."""
    if judged.steady is None or not judged.warmup.time_ms:
        return None
    seen = []
    until_ms = min(AT_FIRST_MS, AT_FIRST_SHARE * judged.warmup.time_ms)
    for stretch in _of_quantity(recording, found, judged.steady.quantity):
        first, warm = np.searchsorted(stretch.elapsed_ms, (until_ms, judged.warmup.time_ms)).tolist()
        at_first = stretch.latency_ms[: max(AT_FIRST_MIN, first)]
        medians = [np.median(part) for part in np.array_split(stretch.latency_ms[: max(1, warm)], PARTS) if part.size]
        seen.append((stretch.latency_ms[0], np.median(at_first), min(medians)))
    # One that was seen: a mean of two starts, one warm already, is neither's.
    middle = np.sort(seen, axis=0)[len(seen) // 2] if seen else None
    return None if middle is None else Before(*middle.tolist())


def _of_quantity(recording: Recording, found: Sequence[Stretch], quantity: Quantity) -> Sequence[Stretch]:
    same = all(stretch.quantity == quantity for stretch in found)
    return found if same else stretches(recording, quantity=quantity)


def answer(
    judged: Judgement, early: Before | None, throttling: Finding, moved: Mover | None, unrest: Finding | None = None
) -> str:
    """One or two sentences for a person who asked how long to warm up; and what no warm-up ends, if anything."""
    told = _answer(judged, early, throttling, moved)
    unsettled = judged.warmup.unsettled
    if judged.steady is not None and unsettled:
        of = count(judged.warmup.starts, "start")
        told += f" In {unsettled} of {of} latency did not settle.{_mean(judged.average)}"
    return told if unrest is None else f"{told} {unrest.summary}, which no warm-up ends. {unrest.advice}"


def paced(pace: Pace, gpu: GpuState | None) -> str:
    """What pauses between inferences make of the GPU: it may not raise its clock for so little work, or not keep it."""
    told = f"All this is at {pace.words}, which {pace.load}"
    clock_mhz, between_mhz = pace.sm_clock_mhz, pace.between_mhz
    if clock_mhz is None:
        return f"{told}."
    told += f": the SM clock is {clock_mhz:.0f} MHz while it infers"
    max_mhz = None if gpu is None else gpu.sm_clock_max_mhz
    low = max_mhz is not None and clock_mhz < LOW_CLOCK_SHARE * max_mhz
    falls = between_mhz is not None and between_mhz < (1 - CLOCK_DROP_SHARE) * clock_mhz
    told += f", {100 * clock_mhz / max_mhz:.0f} % of its maximum" if max_mhz and low else ""
    told += f", and falls to {between_mhz:.0f} MHz in between" if falls else ""
    if not falls and not low:
        return f"{told}."
    return f"{told}. `gpuwarm run` without --interval-ms shows what a full load reaches, `gpuwarm idle` what keeps it."


def _answer(judged: Judgement, early: Before | None, throttling: Finding, moved: Mover | None) -> str:
    unsettled = judged.behaviour in ("drift", "no_steady_state", "too_short")
    if unsettled or judged.steady is None or judged.warmup.recommended_ms is None:
        return _no_steady_state(judged, throttling, moved) + _mean(judged.average)
    level = duration(judged.steady.median_ms) + _where(judged.steady)
    if judged.behaviour == "cyclic":
        return f"{_cycles(judged)} From {_length(judged.warmup)} on its periods are alike: measure over whole periods."
    if early is None:
        done = f"Warm up {_length(judged.warmup)}, as was done here: latency is {level} from then on."
        return (
            done
            if judged.warmup.recommended_ms
            else f"No warm-up is needed: latency is {level} from the first inference on."
        )
    if judged.behaviour == "slowdown":
        at_first = early.level_ms < judged.steady.median_ms * (1 - SAME_SHARE)
        from_ms, when = (early.level_ms, "at first") if at_first else (early.fastest_ms, "at its fastest")
        slower = percent(100 * (judged.steady.median_ms / from_ms - 1))
        return (
            f"There is no warm-up here, this engine gets slower: from {duration(from_ms)} {when} to {level} "
            f"({slower}) within {duration(judged.warmup.time_ms or 0.0)}{_held_down(throttling)}. To measure what it "
            f"sustains, let {_length(judged.warmup)} pass."
        )
    return _warms_up(judged, judged.steady, early, moved)


def _warms_up(judged: Judgement, steady: Steady, early: Before, moved: Mover | None) -> str:
    where = _where(steady)
    level = duration(steady.median_ms) + where
    if (judged.warmup.iterations or 0) <= FEW_ITERATIONS:
        return (
            f"Only the start is slow: {duration(early.first_ms)}{where} for the first inference, "
            f"{duration(steady.median_ms)} once warm. "
            f"Warm up with {count(judged.warmup.recommended_iterations or 0, 'iteration')}."
        )
    if abs(steady.median_ms / early.level_ms - 1) < SAME_SHARE:
        return (
            f"Warm up {_length(judged.warmup)}: until then single inferences are slow or latency wanders about {level}."
        )
    faster = percent(100 * (steady.median_ms / early.level_ms - 1))
    way = f"from {duration(early.level_ms)} at first to {level} ({faster})"
    if steady.median_ms >= early.level_ms:  # slow somewhere in between
        return f"Warm up {_length(judged.warmup)}: until then latency has not settled; it goes {way}."
    by = {"host": " as the host gets faster, not the GPU", "clock": " as the GPU's clock rises"}
    return f"Warm up {_length(judged.warmup)}: latency falls {way}{'' if moved is None else by[moved.cause]}."


def _where(steady: Steady) -> str:
    return " on the GPU" if steady.quantity == "gpu" else ""


def _length(warmup: Warmup) -> str:
    return f"{number(warmup.recommended_ms or 0.0)} ms ({count(warmup.recommended_iterations or 0, 'iteration')})"


def _held_down(throttling: Finding) -> str:
    return f", as {throttling.summary}" if throttling.severity in ("info", "warning") else ""


def _cycles(judged: Judgement) -> str:
    period = "" if judged.period_ms is None else f" with a period of {duration(judged.period_ms)}"
    return f"Latency goes up and down{period}."


def _no_steady_state(judged: Judgement, throttling: Finding, moved: Mover | None) -> str:
    if judged.behaviour == "too_short":
        return "Too short to say how long to warm up: measure longer (--duration)."
    if judged.behaviour == "cyclic":
        return f"{_cycles(judged)} No warm-up ends that: measure over whole periods."
    moves = "latency does not settle"
    if judged.behaviour == "drift" and judged.slope_pct_per_s is not None:
        moves = f"latency still moves by {percent(judged.slope_pct_per_s)} a second at the end"
    if moved is None:
        return f"No warm-up length can be given: {moves}. Measure longer (--duration)."
    if moved.cause == "host":
        return f"No warm-up length can be given: {moves}, and what moves it is the host, not the GPU."
    longer = "" if judged.average else " Measure longer (--duration)."
    return f"No warm-up length can be given: {moves}. It goes with the SM clock{_held_down(throttling)}.{longer}"


def _mean(average: Average | None) -> str:
    """What can be quoted all the same."""
    if average is None:
        return ""
    since = f"after {number(round_up(average.from_ms))} ms each" if average.from_ms else "each"
    return (
        f" A mean over {duration(average.window_ms)} can be quoted: {since} is within {average.spread_pct:.2g} % of "
        f"{duration(average.level_ms)}."
    )
