"""The sampler's process: fixed deadlines, periods learned from the GPU, and what is left when something ends it."""

import math
import os
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from conftest import Standin

from gpuwarm.errors import DeviceError
from gpuwarm.measure import child
from gpuwarm.measure.sampler import Sampler, SamplerSpec
from gpuwarm.metadata import Sampling
from gpuwarm.rows import SAMPLE_FIELDS, SampleRow, last_row, whole_rows

MS = 1_000_000
UUID = "GPU-00000000-0000-4000-8000-000000000000"


class Machine:
    """A clock, a sleep and a GPU; a reading takes `read_ms(number)`."""

    def __init__(self, read_ms: Callable[[int], float], power_grid_ms: float = 100.0) -> None:
        self.t_ns = 5 * MS
        self.rows: list[SampleRow] = []
        self._read_ms = read_ms
        self._power_grid_ms = power_grid_ms

    def clock(self) -> int:
        return self.t_ns

    def sleep(self, duration_s: float) -> None:
        self.t_ns += round(duration_s * 1e9)

    def read(self) -> SampleRow:
        began_ns = self.t_ns
        self.t_ns += round(self._read_ms(len(self.rows)) * MS)
        power = began_ns // round(self._power_grid_ms * MS)
        fields = {"t_ns": began_ns, "read_ns": self.t_ns - began_ns, "power_mw": power, "gpu_util_pct": 100.0}
        return tuple(fields.get(name, math.nan) for name in SAMPLE_FIELDS)

    def sample(self, count: int, period_ms: float | None) -> Sampling:
        def write(row: SampleRow) -> None:
            self.rows.append(row)
            sampler.stopping = len(self.rows) == count

        sampler = Sampler(self.read, write, period_ms=period_ms, clock=self.clock, sleep=self.sleep)
        return sampler.run()

    def times_ms(self) -> list[float]:
        return [row[0] / MS for row in self.rows]


def test_deadlines_do_not_drift():
    machine = Machine(lambda _: 0.3)
    sampling = machine.sample(100, period_ms=2.0)
    assert machine.times_ms() == [5 + 2 * number for number in range(100)]
    assert sampling.deadlines_kept_pct == 100
    assert sampling.period_ms == 2.0


def test_deadlines_missed_in_a_stall_are_skipped_and_counted():
    machine = Machine(lambda number: 25.0 if number == 1 else 0.1)
    sampling = machine.sample(6, period_ms=10.0)
    assert machine.times_ms() == [5, 15, 45, 55, 65, 75]  # 25 and 35 passed while 15 was read
    assert sampling.deadlines_kept_pct == pytest.approx(100 * 6 / 8)


def test_a_deadline_just_passed_is_still_taken():
    machine = Machine(lambda number: 10.4 if number == 1 else 0.1)
    sampling = machine.sample(4, period_ms=10.0)
    assert machine.times_ms() == [5, 15, 25.4, 35]
    assert sampling.deadlines_kept_pct == 100


def test_a_late_reading_is_not_a_kept_deadline():
    machine = Machine(lambda _: 0.1)
    on_time = machine.sleep
    machine.sleep = lambda duration_s: on_time(duration_s + (0.0015 if len(machine.rows) == 2 else 0))
    assert machine.sample(4, period_ms=10.0).deadlines_kept_pct == 75


def test_the_period_becomes_half_of_the_refresh_period():
    machine = Machine(lambda _: 0.02, power_grid_ms=60.0)
    sampling = machine.sample(400, period_ms=None)
    steps = [round(b - a, 1) for a, b in zip(machine.times_ms(), machine.times_ms()[1:], strict=False)]
    assert steps[0] == 10
    assert steps[-1] == pytest.approx(30, abs=1)
    assert sampling.refresh_ms["power_mw"] == pytest.approx(60, abs=1)


