"""Every reason against trusting a run, one at a time; a clean run has none."""

from collections.abc import Callable
from dataclasses import replace

import measured
import numpy as np
import pytest

from gpuwarm.analysis import trust
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.steady import judge
from gpuwarm.analysis.stretch import stretches
from gpuwarm.machine import GpuProcess, GpuState, MachineState
from gpuwarm.metadata import Metadata, Rest, Sampling
from gpuwarm.recording import Recording

NOT_THROTTLED = Finding("throttling", "ok", "none")


def verdict(recording: Recording, throttling: Finding = NOT_THROTTLED) -> tuple[str, tuple[str, ...]]:
    return trust.verdict(recording, judge(recording), throttling, starts=len(stretches(recording)))


def changed(change: Callable[[Metadata], Metadata], starts: int = 4) -> Recording:
    found = measured.flat(starts)
    return replace(found, meta=change(found.meta))


def first_start(**fields: object) -> Callable[[Metadata], Metadata]:
    return lambda meta: replace(meta, starts=(replace(meta.starts[0], **fields), *meta.starts[1:]))


def neighbour(gpu: GpuState) -> Callable[[Metadata], Metadata]:
    return lambda meta: replace(meta, machine_before=MachineState(gpus=(gpu,)))


def test_a_clean_run_is_trusted_without_a_reason() -> None:
    assert verdict(measured.flat()) == ("trusted", ())


DEGRADED = [
    (lambda meta: replace(meta, simulated="h200"), "simulated GPU (profile h200): no hardware was measured"),
    (
        neighbour(GpuState(processes=(GpuProcess(7, "python", "C"), GpuProcess(8, None, "C+G")))),
        "2 other processes on this GPU before the run: python (pid 7), unnamed (pid 8)",
    ),
    (neighbour(GpuState(utilization_pct=14.0)), "the GPU was 14 % busy before the run"),
    (
        lambda meta: replace(meta, machine_after=MachineState(gpus=(GpuState(processes=(GpuProcess(7, "ollama"),)),))),
        "1 other process on this GPU after the run: ollama (pid 7)",
    ),
    (first_start(rest=Rest(reached=False, waited_s=30.0)), "start 1 began with the GPU not back at rest after 30 s"),
    (first_start(failure="the process died"), "start 1 was cut short: the process died"),
    (first_start(removed_warmup_ms=200.0), "the first 200 ms of inference are not in this file"),
    (
        lambda meta: replace(meta, inferences_per_row=10),
        "each value is a mean over 10 inferences: single slow ones cannot be seen",
    ),
    (lambda meta: replace(meta, sampling=Sampling(cpu_pct=22.0)), "sampling took 22 % of a core"),
    (
        lambda meta: replace(meta, sampling=Sampling(period_ms=10.0, read_us_median=3000.0)),
        "30 % of the time a reading was under way: sample less often with --period-ms",
    ),
    (
        lambda meta: replace(meta, sampling=Sampling(deadlines_kept_pct=80.0)),
        "only 80 % of the samples came on time: the host was busy",
    ),
    (lambda meta: replace(meta, notes=("interrupted during start 2",)), "interrupted during start 2"),
]


@pytest.mark.parametrize(("change", "reason"), DEGRADED)
def test_a_doubt_degrades_and_is_said(change: Callable[[Metadata], Metadata], reason: str) -> None:
    assert verdict(changed(change)) == ("degraded", (reason,))


def test_many_starts_without_rest_are_one_doubt() -> None:
    def unrested(meta: Metadata) -> Metadata:
        waits_s = (0.5, 10.0, None, 2.0)
        rests = [Rest(reached=wait_s is None, waited_s=wait_s or 0.0) for wait_s in waits_s]
        starts = zip(meta.starts, rests, strict=True)
        return replace(meta, starts=tuple(replace(start, rest=rest) for start, rest in starts))

    _, reasons = verdict(changed(unrested))
    assert [reason for reason in reasons if "at rest" in reason] == [
        "3 of 4 starts began with the GPU not back at rest after 0.5 to 10 s"
    ]


def test_two_starts_are_too_few() -> None:
    assert verdict(measured.flat(2)) == ("degraded", ("2 starts only: how much starts differ is not known",))


@pytest.mark.parametrize(
    "change",
    [
        neighbour(GpuState(utilization_pct=3.0, processes=(GpuProcess(1, "Xorg", "G"),))),
        first_start(sampled=False, rest=Rest(reached=False, waited_s=5.0)),  # nobody looks at rest there
        lambda meta: replace(meta, source="times.json", notes=("read from a file of trtexec 8.6",)),
    ],
)
def test_what_is_usual_is_no_reason(change: Callable[[Metadata], Metadata]) -> None:
    assert verdict(changed(change)) == ("trusted", ())


def test_a_clock_that_nobody_saw_cannot_veto() -> None:
    found = measured.flat()
    found.iterations["sm_clock_mhz"] = np.nan
    assert verdict(replace(found, samples=found.samples[:0])) == (
        "degraded",
        ("the GPU's clock was not recorded: steady is judged by latency alone",),
    )
    assert verdict(found) == ("trusted", ())


def test_a_sampler_that_died_is_seen_in_the_data() -> None:
    found = measured.flat()
    found.iterations["sm_clock_mhz"] = np.nan
    last_ns = int(found.iterations["t_ns"][-1])
    cut = found.samples[found.samples["t_ns"] < last_ns - 2 * measured.S]
    assert verdict(replace(found, samples=cut)) == ("degraded", ("the GPU's state is missing for the last 2 s",))


def test_heat_makes_the_numbers_those_of_a_hot_gpu() -> None:
    hot = Finding("throttling", "warning", "the clock is held down by temperature")
    grade, reasons = verdict(measured.flat(), hot)
    assert grade == "degraded"
    assert reasons[0].startswith("the clock is held down by temperature")


def test_without_a_steady_state_nothing_can_be_quoted_and_doubts_still_follow() -> None:
    rows = measured.inference(0, np.linspace(2.0, 4.0, 1500))
    grade, reasons = verdict(measured.recording(rows))
    assert grade == "unusable"
    assert reasons == (
        "no steady state was reached, so no single latency can be quoted",
        "1 start only: how much starts differ is not known",
    )


def test_starts_that_found_no_steady_state_are_a_doubt_about_the_others() -> None:
    calm = [measured.inference(start, np.full(1500, 2.0)) for start in range(3)]
    climbing = measured.inference(3, np.linspace(2.0, 4.0, 1500))
    grade, reasons = verdict(measured.recording(*calm, climbing))
    assert grade == "degraded"
    assert reasons[0] == "1 of 4 starts found no steady state"
