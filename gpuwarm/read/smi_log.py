"""A log of GPU states, whichever nvidia-smi wrote it -> MachineState, or the Recording of one GPU."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuwarm.errors import InputError
from gpuwarm.load import gaps
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.metadata import Metadata, Sampling
from gpuwarm.read import smi_fields
from gpuwarm.recording import ITERATION, Floats, Recording, Rows

Clock = Literal["utc", "local", "day", "rows", "none"]
JUMP_BACK_MIN_S = 0.001  # rows a clock's step apart may swap; more is a clock that was set
GROUP_MAX = 16  # GPUs of one machine whose rows follow each other without a name
GROUPS_MIN = 3
GROUP_RATIO = 3  # the time to the next group is so many times that within one
GROUP_SHARE = 0.95  # of the groups
DAY_NS = 86_400 * 10**9
NS_PER_MS = 1e6
ROW_NS = 10**9  # dmon's default period


@dataclass(frozen=True)
class SmiLog:
    """The rows of a log."""

    source: str
    samples: Rows  # (n,) of SAMPLE in the order of the file; t_ns as `clock` says
    gpu: NDArray[np.int64]  # (n,) which of `gpus` each row is of
    gpus: tuple[str, ...]  # index, bus id or UUID, as the log names them; one "" where it names none
    first: tuple[Mapping[str, str], ...]  # of each GPU, its first row's values by query name
    last: tuple[Mapping[str, str], ...]
    tail: tuple[Mapping[str, str], ...]  # the last rows, at most GROUP_MAX
    clock: Clock  # whose time t_ns is: nanoseconds since 1970, since midnight, or counted rows
    notes: tuple[str, ...] = ()


def machine_state(log: SmiLog) -> MachineState:
    """The machine as the last row of each GPU shows it.

    Raises:
        InputError: no row shows anything.
    """
    log = _by_position(log)
    gpus = tuple(gpu_state(row) for row in log.last)
    if all(gpu == GpuState() for gpu in gpus):
        raise InputError(f"{log.source} has columns of nvidia-smi and no value of its in them; `nvidia-smi -q` has all")
    notes = list(log.notes)
    if log.samples.shape[0] > len(gpus):
        notes.append(f"{log.source} is a log of {log.samples.shape[0]:,} rows; the last of each GPU is read")
    notes += [note for gpu in gpus if (note := smi_fields.power_note(gpu))]
    return replace(_machine(log, log.last, gpus), notes=tuple(notes))


def _machine(log: SmiLog, rows: tuple[Mapping[str, str], ...], gpus: tuple[GpuState, ...]) -> MachineState:
    told = {name: text for row in reversed(rows) for name, text in row.items()}
    driver = smi_fields.version(told.get("kmd_version") or told.get("driver_version", ""))
    return MachineState(
        source=log.source,
        platform=smi_fields.platform(gpus, smi_version=None, driver=driver),
        driver_version=driver,
        gpus=gpus,
    )


def gpu_state(row: Mapping[str, str]) -> GpuState:
    """A GPU from a row's values by query name."""

    def candidates(wanted: smi_fields.Field) -> Iterator[str]:
        return (row[name] for name in wanted.query if name in row)

    def mode(name: str) -> str | None:
        current, pending = (smi_fields.on_off(row.get(f"{name}.mode.{when}", "")) for when in ("current", "pending"))
        return smi_fields.mode_with_pending(current, pending)

    values = smi_fields.gpu_fields(candidates)
    reasons = smi_fields.mask_reasons(row.get("clocks_event_reasons.active", ""))
    if reasons is None:
        reasons = smi_fields.active_reasons(row.items())
    counters = ((name, text) for name, text in row.items() if name.startswith("clocks_event_reasons_counters."))
    return GpuState(
        **{
            **values,
            "mig_mode": mode("mig"),
            "ecc_mode": mode("ecc"),
            "event_reasons": reasons,
            "event_reason_counters_us": dict(smi_fields.reason_counters(counters)),
        }
    )


@dataclass(frozen=True)
class Samples:
    """One GPU's states over time, without iterations, and when the first was taken."""

    recording: Recording
    began_local_ns: int | None  # on the wall clock of whoever logged, since 1970; None where the rows carry no date


def samples(log: SmiLog, gpu: str | None) -> Samples:
    """The samples of one GPU of the log; t_ns counts from the first row. A log of one GPU gives its rows away.

    Args:
        log: the log.
        gpu: which GPU, by index, bus id or UUID; may be None where there is but one.

    Raises:
        InputError: there is no such GPU, several and none was named, or no time to go by.
    """
    if log.clock == "none":
        raise InputError(
            f"{log.source} has no timestamps, so it shows states and not how they change: "
            "put timestamp first in --query-gpu, or read it with `gpuwarm check`"
        )
    log = _by_position(log)
    which = _chosen(log, gpu)
    rows = log.samples if len(log.gpus) == 1 else log.samples[log.gpu == which]
    begun = int(rows["t_ns"][0])
    if log.clock == "rows":
        rows["t_ns"] = np.arange(rows.shape[0]) * ROW_NS
    rows["t_ns"], clock_notes = _going_forward(rows["t_ns"], log.clock)
    notes = [*log.notes, *clock_notes]
    gpus = tuple(gpu_state(row[which]) for row in (log.first, log.last))
    if np.isnan(rows["power_mw"]).all() and not np.isnan(rows["power_average_mw"]).all():
        notes.append("power is a 1 s average: a change shows a second late; query power.draw.instant to see it at once")
    period_ms = float(np.median(np.diff(rows["t_ns"]))) / NS_PER_MS if rows.shape[0] > 1 else None
    meta = Metadata(
        started_utc=_utc(begun) if log.clock == "utc" else None,
        time_base="relative",
        source=log.source,
        machine_before=_machine(log, (log.first[which],), gpus[:1]),
        machine_after=_machine(log, (log.last[which],), gpus[1:]),
        sampling=Sampling(period_ms=period_ms, refresh_ms=_refresh_ms(rows)),
        notes=tuple(notes),
    )
    return Samples(Recording(rows, np.empty(0, ITERATION), meta), begun if log.clock == "local" else None)


