"""Loading engines: step by step on stand-ins for CUDA and TensorRT, and as far as real runtimes go without a GPU."""

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from running import ENGINE_STEPS, WORKER_STEPS

from gpuwarm.errors import DeviceError, EngineError, GpuwarmError
from gpuwarm.measure import child
from gpuwarm.measure.engine import Session
from gpuwarm.measure.inspection import Inspection, InspectSpec
from gpuwarm.measure.spec import EngineSpec, InputFile, PhaseSpec, StartSpec
from gpuwarm.metadata import Phase, Tensor
from gpuwarm.recording import ITERATION
from gpuwarm.rows import ITERATION_FIELDS, whole_rows

X = {"name": "x", "mode": "INPUT", "dtype": "FLOAT", "shape": [2, 3]}
Y = {"name": "y", "mode": "OUTPUT", "dtype": "HALF", "shape": [2, 5]}
DYNAMIC_X = {**X, "shape": [-1, 3], "profiles": [[[1, 3], [4, 3], [8, 3]], [[16, 3], [32, 3], [64, 3]]]}
DYNAMIC_Y = {**Y, "shape": [-1, 5], "shaped_by": "x"}
Environment = dict[str, str]


def engine(folder: Path, *tensors: dict[str, Any], **description: Any) -> str:
    path = folder / "net.plan"
    described = {"tensors": list(tensors or (X, Y)), **description}
    path.write_bytes(b"ftrt" + bytes(20) + bytes((8, 6, 0, 12)) + json.dumps(described).encode())
    return str(path)


def look(folder: Path, environment: Environment, spec: InspectSpec) -> Inspection:
    running = child.start("gpuwarm.measure.inspection:inspect", spec, stem=folder / "inspect", environment=environment)
    return msgspec.json.decode(running.wait(30), type=Inspection)


def data(folder: Path, name: str = "x", shape: tuple[int, ...] = (2, 3), dtype: str = "float32") -> InputFile:
    path = folder / f"{name}.bin"
    path.write_bytes(np.ones(shape, dtype).tobytes())
    return InputFile(name, str(path), shape, dtype)


def spec_of(plan: str, *inputs: InputFile) -> EngineSpec:
    return EngineSpec(plan=plan, runtime="tensorrt_lean", inputs=inputs)


def measure(folder: Path, environment: Environment, spec: EngineSpec) -> "np.ndarray[Any, np.dtype[np.void]]":
    phase = PhaseSpec(Phase("busy"), duration_s=5.0, max_iterations=50)
    start = StartSpec(index=3, folder=str(folder), engine=spec, phases=(phase,))
    child.start("gpuwarm.measure.start:run", start, stem=folder / "start", environment=environment).wait(30)
    return np.frombuffer(whole_rows(folder / "start-3.rows", ITERATION_FIELDS), dtype=ITERATION)


def test_a_cold_start_takes_the_steps_of_an_application_and_imports_no_numpy(
    tmp_path: Path, standin_tensorrt: Environment
) -> None:
    spec = spec_of(engine(tmp_path), data(tmp_path))
    running = child.start(
        "child_targets:load_and_list_modules", spec, stem=tmp_path / "steps", environment=standin_tensorrt
    )
    steps, modules = msgspec.json.decode(running.wait(30), type=tuple[list[str], list[str]])
    assert steps == ENGINE_STEPS
    assert "numpy" not in modules
    assert "tensorrt_lean" in modules


def test_a_start_leaves_a_mark_a_step_and_a_row_an_inference(tmp_path: Path, standin_tensorrt: Environment) -> None:
    rows = measure(tmp_path, standin_tensorrt, spec_of(engine(tmp_path, busy_us=100), data(tmp_path)))
    marks = [json.loads(line) for line in (tmp_path / "start-3.jsonl").read_text().splitlines()]
    assert [mark["mark"] for mark in marks] == WORKER_STEPS
    assert (np.diff([mark["t_ns"] for mark in marks]) > 0).all()
    assert rows["phase"].tolist() == [0, 0] + [1] * 50
    assert rows["gpu_ns"] == pytest.approx(100_004)
    assert (rows["host_ns"] > rows["gpu_ns"]).all()
    assert np.isnan(rows["sm_clock_mhz"]).tolist() == [True, True] + [False] * 50
    assert not np.isnan(rows["h2d_ns"]).any()


