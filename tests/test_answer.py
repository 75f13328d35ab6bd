"""The answer in words, for every behaviour there is."""

import pytest

from gpuwarm.analysis.answer import Before, answer
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.movement import Mover
from gpuwarm.analysis.steady import Behaviour, Judgement, Steady, Warmup

FREE = Finding("throttling", "ok", "none")
CAPPED = Finding("throttling", "info", "the clock is held down by the power limit")
HOST, CLOCK = Mover("host", ""), Mover("clock", "")
WARM = Warmup(58.0, iterations=21, recommended_ms=75.0, recommended_iterations=28, starts=5)
STEADY = Steady(2.84, 2.84, 2.87, 0.4, from_iteration=21, iterations=900, quantity="gpu")
EARLY = Before(first_ms=2.9, level_ms=2.64)


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
    assert told("warmup", steady=slow, moved=HOST).endswith("(-24 %) as the host gets faster, not the GPU.")


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
    start = "No warm-up length can be given: latency does not settle, "
    assert told("no_steady_state", moved=HOST) == f"{start}and what moves it is the host, not the GPU."
    assert told("no_steady_state", moved=CLOCK) == f"{start}with the SM clock."
    hot = Finding("throttling", "warning", "the clock is held down by temperature")
    assert told("no_steady_state", moved=CLOCK, throttling=hot) == (
        f"{start}with the SM clock, as the clock is held down by temperature."
    )
