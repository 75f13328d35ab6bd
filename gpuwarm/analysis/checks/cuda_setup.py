"""How CUDA would start here: driver against toolkit, its variables and its cache, and the host's share in it."""

import re
from collections.abc import Iterator

from gpuwarm.analysis.checks.product import platform
from gpuwarm.analysis.finding import Finding
from gpuwarm.machine import CudaCache, GpuState, HostState, MachineState

# The CUDA version that a driver branch brings along (CUDA release notes, table of toolkit and driver versions).
_OWN_CUDA = {
    384: (9, 0), 390: (9, 1), 396: (9, 2), 410: (10, 0), 418: (10, 1), 440: (10, 2), 450: (11, 0), 455: (11, 1),
    460: (11, 2), 465: (11, 3), 470: (11, 4), 495: (11, 5), 510: (11, 6), 515: (11, 7), 520: (11, 8), 525: (12, 0),
    530: (12, 1), 535: (12, 2), 545: (12, 3), 550: (12, 4), 555: (12, 5), 560: (12, 6), 565: (12, 7), 570: (12, 8),
    575: (12, 9), 580: (13, 0), 590: (13, 1), 595: (13, 2), 610: (13, 3),
}  # fmt: skip
SMALL_CACHE_MIB = 256.0  # CUDA's own default where it is smallest (embedded systems; 1 GiB elsewhere)
DEFAULT_CACHE_MIB = 1024.0
FULL_CACHE_SHARE = 0.9  # of its maximum; beyond it old entries begin to be thrown out
LOW_MEMORY_MIB = 2048.0  # CUDA's context and TensorRT's libraries take about 1 GiB before an engine is loaded
_NETWORK_FILE_SYSTEMS = re.compile(r"nfs\d?|cifs|smb3?|lustre|ceph|glusterfs|beegfs|gpfs|9p|afs|fuse\.sshfs|wekafs")
_GOVERNED_BY_HARDWARE = ("intel_pstate", "amd-pstate-epp")  # with these, "powersave" is the ordinary dynamic governor

ABOUT = {
    "forward-compatibility": """\
CUDA here is newer than what this driver brings along: a forward-compatibility package is in use, as in most
containers. It works on data-centre GPUs only, and the driver's part stays old: fixes and speed-ups of newer drivers
are not there. A newer driver on the host removes the difference.""",
    "cuda-eager-loading": """\
CUDA_MODULE_LOADING=EAGER makes every process load all kernels of every library at its start. With full TensorRT on an
H200 a start took 37 s instead of 0.5 s. Lazy loading (the default since CUDA 12.2 on Linux) loads a kernel at its
first use, which belongs to the warm-up.""",
    "cuda-cache-disabled": """\
With CUDA_CACHE_DISABLE=1 everything that must be compiled from PTX is compiled again by every process.""",
    "cuda-force-ptx-jit": """\
CUDA_FORCE_PTX_JIT=1 makes CUDA ignore the machine code in libraries and compile everything from PTX: a test switch
that costs minutes when left on.""",
    "cuda-launch-blocking": """\
CUDA_LAUNCH_BLOCKING=1 makes every launch wait for its kernel: a debugging switch. Latencies measured with it are not
those of production.""",
    "cuda-no-visible-device": """\
CUDA_VISIBLE_DEVICES hides every GPU from CUDA.""",
    "cuda-cache-unwritable": """\
The folder for what CUDA compiled from PTX cannot be written, so it is compiled again by every process. Code that
comes with machine code for this GPU is not affected.""",
    "cuda-cache-on-network": """\
The folder for what CUDA compiled from PTX lies on a network file system: slow to read at every start, and many nodes
that share it wait for each other's locks.""",
    "cuda-cache-small": """\
The cache for what CUDA compiled from PTX is limited to less than big libraries need, or is nearly full. Entries are
thrown out and compiled again.""",
    "runtime-d3": """\
The kernel may power the GPU off when nothing uses it (runtime D3, usual on laptops). Waking it takes time on top of
loading the driver, and the clocks start from nothing.""",
    "cpu-governor": """\
The CPU's frequency governor keeps clocks low. Small engines are bound by the host that launches their kernels: they
become slower, and their latency moves when the CPU's clock does.""",
    "low-memory": """\
Little host memory is free. Loading TensorRT and an engine may fail or push other memory out to disk, which shows as
a slow and unsteady start.""",
}


def check_machine(machine: MachineState) -> Iterator[Finding]:
    """What the machine as a whole says about CUDA's start."""
    yield from _forward_compatibility(machine)
    host = machine.host
    if host is None:
        return
    yield from _environment(host)
    if host.cuda_cache is not None and host.environment.get("CUDA_CACHE_DISABLE") != "1":
        yield from _cache(host, host.cuda_cache)
    yield from _processor_and_memory(host)


def check(machine: MachineState, gpu: GpuState) -> Iterator[Finding]:
    """Whether the kernel may power one GPU off."""
    nodes = machine.host.gpu_nodes if machine.host else ()
    for node in nodes:
        mine = (gpu.pci_bus_id or "").lower().endswith(node.pci_bus_id.lower())
        if mine and node.power_control == "auto" and (node.runtime_d3 or "").startswith("Enabled"):
            yield Finding(
                "runtime-d3",
                "info",
                "The kernel may power this GPU off while it is unused: the next start wakes it first",
                gpu.index,
                evidence=f"runtime D3 {node.runtime_d3}; power/control is auto",
                advice="To keep it on until the next reboot:",
                command=f"echo on | sudo tee /sys/bus/pci/devices/{node.pci_bus_id}/power/control",
            )


