"""A million rows in a thousand pixels: what must survive the reduction."""

import numpy as np
import pytest

from gpuwarm.recording import Recording
from gpuwarm.show import reduce
from tests.examples import staircase


def test_bins_keep_the_single_outlier_of_a_million_rows():
    values = np.full(1_000_000, 2.0)
    values[123_456] = 40.0
    binned = reduce.bins(np.arange(1e6), values, np.linspace(0, 1e6, 401))
    assert len(binned.high) == 400
    assert binned.high.max() == 40.0
    assert (binned.median == 2.0).all()


def test_bins_leave_a_gap_where_nothing_ran():
    seconds = np.concatenate([np.arange(0, 1, 0.01), np.arange(5, 6, 0.01)])
    binned = reduce.bins(seconds, np.ones(200), np.linspace(0, 6, 61))
    assert np.isnan(binned.median).sum() == 1
    assert np.nanmax(np.diff(binned.middle_s)) < 0.2


def test_bins_of_sparse_rows_have_no_gaps():
    """Rows farther apart than a bin is wide are a slow engine, not a pause."""
    binned = reduce.bins(np.arange(0, 10, 0.5), np.ones(20), np.linspace(0, 10, 401))
    assert np.isfinite(binned.median).all()
    assert len(binned.median) == 20


def test_bins_of_nothing_known_are_empty():
    assert reduce.bins(np.arange(3.0), np.full(3, np.nan), np.linspace(0, 3, 4)).median.size == 0


def test_a_thinned_line_keeps_its_extremes_in_order():
    values = np.sin(np.arange(100_000) / 50)
    values[70_000] = 9.0
    kept = reduce.thinned(np.arange(100_000.0), values, np.linspace(0, 100_000, 101))
    assert len(kept) <= 400
    assert (np.diff(kept) > 0).all()
    assert values[kept].max() == 9.0
    assert values[kept].min() == values.min()


def test_a_span_lasts_until_the_next_sample_and_an_unknown_value_is_a_gap():
    spans = reduce.spans(np.arange(6.0), np.array([8, 8, np.nan, np.nan, 2, 2]), end_s=9.0)
    assert [(span.begin_s, span.end_s, span.value) for span in spans] == [(0, 2, 8), (4, 9, 2)]


def test_a_start_sees_the_samples_from_the_last_starts_end_to_the_next_process():
    recording = staircase(starts=3)
    view = reduce.start_view(recording, 1)
    assert view.iteration_s[0] == 0.0
    assert -6 < view.sample_s[0] <= -1.5
    assert view.sample_s[-1] < 8 + reduce.start_view(recording, 2).process_start_s
    assert view.process_start_s == pytest.approx(-0.945)


def test_the_newest_sample_is_the_last_one_begun_before_an_inference_ended():
    recording = staircase(starts=1)
    found = reduce.newest_sample(recording)
    ends = recording.iterations["t_ns"] + recording.iterations["host_ns"].astype(np.int64)
    assert (recording.samples["t_ns"][found] <= ends).all()
    assert (recording.samples["t_ns"][found + 1] > ends).all()


def test_a_sample_that_is_a_second_old_says_nothing_about_an_inference():
    recording = staircase(starts=1)
    early = recording.samples["t_ns"] < recording.iterations["t_ns"][0]
    found = reduce.newest_sample(Recording(recording.samples[early], recording.iterations, recording.meta))
    seconds = (recording.iterations["t_ns"] - recording.iterations["t_ns"][0]) * 1e-9
    assert (found[seconds < 0.9] >= 0).all()
    assert (found[seconds > 1.0] == -1).all()


def test_without_samples_no_inference_has_one():
    recording = staircase(starts=1)
    found = reduce.newest_sample(Recording(recording.samples[:0], recording.iterations, recording.meta))
    assert (found == -1).all()
