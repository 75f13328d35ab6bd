"""Engines built from ONNX for real, by TensorRT-RTX, which needs no GPU for it."""

import importlib.util
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper

from gpuwarm.errors import DeviceError, EngineError
from gpuwarm.measure import child, plan
from gpuwarm.measure.build import BuildSpec, Built

RTX = "tensorrt_rtx_bindings"
BUNDLED = str(plan.BUNDLED_MODEL)
Build = Callable[..., Built]


@pytest.fixture
def build(tmp_path: Path, package_folder: Callable[[str], Path]) -> Build:
    """Build a model with TensorRT-RTX into a cache folder of the test's own."""
    environment = {"PYTHONPATH": os.pathsep.join([str(package_folder("rtx-1.7")), *sys.path[1:]])}
    numbers = iter(range(100))

    def run(onnx_path: str, *, also: dict[str, str] | None = None, **options: Any) -> Built:
        spec = BuildSpec(onnx_path, options.pop("runtime", RTX), str(tmp_path / "cache"), **options)
        stem = tmp_path / f"build-{next(numbers)}"
        running = child.start(
            "gpuwarm.measure.build:build", spec, stem=stem, environment={**environment, **(also or {})}
        )
        return msgspec.json.decode(running.wait(60), type=Built)

    return run


def model(folder: Path, shape: list[int | str], operator: str = "Relu") -> str:
    graph = helper.make_graph(
        [helper.make_node(operator, ["x"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    path = folder / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return str(path)


def test_the_bundled_model_builds_once_and_then_comes_from_the_cache(tmp_path: Path, build: Build) -> None:
    first = build(BUNDLED)
    found = plan.read_model(Path(first.plan))
    assert (found.format, found.built_by, first.cached) == ("tensorrt_rtx", "1.7.1.116", False)
    content = Path(first.plan).read_bytes()
    second = build(BUNDLED)
    assert (second.plan, second.cached) == (first.plan, True)
    assert Path(second.plan).read_bytes() == content
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [Path(first.plan).name]


def test_another_shape_is_another_engine(tmp_path: Path, build: Build) -> None:
    batched = model(tmp_path, ["batch", 8])
    one, four = build(batched), build(batched, shapes={"x": (4, 8)})
    assert one.plan != four.plan
    assert not four.cached


def test_an_engine_for_a_gpu_is_not_the_one_for_none(build: Build, standin_cuda: dict[str, str]) -> None:
    assert build(BUNDLED).plan != build(BUNDLED, also=standin_cuda).plan


def test_a_build_tells_how_far_it_is(tmp_path: Path, build: Build) -> None:
    progress = tmp_path / "progress"
    build(BUNDLED, progress=str(progress))
    told = re.fullmatch(r"(\d+)% Building engine *\n", progress.read_text())
    assert told is not None
    assert 50 < int(told[1]) <= 100


@pytest.mark.parametrize(
    ("shape", "options", "sentence"),
    [
        (["b", 3, 8], {"shapes": {"x": (4, 4, 8)}}, r"input x cannot be 4x4x8: the model declares -1x3x8"),
        (["b", 3, 8], {"shapes": {"x": (4, 3)}}, r"input x cannot be 4x3: the model declares -1x3x8"),
        (["b", 3, 8], {"shapes": {"z": (4, 3)}}, r"the model has no input z: name one of x"),
        (["b", "s"], {}, r"input x is -1x-1: say how large -1 is, as in --shape x:1x1"),
        ([1, 3], {"fp16": True}, r"--fp16: TensorRT-RTX 1.7.1.116 takes the precision from the model alone: convert"),
        ([1, 3], {"plugins": ("none.so",)}, r"none.so cannot be read \(No such file or directory\)"),
    ],
)
def test_a_choice_the_model_or_tensorrt_does_not_allow_is_a_sentence(
    tmp_path: Path, build: Build, shape: list[int | str], options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(EngineError, match=sentence):
        build(model(tmp_path, shape), **options)


def test_an_operator_that_tensorrt_lacks_is_named(tmp_path: Path, build: Build) -> None:
    with pytest.raises(
        EngineError, match=r"net.onnx is not built by TensorRT-RTX 1.7.1.116: it does not know the operator Zoom"
    ):
        build(model(tmp_path, [1, 3], operator="Zoom"))


def test_a_damaged_model_is_said_so_and_nothing_is_kept(tmp_path: Path, build: Build) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(plan.BUNDLED_MODEL.read_bytes()[:3000])
    with pytest.raises(EngineError, match=r"cut.onnx is not built by .*Failed to parse the ONNX model"):
        build(str(path))
    assert not list(tmp_path.glob("cache/*"))


def test_a_cache_that_cannot_be_written_names_the_variable_that_moves_it(tmp_path: Path, build: Build) -> None:
    (tmp_path / "cache").write_text("in the way")
    with pytest.raises(EngineError, match=r"the engine cannot be kept in .*cache: File exists; set XDG_CACHE_HOME"):
        build(BUNDLED)


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
def test_any_other_tensorrt_asks_for_the_driver_first(build: Build) -> None:
    with pytest.raises(DeviceError, match="has no NVIDIA driver"):
        build(BUNDLED, runtime="tensorrt")


def test_the_bundled_model_is_what_its_script_makes() -> None:
    source = Path(__file__).parent.parent / "scripts" / "make_bundled_model.py"
    specification = importlib.util.spec_from_file_location("make_bundled_model", source)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    assert module.model() == onnx.load(plan.BUNDLED_MODEL)
