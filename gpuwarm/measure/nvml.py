"""Read GPUs through NVML: the only module that imports pynvml. Nothing here sets anything.

Drivers and bindings come and go apart from one another, so every symbol is looked up on its own: what one of them
lacks, or what a GPU does not support, costs that reading and not the run.
"""

import math
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import pynvml

from gpuwarm.errors import DeviceError
from gpuwarm.machine import (
    EVENT_REASONS,
    GpuProcess,
    GpuState,
    MachineState,
    PersistenceMode,
    Platform,
    event_reason_names,
)
from gpuwarm.rows import SAMPLE_FIELDS, SampleRow

_GPU_SENSOR = 0  # NVML_TEMPERATURE_GPU
# What is asked, best first: the function's name and what it takes besides the GPU. nvml.h 13 renamed several, and names
# the older ones for removal; drivers before 535 know only those.
_CALLS: dict[str, tuple[tuple[Any, ...], ...]] = {
    "pstate": (("nvmlDeviceGetPerformanceState",),),
    "sm_clock_mhz": (("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),),
    "mem_clock_mhz": (("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_MEM),),
    "event_reasons": (
        ("nvmlDeviceGetCurrentClocksEventReasons",),
        ("nvmlDeviceGetCurrentClocksThrottleReasons",),
    ),
    "temperature_c": (("nvmlDeviceGetTemperatureV", _GPU_SENSOR), ("nvmlDeviceGetTemperature", _GPU_SENSOR)),
    "gpu_util_pct": (("nvmlDeviceGetUtilizationRates",),),
    "pcie_gen": (("nvmlDeviceGetCurrPcieLinkGeneration",),),
    # The rest is read now and then, never in a loop.
    "power_usage_mw": (("nvmlDeviceGetPowerUsage",),),
    "power_limit_mw": (("nvmlDeviceGetEnforcedPowerLimit",), ("nvmlDeviceGetPowerManagementLimit",)),
    "power_limit_default_mw": (("nvmlDeviceGetPowerManagementDefaultLimit",),),
    "sm_clock_max_mhz": (("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM),),
    "mem_clock_max_mhz": (("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_MEM),),
    "application_sm_clock_mhz": (("nvmlDeviceGetApplicationsClock", pynvml.NVML_CLOCK_SM),),
    "application_mem_clock_mhz": (("nvmlDeviceGetApplicationsClock", pynvml.NVML_CLOCK_MEM),),
    "temperature_limit_c": (("nvmlDeviceGetTemperatureThreshold", pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),),
    "temperature_margin_c": (("nvmlDeviceGetMarginTemperature",),),
    "memory": (("nvmlDeviceGetMemoryInfo", pynvml.nvmlMemory_v2), ("nvmlDeviceGetMemoryInfo",)),
    "mig_mode": (("nvmlDeviceGetMigMode",),),
    "mig_slots": (("nvmlDeviceGetMaxMigDeviceCount",),),
    "ecc_mode": (("nvmlDeviceGetEccMode",),),
    "compute_mode": (("nvmlDeviceGetComputeMode",),),
    "display_active": (("nvmlDeviceGetDisplayActive",),),
    "compute_capability": (("nvmlDeviceGetCudaComputeCapability",),),
    "pcie_gen_max": (("nvmlDeviceGetMaxPcieLinkGeneration",),),
    "pcie_width": (("nvmlDeviceGetCurrPcieLinkWidth",),),
    "pcie_width_max": (("nvmlDeviceGetMaxPcieLinkWidth",),),
    "compute_processes": (("nvmlDeviceGetComputeRunningProcesses_v3",), ("nvmlDeviceGetComputeRunningProcesses_v2",)),
    "graphics_processes": (
        ("nvmlDeviceGetGraphicsRunningProcesses_v3",),
        ("nvmlDeviceGetGraphicsRunningProcesses_v2",),
    ),
}
# What a sample holds besides times and the values of fields. The state first: it is what t_ns is for.
_SAMPLED = ("sm_clock_mhz", "pstate", "mem_clock_mhz", "event_reasons", "temperature_c", "gpu_util_pct", "pcie_gen")
_SPARED = ("temperature_c", "gpu_util_pct", "pcie_gen")  # a sample is worth having without them
_SLOW_READING_NS = 1_000_000  # a reading in the loop takes 1-10 us; some GPUs take milliseconds for some of them
_COST_TRIALS = 3  # the first call of a kind may wake something

# nvmlDeviceGetFieldValues: field -> NVML's number (nvml.h, NVML_FI_*)
_FIELDS = {"power_mw": 186, "power_average_mw": 185, "memory_temperature_c": 82}
_COUNTER_FIELDS = {0x4: 74, 0x10: 76, 0x20: 269, 0x40: 270, 0x80: 271}  # event reason's bit -> time it held, in ns
_VALUE_TYPES = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
_LAST_INSTANT_POWER = (8, 0)  # nvml.h: nvmlDeviceGetPowerUsage averages over 1 s on Ampere and newer, but for GA100

_NEVER = frozenset(  # answers that will not be others a moment later
    {
        pynvml.NVML_ERROR_INVALID_ARGUMENT,
        pynvml.NVML_ERROR_NOT_SUPPORTED,
        pynvml.NVML_ERROR_NO_PERMISSION,
        pynvml.NVML_ERROR_FUNCTION_NOT_FOUND,
        pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH,
        pynvml.NVML_ERROR_DEPRECATED,
    }
)
_LOST = frozenset({pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_RESET_REQUIRED})
_UNKNOWN_PSTATE = 32
_COMPUTE_MODES = {0: "Default", 1: "Exclusive_Thread", 2: "Prohibited", 3: "Exclusive_Process"}  # nvmlComputeMode_t
_MIB = 1 << 20
_WITHOUT_GPU = "without a GPU, gpuwarm reads files (analyze, check FILE) and simulates (run --simulate)"
_CANNOT_START = {
    pynvml.NVML_ERROR_LIBRARY_NOT_FOUND: "there is no NVIDIA driver here (libnvidia-ml.so.1 was not found): install "
    "one, or give the container its GPUs (docker run --gpus all)",
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded: try `sudo modprobe nvidia`, "
    "and look for why not in `sudo dmesg`",
    pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH: "the NVIDIA driver was updated while the old one is still loaded: "
    "reboot",
    pynvml.NVML_ERROR_NO_PERMISSION: "this user may not open the GPU's device files: see `ls -l /dev/nvidia*`",
}


@contextmanager
def session() -> Iterator[None]:
    """Everything else here works inside a session; while it lasts, this process keeps the driver loaded.

    Raises:
        DeviceError: no driver, no library or no GPU.
    """
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        why = _CANNOT_START.get(error.value, f"NVML does not start ({error}): see whether `nvidia-smi` does")
        raise DeviceError(f"{why}; {_WITHOUT_GPU}") from error
    try:
        if count() == 0:
            raise DeviceError(f"the NVIDIA driver finds no GPU: see `lspci | grep -i nvidia`; {_WITHOUT_GPU}")
        yield
    finally:
        with suppress(pynvml.NVMLError):  # after a lost GPU; what there was to say has been said
            pynvml.nvmlShutdown()


class Gpu:
    """One GPU, inside a session."""

    def __init__(self, index: int, *, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Find the GPU with this NVML index.

        Raises:
            DeviceError: there is none, or it is lost.
        """
        self.index = index
        self.name = "unknown"
        self._clock = clock
        try:
            self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            self.name = str(pynvml.nvmlDeviceGetName(self._handle))
            self.uuid = str(pynvml.nvmlDeviceGetUUID(self._handle))
            pci = pynvml.nvmlDeviceGetPciInfo(self._handle)
        except pynvml.NVMLError as error:
            self._raise_if_lost(error.value)
            raise DeviceError(f"GPU {index} cannot be opened ({error}): see whether `nvidia-smi` shows it") from error
        self.pci = (int(pci.domain), int(pci.bus), int(pci.device))
        self.cuda_uuid = self.uuid  # what CUDA_VISIBLE_DEVICES must be for CUDA to see it alone

    @property
    def pci_bus_id(self) -> str:
        """As nvidia-smi spells it."""
        domain, bus, device = self.pci
        return f"{domain:08X}:{bus:02X}:{device:02X}.0"

    def read(self) -> SampleRow:
        """One sample: a row of SAMPLE_FIELDS, NaN where this GPU or driver says nothing.

        Raises:
            DeviceError: the GPU is lost.
        """
        calls, fields = self._readings
        row = [math.nan] * len(SAMPLE_FIELDS)
        began_ns = self._clock()
        for position, call in calls:
            answer = self._answer(call)
            if answer is not None:
                row[position] = answer
        if fields:
            for position, (_, value) in zip(fields.values(), self._field_values(fields), strict=True):
                row[position] = value
        row[0], row[1] = began_ns, self._clock() - began_ns
        return tuple(row)

    def state(self) -> GpuState:
        """Everything that is known about it at this moment. Takes milliseconds: not for a loop.

        Raises:
            DeviceError: the GPU is lost.
        """
        ask = self._ask
        reasons, pstate, memory = ask("event_reasons"), ask("pstate"), ask("memory")
        utilization, display, mig_mode = ask("gpu_util_pct"), ask("display_active"), ask("mig_mode")
        ((power_code, power_mw),) = self._field_values([_FIELDS["power_mw"]])
        return GpuState(
            index=self.index,
            name=self.name,
            uuid=self.uuid,
            pci_bus_id=self.pci_bus_id,
            persistence_mode=self._persistence_mode(),
            pstate=None if pstate == _UNKNOWN_PSTATE else pstate,
            sm_clock_mhz=ask("sm_clock_mhz"),
            sm_clock_max_mhz=ask("sm_clock_max_mhz"),
            mem_clock_mhz=ask("mem_clock_mhz"),
            mem_clock_max_mhz=ask("mem_clock_max_mhz"),
            power_w=_watts(ask("power_usage_mw")),
            power_instant_w=_watts(None if power_code else power_mw),
            power_limit_w=_watts(ask("power_limit_mw")),
            power_limit_default_w=_watts(ask("power_limit_default_mw")),
            temperature_c=ask("temperature_c"),
            temperature_limit_c=self._temperature_limit_c(),
            utilization_pct=None if utilization is None else utilization.gpu,
            memory_used_mib=None if memory is None else memory.used / _MIB,
            memory_total_mib=None if memory is None else memory.total / _MIB,
            mig_mode=_mode(mig_mode),
            mig_devices=self._mig_devices() if mig_mode and mig_mode[0] else None,
            compute_mode=_COMPUTE_MODES.get(ask("compute_mode")),
            display_active=None if display is None else bool(display),
            ecc_mode=_mode(ask("ecc_mode")),
            event_reasons=None if reasons is None else event_reason_names(reasons),
            event_reason_counters_us=self.counters_us(),
            application_sm_clock_mhz=ask("application_sm_clock_mhz"),
            application_mem_clock_mhz=ask("application_mem_clock_mhz"),
            pcie_gen=ask("pcie_gen"),
            pcie_gen_max=ask("pcie_gen_max"),
            pcie_width=ask("pcie_width"),
            pcie_width_max=ask("pcie_width_max"),
            compute_capability=None if self._capability is None else "{}.{}".format(*self._capability),
            processes=self._processes(),
        )

    def counters_us(self) -> dict[str, int]:
        """For how long each event reason has held since the driver was loaded; one it does not count is absent.

        Raises:
            DeviceError: the GPU is lost.
        """
        values = self._field_values(_COUNTER_FIELDS.values())
        return {
            EVENT_REASONS[bit]: round(value / 1000)
            for bit, (code, value) in zip(_COUNTER_FIELDS, values, strict=True)
            if code == pynvml.NVML_SUCCESS
        }

    @cached_property
    def _readings(self) -> tuple[tuple[tuple[int, Callable[[], float]], ...], dict[int, int]]:
        """What `read` does, decided once: calls with their place in the row, and places by number of field."""
        place = {name: position for position, name in enumerate(SAMPLE_FIELDS)}
        calls = []
        for name in _SAMPLED:
            call = self._first_supported(name)
            if call is not None and not (name in _SPARED and self._is_slow(call)):
                calls.append((place[name], call))
        codes = {name: code for name, (code, _) in zip(_FIELDS, self._field_values(_FIELDS.values()), strict=True)}
        fields = {_FIELDS[name]: place[name] for name, code in codes.items() if code not in _NEVER}
        power = self._power_usage_field()
        if power is not None and codes[power] in _NEVER:
            usage = self._first_supported("power_usage_mw")
            calls += [(place[power], usage)] if usage else []
        return tuple(calls), fields

    def _power_usage_field(self) -> str | None:
        """Which field nvmlDeviceGetPowerUsage is a reading of here; None where that cannot be told."""
        if self._capability is None:
            return None
        return "power_mw" if self._capability <= _LAST_INSTANT_POWER else "power_average_mw"

    def _first_supported(self, name: str) -> Callable[[], float] | None:
        """The first of a reading's calls that works; one that fails for the moment counts as working."""
        for call in self._calls(name):
            try:
                call()
            except pynvml.NVMLError as error:
                self._raise_if_lost(error.value)
                if error.value in _NEVER:
                    continue
            return _as_number(name, call)
        return None

    def _is_slow(self, call: Callable[[], float]) -> bool:
        costs_ns = []
        for _ in range(_COST_TRIALS):
            began_ns = self._clock()
            with suppress(pynvml.NVMLError):  # its failures are for `read` to see
                call()
            costs_ns.append(self._clock() - began_ns)
        return min(costs_ns) > _SLOW_READING_NS

    def _calls(self, name: str) -> Iterator[Callable[[], Any]]:
        for function_name, *arguments in _CALLS[name]:
            function = getattr(pynvml, function_name, None)  # the installed binding may be older than this list
            if function is not None:
                yield partial(function, self._handle, *arguments)

    def _ask(self, name: str) -> Any:
        """What NVML answers, or None where it does not."""
        answers = (self._answer(call) for call in self._calls(name))
        return next((answer for answer in answers if answer is not None), None)

    def _answer(self, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except pynvml.NVMLError as error:
            self._raise_if_lost(error.value)
            return None

    def _field_values(self, numbers: Collection[int]) -> list[tuple[int, float]]:
        """NVML's return code and the value of each field; NaN where the code is not success."""
        try:
            values = pynvml.nvmlDeviceGetFieldValues(self._handle, [(number, 0) for number in numbers])
        except pynvml.NVMLError as error:
            self._raise_if_lost(error.value)
            return [(error.value, math.nan)] * len(numbers)
        found = []
        for value in values:
            code = value.nvmlReturn
            self._raise_if_lost(code)
            known = code == pynvml.NVML_SUCCESS
            found.append((code, getattr(value.value, _VALUE_TYPES[value.valueType]) if known else math.nan))
        return found

    def _raise_if_lost(self, code: int) -> None:
        if code in _LOST:
            raise DeviceError(
                f"GPU {self.index} ({self.name}) is lost ({pynvml.NVMLError(code)}): look for Xid messages in "
                "`sudo dmesg`, then reset it or reboot"
            )

    @cached_property
    def _capability(self) -> tuple[int, int] | None:
        answer: tuple[int, int] | None = self._ask("compute_capability")
        return answer

    def _persistence_mode(self) -> PersistenceMode:
        try:
            return "on" if pynvml.nvmlDeviceGetPersistenceMode(self._handle) else "off"
        except pynvml.NVMLError as error:
            self._raise_if_lost(error.value)
            return "n/a" if error.value == pynvml.NVML_ERROR_NOT_SUPPORTED else "unknown"

    def _temperature_limit_c(self) -> float | None:
        """Where slowdown begins; newer data-centre GPUs give only the distance to it."""
        limit: float | None = self._ask("temperature_limit_c")
        if limit is not None:
            return limit
        temperature, margin = self._ask("temperature_c"), self._ask("temperature_margin_c")
        return None if temperature is None or margin is None else temperature + margin

    def _mig_devices(self) -> int | None:
        slots = self._ask("mig_slots")
        if slots is None:
            return None
        handles = (partial(pynvml.nvmlDeviceGetMigDeviceHandleByIndex, self._handle, slot) for slot in range(slots))
        return sum(self._answer(handle) is not None for handle in handles)

    def _processes(self) -> tuple[GpuProcess, ...] | None:
        lists = {"C": self._ask("compute_processes"), "G": self._ask("graphics_processes")}
        if all(processes is None for processes in lists.values()):
            return None
        kinds: dict[int, str] = {}
        memory: dict[int, float | None] = {}
        for kind, processes in lists.items():
            for process in processes or ():
                kinds[process.pid] = f"{kinds[process.pid]}+{kind}" if process.pid in kinds else kind
                memory[process.pid] = None if process.usedGpuMemory is None else process.usedGpuMemory / _MIB
        return tuple(GpuProcess(pid, _process_name(pid), kinds[pid], memory[pid]) for pid in sorted(kinds))


def _as_number(name: str, call: Callable[[], Any]) -> Callable[[], float]:
    if name == "pstate":
        return lambda: math.nan if (pstate := call()) == _UNKNOWN_PSTATE else pstate
    if name == "gpu_util_pct":
        return lambda: float(call().gpu)
    return call


def _process_name(pid: int) -> str | None:
    try:
        return str(pynvml.nvmlSystemGetProcessName(pid))
    except (pynvml.NVMLError, UnicodeDecodeError):  # gone since, or another user's; names may be any bytes
        return None


def _watts(milliwatts: float | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def _mode(answer: list[int] | None) -> str | None:
    """A mode that changes with a reset, from its current and its pending value."""
    if answer is None:
        return None
    current, pending = ("enabled" if value else "disabled" for value in answer)
    return current if current == pending else f"{current} (pending {pending})"


def count() -> int:
    """How many GPUs the driver has, lost ones among them."""
    number: int = pynvml.nvmlDeviceGetCount()
    return number


def gpu_of_mig(uuid: str) -> Gpu:
    """The GPU that a MIG instance is a part of, whose clocks and power are its own; CUDA is to see the instance alone.

    Raises:
        DeviceError: no such instance here, or the GPU is lost.
    """
    try:
        handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        parent = pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle))
    except pynvml.NVMLError as error:
        raise DeviceError(f"there is no MIG instance {uuid} here ({error}): see `nvidia-smi -L`") from error
    gpu = Gpu(parent)
    gpu.cuda_uuid = uuid
    return gpu


def machine_state(only: Gpu | None = None, *, root: Path = Path("/")) -> MachineState:
    """Driver, library and every GPU (or one) at this moment; the host's side is for others to fill in.

    A GPU that is lost is there by its index alone, with a note that says so.
    """
    indexes = [only.index] if only else range(count())
    gpus, notes = zip(*(_state_or_note(index) for index in indexes), strict=True)
    return MachineState(
        platform=_platform(root),
        driver_version=_of_system("nvmlSystemGetDriverVersion"),
        cuda_version=_cuda_version(),
        nvml_version=_of_system("nvmlSystemGetNVMLVersion"),
        gpus=gpus,
        notes=tuple(note for note in notes if note is not None),
    )


def _state_or_note(index: int) -> tuple[GpuState, str | None]:
    try:
        return Gpu(index).state(), None
    except DeviceError as error:
        return GpuState(index=index, trouble=str(error)), str(error)


def _of_system(name: str) -> Any:
    try:
        return getattr(pynvml, name)()
    except pynvml.NVMLError:
        return None


def _cuda_version() -> str | None:
    version: int | None = _of_system("nvmlSystemGetCudaDriverVersion_v2")
    return None if version is None else f"{version // 1000}.{version % 1000 // 10}"


def _platform(root: Path) -> Platform:
    version = root / "proc/version"
    if (root / "dev/dxg").exists() or (version.exists() and "microsoft" in version.read_text().lower()):
        return "wsl2"
    tree = root / "proc/device-tree/compatible"
    if (root / "etc/nv_tegra_release").exists() or (tree.exists() and b"nvidia,tegra" in tree.read_bytes()):
        return "jetson"
    return "linux"
