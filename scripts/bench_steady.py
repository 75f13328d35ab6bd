"""Compare gpuwarm's rules for warm-up with other tools', on labelled traces and on those of a real H200."""

import argparse
import json
import platform
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rival_rules import RULES, Answer, Rule, fixed_time
from steady_traces import FAMILIES, NOISES, Trace, make

from gpuwarm.analysis.course import course
from gpuwarm.analysis.steady import judge, round_up
from gpuwarm.analysis.stretch import stretches
from gpuwarm.metadata import Metadata, Phase, Start
from gpuwarm.online import LEAST_S, warm_until_steady
from gpuwarm.recording import ITERATION, SAMPLE, Recording

Floats = NDArray[np.float64]
ALIKE = ({"drift", "no_steady_state"}, {"cyclic", "no_steady_state"})
BENCHMARK_MS = 1000.0
MAX_BIAS = 0.01
OFFLINE, ONLINE = "gpuwarm", "gpuwarm, online"


def gpuwarm_offline(elapsed_ms: Floats, latency_ms: Floats) -> Answer:
    """What `gpuwarm analyze` recommends for one start."""
    found = course(elapsed_ms, latency_ms)
    recommended_ms = None if found.interval is None else round_up(float(elapsed_ms[found.interval[1]]))
    return Answer(recommended_ms, float(elapsed_ms[-1]), found.behaviour)


def gpuwarm_online(elapsed_ms: Floats, latency_ms: Floats) -> Answer:
    """When `warm_until_steady` stops, without a reading of the GPU's state."""
    warmed = warm_until_steady(iter((latency_ms / 1e3).tolist()), max_seconds=float("inf"))
    if not warmed.steady:
        return Answer(None, None, warmed.behaviour)
    stopped_ms = float(elapsed_ms[min(warmed.iterations, elapsed_ms.size - 1)])
    return Answer(stopped_ms, stopped_ms, warmed.behaviour)


ALL_RULES: dict[str, Rule] = {
    OFFLINE: gpuwarm_offline,
    ONLINE: gpuwarm_online,
    **RULES,
}


@dataclass(frozen=True)
class Score:
    """How one rule did on one trace."""

    family: str
    steady: bool  # whether the trace has a steady state
    class_right: bool | None
    answered: bool
    bias: float | None  # of the second that follows the warm-up, without noise
    warmup_ms: float | None
    late_ms: float | None  # after the true end; negative: before it
    decided_ms: float | None
    too_long: bool | None  # more than twice the true length and 100 ms


def score(trace: Trace, answer: Answer) -> Score:
    """What a rule's answer is worth."""
    right = None if answer.behaviour is None else _alike(answer.behaviour, trace.behaviour)
    steady = trace.end is not None
    if trace.end is None or answer.warmup_ms is None or answer.warmup_ms > trace.elapsed_ms[-1]:
        return Score(
            trace.family, steady, right, answer.warmup_ms is not None, None, None, None, answer.decided_ms, None
        )
    first, last = np.searchsorted(trace.elapsed_ms, (answer.warmup_ms - 1e-9, answer.warmup_ms + BENCHMARK_MS))
    measured = trace.expected_ms[first : max(int(last), int(first) + 1)]
    true_ms = float(trace.elapsed_ms[trace.end])
    return Score(
        trace.family,
        steady,
        right,
        answered=True,
        bias=float(measured.mean() / trace.expected_ms[-1] - 1),
        warmup_ms=answer.warmup_ms,
        late_ms=answer.warmup_ms - true_ms,
        decided_ms=answer.decided_ms,
        too_long=answer.warmup_ms > max(true_ms + 100.0, 2 * true_ms),
    )


def _alike(one: str, other: str) -> bool:
    return one == other or {one, other} in ALIKE


def traces(seed: int, seeds: int) -> Iterator[Trace]:
    """All families under all noises."""
    for family in FAMILIES:
        for noise in NOISES:
            for number in range(seed, seed + seeds):
                yield make(family, noise, number)


