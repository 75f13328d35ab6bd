"""Refresh periods come from how changes are spaced, and only under load."""

import csv
import math
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path

import numpy as np
import pytest

from gpuwarm.measure.refresh import Refresh
from gpuwarm.rows import SAMPLE_FIELDS, SampleRow

MS = 1_000_000


def row(t_ns: int, **values: float) -> SampleRow:
    fields = {"gpu_util_pct": 100.0, "event_reasons": 0.0, **values, "t_ns": t_ns}
    return tuple(fields.get(name, math.nan) for name in SAMPLE_FIELDS)


def gridded(period_ms: float, *, seed: int, share: float = 1.0) -> Callable[[int], float]:
    """A value that a driver renews on a grid; it differs from the last one in `share` of the renewals."""
    random_state = random.Random(seed)
    values = [float(seed)]
    for _ in range(10_000):
        values.append(values[-1] + random_state.choice((-1, 1)) if random_state.random() < share else values[-1])
    return lambda t_ns: values[int(t_ns / (period_ms * MS))]


def seen(
    signals: dict[str, Callable[[int], float]], *, sampling_ms: float, duration_s: float, **also: float
) -> Refresh:
    refresh = Refresh()
    jitter = random.Random(3)
    for number in range(int(duration_s * 1e3 / sampling_ms)):
        t_ns = int((number * sampling_ms + jitter.uniform(0, 0.3)) * MS)
        refresh.observe(row(t_ns, **{name: signal(t_ns) for name, signal in signals.items()}, **also))
    refresh.conclude(sampling_ms * MS)
    return refresh


def test_each_sensor_has_its_own_period():
    refresh = seen(
        {
            "power_mw": gridded(100, seed=1),
            "sm_clock_mhz": gridded(25, seed=2, share=0.5),
            "temperature_c": gridded(250, seed=3, share=0.4),
        },
        sampling_ms=10,
        duration_s=30,
    )
    assert refresh.periods_ns["power_mw"] == pytest.approx(100 * MS, rel=0.02)
    assert refresh.periods_ns["sm_clock_mhz"] == pytest.approx(25 * MS, rel=0.1)
    assert refresh.periods_ns["temperature_c"] == pytest.approx(250 * MS, rel=0.02)
    assert refresh.shortest_ns() == refresh.periods_ns["sm_clock_mhz"]


def test_a_sensor_that_is_always_new_is_renewed_at_least_at_the_sampling_rate():
    refresh = seen({"sm_clock_mhz": gridded(2, seed=1)}, sampling_ms=10, duration_s=3)
    assert refresh.periods_ns == {"sm_clock_mhz": pytest.approx(10 * MS, rel=0.02)}


def test_temperature_and_utilisation_set_no_pace():
    refresh = seen(
        {"temperature_c": gridded(20, seed=1), "power_mw": gridded(100, seed=2)}, sampling_ms=5, duration_s=3
    )
    assert refresh.shortest_ns() == pytest.approx(100 * MS, rel=0.02)


@pytest.mark.parametrize(
    ("also", "known"),
    [
        ({"gpu_util_pct": 0.0}, set()),
        ({"gpu_util_pct": 3.0, "event_reasons": 1.0}, {"power_mw"}),  # a stale idle bit does not hide a busy GPU
        ({"gpu_util_pct": math.nan, "event_reasons": 1.0}, set()),
        ({"gpu_util_pct": math.nan, "event_reasons": 4.0}, {"power_mw"}),  # MIG has no utilisation
        ({"gpu_util_pct": math.nan, "event_reasons": math.nan}, set()),
    ],
)
def test_only_changes_under_load_count(also: dict[str, float], known: set[str]):
    refresh = seen({"power_mw": gridded(100, seed=1)}, sampling_ms=10, duration_s=3, **also)
    assert set(refresh.periods_ns) == known


def test_a_gap_in_the_load_is_not_a_spacing():
    refresh = Refresh()
    power = gridded(100, seed=1)
    for t_ns in range(0, 20_000 * MS, 10 * MS):
        busy = t_ns % (300 * MS) in range(50 * MS, 160 * MS)  # each stretch of load sees one renewal
        refresh.observe(row(t_ns, power_mw=power(t_ns), gpu_util_pct=90.0 if busy else 0.0))
    refresh.conclude(10 * MS)
    assert refresh.periods_ns == {}