@pytest.mark.parametrize(("grid_ms", "period_ms"), [(400.0, 50.0), (3.0, 5.0)])
def test_the_period_stays_within_bounds(grid_ms: float, period_ms: float):
    machine = Machine(lambda _: 0.02, power_grid_ms=grid_ms)
    assert machine.sample(3000, period_ms=None).period_ms == period_ms


def test_slow_readings_are_made_less_often():
    machine = Machine(lambda _: 2.0)
    assert machine.sample(300, period_ms=None).period_ms == pytest.approx(50)
    costly = Machine(lambda _: 8.0)
    assert costly.sample(300, period_ms=None).period_ms == pytest.approx(160)


def test_a_fixed_period_is_kept_and_refresh_is_still_learned():
    machine = Machine(lambda _: 0.02)
    sampling = machine.sample(1000, period_ms=4.0)
    assert sampling.period_ms == 4.0
    assert sampling.refresh_ms == {"power_mw": pytest.approx(100, abs=1)}


def test_cost_is_reported():
    machine = Machine(lambda number: 0.5 if number % 50 == 7 else 0.02)
    sampling = machine.sample(200, period_ms=5.0)
    assert sampling.read_us_median == pytest.approx(20)
    assert sampling.read_us_p99 == pytest.approx(500)


@pytest.fixture
def sampling_child(tmp_path: Path) -> Iterator[Callable[..., child.Child]]:
    """Start the sampler's process against the stand-in; it is ended with the test."""
    started = []

    def start(environment: dict[str, str], **spec: object) -> child.Child:
        wanted = SamplerSpec(folder=str(tmp_path), **{"gpu": UUID, **spec})
        started.append(
            child.start(
                "gpuwarm.measure.sampler:run",
                wanted,
                stem=tmp_path / f"sampler-{len(started)}",
                environment=environment,
            )
        )
        return started[-1]

    yield start
    for one in started:
        one.end()


def samples(folder: Path) -> list[dict[str, float]]:
    row = struct.Struct("<" + "".join(SAMPLE_FIELDS.values()))
    rows = row.iter_unpack(whole_rows(folder / "samples.rows", SAMPLE_FIELDS))
    return [dict(zip(SAMPLE_FIELDS, values, strict=True)) for values in rows]


def wait_until(happened: Callable[[], bool], timeout_s: float = 20.0) -> None:
    begin = time.monotonic()
    while not happened():
        assert time.monotonic() - begin < timeout_s, "waited in vain"
        time.sleep(0.01)


def latest_ms(folder: Path, environment: dict[str, str]) -> float:
    """How far the samples have come on the timeline."""
    row = last_row(folder / "samples.rows", SAMPLE_FIELDS)
    return -1.0 if row is None else (row[0] - epoch_ns(environment)) / MS


def epoch_ns(environment: dict[str, str]) -> int:
    return int(Path(environment["STANDIN_NVML_TIMELINE"] + ".epoch").read_text())


def test_transitions_land_in_samples_when_they_happen(
    standin_nvml: Standin, sampling_child: Callable[..., child.Child], tmp_path: Path
):
    environment = standin_nvml(
        "0    pstate=8 sm_clock_mhz=210  mem_clock_mhz=405   power_mw=20000  event_reasons=0x1\n"
        "0.30 pstate=5 sm_clock_mhz=1200 mem_clock_mhz=5001  power_mw=60000  event_reasons=0x0\n"
        "0.45 pstate=2 sm_clock_mhz=2520 mem_clock_mhz=10251 power_mw=320000 event_reasons=0x4"
    )
    sampler = sampling_child(environment, period_ms=5.0)
    wait_until(lambda: latest_ms(tmp_path, environment) > 600)
    sampler.end()
    sampling = msgspec.json.decode(sampler.wait(), type=Sampling)
    found = samples(tmp_path)
    for at_ms, before, after in ((300, 8, 5), (450, 5, 2)):
        times = {state: [row["t_ns"] for row in found if row["pstate"] == state] for state in (before, after)}
        at_ns = epoch_ns(environment) + at_ms * MS
        assert max(times[before]) <= at_ns + MS  # a reading begins before its P-state is asked for
        assert min(times[after]) >= at_ns - MS
        assert min(times[after]) - max(times[before]) < 250 * MS  # a busy machine skips deadlines
    assert found[-1]["sm_clock_mhz"] == 2520
    assert found[-1]["power_mw"] == 320000
    assert found[-1]["event_reasons"] == 4
    assert math.isnan(found[-1]["memory_temperature_c"])
    assert sampling.period_ms == 5.0
    assert sampling.read_us_median is not None
    assert 0 < sampling.cpu_pct < 100


