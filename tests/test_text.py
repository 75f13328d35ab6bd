"""The answer on a terminal of 80 columns, piped, and without Unicode."""

import re
from dataclasses import replace

import measured
import pytest

from gpuwarm.analysis import advice
from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.states import ClockState
from gpuwarm.analysis.transitions import Transition
from gpuwarm.metadata import Tensor, Workload
from gpuwarm.show import terminal, text

LONG_INPUT = Tensor("a_rather_long_name_of_an_input_tensor_as_exporters_like_them_0123456789", (8, 1), "float32")


def printed(answer: Advice, capsys: pytest.CaptureFixture[str]) -> str:
    terminal.say(text.answer(answer))
    return capsys.readouterr().out


@pytest.fixture
def capped() -> Advice:
    return advice.of(measured.capped())


def test_a_cold_start_of_three_digit_times_fits_80_columns(capsys) -> None:
    found = measured.flat()
    slower = measured.marks(found.iterations[:1], {name: ms * 1.2345 for name, ms in measured.STEPS_MS.items()})
    starts = (replace(found.meta.starts[0], marks=slower), *found.meta.starts[1:])
    page = printed(advice.of(replace(found, meta=replace(found.meta, starts=starts))), capsys)
    assert "deserialise engine   18 ms 18 ms to 22.2 ms" in page
    assert "initialise driver   200 ms 200 ms to 247 ms" in page
    assert "\u2026" not in page


@pytest.mark.parametrize("build", [measured.flat, measured.ramp, measured.capped])
def test_piped_lines_fit_80_columns_without_colour_or_trailing_blanks(build, capsys) -> None:
    lines = printed(advice.of(build()), capsys).splitlines()
    assert max(map(len, lines)) <= 80
    assert all(line == line.rstrip() and "\x1b" not in line for line in lines)


def test_a_number_stays_on_the_line_of_its_unit(capped: Advice, capsys) -> None:
    lines = printed(capped, capsys).splitlines()
    assert not [line for line in lines if re.match(r"^ *(ms|us|s|%|MHz|W|C|iterations?)\b", line)]
    assert "\ue000" not in "\n".join(lines)


def test_the_answer_comes_first_and_a_simulated_one_says_so_before_it(capped: Advice, capsys) -> None:
    assert printed(capped, capsys).startswith("There is no warm-up here, this engine gets slower")
    simulated = printed(replace(capped, simulated="h200"), capsys)
    assert simulated.splitlines()[0] == "SIMULATED GPU, profile h200: no hardware was measured"


def test_every_part_of_the_answer_is_there(capped: Advice, capsys) -> None:
    page = printed(capped, capsys)
    for part in (
        "Latency     first 2.0",
        "Clock       1980 MHz -> 1800 MHz at 220 ms, P0 throughout",
        "1980 MHz -> 1800 MHz at 101 ms (measured on the GPU)",
        "in the slowest of 3 starts",
        "probability of 75 % (3 of 4)",
        "recommended",
        "446 ms from process start to the first result",
        "gpuwarm's own imports, 20 ms",
        "initialise driver",
        "Throttling  the clock is held down by the power limit",
        "Bound by    the GPU: ",
        "Sampling    22 us a reading, one each 20 ms, 0.4 % of a core, 99.9 % on time;",
        "Verdict     trusted",
        "trtexec              --warmUp=",
        "model_warmup [",
    ):
        assert part in page, part


def test_lines_to_paste_are_never_broken(capsys) -> None:
    found = measured.capped()
    workload = Workload(inputs=(LONG_INPUT,), batch=8)
    page = printed(advice.of(replace(found, meta=replace(found.meta, workload=workload))), capsys)
    assert f'key: "{LONG_INPUT.name}"' in page


def test_a_name_with_brackets_is_no_markup(capped: Advice, capsys) -> None:
    assert "[bold]x[/bold]" in printed(replace(capped, workload=Workload(name="[bold]x[/bold]")), capsys)


def test_reasons_are_listed_under_the_verdict(capped: Advice, capsys) -> None:
    page = printed(replace(capped, verdict="degraded", reasons=("this", "that")), capsys)
    assert "Verdict     degraded\n            - this\n            - that\n" in page


def test_pstates_are_labels_where_they_change_and_a_long_way_is_cut(capped: Advice, capsys) -> None:
    def state(index: int) -> ClockState:
        return ClockState("nvml", 100.0 * index, 100.0 * (index + 1), 300.0 + 100 * index, None, 8 - index % 2)

    page = printed(replace(capped, states=tuple(state(n) for n in range(9))), capsys)
    chain = " ".join(page[page.index("Clock") : page.index("Changes")].split())
    assert chain == (
        "Clock P8 300 MHz -> P7 400 MHz at 100 ms -> P8 500 MHz at 200 ms -> 4 more -> P7 1000 MHz at 700 ms "
        "-> P8 1100 MHz at 800 ms (NVML, late by up to 250 ms; 0 is the first inference)"
    )


def test_the_largest_changes_are_shown_in_order_of_time(capped: Advice, capsys) -> None:
    changes = tuple(Transition(0, 10.0 * n, "sm_clock", 300.0, 400.0, float(n % 7)) for n in range(20))
    page = printed(replace(capped, transitions=changes), capsys)
    shown = page[page.index("Changes") : page.index("Warm-up")]
    assert re.findall(r"(\S+) ms: ", shown) == ["50", "60", "120", "130"]
    assert "and 16 more (--json)" in shown


def test_what_is_missing_leaves_no_hole(capsys) -> None:
    page = printed(advice.of(measured.recording()), capsys)
    assert page.startswith("Too short to say how long to warm up: measure longer (--duration).")
    assert "None" not in page
    assert "nan" not in page


def test_no_color_is_obeyed_on_a_terminal(capped: Advice, capsys, monkeypatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    assert "\x1b[36m" in printed(capped, capsys)
    monkeypatch.setenv("NO_COLOR", "1")
    assert not re.search(r"\x1b\[[0-9;]*3[0-9]m", printed(capped, capsys))


def test_a_findings_command_is_shown_whole_below_the_answer_where_it_is_long(capped: Advice, capsys) -> None:
    def page(command: str) -> str:
        finding = Finding("persistence-off", "warning", "Persistence: off", advice="turn it on:", command=command)
        return printed(replace(capped, findings=(*capped.findings, finding)), capsys)

    start = "Machine     Persistence: off\n            turn it on:\n"
    assert f"{start}            sudo nvidia-smi -pm 1\n" in page("sudo nvidia-smi -pm 1")
    long = "sudo " + "x" * 120
    assert page(long).endswith(f"\n# Persistence: off\n{long}\n")
    assert f"{start}Bound by" in page(long)