def _forward_compatibility(machine: MachineState) -> Iterator[Finding]:
    own = own_cuda(machine.driver_version)
    shown = _version(machine.cuda_version)
    linux = any(platform(machine, gpu) == "linux" for gpu in machine.gpus)
    if own is not None and shown is not None and shown > own and linux:
        yield Finding(
            "forward-compatibility",
            "info",
            f"CUDA {machine.cuda_version} by a forward-compatibility package: the driver's own is {own[0]}.{own[1]}",
            evidence=f"driver {machine.driver_version}",
            advice="It works on data-centre GPUs only; a newer driver on the host makes it unnecessary.",
        )


def own_cuda(driver_version: str | None) -> tuple[int, int] | None:
    """The CUDA version that a driver brings along; None for drivers older or newer than the table."""
    version = _version(driver_version)
    if version is None or not min(_OWN_CUDA) <= version[0] <= max(_OWN_CUDA):
        return None
    return _OWN_CUDA[max(branch for branch in _OWN_CUDA if branch <= version[0])]


def _version(text: str | None) -> tuple[int, int] | None:
    match = re.match(r"(\d{1,4})\.(\d{1,4})", text or "")
    return (int(match[1]), int(match[2])) if match else None


def _environment(host: HostState) -> Iterator[Finding]:
    variables = host.environment
    harmful = (
        (
            "CUDA_MODULE_LOADING",
            ("EAGER",),
            "cuda-eager-loading",
            "every start loads all kernels: tens of seconds with full TensorRT",
        ),
        ("CUDA_CACHE_DISABLE", ("1",), "cuda-cache-disabled", "what is compiled from PTX is compiled at every start"),
        ("CUDA_FORCE_PTX_JIT", ("1",), "cuda-force-ptx-jit", "everything is compiled from PTX, ready code is ignored"),
        ("CUDA_LAUNCH_BLOCKING", ("1",), "cuda-launch-blocking", "every launch waits for its kernel"),
    )
    for name, values, identifier, consequence in harmful:
        if variables.get(name, "").upper() in values:
            yield Finding(
                identifier,
                "warning",
                f"{name}={variables[name]}: {consequence}",
                advice="Unless it is there for a test:",
                command=f"unset {name}",
            )
    visible = variables.get("CUDA_VISIBLE_DEVICES")
    if visible is not None and visible.strip() in ("", "-1", "NoDevFiles"):
        yield Finding(
            "cuda-no-visible-device",
            "error",
            f"CUDA_VISIBLE_DEVICES={visible!r} hides every GPU from CUDA",
            command="unset CUDA_VISIBLE_DEVICES",
        )


def _cache(host: HostState, cache: CudaCache) -> Iterator[Finding]:
    command = "export CUDA_CACHE_PATH=/var/tmp/$USER/ComputeCache"
    if cache.writable is False:
        yield Finding(
            "cuda-cache-unwritable",
            "warning",
            f"CUDA's compile cache cannot be written: {cache.path}",
            advice="Code compiled from PTX is compiled at every start. To put the cache elsewhere:",
            command=command,
        )
    elif cache.file_system and _NETWORK_FILE_SYSTEMS.fullmatch(cache.file_system):
        yield Finding(
            "cuda-cache-on-network",
            "warning",
            f"CUDA's compile cache is on a network file system ({cache.file_system}): {cache.path}",
            advice="To put it on a local disk:",
            command=command,
        )
    yield from _cache_size(host, cache)


def _cache_size(host: HostState, cache: CudaCache) -> Iterator[Finding]:
    given = host.environment.get("CUDA_CACHE_MAXSIZE")
    limit = int(given) / 2**20 if given and re.fullmatch(r"\d{1,18}", given) else DEFAULT_CACHE_MIB
    left = (
        None if cache.free_mib is None else cache.free_mib + (cache.used_mib or 0.0)
    )  # nothing there yet: all is left
    small = limit < SMALL_CACHE_MIB or (left is not None and left < SMALL_CACHE_MIB)
    full = cache.used_mib is not None and cache.used_mib >= FULL_CACHE_SHARE * limit
    if small or full:
        yield Finding(
            "cuda-cache-small",
            "warning",
            "CUDA's compile cache is " + ("nearly full" if full else "too small for big libraries"),
            evidence=f"{cache.used_mib or 0.0:.0f} MiB used of {limit:.0f}; "
            + ("free space not known" if cache.free_mib is None else f"{cache.free_mib:.0f} MiB free there"),
            advice="What is thrown out is compiled again. To allow 4 GiB:",
            command=f"export CUDA_CACHE_MAXSIZE={4 << 30}",
        )


def _processor_and_memory(host: HostState) -> Iterator[Finding]:
    if (
        host.cpu_governor
        and "powersave" in host.cpu_governor
        and host.cpu_frequency_driver not in _GOVERNED_BY_HARDWARE
    ):
        yield Finding(
            "cpu-governor",
            "warning",
            f"CPU frequency governor {host.cpu_governor}: small engines, bound by the host, become slower",
            evidence=f"frequency driver {host.cpu_frequency_driver}",
            advice="Until the next reboot:",
            command="sudo cpupower frequency-set -g performance",
        )
    if host.memory_available_mib is not None and host.memory_available_mib < LOW_MEMORY_MIB:
        yield Finding(
            "low-memory",
            "warning",
            f"Only {host.memory_available_mib:.0f} MiB of host memory are available",
            advice="Loading TensorRT and an engine may fail or swap. Who has it:",
            command="ps -eo rss,pid,comm --sort=-rss | head",
        )
