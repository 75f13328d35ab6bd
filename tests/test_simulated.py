"""The simulated GPUs: each profile's story as planted, told through the same seams as real hardware."""

import math
import os
import random
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from statistics import median

import pytest
from running import WORKER_STEPS
from virtual import MS, Machine, S

from gpuwarm.errors import EngineError, InputError
from gpuwarm.measure import child
from gpuwarm.measure.seam import Loaded
from gpuwarm.measure.simulated import (
    cold_start,
    counters_us,
    machine_state,
    open_reader,
    past_reader,
)
from gpuwarm.measure.simulation.gpu import Gpu
from gpuwarm.measure.simulation.load_log import BUSY, CLIENT, CONTEXT, LoadLog
from gpuwarm.measure.simulation.physics import Held
from gpuwarm.measure.simulation.profiles import PROFILES, SW_POWER_CAP, SW_THERMAL
from gpuwarm.measure.spec import EngineSpec, PhaseSpec, StartSpec
from gpuwarm.metadata import Phase
from gpuwarm.recording import ITERATION, read_marks
from gpuwarm.rows import ITERATION_FIELDS, SAMPLE_FIELDS, whole_rows


def warmed(machine: Machine, plan: str = "heavy") -> Loaded:
    """An engine past its two slow first inferences, with its clock measured."""
    _, loaded = machine.start(plan)
    loaded.infer()
    loaded.infer()
    loaded.attach_clock()
    return loaded


def levels(gpu: Gpu, until_ns: int) -> list[tuple[float, float]]:
    """(SM clock, how long it held in seconds) one after another, from the first event to `until_ns`."""
    gpu.at(until_ns)
    changes: list[tuple[int, float]] = []
    t_ns = 0
    while t_ns < until_ns:
        held = gpu.past(t_ns)
        if not changes or changes[-1][1] != held.sm_clock_mhz:
            changes.append((t_ns, held.sm_clock_mhz))
        t_ns += MS
    ends = [t for t, _ in changes[1:]] + [until_ns]
    return [(mhz, (end - begin) / S) for (begin, mhz), end in zip(changes, ends, strict=True)]