def test_without_copies_and_sm_clock_neither_is_measured(tmp_path: Path, standin_tensorrt: Environment) -> None:
    spec = replace(spec_of(engine(tmp_path), data(tmp_path)), copies=False, sm_clock=False, sync="spin")
    rows = measure(tmp_path, standin_tensorrt, spec)
    for field in ("h2d_ns", "d2h_ns", "sm_clock_mhz"):
        assert np.isnan(rows[field]).all()


def test_an_inspection_tells_tensors_gpu_and_versions(tmp_path: Path, standin_tensorrt: Environment) -> None:
    found = look(tmp_path, standin_tensorrt, InspectSpec(engine(tmp_path), "tensorrt_lean"))
    assert found.inputs == (Tensor("x", (2, 3), "float32"),)
    assert found.outputs == (Tensor("y", (2, 5), "float16"),)
    assert (found.gpu.name, found.gpu.compute_capability) == ("Stand-in 0", "9.0")
    assert found.versions == {"cuda": "13.0", "tensorrt": "11.4.0.106", "runtime": "tensorrt_lean"}


def test_dynamic_shapes_are_the_profiles_optimum_unless_chosen(tmp_path: Path, standin_tensorrt: Environment) -> None:
    spec = InspectSpec(engine(tmp_path, DYNAMIC_X, DYNAMIC_Y), "tensorrt_lean")
    assert look(tmp_path, standin_tensorrt, spec).inputs[0].shape == (4, 3)
    chosen = look(tmp_path, standin_tensorrt, replace(spec, shapes={"x": (8, 3)}))
    assert (chosen.inputs[0].shape, chosen.outputs[0].shape) == ((8, 3), (8, 5))


def test_another_profile_has_other_shapes(tmp_path: Path, standin_tensorrt: Environment) -> None:
    plan = engine(tmp_path, DYNAMIC_X, DYNAMIC_Y, profiles=2)
    found = look(tmp_path, standin_tensorrt, InspectSpec(plan, "tensorrt_lean", profile=1))
    assert (found.inputs[0].shape, found.profiles) == ((32, 3), 2)
    spec = replace(spec_of(plan, data(tmp_path, shape=(64, 3))), profile=1)
    assert len(measure(tmp_path, standin_tensorrt, spec)) == 52


@pytest.mark.parametrize(
    ("shapes", "profile", "sentence"),
    [
        ({"x": (9, 3)}, 0, r"input x cannot be 9x3: in profile 0 the engine takes 1x3 to 8x3"),
        ({"x": (4, 3, 1)}, 0, r"input x cannot be 4x3x1: in profile 0 the engine takes 1x3 to 8x3"),
        ({"z": (1,)}, 0, r"the engine has no input z: name one of x"),
        ({}, 2, r"--profile 2: the engine has 2 optimisation profile\(s\), counted from 0"),
    ],
)
def test_a_shape_or_profile_that_the_engine_lacks_names_those_it_has(
    tmp_path: Path,
    standin_tensorrt: Environment,
    shapes: dict[str, tuple[int, ...]],
    profile: int,
    sentence: str,
) -> None:
    plan = engine(tmp_path, DYNAMIC_X, DYNAMIC_Y, profiles=2)
    with pytest.raises(EngineError, match=sentence):
        look(tmp_path, standin_tensorrt, InspectSpec(plan, "tensorrt_lean", shapes=shapes, profile=profile))


