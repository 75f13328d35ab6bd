"""Series with known answers."""

import measured
import numpy as np
import pytest

from gpuwarm.analysis import steady
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
