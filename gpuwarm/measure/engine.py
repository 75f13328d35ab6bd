"""The only module that imports TensorRT: load an engine step by step, and say what it takes.

Everything here runs inside a child process of `child.py`, because loading an engine runs its native code. TensorRT is
imported by the name that `plan.choose_runtime` found, so that every version and flavour goes one way: named tensors
and `execute_async_v3`, which all since 8.6 have.
"""

import ctypes
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from math import prod
from typing import TYPE_CHECKING, Any, Literal

from gpuwarm.errors import DeviceError, EngineError
from gpuwarm.measure import cuda
from gpuwarm.measure.inference import Inference
from gpuwarm.measure.seam import ColdStart, Loaded

if TYPE_CHECKING:
    from gpuwarm.measure.spec import EngineSpec, InputFile

TensorRT = Any  # the module; its objects have no types

NAMES = {
    "tensorrt": "TensorRT",
    "tensorrt_lean": "TensorRT's lean runtime",
    "tensorrt_dispatch": "TensorRT's dispatch runtime",
    "tensorrt_rtx": "TensorRT-RTX",
}

_DTYPES = {  # TensorRT's name -> numpy's (or ml_dtypes') and bits
    "FLOAT": ("float32", 32),
    "HALF": ("float16", 16),
    "BF16": ("bfloat16", 16),
    "INT8": ("int8", 8),
    "INT32": ("int32", 32),
    "INT64": ("int64", 64),
    "BOOL": ("bool", 8),
    "UINT8": ("uint8", 8),
    "FP8": ("float8_e4m3fn", 8),
    "E8M0": ("float8_e8m0fnu", 8),
    "INT4": ("int4", 4),
    "FP4": ("float4_e2m1fn", 4),
}
_OPTIMUM = 1  # of a profile's minimum, optimum, maximum
_DYNAMIC = -1
_COMPLAINTS = ("INTERNAL_ERROR", "ERROR")

# What TensorRT logs when it does not load an engine (the texts are in its libraries, 8.6 to 11.4 and RTX 1.7).
_CAUSES = (
    (
        r"expecting compute (\S+) got compute (\S+?),? please",
        "it was built for compute capability {0} and this GPU has {1}: build it on this GPU",
    ),
    (
        r"[Ee]xpected compute capability >= ?(\S+)",
        "it was built for compute capability {0} or newer, which this GPU is not: build it on this GPU",
    ),
    (
        r"cannot run on this GPU, which has compute capability (\d+\.\d+)",
        "it was not built for compute capability {0}, which this GPU has: build it for this GPU",
    ),
    (
        r"(?:[Cc]annot find|could not find) plugin: ?([^\s,]+)",
        "it needs the plugin {0}: give the library that has it with --plugin LIBRARY",
    ),
    (
        r"getEngineHostCodeAllowed\(\) is false",
        "it brings host code along: allow that code to run here with --allow-host-code, if you trust its source",
    ),
    (
        r"expecting library version (\S+) got (\S+?),? please",
        "it was built by TensorRT {1} and this is {0}: install that version, or build it again",
    ),
    (
        r"created with TensorRT-RTX version ([\d.]*\d), but the current runtime is TensorRT-RTX version ([\d.]*\d)",
        "it was built by TensorRT-RTX {0} and this is {1}: install that version, or build it again",
    ),
    (
        r"Version tag does not match|older TensorRT version|old deserialization call",
        "it was built by another version of TensorRT: install that one, or build it again",
    ),
    (r"driver version is insufficient", "the NVIDIA driver is too old for this TensorRT: update the driver"),
    (r"[Oo]ut ?[Oo]f ?[Mm]emory", "the GPU has too little memory left for it: end what else runs there"),
    (
        r"corrupt|Magic tag|archive size|empty memory buffer",
        "the file is damaged: copy it again and compare checksums",
    ),
)


