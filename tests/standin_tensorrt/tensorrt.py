"""A TensorRT for tests on machines without a GPU: the API that gpuwarm/measure/engine.py uses, on invented engines.

An engine is a plan's 28-byte header followed by JSON: {"tensors": [{"name", "mode", "dtype", "shape", "profile":
[minimum, optimum, maximum], "values": the optimum of a shape tensor, "vector": [dimension, components]}], "profiles",
"busy_us", "says": what TensorRT logs instead of loading, "crash": a signal's number}.
"""

import ctypes
import enum
import json
import os
import time

__version__ = "11.4.0.106"


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
    def load_library(self, path):
        return path


class Runtime:
    engine_host_code_allowed = False

    def __init__(self, logger):
        self.logger = logger

    def get_plugin_registry(self):
        return Registry()

    def deserialize_cuda_engine(self, content):
        description = json.loads(content[28:])
        self.logger.log(Severity.VERBOSE, "Deserializing")
        for severity, message in description.get("says", []):
            self.logger.log(Severity[severity], message)
        if description.get("crash"):
            os.kill(os.getpid(), description["crash"])
        if description.get("says"):
            return None
        return Engine(description)


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

    def get_tensor_profile_shape(self, name, _profile):
        return self.tensors[name]["profile"]

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
    """Copies the first bytes of the first input on the GPU to every output on the GPU."""

    def __init__(self, engine):
        self.engine = engine
        self.shapes = {}
        self.addresses = {}

    def set_optimization_profile_async(self, _profile, _stream):
        return True

    def set_input_shape(self, name, shape):
        self.shapes[name] = tuple(shape)
        return len(shape) == len(self.engine.tensors[name]["shape"])

    def set_tensor_address(self, name, address):
        self.addresses[name] = address
        return True

    def infer_shapes(self):
        return []

    def get_tensor_shape(self, name):
        """A dynamic first dimension of an output is that of the first input."""
        shape = self.engine.tensors[name]["shape"]
        first = next(iter(self.shapes.values()))
        return (first[0], *shape[1:]) if self.engine.tensors[name].get("follows") else tuple(shape)

    def get_max_output_size(self, _name):
        return 4096

    def execute_async_v3(self, _stream):
        until = time.monotonic_ns() + self.engine.description.get("busy_us", 20) * 1000
        tensors = self.engine.tensors.values()
        source = self.addresses[next(tensor["name"] for tensor in tensors if tensor["mode"] == "INPUT")]
        for tensor in tensors:
            if tensor["mode"] == "OUTPUT" and "values" not in tensor:
                ctypes.memmove(self.addresses[tensor["name"]], source, 4)
        while time.monotonic_ns() < until:
            pass
        return not self.engine.description.get("refuses")
