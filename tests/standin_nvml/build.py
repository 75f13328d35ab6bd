"""Compile the stand-in libnvidia-ml.so.1 from nvml.c, for tests and benchmarks."""

import importlib.util
import re
import subprocess
from collections.abc import Iterable
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")


def setters() -> list[str]:
    """Every NVML function known to the installed binding that changes something."""
    spec = importlib.util.find_spec("pynvml")
    names = sorted(set(re.findall(r'_nvmlGetFunctionPointer\("(\w+)"\)', Path(spec.origin).read_text())))
    reads = re.compile(r"nvml[A-Z][a-z]+(Instance)?(Get|Query)|.*EventSet|nvmlInit")
    changes = re.compile(r"Set|Reset|Clear|Create|Destroy|Remove|Modify|Discover|Freeze|Activate|Update|Force|Write")
    return [name for name in names if changes.search(name) and not reads.match(name)]


def build(folder: Path, missing: Iterable[str] = ()) -> Path:
    """Make `folder` with a library that lacks the named functions; LD_LIBRARY_PATH must begin with it."""
    folder.mkdir(parents=True)
    (folder / "setters.h").write_text("".join(f"SETTER({name})\n" for name in setters()))
    without = [f"-D{name}=absent_{name}" for name in missing]
    library = folder / "libnvidia-ml.so.1"
    command = ["gcc", "-O1", "-shared", "-fPIC", f"-Wl,-soname,{library.name}", f"-I{folder}", *without]
    subprocess.run([*command, "-o", library, SOURCE], check=True)
    return folder


def environment(library: Path, timeline: Path, library_path: str = "") -> dict[str, str]:
    """What a process must be started with to meet the timeline's GPUs."""
    return {"LD_LIBRARY_PATH": f"{library}:{library_path}".rstrip(":"), "STANDIN_NVML_TIMELINE": str(timeline)}