def test_the_real_loop_finds_the_refresh_period(
    standin_nvml: Standin, sampling_child: Callable[..., child.Child], tmp_path: Path
):
    environment = standin_nvml(
        "refresh_ms 40\nnoise power_mw 9000\n0 gpu_util_pct=0\n0.2 gpu_util_pct=98 power_mw=300000 event_reasons=0"
    )
    sampler = sampling_child(environment)
    wait_until(lambda: latest_ms(tmp_path, environment) > 1900)
    sampler.end()
    sampling = msgspec.json.decode(sampler.wait(), type=Sampling)
    assert sampling.refresh_ms["power_mw"] == pytest.approx(40, rel=0.25)  # a busy machine skips deadlines
    assert sampling.period_ms == pytest.approx(20, rel=0.25)


def test_a_gpu_lost_in_the_middle_leaves_its_samples_and_a_sentence(
    standin_nvml: Standin, sampling_child: Callable[..., child.Child], tmp_path: Path
):
    environment = standin_nvml("0 lost=0\n0.3 lost=1")
    sampler = sampling_child(environment, period_ms=5.0)
    with pytest.raises(DeviceError, match=r"^GPU 0 \(NVIDIA GeForce RTX 4090\) is lost .* reboot$"):
        sampler.wait(20)
    times = [row["t_ns"] for row in samples(tmp_path)]
    assert len(times) > 3
    assert max(times) <= epoch_ns(environment) + 300 * MS
    assert (tmp_path / "samples.rows").stat().st_size < 100_000  # cut to what it holds


def test_no_driver_is_the_childs_sentence(sampling_child: Callable[..., child.Child], tmp_path: Path):
    sampler = sampling_child({"LD_LIBRARY_PATH": str(tmp_path)})
    with pytest.raises(DeviceError, match="there is no NVIDIA driver here"):
        sampler.wait(20)


def test_a_simulated_gpu_is_sampled_by_the_same_process(sampling_child: Callable[..., child.Child], tmp_path: Path):
    log = tmp_path / "load"
    log.mkdir()
    sampler = sampling_child({}, gpu=None, simulate="geforce", load_log=str(log))
    wait_until(lambda: last_row(tmp_path / "samples.rows", SAMPLE_FIELDS) is not None)
    sampler.end()
    assert msgspec.json.decode(sampler.wait(), type=Sampling).period_ms == 10.0
    assert samples(tmp_path)[0]["pstate"] == 8


def test_a_killed_sampler_leaves_whole_samples(
    standin_nvml: Standin, sampling_child: Callable[..., child.Child], tmp_path: Path
):
    environment = standin_nvml("0 sm_clock_mhz=900")
    sampler = sampling_child(environment, period_ms=1.0)
    wait_until(lambda: latest_ms(tmp_path, environment) > 200)
    sampler.process.kill()
    sampler.process.wait()
    found = samples(tmp_path)
    assert len(found) > 20
    assert {row["sm_clock_mhz"] for row in found} == {900.0}


def test_the_sampler_starts_without_numpy(standin_nvml: Standin):
    code = "import sys; import gpuwarm.measure.sampler, gpuwarm.measure.nvml; print('numpy' in sys.modules)"
    environment = {**os.environ, **standin_nvml("")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    assert done.stdout == "False\n"