REFRESH_ROWS = 100_000  # enough to see it
REFRESHED = ("sm_clock_mhz", "power_mw", "power_average_mw", "gpu_util_pct")
CHANGES_MIN = 10  # of a value before the spacing of its changes says anything
CHANGES_QUARTILE = 0.25  # the shorter ones: a value may be renewed and stay the same
SEEN_PERIODS = 1.5  # sampling periods; at a refresh below, every sample has a new value and the refresh is not seen


def refresh_ns(t_ns: NDArray[np.int64], values: Floats) -> float | None:
    """How often a sensor is renewed, by the spacing of its changes; None where sampling was too slow to see it."""
    changed = t_ns[1:][np.diff(values) != 0]  # NaN differs from all
    if changed.size < CHANGES_MIN:
        return None
    spacing = float(np.quantile(np.diff(changed), CHANGES_QUARTILE))
    return spacing if spacing >= SEEN_PERIODS * float(np.median(np.diff(t_ns))) else None


def _refresh_ms(rows: Rows) -> dict[str, float]:
    found = {}
    rows = rows[:REFRESH_ROWS]
    for name in REFRESHED:
        known = np.isfinite(rows[name])
        refresh = refresh_ns(rows["t_ns"][known], rows[name][known])
        if refresh is not None:
            found[name] = refresh / NS_PER_MS
    return found


def _by_position(log: SmiLog) -> SmiLog:
    """A log that names no GPU but has several rows at a time: each place in a group is a GPU.

    nvidia-smi asks one GPU after the other, always in the order of their indices, and then waits for its period.
    """
    if len(log.gpus) > 1 or log.gpus[0] or log.clock == "none":
        return log
    steps = np.diff(log.samples["t_ns"], append=np.iinfo(np.int64).max)
    for many in range(2, GROUP_MAX + 1):
        groups = steps.size // many
        if groups < GROUPS_MIN:
            break
        within, between = np.split(steps[: groups * many].reshape(groups, many), [many - 1], axis=1)
        apart = between[:, 0] > GROUP_RATIO * np.maximum(within.max(axis=1), 1)
        if apart.mean() >= GROUP_SHARE:
            in_order = [log.tail[-1 - (steps.size - 1 - gpu) % many] for gpu in range(many)]
            note = f"the log names no GPU but has {many} rows at a time: taken for GPUs 0 to {many - 1} in their order"
            return replace(
                log,
                gpu=np.arange(steps.size) % many,
                gpus=tuple(map(str, range(many))),
                first=log.first * many,
                last=tuple(in_order),
                notes=(*log.notes, note),
            )
    return log


def _chosen(log: SmiLog, gpu: str | None) -> int:
    names = ", ".join(log.gpus)
    if gpu is None:
        if len(log.gpus) > 1:
            raise InputError(f"{log.source} holds {len(log.gpus)} GPUs ({names}): pick one with --gpu")
        return 0
    for which, (label, row) in enumerate(zip(log.gpus, log.last, strict=True)):
        if gpu.lower() in {label.lower(), *(row.get(name, label).lower() for name in ("index", "uuid", "pci.bus_id"))}:
            return which
    if len(log.gpus) == 1 and not any(name in log.last[0] for name in ("index", "uuid", "pci.bus_id")):
        return 0  # the log does not say which GPU it is of
    raise InputError(f"{log.source} holds no GPU {gpu}, but {names}: pick one of these with --gpu")


def _going_forward(t_ns: NDArray[np.int64], clock: Clock) -> tuple[NDArray[np.int64], list[str]]:
    """Times since the first row that never go back, and sentences about where the log's own did, or stood still."""
    steps = np.diff(t_ns)
    if clock == "day":
        steps = np.where(steps < -DAY_NS // 2, steps + DAY_NS, steps)  # past midnight
    notes = []
    forward = steps[steps > 0]
    period = int(np.median(forward)) if forward.size else 0
    back = np.flatnonzero(steps < -JUMP_BACK_MIN_S * 1e9)
    for at in back[:1]:
        more = f" and {back.size - 1} more times" if back.size > 1 else ""
        notes.append(
            f"the log's clock jumps back by {-steps[at] * 1e-9:,.1f} s after row {at + 1:,}{more}: "
            "it was set, or the log was written twice; time is read as going on at the usual pace"
        )
    steps = np.where(steps < -JUMP_BACK_MIN_S * 1e9, period, np.maximum(steps, 0))
    pauses = gaps(steps)
    if pauses.size:
        longest = pauses[np.argmax(steps[pauses])]
        when = f" after {_time_of_day(int(t_ns[longest]))}" if clock in {"local", "utc", "day"} else ""
        notes.append(
            f"nothing was logged for {_duration(steps[longest] * 1e-9)}{when}: "
            f"the log is {pauses.size + 1} sessions, each looked at for itself"
        )
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(steps)]), notes


def _duration(seconds: float) -> str:
    minutes, hours = int(seconds // 60) % 60, int(seconds // 3600)
    return f"{hours} h {minutes} min" if hours else f"{seconds / 60:.0f} min" if minutes else f"{seconds:.1f} s"


def _time_of_day(t_ns: int) -> str:
    return str(timedelta(seconds=t_ns % DAY_NS // 10**9))


def _utc(t_ns: int) -> str:
    return (datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=t_ns // 1000)).isoformat()
