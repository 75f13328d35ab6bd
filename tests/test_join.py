"""Two clocks become one where both saw the same load; else the join is refused with the reason."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.metadata import Metadata, Sampling, Start
from gpuwarm.read import nvidia_smi, trtexec
from gpuwarm.read.join import join
from gpuwarm.read.smi_log import Samples
from gpuwarm.read.trtexec import PHASES, Trace
from gpuwarm.read.trtexec_times import blank_iterations
from gpuwarm.recording import ITERATION, SAMPLE, Recording

MS = 10**6
S = 10**9
BUSY = MachineState(gpus=(GpuState(name="NVIDIA L4", utilization_pct=99.0),))


def trace(*, length_s: float = 4.0, starts: int = 1, began_local_ns: int | None = None) -> Trace:
    """2 ms inferences back to back."""
    iterations = blank_iterations(int(length_s * 500))
    iterations["t_ns"] = np.arange(iterations.size) * 2 * MS
    iterations["gpu_ns"] = 2 * MS
    meta = Metadata(time_base="relative", source="times.json", starts=(Start(phases=PHASES),) * starts)
    return Trace(Recording(np.empty(0, SAMPLE), iterations, meta), began_local_ns)


def samples(
    load: Callable[[float], float],
    *,
    column: str = "power_mw",
    span_s: float = 10.0,
    period_ms: float = 20.0,
    refresh_ms: float = 100.0,
    began_local_ns: int | None = None,
) -> Samples:
    """A sensor that reads load(seconds), from 0 to 1, each refresh, and is sampled each period; seeded noise."""
    rows = np.zeros(int(span_s * 1e3 / period_ms), SAMPLE)
    for name in SAMPLE.names or ():
        rows[name] = 0 if name == "t_ns" else np.nan
    rows["t_ns"] = np.arange(rows.size) * period_ms * MS
    read_at_s = np.floor(rows["t_ns"] / (refresh_ms * MS)) * refresh_ms / 1e3
    noise = dict(zip(np.unique(read_at_s).tolist(), np.random.default_rng(7).normal(0, 500, rows.size), strict=False))
    rows[column] = [80_000 + 420_000 * load(at) + noise[at] for at in read_at_s.tolist()]
    meta = Metadata(time_base="relative", source="gpu.csv", sampling=Sampling(period_ms=period_ms))
    return Samples(Recording(rows, np.empty(0, ITERATION), meta), began_local_ns)


def between(*stretches: tuple[float, float]) -> Callable[[float], float]:
    return lambda at: float(any(begin <= at < end for begin, end in stretches))


def offset_ms(joined: Recording, of: Samples) -> float:
    return float(of.recording.samples["t_ns"][0] - joined.samples["t_ns"][0]) / MS


@pytest.mark.parametrize("begin_s", [0.73, 2.0, 3.337, 5.21])
def test_the_load_tells_where_the_run_began(begin_s: float):
    log = samples(between((begin_s, begin_s + 4.0)))
    joined = join(trace(), log)
    uncertainty_ms = joined.meta.sampling.clock_uncertainty_ms
    assert uncertainty_ms is not None
    assert uncertainty_ms <= 100
    assert abs(offset_ms(joined, log) - 1e3 * begin_s) <= uncertainty_ms
    assert "aligned by where power rises and falls" in joined.meta.notes[0]
    assert joined.iterations.size == 2000
    assert joined.meta.source == "times.json + gpu.csv"


@pytest.mark.parametrize("period_ms", [100.0, 250.0, 1000.0])
@pytest.mark.parametrize("begin_s", [1.13, 2.5])
def test_a_coarser_log_tells_it_less_surely_but_not_wrongly(period_ms: float, begin_s: float):
    log = samples(between((begin_s, begin_s + 4.0)), period_ms=period_ms)
    joined = join(trace(), log)
    uncertainty_ms = joined.meta.sampling.clock_uncertainty_ms
    assert uncertainty_ms is not None
    assert abs(offset_ms(joined, log) - 1e3 * begin_s) <= uncertainty_ms


def test_an_average_over_a_second_is_known_to_be_late():
    def ramp(at: float) -> float:
        return float(np.clip(min(at - 2.0, 6.0 - at + 1.0), 0.0, 1.0))

    log = samples(ramp, column="power_average_mw")
    assert abs(offset_ms(join(trace(), log), log) - 2000) <= 160


def test_a_dip_under_a_power_cap_does_not_end_a_load():
    log = samples(between((2.0, 3.5), (3.7, 6.0)))
    assert abs(offset_ms(join(trace(), log), log) - 2000) <= 100


def test_two_loads_as_long_are_refused_unless_the_wall_clock_tells_them_apart():
    loads = between((1.0, 5.0), (7.0, 11.0))
    with pytest.raises(InputError, match=r"2 loads in it are as long as the run, from .*; give --offset-ms"):
        join(trace(), samples(loads, span_s=13.0))
    log = samples(loads, span_s=13.0, began_local_ns=1000 * S)
    joined = join(trace(began_local_ns=1007 * S), log)
    assert abs(offset_ms(joined, log) - 7000) <= 100


def test_loads_of_other_lengths_are_refused():
    with pytest.raises(
        InputError, match=r"the run took 4.00 s, and the log shows 1 load of about 2.0 s; give --offset-ms"
    ):
        join(trace(), samples(between((1.0, 3.0))))
    with pytest.raises(InputError, match="the log shows no load"):
        join(trace(), samples(lambda _: 0.0))


def test_the_time_of_day_that_both_write_is_better_than_nothing():
    log = samples(lambda _: 0.0, began_local_ns=1000 * S)
    joined = join(trace(began_local_ns=1002 * S), log)
    assert offset_ms(joined, log) == pytest.approx(2500)
    assert joined.meta.sampling.clock_uncertainty_ms == pytest.approx(500)
    with pytest.raises(InputError, match="shows no load"):
        join(trace(began_local_ns=9999 * S), log)


def test_a_log_too_coarse_for_a_short_run_is_refused():
    with pytest.raises(InputError, match=r"coarser than -lms 100, places a run of 0\.60 s"):
        join(trace(length_s=0.6), samples(between((2.0, 2.6)), period_ms=300, refresh_ms=100))


def test_an_offset_that_is_given_is_taken():
    log = samples(lambda _: 0.0)
    joined = join(trace(), log, offset_ms=1234.5)
    assert offset_ms(joined, log) == 1234.5
    assert joined.meta.sampling.clock_uncertainty_ms is None


def test_several_runs_are_not_joined_with_one_log():
    with pytest.raises(InputError, match=r"there are times of several runs; give the times of one alone$"):
        join(trace(starts=2), samples(between((1.0, 5.0))))


def test_both_files_tell_of_the_machine_and_a_stranger_is_refused():
    log = samples(between((2.0, 6.0)))
    seen = MachineState(gpus=(GpuState(index=3, name="NVIDIA L4", power_limit_w=72.0),))
    log = replace(log, recording=replace(log.recording, meta=replace(log.recording.meta, machine_before=seen)))
    timed = trace()
    told = MachineState(gpus=(GpuState(name="NVIDIA L4", compute_capability="8.9"),))
    timed = replace(timed, recording=replace(timed.recording, meta=replace(timed.recording.meta, machine_before=told)))
    joined = join(timed, log)
    assert joined.meta.machine_before is not None
    gpu = joined.meta.machine_before.gpus[0]
    assert (gpu.index, gpu.power_limit_w, gpu.compute_capability) == (3, 72.0, "8.9")
    other = MachineState(gpus=(GpuState(name="NVIDIA H200"),))
    timed = replace(timed, recording=replace(timed.recording, meta=replace(timed.recording.meta, machine_before=other)))
    with pytest.raises(InputError, match="ran on NVIDIA H200, the states are of NVIDIA L4, another GPU"):
        join(timed, log)


@pytest.mark.parametrize(("engine", "begin_ms"), [("heavy", 2390), ("medium", 2387)])
def test_trtexec_on_an_h200_is_aligned_within_100_ms(cases: Path, engine: str, begin_ms: float):
    """Where it began was read off the power by eye: it rises between two readings and falls between two others."""
    folder = cases.parent / "h200" / "trtexec"
    times, log = folder / f"{engine}_warmup0_times.json", folder / f"{engine}_smi.csv"
    beside = nvidia_smi.samples(log.read_bytes(), log.name)
    assert beside is not None
    joined = join(trtexec.traces([(times.name, times.read_bytes())])[0], beside)
    assert (joined.meta.sampling.clock_uncertainty_ms or 999) <= 100
    assert abs(offset_ms(joined, beside) - begin_ms) <= 50


def test_how_steep_an_average_rises_tells_how_late_it_is():
    for window_s in (0.0, 0.3, 1.0):

        def averaged(at: float, window_s: float = window_s) -> float:
            inside = min(at, 6.0) - max(at - window_s, 2.0)
            return float(np.clip(inside / window_s, 0.0, 1.0)) if window_s else float(2.0 <= at < 6.0)

        log = samples(averaged, column="power_average_mw")
        joined = join(trace(), log)
        uncertainty_ms = joined.meta.sampling.clock_uncertainty_ms
        assert uncertainty_ms is not None
        assert uncertainty_ms < 300
        assert abs(offset_ms(joined, log) - 2000) <= uncertainty_ms


def test_a_log_that_shows_one_end_of_the_load_says_what_that_leaves_open():
    log = samples(between((2.0, 6.0)), span_s=4.0)
    assert "the log ends under load" in join(trace(), log).meta.notes[0]
    log = samples(between((-2.0, 2.0)), span_s=4.0)
    log = replace(log, recording=replace(log.recording, meta=replace(log.recording.meta, machine_before=BUSY)))
    joined = join(trace(), log)
    assert "the log begins under load" in joined.meta.notes[0]
    assert joined.meta.machine_before is not None
    assert joined.meta.machine_before.gpus[0].utilization_pct is None  # that is the run's, not before it


def test_times_of_day_that_differ_are_told_and_another_days_load_is_refused():
    log = samples(between((2.0, 6.0)), began_local_ns=100_000 * S)
    assert "times of day" not in join(trace(began_local_ns=100_001 * S), log).meta.notes[0]
    told = join(trace(began_local_ns=92_801 * S), log).meta.notes[0]
    assert "although the times of day in both differ by 2:00:0" in told
    with pytest.raises(InputError, match=r"its load lies 2 days, .* it is another run's"):
        join(trace(began_local_ns=300_000 * S), log)


def test_an_offset_outside_the_log_is_refused():
    for outside_ms in (10_500, -4_500):
        with pytest.raises(InputError, match=r"covers 9\.98 s, and the run lies outside"):
            join(trace(), samples(lambda _: 0.0), offset_ms=outside_ms)


def test_a_log_without_power_and_utilisation_is_said_to_have_none():
    log = samples(between((2.0, 6.0)), column="sm_clock_mhz")
    with pytest.raises(InputError, match="has neither power nor utilisation to tell load by"):
        join(trace(), log)


def test_power_that_moves_while_the_gpu_is_not_used_is_no_load():
    log = samples(between((-2.0, 2.0)), span_s=4.0)
    log.recording.samples["gpu_util_pct"] = 0.0
    with pytest.raises(InputError, match="shows no load"):
        join(trace(), log)


def test_a_log_that_shows_little_of_a_load_does_not_place_a_run():
    with pytest.raises(InputError, match=r"shows 1 load of about 1\.9 s"):
        join(trace(length_s=30.0), samples(between((-2.0, 2.0)), span_s=4.0))


def test_of_many_loads_some_are_listed():
    many = between(*((begin, begin + 1.0) for begin in range(1, 30, 3)))
    with pytest.raises(InputError, match=r"10 loads in it are as long as the run, from (?:\d+\.\d s, ){5}\.\.\.;"):
        join(trace(length_s=1.0), samples(many, span_s=33.0))
