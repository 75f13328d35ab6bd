"""The advice that three engines on a real H200 must get; read off their traces by hand."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwarm.analysis import advice
from gpuwarm.analysis.advice import Advice
from gpuwarm.read.files import recordings
from gpuwarm.recording import Recording

SCRIPT = Path(__file__).parents[1] / "scripts" / "convert_traces.py"


@pytest.fixture(scope="module")
def converted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("h200")


@pytest.fixture
def advised(h200: Path, converted: Path) -> Callable[[str], Advice]:
    if not list(converted.iterdir()):
        subprocess.run([sys.executable, str(SCRIPT), str(h200 / "traces"), str(converted)], check=True)
    return lambda engine: advice.of(Recording.load(converted / f"h200_{engine}_continuous.npz"))


def test_the_heavy_engine_gets_slower_by_the_power_limit(advised: Callable[[str], Advice]) -> None:
    heavy = advised("heavy")
    assert heavy.behaviour == "slowdown"
    assert heavy.parts.gpu_ms == pytest.approx(2.84, abs=0.01)
    assert heavy.parts.host_ms == pytest.approx(2.90, abs=0.02)
    assert heavy.bound == "gpu"
    throttling = heavy.findings[0]
    assert throttling.summary == "the clock is held down by the power limit"
    assert "SM clock 1661 MHz against 1809 MHz" in throttling.evidence
    assert "616 W of 700 W" in throttling.evidence


def test_its_clock_rose_before_the_first_inference_and_fell_after_50_ms(advised: Callable[[str], Advice]) -> None:
    seen = [(state.source, round(state.sm_clock_mhz), state.from_ms) for state in advised("heavy").states]
    assert [(source, clock) for source, clock, _ in seen[:2]] == [("nvml", 345), ("nvml", 1980)]
    assert seen[1][2] == pytest.approx(-138, abs=15)  # while the context was made
    assert seen[-1] == ("gpu", 1661, pytest.approx(50, abs=10))


@pytest.mark.parametrize(("engine", "bound"), [("tiny", "host"), ("medium", "gpu")])
def test_what_moves_in_the_small_engines_is_laid_on_the_host_not_on_the_clock(
    engine: str, bound: str, advised: Callable[[str], Advice]
) -> None:
    small = advised(engine)
    assert small.bound == bound
    assert [(finding.id, finding.severity) for finding in small.findings] == [
        ("throttling", "ok"),
        ("host-unrest", "warning"),
    ]
    assert "what moves it is the host, not the GPU" in small.answer
    assert len([state for state in small.states if state.source == "gpu"]) == 1
    assert any("the host moves it, not the GPU's clock" in sentence for sentence in small.evidence)


def test_driver_context_and_imports_are_the_cold_start(advised: Callable[[str], Advice]) -> None:
    cold = advised("medium").cold_start
    assert cold.total_ms == pytest.approx(596.0, abs=0.1)
    largest = sorted(cold.phases, key=lambda phase: -phase.median_ms)[:3]
    assert {phase.name for phase in largest} == {"cuda_import", "driver_init", "context"}
    assert sum(phase.share_pct for phase in largest) > 90
    assert (cold.first_ms, cold.second_ms) == pytest.approx((0.263, 0.167), abs=0.001)


def test_trtexecs_own_default_warmup_leaves_its_median_too_fast(h200: Path) -> None:
    folder = h200 / "trtexec"
    ((_, joined),) = recordings([folder / "heavy_warmup0_times.json"], smi=folder / "heavy_smi.csv")
    told = advice.of(joined)
    assert told.behaviour == "slowdown"
    assert told.steady.median_ms == pytest.approx(3.37, abs=0.01)
    assert told.findings[0].summary == "the clock is held down by the power limit"
    default = next(row for row in told.bias if row.warmup_ms == 200)
    assert default.median_bias_pct == pytest.approx(-1.5, abs=0.2)
