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
        "Clock P8 300 MHz -> P7 400 MHz at 100 ms -> P8 500 MHz at 200 ms -> 4 more (600 to 900 MHz) "
        "-> P7 1000 MHz at 700 ms -> P8 1100 MHz at 800 ms (NVML, late by up to 250 ms; 0 is the first inference)"
    )


def test_the_largest_changes_are_shown_in_order_of_time(capped: Advice, capsys) -> None:
    changes = tuple(Transition(0, 100.0 * n, "sm_clock", 300.0, 400.0, float(n % 7)) for n in range(20))
    page = printed(replace(capped, transitions=changes), capsys)
    shown = page[page.index("Changes") : page.index("Warm-up")]
    assert re.findall(r"(\S+ m?s): ", shown) == ["500 ms", "600 ms", "1.2 s", "1.3 s"]
    assert "and 16 more (--json)" in shown


def changes(capped: Advice, capsys: pytest.CaptureFixture[str], *seen: Transition) -> str:
    page = printed(replace(capped, transitions=seen), capsys)
    return " ".join(page[page.index("Changes") + 7 : page.index("Warm-up")].split())


def test_what_changes_at_one_moment_is_one_line(capped: Advice, capsys) -> None:
    assert changes(
        capped,
        capsys,
        Transition(0, 150.0, "sm_clock", 765.0, 1350.0, -64.0, -43.0, "yes"),
        Transition(0, 150.0, "pstate", "P5", "P3", -64.0),
        Transition(0, 165.0, "mem_clock", 810.0, 5001.0, -65.0, -43.0, "partly"),
        Transition(0, 305.0, "sm_clock", 1350.0, 1980.0, -30.0, -31.0, "yes"),
    ) == (
        "150 ms: SM clock 765 -> 1350 MHz, P-state P5 -> P3, memory clock 810 -> 5001 MHz: latency -65 %, of which the "
        "clock explains a part (-43 %) 305 ms: SM clock 1350 -> 1980 MHz: latency -30 %, as the clock predicts (-31 %)"
    )


def test_a_gpu_read_between_two_inferences_is_no_change_worth_a_line(capped: Advice, capsys) -> None:
    idle = Transition(0, 70.0, "event_reasons", "gpu_idle", "none", -85.0)
    capping = Transition(0, 120.0, "event_reasons", "gpu_idle", "sw_power_cap", 8.0)
    assert changes(capped, capsys, idle, capping) == (
        "120 ms: event reasons gpu_idle -> sw_power_cap: latency +8.0 % and 1 more (--json)"
    )
    assert changes(capped, capsys, idle).startswith("70 ms: event reasons gpu_idle -> none")


def test_what_is_undone_within_a_moment_is_no_change(capped: Advice, capsys) -> None:
    away = Transition(0, 70.0, "pstate", "P8", "P2")
    back = Transition(0, 90.0, "pstate", "P2", "P8")
    assert changes(capped, capsys, away, back) == "none in the start shown that lasts; 2 in all (--json)"
    slower = Transition(0, 95.0, "sm_clock", 1980.0, 1800.0)
    assert changes(capped, capsys, away, back, slower).startswith("70 ms: SM clock 1980 -> 1800 MHz")


def test_starts_that_did_not_settle_are_counted_against_the_next_one(capped: Advice, capsys) -> None:
    page = printed(replace(capped, warmup=replace(capped.warmup, starts=5, coverage=4 / 6)), capsys)
    assert "4 of 5 starts were warm by then; the next one will be with a probability of 67 % (4 of 6)" in " ".join(
        page.split()
    )


def test_the_clock_begins_at_rest_and_says_in_which_step_it_rose(capped: Advice, capsys) -> None:
    rest = ClockState("nvml", -990.0, -70.0, 345.0, None, 0, during="cuda_import")
    busy = ClockState("nvml", -70.0, 900.0, 1980.0, None, 0, during="context")
    page = printed(replace(capped, states=(rest, busy)), capsys)
    assert "Clock       345 MHz at rest -> 1980 MHz at -70 ms (CUDA context), P0 throughout" in page


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
