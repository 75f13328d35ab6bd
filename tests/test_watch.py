"""A GPU's state as it is now, for a person and for a program."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Standin
from test_contract import DATA, has_the_keys
from virtual import VirtualClock

from gpuwarm.analysis.contract import json_schema
from gpuwarm.rows import SAMPLE_FIELDS
from gpuwarm.show import live
from gpuwarm.studies.device import simulated_device
from gpuwarm.studies.watch import readings

WATCH = [sys.executable, "-m", "gpuwarm", "watch", "--period-ms", "20"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}


def row(**known: float) -> tuple[float, ...]:
    return tuple(known.get(name, float("nan")) for name in SAMPLE_FIELDS)


BUSY = row(
    t_ns=5, pstate=2, sm_clock_mhz=1905, mem_clock_mhz=9501, power_mw=318_400, temperature_c=71, gpu_util_pct=98,
    event_reasons=4,
)  # fmt: skip


def test_a_reading_is_a_line_of_less_than_80_columns():
    line = live.line(live.reading(BUSY, None))
    assert re.sub("^[0-9:]{8}", "", line) == "  P2  SM 1905 MHz  memory  9501 MHz  318 W  71 C   98 %  sw_power_cap"
    assert len(line) < 80


def test_what_a_gpu_does_not_tell_is_not_zero():
    nothing = live.reading(row(t_ns=5), None)
    assert live.line(nothing).split(maxsplit=1)[1] == "P?  SM    ? MHz  memory     ? MHz    ? W   ? C    ? %  reasons ?"
    told = live.to_json(nothing)
    assert {name for name, value in told.items() if value is not None} == {"schema", "time_utc"}


def test_json_has_the_keys_of_its_schema():
    schema = json_schema(live.Reading, live.SCHEMA)
    assert has_the_keys(json.loads(json.dumps(live.to_json(live.reading(BUSY, "h200")))), schema, schema["$defs"])
    written = json.loads((DATA / "watch-1.schema.json").read_text())
    assert written == schema, "after a change of the contract run: python scripts/write_schemas.py"


@pytest.mark.parametrize(
    ("changed", "same"),
    [
        ({"sm_clock_mhz": 1890}, True),  # a step of dithering
        ({"power_mw": 100_000, "temperature_c": 40}, True),
        ({"sm_clock_mhz": 1500}, False),
        ({"pstate": 8}, False),
        ({"event_reasons": 0}, False),
    ],
)
def test_a_state_is_p_state_clocks_and_reasons(changed: dict[str, float], *, same: bool):
    one = live.reading(BUSY, None)
    values = dict(zip(SAMPLE_FIELDS, BUSY, strict=True)) | changed
    assert live.reading(row(**values), None).same_state(one) == same


def test_readings_come_at_their_period_until_the_time_is_over(tmp_path: Path):
    clock = VirtualClock()
    device = simulated_device("h200", tmp_path / "load")
    rows = list(readings(device, 0.5, 2.0, clock=lambda: clock() / 1e9, sleep=clock.sleep))
    assert len(rows) == 5
    assert clock() == 2e9


def test_a_pipe_gets_a_json_object_a_line(tmp_path: Path):
    told = subprocess.run(
        [*WATCH, "--simulate", "geforce", "--duration", "0.1", "--json"],
        env=ENVIRONMENT, cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip
    lines = [json.loads(line) for line in told.stdout.splitlines()]
    assert len(lines) == 6
    assert {(line["simulated"], line["pstate"], line["sm_clock_mhz"]) for line in lines} == {("geforce", 8, 300)}
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_has_one_line_a_state_until_ctrl_c(standin_nvml: Standin):
    states = "0 pstate=8 sm_clock_mhz=300\n0.5 pstate=2 sm_clock_mhz=1980 event_reasons=0x4"
    ours, theirs = pty.openpty()
    environment = {**ENVIRONMENT, **standin_nvml(states), "TERM": "xterm", "COLUMNS": "70"}
    watching = subprocess.Popen(WATCH, env=environment, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown = ""
    while shown.count("P2 ") < 2:
        shown += os.read(ours, 4096).decode()
    watching.send_signal(signal.SIGINT)
    assert watching.wait() == 130
    heading, *lines = shown.replace("\r\n", "\n").split("\n")
    assert heading == "NVIDIA GeForce RTX 4090, SM clock up to 3105 MHz, power limit 450 W"
    assert len(lines) == 2
    for line, state in zip(lines, ("P8  SM  300", "P2  SM 1980"), strict=True):
        renewed = line.split("\r\x1b[K")
        assert len(renewed) > 1
        assert all(state in each and len(each) < 70 for each in renewed[:-1])
