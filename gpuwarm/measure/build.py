"""Build an engine from an ONNX model, once for a model, TensorRT, GPU and choice of flags.

It runs inside a child process of `child.py`; the engine lands in a cache folder, whole or not at all.
"""

import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from gpuwarm.errors import DeviceError, EngineError
from gpuwarm.measure import cuda
from gpuwarm.measure.engine import Session, written
from gpuwarm.measure.plan import refuse_old_driver, sha256

_DYNAMIC = -1
_KEY_DIGITS = 16  # of a SHA-256: no two of one user's engines meet
_PROGRESS_BYTES = 120  # always overwritten whole, so that a reader never sees the end of a longer line


@dataclass(frozen=True)
class BuildSpec:
    """Which ONNX model to build, and where built engines are kept."""

    onnx: str
    runtime: str  # module to import
    cache: str  # folder, see plan.cache_folder
    fp16: bool = False
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of dynamic inputs
    plugins: tuple[str, ...] = ()
    progress: str | None = None  # a file that says how far it is, in one line: share and phase
    verbose: bool = False


@dataclass(frozen=True)
class Built:
    """An engine in the cache."""

    plan: str
    cached: bool  # it was there already
    seconds: float


def build(spec_json: bytes) -> Built:
    """Child target: the engine of a model, from the cache or built now.

    Raises:
        DeviceError: no driver or GPU; only TensorRT-RTX builds without.
        EngineError: the model cannot be built, or not in this way.
    """
    spec = msgspec.json.decode(spec_json, type=BuildSpec)
    begun_s = time.monotonic()
    gpu = _gpu(spec.runtime)
    session = Session(spec.runtime, verbose=spec.verbose)
    path = Path(spec.cache) / f"{Path(spec.onnx).stem}-{_key(spec, session.version, gpu)}.plan"
    cached = path.exists()
    if not cached:
        _keep(_serialised(spec, session), path)
    return Built(str(path), cached, time.monotonic() - begun_s)


def _gpu(runtime: str) -> str:
    """The GPU the engine will be for, in words; only TensorRT-RTX, which does not time kernels, builds for none."""
    try:
        driver = cuda.import_driver()
        cuda_version = cuda.initialise(driver)
    except DeviceError:
        if not runtime.startswith("tensorrt_rtx"):
            raise
        return "no GPU"
    refuse_old_driver(runtime, cuda_version)
    gpu = cuda.visible_gpu(driver, 0)
    return f"{gpu.name}, compute capability {gpu.compute_capability}"


def _key(spec: BuildSpec, version: str, gpu: str) -> str:
    """Everything that decides what the engine is."""
    parts = (
        sha256(Path(spec.onnx)),
        spec.runtime.removesuffix("_bindings"),
        version,
        gpu,
        spec.fp16,
        sorted(spec.shapes.items()),
        [sha256(Path(plugin)) for plugin in spec.plugins],
    )
    return hashlib.sha256(msgspec.json.encode(parts)).hexdigest()[:_KEY_DIGITS]


