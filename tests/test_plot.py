"""What a person must be able to see in the figures, whatever was or was not recorded."""

import io
import math
from dataclasses import replace

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import imread

from gpuwarm.analysis.bias import Bias
from gpuwarm.analysis.pace import Pace
from gpuwarm.analysis.steady import Warmup
from gpuwarm.errors import InputError
from gpuwarm.recording import ITERATION, SAMPLE, Recording
from gpuwarm.show import plot
from gpuwarm.show.plot.look import INK
from tests.examples import GEFORCE, staircase, staircase_advice

RECORDING = staircase()
ADVICE = staircase_advice(RECORDING)


def words(figure: Figure) -> str:
    """All text on a figure, the legends' included."""
    texts = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        legend = axes.get_legend()
        texts += [text.get_text() for text in axes.texts]
        texts += [text.get_text() for text in legend.get_texts()] if legend else []
        texts += [axes.get_ylabel(), axes.get_xlabel(), axes.get_title("left")]
        texts += [label.get_text() for label in (*axes.get_xticklabels(), *axes.get_yticklabels())]
    return "\n".join(texts)


def pixels(figure: Figure) -> np.ndarray:
    return imread(io.BytesIO(plot.encoded(figure, "png")))[..., :3]


def panel(figure: Figure, label: str) -> Axes:
    return next(axes for axes in figure.axes if label in axes.get_ylabel())


def only(recording: Recording, start: int) -> Recording:
    return replace(recording, iterations=recording.iterations[recording.iterations["start"] == start])


@pytest.mark.parametrize("name", plot.FIGURES)
def test_a_simulated_recording_is_stamped_on_each_figure(name: str):
    assert "SIMULATED (geforce)" in words(plot.draw(name, RECORDING, ADVICE))
    measured = staircase(simulated=None)
    assert "SIMULATED" not in words(plot.draw(name, measured, staircase_advice(measured)))


@pytest.mark.parametrize("name", plot.FIGURES)
def test_the_title_says_what_was_measured(name: str):
    title = words(plot.draw(name, RECORDING, ADVICE)).split("\n")[0]
    assert title == "NVIDIA GeForce RTX 4070 · resnet50 · driver 580.95.05 · TensorRT 10.13.3"


@pytest.mark.parametrize("name", plot.FIGURES)
def test_names_with_a_dollar_sign_are_no_formula(name: str):
    advice = replace(ADVICE, workload=replace(ADVICE.workload, name="a$x_1$b{"))
    assert "a$x_1$b{" in words(plot.draw(name, RECORDING, advice))
    plot.encoded(plot.draw(name, RECORDING, advice), "png")


@pytest.mark.parametrize("name", plot.FIGURES)
def test_the_same_recording_gives_the_same_svg(name: str):
    first, second = (plot.encoded(plot.draw(name, RECORDING, ADVICE), "svg") for _ in range(2))
    assert first == second


def test_a_timeline_shows_every_state_that_was_recorded():
    shown = words(plot.draw("timeline", RECORDING, ADVICE))
    for name in ("SM clock", "measured on the GPU", "NVML", "memory", "limit 200 W", "temp.", "P8", "P5", "P2"):
        assert name in shown
    assert "GPU idle" in shown
    assert "SW power cap" in shown
    assert "thermal" not in shown


def test_all_panels_of_a_timeline_share_one_time_axis():
    figure = plot.draw("timeline", RECORDING, ADVICE)
    assert len({axes.get_xlim() for axes in figure.axes}) == 1
    assert len({(axes.get_position().x0, axes.get_position().x1) for axes in figure.axes}) == 1


def test_a_timeline_shows_the_start_that_decided_unless_another_is_picked():
    assert "start 2 of 3 (the longest to warm up)" in words(plot.draw("timeline", RECORDING, ADVICE))
    assert "start 3 of 3, " in words(plot.draw("timeline", RECORDING, ADVICE, start=2))
    with pytest.raises(InputError, match="no inference of a start 9: choose one of 1, 2, 3"):
        plot.draw("timeline", RECORDING, ADVICE, start=8)


def test_the_warmup_line_stands_where_latency_reaches_its_steady_level():
    figure = plot.draw("timeline", RECORDING, ADVICE)
    lines = [line for line in panel(figure, "SM clock").lines if line.get_color() == INK]
    assert [line.get_xdata()[0] for line in lines] == pytest.approx([0.622, 0.7], abs=1e-3)


