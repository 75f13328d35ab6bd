"""Which GPU is meant, by a name given or by CUDA's variables. Everything here works inside a session of NVML."""

import re
from collections.abc import Mapping
from contextlib import suppress
from operator import attrgetter

from gpuwarm.errors import DeviceError, InputError
from gpuwarm.measure.nvml import Gpu, count, gpu_of_mig

_PCI_BUS_ID = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.0)?", re.IGNORECASE)


def resolve(selector: str) -> Gpu:
    """The GPU that an index, a UUID or the beginning of one, or a PCI bus id in any spelling names.

    The UUID of a MIG instance names the GPU it is a part of, whose clocks and power are its own.

    Raises:
        DeviceError: no such GPU here, or it is lost.
        InputError: the beginning of a UUID fits several.
    """
    wanted = selector.strip().lower()
    if wanted.startswith("mig-"):
        return gpu_of_mig(selector.strip())
    if wanted.isdecimal() and int(wanted) < count():
        return Gpu(int(wanted))
    gpus = _openable()
    found = [gpu for gpu in gpus if _is_called(gpu, wanted)]
    if len(found) > 1:
        raise InputError(f"several GPUs have a UUID that begins with {selector}: give more of it")
    if not found:
        here = "; ".join(f"{gpu.index} ({gpu.name}, {gpu.uuid}, {gpu.pci_bus_id})" for gpu in gpus)
        raise DeviceError(f"there is no GPU {selector!r} here: name one of {here}")
    return found[0]


def choose(selector: str | None, environment: Mapping[str, str]) -> Gpu:
    """The GPU to measure: the one asked for, else the first that CUDA_VISIBLE_DEVICES leaves, else the first.

    Args:
        selector: as for `resolve`; an index counts as nvidia-smi does, whatever CUDA_VISIBLE_DEVICES says.
        environment: the process's own.

    Raises:
        DeviceError: no such GPU here, or CUDA_VISIBLE_DEVICES leaves none.
        InputError: which GPU is meant cannot be told.
    """
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if selector is not None:
        return resolve(selector)
    if visible is None:
        return Gpu(0)
    first = visible.split(",")[0].strip()
    if first.upper().startswith(("GPU-", "MIG-")):
        return resolve(first)
    gpus = sorted(_openable(), key=attrgetter("pci"))
    if not first.isdecimal() or int(first) >= len(gpus):
        raise DeviceError(f"CUDA_VISIBLE_DEVICES={visible} hides every GPU from CUDA: unset it, or give --gpu")
    if environment.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID" and len({gpu.name for gpu in gpus}) > 1:
        raise InputError(  # CUDA then counts from the fastest, by a rule that it keeps to itself
            f"CUDA_VISIBLE_DEVICES={visible} is ambiguous where models are mixed: give --gpu, or set "
            "CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )
    return gpus[int(first)]


def _openable() -> list[Gpu]:
    gpus = []
    for index in range(count()):
        with suppress(DeviceError):  # a lost GPU must not stand in the way of its neighbours
            gpus.append(Gpu(index))
    return gpus or [Gpu(0)]  # all of them are lost: let the first say so


def _is_called(gpu: Gpu, wanted: str) -> bool:
    bus_id = _PCI_BUS_ID.fullmatch(wanted)
    if bus_id:
        return gpu.pci == tuple(int(part or "0", 16) for part in bus_id.groups())
    return bool(wanted) and gpu.uuid.lower().removeprefix("gpu-").startswith(wanted.removeprefix("gpu-"))
