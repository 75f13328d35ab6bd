"""The operating system's side of a machine: containers, device holders, CUDA's set-up, packages. It only reads."""

import importlib.machinery
import importlib.metadata
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from gpuwarm.machine import CudaCache, DeviceHolder, GpuNode, HostState
from gpuwarm.measure import persistenced

# Variables that change how CUDA starts. Others are left alone: NVIDIA_API_KEY and its like are secrets.
_VARIABLES = re.compile(r"CUDA_[A-Z0-9_]+|NVIDIA_(VISIBLE_DEVICES|DRIVER_CAPABILITIES|TF32_OVERRIDE)")
_GPU_DEVICE = re.compile(r"/dev/(nvidia\d+)")  # nvidiactl and nvidia-uvm belong to no GPU and keep none loaded
_RUNTIMES = (
    "tensorrt",
    "tensorrt_bindings",
    "tensorrt_lean",
    "tensorrt_lean_bindings",
    "tensorrt_dispatch",
    "tensorrt_rtx",
    "tensorrt_rtx_bindings",
)
_PACKAGES = (
    *(f"{kind}{cuda}{part}"
      for kind in ("tensorrt", "tensorrt-lean", "tensorrt-dispatch", "tensorrt-rtx")
      for cuda in ("", "-cu11", "-cu12", "-cu13")
      for part in ("", "-bindings", "-libs")),
    "cuda-python", "cuda-bindings", "nvidia-ml-py",
    "nvidia-cuda-runtime", "nvidia-cuda-runtime-cu11", "nvidia-cuda-runtime-cu12",
)  # fmt: skip
# Inodes of the first namespaces of a booted kernel (include/linux/proc_ns.h). A process that is still in all of them
# is in no container, whatever files an image left behind.
_FIRST_NAMESPACES = {"pid": 4026531836, "uts": 4026531838}
_CGROUP_CONTAINERS = {"kubepods": "kubernetes", "docker": "docker", "libpod": "podman", "lxc": "lxc"}
_MIB = 1 << 20


