"""Any output of nvidia-smi, told by its content -> the machine at one moment, or one GPU's samples."""

import re
from dataclasses import fields, replace

from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.read import smi_csv, smi_dmon, smi_fields, smi_log, smi_query, smi_table
from gpuwarm.read.looks import is_of_another_smi, looks_like
from gpuwarm.read.smi_log import Samples, SmiLog
from gpuwarm.read.text import plain_lines, utf8, without_labels

EXPECTED = "the output of `nvidia-smi`, `nvidia-smi -q` (best), `-q -x`, `--query-gpu=... --format=csv` or `dmon`"
# What nvidia-smi says instead of an answer -> what that means and what to do.
_REFUSALS = (
    (r"couldn't communicate with the NVIDIA driver", "its driver is not loaded: install it, or `sudo modprobe nvidia`"),
    (r"[Dd]river/library version mismatch", "the driver was updated under a running one: reboot"),
    (r"No devices were found", "the driver sees no GPU: see `lspci | grep -i nvidia` and `dmesg | grep NVRM`"),
    (
        r"Unable to determine the device handle|GPU is lost",
        "a GPU fell off the bus: see `dmesg | grep Xid`, then reboot",
    ),
    (r"Failed to initialize NVML: Unknown Error", "the container lost its GPU devices: restart it"),
    (
        r"Failed to initialize NVML: GPU access blocked",
        "Windows keeps the GPU from WSL2: update the Windows driver, then `wsl --shutdown`",
    ),
    (
        r"Failed to initialize NVML: Insufficient Permissions",
        "this user may not open /dev/nvidia*: see `ls -l /dev/nvidia*`",
    ),
    (r"couldn't find libnvidia-ml\.so", "its driver's library is missing: install the driver anew"),
    (r"Failed to initialize NVML", "it cannot reach the driver: see `dmesg | grep NVRM`"),
    (
        r"nvidia-smi: (?:command )?not found|'nvidia-smi' is not recognized",
        "there is no nvidia-smi: install the driver",
    ),
)
_LOST = re.compile(r"Unable to determine the device handle for (?i:gpu) ?(\d*):? ?([\dA-Fa-f:.]{12,16}): ([A-Za-z ]+)")


def machine_state(data: bytes, source: str, *, columns: str | None = None) -> MachineState:
    """The machine that an output of nvidia-smi shows; what it does not tell is None, and a note names what would.

    Args:
        data: a file or a paste as it is: any encoding, any text around it.
        source: its name, for messages.
        columns: the fields of --query-gpu where it is a log without header.

    Raises:
        InputError: it is nothing of the sort, or cut to nothing; the message says what it looks like and what to give.
    """
    data = without_labels(utf8(data, source), source)
    if columns is not None:
        return smi_log.machine_state(smi_csv.read(data, source, columns))
    machine, text = _snapshot(data, source)
    if machine is None and not is_of_another_smi(text):
        log = _log(data, source, None)
        machine = None if log is None else smi_log.machine_state(log)
    if machine is not None:
        return _with_lost(machine, text)
    for refusal, meaning in _REFUSALS:
        if re.search(refusal, text):
            raise InputError(f"{source} is nvidia-smi saying that it cannot answer: {meaning}")
    if re.search(r"NVIDIA-SMI \d", text):
        raise InputError(
            f"{source} is nvidia-smi's table without the bars between its columns; give it as it was, or -q"
        )
    raise InputError(f"{source} looks like {looks_like(text)}; expected is {EXPECTED}")


def _snapshot(data: bytes, source: str) -> tuple[MachineState | None, str]:
    """What an output of one moment shows, None where it is none, and its text: its lines take many times the memory."""
    lines = plain_lines(data)
    text = "\n".join(lines)
    if "<nvidia_smi_log" in text or "<gpu id=" in text:
        return smi_query.xml_machine_state(text, source), text
    if is_of_another_smi(text):
        return None, text
    if smi_table.recognise(text):
        return _fuller(smi_table.machine_state(lines, source), lines, source), text
    if smi_query.recognise(lines):
        return smi_query.machine_state(lines, source), text
    return None, text


def _fuller(table: MachineState, lines: list[str], source: str) -> MachineState:
    """The table, or the answer of -q beside it where that tells more; never both, for they are of two moments."""
    if not smi_query.has_gpus(lines):
        return table
    query = smi_query.machine_state(lines, source)
    first, other = (query, "a table") if _told(query) > _told(table) else (table, "an answer of -q")
    return replace(first, notes=(*first.notes, f"{source} holds {other}, too: not read, for it is of another moment"))


def _told(machine: MachineState) -> int:
    """How many fields of its GPUs are known."""
    nothing = GpuState()
    names = [field.name for field in fields(GpuState)]
    return sum(getattr(gpu, name) != getattr(nothing, name) for gpu in machine.gpus for name in names)


def _with_lost(machine: MachineState, text: str) -> MachineState:
    """The machine with the GPUs that nvidia-smi could not open, and names beside those it could."""
    lost = (
        GpuState(index=smi_fields.whole(index), pci_bus_id=bus_id, trouble=trouble)
        for index, bus_id, trouble in dict.fromkeys(_LOST.findall(text))
    )
    return replace(machine, gpus=(*machine.gpus, *lost))


def samples(data: bytes, source: str, *, gpu: str | None = None, columns: str | None = None) -> Samples | None:
    """The samples of one GPU in a --query-gpu or dmon log; None where `data` is no such log.

    Args:
        data: the log in any encoding.
        source: its name, for messages.
        gpu: which GPU, by index, bus id or UUID; needed where there are several.
        columns: the fields of --query-gpu where the log has no header.

    Raises:
        InputError: it is such a log, and cannot be read, or has no such GPU.
    """
    log = _log(without_labels(utf8(data, source), source), source, columns)
    return None if log is None else smi_log.samples(log, gpu)


def _log(data: bytes, source: str, columns: str | None) -> SmiLog | None:
    if smi_dmon.recognise(data):
        return smi_dmon.read(data, source)
    return smi_csv.read(data, source, columns) if columns or smi_csv.recognise(data) else None
