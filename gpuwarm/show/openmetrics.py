"""A recording's answer as OpenMetrics text: base units, one sample a line, an info metric that says of what."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from gpuwarm import __version__
from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.course import Behaviour
from gpuwarm.analysis.limits import since
from gpuwarm.analysis.stretch import stretches
from gpuwarm.analysis.trust import VERDICTS
from gpuwarm.analysis.words import median
from gpuwarm.metadata import Start
from gpuwarm.recording import Recording

Labels = Mapping[str, str]


@dataclass(frozen=True)
class _Family:
    """One metric; samples with a value of None or NaN are left out, and so is a metric without samples."""

    name: str
    kind: Literal["gauge", "counter", "info", "stateset"]
    unit: str
    help: str
    samples: Sequence[tuple[Labels, float | None]]


def to_openmetrics(recording: Recording, advice: Advice) -> Iterator[str]:
    """The metrics of one recording; every sample says of which GPU and workload, and whether they are simulated."""
    about = {"simulated": advice.simulated, "gpu": _gpu(advice), "workload": advice.workload.name}
    shared = {name: value for name, value in about.items() if value is not None}
    for family in _families(recording, advice):
        samples = [(labels, value) for labels, value in family.samples if value is not None and math.isfinite(value)]
        if samples:
            yield from _lines(family, [({**shared, **labels}, value) for labels, value in samples])
    yield "# EOF\n"


def _lines(family: _Family, samples: Sequence[tuple[Labels, float]]) -> Iterator[str]:
    yield f"# TYPE {family.name} {family.kind}\n"
    if family.unit:
        yield f"# UNIT {family.name} {family.unit}\n"
    yield f"# HELP {family.name} {family.help}\n"
    suffix = {"counter": "_total", "info": "_info"}.get(family.kind, "")
    for labels, value in samples:
        listed = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        yield f"{family.name}{suffix}{{{listed}}} {value:.12g}\n" if listed else f"{family.name}{suffix} {value:.12g}\n"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _families(recording: Recording, advice: Advice) -> Iterator[_Family]:
    yield _Family(
        "gpuwarm_run", "info", "", "What was measured, where and with what.", [(_about(recording, advice), 1.0)]
    )
    behaviours = [({"gpuwarm_behaviour": each}, float(each == advice.behaviour)) for each in get_args(Behaviour)]
    yield _Family("gpuwarm_behaviour", "stateset", "", "What latency did over a start.", behaviours)
    verdicts = [({"gpuwarm_verdict": each}, float(each == advice.verdict)) for each in VERDICTS]
    yield _Family("gpuwarm_verdict", "stateset", "", "How far the numbers can be trusted.", verdicts)
    yield from _warmup(advice)
    yield from _latency(recording, advice)
    yield from _cold_start(advice)
    yield from _state(recording, advice)


def _gpu(advice: Advice) -> str | None:
    """What tells it from other GPUs, as far as that is known."""
    return (advice.gpu.uuid or advice.gpu.name) if advice.gpu else None


def _about(recording: Recording, advice: Advice) -> Labels:
    versions = recording.meta.versions
    known = {
        "model": advice.gpu.name if advice.gpu else None,
        "workload_sha256": advice.workload.sha256,
        "driver": versions.get("driver"),
        "cuda": versions.get("cuda"),
        "tensorrt": versions.get("tensorrt"),
        "started": recording.meta.started_utc,
        "version": __version__,
    }
    return {name: value for name, value in known.items() if value is not None}


def _warmup(advice: Advice) -> Iterator[_Family]:
    warmup = advice.warmup
    yield _gauge(
        "gpuwarm_warmup_seconds", "seconds", "Where warm-up ended, the longest over the starts.", _s(warmup.time_ms)
    )
    told = "How long to warm up: continuous inference."
    yield _gauge("gpuwarm_warmup_recommended_seconds", "seconds", told, _s(warmup.recommended_ms))
    yield _gauge("gpuwarm_warmup_recommended_iterations", "", told, warmup.recommended_iterations)
    told = "Probability that the next start is warm by then."
    yield _gauge("gpuwarm_warmup_coverage_ratio", "ratio", told, warmup.coverage)
    biases = [
        ({"warmup": f"{row.warmup_ms / 1e3:g}", "statistic": statistic}, _ratio(value))
        for row in advice.bias
        for statistic, value in (
            ("mean", row.mean_bias_pct),
            ("median", row.median_bias_pct),
            ("p99", row.p99_bias_pct),
        )
    ]
    told = "What a benchmark of one second that begins after a warm-up of so many seconds gets wrong."
    yield _Family("gpuwarm_bias_ratio", "gauge", "ratio", told, biases)


def _latency(recording: Recording, advice: Advice) -> Iterator[_Family]:
    steady = advice.steady
    if steady is not None:
        statistics = {"median": steady.median_ms, "mean": steady.mean_ms, "p99": steady.p99_ms}
        samples = [({"statistic": name, "quantity": steady.quantity}, _s(value)) for name, value in statistics.items()]
        yield _Family("gpuwarm_steady_latency_seconds", "gauge", "seconds", "Latency once steady.", samples)
    counted = float(len(recording.iterations))
    yield _Family("gpuwarm_inferences", "counter", "", "Inferences in the recording, all starts.", [({}, counted)])


def _cold_start(advice: Advice) -> Iterator[_Family]:
    cold = advice.cold_start
    if cold is None:
        return
    yield _gauge("gpuwarm_starts", "", "Cold starts measured.", cold.starts)
    told = "From process start to the first result without gpuwarm's own imports, median over the starts."
    yield _gauge("gpuwarm_cold_start_seconds", "seconds", told, _s(cold.total_ms))
    steps = [({"step": phase.name}, _s(phase.median_ms)) for phase in cold.phases]
    yield _Family("gpuwarm_cold_start_step_seconds", "gauge", "seconds", "Its steps, medians over the starts.", steps)
    first = [({"inference": "first"}, _s(cold.first_ms)), ({"inference": "second"}, _s(cold.second_ms))]
    told = "Latency of a start's first inferences, medians over the starts."
    yield _Family("gpuwarm_cold_latency_seconds", "gauge", "seconds", told, first)


def _state(recording: Recording, advice: Advice) -> Iterator[_Family]:
    """Medians of what the GPU's state was once warm."""
    warm = since(recording, stretches(recording), advice.warmup.time_ms)
    state = {name: median(warm.samples[name]) for name in warm.samples.dtype.names or ()}
    clocks = [({"source": "nvml"}, state["sm_clock_mhz"]), ({"source": "gpu"}, median(warm.iterations["sm_clock_mhz"]))]
    yield _Family("gpuwarm_sm_clock_hertz", "gauge", "hertz", "SM clock once warm.", _scaled(clocks, 1e6))
    memory = [({"source": "nvml"}, state["mem_clock_mhz"])]
    yield _Family("gpuwarm_memory_clock_hertz", "gauge", "hertz", "Memory clock once warm.", _scaled(memory, 1e6))
    power = [({"window": "instant"}, state["power_mw"]), ({"window": "average"}, state["power_average_mw"])]
    yield _Family("gpuwarm_power_watts", "gauge", "watts", "Power once warm.", _scaled(power, 1e-3))
    limit_w = advice.gpu.power_limit_w if advice.gpu else None
    yield _gauge("gpuwarm_power_limit_watts", "watts", "Power limit before the run.", limit_w)
    yield _gauge("gpuwarm_temperature_celsius", "celsius", "GPU temperature once warm.", state["temperature_c"])
    yield _gauge("gpuwarm_pstate", "", "P-state once warm: a label, 0 is the highest.", state["pstate"])
    told = "Time for which an event reason lowered the clocks, over all starts, by NVML's counters."
    yield _Family("gpuwarm_event_reason_seconds", "counter", "seconds", told, _reason_times(recording.meta.starts))


def _reason_times(starts: Sequence[Start]) -> list[tuple[Labels, float | None]]:
    grown_us: dict[str, int] = {}
    for start in starts:
        for name in start.counters_before_us.keys() & start.counters_after_us.keys():
            growth = start.counters_after_us[name] - start.counters_before_us[name]
            grown_us[name] = grown_us.setdefault(name, 0) + growth
    return [({"reason": name}, value / 1e6) for name, value in sorted(grown_us.items())]


def _gauge(name: str, unit: str, told: str, value: float | None) -> _Family:
    return _Family(name, "gauge", unit, told, [({}, value)])


def _scaled(samples: Sequence[tuple[Labels, float | None]], factor: float) -> list[tuple[Labels, float | None]]:
    return [(labels, None if value is None else value * factor) for labels, value in samples]


def _s(value_ms: float | None) -> float | None:
    return None if value_ms is None else value_ms / 1e3


def _ratio(value_pct: float | None) -> float | None:
    return None if value_pct is None else value_pct / 100
