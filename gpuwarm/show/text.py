"""An answer laid out for a terminal of 80 columns; the words and numbers come from the analysis."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.causes import ColdPhase, ColdStart
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.limits import THROTTLING
from gpuwarm.analysis.states import ClockState
from gpuwarm.analysis.transitions import Transition
from gpuwarm.analysis.words import count, duration, number, percent
from gpuwarm.show.terminal import prose, to_copy

LABEL_COLUMNS = 11
CONTENT_COLUMNS = 68  # what 80 leave beside the labels
BAR_COLUMNS = 20  # what 80 leave beside a step, its median and its range
SMALL_SHARE_PCT = 1.0  # of a cold start; smaller steps are added up
MAX_STATES = 6
MAX_TRANSITIONS = 4
_STYLES = {"trusted": "green", "degraded": "yellow", "unusable": "red", "warning": "yellow", "error": "red"}
_BOUNDS = {"gpu": "the GPU", "host": "the host", "transfer": "the copies", "unknown": "not known"}
_STEPS = {
    "python": "Python",
    "cuda_import": "import CUDA",
    "driver_init": "initialise driver",
    "context": "CUDA context",
    "tensorrt_import": "import TensorRT",
    "runtime": "TensorRT runtime",
    "deserialise": "deserialise engine",
}
_SENSORS = {
    "sm_clock_mhz": "SM clock",
    "mem_clock_mhz": "memory clock",
    "power_mw": "power",
    "power_average_mw": "average power",
    "temperature_c": "temperature",
    "gpu_util_pct": "utilization",
}
_KINDS = {"sm_clock": "SM clock", "mem_clock": "memory clock", "pstate": "P-state", "event_reasons": "event reasons"}


def answer(advice: Advice) -> Group:
    """First the answer, then what it rests on, then the verdict and what to paste."""
    head: list[RenderableType] = []
    if advice.simulated is not None:
        head.append(prose(f"SIMULATED GPU, profile {advice.simulated}: no hardware was measured", "bold magenta"))
    head += [prose(advice.answer, "bold"), prose(_subject(advice), "dim"), ""]
    body = Table.grid(padding=(0, 1))
    body.add_column(width=LABEL_COLUMNS, style="cyan", no_wrap=True)
    body.add_column(ratio=1)
    for label, content in _sections(advice):
        body.add_row(label, content)
    return Group(*head, body, *_to_paste(advice))


def _subject(advice: Advice) -> str:
    """What was measured, and where."""
    gpu = "unknown GPU" if advice.gpu is None else advice.gpu.name or "unnamed GPU"
    what = advice.workload.name or "unnamed workload"
    with_ = f", {advice.workload.runtime}" if advice.workload.runtime else ""
    return f"{what} on {gpu}{with_}, {count(advice.warmup.starts, 'start')}"


def _sections(advice: Advice) -> Iterator[tuple[str, RenderableType]]:
    yield "Latency", _latency(advice)
    if advice.states:
        yield "Clock", Group(*_clock(advice.states))
    if advice.transitions:
        yield "Changes", Group(*_transitions(advice))
    yield "Warm-up", Group(*_warmup(advice))
    if advice.bias:
        yield "Bias", _bias(advice)
    if advice.cold_start is not None and advice.cold_start.phases:
        yield "Cold start", _cold_start(advice.cold_start)
    for finding in advice.findings:
        label = "Throttling" if finding.id == THROTTLING else "Machine"
        text = prose(finding.summary, _STYLES.get(finding.severity, ""))
        yield label, Group(text, *[prose(more) for more in (finding.evidence, finding.advice, _short(finding)) if more])
    yield "Bound by", prose(f"{_BOUNDS[advice.bound]}: {advice.bound_evidence}")
    yield "Sampling", prose(_sampling(advice))
    yield "Verdict", Group(prose(advice.verdict, _STYLES[advice.verdict]), *_listed(advice.reasons))
    if advice.notes:
        yield "Notes", Group(*_listed(advice.notes))


def _short(finding: Finding) -> str | None:
    """Its command, where that fits beside the labels; a longer one stands below, where no line is broken."""
    fits = finding.command is not None and max(map(len, finding.command.split("\n"))) <= CONTENT_COLUMNS
    return finding.command if fits else None


def _latency(advice: Advice) -> Text:
    cold, steady, lately_ms = advice.cold_start, advice.steady, advice.parts.host_ms
    parts = []
    if cold is not None and cold.first_ms is not None:
        parts.append(f"first {duration(cold.first_ms)}")
    if cold is not None and cold.second_ms is not None:
        parts.append(f"second {duration(cold.second_ms)}")
    if steady is None and lately_ms is not None:
        parts.append(f"lately {duration(lately_ms)}")
    if steady is not None:
        where = " on the GPU" if steady.quantity == "gpu" else ""
        if where and lately_ms is not None:
            parts.append(f"lately {duration(lately_ms)} until synchronised")
        spread = f"p99 {duration(steady.p99_ms)}, deviation {steady.cov_pct:.1f} %"
        parts.append(f"steady {duration(steady.median_ms)}{where} ({spread})")
    return prose(", ".join(parts) or "not recorded")


def _clock(states: Sequence[ClockState]) -> Iterator[Text]:
    nvml = [state for state in states if state.source == "nvml"]
    gpu = [state for state in states if state.source == "gpu"]
    if nvml:
        late = ", late by up to 250 ms; 0 is the first inference" if len(nvml) > 1 else ""
        yield prose(f"{_chain(nvml)} (NVML{late})")
    if gpu:
        yield prose(f"{_chain(gpu)} (measured on the GPU)")


def _chain(states: Sequence[ClockState]) -> str:
    """345 MHz -> 1980 MHz at -138 ms; the P-state once where it never changes, and with each state where it does."""
    labels = {state.pstate for state in states}
    several = len(labels) > 1
    shown = [_state(state, with_pstate=several, begin=index > 0) for index, state in enumerate(states)]
    if len(shown) > MAX_STATES:
        shown[MAX_STATES // 2 : 1 - MAX_STATES // 2] = [f"{len(shown) - MAX_STATES + 1} more"]
    common = next(iter(labels))
    return " -> ".join(shown) + ("" if several or common is None else f", P{common} throughout")


def _state(state: ClockState, *, with_pstate: bool, begin: bool) -> str:
    label = f"P{state.pstate} " if with_pstate and state.pstate is not None else ""
    return f"{label}{state.sm_clock_mhz:.0f} MHz" + (f" at {duration(state.from_ms)}" if begin else "")


def _transitions(advice: Advice) -> Iterator[Text]:
    """Those with the largest effect in the start whose states are shown."""
    longest = advice.warmup.longest_start
    shown_start = advice.transitions[0].start if longest is None else longest
    own = [each for each in advice.transitions if each.start == shown_start]
    largest = sorted(own, key=lambda each: -abs(each.latency_change_pct or 0.0))[:MAX_TRANSITIONS]
    for each in sorted(largest, key=lambda each: each.t_ms):
        yield prose(_transition(each))
    if len(advice.transitions) > len(largest):
        yield prose(f"and {len(advice.transitions) - len(largest):,} more (--json)", "dim")


def _transition(each: Transition) -> str:
    text = f"{duration(each.t_ms)}: {_KINDS.get(each.kind, each.kind)} {_value(each.before)} -> {_value(each.after)}"
    if each.latency_change_pct is not None:
        text += f", latency {percent(each.latency_change_pct)}"
    if each.predicted_by_clock_pct is not None:
        text += f" (constant cycles: {percent(each.predicted_by_clock_pct)})"
    return text if each.explained == "unknown" else f"{text}, explained: {each.explained}"


def _value(value: float | str | None) -> str:
    if value is None:
        return "unknown"
    return value if isinstance(value, str) else f"{value:.0f}"


def _warmup(advice: Advice) -> Iterator[Text]:
    warmup = advice.warmup
    if warmup.time_ms is None:
        yield prose("no length, as there is no steady state")
    else:
        of = f" in the slowest of {count(warmup.starts, 'start')}" if warmup.starts > 1 else ""
        ends = f"ends at {duration(warmup.time_ms)} ({count(warmup.iterations or 0, 'iteration')})"
        yield prose(f"{ends if warmup.time_ms else 'none'}{of}")
        if warmup.interval_ms is not None and warmup.interval_ms[1] > 0:
            low, high = (duration(end) for end in warmup.interval_ms)
            yield prose(f"{low} to {high} ({warmup.interval_kind})")
        if warmup.coverage is not None:
            yield prose(
                f"the next start is warm by then with a probability of {100 * warmup.coverage:.0f} % "
                f"({warmup.starts} of {warmup.starts + 1})"
            )
        if warmup.clock_warm_ms is not None and warmup.heat_steady_ms is not None:
            yield prose(f"clock warm at {duration(warmup.clock_warm_ms)}, heat at {duration(warmup.heat_steady_ms)}")
    for sentence in advice.evidence:
        yield prose(sentence)
    if advice.also:
        yield prose(f"also: {', '.join(advice.also)}")


def _bias(advice: Advice) -> Group:
    """What a benchmark of one second gets wrong after each warm-up."""
    table = Table.grid(padding=(0, 2))
    for _ in range(3):
        table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for row in advice.bias:
        mean, p99 = (
            "not known" if value is None else f"{name} {percent(value)}"
            for name, value in (("mean", row.mean_bias_pct), ("p99", row.p99_bias_pct))
        )
        note = "recommended" if row.warmup_ms == advice.warmup.recommended_ms else ""
        table.add_row(f"{number(row.warmup_ms)} ms", mean, p99, Text(note, "bold"))
    return Group("of the second that follows a warm-up of", table)


@dataclass(frozen=True)
class _Bar:
    """A share of 1 as a bar; plain where the terminal knows no block characters."""

    share: float

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        mark = "#" if options.ascii_only else "\u2588"
        yield Text(mark * round(self.share * BAR_COLUMNS), "blue")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        del console, options
        return Measurement(BAR_COLUMNS, BAR_COLUMNS)


def _cold_start(cold: ColdStart) -> Group:
    lines: list[RenderableType] = [prose(_total(cold))]
    table = Table.grid(padding=(0, 1))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    for phase in cold.phases:
        if phase.share_pct >= SMALL_SHARE_PCT:
            table.add_row(_step(phase.name), duration(phase.median_ms), _interval(phase), _Bar(phase.share_pct / 100))
    small = [phase for phase in cold.phases if phase.share_pct < SMALL_SHARE_PCT]
    if small:
        table.add_row(count(len(small), "small step"), duration(sum(phase.median_ms for phase in small)), "", "")
    lines.append(table)
    return Group(*lines)


def _total(cold: ColdStart) -> str:
    text = f"{duration(cold.total_ms or 0.0)} from process start to the first result"
    if cold.total_interval_ms is not None:
        low, high = (duration(end) for end in cold.total_interval_ms)
        text += f" ({low} to {high} over {count(cold.starts, 'start')})"
    if cold.unsampled_total_ms is not None:
        text += f"; {duration(cold.unsampled_total_ms)} with no NVML client of gpuwarm alive"
    return text


def _step(name: str) -> str:
    return _STEPS.get(name, name.replace("_", " "))


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


def _listed(sentences: Iterable[str]) -> Iterator[RenderableType]:
    for sentence in sentences:
        row = Table.grid(padding=(0, 1))
        row.add_row("-", prose(sentence))
        yield row


def _to_paste(advice: Advice) -> Iterator[RenderableType]:
    """Whole lines, flush left, never broken: they are copied."""
    if advice.flags:
        yield Text("\nTo paste", "cyan")
    width = max(map(len, advice.flags), default=0)
    for tool, line in advice.flags.items():
        yield to_copy(f"# config.pbtxt of Triton\n{line}" if "\n" in line else f"{tool:<{width}}  {line}")
    for finding in advice.findings:
        if finding.command is not None and _short(finding) is None:
            yield to_copy(f"\n# {finding.summary}\n{finding.command}")
