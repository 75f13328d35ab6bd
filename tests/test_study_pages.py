"""What `gpuwarm report` and `gpuwarm plot` make of recordings of `explain` and `idle`."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from test_contract import DATA, has_the_keys
from test_plot import words
from typer.testing import CliRunner
from virtual_study import COMPARED, VirtualStudy
from virtual_sweep import sweep

from gpuwarm.analysis import answers, explained, idled
from gpuwarm.analysis.answers import Answer
from gpuwarm.analysis.pauses import KEPT
from gpuwarm.cli import analyze, app, report  # noqa: F401 -- they register themselves
from gpuwarm.cli import plot as _command  # noqa: F401
from gpuwarm.errors import InputError
from gpuwarm.metadata import Phase
from gpuwarm.recording import Recording
from gpuwarm.show import html, plot, text
from gpuwarm.show.terminal import say


@pytest.fixture(scope="module")
def causes() -> Recording:
    return VirtualStudy("cold-driver", "medium", 0).run(COMPARED, 3)


@pytest.fixture(scope="module")
def pauses(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    made = sweep(tmp_path_factory.mktemp("idle"), "geforce", (0.01, 3.0, 30.0), repeats=3)
    made.start(KEPT, [Phase("after pause", pause_s=30.0, keep_alive_ms=6000.0)] * 3)
    return made.recording()


def shown(answer: Answer, capsys: pytest.CaptureFixture[str]) -> str:
    say(text.answer(answer))
    return capsys.readouterr().out


def test_the_waterfall_names_each_part_and_each_cause_with_its_interval(causes: Recording):
    answer = answers.of(causes)
    figure = plot.draw("causes", causes, answer)
    said = words(figure)
    for name in ("initialise driver", "CUDA context", "loading the driver", "unexplained", "total", "SIMULATED"):
        assert name in said
    assert "not tested" in said
    units = {axes.get_xlabel(): axes.get_xlim()[1] for axes in figure.axes[1:]}
    assert "effect on the first result (ms)" in units
    (shortest,) = (label for label in units if label.startswith("effect on the first inference"))
    assert shortest.endswith("(us)" if units[shortest] < 10 else "(ms)")  # 0.001 does not fit below an axis
    waterfall = figure.axes[0]
    ends = [bar.get_x() + bar.get_width() for bar in waterfall.patches]
    assert ends[-2] == pytest.approx(ends[-1])  # the parts end where the total does


def test_the_pauses_figure_shows_latency_clock_and_power(pauses: Recording):
    said = words(plot.draw("pauses", pauses, answers.of(pauses)))
    for name in ("first, context alive", "first, a kernel each 6 s", "SM clock", "W, context alive", "SIMULATED"):
        assert name in said


def test_a_study_has_its_own_figure_alone(causes: Recording, pauses: Recording):
    with pytest.raises(InputError, match="no figure 'bias' of this recording: choose causes"):
        plot.draw("bias", causes, answers.of(causes))
    assert plot.names(answers.of(pauses)) == ("pauses",)


def test_the_same_study_gives_the_same_svg(causes: Recording, pauses: Recording):
    for recording in (causes, pauses):
        answer = answers.of(recording)
        (name,) = plot.names(answer)
        first, second = (plot.encoded(plot.draw(name, recording, answer), "svg") for _ in range(2))
        assert first == second


def test_a_first_inference_as_fast_as_a_steady_one_has_nothing_to_be_split(causes: Recording, capsys):
    answer = answers.of(causes)
    first = replace(answer.first_inference, first_ms=3.4, steady_ms=3.5)
    page = shown(replace(answer, first_inference=first), capsys)
    assert "First       3.4 ms, no more than a steady one\nCauses" in page
    assert "more than a steady one; of that\n" in shown(
        replace(answer, first_inference=replace(first, steady_ms=3.3)), capsys
    )


def test_a_report_has_answer_causes_and_figure(causes: Recording, pauses: Recording):
    page = html.page(causes, answers.of(causes))
    for expected in (
        "loading the driver",
        "What makes a start slow (simulated)",
        "not tested",
        "95 %",
        "data:image/svg",
    ):
        assert expected in page
    page = html.page(pauses, answers.of(pauses)).replace("\u00a0", " ")
    for expected in ("stays warm through pauses of up to 3 s", "What pauses do (simulated)", "300 MHz", "cold"):
        assert expected in page


def test_the_terminal_shows_each_cause_its_effect_and_remedy(causes: Recording, capsys: pytest.CaptureFixture[str]):
    said = shown(answers.of(causes), capsys)
    for expected in ("SIMULATED", "driver          +3.2", "which may be chance", "engine-file     not tested", "To do"):
        assert expected in said
    assert "gpuwarm check --about persistence-off" in said
    assert max(map(len, said.splitlines())) <= 80


def test_the_terminal_shows_each_pause(pauses: Recording, capsys: pytest.CaptureFixture[str]):
    said = shown(answers.of(pauses), capsys)
    assert "300 MHz  P8  cold" in said
    assert "…" not in said
    assert max(map(len, said.splitlines())) <= 80


def test_json_has_the_keys_of_its_schema(causes: Recording, pauses: Recording):
    for name, content in (
        ("explain-1", explained.to_json(explained.explain(causes))),
        ("idle-1", idled.to_json(idled.idleness(pauses))),
    ):
        schema = json.loads((DATA / f"{name}.schema.json").read_text())
        assert has_the_keys(json.loads(json.dumps(content, allow_nan=False)), schema, schema["$defs"])


def test_commands_take_a_study_and_analyze_says_which_command_does(causes: Recording, tmp_path: Path):
    recording = tmp_path / "a.npz"
    causes.save(recording)
    run = CliRunner().invoke
    assert run(app, ["report", str(recording), "-o", str(tmp_path / "a.html")]).exit_code == 0
    assert run(app, ["plot", str(recording), "-o", str(tmp_path)]).exit_code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "a.html", "a-causes.png"}
    with pytest.raises(InputError, match=f"show it with `gpuwarm explain --from {recording}`"):
        run(app, ["analyze", str(recording)], catch_exceptions=False)