def read(
    root: Path = Path("/"),
    *,
    environment: Mapping[str, str] | None = None,
    search_path: Sequence[str] | None = None,
) -> HostState:
    """The host below `root`, as this process sees it.

    Args:
        root: the folder that holds /proc, /sys, /etc and /run.
        environment: the variables in force; those of this process if not given.
        search_path: where Python packages are looked for; `sys.path` if not given.
    """
    variables = os.environ if environment is None else environment
    release = _os_release(root)
    holders, complete = _holders(root)
    total, available = _memory_mib(root)
    paths = sys.path if search_path is None else list(search_path)
    return HostState(
        hostname=_text(root / "proc/sys/kernel/hostname"),
        kernel=_text(root / "proc/sys/kernel/osrelease"),
        distribution=release.get("PRETTY_NAME"),
        distribution_ids=tuple(f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".split()),
        uptime_s=_uptime_s(root),
        container=_container(root, variables),
        environment={name: value for name, value in variables.items() if _VARIABLES.fullmatch(name)},
        persistence_daemon=persistenced.read(root),
        holders=holders,
        holders_complete=complete,
        gpu_nodes=tuple(_gpu_nodes(root)),
        cuda_cache=_cuda_cache(root, variables),
        cpu_governor=_over_cpus(root, "scaling_governor"),
        cpu_frequency_driver=_over_cpus(root, "scaling_driver"),
        memory_total_mib=total,
        memory_available_mib=available,
        runtimes=tuple(name for name in _RUNTIMES if importlib.machinery.PathFinder.find_spec(name, paths)),
        packages=_packages(paths),
    )


def _text(path: Path) -> str | None:
    """A small file's content without the white space around it; None where it cannot be read."""
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _os_release(root: Path) -> dict[str, str]:
    text = _text(root / "etc/os-release") or _text(root / "usr/lib/os-release") or ""
    pairs = (line.partition("=") for line in text.splitlines())
    return {key: value.strip("\"'") for key, equals, value in pairs if equals}


def _uptime_s(root: Path) -> float | None:
    text = _text(root / "proc/uptime")
    return float(text.split()[0]) if text else None


def _container(root: Path, variables: Mapping[str, str]) -> str | None:
    """What runs this process, if not the machine itself."""
    if "APPTAINER_CONTAINER" in variables or "SINGULARITY_CONTAINER" in variables:
        return "apptainer"  # it keeps the host's namespaces
    if _in_first_namespaces(root):
        return None
    if "KUBERNETES_SERVICE_HOST" in variables:
        return "kubernetes"
    if (root / "run/.containerenv").exists():
        return "podman"
    if (root / ".dockerenv").exists():
        return "docker"
    named = _text(root / "run/systemd/container")
    cgroup = _text(root / "proc/1/cgroup") or ""
    return named or next((name for word, name in _CGROUP_CONTAINERS.items() if word in cgroup), None)


def _in_first_namespaces(root: Path) -> bool:
    for kind, inode in _FIRST_NAMESPACES.items():
        try:
            link = (root / "proc/self/ns" / kind).readlink()
        except OSError:
            return False
        if str(link) != f"{kind}:[{inode}]":
            return False
    return True


def _holders(root: Path) -> tuple[tuple[DeviceHolder, ...], bool]:
    """Other processes with open GPU device files, and whether every process could be looked at."""
    found = []
    complete = True
    for process in (root / "proc").glob("[0-9]*"):
        pid = int(process.name)
        if pid == os.getpid():
            continue
        try:
            with os.scandir(process / "fd") as handles:
                # A Path for each of a big server's 100,000 handles would double the time.
                links = [os.readlink(handle.path) for handle in handles]  # noqa: PTH115
        except PermissionError:
            complete = False
            continue
        except OSError:
            continue  # it ended, or closed that file, while we looked
        devices = {match[1] for link in links if (match := _GPU_DEVICE.fullmatch(link))}
        if devices:
            found.append(DeviceHolder(pid, _text(process / "comm"), tuple(sorted(devices))))
    return tuple(sorted(found, key=lambda holder: holder.pid)), complete


def _gpu_nodes(root: Path) -> Iterator[GpuNode]:
    for folder in sorted((root / "proc/driver/nvidia/gpus").glob("*")):
        bus_id = folder.name
        minor = _value(_text(folder / "information"), "Device Minor")
        yield GpuNode(
            pci_bus_id=bus_id,
            minor=int(minor) if minor and minor.isdigit() else None,
            runtime_d3=_value(_text(folder / "power"), "Runtime D3 status"),
            power_control=_text(root / "sys/bus/pci/devices" / bus_id / "power/control"),
        )


def _value(text: str | None, key: str) -> str | None:
    """The value of `key: value` in lines of that form."""
    match = re.search(rf"^{key}:\s*(.+?)\s*$", text or "", re.MULTILINE)
    return match[1] if match else None


def _cuda_cache(root: Path, variables: Mapping[str, str]) -> CudaCache | None:
    path = variables.get("CUDA_CACHE_PATH") or (
        f"{variables['HOME']}/.nv/ComputeCache" if "HOME" in variables else None
    )
    if path is None:
        return None
    folder = root / path.lstrip("/")
    nearest = next(parent for parent in (folder, *folder.parents) if parent.exists())
    kind, options = _mount(root, path)
    usage = os.statvfs(nearest)
    return CudaCache(
        path=path,
        exists=folder.is_dir(),
        writable=nearest.is_dir() and "ro" not in options and os.access(nearest, os.W_OK),
        file_system=kind,
        used_mib=_size_mib(folder) if folder.is_dir() else None,
        free_mib=usage.f_bavail * usage.f_frsize / _MIB,
    )


def _mount(root: Path, path: str) -> tuple[str | None, tuple[str, ...]]:
    """Kind and options of the file system that holds `path` (proc(5), mountinfo: fields up to " - ", then the kind)."""
    best: tuple[str, str | None, tuple[str, ...]] = ("", None, ())
    for line in (_text(root / "proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        point, options = before.split()[4:6]
        point = point.replace("\\040", " ")
        if len(point) >= len(best[0]) and f"{path}/".startswith(f"{point.rstrip('/')}/"):
            best = (point, after.split()[0], tuple(options.split(",")))
    return best[1:]


def _size_mib(folder: Path) -> float:
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):  # CUDA replaced it while we looked
                total += (Path(parent) / name).stat().st_size
    return total / _MIB


def _over_cpus(root: Path, name: str) -> str | None:
    values = {_text(path) for path in (root / "sys/devices/system/cpu/cpufreq").glob(f"policy*/{name}")}
    return "+".join(sorted(value for value in values if value)) or None


def _memory_mib(root: Path) -> tuple[float | None, float | None]:
    """Total and available; in a container with a limit, what the limit leaves."""
    info = _text(root / "proc/meminfo")
    total, available = (_kib(_value(info, key)) for key in ("MemTotal", "MemAvailable"))
    limit, used = (_text(root / "sys/fs/cgroup" / name) for name in ("memory.max", "memory.current"))
    if limit and used and limit.isdigit() and available is not None:
        available = min(available, (int(limit) - int(used)) / _MIB)
    return total, available


def _kib(value: str | None) -> float | None:
    return int(value.removesuffix(" kB")) / 1024 if value else None


def _packages(paths: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _PACKAGES:
        for distribution in importlib.metadata.distributions(name=name, path=paths):
            found.setdefault(name, distribution.version)
    return found
