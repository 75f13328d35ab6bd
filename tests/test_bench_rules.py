"""What the comparison of warm-up rules rests on: labelled traces, and other tools' rules as documented."""

import numpy as np
import pytest

from gpuwarm.recording import Floats
from scripts import rival_rules, steady_traces


def series(levels: Floats, *, seed: int = 1, noise: float = 0.01) -> tuple[Floats, Floats]:
    latency_ms = levels * (1 + noise * np.random.default_rng(seed).standard_normal(levels.size))
    return np.concatenate([[0.0], np.cumsum(latency_ms)[:-1]]), latency_ms


@pytest.mark.parametrize("family", steady_traces.FAMILIES)
def test_a_trace_is_within_the_tolerance_from_its_end_on_and_not_before(family: str) -> None:
    trace = steady_traces.make(family, "normal", 5)
    assert (np.diff(trace.elapsed_ms) > 0).all()
    if trace.end is not None:
        off = np.abs(trace.expected_ms / trace.expected_ms[-1] - 1)
        assert off[trace.end :].max() <= steady_traces.TOLERANCE + 1e-9
        assert trace.end == 0 or off[trace.end - 1] > steady_traces.TOLERANCE


def test_the_same_seed_gives_the_same_trace_and_another_another() -> None:
    one, same, other = (steady_traces.make("ramp", "heavy", seed).latency_ms for seed in (1, 1, 2))
    assert np.array_equal(one, same)
    assert not np.array_equal(one[:100], other[:100])


def test_fixed_times_answer_whatever_happens_unless_it_is_over_before() -> None:
    assert rival_rules.fixed_time(200.0)(*series(np.full(500, 1.0))).warmup_ms == 200.0
    assert rival_rules.fixed_time(200.0)(*series(np.full(100, 1.0))).warmup_ms is None


def test_stdrel_stops_after_half_a_second_where_it_is_quiet_and_goes_on_where_it_is_not() -> None:
    quiet = rival_rules.nvbench_stdrel(*series(np.full(3000, 1.0), noise=0.003))
    assert quiet.decided_ms == pytest.approx(500, abs=10)
    loud = rival_rules.nvbench_stdrel(*series(np.repeat([1.5, 1.0], [200, 3000]), noise=0.003))
    assert loud.decided_ms is None or loud.decided_ms > 800


def test_entropy_needs_its_299_values() -> None:
    assert rival_rules.nvbench_entropy(*series(np.full(250, 1.0))).decided_ms is None
    assert (rival_rules.nvbench_entropy(*series(np.full(20_000, 0.01))).decided_ms or 0.0) > 2.99


def test_perf_analyzer_takes_a_slow_drift_for_steady() -> None:
    drift = np.linspace(1.0, 1.3, 8000)
    assert rival_rules.perf_analyzer(*series(drift)).warmup_ms == 0.0


def test_pyperf_passes_over_one_slow_first_value() -> None:
    levels = np.full(400, 1.0)
    levels[:3] = 3.0
    answer = rival_rules.pyperf(*series(levels, noise=0.002))
    assert (answer.warmup_ms or 0.0) >= 9.0


def test_warmup_stats_tells_a_warmup_from_a_slowdown_and_a_late_change_from_both() -> None:
    for levels, behaviour in (
        (np.repeat([1.3, 1.0], [300, 1700]), "warmup"),
        (np.repeat([0.9, 1.0], [300, 1700]), "slowdown"),
        (np.repeat([1.0, 1.2], [1800, 200]), "no_steady_state"),
        (np.full(2000, 1.0), "flat"),
    ):
        assert rival_rules.warmup_stats(*series(levels)).behaviour == behaviour
