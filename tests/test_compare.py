"""Is B as fast as A? Recordings whose steady latency and clock are known."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from gpuwarm import cli
from gpuwarm.analysis.compare import Comparison, compare
from gpuwarm.cli import compare as command  # noqa: F401 -- registers itself
from gpuwarm.errors import InputError
from gpuwarm.machine import HostState
from gpuwarm.metadata import Mark, Metadata, Phase, Start, Study, Workload
from gpuwarm.recording import ITERATION, SAMPLE, Recording
from gpuwarm.show.comparison import sections
from tests.examples import GEFORCE, staircase


def flat(*levels_ms: float, clock_mhz: float = 1900.0, noise: float = 0.005) -> Recording:
    """A start for each level, 600 iterations at it; the GPU takes nine tenths of a latency."""
    random = np.random.default_rng(round(1e6 * sum(levels_ms)))
    tables = []
    for number, level_ms in enumerate(levels_ms):
        rows = np.zeros(600, ITERATION)
        rows["start"], rows["phase"] = number, 1
        rows["host_ns"] = level_ms * 1e6 * (1 + noise * random.standard_normal(600))
        rows["gpu_ns"], rows["enqueue_ns"], rows["sm_clock_mhz"] = 0.9 * rows["host_ns"], 20e3, clock_mhz
        rows["h2d_ns"] = rows["d2h_ns"] = math.nan
        rows["t_ns"] = 10**10 * (number + 1) + np.concatenate([[0], np.cumsum(rows["host_ns"][:-1])])
        tables.append(rows)
    starts = tuple(
        Start(marks=(Mark("process_start", 10**10 * (number + 1) - 10**9),), phases=(Phase("first"), Phase("busy")))
        for number in range(len(levels_ms))
    )
    staircases = staircase(starts=1).meta
    meta = Metadata(
        starts=starts,
        workload=Workload(name="net"),
        machine_before=staircases.machine_before,
        versions={"driver": "580"},
    )
    return Recording(np.zeros(0, SAMPLE), np.concatenate(tables), meta)


A = flat(2.0, 2.004, 1.996, 2.002)


def compared(a: Recording, b: Recording, *, tolerance: float = 0.01) -> Comparison:
    return compare(a, b, tolerance=tolerance, sources=("a.npz", "b.npz"))


def test_a_difference_beyond_the_tolerance_is_found_with_its_size():
    found = compared(A, flat(2.1, 2.104, 2.096, 2.102))
    assert found.outcome == "slower"
    assert found.change.pct == pytest.approx(5.0, abs=0.2)
    assert found.change.interval_pct[0] < 5.0 < found.change.interval_pct[1]
    assert found.change.basis == "starts"
    assert found.answer.startswith("B is slower than A: steady latency +5.0 % (95 %: +")


def test_the_other_way_round_it_is_faster():
    assert compared(flat(2.1, 2.104, 2.096, 2.102), A).outcome == "faster"


def test_starts_that_differ_within_the_tolerance_are_the_same():
    found = compared(A, flat(2.001, 2.005, 1.997, 2.003))
    assert found.outcome == "same"
    assert "within 1 %" in found.answer


def test_starts_that_scatter_too_much_are_not_decided():
    found = compared(flat(1.9, 2.1, 2.0), flat(2.3, 1.95, 2.02))
    assert found.outcome == "undecided"
    assert found.change.interval_pct[0] < -1 < 1 < found.change.interval_pct[1]
    assert "Measure more starts" in found.answer


def test_a_wider_tolerance_makes_more_the_same():
    b = flat(2.04, 2.044, 2.036, 2.042)
    assert compared(A, b).outcome == "slower"
    assert compared(A, b, tolerance=0.05).outcome == "same"


def test_one_start_gives_an_interval_of_what_happens_within_it_and_says_so():
    found = compared(flat(2.0), flat(2.1))
    assert found.outcome == "slower"
    assert found.change.basis == "blocks within starts"
    assert any("a single start" in reason for reason in found.reasons)
    assert not any("a single start" in reason for reason in compared(A, A).reasons)


def test_a_lower_clock_explains_as_much_latency():
    slow = flat(2.2, 2.204, 2.196, clock_mhz=1900 / 1.1)
    found = compared(A, slow)
    assert found.change.predicted_by_clock_pct == pytest.approx(10.0)
    assert found.answer.endswith("as its SM clock explains.")
    assert not compared(A, flat(2.2, 2.204, 2.196)).answer.endswith("explains.")
    assert "explains" not in compared(A, flat(2.2, 2.204, 2.196, clock_mhz=1900 / 1.03)).answer


def test_without_a_steady_state_nothing_is_compared():
    drifting = flat(2.0, 2.0, 2.0)
    drifting.iterations["host_ns"] *= np.tile(np.linspace(1, 3, 600), 3)
    drifting.iterations["gpu_ns"] = 0.9 * drifting.iterations["host_ns"]
    found = compared(A, drifting)
    assert found.outcome == "not_comparable"
    assert found.answer == "Not comparable: no steady latency in B."


def test_starts_that_differ_on_purpose_are_not_pooled():
    made = flat(2.0, 2.0)
    study = replace(made, meta=replace(made.meta, study=Study("explain", 2, 0)))
    with pytest.raises(InputError, match=r"b\.npz is of `gpuwarm explain`, whose starts differ on purpose"):
        compare(made, study, sources=("a.npz", "b.npz"))


def test_the_gpus_own_time_is_compared_where_one_has_no_other():
    """A trtexec times file knows no time to synchronised."""
    b = flat(2.0, 2.004, 1.996, 2.002)
    b.iterations["host_ns"] = math.nan
    found = compared(A, b)
    assert found.change.quantity == "gpu"
    assert found.outcome == "same"
    assert found.a.latency_ms == pytest.approx(1.8, abs=0.01)


def test_what_was_set_up_otherwise_is_listed_and_what_one_does_not_tell_is_not():
    host = HostState(hostname="node1", environment={"CUDA_MODULE_LOADING": "EAGER"})
    state = replace(A.meta.machine_before, gpus=(replace(GEFORCE, power_limit_w=150.0, ecc_mode="on"),), host=host)
    meta = replace(A.meta, machine_before=state, versions={"driver": "590", "tensorrt": "10"})
    found = compared(A, replace(A, meta=meta))
    assert [(each.name, each.a, each.b) for each in found.differences] == [
        ("driver", "580", "590"),
        ("power limit (W)", "200", "150"),
    ]


def test_measured_against_simulated_is_said_first():
    b = replace(A, meta=replace(A.meta, simulated="geforce"))
    found = compared(A, b)
    assert found.reasons[0] == "A is measured, B is simulated (geforce)"


def test_numbers_of_both_stand_beside_each_other():
    found = compared(A, flat(2.1, 2.104, 2.096, 2.102))
    table = next(section.table for section in sections(found) if section.title == "Numbers")
    rows = {row[0]: row[1:] for row in table.rows}
    assert rows["steady latency"] == ("2 ms", "2.1 ms", "+5.0 %")
    assert rows["SM clock"] == ("1900 MHz", "1900 MHz", "0 %")
    assert "power" not in rows


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    made = {
        "a": A,
        "slower": flat(2.1, 2.104, 2.096, 2.102),
        "faster": flat(1.9, 1.904, 1.896),
        "wide": flat(1.9, 2.1, 2.0),
    }
    for name, recording in made.items():
        recording.save(tmp_path / f"{name}.npz")
    return {name: tmp_path / f"{name}.npz" for name in made}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, ["compare", *(str(argument) for argument in arguments)])


@pytest.mark.parametrize(
    ("b", "fail_on", "code"),
    [
        ("a", "undecided", 0),
        ("slower", "slower", 3),
        ("faster", "slower", 0),
        ("faster", "different", 3),
        ("wide", "different", 0),
        ("wide", "undecided", 3),
    ],
)
def test_the_exit_code_is_what_was_asked_for(files: dict[str, Path], b: str, fail_on: str, code: int):
    assert run(files["a"], files[b], "--fail-on", fail_on).exit_code == code


def test_it_prints_the_answer_or_json(files: dict[str, Path]):
    text = run(files["a"], files["slower"]).stdout
    assert text.startswith("B is slower than A: steady latency +5.0 %")
    assert "Outcome     slower" in text
    content = json.loads(run(files["a"], files["slower"], "--json", "--tolerance", 10).stdout)
    assert content["schema"] == "gpuwarm.compare/1"
    assert content["outcome"] == "same"
    assert content["a"]["source"] == str(files["a"])