def test_inputs_that_hold_shapes_come_with_values_not_for_random_data(
    tmp_path: Path, standin_tensorrt: Environment
) -> None:
    target = {"name": "target", "mode": "INPUT", "dtype": "INT64", "shape": [2], "values": [7, 9]}
    plan = engine(tmp_path, X, target, {**Y, "shape": [-1, -1], "shaped_by": "target"})
    found = look(tmp_path, standin_tensorrt, InspectSpec(plan, "tensorrt_lean"))
    assert found.fixed == {"target": (7, 9)}
    assert found.outputs[0].shape == (7, 9)
    values = data(tmp_path, "target", (2,), "int64")
    assert len(measure(tmp_path, standin_tensorrt, spec_of(plan, data(tmp_path), values))) == 52


def test_a_vectorised_input_gets_memory_for_whole_vectors(tmp_path: Path, standin_tensorrt: Environment) -> None:
    rows = measure(tmp_path, standin_tensorrt, spec_of(engine(tmp_path, {**X, "vector": [1, 4]}, Y), data(tmp_path)))
    assert len(rows) == 52


def test_an_output_whose_shape_depends_on_the_data_gets_all_it_may_need(
    tmp_path: Path, standin_tensorrt: Environment
) -> None:
    rows = measure(tmp_path, standin_tensorrt, spec_of(engine(tmp_path, X, {**Y, "shape": [-1]}), data(tmp_path)))
    assert len(rows) == 52


@pytest.mark.parametrize(
    ("inputs", "sentence"),
    [
        ((), r"the engine's input x has no data: give it with --input x=FILE.npy"),
        (("x", (2, 2)), r"x.bin does not hold the 24 bytes that its input takes"),
        (("x", (2, 4)), r"x.bin does not hold the 24 bytes that its input takes"),
    ],
)
def test_data_that_are_missing_or_of_another_size_are_refused(
    tmp_path: Path, standin_tensorrt: Environment, inputs: tuple[Any, ...], sentence: str
) -> None:
    files = [replace(data(tmp_path, *inputs), shape=(2, 3))] if inputs else []
    with pytest.raises(EngineError, match=sentence):
        measure(tmp_path, standin_tensorrt, spec_of(engine(tmp_path), *files))


def test_a_type_from_the_future_asks_for_an_upgrade(tmp_path: Path, standin_tensorrt: Environment) -> None:
    with pytest.raises(EngineError, match=r"tensor x has the type EXOTIC, which this gpuwarm does not know: upgrade"):
        look(tmp_path, standin_tensorrt, InspectSpec(engine(tmp_path, {**X, "dtype": "EXOTIC"}, Y), "tensorrt_lean"))


def test_an_enqueue_that_is_refused_ends_the_start(tmp_path: Path, standin_tensorrt: Environment) -> None:
    with pytest.raises(EngineError, match="TensorRT did not accept the inference"):
        measure(tmp_path, standin_tensorrt, spec_of(engine(tmp_path, refuses=True), data(tmp_path)))


