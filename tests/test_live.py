"""This machine as a whole: what is read when, and what reading it tells."""

import json
import os
import subprocess
import sys

from conftest import Standin

from gpuwarm.measure import live

READ = """
import msgspec, sys
from gpuwarm.measure import live
sys.stdout.buffer.write(msgspec.json.encode(live.machine_state({gpu!r})))
"""


def machine_state(environment: dict[str, str], gpu: str | None = None):
    command = [sys.executable, "-c", READ.format(gpu=gpu)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, **environment}, check=True)
    return json.loads(done.stdout)


def test_gpus_and_host_come_together(standin_nvml: Standin):
    state = machine_state(standin_nvml("gpus 2\n0 pstate=5"))
    assert [gpu["pstate"] for gpu in state["gpus"]] == [5, 5]
    assert state["host"]["kernel"]
    assert state["notes"] == []


def test_a_reading_that_had_to_load_the_driver_is_noted(standin_nvml: Standin):
    (note,) = machine_state(standin_nvml("slow nvmlInitWithFlags 999999\nslow nvmlDeviceGetName 100000"))["notes"]
    assert note.startswith("reading the GPUs took 1.")


def test_waiting_for_boot_takes_what_is_left_of_it():
    slept: list[float] = []
    live.wait_for_boot(0.0, sleep=slept.append)
    assert slept == []
    live.wait_for_boot(1e9, sleep=slept.append)
    (pause_s,) = slept
    assert 0 < pause_s < 1e9
