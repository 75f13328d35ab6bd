"""The report as a browser and its reader get it."""

import base64
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpuwarm import cli
from gpuwarm.analysis import advice
from gpuwarm.cli import report as command  # noqa: F401 -- registers itself
from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState, HostState, MachineState
from gpuwarm.metadata import Rest
from gpuwarm.recording import Recording
from gpuwarm.show import html
from gpuwarm.show.sections import sections
from tests.examples import staircase, staircase_advice

RECORDING = staircase()
ADVICE = staircase_advice(RECORDING)
PAGE = html.page(RECORDING, ADVICE)
VOID = {"meta", "img", "br"}
EVIL = "<script>alert(1)</script>\"'&</pre>"


class Reader(HTMLParser):
    """Checks that elements nest, and keeps what is in them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.text: list[tuple[str, str]] = []
        self.feed(page)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, {name: value or "" for name, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.text.append((self.open[-1] if self.open else "", data.strip().replace("\u00a0", " ")))

    def all(self, tag: str) -> list[dict[str, str]]:
        return [attributes for name, attributes in self.elements if name == tag]

    def words(self, tag: str) -> list[str]:
        return [text for name, text in self.text if name == tag]


def test_the_answer_comes_first_and_all_sentences_of_the_terminal_follow():
    reader = Reader(PAGE)
    told = [text for tag, text in reader.text if tag not in ("style", "title")]
    assert told[2] == ADVICE.answer
    assert {*ADVICE.reasons, *ADVICE.notes} <= set(reader.words("li"))
    assert {section.title for section in sections(ADVICE)} <= set(reader.words("h3"))
    for section in sections(ADVICE):
        assert {line.text for line in section.lines} | set(section.items) <= {text for _, text in reader.text}
        for row in section.table.rows if section.table else ():
            assert {cell for cell in row if cell} <= {*reader.words("th"), *reader.words("td")}


def test_no_line_breaks_between_a_number_and_its_unit():
    assert ">Warm up 700\u00a0ms (150\u00a0iterations)" in PAGE


def test_the_bias_tables_headings_are_not_repeated_in_its_cells_but_its_picture_is_told_in_full() -> None:
    recording = staircase()
    page = html.page(recording, staircase_advice(recording))
    row = re.search(r"<tr>\s*<th[^>]*>200 ms</th>.*?</tr>", page, re.DOTALL).group()
    assert re.findall(r"<td[^>]*>([^<]*)</td>", row) == ["+4.1 %", "+1.2 %", "+20 %", ""]
    assert ">after a warm-up of</th>" in page
    assert "200 ms mean +4.1 % median +1.2 % p99 +20 %" in page


def test_it_asks_nothing_of_a_network_and_runs_no_script():
    reader = Reader(PAGE)
    sources = [attributes[name] for _, attributes in reader.elements for name in ("src", "href") if name in attributes]
    assert sources
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert reader.all("script") == reader.all("link") == []
    assert "url(" not in PAGE
    assert "default-src 'none'" in reader.all("meta")[2]["content"]


def test_pictures_hold_nothing_from_a_network_either():
    for picture in pictures(PAGE):
        links = re.findall(r'(?:xlink:)?href="([^"]*)"', picture)
        assert all(link.startswith(("#", "data:image/png;base64,")) for link in links)


def pictures(page: str) -> list[str]:
    return [base64.b64decode(found).decode() for found in re.findall(r"svg\+xml;base64,([^\"]+)", page)]


def test_a_reader_of_screens_gets_headings_in_order_and_every_picture_in_words():
    reader = Reader(PAGE)
    levels = [int(tag[1]) for tag, _ in reader.elements if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert len(reader.all("img")) == 4
    alternatives = [image["alt"] for image in reader.all("img")]
    assert ADVICE.answer in alternatives[0]
    assert "initialise driver 240 ms" in alternatives[2]
    assert "200 ms mean +4.1 % median +1.2 % p99 +20 %" in alternatives[3]
    assert "lang" in reader.all("html")[0]
    assert all("scope" in heading for heading in reader.all("th"))
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in reader.all("div") if box.get("class") == "wide")


def test_figures_follow_the_page_into_the_dark():
    assert "prefers-color-scheme: dark" in PAGE
    for picture in pictures(PAGE):
        assert "prefers-color-scheme:dark" in picture
        drawn = picture.split("</style>", 1)[1]
        assert "var(--ink)" in drawn
        for colour in ("#1d2126", "#fefefe", "#6b7178"):
            assert colour not in drawn


def test_a_small_scale_in_a_picture_is_not_rounded_away():
    assert "scale(0.015625)" in pictures(PAGE)[0]


def test_a_simulated_report_says_so_in_its_title_before_the_answer_and_at_each_figure():
    reader = Reader(PAGE)
    stamp = "SIMULATED GPU, profile geforce: no hardware was measured"
    assert reader.words("title")[0].startswith(stamp)
    assert PAGE.index(f">{stamp}<") < PAGE.index(ADVICE.answer)
    assert sum("(simulated)" in heading for heading in reader.words("h3")) == 4
    measured = staircase(starts=1, simulated=None)
    assert "simulated" not in html.page(measured, staircase_advice(measured)).lower()


def test_what_a_user_or_a_machine_supplied_is_text():
    meta = replace(
        RECORDING.meta,
        command=EVIL,
        source=EVIL,
        workload=replace(RECORDING.meta.workload, name=EVIL, options={EVIL: EVIL}),
        machine_before=MachineState(
            notes=(EVIL,), gpus=(GpuState(name=EVIL),), host=HostState(environment={EVIL: EVIL})
        ),
        starts=tuple(replace(start, failure=EVIL, arm=EVIL) for start in RECORDING.meta.starts),
        versions={EVIL: EVIL},
        notes=(EVIL,),
    )
    evil = replace(ADVICE, answer=EVIL, reasons=(EVIL,), notes=(EVIL,), evidence=(EVIL,), flags={"a": EVIL, EVIL: "b"})
    page = html.page(replace(RECORDING, meta=meta), replace(evil, workload=meta.workload, gpu=GpuState(name=EVIL)))
    reader = Reader(page)
    assert reader.all("script") == []
    assert EVIL in reader.words("pre")
    assert page.count("<script") == 0


def test_how_it_was_measured_is_all_there():
    host = HostState(hostname="node7", packages={"tensorrt": "10.13.3"}, memory_total_mib=64_000.0)
    before = replace(RECORDING.meta.machine_before, host=host)
    after = replace(before, gpus=(replace(before.gpus[0], temperature_c=61.0),))
    starts = tuple(
        replace(
            start,
            rest=Rest(reached=True, waited_s=2.5),
            counters_before_us={"sw_power_cap": 10},
            counters_after_us={"sw_power_cap": 40_010},
        )
        for start in RECORDING.meta.starts
    )
    meta = replace(RECORDING.meta, machine_before=before, machine_after=after, starts=starts)
    reader = Reader(html.page(replace(RECORDING, meta=meta), ADVICE))
    assert "gpuwarm run resnet50.plan" in reader.words("pre")
    assert {"Recording and versions", "Workload", "Starts", "The machine before and after"} <= set(
        reader.words("caption")
    )
    cells = {*reader.words("td"), *reader.words("th")}
    assert {"node7", "tensorrt 10.13.3", "64,000 MiB", "61 °C", "GPU: power limit", "200 W"} <= cells
    assert {"name input, shape 8x3x224x224, dtype float16", "resnet50", "2025-11-30T21:00:00Z"} <= cells
    assert {"reached after 2.5 s", "sw_power_cap 40 ms", "first; busy"} <= cells


def test_lines_to_paste_are_kept_as_they_are():
    block = 'model_warmup [\n  {\n    name: "gpuwarm"\n  }\n]'
    reader = Reader(
        html.page(RECORDING, replace(ADVICE, flags={"trtexec": "--warmUp=700", "triton_model_warmup": block}))
    )
    assert "--warmUp=700" in reader.words("pre")
    assert block in reader.words("pre")
    assert "triton model warmup (config.pbtxt)" in reader.words("h3")


def test_a_figure_without_data_is_a_sentence():
    nothing = Recording(RECORDING.samples[:0], RECORDING.iterations[:0], replace(RECORDING.meta, starts=()))
    reader = Reader(html.page(nothing, advice.of(nothing)))
    assert reader.all("img") == []
    said = " ".join(reader.words("p"))
    assert "Where a cold start's time goes: the steps of no cold start were recorded" in said


def test_a_report_stays_small_enough_to_mail():
    assert len(PAGE) < 900_000


def test_the_command_writes_one_file_and_names_it(tmp_path: Path):
    RECORDING.save(tmp_path / "a.npz")
    arguments = ["report", str(tmp_path / "a.npz"), "-o", str(tmp_path / "new" / "r.html"), "--warmup-ms", "350"]
    run = CliRunner().invoke(cli.app, arguments)
    assert run.exit_code == 0, run.output
    assert run.stdout.strip() == str(tmp_path / "new" / "r.html")
    page = (tmp_path / "new" / "r.html").read_text()
    assert "350 ms" in Reader(page).words("th")
    with pytest.raises(InputError, match="choose another place with --output"):
        CliRunner().invoke(cli.app, [*arguments[:3], str(tmp_path / "a.npz" / "r.html")], catch_exceptions=False)
