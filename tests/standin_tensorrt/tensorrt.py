"""A TensorRT for tests on machines without a GPU: the API that gpuwarm/measure/engine.py uses, on invented engines.

An engine is a plan's 28-byte header followed by JSON: {"tensors": [...], "busy_us", "profiles", "says": what TensorRT
logs instead of loading, "crash": a signal's number, "host_code", "refuses": the enqueue}. A tensor has name, mode,
dtype, shape and perhaps "profiles" (a minimum, optimum and maximum each), "values" (it holds a shape), "vector"
(dimension and components of a vectorised format), "shaped_by" (the input whose values, or first dimension, it follows).
"""

import ctypes
import enum
import json
import math
import os

__version__ = "11.4.0.106"

BYTES = {"FLOAT": 4, "HALF": 2, "INT32": 4, "INT64": 8}
UNKNOWN_OUTPUT_BYTES = 4096


def cuda():
    return ctypes.CDLL("libcuda.so.1")


class Severity(enum.Enum):
    INTERNAL_ERROR = 0
    ERROR = 1
    WARNING = 2
    INFO = 3
    VERBOSE = 4


class ILogger:
    Severity = Severity


class TensorIOMode(enum.Enum):
    NONE = 0
    INPUT = 1
    OUTPUT = 2


class DataType(enum.Enum):
    FLOAT = 0
    HALF = 1
    INT32 = 3
    INT64 = 4
    EXOTIC = 99


class Registry:
    def __init__(self, logger):
        self.logger = logger

    def load_library(self, path):
        self.logger.log(Severity.INFO, f"plugins of {path}")


class Runtime:
    engine_host_code_allowed = False

    def __init__(self, logger):
        self.logger = logger

    def get_plugin_registry(self):
        return Registry(self.logger)

    def deserialize_cuda_engine(self, content):
        description = json.loads(content[28:])
        self.logger.log(Severity.VERBOSE, "Deserializing")
        for severity, message in description.get("says", []):
            self.logger.log(Severity[severity], message)
        if description.get("crash"):
            os.kill(os.getpid(), description["crash"])
        if description.get("host_code") and not self.engine_host_code_allowed:
            self.logger.log(Severity.ERROR, "since IRuntime::getEngineHostCodeAllowed() is false.")
            return None
        return None if description.get("says") else Engine(description)


class Engine:
    def __init__(self, description):
        self.description = description
        self.tensors = {tensor["name"]: tensor for tensor in description["tensors"]}
        self.name = "invented"
        self.num_io_tensors = len(self.tensors)
        self.num_optimization_profiles = description.get("profiles", 1)

    def get_tensor_name(self, number):
        return list(self.tensors)[number]

    def get_tensor_mode(self, name):
        return TensorIOMode[self.tensors[name]["mode"]]

    def get_tensor_dtype(self, name):
        return DataType[self.tensors[name]["dtype"]]

    def get_tensor_shape(self, name):
        return self.tensors[name]["shape"]

    def get_tensor_profile_shape(self, name, profile):
        return self.tensors[name]["profiles"][profile]

    def get_tensor_profile_values(self, _profile, name):
        return [self.tensors[name]["values"]] * 3

    def is_shape_inference_io(self, name):
        return "values" in self.tensors[name]

    def get_tensor_vectorized_dim(self, name):
        return self.tensors[name].get("vector", [-1, -1])[0]

    def get_tensor_components_per_element(self, name):
        return self.tensors[name]["vector"][1]

    def create_execution_context(self):
        return Context(self)


class Context:
    """Keeps the stream busy, then copies the first bytes of the first input to every output."""

    def __init__(self, engine):
        self.engine = engine
        self.profile = 0
        self.shapes = {}
        self.addresses = {}

    def set_optimization_profile_async(self, profile, _stream):
        self.profile = profile
        return True

    def set_input_shape(self, name, shape):
        tensor = self.engine.tensors[name]
        least, _, most = tensor["profiles"][self.profile] if "profiles" in tensor else [tensor["shape"]] * 3
        self.shapes[name] = list(shape)
        return all(low <= it <= high for low, it, high in zip(least, shape, most, strict=True))

    def set_tensor_address(self, name, address):
        self.addresses[name] = address
        return True

    def infer_shapes(self):
        tensors = self.engine.tensors
        return [name for name, tensor in tensors.items() if "values" in tensor and name not in self.addresses]

    def get_tensor_shape(self, name):
        tensor = self.engine.tensors[name]
        source = tensor.get("shaped_by")
        if source is None:
            return tensor["shape"]
        if "values" not in self.engine.tensors[source]:
            return [self.shapes[source][0], *tensor["shape"][1:]]
        memory = (ctypes.c_int64 * len(tensor["shape"])).from_address(self.addresses[source])
        return list(memory)

    def get_max_output_size(self, _name):
        return UNKNOWN_OUTPUT_BYTES

    def _needs(self, name):
        tensor = self.engine.tensors[name]
        shape = list(self.shapes.get(name) or self.get_tensor_shape(name))
        if -1 in shape:
            return UNKNOWN_OUTPUT_BYTES
        if "vector" in tensor:
            dimension, components = tensor["vector"]
            shape[dimension] = math.ceil(shape[dimension] / components) * components
        return math.prod(shape) * BYTES[tensor["dtype"]]

    def _has(self, name):
        start, size = ctypes.c_uint64(), ctypes.c_size_t()
        cuda().cuMemGetAddressRange(ctypes.byref(start), ctypes.byref(size), ctypes.c_uint64(self.addresses[name]))
        return size.value

    def execute_async_v3(self, _stream):
        on_gpu = {name: tensor for name, tensor in self.engine.tensors.items() if "values" not in tensor}
        source = next(name for name, tensor in on_gpu.items() if tensor["mode"] == "INPUT")
        for name, tensor in on_gpu.items():
            if self._has(name) < self._needs(name):
                return False
            if tensor["mode"] == "OUTPUT":
                busy_us = self.engine.description.get("busy_us", 20)
                cuda().standin_busy(
                    busy_us, ctypes.c_void_p(self.addresses[name]), ctypes.c_void_p(self.addresses[source]), 4
                )
        return not self.engine.description.get("refuses")
