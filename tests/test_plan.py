"""Model files told by their first bytes, and the TensorRT that fits them by its metadata: nothing is loaded."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gpuwarm.errors import DeviceError, EngineError
from gpuwarm.measure import plan
from gpuwarm.measure.plan import Runtime, choose_runtime, installed_runtimes, read_model

FULL_8 = Runtime("tensorrt", "tensorrt", "8.6.1", "tensorrt")
LEAN_8 = Runtime("tensorrt_lean", "tensorrt_lean", "8.6.0", "tensorrt-lean")
FULL_10 = Runtime("tensorrt", "tensorrt", "10.16.1.11", "tensorrt_cu13", 13)
LEAN_11 = Runtime("tensorrt_lean_bindings", "tensorrt_lean", "11.4.0.106", "tensorrt_lean_cu13_bindings", 13)
DISPATCH_11 = Runtime("tensorrt_dispatch", "tensorrt_dispatch", "11.4.0.106", "tensorrt_dispatch_cu13", 13)
RTX = Runtime("tensorrt_rtx", "tensorrt_rtx", "1.7.1.116", "tensorrt_rtx_cu13", 13)


def plan_file(folder: Path, version: tuple[int, ...] = (8, 6, 0, 12), *, magic: bytes = b"ftrt") -> Path:
    path = folder / "net.plan"
    path.write_bytes(magic + bytes(20) + bytes(version) + bytes(100))
    return path


def file_of(folder: Path, content: bytes, name: str = "net.engine") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_an_engine_names_the_version_that_built_it(tmp_path: Path) -> None:
    assert read_model(plan_file(tmp_path)).built_by == "8.6.0.12"
    rtx = read_model(plan_file(tmp_path, (1, 7, 1, 116), magic=b"vtrt"))
    assert (rtx.format, rtx.built_by) == ("tensorrt_rtx", "1.7.1.116")


def test_real_engines_of_the_h200_were_built_by_8_6(h200: Path) -> None:
    for name in ("tiny", "medium", "heavy"):
        model = read_model(h200 / "plans" / f"{name}_vc.plan")
        assert (model.format, model.built_by) == ("tensorrt", "8.6.0.12")


def test_the_bundled_model_is_onnx() -> None:
    assert read_model(plan.BUNDLED_MODEL) == plan.ModelFile(plan.BUNDLED_MODEL, "onnx")


@pytest.mark.parametrize(
    ("content", "looks_like"),
    [
        (b"", "an empty file"),
        (b"hello\n", "text"),
        (b"<!DOCTYPE html><html>", r"a web page \(a download that failed\?\)"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "a Git LFS pointer.*`git lfs pull`"),
        (b"PK\x03\x04rest", "a zip archive"),
        (b"\x1f\x8b\x08\0", "a gzip archive: unpack it first"),
        (b"\x7fELF\x02\x01", "a program or shared library.*--plugin"),
        (b"ftrt\0\0\0\0", "the first bytes of an engine, cut off"),
        (b"\x08\x08\x12\x07pytorch", r"binary data .*\(an ONNX model\? its name must end in \.onnx\)"),
        (b"\xff\xfe\0\1", r"binary data that begins with ff fe 00 01;"),
    ],
)
def test_what_is_no_engine_is_called_what_it_looks_like(tmp_path: Path, content: bytes, looks_like: str) -> None:
    with pytest.raises(
        EngineError, match=f"net.engine is not a TensorRT engine or ONNX model: it looks like {looks_like}"
    ):
        read_model(file_of(tmp_path, content))


def test_text_named_onnx_is_text(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="it looks like text; give a"):
        read_model(file_of(tmp_path, b"Be patient\n", "net.onnx"))


def test_a_path_that_is_not_there_or_a_folder_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"nowhere.plan does not exist: give the path"):
        read_model(tmp_path / "nowhere.plan")
    with pytest.raises(EngineError, match=r"cannot be read \(Is a directory\)"):
        read_model(tmp_path)


def test_without_any_tensorrt_it_is_the_machine_that_lacks_something(tmp_path: Path) -> None:
    with pytest.raises(DeviceError, match=r"no TensorRT is installed: pip install 'gpuwarm\[cu13\]'") as caught:
        choose_runtime(read_model(plan_file(tmp_path)), ())
    assert caught.value.exit_code == 5


def test_the_version_that_built_it_is_preferred_then_the_full_runtime(tmp_path: Path) -> None:
    model = read_model(plan_file(tmp_path))
    assert choose_runtime(model, [FULL_10, FULL_8, LEAN_8]) == LEAN_8
    later = read_model(plan_file(tmp_path, (8, 6, 1, 6)))
    assert choose_runtime(later, [LEAN_8, FULL_8]) == FULL_8


def test_an_engine_of_8_6_is_refused_by_11_4_before_it_is_loaded(tmp_path: Path) -> None:
    refusal = (
        r"net.plan was built by TensorRT 8.6.0.12, installed is TensorRT's lean runtime 11.4.0.106: "
        r"pip install 'tensorrt==8.6.0.\*', or build the engine again"
    )
    with pytest.raises(EngineError, match=refusal):
        choose_runtime(read_model(plan_file(tmp_path)), [LEAN_11])


def test_an_engine_that_brings_its_runtime_along_may_be_tried_on_a_later_major_version(tmp_path: Path) -> None:
    model = read_model(plan_file(tmp_path))
    assert choose_runtime(model, [DISPATCH_11], allow_host_code=True) == DISPATCH_11
    assert choose_runtime(model, [FULL_10], allow_host_code=True) == FULL_10
    with pytest.raises(EngineError, match=r"installed is TensorRT's dispatch runtime 11.4"):
        choose_runtime(model, [DISPATCH_11])


def test_an_engine_of_a_later_version_is_refused(tmp_path: Path) -> None:
    model = read_model(plan_file(tmp_path, (11, 4, 0, 106)))
    with pytest.raises(EngineError, match=r"built by TensorRT 11.4.0.106, installed is TensorRT 10.16.1.11"):
        choose_runtime(model, [FULL_10], allow_host_code=True)


def test_rtx_engines_and_others_do_not_mix(tmp_path: Path) -> None:
    rtx_plan = read_model(plan_file(tmp_path, (1, 7, 1, 116), magic=b"vtrt"))
    assert choose_runtime(rtx_plan, [FULL_10, RTX]) == RTX
    with pytest.raises(
        EngineError, match=r"built by TensorRT-RTX 1.7.1.116, installed is TensorRT 10.*'tensorrt-rtx==1.7.1"
    ):
        choose_runtime(rtx_plan, [FULL_10])
    with pytest.raises(EngineError, match=r"installed is TensorRT-RTX 1.7.1.116"):
        choose_runtime(read_model(plan_file(tmp_path)), [RTX], allow_host_code=True)


def test_an_rtx_engine_runs_only_on_its_own_version(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match=r"built by TensorRT-RTX 1.5.0.114"):
        choose_runtime(read_model(plan_file(tmp_path, (1, 5, 0, 114), magic=b"vtrt")), [RTX])


def test_a_lean_runtime_cannot_build_a_model_and_says_what_can() -> None:
    model = read_model(plan.BUNDLED_MODEL)
    with pytest.raises(EngineError, match=r"tiny.onnx is an ONNX model and TensorRT's lean runtime 8.6.0 cannot build"):
        choose_runtime(model, [LEAN_8])
    assert choose_runtime(model, [LEAN_8, RTX]) == RTX


def test_runtimes_are_listed_by_metadata_and_the_name_they_are_imported_by(tmp_path: Path) -> None:
    names = {
        "tensorrt": "10.16.1.11",
        "tensorrt_cu13": "10.16.1.11",
        "tensorrt_cu13_bindings": "10.16.1.11",
        "tensorrt_cu13_libs": "10.16.1.11",
        "tensorrt-lean": "8.6.1.post1",
        "tensorrt_rtx_cu12": "1.7.1.116",
        "torch_tensorrt": "2.9.0",
    }
    for name, version in names.items():
        metadata = tmp_path / f"{name.replace('-', '_')}-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    found = installed_runtimes([str(tmp_path)])
    assert [(it.module, it.kind, it.version, it.cuda_major) for it in found] == [
        ("tensorrt", "tensorrt", "10.16.1.11", 13),
        ("tensorrt_lean", "tensorrt_lean", "8.6.1.post1", None),
        ("tensorrt_rtx", "tensorrt_rtx", "1.7.1.116", 12),
        ("tensorrt_bindings", "tensorrt", "10.16.1.11", 13),
    ]


@pytest.mark.parametrize(
    ("name", "version"), [("rtx-1.7", "1.7.1.116"), ("lean-10.16", "10.16.1.11"), ("lean-11.4", "11.4.0.106")]
)
def test_real_packages_hold_the_module_that_their_name_tells(
    package_folder: Callable[[str], Path], name: str, version: str
) -> None:
    (runtime,) = installed_runtimes([str(package_folder(name))])
    assert runtime.version == version
    assert runtime.cuda_major == 13
    assert (package_folder(name) / runtime.module / "__init__.py").is_file()


def test_a_models_hash_covers_the_weights_beside_it(tmp_path: Path) -> None:
    weights = numpy_helper.from_array(np.arange(64, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [64])],
        [weights],
    )
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph), path, save_as_external_data=True, location="net.weights", size_threshold=0)
    outside = tmp_path / "net.weights"
    assert plan.external_weights(path) == [outside]
    assert plan.sha256(path) == hashlib.sha256(path.read_bytes() + outside.read_bytes()).hexdigest()
    before = plan.sha256(path)
    outside.write_bytes(outside.read_bytes()[:-1] + b"\x7f")
    assert plan.sha256(path) != before


def test_the_cache_is_where_xdg_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert plan.cache_folder() == tmp_path / "gpuwarm" / "engines"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert plan.cache_folder() == Path.home() / ".cache" / "gpuwarm" / "engines"