def test_pauses_move_the_warmup_line_because_they_warm_nothing():
    """The two cold inferences end 300 ms before the continuous ones begin."""
    recording = only(RECORDING, 1)
    recording.iterations["t_ns"][2:] += 300_000_000
    lines = panel(plot.draw("timeline", recording, ADVICE), "SM clock").lines
    ends = next(line for line in lines if line.get_color() == INK)
    assert ends.get_xdata()[0] == pytest.approx(0.922, abs=1e-3)


def test_a_short_warmup_is_enlarged_beside_the_whole():
    recording = staircase(starts=1, duration_s=30.0)
    figure = plot.draw("timeline", recording, replace(ADVICE, warmup=replace(ADVICE.warmup, longest_start=0)))
    beginning, whole = [axes for axes in figure.axes if "P8" in words_of(axes)]
    assert beginning.get_xlim()[1] < 0.1 * whole.get_xlim()[1]
    assert beginning.get_ylim() == whole.get_ylim()


def words_of(axes: Axes) -> str:
    return " ".join(text.get_text() for text in axes.texts)


def test_one_slow_inference_among_many_is_named_and_drawn():
    recording = many(200_000)
    recording.iterations["host_ns"][154_321] = 9e6
    figure = plot.draw("timeline", recording, replace(ADVICE, warmup=Warmup()))
    assert "1 above, up to 9,000 us" in words(figure)
    arrow = next(line for line in panel(figure, "latency").lines if line.get_marker() == "^")
    assert arrow.get_xdata() == pytest.approx([154_321 * 20e-6])


def test_one_inference_apart_from_the_others_is_still_dark_among_many():
    """It fills one cell of the density, which is drawn strong enough to be seen."""
    recording = many(200_000)
    recording.iterations["host_ns"][100_000] = 20_650
    figure = plot.draw("timeline", recording, replace(ADVICE, warmup=Warmup()))
    axes = panel(figure, "latency")
    assert "above" not in words(figure)
    image = pixels(figure)
    x, y = axes.transData.transform((100_000 * 20e-6, 20.65)) * plot.DPI / figure.dpi
    around = image[image.shape[0] - round(y) - 4 : image.shape[0] - round(y) + 4, round(x) - 4 : round(x) + 4]
    assert around.min() < 0.75


def many(count: int) -> Recording:
    """Latencies of 20 us with a spread of 1 %, back to back, no GPU times."""
    iterations = np.zeros(count, ITERATION)
    for name in ("gpu_ns", "h2d_ns", "d2h_ns", "sm_clock_mhz", "enqueue_ns"):
        iterations[name] = math.nan
    iterations["phase"] = 1
    iterations["t_ns"] = np.arange(count) * 20_000
    iterations["host_ns"] = 20_000 + 200 * np.clip(np.random.default_rng(3).standard_normal(count), -3, 3)
    return Recording(np.zeros(0, SAMPLE), iterations, replace(RECORDING.meta, starts=()))


@pytest.mark.parametrize("name", ["timeline", "latency_by_state", "bias"])
def test_many_inferences_make_no_large_svg(name: str):
    recording = many(200_000)
    recording.iterations["sm_clock_mhz"] = 1980.0
    advice = replace(ADVICE, warmup=replace(ADVICE.warmup, longest_start=0, ends_ms=(622.0,)))
    assert len(plot.encoded(plot.draw(name, recording, advice), "svg")) < 300_000


def test_without_samples_the_timeline_is_latency_and_the_clock_measured_on_the_gpu():
    recording = replace(RECORDING, samples=RECORDING.samples[:0])
    shown = words(plot.draw("timeline", recording, ADVICE))
    assert "measured on the GPU" in shown
    assert "NVML" not in shown
    assert "P-state" not in shown


def test_without_iterations_the_timeline_is_the_state():
    recording = replace(RECORDING, iterations=RECORDING.iterations[:0])
    figure = plot.draw("timeline", recording, replace(ADVICE, warmup=Warmup(), steady=None))
    assert "latency" not in words(figure)
    assert "GPU state: 750 samples, no inference timed" in words(figure)
    assert "P8" in words(figure)


def test_without_anything_there_is_no_timeline():
    recording = replace(RECORDING, iterations=RECORDING.iterations[:0], samples=RECORDING.samples[:0])
    with pytest.raises(InputError, match="neither inferences nor GPU state were recorded"):
        plot.draw("timeline", recording, ADVICE)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_fewest_inferences_can_be_drawn(count: int):
    recording = replace(RECORDING, iterations=RECORDING.iterations[:count])
    figure = plot.draw("timeline", recording, replace(ADVICE, warmup=Warmup()))
    assert f"{count} inference" in words(figure)
    plot.encoded(figure, "png")