def test_a_value_that_comes_and_goes_is_not_a_change():
    refresh = Refresh()
    for number in range(1000):
        refresh.observe(row(number * 10 * MS, power_mw=math.nan if number % 3 else 5.0))
    refresh.conclude(10 * MS)
    assert refresh.periods_ns == {}


def test_a_coarser_look_does_not_replace_a_finer_one():
    """Sampled at half of the refresh period, on its edge: spacings are 50, 100 and 150 ms by chance."""
    refresh = seen({"power_mw": gridded(100, seed=1)}, sampling_ms=10, duration_s=3)
    jitter, power = random.Random(1), gridded(100, seed=1)
    for number in range(1, 400):
        t_ns = int((number * 50 + jitter.uniform(-0.3, 0.3)) * MS)
        refresh.observe(row(t_ns, power_mw=power(t_ns)))
    refresh.conclude(50 * MS)
    assert refresh.periods_ns["power_mw"] == pytest.approx(100 * MS, rel=0.02)


def test_a_sensor_that_wakes_up_late_is_followed():
    """The clock steps now and then while power sets the pace; then it moves at every sample."""
    signals = {"power_mw": gridded(100, seed=1), "sm_clock_mhz": gridded(200, seed=2)}
    refresh = seen(signals, sampling_ms=10, duration_s=3)
    assert refresh.shortest_ns() == pytest.approx(100 * MS, rel=0.02)
    clock = gridded(7, seed=2)
    for number in range(200):
        refresh.observe(row(number * 50 * MS, sm_clock_mhz=clock(number * 50 * MS)))
    refresh.conclude(50 * MS)
    assert refresh.shortest_ns() == pytest.approx(50 * MS, rel=0.1)


def logged(path: Path, columns: dict[str, str]) -> Iterator[SampleRow]:
    with path.open() as file:
        for line in csv.DictReader(file, skipinitialspace=True):
            if None in line.values():  # the file's last line is cut
                continue
            when = datetime.strptime(line["timestamp"] + "+0000", "%Y/%m/%d %H:%M:%S.%f%z")
            values = {field: float(line[column].split()[0]) for field, column in columns.items()}
            yield row(round(when.timestamp() * 1e9), **values)


def test_a_logged_h100_renews_power_on_a_grid_and_its_clock_freely(cases: Path):
    refresh = Refresh()
    columns = {
        "power_mw": "power.draw.instant [W]",
        "power_average_mw": "power.draw [W]",
        "sm_clock_mhz": "clocks.current.sm [MHz]",
        "gpu_util_pct": "utilization.gpu [%]",
    }
    path = cases / "smi_csv" / "h100_pcie_burst_345_1755_then_powercap_8ms.csv"
    for sample in logged(path, columns):
        refresh.observe(sample)
    refresh.conclude(8 * MS)
    assert refresh.periods_ns["power_mw"] == pytest.approx(100 * MS, rel=0.05)
    assert refresh.periods_ns["power_average_mw"] == pytest.approx(100 * MS, rel=0.05)
    assert refresh.periods_ns["sm_clock_mhz"] < 25 * MS


@pytest.mark.parametrize("engine", ["heavy", "medium"])
def test_an_h200_sampled_at_10_ms_renews_every_100_ms(h200: Path, engine: str):
    states = np.load(h200 / "traces" / f"h200_{engine}_continuous.npz")["states"]
    times = states["t_begin_ns"]
    grid = np.searchsorted(times, np.arange(times[0], times[-1], 10 * MS))
    refresh = Refresh()
    for state in states[grid]:
        refresh.observe(
            row(
                int(state["t_begin_ns"]),
                sm_clock_mhz=float(state["sm_mhz"]),
                power_average_mw=float(state["power_mw"]),
                gpu_util_pct=float(state["gpu_util_pct"]),
            )
        )
    refresh.conclude(10 * MS)
    assert refresh.shortest_ns() == pytest.approx(100 * MS, rel=0.02)
    assert refresh.periods_ns["gpu_util_pct"] == pytest.approx(200 * MS, rel=0.02)
