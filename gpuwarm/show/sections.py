"""An answer as sections of sentences and tables: every word of it, for whoever lays it out."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.answers import Answer
from gpuwarm.analysis.bias import BENCHMARK_MS, LEAST_FOR_P99, Bias
from gpuwarm.analysis.causes import ColdPhase, ColdStart, step_name
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.limits import THROTTLING
from gpuwarm.analysis.states import ClockState
from gpuwarm.analysis.transitions import Transition
from gpuwarm.analysis.unrest import UNREST
from gpuwarm.analysis.words import count, duration, number, percent

Tone = Literal["plain", "faint", "good", "warning", "bad"]
SMALL_SHARE_PCT = 1.0  # of a cold start; smaller steps are added up
MAX_STATES = 6
MAX_TRANSITIONS = 4
SAME_MOMENT_MS = 30.0  # NVML's sensors are refreshed each 20 to 100 ms, not all at once
_IDLE = "gpu_idle"
_UNITS = {"sm_clock": " MHz", "mem_clock": " MHz", "power": " W"}
_TONES: dict[str, Tone] = {
    "trusted": "good",
    "degraded": "warning",
    "unusable": "bad",
    "warning": "warning",
    "error": "bad",
}
_BOUNDS = {"gpu": "the GPU", "host": "the host", "transfer": "the copies", "unknown": "not known"}
_SENSORS = {
    "sm_clock_mhz": "SM clock",
    "mem_clock_mhz": "memory clock",
    "power_mw": "power",
    "power_average_mw": "average power",
    "temperature_c": "temperature",
    "gpu_util_pct": "utilization",
}
_BIAS = "a benchmark of one second reads so much more (+) or less (-) than steady"
_KINDS = {
    "sm_clock": "SM clock",
    "mem_clock": "memory clock",
    "pstate": "P-state",
    "event_reasons": "event reasons",
    "power": "power limit",
}


@dataclass(frozen=True)
class Line:
    """A sentence of its own."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class Table:
    """Rows of cells under headings, which a terminal leaves out."""

    heading: tuple[str, ...]
    right: tuple[bool, ...]  # which columns are set to the right
    rows: tuple[tuple[str, ...], ...]
    marked: int | None = None  # the row to look at
    shares: tuple[float | None, ...] = ()  # of the whole, one a row, where they are to be seen as bars
    spoken: tuple[str, ...] = ()  # what stands before the cells of each column where no heading does

    def without_heading(self) -> tuple[tuple[str, ...], ...]:
        """Rows whose cells say what they are."""
        if not self.spoken:
            return self.rows
        return tuple(
            tuple(f"{name} {cell}" if name and cell else cell for name, cell in zip(self.spoken, row, strict=True))
            for row in self.rows
        )


@dataclass(frozen=True)
class Section:
    """What the answer says about one subject."""

    title: str
    lines: tuple[Line, ...] = ()
    items: tuple[str, ...] = ()  # a list below the lines
    table: Table | None = None
    command: str | None = None  # to copy


def simulated(answer: Answer) -> str | None:
    """What stands before the answer where nothing was measured."""
    if answer.simulated is None:
        return None
    return f"SIMULATED GPU, profile {answer.simulated}: no hardware was measured"


def what_on(answer: Answer, starts: int) -> str:
    """What was measured, on what, with what and how often; of a simulated runtime the stamp says enough."""
    runtime = answer.workload.runtime if answer.simulated is None else None
    where = ", ".join(part for part in (gpu_name(answer), runtime, count(starts, "start")) if part)
    return f"{answer.workload.name or 'unnamed workload'} on {where}"


def gpu_name(answer: Answer) -> str:
    """As its driver calls it."""
    return "unknown GPU" if answer.gpu is None else answer.gpu.name or "unnamed GPU"


def subject(advice: Advice) -> str:
    """What was measured, and where."""
    if not advice.timed:
        return f"states of {gpu_name(advice)}, {advice.source}"
    pace = "" if advice.pace is None else f", {advice.pace.words}"
    return f"{what_on(advice, advice.warmup.starts)}{pace}"


def sections(advice: Advice) -> Iterator[Section]:
    """All of them in the order of reading."""
    if advice.timed:
        yield from _timed(advice)
    else:
        yield from _states(advice)
    if advice.notes:
        yield Section("Notes", items=advice.notes)