# What TensorRT writes: as it stands in its libraries, what follows it there, and our sentence.
REASONS = [
    (
        "The engine plan file is generated on an incompatible device, expecting compute ",
        "8.6 got compute 9.0, please rebuild.",
        r"it was built for compute capability 8.6 and this GPU has 9.0: build it on this GPU",
    ),
    (
        "The current device is not compatible with this hardware-compatible engine. Expected compute capability >=",
        "8.0",
        r"it was built for compute capability 8.0 or newer",
    ),
    (
        "The engine cannot run on this GPU, which has compute capability ",
        "9.0. Supported compute capabilities: 7.5",
        r"it was not built for compute capability 9.0, which this GPU has",
    ),
    (
        "Cannot find plugin: ",
        "EfficientNMS_TRT, version: 1, namespace:.",
        r"it needs the plugin EfficientNMS_TRT: give the library that has it with --plugin LIBRARY",
    ),
    (
        "Cannot deserialize engine with lean runtime since IRuntime::getEngineHostCodeAllowed() is false.",
        "",
        r"it brings host code along: .* --allow-host-code",
    ),
    (
        "The engine plan file is not compatible with this version of TensorRT, expecting library version ",
        "8.6.0.12 got 8.6.1.6, please rebuild.",
        r"it was built by TensorRT 8.6.1.6 and this is 8.6.0.12",
    ),
    (
        "The engine has been created with TensorRT-RTX version ",
        "1.6.1, but the current runtime is TensorRT-RTX version 1.7.1. Rebuild",
        r"it was built by TensorRT-RTX 1.6.1 and this is 1.7.1: install",
    ),
    (
        "Failed due to an old deserialization call on a newer plan file. This might happen when the plan file was "
        "built from an older TensorRT version.",
        "",
        r"it was built by another version of TensorRT",
    ),
    (
        "CUDA driver version is insufficient for CUDA runtime version",
        "",
        r"the NVIDIA driver is too old for this TensorRT: update the driver",
    ),
    ("The serialized host buffer is corrupted", "", r"the file is damaged: copy it again"),
]
REASONS_OF_8_6 = [
    (
        "getPluginCreator could not find plugin: ",
        "ROIAlign_TRT version: 1",
        r"it needs the plugin ROIAlign_TRT: give the library",
    ),
    ("Version tag does not match. Note: Current Version: ", "236", r"it was built by another version of TensorRT"),
    ("Requested amount of GPU memory was not available: OutOfMemory", "", r"the GPU has too little memory left for it"),
    (
        "Something unheard of",
        "",
        r"a lean runtime takes only .* VERSION_COMPATIBLE; TensorRT says: Something unheard of",
    ),
]


@pytest.mark.parametrize(("text", "rest", "sentence"), REASONS + REASONS_OF_8_6)
def test_tensorrts_reason_for_refusing_an_engine_becomes_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, rest: str, sentence: str
) -> None:
    shutil.copy(Path(__file__).parent / "standin_tensorrt" / "tensorrt.py", tmp_path / "tensorrt_lean.py")
    monkeypatch.syspath_prepend(tmp_path)
    session = Session("tensorrt_lean", verbose=False)
    session.complaints += ["nothing that is known", text + rest]
    assert re.match(sentence, session.why())


def test_the_reasons_are_written_as_in_real_libraries(package_folder: Callable[[str], Path]) -> None:
    rtx = (package_folder("rtx-1.7") / "tensorrt_rtx_libs" / "libtensorrt_rtx.so.1").read_bytes()
    lean = (package_folder("lean-11.4") / "tensorrt_lean_libs" / "libnvinfer_lean.so.11").read_bytes()
    nowhere = [text for text, _, _ in REASONS if text.encode() not in rtx and text.encode() not in lean]
    assert nowhere == []


def test_a_refused_engine_names_the_file_the_runtime_and_the_reason(
    tmp_path: Path, standin_tensorrt: Environment
) -> None:
    plan = engine(tmp_path, says=[["WARNING", "not this"], ["ERROR", "Cannot find plugin: A, version: 1"]])
    refusal = r"net.plan does not load in TensorRT's lean runtime 11.4.0.106: it needs the plugin A: give"
    with pytest.raises(EngineError, match=refusal):
        look(tmp_path, standin_tensorrt, InspectSpec(plan, "tensorrt_lean"))


def test_host_code_runs_only_when_allowed(tmp_path: Path, standin_tensorrt: Environment) -> None:
    spec = InspectSpec(engine(tmp_path, host_code=True), "tensorrt_lean")
    with pytest.raises(EngineError, match=r"it brings host code along: .*--allow-host-code, if you trust its source"):
        look(tmp_path, standin_tensorrt, spec)
    assert look(tmp_path, standin_tensorrt, replace(spec, allow_host_code=True)).name == "invented"


def test_messages_reach_the_log_verbose_ones_only_when_asked(tmp_path: Path, standin_tensorrt: Environment) -> None:
    plan = engine(tmp_path, says=[["INFO", "loading"], ["ERROR", "no"]])
    for verbose in (False, True):
        with pytest.raises(EngineError):
            look(tmp_path, standin_tensorrt, InspectSpec(plan, "tensorrt_lean", verbose=verbose))
        log = (tmp_path / "inspect.log").read_text()
        assert "TensorRT info: loading" in log
        assert ("TensorRT verbose: Deserializing" in log) == verbose


