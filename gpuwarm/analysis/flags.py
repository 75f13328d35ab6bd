"""Lines to paste into other tools, so that they warm up as long as this workload needs."""

import json
from collections.abc import Sequence
from math import ceil

from gpuwarm.analysis.course import Behaviour
from gpuwarm.analysis.pace import Pace
from gpuwarm.analysis.steady import Warmup
from gpuwarm.analysis.words import number
from gpuwarm.metadata import Metadata, Tensor, Workload

GRAPH_BY_DEFAULT_MAJOR = 11  # from this TensorRT on, trtexec replays a CUDA graph unless told not to
COLD_INFERENCES = 2  # what a process loads at first use is loaded by its second inference
TRITON_TYPES = {  # numpy's names -> model_config.proto's
    "bool": "TYPE_BOOL",
    "uint8": "TYPE_UINT8",
    "int8": "TYPE_INT8",
    "int16": "TYPE_INT16",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "float16": "TYPE_FP16",
    "bfloat16": "TYPE_BF16",
    "float32": "TYPE_FP32",
    "float64": "TYPE_FP64",
}


def flags(
    meta: Metadata, behaviour: Behaviour, warmup: Warmup, pace: Pace | None = None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """What to add to each tool's command line or configuration, by tool; and what to know about it."""
    if warmup.recommended_ms is None or warmup.recommended_iterations is None:
        return {}, ()
    iterations = warmup.recommended_iterations
    found = {
        "trtexec": f"--warmUp={ceil(warmup.recommended_ms)}",
        "perf_analyzer": f"--warmup-request-count={iterations}",
        "polygraphy": f"--warm-up {iterations}",
    }
    notes = []
    if pace is not None:
        rate = number(1e3 / pace.interval_ms).replace(",", "")
        found = {"perf_analyzer": f"--request-rate-range={rate} {found['perf_analyzer']}"}
        notes.append(
            "trtexec and Polygraphy warm up back to back (with --idleTime, too), so neither has a line for this pace"
        )
    elif _major(meta) >= GRAPH_BY_DEFAULT_MAJOR:
        found["trtexec"] += " --noCudaGraph"
        notes.append(
            "trtexec 11 replays a CUDA graph by default, and captures it before it measures: without --noCudaGraph "
            "its times are not those of this run, and the first inference is never seen"
        )
    requests = iterations
    if pace is not None and iterations > COLD_INFERENCES:
        requests = COLD_INFERENCES
        notes.append(
            f"Triton warms up back to back as well: {COLD_INFERENCES} inferences load what is loaded at first use, and "
            "the others would not be at this pace"
        )
    elif behaviour == "slowdown":
        requests = COLD_INFERENCES
        notes.append(
            f"a server needs {COLD_INFERENCES} inferences to load what is loaded at first use; more would only "
            "bring it to its slower steady state sooner"
        )
    block, why_not = _triton(meta.workload, requests)
    if block:
        found["triton_model_warmup"] = block
    return found, (*notes, why_not) if why_not else tuple(notes)


def _major(meta: Metadata) -> int:
    """TensorRT's major version; 0 where it is not known."""
    version = meta.versions.get("tensorrt") or meta.workload.built_by or ""
    major = version.split(".")[0]
    return int(major) if major.isdecimal() else 0


def _triton(workload: Workload, requests: int) -> tuple[str | None, str | None]:
    """A `model_warmup` block, or why there is none."""
    if requests == 0:
        return None, None
    if not workload.inputs:
        return None, "no Triton model_warmup: the engine's inputs are not in this recording"
    unknown = [tensor for tensor in workload.inputs if tensor.dtype not in TRITON_TYPES]
    if unknown:
        return None, f"no Triton model_warmup: Triton has no type for {unknown[0].name} ({unknown[0].dtype})"
    batch = _batch(workload)
    lines = ["model_warmup [", "  {", '    name: "gpuwarm"', f"    batch_size: {batch or 1}"]
    for tensor in workload.inputs:
        lines += _triton_input(tensor, tensor.shape[1:] if batch else tensor.shape)
    return "\n".join([*lines, f"    count: {requests}", "  }", "]"]), None


def _batch(workload: Workload) -> int | None:
    """The batch, where every input has it as its first dimension; Triton leaves it out of `dims`."""
    firsts = {tensor.shape[:1] for tensor in workload.inputs}
    return workload.batch if workload.batch and firsts == {(workload.batch,)} else None


def _triton_input(tensor: Tensor, dims: Sequence[int]) -> list[str]:
    # Random integers may be no valid indices and crash a model; zeros draw less power, but warm up what is loaded.
    content = "random_data" if "float" in tensor.dtype else "zero_data"
    return [
        "    inputs {",
        f"      key: {json.dumps(tensor.name)}",
        "      value {",
        f"        data_type: {TRITON_TYPES[tensor.dtype]}",
        f"        dims: [ {', '.join(map(str, dims))} ]",
        f"        {content}: true",
        "      }",
        "    }",
    ]
