"""The answer in words, for every behaviour there is."""

import measured
import numpy as np
import pytest

from gpuwarm.analysis.answer import Before, answer, before
from gpuwarm.analysis.averages import Average
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.movement import Mover
from gpuwarm.analysis.steady import Behaviour, Judgement, Steady, Warmup, judge
from gpuwarm.analysis.stretch import stretches

FREE = Finding("throttling", "ok", "none")
CAPPED = Finding("throttling", "info", "the clock is held down by the power limit")
HOST, CLOCK = Mover("host", ""), Mover("clock", "")
WARM = Warmup(58.0, iterations=21, recommended_ms=75.0, recommended_iterations=28, starts=5)
STEADY = Steady(2.84, 2.84, 2.87, 0.4, from_iteration=21, iterations=900, quantity="gpu")
EARLY = Before(first_ms=2.9, level_ms=2.64, fastest_ms=2.64)


def told(
    behaviour: Behaviour,
    *,
    throttling: Finding = FREE,
    moved: Mover | None = None,
    steady: Steady | None = None,
    **evidence: float,
) -> str:
    judged = Judgement(behaviour, warmup=WARM if steady else Warmup(), steady=steady, **evidence)
    return answer(judged, EARLY if steady else None, throttling, moved)


def test_a_slowdown_is_no_warmup_and_names_what_holds_the_clock_down() -> None:
    assert told("slowdown", steady=STEADY, throttling=CAPPED) == (
        "There is no warm-up here, this engine gets slower: from 2.64 ms at first to 2.84 ms on the GPU (+7.6 %) "
        "within 58 ms, as the clock is held down by the power limit. "
        "To measure what it sustains, let 75 ms (28 iterations) pass."
    )


def test_a_warmup_of_the_host_is_not_the_gpus() -> None:
    slow = Steady(2.0, 2.0, 2.1, 0.4, 21, 900)
    assert told("warmup", steady=slow) == (
        "Warm up 75 ms (28 iterations): latency falls from 2.64 ms at first to 2 ms (-24 %)."
    )
    assert told("warmup", steady=slow, moved=CLOCK).endswith("(-24 %) as the GPU's clock rises.")
    assert told("warmup", steady=slow, moved=HOST).endswith("(-24 %) as the host gets faster, not the GPU.")


def test_a_level_that_stays_does_not_fall() -> None:
    assert told("warmup", steady=Steady(2.65, 2.7, 2.8, 0.4, 21, 900)) == (
        "Warm up 75 ms (28 iterations): until then single inferences are slow or latency wanders about 2.65 ms."
    )


def test_a_level_that_ends_higher_does_not_fall() -> None:
    said = told("warmup", steady=Steady(2.8, 2.8, 2.9, 0.4, 21, 900))
    assert said.endswith("until then latency has not settled; it goes from 2.64 ms at first to 2.8 ms (+6.1 %).")


@pytest.mark.parametrize(
    ("behaviour", "evidence", "text"),
    [
        ("too_short", {}, "Too short to say how long to warm up: measure longer (--duration)."),
        (
            "no_steady_state",
            {},
            "No warm-up length can be given: latency does not settle. Measure longer (--duration).",
        ),
        (
            "drift",
            {"slope_pct_per_s": 0.42},
            "No warm-up length can be given: latency still moves by +0.4 % a second at the end. "
            "Measure longer (--duration).",
        ),
        (
            "cyclic",
            {"period_ms": 320.0},
            "Latency goes up and down with a period of 320 ms. No warm-up ends that: measure over whole periods.",
        ),
    ],
)
def test_without_a_steady_state_no_length_is_given(behaviour: Behaviour, evidence: dict[str, float], text: str) -> None:
    assert told(behaviour, **evidence) == text


def test_cycles_that_settle_into_themselves_have_a_length() -> None:
    assert told("cyclic", steady=STEADY, period_ms=320.0) == (
        "Latency goes up and down with a period of 320 ms. "
        "From 75 ms (28 iterations) on its periods are alike: measure over whole periods."
    )


