"""From what the user names to an engine a cold start can load: runtime, plan, and the bytes of its inputs."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from gpuwarm.errors import EngineError, InputError
from gpuwarm.measure import child, plan, simulated
from gpuwarm.measure.build import BuildSpec, Built
from gpuwarm.measure.inspection import Inspection, InspectSpec
from gpuwarm.measure.spec import EngineSpec, InputFile
from gpuwarm.metadata import Tensor, Workload
from gpuwarm.studies import inputs
from gpuwarm.studies.device import Device

SIMULATED_WORKLOAD = "medium"
_LOOK_S = 0.1  # between looks at a build's progress
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Model:
    """What the user asks for."""

    path: str | None = None  # .plan, .engine or .onnx; None: the bundled model. Simulated: a workload's name
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    inputs: Mapping[str, Path] = field(default_factory=dict)  # .npy files
    profile: int = 0
    plugins: tuple[Path, ...] = ()
    fp16: bool = False
    save_engine: Path | None = None
    allow_host_code: bool = False
    seed: int = 0
    sync: Literal["block", "spin"] = "block"
    copies: bool = True
    sm_clock: bool = True
    verbose: bool = False


@dataclass(frozen=True)
class Prepared:
    """An engine ready for cold starts, and what is known of it."""

    engine: EngineSpec
    workload: Workload


class Preparation:
    """A model that some runtime here can load, as far as its file tells; nothing has been loaded yet."""

    def __init__(self, model: Model, device: Device) -> None:
        """Read the file's head and choose a runtime, without touching a GPU.

        Raises:
            DeviceError: no TensorRT here.
            EngineError: no runtime here fits the file, and why.
            InputError: an input file cannot be read, or no such simulated workload.
        """
        self._model = model
        self._device = device
        if device.simulate is not None:
            self._simulated = _simulated(model, device.simulate, device.load_log)
            return
        self._arrays = {name: inputs.load(name, path) for name, path in model.inputs.items()}
        self._file = plan.read_model(Path(model.path) if model.path is not None else plan.BUNDLED_MODEL)
        if self._file.built_by is not None:
            unused = {"--fp16": model.fp16, "--save-engine": model.save_engine}
            _refuse(
                unused, f"{self._file.path} is an engine already, and this is about building one from an ONNX model"
            )
        self._runtime = plan.choose_runtime(
            self._file, plan.installed_runtimes(), allow_host_code=model.allow_host_code
        )

    def finish(self, folder: Path, progress: Progress) -> Prepared:
        """Build the engine if need be, look at it in a child, and lay out its inputs in `folder`.

        Raises:
            DeviceError, EngineError: it cannot be built or loaded here, and why.
            InputError: the inputs do not fit the engine.
        """
        if self._device.simulate is not None:
            return self._simulated
        built = self._built(folder, progress) if self._file.built_by is None else None
        path = Path(built.plan) if built is not None else self._file.path
        progress(f"looking at {path.name} with {self._runtime}")
        found = self._inspect(path, folder)
        engine = EngineSpec(
            plan=str(path.resolve()),
            runtime=self._runtime.module,
            inputs=tuple(
                self._input(tensor, found, folder / f"input-{number}.bin") for number, tensor in enumerate(found.inputs)
            ),
            profile=self._model.profile,
            plugins=self._plugins(),
            allow_host_code=self._model.allow_host_code,
            sync=self._model.sync,
            copies=self._model.copies,
            sm_clock=self._model.sm_clock,
            verbose=self._model.verbose,
        )
        workload = Workload(
            name=self._file.path.name,
            sha256=plan.sha256(path),
            built_by=self._file.built_by or found.versions["tensorrt"],
            runtime=str(self._runtime),
            inputs=found.inputs,
            outputs=found.outputs,
            batch=_batch(found.inputs),
            input_data=self._described_inputs(found.inputs),
            options={**_options(self._model), "fp16": "yes" if self._model.fp16 else "as built"},
        )
        return Prepared(engine, workload)

    def _built(self, folder: Path, progress: Progress) -> Built:
        told = folder / "build.progress"
        spec = BuildSpec(
            onnx=str(self._file.path),
            runtime=self._runtime.module,
            cache=str(plan.cache_folder()),
            fp16=self._model.fp16,
            shapes=self._shapes(),
            plugins=self._plugins(),
            progress=str(told),
            verbose=self._model.verbose,
        )
        building = self._child("gpuwarm.measure.build:build", spec, folder / "build")
        begin_s = time.monotonic()
        last = ""
        while building.alive():
            time.sleep(_LOOK_S)
            step = told.read_text().strip() if told.exists() else ""
            if step != last:
                progress(f"building the engine ({time.monotonic() - begin_s:.0f} s): {step}")
                last = step
        built = msgspec.json.decode(building.wait(), type=Built)
        progress(
            f"the engine was {'in the cache' if built.cached else f'built in {built.seconds:.1f} s'}: {built.plan}"
        )
        if self._model.save_engine is not None:
            _copy(Path(built.plan), self._model.save_engine)
        return built

    def _inspect(self, path: Path, folder: Path) -> Inspection:
        spec = InspectSpec(
            plan=str(path),
            runtime=self._runtime.module,
            shapes=self._shapes(),
            profile=self._model.profile,
            plugins=self._plugins(),
            allow_host_code=self._model.allow_host_code,
            verbose=self._model.verbose,
        )
        asked = self._child("gpuwarm.measure.inspection:inspect", spec, folder / "inspection")
        return msgspec.json.decode(asked.wait(), type=Inspection)

    def _child(self, target: str, spec: object, stem: Path) -> child.Child:
        environment, verbose = self._device.environment, self._model.verbose
        return child.start(target, spec, stem=stem, environment=environment, show_log=verbose)

    def _plugins(self) -> tuple[str, ...]:
        return tuple(str(path.resolve()) for path in self._model.plugins)

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        return {**{name: array.shape for name, array in self._arrays.items()}, **self._model.shapes}

    def _input(self, tensor: Tensor, found: Inspection, path: Path) -> InputFile:
        if tensor.name in self._arrays:
            content = inputs.given_bytes(tensor, self._arrays[tensor.name])
        elif tensor.name in found.fixed:
            content = inputs.shape_bytes(tensor, found.fixed[tensor.name])
        else:
            content = inputs.random_bytes(tensor, self._model.seed)
        path.write_bytes(content)
        return InputFile(tensor.name, str(path.resolve()), tensor.shape, tensor.dtype)

    def _described_inputs(self, tensors: tuple[Tensor, ...]) -> str:
        names = {tensor.name for tensor in tensors}
        given = [f"{name} from {path.name}" for name, path in self._model.inputs.items()]
        return ", ".join([*given, f"random, seed {self._model.seed}"] if len(given) < len(names) else given)


def _batch(inputs: tuple[Tensor, ...]) -> int | None:
    """The first dimension, where all inputs agree on it: TensorRT does not say which dimension is the batch."""
    firsts = {tensor.shape[0] for tensor in inputs if tensor.shape}
    return firsts.pop() if len(firsts) == 1 else None


def _copy(built: Path, wanted: Path) -> None:
    try:
        wanted.write_bytes(built.read_bytes())
    except OSError as error:
        raise EngineError(f"the engine cannot be saved as {wanted}: {error.strerror}; it is in {built}") from error


def _options(model: Model) -> dict[str, str]:
    return {"sync": model.sync, "copies": "yes" if model.copies else "no", "seed": str(model.seed)}


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Say so where an option would have no effect.

    Raises:
        InputError: one of these was given.
    """
    for option, value in given.items():
        if value:
            raise InputError(f"{option}: {why}; leave it out")


def _simulated(model: Model, profile: str, load_log: str | None) -> Prepared:
    real = {
        "--shape": model.shapes,
        "--input": model.inputs,
        "--profile": model.profile,
        "--plugin": model.plugins,
        "--fp16": model.fp16,
        "--save-engine": model.save_engine,
        "--allow-host-code": model.allow_host_code,
    }
    _refuse(real, "a simulated GPU runs workloads of its own, which have no engine")
    workloads = simulated.profile_named(profile).workloads
    name = model.path or SIMULATED_WORKLOAD
    if name not in workloads:
        raise InputError(f"a simulated GPU cannot load {name}: name one of its own, {', '.join(workloads)}")
    engine = EngineSpec(
        plan=name,
        simulate=profile,
        load_log=load_log,
        seed=model.seed,
        sync=model.sync,
        copies=model.copies,
        sm_clock=model.sm_clock,
    )
    return Prepared(engine, Workload(name=name, runtime="simulated", options=_options(model)))