def _timed(advice: Advice) -> Iterator[Section]:
    """What inference that was timed tells."""
    yield Section("Latency", (Line(_latency(advice)),))
    yield from _changes(advice)
    yield Section("Warm-up", tuple(_warmup(advice)))
    if advice.bias:
        yield Section("Bias", (Line(f"{_BIAS} after a warm-up of:"),), table=_bias(advice))
    if advice.cold_start is not None and advice.cold_start.phases:
        yield Section("Cold start", (Line(_total(advice.cold_start)),), table=_cold_start(advice.cold_start))
    yield from map(_finding, advice.findings)
    yield Section("Bound by", (Line(f"{_BOUNDS[advice.bound]}: {advice.bound_evidence}"),))
    yield Section("Sampling", (Line(_sampling(advice)),))
    yield Section("Verdict", (Line(advice.verdict, _TONES[advice.verdict]),), advice.reasons)


def _states(advice: Advice) -> Iterator[Section]:
    """What a log of states alone tells."""
    yield from _changes(advice)
    if advice.evidence:
        yield Section("Seen", items=advice.evidence)
    yield from map(_finding, advice.findings)
    yield Section("Sampling", (Line(_sampling(advice)),))


def _changes(advice: Advice) -> Iterator[Section]:
    if advice.states:
        yield Section("Clock", tuple(_clock(advice)))
    if advice.transitions:
        yield Section("Changes", tuple(_transitions(advice)))


def _finding(finding: Finding) -> Section:
    title = {THROTTLING: "Throttling", UNREST: "Host"}.get(finding.id, "Machine")
    if finding.id == UNREST:  # its summary and advice are part of the answer itself
        return Section(title, (Line(finding.evidence or finding.summary),))
    more = [Line(text) for text in (finding.evidence, finding.advice) if text]
    return Section(
        title, (Line(finding.summary, _TONES.get(finding.severity, "plain")), *more), command=finding.command
    )


def _latency(advice: Advice) -> str:
    cold, steady, lately_ms = advice.cold_start, advice.steady, advice.parts.host_ms
    parts = []
    if cold is not None and cold.first_ms is not None:
        parts.append(f"first {duration(cold.first_ms)}")
    if cold is not None and cold.second_ms is not None:
        parts.append(f"second {duration(cold.second_ms)}")
    if steady is None and lately_ms is not None:
        parts.append(f"lately {duration(lately_ms)}")
    elif steady is None and advice.parts.gpu_ms is not None:
        parts.append(f"lately {duration(advice.parts.gpu_ms)} on the GPU")
    if steady is not None:
        where = " on the GPU" if steady.quantity == "gpu" else ""
        if where and lately_ms is not None:
            parts.append(f"lately {duration(lately_ms)} until synchronised")
        spread = f"p99 {duration(steady.p99_ms)}, deviation {steady.cov_pct:.1f} %"
        parts.append(f"steady {duration(steady.median_ms)}{where} ({spread})")
    return ", ".join(parts) or "not recorded"


def _clock(advice: Advice) -> Iterator[Line]:
    nvml = [state for state in advice.states if state.source == "nvml"]
    gpu = [state for state in advice.states if state.source == "gpu"]
    if nvml:
        zero = "the first inference" if advice.timed else "the log's first row"
        late = f", late by up to 250 ms; 0 is {zero}" if len(nvml) > 1 else ""
        yield Line(f"{_chain(nvml)} (NVML{late})")
    if gpu:
        yield Line(f"{_chain(gpu)} (measured on the GPU)")


