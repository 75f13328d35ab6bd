"""Options and fixtures every test may use."""

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest
from standin_nvml.build import build, environment

Standin = Callable[..., dict[str, str]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases", type=Path, default=None, help="folder of real machine output to read (not in this project)"
    )


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Path:
    folder = request.config.getoption("--cases")
    if folder is None:
        pytest.skip("needs --cases FOLDER, real machine output that is not part of this project")
    return folder


@pytest.fixture
def h200(cases: Path) -> Path:
    """Traces of a real H200; they lie beside the cases and are not part of this project either."""
    folder = cases.parent / "h200"
    if not folder.is_dir():
        pytest.skip(f"needs the H200 traces in {folder}")
    return folder


@pytest.fixture(scope="session")
def standin_nvml_library(tmp_path_factory: pytest.TempPathFactory) -> Callable[[frozenset[str]], Path]:
    """Folder with a stand-in libnvidia-ml.so.1 that lacks the named functions."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, to compile the stand-in NVML library")
    root = tmp_path_factory.mktemp("standin_nvml")
    return functools.cache(lambda missing: build(root / ("without-" + "-".join(sorted(missing))), missing))


@pytest.fixture
def standin_nvml(standin_nvml_library: Callable[[frozenset[str]], Path], tmp_path: Path) -> Standin:
    """Make the environment in which a child process meets the GPUs of a timeline (see standin_nvml/nvml.c).

    standin_nvml("0 pstate=8", missing=["nvmlDeviceGetTemperatureV"]) -> variables to set for the child
    """

    def start(timeline: str, *, missing: Collection[str] = ()) -> dict[str, str]:
        file = tmp_path / f"timeline-{len(list(tmp_path.glob('timeline-*')))}"
        file.write_text(timeline + "\n")
        return environment(standin_nvml_library(frozenset(missing)), file, os.environ.get("LD_LIBRARY_PATH", ""))

    return start


@pytest.fixture(scope="session")
def standin_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a child process meets the GPU of standin_cuda/cuda.c."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, to compile the stand-in CUDA library")
    folder = tmp_path_factory.mktemp("standin_cuda")
    source = Path(__file__).parent / "standin_cuda" / "cuda.c"
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl", "-lpthread"], check=True)
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}


@pytest.fixture(scope="session")
def package_folder() -> Callable[[str], Path]:
    """Find a package, such as rtx-1.7, that scripts/runtimes put into a folder of its own."""
    root = Path(__file__).parent.parent / ".runtimes" / f"py{sys.version_info.major}.{sys.version_info.minor}"

    def folder(name: str) -> Path:
        if not (root / name).is_dir():
            pytest.skip(f"needs {name}: run scripts/runtimes")
        return root / name

    return folder


@pytest.fixture
def standin_tensorrt(standin_cuda: dict[str, str], tmp_path: Path) -> dict[str, str]:
    """The environment in which `tensorrt_lean` 8.6.0 is standin_tensorrt/tensorrt.py, and CUDA the stand-in."""
    site = tmp_path / "site"
    metadata = site / "tensorrt_lean-8.6.0.dist-info" / "METADATA"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("Metadata-Version: 2.1\nName: tensorrt-lean\nVersion: 8.6.0\n")
    shutil.copy(Path(__file__).parent / "standin_tensorrt" / "tensorrt.py", site / "tensorrt_lean.py")
    here = str(Path(__file__).parent)
    return {**standin_cuda, "PYTHONPATH": os.pathsep.join([str(site), here, *sys.path[1:]])}
