"""Series with known answers."""

from dataclasses import replace

import measured
import numpy as np
import pytest

from gpuwarm.analysis import steady
from gpuwarm.analysis.bias import curve
from gpuwarm.metadata import Metadata, Phase, Start
from gpuwarm.recording import ITERATION, SAMPLE, Floats, Recording


def noisy(levels: Floats, *, seed: int, noise: float = 0.01) -> Floats:
    return levels * (1 + noise * np.random.default_rng(seed).standard_normal(levels.size))


def recording(*latencies_ms: Floats) -> Recording:
    """Starts of back-to-back inference on the host's clock."""
    tables = []
    for start, latency in enumerate(latencies_ms):
        rows = np.zeros(latency.size, ITERATION)
        for name in ("enqueue_ns", "h2d_ns", "gpu_ns", "d2h_ns", "sm_clock_mhz"):
            rows[name] = np.nan
        rows["start"], rows["phase"] = start, 1
        rows["host_ns"] = latency * 1e6
        rows["t_ns"] = start * 10**11 + np.concatenate([[0], np.cumsum(latency * 1e6)[:-1]]).astype(np.int64)
        tables.append(rows)
    starts = tuple(Start(phases=(Phase("first"), Phase("busy"))) for _ in latencies_ms)
    return Recording(np.empty(0, SAMPLE), np.concatenate(tables), Metadata(starts=starts))


def test_a_constant_level_is_flat_and_needs_no_warmup() -> None:
    judgement = steady.judge(recording(noisy(np.full(2000, 1.0), seed=1)))
    assert judgement.behaviour == "flat"
    assert judgement.warmup.recommended_ms == 0


def test_one_slow_first_inference_is_a_warmup_of_one_iteration() -> None:
    levels = np.full(2000, 1.0)
    levels[0] = 5.0
    judgement = steady.judge(recording(noisy(levels, seed=2)))
    assert (judgement.behaviour, judgement.also) == ("warmup", ("slow_first",))
    assert judgement.warmup.iterations == 1


def test_a_cap_is_a_slowdown_and_a_short_benchmark_looks_too_fast() -> None:
    judgement = steady.judge(recording(noisy(np.repeat([1.0, 1.08], [100, 4000]), seed=3)), warmup_ms=(50,))
    assert judgement.behaviour == "slowdown"
    assert judgement.warmup.time_ms == pytest.approx(100, abs=20)
    none = judgement.bias[0]
    assert none.warmup_ms == 0
    assert none.mean_bias_pct == pytest.approx(-0.8 / 1.08, abs=0.1)


def test_a_spike_makes_up_in_the_mean_for_what_the_median_shows() -> None:
    levels = np.repeat([0.98, 1.2, 1.0], [900, 100, 3000])
    none = steady.judge(recording(noisy(levels, seed=3))).bias[0]
    assert none.mean_bias_pct == pytest.approx(0.0, abs=0.3)
    assert none.median_bias_pct == pytest.approx(-2.0, abs=0.3)


def test_the_recommendation_is_the_longest_of_the_starts_and_says_its_coverage() -> None:
    warmups = [noisy(np.repeat([1.5, 1.0], [slow, 3000]), seed=slow) for slow in (100, 150, 300)]
    warmup = steady.judge(recording(*warmups)).warmup
    assert warmup.time_ms == pytest.approx(450, rel=0.05)
    assert warmup.coverage == 0.75


def test_without_a_steady_state_there_is_no_number() -> None:
    wander = 1 + 0.01 * np.cumsum(np.random.default_rng(5).standard_normal(3000)) / 4
    judgement = steady.judge(recording(noisy(wander, seed=6, noise=0.005)))
    assert judgement.behaviour == "no_steady_state"
    assert judgement.warmup.recommended_ms is None


def test_a_few_iterations_are_too_short() -> None:
    assert steady.judge(recording(np.full(8, 1.0))).behaviour == "too_short"