def _keep(serialised: memoryview, path: Path) -> None:
    temporary = path.with_suffix(f".{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_bytes(serialised)
        temporary.replace(path)
    except OSError as error:
        raise EngineError(
            f"the engine cannot be kept in {path.parent}: {error.strerror}; set XDG_CACHE_HOME"
        ) from error


def _serialised(spec: BuildSpec, session: Session) -> memoryview:
    trt = session.trt
    try:
        builder = trt.Builder(session.logger)
    except (TypeError, RuntimeError) as error:  # "factory function returned nullptr"
        raise DeviceError(f"{session.name} does not start: {session.why()}") from error
    session.load_plugins(spec.plugins, trt.get_plugin_registry())
    # 8.6 must be told that the batch is a dimension like any other; later versions know nothing else.
    explicit = trt.NetworkDefinitionCreationFlag.__members__.get("EXPLICIT_BATCH")
    network = builder.create_network(0 if explicit is None else 1 << int(explicit))
    parser = trt.OnnxParser(network, session.logger)
    if not parser.parse_from_file(spec.onnx):
        errors = [_told(parser.get_error(number)) for number in range(parser.num_errors)]
        raise EngineError(f"{Path(spec.onnx).name} is not built by {session.name}: {'; '.join(errors)}")
    config = builder.create_builder_config()
    _set_precision(session, config, fp16=spec.fp16)
    _set_shapes(builder, network, config, spec.shapes)
    monitor = None if spec.progress is None else _monitor(trt, Path(spec.progress))
    if monitor is not None:
        config.progress_monitor = monitor
    serialised = builder.build_serialized_network(network, config)
    if serialised is None:
        raise EngineError(f"{Path(spec.onnx).name} is not built by {session.name}: {session.why()}")
    return memoryview(serialised)


def _told(complaint: Any) -> str:
    said: str = complaint.desc()
    operator = complaint.node_operator() if hasattr(complaint, "node_operator") else ""  # 8.6 does not tell it
    if operator and "Plugin not found" in said:
        return f"it does not know the operator {operator}: give a plugin that does with --plugin LIBRARY"
    return f"{said} (operator {operator})" if operator else said


def _set_precision(session: Session, config: Any, *, fp16: bool) -> None:
    if not fp16:
        return
    flags = session.trt.BuilderFlag.__members__
    if "FP16" not in flags:
        raise EngineError(
            f"--fp16: {session.name} takes the precision from the model alone: convert the model to FP16 "
            "(onnxconverter-common, or NVIDIA's ModelOpt AutoCast), or leave --fp16 out"
        )
    config.set_flag(flags["FP16"])


def _set_shapes(builder: Any, network: Any, config: Any, wanted: Mapping[str, tuple[int, ...]]) -> None:
    inputs = [network.get_input(number) for number in range(network.num_inputs)]
    names = [tensor.name for tensor in inputs]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise EngineError(f"the model has no input {unknown[0]}: name one of {', '.join(names)}")
    profile = builder.create_optimization_profile()
    dynamic = False
    for tensor in inputs:
        declared = tuple(tensor.shape)
        shape = _shape(tensor, declared, wanted.get(tensor.name))
        if shape != declared:
            dynamic = True
            profile.set_shape(tensor.name, shape, shape, shape)
    if dynamic and config.add_optimization_profile(profile) < 0:
        raise EngineError("the model does not take these shapes together: look at --shape")


def _shape(tensor: Any, declared: tuple[int, ...], wanted: tuple[int, ...] | None) -> tuple[int, ...]:
    if tensor.is_shape_tensor:
        raise EngineError(f"input {tensor.name} holds a shape: build the engine with trtexec and give that to gpuwarm")
    if wanted is not None:
        fits = len(wanted) == len(declared) and all(
            it in (_DYNAMIC, want) for it, want in zip(declared, wanted, strict=True)
        )
        if not fits:
            raise EngineError(
                f"input {tensor.name} cannot be {written(wanted)}: the model declares {written(declared)}"
            )
        return wanted
    if _DYNAMIC in declared[1:]:
        raise EngineError(
            f"input {tensor.name} is {written(declared)}: say how large -1 is, as in --shape {tensor.name}:"
            f"{written([1 if it == _DYNAMIC else it for it in declared])}"
        )
    return tuple(1 if it == _DYNAMIC else it for it in declared)  # a batch of one


def _monitor(trt: Any, path: Path) -> Any:
    base: Any = getattr(trt, "IProgressMonitor", None)  # 8.6 has none
    if base is None:
        return None
    progress = _Progress(path)

    class Monitor(base):  # type: ignore[misc]  # its base is known at run time
        """What TensorRT tells while it builds."""

        def __init__(self) -> None:
            base.__init__(self)

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None:
            progress.begin(phase_name, parent_phase, num_steps)

        def phase_finish(self, phase_name: str) -> None:
            progress.finish(phase_name)

        def step_complete(self, phase_name: str, _step: int) -> bool:
            progress.step(phase_name)
            return True

    return Monitor()


@dataclass
class _Phase:
    parent: str | None
    steps: int
    done: int = 0


class _Progress:
    """Phases within phases, as one share."""

    def __init__(self, path: Path) -> None:
        self._phases: dict[str, _Phase] = {}
        self._file = path.open("wb", buffering=0)

    def begin(self, name: str, parent: str | None, steps: int) -> None:
        self._phases[name] = _Phase(parent, max(steps, 1))
        self._tell(name)

    def step(self, name: str) -> None:
        self._phases[name].done += 1
        self._tell(name)

    def finish(self, name: str) -> None:
        self._phases.pop(name, None)

    def _share(self, name: str) -> float:
        phase = self._phases[name]
        below = sum(self._share(child) for child, it in self._phases.items() if it.parent == name)
        return min(1.0, (phase.done + below) / phase.steps)

    def _tell(self, name: str) -> None:
        outermost = next(iter(self._phases))
        line = f"{self._share(outermost):.0%} {name}".encode()[: _PROGRESS_BYTES - 1]
        self._file.seek(0)
        self._file.write(line.ljust(_PROGRESS_BYTES - 1) + b"\n")
