"""Which TensorRT runtimes there are, whether this driver can run them, and which engines they could load."""

import re
from collections.abc import Iterator

from gpuwarm.analysis.finding import Finding
from gpuwarm.machine import HostState, MachineState

_CUDA_OF_PACKAGE = re.compile(r"-cu(\d{1,4})(-|$)")
_KINDS = {  # module -> the distributions it comes from begin with
    "tensorrt": "tensorrt",
    "tensorrt_bindings": "tensorrt",
    "tensorrt_lean": "tensorrt-lean",
    "tensorrt_lean_bindings": "tensorrt-lean",
    "tensorrt_dispatch": "tensorrt-dispatch",
    "tensorrt_rtx": "tensorrt-rtx",
    "tensorrt_rtx_bindings": "tensorrt-rtx",
}
CUDA_OF_NEWEST_EXTRA = 13  # pyproject.toml's extras: cu12, cu13
_LOADS = {
    "tensorrt": "engines built by {version}, and version-compatible ones of the same major release",
    "tensorrt-lean": "version-compatible engines of the same major release, up to {version}",
    "tensorrt-dispatch": "version-compatible engines that bring their own runtime",
    "tensorrt-rtx": "TensorRT-RTX engines only",
}
ABOUT = {
    "driver-too-old": """\
A TensorRT package here is built for a newer CUDA than this driver supports; it fails at its first use. Update the
driver, or install the package for the CUDA version that the driver has.""",
    "tensorrt-missing": """\
No TensorRT runtime can be imported by this Python, so `gpuwarm run` and `explain` cannot load an engine. The lean
runtime is enough for engines built as version-compatible; full TensorRT builds them too.""",
    "tensorrt-runtimes": """\
The TensorRT runtimes that this Python could import (nothing is imported to find out). A full TensorRT loads engines
built by its own version; an engine built as version-compatible also loads in later versions of the same major release
and in the lean runtime. Engines of TensorRT-RTX load only there.""",
}


def check_machine(machine: MachineState) -> Iterator[Finding]:
    """The runtimes of a live machine."""
    host = machine.host
    if host is None:
        return
    if not host.runtimes:
        yield Finding(
            "tensorrt-missing",
            "info",
            "No TensorRT runtime here: engines cannot be run",
            advice="One of the extras installs it:",
            command=f"pip install 'gpuwarm[{_extra(machine)}]'",
        )
        return
    versions = {kind: _version(host, kind) or "of unknown version" for kind in map(_KINDS.__getitem__, host.runtimes)}
    yield Finding(
        "tensorrt-runtimes",
        "ok",
        f"TensorRT here: {', '.join(' '.join(pair) for pair in versions.items())}",
        evidence="; ".join(
            f"{kind} loads {_LOADS[kind].format(version=version)}" for kind, version in versions.items()
        ),
    )
    yield from _driver_too_old(machine, host)


def _version(host: HostState, kind: str) -> str | None:
    """Of the distribution that brings the module; the bindings' where they have one of their own."""
    names = re.compile(rf"{kind}(-cu\d+)?(-bindings|-libs)?")
    found = [name for name in host.packages if names.fullmatch(name)]
    return host.packages[min(found, key=lambda name: not name.endswith("-bindings"))] if found else None


def _driver_too_old(machine: MachineState, host: HostState) -> Iterator[Finding]:
    supported = _major(machine.cuda_version)
    needs = {name: int(match[1]) for name in host.packages if (match := _CUDA_OF_PACKAGE.search(name))}
    if supported is None:
        return
    too_new = {name: cuda for name, cuda in needs.items() if name.startswith("tensorrt") and cuda > supported}
    if not too_new:
        return
    name, cuda = next(iter(too_new.items()))
    yield Finding(
        "driver-too-old",
        "error",
        f"{name} {host.packages[name]} needs CUDA {cuda}, the driver supports up to {machine.cuda_version}",
        evidence=f"driver {machine.driver_version}",
        advice="Update the driver, or take the package for its CUDA:",
        command=f"pip install {name.replace(f'-cu{cuda}', f'-cu{supported}')}",
    )


def _extra(machine: MachineState) -> str:
    supported = _major(machine.cuda_version)
    return "cu12" if supported is not None and supported < CUDA_OF_NEWEST_EXTRA else "cu13"


def _major(version: str | None) -> int | None:
    found = re.match(r"\d{1,4}", version or "")
    return int(found[0]) if found else None
