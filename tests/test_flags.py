"""Lines to paste: the length that was found, in each tool's own words."""

from dataclasses import replace

import pytest

from gpuwarm.analysis.flags import flags
from gpuwarm.analysis.pace import Pace
from gpuwarm.analysis.steady import Warmup
from gpuwarm.metadata import Metadata, Tensor, Workload

WARM = Warmup(time_ms=70.0, iterations=26, recommended_ms=75.0, recommended_iterations=28)
IMAGES = Workload(inputs=(Tensor("images", (8, 3, 224, 224), "float16"),), batch=8)


def lines(workload: Workload = IMAGES, *, tensorrt: str = "10.13.3", behaviour="warmup", warmup: Warmup = WARM):
    return flags(Metadata(versions={"tensorrt": tensorrt}, workload=workload), behaviour, warmup)


def test_each_tool_is_told_in_its_own_unit() -> None:
    found, notes = lines()
    assert (found["trtexec"], found["perf_analyzer"], found["polygraphy"]) == (
        "--warmUp=75",
        "--warmup-request-count=28",
        "--warm-up 28",
    )
    assert notes == ()


def test_trtexec_takes_whole_milliseconds_and_never_fewer() -> None:
    assert lines(warmup=replace(WARM, recommended_ms=1.5))[0]["trtexec"] == "--warmUp=2"


def test_trtexec_11_must_be_told_not_to_capture_a_graph() -> None:
    found, notes = lines(tensorrt="11.4.0")
    assert found["trtexec"] == "--warmUp=75 --noCudaGraph"
    assert "the first inference is never seen" in notes[0]


def test_the_plans_own_version_counts_where_no_runtime_is_known() -> None:
    meta = Metadata(workload=replace(IMAGES, built_by="11.1.0"))
    assert flags(meta, "warmup", WARM)[0]["trtexec"] == "--warmUp=75 --noCudaGraph"


def test_triton_gets_each_input_without_its_batch() -> None:
    assert lines()[0]["triton_model_warmup"] == (
        """\
model_warmup [
  {
    name: "gpuwarm"
    batch_size: 8
    inputs {
      key: "images"
      value {
        data_type: TYPE_FP16
        dims: [ 3, 224, 224 ]
        random_data: true
      }
    }
    count: 28
  }
]"""
    )


def test_triton_gets_whole_shapes_where_the_inputs_share_no_batch_and_zeros_for_indices() -> None:
    mixed = Workload(inputs=(Tensor("ids", (4, 128), "int64"), Tensor("scale", (1,), "float32")), batch=4)
    block = lines(mixed)[0]["triton_model_warmup"]
    assert "batch_size: 1\n" in block
    assert "dims: [ 4, 128 ]\n        zero_data: true" in block
    assert "dims: [ 1 ]\n        random_data: true" in block


@pytest.mark.parametrize(
    ("workload", "why"),
    [
        (Workload(), "the engine's inputs are not in this recording"),
        (Workload(inputs=(Tensor("x", (1,), "float8_e4m3fn"),)), "Triton has no type for x (float8_e4m3fn)"),
    ],
)
def test_where_triton_cannot_be_served_it_says_why(workload: Workload, why: str) -> None:
    found, notes = lines(workload)
    assert "triton_model_warmup" not in found
    assert notes == (f"no Triton model_warmup: {why}",)


def test_a_pace_is_part_of_the_line_and_a_server_loads_no_more_than_what_is_loaded_at_first_use() -> None:
    found, notes = flags(Metadata(workload=IMAGES), "warmup", WARM, Pace(0.5, 10.0, None, None))
    assert found["perf_analyzer"] == "--request-rate-range=2000 --warmup-request-count=28"
    assert found.keys() == {"perf_analyzer", "triton_model_warmup"}
    assert "count: 2\n" in found["triton_model_warmup"]
    assert notes[0].startswith("trtexec and Polygraphy warm up back to back")


def test_a_server_is_not_driven_into_its_power_limit() -> None:
    found, notes = lines(behaviour="slowdown")
    assert found["trtexec"] == "--warmUp=75"
    assert "count: 2\n" in found["triton_model_warmup"]
    assert notes[0].startswith("a server needs 2 inferences")


def test_without_a_steady_state_there_is_nothing_to_paste() -> None:
    assert lines(warmup=Warmup(starts=3)) == ({}, ())


def test_a_flat_engine_needs_no_triton_warmup() -> None:
    found, notes = lines(behaviour="flat", warmup=replace(WARM, recommended_ms=0.0, recommended_iterations=0))
    assert found["trtexec"] == "--warmUp=0"
    assert "triton_model_warmup" not in found
    assert notes == ()