def cold_start(spec: "EngineSpec") -> ColdStart:
    """Load an engine, each step as an application would do it; yields the step's name once it is done.

    Raises:
        DeviceError: no driver, no GPU, no TensorRT.
        EngineError: the engine cannot be used; says why.
    """
    driver = cuda.import_driver()
    yield "cuda_import"
    cuda_version = cuda.initialise(driver)
    yield "driver_init"
    context = cuda.Context(driver, spec.sync)
    yield "context"
    assert spec.runtime is not None  # only a simulated engine has none
    session = Session(spec.runtime, verbose=spec.verbose)
    yield "tensorrt_import"
    session.start(spec.plugins, allow_host_code=spec.allow_host_code)
    yield "runtime"
    session.load(spec.plan)
    yield "deserialise"
    session.prepare(context, spec.profile)
    yield "execution_context"
    copy_in, copy_out = session.give_memory(context, spec.inputs)
    if not spec.copies:
        for buffer in copy_in:
            context.upload(buffer)
        copy_in, copy_out = (), ()
    inference = Inference(context, session.enqueue, copy_in=copy_in, copy_out=copy_out)
    yield "buffers"

    def close() -> None:
        context.synchronise()
        inference.let_go()
        session.close()

    return Loaded(
        infer=inference.infer,
        attach_clock=inference.attach_clock if spec.sm_clock else lambda: None,
        touch=inference.touch,
        close=close,
        versions={"cuda": cuda_version, "tensorrt": session.version, "runtime": spec.runtime},
    )