def host_around_gpu(*, driven: bool) -> Recording:
    """Two seconds of a GPU-side 1 ms around which the host wanders by 8 %; `driven`: the GPU waits for its launches."""
    random = np.random.default_rng(3)
    n = 2000
    wander = 1 + 0.04 * np.repeat(random.choice([-1.0, 1.0], 20), n // 20)
    enqueue_ns = 0.5e6 * wander * random.normal(1, 0.01, n)
    gpu_ns = (2 * enqueue_ns if driven else np.full(n, 1e6)) * random.normal(1, 0.002, n)
    rows = np.zeros(n, ITERATION)
    rows["enqueue_ns"], rows["gpu_ns"], rows["host_ns"] = enqueue_ns, gpu_ns, gpu_ns + 2 * enqueue_ns
    rows["t_ns"] = np.concatenate([[0], np.cumsum(rows["host_ns"])[:-1]]).astype(np.int64)
    return Recording(np.zeros(0, SAMPLE), rows, Metadata())


def test_a_gpu_that_is_steady_under_a_restless_host_is_judged_by_its_own_time():
    judged = steady.judge(host_around_gpu(driven=False))
    assert judged.behaviour == "flat"
    assert "host_unsteady" in judged.also
    assert judged.steady.quantity == "gpu"


def test_a_gpu_that_waits_for_launches_has_no_time_of_its_own():
    assert steady.judge(host_around_gpu(driven=True)).behaviour == "no_steady_state"


def test_a_clock_that_hunts_about_a_level_is_followed_by_latency_and_said_to_be() -> None:
    """As under a power limit: 10 % to and fro each second, ever less."""
    t_s = np.arange(2500) * 2e-3
    for follows, said in ((True, "latency follows it from moment to moment"), (False, "latency did not follow it")):
        clock = 1500.0 * (1 + 0.06 * np.sin(2 * np.pi * t_s) * (t_s < 4))
        gpu_ms = 3000.0 / np.where(follows, 1500 + (clock - 1500) / 10, 1500)
        rows = measured.inference(0, measured.noisy(gpu_ms, seed=1, noise=0.0005), clock)
        judged = steady.judge(measured.recording(rows, samples=[measured.sampled(rows)]))
        assert any(said in sentence for sentence in judged.evidence), judged


def test_a_start_without_a_steady_state_lowers_the_coverage_and_is_named() -> None:
    wander = np.repeat([1.0, 1.1, 0.95, 1.08, 0.97, 1.05], 500)
    calm = [noisy(np.repeat([1.5, 1.0], [slow, 3000]), seed=slow) for slow in (100, 150, 200)]
    judgement = steady.judge(recording(*calm, noisy(wander, seed=9)))
    assert judgement.behaviour == "warmup"
    assert judgement.warmup.coverage == 3 / 5  # of four starts three were warm by then: the next is in 3 of 5
    assert judgement.warmup.starts == 4
    assert any("1 start of 4 found no steady state" in sentence for sentence in judgement.evidence)


def test_most_starts_without_a_steady_state_give_no_number() -> None:
    wander = np.repeat([1.0, 1.1, 0.95, 1.08, 0.97, 1.05], 500)
    calm = noisy(np.full(3000, 1.0), seed=1)
    judgement = steady.judge(recording(calm, noisy(wander, seed=2), noisy(wander, seed=3)))
    assert judgement.behaviour in ("no_steady_state", "cyclic")
    assert judgement.warmup.recommended_ms is None
    assert judgement.bias == ()


def test_within_one_start_the_interval_is_a_bootstrap_and_says_so() -> None:
    ramp = 1 + 0.5 * np.exp(-np.arange(6000) / 300)
    warmup = steady.judge(recording(noisy(ramp, seed=4, noise=0.03))).warmup
    assert warmup.interval_kind == "block bootstrap within one start"
    assert warmup.coverage is None
    assert warmup.interval_ms is not None
    low, high = warmup.interval_ms
    assert low <= (warmup.time_ms or 0.0) <= high
    assert low < high
    assert (warmup.recommended_ms or 0.0) >= high


def test_recommendations_are_numbers_a_person_would_type() -> None:
    assert [steady.round_up(value) for value in (0.0, 0.3, 7.2, 10.1, 63.0, 132.0, 999.0, 1234.0)] == [
        0.0, 1.0, 8.0, 11.0, 70.0, 140.0, 1000.0, 1300.0,
    ]  # fmt: skip
    values = np.geomspace(10, 1e6, 500)
    assert max(steady.round_up(value) / value for value in values) < 1.17


def test_the_bias_table_has_none_200_ms_the_recommendation_and_what_was_asked() -> None:
    judgement = steady.judge(recording(noisy(np.repeat([1.4, 1.0], [600, 4000]), seed=5)), warmup_ms=(400, 30))
    assert [row.warmup_ms for row in judgement.bias] == [0, 30, 200, 400, judgement.warmup.recommended_ms]
    means = [row.mean_bias_pct for row in judgement.bias]
    assert means[0] == pytest.approx(100 * _mean_bias(840), abs=0.5)
    assert means[-1] == pytest.approx(0.0, abs=0.3)
    assert means == sorted(means, reverse=True)


def test_a_bias_rests_on_a_tenth_of_a_second_and_ten_inferences_or_is_not_known() -> None:
    found = recording(noisy(np.repeat([1.4, 1.0], [50, 250]), seed=5))  # 320 ms
    none, soon, late = (
        steady.judge(found, warmup_ms=(15,)).bias[0],
        *steady.judge(found, warmup_ms=(215, 225)).bias[-2:],
    )
    assert none.measured_ms == pytest.approx(320, abs=1)
    assert none.inferences == 300
    assert (soon.warmup_ms, soon.inferences) == (215, pytest.approx(105, abs=1))
    assert soon.mean_bias_pct == pytest.approx(0, abs=0.3)
    assert soon.p99_bias_pct is not None
    assert (late.warmup_ms, late.mean_bias_pct, late.inferences) == (225, None, None)


def test_a_percentile_of_fewer_than_a_hundred_inferences_is_not_known() -> None:
    bias = steady.judge(recording(noisy(np.full(200, 20.0), seed=5))).bias[0]
    assert (bias.inferences, bias.measured_ms) == (pytest.approx(50, abs=1), 1000)
    assert bias.mean_bias_pct == pytest.approx(0, abs=0.5)
    assert bias.p99_bias_pct is None


def test_the_bias_between_the_rows_of_the_table_is_of_the_same_steady_states() -> None:
    found = measured.ramp()
    judged = steady.judge(found, warmup_ms=(30, 60))
    assert judged.warmup.ends_ms == pytest.approx((400, 400, 400), abs=10)
    lengths = [row.warmup_ms for row in judged.bias]
    assert curve(found, judged.warmup.ends_ms, judged.steady.quantity, lengths) == judged.bias


def _mean_bias(slow_ms: float) -> float:
    """Of the first second of iterations of 1.4 ms until `slow_ms` and of 1 ms afterwards."""
    slow, fast = slow_ms / 1.4, 1000 - slow_ms
    return (1.4 * slow + fast) / (slow + fast) - 1


def test_a_host_that_wanders_around_a_steady_gpu_leaves_the_gpus_own_time_to_judge() -> None:
    rows = measured.inference(0, noisy(measured.steps((1.8, 60), (2.0, 3000)), seed=6), 1980.0)
    rows["host_ns"] += 0.1e6 * np.repeat([0.0, 1.0, 0.2, 0.9, 0.1, 1.0], 510)
    judgement = steady.judge(measured.recording(rows))
    assert (judgement.behaviour, judgement.also) == ("slowdown", ("host_unsteady",))
    assert judgement.steady is not None
    assert judgement.steady.quantity == "gpu"
    assert judgement.steady.median_ms == pytest.approx(2.0, abs=0.01)


def test_a_clock_that_changes_at_the_end_takes_the_steady_state_away() -> None:
    clock = measured.steps((1980.0, 2900), (1600.0, 100))
    rows = measured.inference(0, noisy(np.full(3000, 2.0), seed=7), clock)
    judgement = steady.judge(measured.recording(rows))
    assert judgement.behaviour == "no_steady_state"
    assert "too late to see what it does to latency" in judgement.evidence[-1]


def test_the_state_does_not_lengthen_a_warmup_by_its_lag() -> None:
    rows = measured.inference(0, noisy(measured.steps((1.8, 60), (2.0, 3000)), seed=8), np.nan)
    samples = measured.sampled(rows, sm_clock_mhz=1980.0)
    samples["sm_clock_mhz"][samples["t_ns"] > rows["t_ns"][60] + 200 * measured.MS] = 1780.0
    with_state = steady.judge(measured.recording(rows, samples=[samples]))
    without = steady.judge(measured.recording(rows, samples=[]))
    assert with_state.warmup.time_ms == without.warmup.time_ms
    assert with_state.warmup.clock_warm_ms == pytest.approx(60 * 1.82, abs=20)


def test_clock_warm_and_heat_steady_are_two_times_where_they_differ() -> None:
    time_ms = np.arange(6000) * 2.0
    heat = 1 - 0.03 * np.exp(-time_ms / 1500)
    clock = measured.steps((1980.0, 40), (1800.0, 5960))
    gpu_ms = noisy(2.0 * heat * np.where(np.arange(6000) < 40, 0.9, 1.0), seed=9, noise=0.003)
    warmup = steady.judge(measured.recording(measured.inference(0, gpu_ms, clock))).warmup
    assert warmup.clock_warm_ms == pytest.approx(40 * 1.8, abs=20)
    assert warmup.heat_steady_ms == warmup.time_ms
    assert (warmup.time_ms or 0.0) > 1000


def test_what_a_file_leaves_out_is_part_of_the_recommendation() -> None:
    whole = recording(noisy(np.full(3000, 1.0), seed=10))
    start = replace(whole.meta.starts[0], removed_warmup_ms=200.0)
    judgement = steady.judge(replace(whole, meta=replace(whole.meta, starts=(start,))))
    assert judgement.behaviour == "flat"
    assert judgement.warmup.recommended_ms == 200.0
    assert any("the first 200 ms are not in the file" in sentence for sentence in judgement.evidence)
    assert judgement.bias[0].mean_bias_pct is None


def test_interleaved_streams_are_put_in_order() -> None:
    one = recording(noisy(np.repeat([1.3, 1.0], [300, 3000]), seed=11))
    order = np.arange(3300) ^ 1  # neighbours swapped, as two streams report
    swapped = replace(one, iterations=one.iterations[order])
    assert steady.judge(swapped).warmup == steady.judge(one).warmup


def test_iterations_of_seconds_are_judged_as_those_of_microseconds() -> None:
    for factor in (2e-2, 2e3):
        latency = noisy(np.repeat([1.2, 1.0], [15, 200 if factor > 1 else 20_000]), seed=12) * factor
        judgement = steady.judge(recording(latency))
        assert judgement.behaviour == "warmup"
        assert judgement.warmup.iterations == pytest.approx(15, abs=2)


def test_a_recording_without_iterations_is_too_short() -> None:
    judgement = steady.judge(Recording(np.empty(0, SAMPLE), np.empty(0, ITERATION), Metadata()))
    assert judgement.behaviour == "too_short"


def test_what_most_starts_did_decides_and_the_others_are_named() -> None:
    slowdowns = [noisy(np.repeat([0.9, 1.0], [200, 3000]), seed=seed) for seed in (1, 2)]
    judgement = steady.judge(recording(*slowdowns, noisy(np.repeat([1.2, 1.0], [200, 3000]), seed=3)))
    assert (judgement.behaviour, judgement.also) == ("slowdown", ("warmup",))
    assert judgement.per_start == ("slowdown", "slowdown", "warmup")


def test_rows_that_are_means_over_ten_inferences_are_counted_as_ten() -> None:
    one = recording(noisy(np.repeat([1.2, 1.0], [50, 3000]), seed=13))
    ten = replace(one, meta=replace(one.meta, inferences_per_row=10))
    single, tenfold = steady.judge(one), steady.judge(ten)
    assert tenfold.warmup.iterations == 10 * (single.warmup.iterations or 0) == 500
    assert (tenfold.warmup.recommended_iterations or 0) >= 500
    assert tenfold.warmup.time_ms == single.warmup.time_ms