def test_unknown_values_are_gaps():
    recording = staircase(starts=1)
    recording.iterations["gpu_ns"] = math.nan
    recording.iterations["host_ns"][500:600] = math.nan
    recording.iterations["sm_clock_mhz"] = math.nan
    recording.samples["power_mw"][::3] = math.nan
    recording.samples["event_reasons"] = math.nan
    for name in plot.FIGURES:
        advice = replace(ADVICE, gpu=None, warmup=replace(ADVICE.warmup, ends_ms=(622.0,)))
        plot.encoded(plot.draw(name, recording, advice), "png")
    assert "SW power cap" not in words(plot.draw("timeline", recording, ADVICE))


def test_latency_unknown_throughout_is_an_empty_panel():
    recording = staircase(starts=1)
    recording.iterations["gpu_ns"] = recording.iterations["host_ns"] = math.nan
    assert "latency to" in words(plot.draw("timeline", recording, replace(ADVICE, steady=None, warmup=Warmup())))


def test_latency_by_state_counts_every_warm_inference_once():
    figure = plot.draw("latency_by_state", RECORDING, ADVICE)
    warm = len(RECORDING.iterations) - 2 * 3
    for axes in figure.axes:
        labels = [label.get_text() for label in axes.get_xticklabels()]
        assert sum(int(label.split("n = ")[1].split("\n")[0].replace(",", "")) for label in labels) == warm
    assert f"{warm:,} inferences; the 6 cold ones left out" in words(figure)
    states = [label.get_text().split("\n")[0] for axes in figure.axes for label in axes.get_xticklabels()]
    assert states == ["P2", "P3", "P5", "P8", "345", "1155", "1605", "1920"]


def test_a_clock_that_wanders_is_shown_in_a_few_bands():
    recording = staircase(starts=1)
    recording.iterations["sm_clock_mhz"] = np.random.default_rng(1).uniform(1640, 1830, len(recording.iterations))
    labels = plot.draw("latency_by_state", recording, ADVICE).axes[1].get_xticklabels()
    assert 4 <= len(labels) <= 8
    assert labels[0].get_text().startswith("1600\nto 1650")


def test_latency_by_state_falls_back_to_nvmls_clock_and_says_so():
    recording = staircase(starts=1)
    recording.iterations["sm_clock_mhz"] = math.nan
    assert "SM clock (MHz, NVML)" in words(plot.draw("latency_by_state", recording, ADVICE))


def test_without_a_state_there_is_no_latency_by_state():
    recording = many(100)
    with pytest.raises(InputError, match="no inference has a GPU state beside it"):
        plot.draw("latency_by_state", recording, ADVICE)


def test_a_cold_start_has_a_bar_for_each_step_of_each_start():
    axes = plot.draw("cold_start", RECORDING, ADVICE).axes[0]
    bars = [path.get_extents() for collection in axes.collections for path in collection.get_paths()]
    assert len(bars) == 10 * 3
    last = max(bars, key=lambda bar: bar.x1)
    assert last.x1 == pytest.approx((900 - 20) * 1.1 + 40)  # without gpuwarm's own imports
    shown = words(axes.figure)
    assert "without gpuwarm's own imports (20 ms)" in shown
    assert "initialise driver" in shown
    assert {"240 ms", "240 ms to 264 ms", "26 %"} <= set(shown.split("\n"))


def test_starts_without_our_nvml_clients_are_told_apart():
    starts = (*RECORDING.meta.starts[:2], replace(RECORDING.meta.starts[2], arm="unsampled", sampled=False))
    recording = replace(RECORDING, meta=replace(RECORDING.meta, starts=starts))
    phases = tuple(replace(phase, unsampled_ms=1234.0) for phase in ADVICE.cold_start.phases)
    apart = replace(ADVICE, cold_start=replace(ADVICE.cold_start, phases=phases))
    for said in ("no NVML client of ours alive", "not sampled", "1.23 s"):
        assert said in words(plot.draw("cold_start", recording, apart))
        assert said not in words(plot.draw("cold_start", RECORDING, ADVICE))


def test_without_marks_there_is_no_cold_start():
    with pytest.raises(InputError, match="the steps of no cold start were recorded"):
        plot.draw("cold_start", RECORDING, replace(ADVICE, cold_start=None))


def test_the_bias_of_no_warmup_of_trtexecs_and_of_the_recommended_one_are_named():
    shown = words(plot.draw("bias", RECORDING, ADVICE))
    assert "no warm-up: mean +21 %, p99 +640 %" in shown
    assert "200 ms, trtexec's default: mean +4.1 %, p99 +20 %" in shown
    assert "recommended, 700 ms: mean +0.1 %, p99 +0.3 %" in shown
    assert "tolerance, ±1 %" in shown