def test_what_keeps_latency_moving_is_named() -> None:
    start = "No warm-up length can be given: latency does not settle"
    assert told("no_steady_state", moved=HOST) == f"{start}, and what moves it is the host, not the GPU."
    clock = f"{start}. It goes with the SM clock"
    assert told("no_steady_state", moved=CLOCK) == f"{clock}. Measure longer (--duration)."
    hot = Finding("throttling", "warning", "the clock is held down by temperature")
    assert told("no_steady_state", moved=CLOCK, throttling=hot) == (
        f"{clock}, as the clock is held down by temperature. Measure longer (--duration)."
    )


def test_at_first_is_what_a_short_benchmark_sees_however_long_it_takes_to_settle() -> None:
    """As an H200 at its power limit: 2.9 ms for 60 ms, then 3.0, 3.15 ms from 2 s on."""
    level = measured.steps((2.9, 20), (3.0, 650), (3.15, 1000))
    recording = measured.recording(measured.inference(0, level), measured.inference(1, level))
    judged = Judgement("slowdown", warmup=Warmup(2012.0), steady=STEADY)
    assert before(recording, stretches(recording), judged).level_ms == pytest.approx(2.9)


def test_what_no_warmup_ends_is_said_with_what_helps() -> None:
    unrest = Finding("host-unrest", "warning", "What the caller waits for wanders", advice="What helps: a spin wait.")
    judged = Judgement("no_steady_state")
    assert answer(judged, None, FREE, HOST, unrest) == (
        "No warm-up length can be given: latency does not settle, and what moves it is the host, not the GPU. "
        "What the caller waits for wanders, which no warm-up ends. What helps: a spin wait."
    )


def test_a_mean_that_can_be_quoted_is_told_where_no_latency_can() -> None:
    judged = Judgement("no_steady_state", average=Average(1000.0, from_ms=130.0, level_ms=3.54, spread_pct=1.153))
    said = answer(judged, None, CAPPED, CLOCK)
    assert said.endswith("A mean over 1 s can be quoted: after 130 ms each is within 1.2 % of 3.54 ms.")
    judged = Judgement("cyclic", period_ms=1000.0, average=Average(1000.0, from_ms=0.0, level_ms=3.5, spread_pct=0.5))
    said = answer(judged, None, FREE, None)
    assert said.endswith("A mean over 1 s can be quoted: each is within 0.5 % of 3.5 ms.")


def test_an_engine_that_warms_up_and_then_slows_down_gets_slower_from_its_fastest() -> None:
    latency_ms = np.concatenate([np.full(40, 2.5), np.full(2000, 2.0), np.full(3000, 2.4)])
    recording = measured.recording(measured.inference(0, latency_ms, 1500.0))
    judged = judge(recording)
    early = before(recording, stretches(recording), judged)
    said = answer(judged, early, FREE, None)
    assert "gets slower: from 2.02 ms at its fastest to 2.42 ms" in said
    assert "(+20 %)" in said


def test_of_two_starts_one_that_was_seen_is_told() -> None:
    ramp, warm = np.repeat([3.0, 2.0], [80, 1500]), np.full(1580, 2.0)
    recording = measured.recording(*(measured.inference(at, each, 1500.0) for at, each in enumerate((ramp, warm))))
    early = before(recording, stretches(recording), judge(recording))
    assert early is not None
    assert (early.first_ms, early.level_ms) == (pytest.approx(3.0, rel=0.01), pytest.approx(3.0, rel=0.01))


def test_starts_that_did_not_settle_are_told_with_a_mean_that_holds_in_all() -> None:
    warm = Warmup(58.0, iterations=21, recommended_ms=75.0, recommended_iterations=28, starts=3, ends_ms=(58, None, 40))
    judged = Judgement("warmup", warmup=warm, steady=STEADY, average=Average(1000.0, 200.0, 2.85, spread_pct=0.8))
    said = answer(judged, EARLY, FREE, None)
    assert said.endswith(
        "In 1 of 3 starts latency did not settle. "
        "A mean over 1 s can be quoted: after 200 ms each is within 0.8 % of 2.85 ms."
    )
