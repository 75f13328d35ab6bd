"""Options and fixtures every test may use."""

import importlib.util
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

STANDIN_SOURCE = Path(__file__).parent / "standin_nvml" / "nvml.c"
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


def nvml_setters() -> list[str]:
    """Every NVML function known to the installed binding that changes something."""
    source = Path(importlib.util.find_spec("pynvml").origin).read_text()
    names = sorted(set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', source)))
    reads = re.compile(r"nvml[A-Z][a-z]+(Instance)?(Get|Query)|nvmlInit|EventSet")
    changes = re.compile(r"Set|Reset|Clear|Create|Destroy|Remove|Modify|Discover|Freeze|Activate|Update|Force|Write")
    return [name for name in names if changes.search(name) and not reads.match(name) and "EventSet" not in name]


@pytest.fixture(scope="session")
def compile_standin_nvml(tmp_path_factory: pytest.TempPathFactory) -> Callable[[frozenset[str]], Path]:
    """Folder with a stand-in libnvidia-ml.so.1 that lacks the named functions."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, to compile the stand-in NVML library")
    root = tmp_path_factory.mktemp("standin_nvml")
    (root / "setters.h").write_text("".join(f"SETTER({name})\n" for name in nvml_setters()))
    compiled: dict[frozenset[str], Path] = {}

    def library(missing: frozenset[str]) -> Path:
        if missing not in compiled:
            folder = root / str(len(compiled))
            folder.mkdir()
            subprocess.run(
                ["gcc", "-O1", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", f"-I{root}"]
                + [f"-D{name}=absent_{name}" for name in missing]
                + ["-o", folder / "libnvidia-ml.so.1", STANDIN_SOURCE],
                check=True,
            )
            compiled[missing] = folder
        return compiled[missing]

    return library


@pytest.fixture
def standin_nvml(compile_standin_nvml: Callable[[frozenset[str]], Path], tmp_path: Path) -> Standin:
    """Make the environment in which a child process meets the GPUs of a timeline (see standin_nvml/nvml.c).

    standin_nvml("0 pstate=8", missing=["nvmlDeviceGetTemperatureV"]) -> variables to set for the child
    """

    def environment(timeline: str, *, missing: Collection[str] = ()) -> dict[str, str]:
        library = compile_standin_nvml(frozenset(missing))
        file = tmp_path / f"timeline-{len(list(tmp_path.glob('timeline-*')))}"
        file.write_text(timeline + "\n")
        path = os.pathsep.join([str(library), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])
        return {"LD_LIBRARY_PATH": path, "STANDIN_NVML_TIMELINE": str(file)}

    return environment


@pytest.fixture(scope="session")
def standin_cuda(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which a child process meets the GPU of standin_cuda/cuda.c."""
    if shutil.which("gcc") is None:
        pytest.skip("needs gcc, to compile the stand-in CUDA library")
    folder = tmp_path_factory.mktemp("standin_cuda")
    source = Path(__file__).parent / "standin_cuda" / "cuda.c"
    library = folder / "libcuda.so.1"
    subprocess.run(["gcc", "-O1", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return {"LD_LIBRARY_PATH": os.pathsep.join([str(folder), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])])}
