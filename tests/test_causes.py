"""Where a cold start's time goes."""

from dataclasses import replace

import measured
import numpy as np
import pytest

from gpuwarm.analysis import causes
from gpuwarm.metadata import Mark, Metadata
from gpuwarm.recording import Recording

USERS_STEPS = [name for name in measured.STEPS_MS if name != causes.OWN]


def starts(*driver_init_ms: float, unsampled: int = 0) -> Recording:
    """Starts alike but for the driver's initialisation; the last `unsampled` without sampling."""
    tables = [measured.inference(n, np.concatenate([[5.0, 3.0], np.full(98, 2.0)])) for n in range(len(driver_init_ms))]
    found = measured.recording(*tables)
    changed = [
        replace(
            start,
            marks=measured.marks(rows, measured.STEPS_MS | {"driver_init": init}),
            sampled=n < len(tables) - unsampled,
        )
        for n, (start, rows, init) in enumerate(zip(found.meta.starts, tables, driver_init_ms, strict=True))
    ]
    return replace(found, meta=replace(found.meta, starts=tuple(changed)))


def test_phases_are_medians_with_their_range_and_add_up_to_the_whole() -> None:
    cold = causes.cold_start(starts(200.0, 300.0, 210.0))
    driver = next(phase for phase in cold.phases if phase.name == "driver_init")
    assert driver.median_ms == pytest.approx(210.0)
    assert driver.interval_ms == pytest.approx((200.0, 300.0))
    assert [phase.name for phase in cold.phases] == [*USERS_STEPS, "first_inference"]
    # All steps but this one are alike in every start, so the medians add up.
    assert cold.total_ms == pytest.approx(sum(phase.median_ms for phase in cold.phases))
    assert sum(phase.share_pct for phase in cold.phases) == pytest.approx(100)
    assert cold.total_interval_ms == pytest.approx((cold.total_ms - 10, cold.total_ms + 90))


def test_gpuwarms_own_imports_are_in_no_number_but_their_own() -> None:
    whole = causes.cold_start(starts(200.0, 200.0))
    found = starts(200.0, 200.0)
    slower = [
        replace(start, marks=measured.marks(rows, measured.STEPS_MS | {"gpuwarm": 500.0}))
        for start, rows in zip(found.meta.starts, np.split(found.iterations, 2), strict=True)
    ]
    cold = causes.cold_start(replace(found, meta=replace(found.meta, starts=tuple(slower))))
    assert (whole.own_ms, cold.own_ms) == pytest.approx((measured.STEPS_MS["gpuwarm"], 500.0))
    assert cold.total_ms == pytest.approx(whole.total_ms)
    assert cold.phases == whole.phases


def test_first_and_second_inference_are_the_callers_and_the_gpus() -> None:
    cold = causes.cold_start(starts(200.0, 200.0))
    assert (cold.first_ms, cold.second_ms) == pytest.approx((5.02, 3.02))
    assert (cold.first_gpu_ms, cold.second_gpu_ms) == pytest.approx((5.0, 3.0))


def test_starts_without_sampling_stay_apart() -> None:
    cold = causes.cold_start(starts(200.0, 210.0, 1500.0, 1600.0, unsampled=2))
    driver = next(phase for phase in cold.phases if phase.name == "driver_init")
    assert (driver.median_ms, driver.unsampled_ms) == pytest.approx((205.0, 1550.0))
    assert (cold.starts, cold.unsampled_starts) == (2, 2)
    assert cold.unsampled_total_ms - cold.total_ms == pytest.approx(1345.0)


def test_a_masked_driver_load_is_claimed_only_where_every_unsampled_start_was_slower() -> None:
    assert causes.driver_load_masked(causes.cold_start(starts(200.0, 210.0, 400.0, 500.0, unsampled=2)))
    assert not causes.driver_load_masked(causes.cold_start(starts(200.0, 410.0, 400.0, 500.0, unsampled=2)))
    assert not causes.driver_load_masked(causes.cold_start(starts(200.0, 210.0)))


def test_a_step_that_some_starts_lack_is_told_over_the_others() -> None:
    found = starts(200.0, 300.0)
    first, second = found.meta.starts
    second = replace(second, marks=tuple(mark for mark in second.marks if mark.name != "driver_init"))
    cold = causes.cold_start(replace(found, meta=replace(found.meta, starts=(first, second))))
    driver = next(phase for phase in cold.phases if phase.name == "driver_init")
    assert (driver.median_ms, driver.interval_ms) == pytest.approx((200.0, None))


def test_a_start_that_never_gave_a_result_does_not_count() -> None:
    found = starts(200.0, 200.0)
    died = replace(found.meta.starts[1], marks=(Mark("process_start", 5), Mark("interpreter", 10)))
    cold = causes.cold_start(replace(found, meta=replace(found.meta, starts=(found.meta.starts[0], died))))
    assert cold.starts == 1


def test_without_marks_the_first_inferences_are_still_known() -> None:
    found = starts(200.0, 200.0)
    bare = tuple(replace(start, marks=()) for start in found.meta.starts)
    cold = causes.cold_start(replace(found, meta=replace(found.meta, starts=bare)))
    assert (cold.phases, cold.total_ms) == ((), None)
    assert cold.first_ms == pytest.approx(5.02)


def test_another_tools_rows_hold_no_cold_start() -> None:
    found = starts(200.0)
    assert causes.cold_start(Recording(found.samples, found.iterations, Metadata())) is None
