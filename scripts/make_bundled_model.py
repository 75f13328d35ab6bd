"""Write the model that `gpuwarm run` uses when it is given none: a small convolutional network with invented weights.

usage: python scripts/make_bundled_model.py [PATH]
"""

import sys

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from gpuwarm.measure.plan import BUNDLED_MODEL

INPUT_SHAPE = (1, 3, 64, 64)
CHANNELS_AND_STRIDES = ((16, 2), (32, 2), (32, 1))
OPSET, IR_VERSION = 13, 8  # old enough for TensorRT 8.6


def model() -> onnx.ModelProto:
    """Convolution and ReLU three times, then the average of each channel."""
    random = np.random.default_rng(0)
    nodes, weights = [], []
    tensor, channels = "x", INPUT_SHAPE[1]
    for number, (out_channels, stride) in enumerate(CHANNELS_AND_STRIDES):
        scale = np.sqrt(2 / (9 * channels))  # keeps the variance through a ReLU
        values = (random.standard_normal((out_channels, channels, 3, 3)) * scale).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{number}"))
        sizes = {"kernel_shape": [3, 3], "strides": [stride, stride], "pads": [1, 1, 1, 1]}
        nodes.append(helper.make_node("Conv", [tensor, f"w{number}"], [f"c{number}"], **sizes))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        tensor, channels = f"r{number}", out_channels
    nodes.append(helper.make_node("GlobalAveragePool", [tensor], ["y"]))
    graph = helper.make_graph(
        nodes,
        "gpuwarm-tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, INPUT_SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, channels, 1, 1))],
        weights,
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(made)
    return made


if __name__ == "__main__":
    onnx.save(model(), sys.argv[1] if len(sys.argv) > 1 else BUNDLED_MODEL)