def test_the_bias_of_a_pace_with_few_inferences_names_the_pace_and_no_percentile():
    rows = tuple(replace(row, p99_bias_pct=None, measured_ms=400.0) for row in ADVICE.bias)
    paced = replace(ADVICE, bias=rows, pace=Pace(20.0, 10.0, None, None))
    axes = plot.draw("bias", RECORDING, paced).axes[0]
    assert axes.get_xlabel() == "warm-up before the benchmark begins (ms of one inference each 20 ms)"
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["tolerance, ±1 %", "mean latency"]
    assert "; the data ends after 400 ms of it or more" in words(axes.figure)


def test_the_bias_between_the_named_warmups_is_a_curve():
    axes = plot.draw("bias", RECORDING, ADVICE).axes[0]
    curve = next(line for line in axes.lines if len(line.get_xdata()) > 20 and line.get_linestyle() == "-")
    lengths, biases = np.array(curve.get_data())
    assert lengths[0] == 0
    assert lengths[-1] >= 700
    assert biases[lengths < 100].min() > 10
    assert abs(biases[-1]) < 1


def test_the_tolerance_band_is_the_one_that_was_asked_for():
    figure = plot.draw("bias", RECORDING, replace(ADVICE, tolerance=0.05))
    band = figure.axes[0].patches[0].get_extents().transformed(figure.axes[0].transData.inverted())
    assert (band.y0, band.y1) == pytest.approx((-5, 5))


def test_without_a_steady_state_there_is_no_bias():
    unknown = (Bias(0.0, None, None, None), Bias(200.0, None, None, None))
    with pytest.raises(InputError, match="there is no steady state"):
        plot.draw("bias", RECORDING, replace(ADVICE, steady=None, bias=unknown))
    with pytest.raises(InputError, match="hardly anything is left after a warm-up"):
        plot.draw("bias", RECORDING, replace(ADVICE, bias=unknown))


def test_lines_in_one_panel_differ_by_more_than_colour():
    for axes in plot.draw("timeline", RECORDING, ADVICE).axes:
        looks = [
            (line.get_linestyle(), line.get_marker(), line.get_drawstyle(), line.get_linewidth(), line.get_label()[:7])
            for line in axes.lines
            if not line.get_label().startswith("_")
        ]
        assert len({look[:4] for look in looks if look[4] != "warm-up"}) == len(
            [look for look in looks if look[4] != "warm-up"]
        )


def test_there_is_no_figure_of_another_name():
    with pytest.raises(InputError, match="no figure 'pie' of this recording: choose timeline, latency_by_state"):
        plot.draw("pie", RECORDING, ADVICE)


def test_a_users_matplotlib_settings_change_nothing():
    import matplotlib as mpl

    plain = plot.encoded(plot.draw("bias", RECORDING, ADVICE), "svg")
    with mpl.rc_context({"axes.facecolor": "black", "font.size": 30}):
        assert plot.encoded(plot.draw("bias", RECORDING, ADVICE), "svg") == plain


def test_power_without_a_known_limit_has_no_limit_line():
    advice = replace(ADVICE, gpu=replace(GEFORCE, power_limit_w=None))
    assert "limit" not in words(plot.draw("timeline", RECORDING, advice))


def test_an_event_reason_that_ended_before_the_timeline_begins_has_no_lane():
    recording = staircase(starts=1)
    early = recording.samples["t_ns"] < recording.iterations["t_ns"][0] - 1_200_000_000
    recording.samples["event_reasons"] = np.where(early, 0x40, 0)
    shown = words(plot.draw("timeline", recording, ADVICE))
    assert early.any()
    assert "HW thermal slowdown" not in shown


def test_rows_that_are_means_are_called_so():
    recording = staircase(starts=1)
    recording = replace(recording, meta=replace(recording.meta, inferences_per_row=10))
    shown = words(plot.draw("timeline", recording, ADVICE))
    assert "1,360 means of 10 inferences" in shown
    assert "a mean of 10" in shown


def test_what_the_gpu_came_from_is_shown_where_the_process_start_is_not_known():
    recording = staircase(starts=1)
    meta = replace(recording.meta, starts=())
    sampled = plot.draw("timeline", replace(recording, meta=meta), ADVICE)
    alone = plot.draw("timeline", Recording(recording.samples[:0], recording.iterations, meta), ADVICE)
    assert sampled.axes[0].get_xlim()[0] < -0.25
    assert alone.axes[0].get_xlim()[0] > -0.1
