"""What a log of GPU states shows by itself, where no inference was timed beside it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.limits import CLOCK_DROP_SHARE, THROTTLING, throttling
from gpuwarm.analysis.states import SAME_CLOCK_SHARE, ClockState, of_samples
from gpuwarm.analysis.transitions import Kind, Transition
from gpuwarm.analysis.words import duration, median
from gpuwarm.load import USED_PCT, gaps, loads
from gpuwarm.machine import GpuState, event_reason_names
from gpuwarm.recording import Recording, Rows

NS_PER_MS = 1e6
LOAD_SIGNALS = ("power_mw", "power_average_mw", "gpu_util_pct")  # the sharpest first
BUSY_PCT = 50.0  # median utilisation of a log that shows no rest: all of it is load
COARSE_MS = 500.0  # between rows; states of a GPU change within 50 to 200 ms
HOT_C = 80.0  # from where on laptops and passively cooled boards give up clock; data-centre boards slow down at 88
DWELLS_SHOWN = 4
REST_QUANTILE = 0.05
AT_REST_SHARE = 0.05  # above its clock at rest that still counts as rest
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class StateLog:
    """The answer that states alone give."""

    answer: str
    evidence: tuple[str, ...]
    states: tuple[ClockState, ...]
    transitions: tuple[Transition, ...]  # their `start` is the session
    throttling: Finding


@dataclass(frozen=True)
class _Loads:
    """Where the GPU worked: bounds of rows."""

    stretches: tuple[tuple[int, int], ...]
    busy: Mask  # of each row
    warm: Mask  # the later half of each stretch


def of(recording: Recording, gpu: GpuState | None) -> StateLog:
    """What the samples of a recording without iterations show; there is at least one."""
    rows = recording.samples
    sessions = _sessions(rows)
    found = _loads(rows, sessions)
    held = _held(recording, found, gpu)
    zero_ns = int(rows["t_ns"][0])
    states = [of_samples(rows[begin:end], zero_ns) for begin, end in sessions]
    heat = _heat(rows, found)
    return StateLog(
        answer=_answer(rows, found, held, heat),
        evidence=(
            *_commands(recording, zero_ns),
            *_dwells(states),
            *_before_load(rows, found),
            *_after_load(rows, sessions, found),
            *((heat,) if heat else ()),
            *_not_seen(rows),
        ),
        states=tuple(state for session in states for state in session),
        transitions=tuple(_transitions(rows, sessions, states)),
        throttling=held,
    )


def _commands(recording: Recording, zero_ns: int) -> Iterator[str]:
    for start in recording.meta.starts:
        at_ms = {mark.name: (mark.t_ns - zero_ns) / NS_PER_MS for mark in start.marks}
        if {"process_start", "process_end"} <= at_ms.keys():
            yield f"the command ran from {duration(at_ms['process_start'])} to {duration(at_ms['process_end'])}"


def _sessions(rows: Rows) -> list[tuple[int, int]]:
    """[begin, end) of what was logged without a pause."""
    edges = [0, *(gaps(np.diff(rows["t_ns"])) + 1).tolist(), rows.size]
    return list(pairwise(edges))


def _loads(rows: Rows, sessions: list[tuple[int, int]]) -> _Loads:
    busy, warm = np.zeros(rows.size, np.bool_), np.zeros(rows.size, np.bool_)
    stretches = []
    used = rows["gpu_util_pct"][np.isfinite(rows["gpu_util_pct"])]
    if not used.size or used.max() >= USED_PCT:
        always = [(0, rows.size)] if used.size and np.median(used) >= BUSY_PCT else []
        for begin, end in _loaded(rows) or always:
            for first, last in sessions:  # a pause ends a load
                low, high = max(begin, first), min(end, last)
                if low < high:
                    stretches.append((low, high))
                    busy[low:high] = warm[(low + high) // 2 : high] = True
    return _Loads(tuple(stretches), busy, warm)


def _loaded(rows: Rows) -> list[tuple[int, int]]:
    for name in LOAD_SIGNALS:
        known = np.flatnonzero(np.isfinite(rows[name]))
        found = loads(rows["t_ns"][known], rows[name][known])
        if found:
            return [(int(known[begin]), int(known[end - 1]) + 1) for begin, end in found]
    return []


def _held(recording: Recording, found: _Loads, gpu: GpuState | None) -> Finding:
    if not found.stretches:
        return Finding(THROTTLING, "unknown", "not known: the GPU was not seen under load")
    busy, warm = (replace(recording, samples=recording.samples[mask]) for mask in (found.busy, found.warm))
    return throttling(busy, warm, gpu, seen=recording)


def _answer(rows: Rows, found: _Loads, held: Finding, heat: str | None) -> str:
    clock = rows["sm_clock_mhz"]
    lead = "No inference was timed beside this log: it shows the GPU's states alone."
    if not np.isfinite(clock).any():
        return f"{lead} It has no SM clock, so whether the GPU was warm cannot be told; log clocks.sm, too."
    rest_mhz, busy_mhz, peak_mhz = _rest_mhz(rows, found), median(clock[found.warm]), float(np.nanmax(clock))
    if busy_mhz is None:
        low, high = float(np.nanmin(clock)), peak_mhz
        range_ = f"{low:.0f} MHz throughout" if low == high else f"between {low:.0f} and {high:.0f} MHz"
        return f"{lead} No load begins or ends in it; the SM clock was {range_}."
    parts = [] if rest_mhz is None else [f"{rest_mhz:.0f} MHz at rest"]
    why = ""
    if peak_mhz > busy_mhz * (1 + CLOCK_DROP_SHARE):
        parts.append(f"{peak_mhz:.0f} MHz at its highest")
        why = ", held down by heat" if heat else _why(held)
    if rest_mhz == busy_mhz == peak_mhz:
        return f"{lead} The SM clock was {busy_mhz:.0f} MHz, at rest as under load."
    told = ", ".join(parts) + (" and " if parts else "")
    return f"{lead} The SM clock was {told}{busy_mhz:.0f} MHz under load{why}."


def _why(held: Finding) -> str:
    """Why the clock is lower under load than at its highest."""
    if held.severity == "ok":
        return ""
    return f"; what holds it down is {held.summary}" if held.severity == "unknown" else f"; {held.summary}"


def _rest_mhz(rows: Rows, found: _Loads) -> float | None:
    """The lowest clock outside load; a GPU that a context holds up does not rest."""
    clock = rows["sm_clock_mhz"][~found.busy]
    clock = clock[np.isfinite(clock)]
    return float(np.quantile(clock, REST_QUANTILE, method="lower")) if clock.size else None


def _dwells(sessions: list[tuple[ClockState, ...]]) -> Iterator[str]:
    """How long the GPU was in each state: clocks that are alike are one, however often it came back."""
    levels: list[list[float]] = []  # MHz, ms
    for state in sorted((state for session in sessions for state in session), key=lambda state: state.sm_clock_mhz):
        stayed_ms = state.until_ms - state.from_ms
        if levels and state.sm_clock_mhz <= levels[-1][0] * (1 + SAME_CLOCK_SHARE):
            levels[-1][1] += stayed_ms
        else:
            levels.append([state.sm_clock_mhz, stayed_ms])
    whole_ms = sum(stayed_ms for _, stayed_ms in levels)
    if whole_ms > 0 and len(levels) > 1:
        longest = sorted(levels, key=lambda level: -level[1])[:DWELLS_SHOWN]
        shares = ", ".join(f"{mhz:.0f} MHz {100 * stayed_ms / whole_ms:.0f} %" for mhz, stayed_ms in longest)
        yield f"of the time in a steady state the SM clock was {shares}"


def _before_load(rows: Rows, found: _Loads) -> Iterator[str]:
    """How long before the first load the clock had risen: a CUDA context raises it, not the first inference."""
    rest_mhz = _rest_mhz(rows, found)
    if not found.stretches or rest_mhz is None:
        return
    begin = found.stretches[0][0]
    clock = rows["sm_clock_mhz"][:begin]
    low = np.flatnonzero(clock <= rest_mhz * (1 + AT_REST_SHARE))
    if low.size and low[-1] + 1 < begin:
        early_ms = float(rows["t_ns"][begin] - rows["t_ns"][low[-1] + 1]) / NS_PER_MS
        if early_ms <= 0:  # stamps of whole seconds
            return
        yield f"the SM clock rose {duration(early_ms)} before the load did, as it does when a process opens the GPU"


def _after_load(rows: Rows, sessions: list[tuple[int, int]], found: _Loads) -> Iterator[str]:
    """How long the clocks stayed up after the last load that rows follow, or in a log without load, and came down."""
    if not found.stretches:
        for first, last in sessions:
            yield from _decays(rows[first:last], "at first")
    following = [*(begin for begin, _ in found.stretches[1:]), rows.size]
    for (_, end), begin in reversed(list(zip(found.stretches, following, strict=False))):
        until = min([begin, *(last for first, last in sessions if first < end <= last)])
        if until > end:
            yield from _decays(rows[end:until], "after the load")
            return


def _decays(after: Rows, when: str) -> Iterator[str]:
    for name, words in (("sm_clock_mhz", "SM clock"), ("mem_clock_mhz", "memory clock")):
        known = np.isfinite(after[name])
        clock, t_ns = after[name][known], after["t_ns"][known]
        if clock.size > 1 and 0 <= clock.min() < clock[0] * (1 - SAME_CLOCK_SHARE):
            left = int(np.argmax(clock < clock[0] * (1 - SAME_CLOCK_SHARE)))
            bottom = int(np.argmax(clock <= clock.min() * (1 + AT_REST_SHARE)))
            held_ms, fell_ms = (float(t_ns[at] - t_ns[0]) / NS_PER_MS for at in (left, bottom))
            yield (
                f"{when} the {words} stayed up at {clock[:left].max():.0f} MHz for {duration(held_ms)} "
                f"and was down at {clock.min():.0f} MHz after {duration(fell_ms)}"
            )


def _heat(rows: Rows, found: _Loads) -> str | None:
    """Whether the clock went down as the GPU got hot, at no more power than before."""
    busy = rows[found.busy & np.isfinite(rows["temperature_c"]) & np.isfinite(rows["sm_clock_mhz"])]
    quarter = busy.size // 4
    if quarter < 2:  # noqa: PLR2004 -- readings at either end
        return None
    begin, end = busy[:quarter], busy[-quarter:]
    clocks, heats = (
        [float(np.median(part[name])) for part in (begin, end)] for name in ("sm_clock_mhz", "temperature_c")
    )
    fell = float(np.max(busy["sm_clock_mhz"][: busy.size // 2])) * (1 - CLOCK_DROP_SHARE) > clocks[1]
    if heats[1] < HOT_C or heats[1] <= heats[0] or not fell or _draws_more(begin, end):
        return None
    return (
        f"under load the GPU went from {heats[0]:.0f} to {heats[1]:.0f} C and its clock down to {clocks[1]:.0f} MHz: "
        "heat holds it down, and a longer warm-up makes it slower still"
    )


def _draws_more(before: Rows, after: Rows) -> bool:
    old_mw, new_mw = median(before["power_mw"]), median(after["power_mw"])
    return old_mw is not None and new_mw is not None and new_mw > old_mw * (1 + CLOCK_DROP_SHARE)


def _not_seen(rows: Rows) -> Iterator[str]:
    """What the log is too coarse for, and a GPU that nobody used."""
    period_ms = float(np.median(np.diff(rows["t_ns"]))) / NS_PER_MS if rows.size > 1 else 0.0
    if period_ms >= COARSE_MS:
        yield f"rows are {duration(period_ms)} apart: what the GPU did in between is not seen; log with -lms 100"
    used = rows["gpu_util_pct"][np.isfinite(rows["gpu_util_pct"])]
    if used.size and used.max() < USED_PCT:
        most = f"at most {used.max():.0f}" if used.max() > 0 else "0"
        yield f"utilisation is {most} %: as far as this log shows, nothing ran on the GPU"


def _transitions(
    rows: Rows, sessions: list[tuple[int, int]], states: list[tuple[ClockState, ...]]
) -> Iterator[Transition]:
    for session, ((begin, end), own) in enumerate(zip(sessions, states, strict=True)):
        found = [*_between_states(session, own), *_between_reasons(session, rows[begin:end], int(rows["t_ns"][0]))]
        yield from sorted(found, key=lambda each: each.t_ms)


def _between_states(session: int, states: tuple[ClockState, ...]) -> Iterator[Transition]:
    kinds: tuple[tuple[Kind, str], ...] = (("sm_clock", "sm_clock_mhz"), ("mem_clock", "mem_clock_mhz"))
    for before, after in pairwise(states):
        for kind, name in kinds:
            old, new = getattr(before, name), getattr(after, name)
            if old is not None and new is not None and abs(new - old) > SAME_CLOCK_SHARE * old:
                yield Transition(session, after.from_ms, kind, old, new)
        if before.pstate is not None and after.pstate is not None and before.pstate != after.pstate:
            yield Transition(session, after.from_ms, "pstate", f"P{before.pstate}", f"P{after.pstate}")


def _between_reasons(session: int, rows: Rows, zero_ns: int) -> Iterator[Transition]:
    rows = rows[np.isfinite(rows["event_reasons"])]
    for at in np.flatnonzero(np.diff(rows["event_reasons"])) + 1:
        before, after = (
            ", ".join(event_reason_names(int(rows["event_reasons"][row]))) or "none" for row in (at - 1, at)
        )
        yield Transition(session, float(rows["t_ns"][at] - zero_ns) / NS_PER_MS, "event_reasons", before, after)