def _row(scores: Sequence[Score]) -> dict[str, float | None]:
    """Shares and medians of one rule over some traces."""
    steady = [one for one in scores if one.steady]
    answered = [one for one in steady if one.bias is not None]
    classes = [one.class_right for one in scores if one.class_right is not None]
    biases = np.abs([one.bias for one in answered if one.bias is not None])
    lates = [one.late_ms for one in answered if one.late_ms is not None]
    decided = [one.decided_ms for one in answered if one.decided_ms is not None]
    early = [one for one in answered if (one.late_ms or 0) < 0 and abs(one.bias or 0) > MAX_BIAS]
    return {
        "traces": len(scores),
        "class_right": _mean(classes),
        "bias_within_1pct": int((biases <= MAX_BIAS).sum()) / len(steady) if steady else None,
        "mean_bias_pct": 100 * float(biases.mean()) if biases.size else None,
        "p95_bias_pct": 100 * float(np.quantile(biases, 0.95)) if biases.size else None,
        "premature": len(early) / len(steady) if steady else None,
        "no_answer": 1 - len(answered) / len(steady) if steady else None,
        "length_within_bound": _mean([not one.too_long for one in answered]) if answered else None,
        "warmup_ms_mean": float(np.mean([one.warmup_ms for one in answered])) if answered else None,
        "wasted_ms_median": float(np.median(np.maximum(lates, 0))) if lates else None,
        "decided_ms_median": float(np.median(decided)) if decided else None,
        "answered_without_steady_state": _mean([one.answered for one in scores if not one.steady]),
    }


def _mean(values: Sequence[bool]) -> float | None:
    return float(np.mean(values)) if values else None


Rows = dict[str, dict[str, float | None]]


def labelled(seed: int, seeds: int) -> dict[str, Rows]:
    """Every rule on every labelled trace, and fixed times as long as gpuwarm's means: by rule, then by family."""
    found = _labelled(ALL_RULES, seed, seeds)
    means_ms = {name: found[name]["all"]["warmup_ms_mean"] or 0.0 for name in (OFFLINE, ONLINE)}
    as_long = {f"fixed {ms:,.0f} ms (mean of {name})": fixed_time(ms) for name, ms in means_ms.items()}
    return {**found, **_labelled(as_long, seed, seeds)}


def _labelled(rules: dict[str, Rule], seed: int, seeds: int) -> dict[str, Rows]:
    scores: dict[str, list[Score]] = {name: [] for name in rules}
    for count, trace in enumerate(traces(seed, seeds), 1):
        for name, rule in rules.items():
            scores[name].append(score(trace, rule(trace.elapsed_ms, trace.latency_ms)))
        if count % (seeds * len(NOISES)) == 0:
            print(f"{trace.family} done", file=sys.stderr)
    return {
        name: {
            "all": _row(of_rule),
            **{family: _row([one for one in of_rule if one.family == family]) for family in FAMILIES},
        }
        for name, of_rule in scores.items()
    }


def real(folder: Path) -> dict[str, dict[str, object]]:
    """Every rule on the GPU's own times of recordings of an H200."""
    found: dict[str, dict[str, object]] = {}
    for path in sorted(folder.glob("h200_*.npz")):
        stretch = stretches(Recording.load(path), quantity="gpu")[0]
        found[path.stem] = {
            name: asdict(rule(stretch.elapsed_ms, stretch.latency_ms)) for name, rule in ALL_RULES.items()
        }
    return found