class Session:
    """TensorRT in this process: its runtime, one engine and its tensors, and what it complained about."""

    def __init__(self, module: str, *, verbose: bool) -> None:
        """Import it.

        Raises:
            DeviceError: it is not installed, or without its libraries.
        """
        try:
            self.trt: TensorRT = import_module(module)
        except (ImportError, OSError) as error:
            raise DeviceError(
                f"{module} does not load ({error}): install its libraries too, not the bindings alone"
            ) from error
        self.version: str = self.trt.__version__
        self.name = f"{NAMES[module.removesuffix('_bindings')]} {self.version}"
        self.complaints: list[str] = []
        self.logger = self._logger(verbose=verbose)
        self.runtime: Any = None
        self.engine: Any = None
        self.context: Any = None  # an IExecutionContext
        self._host_values: list[object] = []  # TensorRT reads them by address

    def _logger(self, *, verbose: bool) -> Any:
        base: Any = self.trt.ILogger
        complaints = self.complaints

        class Logger(base):  # type: ignore[misc]  # its base is known at run time
            """Writes to stderr, which is the child's log, and keeps the errors for our sentences."""

            def __init__(self) -> None:
                base.__init__(self)

            def log(self, severity: Any, message: str) -> None:
                if verbose or severity.name != "VERBOSE":
                    sys.stderr.write(f"TensorRT {severity.name.lower()}: {message.strip()}\n")
                if severity.name in _COMPLAINTS:
                    complaints.append(message.strip())

        return Logger()

    def start(self, plugins: Sequence[str], *, allow_host_code: bool) -> None:
        """Make a runtime and load the plugins. Only with a driver: TensorRT 10 and 11 crash without one."""
        try:
            self.runtime = self.trt.Runtime(self.logger)
        except (TypeError, RuntimeError) as error:  # "factory function returned nullptr"
            raise DeviceError(f"{self.name} does not start: {self._said()}") from error
        self.runtime.engine_host_code_allowed = allow_host_code
        self.load_plugins(plugins, self.runtime.get_plugin_registry())

    def load_plugins(self, plugins: Sequence[str], registry: Any) -> None:
        """Make TensorRT's own plugins known where it has them, and those of these libraries.

        Raises:
            EngineError: a library does not load.
        """
        if hasattr(self.trt, "init_libnvinfer_plugins"):  # lean runtimes ship none
            self.trt.init_libnvinfer_plugins(self.logger, "")
        for path in plugins:
            try:
                library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)  # one of the older kind registers itself here
            except OSError as error:
                raise EngineError(f"the plugin library {path} does not load ({error}): look at --plugin") from error
            if hasattr(library, "getCreators") or hasattr(library, "getPluginCreators"):
                registry.load_library(path)

    def load(self, path: str) -> None:
        """Deserialise an engine.

        Raises:
            EngineError: TensorRT does not take it; says why.
        """
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError as error:
            raise EngineError(f"{path} cannot be read ({error.strerror}): look at its path and permissions") from error
        self.engine = self.runtime.deserialize_cuda_engine(content)
        if self.engine is None:
            raise EngineError(f"{os.path.basename(path)} does not load in {self.name}: {self.why()}")
        if getattr(self.engine, "has_implicit_batch_dimension", False):  # 8.6 and 10 alone know the word
            raise EngineError(
                f"{os.path.basename(path)} has an implicit batch dimension: build it again from an ONNX model"
            )

    def prepare(self, context: cuda.Context, profile: int) -> None:
        """Create the execution context, in that optimisation profile.

        Raises:
            EngineError: there is no such profile, or no room for it on the GPU.
        """
        count = self.engine.num_optimization_profiles
        if profile not in range(count):
            raise EngineError(f"--profile {profile}: the engine has {count} optimisation profile(s), counted from 0")
        self.context = self.engine.create_execution_context()
        if self.context is None:
            raise EngineError(f"{self.name} cannot run the engine on this GPU: {self.why()}")
        if profile != 0:
            self.context.set_optimization_profile_async(profile, context.handle)
            context.synchronise()

    @property
    def enqueue(self) -> Callable[[int], bool]:
        """Put one inference into the stream of that handle."""
        enqueue: Callable[[int], bool] = self.context.execute_async_v3
        return enqueue

    def names(self, mode: Literal["INPUT", "OUTPUT"]) -> list[str]:
        """The engine's inputs or outputs."""
        names = (self.engine.get_tensor_name(number) for number in range(self.engine.num_io_tensors))
        return [name for name in names if self.engine.get_tensor_mode(name).name == mode]

    def dtype(self, name: str) -> tuple[str, int]:
        """A tensor's type: numpy's name for it, and its bits."""
        dtype: str = self.engine.get_tensor_dtype(name).name
        if dtype not in _DTYPES:
            raise EngineError(f"tensor {name} has the type {dtype}, which this gpuwarm does not know: upgrade it")
        return _DTYPES[dtype]

    def shape(self, name: str) -> tuple[int, ...]:
        """A tensor's shape under the input shapes that were set; what depends on the data is -1."""
        return tuple(self.context.get_tensor_shape(name))

    def resolve(
        self, wanted: Mapping[str, tuple[int, ...]], profile: int
    ) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
        """Set every input's shape, as wanted or at the profile's optimum.

        Returns:
            The shapes, and the values of the inputs whose values are themselves shapes.

        Raises:
            EngineError: the engine does not take such a shape, or has no such input.
        """
        names = self.names("INPUT")
        unknown = [name for name in wanted if name not in names]
        if unknown:
            raise EngineError(f"the engine has no input {unknown[0]}: name one of {', '.join(names)}")
        shapes = {name: self._resolved(name, wanted.get(name), profile) for name in names}
        fixed = {name: self._shape_values(name, profile) for name in names if self.engine.is_shape_inference_io(name)}
        for name, shape in shapes.items():
            self._set_shape(name, shape)
        for name, values in fixed.items():
            kind = ctypes.c_int64 if self.dtype(name)[0] == "int64" else ctypes.c_int32
            memory = (kind * len(values))(*values)
            self._host_values.append(memory)
            self.context.set_tensor_address(name, ctypes.addressof(memory))
        self.context.infer_shapes()
        return shapes, fixed

    def _resolved(self, name: str, wanted: tuple[int, ...] | None, profile: int) -> tuple[int, ...]:
        declared = tuple(self.engine.get_tensor_shape(name))
        if _DYNAMIC not in declared:
            least = optimum = most = declared
        else:
            least, optimum, most = map(tuple, self.engine.get_tensor_profile_shape(name, profile))
        if wanted is None:
            return optimum
        fits = len(wanted) == len(declared) and all(
            low <= it <= high for low, it, high in zip(least, wanted, most, strict=True)
        )
        if not fits:
            allowed = written(least) if least == most else f"{written(least)} to {written(most)}"
            raise EngineError(
                f"input {name} cannot be {written(wanted)}: in profile {profile} the engine takes {allowed}"
            )
        return wanted

    def _shape_values(self, name: str, profile: int) -> tuple[int, ...]:
        # 8.6 has it under another name.
        has = hasattr(self.engine, "get_tensor_profile_values")
        get = getattr(self.engine, "get_tensor_profile_values" if has else "get_profile_shape_input")
        return tuple(get(profile, name)[_OPTIMUM])

    def _set_shape(self, name: str, shape: tuple[int, ...]) -> None:
        if not self.context.set_input_shape(name, shape):
            raise EngineError(f"the engine does not take {written(shape)} for its input {name}: {self.why()}")

    def give_memory(
        self, context: cuda.Context, inputs: "Sequence[InputFile]"
    ) -> tuple[tuple[cuda.Buffer, ...], tuple[cuda.Buffer, ...]]:
        """Give every tensor memory, and the inputs their values on the host.

        Returns:
            What an inference copies to the GPU, and back.

        Raises:
            EngineError: an input's data are missing or do not fit it.
        """
        given = {file.name: file for file in inputs}
        copy_in, copy_out = [], []
        for name in self.names("INPUT"):
            if name not in given:
                raise EngineError(f"the engine's input {name} has no data: give it with --input {name}=FILE.npy")
            shape = tuple(given[name].shape)
            self._set_shape(name, shape)
            host, buffers = self._give(context, name, self._memory_bytes(name, shape))
            cuda.fill(host, self._bytes(name, shape), given[name].path)
            copy_in += buffers
        lacking = self.context.infer_shapes()
        if lacking:
            raise EngineError(f"the shape of {', '.join(lacking)} is not known: give it with --shape")
        for name in self.names("OUTPUT"):
            shape = self.shape(name)
            depends = _DYNAMIC in shape
            size = self.context.get_max_output_size(name) if depends else self._memory_bytes(name, shape)
            copy_out += self._give(context, name, size)[1]
        return tuple(copy_in), tuple(copy_out)

    def _give(self, context: cuda.Context, name: str, size: int) -> tuple[int, list[cuda.Buffer]]:
        if self.engine.is_shape_inference_io(name):  # the host reads or writes it
            host = context.pinned(size)
            self.context.set_tensor_address(name, host)
            return host, []
        buffer = context.buffer(size)
        self.context.set_tensor_address(name, int(buffer.device))
        return buffer.host, [buffer]

    def _bytes(self, name: str, shape: Sequence[int]) -> int:
        return (prod(shape) * self.dtype(name)[1] + 7) // 8

    def _memory_bytes(self, name: str, shape: Sequence[int]) -> int:
        """What TensorRT wants: a vectorised format fills one dimension up to whole vectors."""
        vectorised = self.engine.get_tensor_vectorized_dim(name)
        padded = list(shape)
        if vectorised >= 0:
            vector = self.engine.get_tensor_components_per_element(name)
            padded[vectorised] = -(-padded[vectorised] // vector) * vector
        return self._bytes(name, padded)

    def why(self) -> str:
        """Why it failed, in our words where its messages are known."""
        for complaint in self.complaints:
            for pattern, words in _CAUSES:
                match = re.search(pattern, complaint)
                if match is not None:
                    return words.format(*match.groups())
        lean = (
            "a lean runtime takes only engines built with VERSION_COMPATIBLE; " if "lean" in self.trt.__name__ else ""
        )
        return f"{lean}TensorRT says: {self._said()}"

    def _said(self) -> str:
        return self.complaints[-1] if self.complaints else "nothing; run again with --verbose"

    def close(self) -> None:
        """Let go in the order TensorRT wants, before the CUDA context ends."""
        self.context = None
        self.engine = None
        self.runtime = None


def written(shape: Sequence[int]) -> str:
    """A shape as --shape takes it."""
    return "x".join(map(str, shape))