def _chain(states: Sequence[ClockState]) -> str:
    """345 MHz -> 1980 MHz at -138 ms; the P-state once where it never changes, and with each state where it does."""
    labels = {state.pstate for state in states}
    several = len(labels) > 1
    shown = [_state(state, with_pstate=several, begin=index > 0) for index, state in enumerate(states)]
    if _is_rest(states):
        shown[0] += " at rest"
    if len(shown) > MAX_STATES:
        left_out = slice(MAX_STATES // 2, 1 - MAX_STATES // 2)
        clocks_mhz = [state.sm_clock_mhz for state in states[left_out]]
        shown[left_out] = [f"{len(clocks_mhz)} more ({min(clocks_mhz):.0f} to {max(clocks_mhz):.0f} MHz)"]
    common = next(iter(labels))
    return " -> ".join(shown) + ("" if several or common is None else f", P{common} throughout")


def _is_rest(states: Sequence[ClockState]) -> bool:
    """Whether the clock rose before the first inference did anything."""
    return len(states) > 1 and states[1].from_ms < 0 and states[0].sm_clock_mhz < states[1].sm_clock_mhz


def _state(state: ClockState, *, with_pstate: bool, begin: bool) -> str:
    label = f"P{state.pstate} " if with_pstate and state.pstate is not None else ""
    when = f" at {duration(state.from_ms)}" if begin else ""
    step = f" ({step_name(state.during)})" if begin and state.during else ""
    return f"{label}{state.sm_clock_mhz:.0f} MHz{when}{step}"


def _transitions(advice: Advice) -> Iterator[Line]:
    """The moments with the largest effect in the start whose states are shown."""
    longest = advice.warmup.longest_start
    shown_start = advice.transitions[0].start if longest is None else longest
    own = [each for each in advice.transitions if each.start == shown_start]
    moments = [moment for moment in _moments([each for each in own if not _only_idle(each)] or own) if _kinds(moment)]
    largest = sorted(moments, key=lambda moment: -abs(_largest(moment).latency_change_pct or 0.0))[:MAX_TRANSITIONS]
    for moment in sorted(largest, key=lambda moment: moment[0].t_ms):
        yield Line(_moment(moment))
    more = len(advice.transitions) - sum(map(len, largest))
    if more:
        told = f"and {more:,} more" if largest else f"none in the start shown that lasts; {more:,} in all"
        yield Line(f"{told} (--json)", "faint")


def _only_idle(each: Transition) -> bool:
    """Whether all that changed is that the GPU was between two inferences as it was read."""
    before, after = ({*str(value).split(", ")} - {"none", _IDLE} for value in (each.before, each.after))
    return each.kind == "event_reasons" and before == after


def _moments(changes: Sequence[Transition]) -> list[list[Transition]]:
    """Changes that are so near that they are one: sensors are read one after another."""
    found: list[list[Transition]] = []
    for each in sorted(changes, key=lambda each: each.t_ms):
        if found and each.t_ms - found[-1][0].t_ms <= SAME_MOMENT_MS:
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _largest(moment: Sequence[Transition]) -> Transition:
    return max(moment, key=lambda each: abs(each.latency_change_pct or 0.0))


def _kinds(moment: Sequence[Transition]) -> list[list[Transition]]:
    """The changes of each kind, without those that were undone within the moment."""
    by_kind = [
        [other for other in moment if other.kind == kind] for kind in dict.fromkeys(each.kind for each in moment)
    ]
    return [each for each in by_kind if each[0].before != each[-1].after]


def _moment(moment: Sequence[Transition]) -> str:
    """What changed, from before the first to after the last of its kind, and what latency did."""
    changed = (
        f"{_KINDS.get(each[0].kind, each[0].kind)} {_value(each[0].before)} -> {_value(each[-1].after)}"
        f"{_UNITS.get(each[0].kind, '')}"
        for each in _kinds(moment)
    )
    text = f"{duration(moment[0].t_ms)}: {', '.join(changed)}"
    effect = _largest(moment)
    if effect.latency_change_pct is None:
        return text
    return f"{text}: latency {percent(effect.latency_change_pct)}{_explained(effect)}"


def _explained(each: Transition) -> str:
    if each.predicted_by_clock_pct is None:
        return ""
    predicted = percent(each.predicted_by_clock_pct)
    return {
        "yes": f", as the clock predicts ({predicted})",
        "partly": f", of which the clock explains a part ({predicted})",
        "no": f", which the clock does not explain ({predicted})",
        "unknown": f" (the clock predicts {predicted})",
    }[each.explained]


def _value(value: float | str | None) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else f"{value:.0f}"


def _warmup(advice: Advice) -> Iterator[Line]:
    warmup = advice.warmup
    if warmup.time_ms is None:
        yield Line("no length, as there is no steady state")
    else:
        of = f" in the slowest of {count(warmup.starts, 'start')}" if warmup.starts > 1 else ""
        ends = f"ends at {duration(warmup.time_ms)} ({count(warmup.iterations or 0, 'iteration')})"
        yield Line(f"{ends if warmup.time_ms else 'none'}{of}")
        if warmup.interval_ms is not None and warmup.interval_ms[1] > 0:
            low, high = (duration(end) for end in warmup.interval_ms)
            yield Line(f"{low} to {high} ({warmup.interval_kind})")
        if warmup.coverage is not None:
            warm = round(warmup.coverage * (warmup.starts + 1))
            yield Line(
                f"{warm if warm < warmup.starts else 'all'} of {warmup.starts} starts were warm by then; "
                f"the next one will be with a probability of {100 * warmup.coverage:.0f} % "
                f"({warm} of {warmup.starts + 1})"
            )
        if warmup.clock_warm_ms is not None and warmup.heat_steady_ms is not None:
            yield Line(f"clock warm at {duration(warmup.clock_warm_ms)}, heat at {duration(warmup.heat_steady_ms)}")
    for sentence in advice.evidence:
        yield Line(sentence)
    if "slow_first" in advice.also and warmup.time_ms is None:  # else the evidence says it with its numbers
        yield Line("besides, the first inferences are slow")


def _bias(advice: Advice) -> Table:
    """What a benchmark of one second gets wrong after each warm-up."""
    rows, marked = [], None
    for place, row in enumerate(advice.bias):
        told = (row.mean_bias_pct, row.median_bias_pct, row.p99_bias_pct)
        cells = ("not known" if value is None else percent(value) for value in told)
        if row.warmup_ms == advice.warmup.recommended_ms:
            marked = place
        notes = ["recommended"] if marked == place else []
        rows.append((f"{number(row.warmup_ms)} ms", *cells, ", ".join([*notes, *_rests_on(row)])))
    heading = ("after a warm-up of", "mean latency", "median", "99th percentile", "note")
    spoken = ("", "mean", "median", "p99", "")
    return Table(heading, (True, True, True, True, False), tuple(rows), marked, spoken=spoken)


def _rests_on(row: Bias) -> Iterator[str]:
    """What there is to know where it is less than a second, or too few inferences for a percentile."""
    if row.measured_ms is None or row.inferences is None:
        if row.mean_bias_pct is None:
            yield "hardly any data so late"
    elif row.measured_ms < BENCHMARK_MS:
        yield f"{duration(row.measured_ms)} measured"
    elif row.inferences < LEAST_FOR_P99:
        yield f"{count(row.inferences, 'inference')} measured"


def _cold_start(cold: ColdStart) -> Table:
    large = [phase for phase in cold.phases if phase.share_pct >= SMALL_SHARE_PCT]
    small = [phase for phase in cold.phases if phase.share_pct < SMALL_SHARE_PCT]
    rows = [(step_name(phase.name), duration(phase.median_ms), _interval(phase)) for phase in large]
    shares: list[float | None] = [phase.share_pct / 100 for phase in large]
    if small:
        rows.append((count(len(small), "small step"), duration(sum(phase.median_ms for phase in small)), ""))
        shares.append(None)
    heading = ("step", "median", "range over the starts")
    return Table(heading, (False, True, True), tuple(rows), shares=tuple(shares))


def _total(cold: ColdStart) -> str:
    text = f"{duration(cold.total_ms or 0.0)} from process start to the first result"
    if cold.total_interval_ms is not None:
        low, high = (duration(end) for end in cold.total_interval_ms)
        text += f" ({low} to {high} over {count(cold.starts, 'start')})"
    if cold.unsampled_total_ms is not None:
        text += f"; {duration(cold.unsampled_total_ms)} with no NVML client of gpuwarm alive"
    if cold.own_ms is not None:
        text += f"; gpuwarm's own imports, {duration(cold.own_ms)} more, are left out"
    return text


def _interval(phase: ColdPhase) -> str:
    return "" if phase.interval_ms is None else f"{duration(phase.interval_ms[0])} to {duration(phase.interval_ms[1])}"


def _sampling(advice: Advice) -> str:
    sampling = advice.sampling
    cost = []
    if sampling.read_us_median is not None:
        cost.append(f"{duration(sampling.read_us_median / 1e3)} a reading")
    if sampling.period_ms is not None:
        cost.append(f"one each {duration(sampling.period_ms)}")
    if sampling.cpu_pct is not None:
        cost.append(f"{number(sampling.cpu_pct)} % of a core")
    if sampling.deadlines_kept_pct is not None:
        cost.append(f"{number(sampling.deadlines_kept_pct)} % on time")
    text = ", ".join(cost) or "its cost was not recorded"
    refresh = [f"{_SENSORS[name]} {duration(ms)}" for name, ms in sampling.refresh_ms.items() if name in _SENSORS]
    return f"{text}; sensors refresh each: {', '.join(refresh)}" if refresh else text
