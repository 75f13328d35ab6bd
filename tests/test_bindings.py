"""Every name of TensorRT and CUDA that the code uses stands in the real packages, from TensorRT 8.6 to 11.4 and RTX.

The names come from the source itself, by the variables that hold TensorRT's objects. Names that only some versions
have are strings there (`getattr`, `__members__`) and not asked for here.
"""

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

MEASURE = Path(__file__).parent.parent / "gpuwarm" / "measure"
MODULE = ""  # a name of the module itself
HOLDERS = {  # as the source writes it -> the class of what it holds
    "self.trt": MODULE,
    "session.trt": MODULE,
    "trt": MODULE,
    "self.runtime": "Runtime",
    "registry": "IPluginRegistry",
    "self.engine": "ICudaEngine",
    "session.engine": "ICudaEngine",
    "self.context": "IExecutionContext",
    "builder": "Builder",
    "network": "INetworkDefinition",
    "parser": "OnnxParser",
    "config": "IBuilderConfig",
    "profile": "IOptimizationProfile",
    "tensor": "ITensor",
    "complaint": "ParserError",
}
GUARDED = {  # used only where a version has them
    (MODULE, "init_libnvinfer_plugins"),
    ("ParserError", "node_operator"),
    ("IBuilderConfig", "progress_monitor"),
}
Names = set[tuple[str, str]]


def used_names(source: Path, holders: dict[str, str]) -> Names:
    attributes = [node for node in ast.walk(ast.parse(source.read_text())) if isinstance(node, ast.Attribute)]
    written = [(ast.unparse(node.value), node.attr) for node in attributes]
    return {(holders[holder], name) for holder, name in written if holder in holders} - GUARDED


def run_names() -> Names:
    return {(kind, name) for kind, name in used_names(MEASURE / "engine.py", HOLDERS) if not name.startswith("__")}


def build_names() -> Names:
    return {(kind, name) for kind, name in used_names(MEASURE / "build.py", HOLDERS) if not name.startswith("__")}


def test_the_names_are_found_in_the_source() -> None:
    assert {("IExecutionContext", "execute_async_v3"), ("ICudaEngine", "get_tensor_profile_shape")} < run_names()
    assert {(MODULE, "OnnxParser"), ("IBuilderConfig", "add_optimization_profile")} < build_names()


@pytest.mark.parametrize(
    ("name", "module"),
    [
        ("rtx-1.7", "tensorrt_rtx_bindings"),
        ("lean-10.16", "tensorrt_lean_bindings"),
        ("lean-11.4", "tensorrt_lean_bindings"),
    ],
)
def test_a_real_tensorrt_has_every_name(package_folder: Callable[[str], Path], name: str, module: str) -> None:
    names = run_names() | (build_names() if name.startswith("rtx") else set())
    program = (
        "import sys, json, importlib\n"
        f"trt = importlib.import_module({module!r})\n"
        "lacks = [[k, n] for k, n in json.load(sys.stdin) if not hasattr(getattr(trt, k) if k else trt, n)]\n"
        "json.dump({'lacks': lacks, 'numpy': 'numpy' in sys.modules}, sys.stdout)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(sorted(names)),
        env={**os.environ, "PYTHONPATH": str(package_folder(name))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == {"lacks": [], "numpy": False}


@pytest.mark.parametrize("name", ["bindings-8.6", "bindings-10.0", "bindings-10.16", "bindings-11.4"])
def test_the_full_tensorrts_bindings_spell_every_name(package_folder: Callable[[str], Path], name: str) -> None:
    (binary,) = (package_folder(name) / "tensorrt_bindings").glob("tensorrt.so")
    spelt = binary.read_bytes()  # names end in a zero byte; linkers share the ends of longer ones
    assert [it for it in run_names() | build_names() if f"{it[1]}\0".encode() not in spelt] == []


def cuda_names() -> set[str]:
    holders = dict.fromkeys(("driver", "self.driver", "context.driver", "self._context.driver"), "driver")
    sources = (MEASURE / f"{module}.py" for module in ("cuda", "inference", "sm_clock"))
    return {name for source in sources for _, name in used_names(source, holders)}


@pytest.mark.parametrize("name", ["cuda-12.8", "cuda-13.5", None])
def test_a_real_cuda_binding_has_every_name(package_folder: Callable[[str], Path], name: str | None) -> None:
    names = cuda_names()
    assert {"cuInit", "cuLaunchKernel", "cuEventElapsedTime"} < names
    program = (
        "import sys, json\n"
        "from cuda.bindings import driver\n"
        "json.dump([n for n in json.load(sys.stdin) if not hasattr(driver, n)], sys.stdout)\n"
    )
    path = {} if name is None else {"PYTHONPATH": str(package_folder(name))}
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(sorted(names)),
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(done.stdout) == []
