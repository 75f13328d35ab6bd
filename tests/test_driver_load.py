"""Timing the driver's start changes nothing and fails in a sentence."""

from pathlib import Path

import pytest

from gpuwarm.errors import DeviceError
from gpuwarm.measure import driver_load


def test_opens_are_timed_in_turn_with_and_without_a_holder(tmp_path: Path):
    device = tmp_path / "nvidia0"
    device.write_bytes(b"")
    load = driver_load.measure(device)
    assert load.device == "nvidia0"
    assert (len(load.alone_ms), len(load.held_ms)) == (driver_load.OPENS, driver_load.OPENS)
    assert all(0 < took_ms < 1000 for took_ms in (*load.alone_ms, *load.held_ms))


def test_a_device_that_cannot_be_opened_is_a_sentence(tmp_path: Path):
    with pytest.raises(DeviceError, match=r"nvidia0 cannot be opened \(No such file or directory\): see `ls -l"):
        driver_load.measure(tmp_path / "nvidia0")