def speed() -> dict[str, float]:
    """Seconds for a million iterations and 100,000 samples, against sorting ten million numbers."""
    large = _large(1_000_000, 100_000)
    small = _large(100_000, 10_000)
    numbers = np.random.default_rng(0).random(10_000_000)
    begin = time.perf_counter()
    np.sort(numbers)
    sort_s = time.perf_counter() - begin
    del numbers
    seconds = []
    for recording in (small, large):
        judge(recording)
        begin = time.perf_counter()
        judge(recording)
        seconds.append(time.perf_counter() - begin)
    calls = np.full(2_000_000, 20e-6) * (1 + 0.1 * np.sin(np.arange(2_000_000) / 3e4))
    durations = iter(calls.tolist())
    begin = time.perf_counter()
    warmed = warm_until_steady(durations, max_seconds=30.0)
    call_us = (time.perf_counter() - begin) / warmed.iterations * 1e6
    return {
        "judge_s": seconds[1],
        "sort_s": sort_s,
        "judge_over_sort": seconds[1] / sort_s,
        "ten_times_the_data": seconds[1] / seconds[0],
        "warm_until_steady_us_per_call": call_us,
    }


def _large(iterations: int, samples: int) -> Recording:
    """A cap after a fiftieth of the time, on 50 us iterations."""
    rng = np.random.default_rng(1)
    rows, polls = np.zeros(iterations, ITERATION), np.zeros(samples, SAMPLE)
    latency = np.where(np.arange(iterations) < iterations // 50, 46e3, 50e3)
    rows["host_ns"] = latency * (1 + 0.02 * rng.standard_normal(iterations))
    rows["gpu_ns"], rows["sm_clock_mhz"], rows["phase"] = 0.95 * rows["host_ns"], 1980 * 46e3 / latency, 1
    rows["t_ns"] = np.concatenate([[0], np.cumsum(rows["host_ns"])[:-1]]).astype(np.int64)
    polls["t_ns"] = np.linspace(0, rows["t_ns"][-1], samples).astype(np.int64)
    polls["sm_clock_mhz"] = np.where(np.arange(samples) < samples // 40, 1980.0, 1820.0)
    return Recording(polls, rows, Metadata(starts=(Start(phases=(Phase("first"), Phase("busy"))),)))


COLUMNS = {
    "class_right": ("class right", 100, " %"),
    "bias_within_1pct": ("bias <= 1 %", 100, " %"),
    "mean_bias_pct": ("mean bias", 1, " %"),
    "p95_bias_pct": ("p95 bias", 1, " %"),
    "premature": ("premature", 100, " %"),
    "no_answer": ("no answer", 100, " %"),
    "length_within_bound": ("length ok", 100, " %"),
    "warmup_ms_mean": ("mean length", 1, " ms"),
    "wasted_ms_median": ("wasted", 1, " ms"),
    "decided_ms_median": ("known after", 1, " ms"),
    "answered_without_steady_state": ("answers where there is none", 100, " %"),
}


def table(rows: dict[str, dict[str, float | None]], first: str) -> str:
    """Markdown."""
    lines = [
        f"| {first} | {' | '.join(title for title, _, _ in COLUMNS.values())} |",
        "|" + "---|" * (len(COLUMNS) + 1),
    ]
    for name, row in rows.items():
        cells = []
        for key, (_, factor, unit) in COLUMNS.items():
            value = row[key]
            digits = 0 if unit == " ms" else 1
            cells.append("" if value is None else f"{factor * value:,.{digits}f}{unit}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


REPORT = """# Rules for warm-up, compared

`{command}`, {date}, {machine}.

{count:,} traces with known answers (`scripts/steady_traces.py`: {families} families, {noises} kinds of noise of 0.5 to
3 %). The rules were developed on other seeds of the same generator. Effects that no rule could see (under 6 standard
deviations in all) are drawn again.

- **class right**: flat, warmup, slowdown, cyclic, drift, no_steady_state or too_short; drift and cyclic each
  count as alike with no_steady_state.
- **bias <= 1 %**: of the traces with a steady state, those where the second after the warm-up has the steady mean to
  1 %, counted without noise; no answer counts as wrong.
- **premature**: the warm-up ended too early, and that left more than 1 %.
- **length ok**: at most twice the true length, or 100 ms more.
- **wasted**: median time after the true end. **known after**: median time until the rule has decided; offline rules
  see the whole trace first.

{overall}

The last two rows spend as much time as gpuwarm does, but the same on every trace. On traces that need no warm-up any
rule is right; what they leave elsewhere shows in the families below.

## gpuwarm, by family

{offline}

## gpuwarm online, by family

`warm_until_steady` without a reading of the GPU's state. A boost or a tread that lasts longer than all before it, and
longer than {least:g} s, cannot be told from the end by latency alone: that is what its premature stops are.

{online}

## Bias within 1 %, every rule by family

{families_table}

## A real H200

GPU time of three engines (driver 580.159.04, TensorRT 8.6.0): where each rule's warm-up ends, in ms.
The heavy engine slows down by 6 % after 45 to 80 ms (power cap); on the tiny and the medium one the host wanders.

{real}

## Speed

A million iterations and 100,000 samples: {judge_s:.2f} s, {judge_over_sort:.1f} times what `numpy.sort` takes for
10,000,000 floats ({sort_s:.2f} s) in the same run; ten times the data takes {ten_times_the_data:.1f} times as long.
`warm_until_steady` costs {warm_until_steady_us_per_call:.2f} us a call on iterations of 20 us.
"""


def report(results: dict[str, Any]) -> str:
    """The README of the results."""
    rules: dict[str, Rows] = results["labelled"]
    return REPORT.format(
        command=results["command"],
        date=results["date"],
        machine=results["machine"],
        count=int(rules[OFFLINE]["all"]["traces"] or 0),
        families=len(FAMILIES),
        noises=len(NOISES),
        overall=table({name: rows["all"] for name, rows in rules.items()}, "rule"),
        offline=table({family: rules[OFFLINE][family] for family in FAMILIES}, "family"),
        online=table({family: rules[ONLINE][family] for family in FAMILIES}, "family"),
        least=LEAST_S,
        families_table=_by_family(rules),
        real=_real_table(results["h200"]),
        **results["speed"],
    )


def _by_family(rules: dict[str, Rows]) -> str:
    families = [family for family in FAMILIES if rules[OFFLINE][family]["bias_within_1pct"] is not None]
    lines = [f"| rule | {' | '.join(families)} |", "|" + "---|" * (len(families) + 1)]
    for name, rows in rules.items():
        cells = [f"{100 * (rows[family]['bias_within_1pct'] or 0):.0f} %" for family in families]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _real_table(found: dict[str, dict[str, dict[str, Any]]]) -> str:
    if not found:
        return "(no recordings were given)"
    names = list(found)
    lines = [f"| rule | {' | '.join(name.removeprefix('h200_') for name in names)} |", "|" + "---|" * (len(names) + 1)]
    for rule in ALL_RULES:
        answers = [found[name][rule] for name in names]
        cells = [
            " ".join(
                part
                for part in (answer["behaviour"], "" if answer["warmup_ms"] is None else f"{answer['warmup_ms']:.0f}")
                if part
            )
            or "never"
            for answer in answers
        ]
        lines.append(f"| {rule} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(":")[1].strip() for line in lines if "model name" in line]
    return f"{names[0]}, {len(names)} cores" if names else platform.processor()


def main() -> None:
    """Write OUT/results.json and OUT/README.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, help="where results.json and README.md go")
    parser.add_argument("--recordings", type=Path, help="H200 traces as recordings (scripts/convert_traces.py)")
    parser.add_argument("--seed", type=int, default=10_000, help="the first seed")
    parser.add_argument("--seeds", type=int, default=25, help="of each family under each noise")
    arguments = parser.parse_args()
    results = {
        "command": f"python scripts/bench_steady.py reports/steady --recordings RECORDINGS --seed {arguments.seed} "
        f"--seeds {arguments.seeds}",
        "date": f"{datetime.now(timezone.utc):%Y-%m-%d}",
        "machine": f"{_cpu()}, Python {platform.python_version()}, numpy {version('numpy')}",
        "labelled": labelled(arguments.seed, arguments.seeds),
        "h200": real(arguments.recordings) if arguments.recordings else {},
        "speed": speed(),
    }
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    (arguments.out / "README.md").write_text(report(results))


if __name__ == "__main__":
    main()