def test_geforce_climbs_a_staircase_under_load_and_comes_down_at_rest():
    log = LoadLog()
    entry = log.join()
    entry.open(CONTEXT, 0)
    entry.busy(0, S // 2, 0)
    gpu = Gpu(PROFILES["geforce"], log)
    assert levels(gpu, S // 2) == [(300, 0.03), (765, 0.07), (1350, 0.11), (1980, 0.03), (2055, 0.26)]
    assert [gpu.past(t * MS).pstate for t in (10, 50, 150, 220, 400)] == [8, 5, 3, 2, 2]
    resting = [gpu.at(S // 2 + round(s * S)).sm_clock_mhz for s in (0.4, 1, 17.9, 18.1, 20.1, 23.1)]
    assert resting == [2055, 1980, 1980, 1350, 765, 300]


def test_geforce_forgets_work_when_it_rests():
    for rest_s, pstate in ((0.05, 5), (0.2, 8)):
        log = LoadLog()
        entry = log.join()
        entry.busy(0, 20 * MS, 0)
        again_ns = 20 * MS + round(rest_s * S)
        entry.busy(again_ns, again_ns + 20 * MS, 0)
        assert Gpu(PROFILES["geforce"], log).at(again_ns + 19 * MS).pstate == pstate


def test_an_inference_goes_on_through_a_change_of_clocks():
    """P8 for 30 ms, 3.2 of them the copy, would take 91.8 ms; P5 takes 40.0 for the whole: 26.8 + 0.708 * 40.0."""
    machine = Machine("geforce")
    loaded = warmed(machine)
    machine.clock.sleep(60)
    row = loaded.infer()
    assert row[4] == pytest.approx(55.1e6, rel=0.02)
    assert 300 < row[6] < 765
    assert row[3] == 4 * machine.infer(loaded, 1.0)[-1][3]  # the copy before it: PCIe generation 1 instead of 3


def test_geforce_is_slow_again_after_a_long_pause_and_not_after_a_short_one():
    machine = Machine("geforce")
    loaded = warmed(machine)
    steady = median(row[4] for row in machine.infer(loaded, 2.0)[-50:])
    after = {}
    for gap_s in (0.1, 5.0, 19.0, 60.0):
        machine.clock.sleep(gap_s)
        after[gap_s] = loaded.infer()[4] / steady
        machine.infer(loaded, 1.0)
    assert after[0.1] == pytest.approx(1, abs=0.03)
    assert after[5.0] == pytest.approx(1 + 0.8 * (2055 / 1980 - 1), abs=0.03)
    assert 1.3 < after[19.0] < 2
    assert after[60.0] > 3


def test_without_a_context_geforce_is_at_rest_in_three_seconds():
    machine = Machine("geforce")
    loaded = warmed(machine)
    machine.infer(loaded, 0.5)
    loaded.close()
    machine.clock.sleep(3.2)
    gpu = machine_state("geforce", machine.log, clock=machine.clock, sleep=machine.clock.sleep).gpus[0]
    assert (gpu.pstate, gpu.sm_clock_mhz, gpu.pcie_gen, gpu.event_reasons) == (8, 300, 1, ("gpu_idle",))


def test_h200_rises_with_the_context_and_falls_after_the_process():
    machine = Machine("h200")
    begin_ns = machine.clock()
    loaded = warmed(machine, "tiny")
    machine.clock.sleep(15)
    loaded.close()
    end_ns = machine.clock()
    machine.clock.sleep(3)
    clocks = [sample["sm_clock_mhz"] for sample in machine.samples(begin_ns)]
    seen = [mhz for i, mhz in enumerate(clocks) if i == 0 or mhz != clocks[i - 1]]
    assert seen == [345, 1980, 480, 435, 405, 360, 345]
    gpu = Gpu(PROFILES["h200"], machine.log)
    assert gpu.at(end_ns + 40 * MS).sm_clock_mhz == 1980
    assert gpu.at(end_ns + S).sm_clock_mhz == 345
    assert {sample["pstate"] for sample in machine.samples(begin_ns)} == {0}


def test_h200_heavy_gets_slower_under_its_power_cap_and_follows_the_clock_only_in_part():
    machine = Machine("h200")
    rows = machine.infer(warmed(machine), 3.0)
    begin_ns = rows[0][0]
    fast = [row for row in rows if row[0] < begin_ns + 35 * MS]
    capped = [row for row in rows if row[0] > begin_ns + S]
    assert median(row[4] for row in fast) == pytest.approx(2.64e6, rel=0.005)
    assert median(row[4] for row in capped) == pytest.approx(2.84e6, rel=0.005)
    observed = median(row[4] for row in capped) / median(row[4] for row in fast) - 1
    predicted = median(row[6] for row in fast) / median(row[6] for row in capped) - 1
    assert observed == pytest.approx(0.85 * predicted, abs=0.005)
    counted_us = counters_us("h200", machine.log, clock=machine.clock, sleep=machine.clock.sleep)["sw_power_cap"]
    assert counted_us == pytest.approx(2.95e6, rel=0.02)
    samples = machine.samples(begin_ns + S)
    assert {sample["event_reasons"] for sample in samples} == {SW_POWER_CAP}
    assert {sample["sm_clock_mhz"] for sample in samples} == {1815, 1830, 1845}  # NVML says more than is true
    assert median(sample["power_average_mw"] for sample in samples[-50:]) == pytest.approx(600e3, rel=0.01)


def test_h200_tiny_and_medium_keep_their_clock():
    for plan, mhz, enqueue_ns in (("tiny", 1980, 52e3), ("medium", 1858, 90e3)):
        machine = Machine("h200")
        rows = machine.infer(warmed(machine, plan), 1.0)
        early, late = rows[: len(rows) // 10], rows[-len(rows) // 2 :]
        assert median(row[1] for row in late) == pytest.approx(enqueue_ns, rel=0.02)
        assert all(row[2] > max(row[1], row[4]) for row in rows)
        assert median(row[6] for row in late) == pytest.approx(mhz, rel=0.001)
        assert median(row[4] for row in early) == pytest.approx(median(row[4] for row in late), rel=0.01)


def test_a_cap_starts_anew_after_a_rest():
    machine = Machine("h200")
    loaded = warmed(machine)
    machine.infer(loaded, 1.0)
    machine.clock.sleep(0.05)
    assert loaded.infer()[6] == pytest.approx(1660, rel=0.01)
    machine.clock.sleep(0.2)
    assert loaded.infer()[6] == pytest.approx(1808, rel=0.01)


def test_laptop_drifts_with_its_heat():
    machine = Machine("laptop")
    loaded = warmed(machine)
    rows = machine.infer(loaded, 60.0)
    begin_ns = rows[0][0]
    clocks = [median(row[6] for row in rows if s <= (row[0] - begin_ns) / S < s + 2) for s in (0, 5, 10, 20, 58)]
    assert clocks == sorted(clocks, reverse=True)
    assert clocks[0] == pytest.approx(2040, rel=0.01)
    assert clocks[-1] / clocks[0] < 0.8
    samples = machine.samples(begin_ns, 500)
    temperatures = [sample["temperature_c"] for sample in samples]
    assert temperatures == sorted(temperatures)
    assert samples[-1]["event_reasons"] == SW_THERMAL
    counted_us = counters_us("laptop", machine.log, clock=machine.clock, sleep=machine.clock.sleep)
    assert counted_us["sw_thermal_slowdown"] == pytest.approx(59e6, rel=0.05)
    machine.clock.sleep(60)
    assert machine.samples(machine.clock() - S)[-1]["temperature_c"] < temperatures[-1] - 20
    assert loaded.infer()[6] == pytest.approx(2040, rel=0.01)


def test_a_hot_laptop_recovers_under_a_lighter_load():
    log = LoadLog()
    heavy, tiny = log.join(), log.join()
    heavy.open(CONTEXT, 0)
    heavy.busy(0, 60 * S, 2)
    tiny.busy(0, 120 * S, 0)
    gpu = Gpu(PROFILES["laptop"], log)
    clocks = [gpu.at(60 * S + s * S).sm_clock_mhz for s in (-1, 5, 10, 20, 59)]
    assert clocks == sorted(clocks)
    assert clocks[-1] > 1.2 * clocks[0]


def test_the_first_client_of_a_cold_driver_waits_for_it_and_others_do_not():
    load_ms = PROFILES["cold-driver"].driver_load_s * 1e3
    machine = Machine("cold-driver")
    alone, loaded = machine.start()
    beside, second = machine.start()
    loaded.close()
    second.close()
    again, third = machine.start()
    third.close()
    open_reader("cold-driver", machine.log, clock=machine.clock, sleep=machine.clock.sleep)
    sampled, _ = machine.start()
    assert alone["driver_init"] == pytest.approx(load_ms + 190, abs=40)
    assert again["driver_init"] == pytest.approx(load_ms + 190, abs=40)
    assert beside["driver_init"] == pytest.approx(190, abs=40)
    assert sampled["driver_init"] == pytest.approx(190, abs=40)


def test_looking_at_a_cold_driver_loads_it_and_lets_it_go():
    machine = Machine("cold-driver")
    for _ in range(2):
        begin_ns = machine.clock()
        state = machine_state("cold-driver", machine.log, clock=machine.clock, sleep=machine.clock.sleep)
        assert machine.clock() - begin_ns == round(3.2 * S)
        machine.clock.sleep(0.1)
    assert state.gpus[0].persistence_mode == "off"


def test_everything_about_a_simulated_machine_says_so():
    machine = Machine("h200")
    loaded = warmed(machine)
    state = machine_state("h200", machine.log, clock=machine.clock, sleep=machine.clock.sleep)
    assert state.gpus[0].name == "Simulated H200"
    assert state.driver_version == "simulated"
    assert "only in software" in state.notes[0]
    assert len(state.gpus[0].processes or ()) == 1
    assert loaded.versions["runtime"] == "simulated h200"


def test_nvml_tells_a_change_late_and_on_its_grid():
    machine = Machine("h200")
    entry = machine.log.join()
    begin_ns = machine.clock() + 30 * MS
    entry.open(CONTEXT, begin_ns)
    machine.clock.sleep(1)
    told_ns = next(sample["t_ns"] for sample in machine.samples(begin_ns, 1) if sample["sm_clock_mhz"] == 1980)
    assert 50 * MS <= told_ns - begin_ns <= 150 * MS
    assert told_ns % (100 * MS) == 0
    averages = [sample["power_average_mw"] for sample in machine.samples(begin_ns, 100)]
    assert averages == sorted(averages)
    assert averages[5] == pytest.approx(80e3 + 0.5 * 44e3, rel=0.06)


def test_first_inferences_load_their_kernels_unless_loading_is_eager():
    machine = Machine("geforce")
    lazy, loaded = machine.start("tiny")
    slow, second = loaded.infer()[4], loaded.infer()[4]
    loaded.close()
    machine.clock.sleep(10)
    eager, loaded = machine.start("tiny", CUDA_MODULE_LOADING="EAGER")
    quick = loaded.infer()[4]
    assert slow - second == pytest.approx(95e3, rel=0.3)
    assert quick == pytest.approx(second, rel=0.15)
    assert eager["runtime"] - lazy["runtime"] == pytest.approx(900, rel=0.2)


def test_a_context_elsewhere_makes_the_next_one_cheaper_where_that_is_planted():
    machine = Machine("geforce")
    alone, _ = machine.start("tiny")
    beside, _ = machine.start("tiny")
    assert alone["context"] - beside["context"] == pytest.approx(40, abs=25)


def test_another_process_on_the_gpu_makes_inference_slower():
    machine = Machine("h200")
    loaded = warmed(machine, "medium")
    alone = median(row[4] for row in machine.infer(loaded, 0.1))
    other = machine.log.join()
    other.busy(machine.clock(), machine.clock() + S, 1)
    assert median(row[4] for row in machine.infer(loaded, 0.1)) == pytest.approx(2 * alone, rel=0.03)


def test_gpu_times_are_autocorrelated_as_on_an_h200():
    machine = Machine("h200")
    times = [row[4] for row in machine.infer(warmed(machine, "medium"), 1.0)]
    middle = median(times)
    kept = [(a - middle, b - middle) for a, b in pairwise(times) if max(a, b) < 1.15 * middle]
    assert sum(a * b for a, b in kept) / sum(a * a for a, _ in kept) == pytest.approx(0.45, abs=0.06)


def test_what_a_card_does_not_measure_is_missing():
    geforce, h200 = (
        dict(zip(SAMPLE_FIELDS, past_reader(name, LoadLog())(S), strict=True)) for name in ("geforce", "h200")
    )
    assert [field for field, value in geforce.items() if math.isnan(value)] == [
        "read_ns",
        "power_average_mw",
        "memory_temperature_c",
    ]
    assert h200["memory_temperature_c"] == 49


def test_noise_repeats_with_the_seed_and_differs_between_starts():
    def run() -> list[list[float]]:
        machine = Machine("h200")
        return [[row[4] for row in machine.infer(warmed(machine, "medium"), 0.02)] for _ in range(2)]

    first, again = run(), run()
    assert first == again
    assert first[0] != first[1]


def test_unknown_names_are_one_sentence():
    with pytest.raises(InputError, match="no simulated GPU is called 'rtx': choose one of cold-driver, geforce"):
        past_reader("rtx", LoadLog())
    with pytest.raises(EngineError, match="runs tiny, medium, heavy, not other"):
        next(cold_start(EngineSpec(plan="other", simulate="h200")))


def comparable(held: Held) -> Held:
    """The spans of two followers are different objects."""
    return held._replace(state=held.state._replace(active=()))


@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_the_state_depends_on_the_log_alone_not_on_how_it_was_followed(profile: str):
    """One follower sees the log grow, is asked at random times and gets news late; a fresh one sees it whole."""
    script = random.Random(profile)
    for _ in range(5):
        log = LoadLog()
        follower = Gpu(PROFILES[profile], log)
        entries = [log.join() for _ in range(3)]
        t_ns = 0
        for entry in entries:
            entry.open(CLIENT, t_ns)
            entry.open(CONTEXT, t_ns)
        for _ in range(60):
            t_ns += script.choice((1000, MS, 20 * MS, 300 * MS, 2 * S))
            entry = script.choice(entries)
            late_ns = script.choice((0, 0, 0, 5 * MS, 700 * MS))
            if entry.ended_ns is None:
                last_ns = max(row[1] if row[2] == BUSY else row[0] for row in entry.rows)
                begin_ns = max(t_ns - late_ns, last_ns)
                if script.random() < 0.05:
                    entry.end(begin_ns)
                else:
                    entry.busy(begin_ns, begin_ns + script.choice((50_000, MS, 100 * MS)), script.randrange(3))
            fresh = Gpu(PROFILES[profile], log)
            assert comparable(follower.at(t_ns)) == comparable(fresh.at(t_ns))
            for back_ns in (10 * MS, 900 * MS):
                assert follower.energy_j(t_ns - back_ns) == fresh.energy_j(t_ns - back_ns)


def test_a_long_run_leaves_a_short_log():
    machine = Machine("h200")
    machine.infer(warmed(machine, "tiny"), 2.0)
    assert len(machine.log.entries[0].rows) < 10


HOLDER = """
import sys, time
from gpuwarm.measure.spec import EngineSpec
from gpuwarm.measure.simulated import cold_start
for _ in cold_start(EngineSpec(plan="tiny", simulate="h200", load_log=sys.argv[1])):
    pass
print("ready", flush=True)
time.sleep(60)
"""


def test_a_killed_process_gives_back_its_context(tmp_path: Path):
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        before = machine_state("h200", str(tmp_path)).gpus[0]
        os.kill(holder.pid, signal.SIGKILL)
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)  # dead but not reaped: a zombie holds nothing either
        after = [machine_state("h200", str(tmp_path)).gpus[0] for _ in range(2)][-1]
    assert [process.pid for process in before.processes or ()] == [holder.pid]
    assert before.sm_clock_mhz == 1980
    assert after.processes == ()
    gpu = Gpu(PROFILES["h200"], LoadLog(tmp_path))
    t_ns = time.monotonic_ns()
    gpu.at(t_ns)
    assert gpu.at(t_ns + 2 * S).sm_clock_mhz == 345
    assert [entry.ended_ns is None for entry in gpu.log.entries].count(True) == 1  # our own visit


def test_processes_agree_on_what_another_did_and_when_it_was_found_dead(tmp_path: Path):
    ours, first, second = (LoadLog(tmp_path) for _ in range(3))
    entry = ours.join()
    entry.busy(S, 2 * S, 0)
    first.look(2 * S)
    entry.busy(2 * S, 3 * S, 0)
    entry.busy(5 * S, 6 * S, 1)
    first.look(6 * S)
    assert first.entries[0].rows == entry.rows == [(S, 3 * S, BUSY, 0), (5 * S, 6 * S, BUSY, 1)]
    os.close(entry.file)  # as the kernel does for a killed process
    first.look(7 * S)
    second.look(8 * S)
    assert first.entries[0].ended_ns == second.entries[0].ended_ns == 7 * S
    assert first.entries[0].rows == second.entries[0].rows
    entry.ended_ns = 7 * S


def test_a_process_that_just_ends_lets_go_of_the_driver(tmp_path: Path):
    code = "import sys; from gpuwarm.measure import simulated; simulated.open_reader('cold-driver', sys.argv[1])"
    begin_ns = time.monotonic_ns()
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    end_ns = time.monotonic_ns()
    gpu = Gpu(PROFILES["cold-driver"], LoadLog(tmp_path))
    assert gpu.at(end_ns + S).state.held_since_ns is None
    assert gpu.log.entries[0].ended_ns is not None
    assert begin_ns + 3.2 * S < gpu.log.entries[0].ended_ns < end_ns


def test_asking_again_works_nothing_out_again():
    """A sampler's reading after an hour costs what its first did."""
    log = LoadLog()
    entry = log.join()
    for i in range(10_000):
        entry.busy(i * 5 * MS, i * 5 * MS + MS, 0)
    gpu = Gpu(PROFILES["geforce"], log)
    now_ns = 50 * S
    assert gpu.at(now_ns) is gpu.at(now_ns + MS)
    entry.busy(now_ns + 2 * MS, now_ns + 3 * MS, 0)
    assert gpu.past(now_ns) is gpu.at(now_ns + MS)


def test_real_workers_run_on_it(tmp_path: Path):
    import numpy as np

    engine = EngineSpec(plan="tiny", simulate="h200", load_log=str(tmp_path / "load"))
    tables = []
    for index in range(2):
        spec = StartSpec(index, str(tmp_path), engine, (PhaseSpec(Phase("busy"), 0.3),))
        child.start("gpuwarm.measure.start:run", spec, stem=tmp_path / f"worker-{index}").wait(60)
        marks = read_marks(tmp_path / f"start-{index}.jsonl")
        assert [mark.name for mark in marks] == WORKER_STEPS
        assert [mark.t_ns for mark in marks] == sorted(mark.t_ns for mark in marks)
        tables.append(np.frombuffer(whole_rows(tmp_path / f"start-{index}.rows", ITERATION_FIELDS), ITERATION))
    rows = tables[0]
    assert len(rows) > 300
    assert (np.diff(rows["t_ns"]) >= 0.99 * rows["host_ns"][:-1]).all()
    assert np.isnan(rows["sm_clock_mhz"][:2]).all()
    assert np.median(rows["sm_clock_mhz"][2:]) == pytest.approx(1980, rel=0.01)
    assert np.median(rows["gpu_ns"]) == pytest.approx(35e3, rel=0.1)
    assert tables[1]["gpu_ns"][0] != rows["gpu_ns"][0]  # a start of its own, not the first one again
    assert machine_state("h200", str(tmp_path / "load")).gpus[0].processes == ()