def test_a_crash_while_loading_is_a_sentence_with_tensorrts_last_words(
    tmp_path: Path, standin_tensorrt: Environment
) -> None:
    plan = engine(tmp_path, says=[["WARNING", "about to crash"]], crash=11)
    with pytest.raises(GpuwarmError, match=r"was killed by SIGSEGV.*TensorRT warning: about to crash"):
        look(tmp_path, standin_tensorrt, InspectSpec(plan, "tensorrt_lean"))


def test_a_plugin_library_that_does_not_load_is_named(tmp_path: Path, standin_tensorrt: Environment) -> None:
    spec = InspectSpec(engine(tmp_path), "tensorrt_lean", plugins=(str(tmp_path / "none.so"),))
    with pytest.raises(EngineError, match=r"the plugin library .*none.so does not load .* look at --plugin"):
        look(tmp_path, standin_tensorrt, spec)


@pytest.mark.parametrize("symbol", ["getCreators", "getPluginCreators"])
def test_a_plugin_library_is_offered_to_the_runtime(tmp_path: Path, standin_tensorrt: Environment, symbol: str) -> None:
    library = tmp_path / "plugins.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", library], input=f"int {symbol};", text=True, check=True
    )
    look(tmp_path, standin_tensorrt, InspectSpec(engine(tmp_path), "tensorrt_lean", plugins=(str(library),)))
    assert f"TensorRT info: plugins of {library}" in (tmp_path / "inspect.log").read_text()


def test_a_driver_older_than_tensorrts_cuda_is_refused_before_tensorrt_starts(
    tmp_path: Path, standin_tensorrt: Environment
) -> None:
    metadata = tmp_path / "site" / "tensorrt_lean_cu14-8.6.0.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: tensorrt_lean_cu14\nVersion: 8.6.0\n")
    with pytest.raises(DeviceError, match=r"was made for CUDA 14 and this driver serves CUDA 13.0 at most: update"):
        look(tmp_path, standin_tensorrt, InspectSpec(engine(tmp_path), "tensorrt_lean"))


def test_bindings_without_their_libraries_name_what_is_missing(
    tmp_path: Path, standin_cuda: Environment, package_folder: Callable[[str], Path]
) -> None:
    environment = {**standin_cuda, "PYTHONPATH": str(package_folder("bindings-11.4"))}
    with pytest.raises(DeviceError, match=r"tensorrt_bindings does not load \(libnv\w+.so.11: .*install its libraries"):
        look(tmp_path, environment, InspectSpec(engine(tmp_path), "tensorrt_bindings"))


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
@pytest.mark.parametrize("name", ["lean-10.16", "lean-11.4"])
def test_no_driver_is_said_before_a_real_tensorrt_can_crash_of_it(
    tmp_path: Path, package_folder: Callable[[str], Path], name: str
) -> None:
    environment = {"PYTHONPATH": str(package_folder(name))}
    with pytest.raises(DeviceError, match="has no NVIDIA driver"):
        look(tmp_path, environment, InspectSpec(engine(tmp_path), "tensorrt_lean_bindings"))


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has a driver")
@pytest.mark.parametrize("name", ["lean-10.16", "lean-11.4"])
def test_a_real_crash_of_tensorrt_is_a_sentence(
    tmp_path: Path, package_folder: Callable[[str], Path], name: str
) -> None:
    environment = {"PYTHONPATH": f"{package_folder(name)}:{Path(__file__).parent}"}
    running = child.start(
        "child_targets:start_without_asking_for_a_driver",
        "tensorrt_lean_bindings",
        stem=tmp_path / "crash",
        environment=environment,
    )
    with pytest.raises(GpuwarmError, match=r"was killed by SIGSEGV; .*CUDA initialization failure with error: 35"):
        running.wait(30)
