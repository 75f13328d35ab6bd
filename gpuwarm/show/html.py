"""The report: one HTML file that holds everything, asks nothing of a network and runs no script."""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files

from gpuwarm import __version__
from gpuwarm.analysis.answers import Answer
from gpuwarm.recording import Recording
from gpuwarm.show import pages, plot, provenance
from gpuwarm.show.pages import Page
from gpuwarm.show.plot.look import BLUE, FAINT, INK, MUTED, PAPER, NothingToShowError
from gpuwarm.show.sections import Section, Table
from gpuwarm.show.terminal import UNITS

# A figure's colours that are too dark on a dark page, or too light -> what they are called, and their other value.
_THEME = {
    INK: ("--ink", "#e6e8ea"),
    MUTED: ("--muted", "#a3abb3"),
    FAINT: ("--faint", "#3b4148"),
    PAPER: ("--paper", "#16191d"),
    BLUE: ("--blue", "#3b96d9"),
}
_FIGURES = {  # name -> caption, what a person who cannot see it is told before the numbers
    "timeline": (
        "Latency and GPU state over time",
        "Panels on one time axis: latency, clocks, power, temperature, P-state.",
    ),
    "latency_by_state": (
        "Latency in each state",
        "A distribution of latency for each P-state and each band of the SM clock.",
    ),
    "cold_start": ("Where a cold start's time goes", "A bar for each step of each start, one step below the other:"),
    "bias": ("What a benchmark gets wrong after each warm-up", "Bias against the length of warm-up:"),
    "causes": (
        "What makes a start slow",
        "The time to the first result part by part, then the effect of each cause with its interval. The parts:",
    ),
    "pauses": (
        "What pauses do",
        "Latency against the pause before it, the clock after the last inference, power. With the context alive:",
    ),
}
_TABLES = {
    "cold_start": "Cold start",
    "bias": "Bias",
    "causes": "Time",
    "pauses": "Pauses",
}  # figure -> the section whose table has its numbers
_VOID = ("img", "meta")  # elements without an end
_NO_NETWORK = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


class _Html(str):
    """Text that is HTML already; any other text is escaped when it is put into an element."""


def page(recording: Recording, answer: Answer) -> str:
    """The report: first the answer, then what it rests on, the lines to paste, the figures, and how it was measured."""
    shown = pages.page(answer)
    title, stamp = f"gpuwarm: {shown.subject}", shown.stamp
    body = _element(
        "main",
        _element("h1", title),
        _element("p", stamp, class_="stamp") if stamp else None,
        _element("p", _prose(shown.answer), class_="answer"),
        _element("h2", "What it rests on"),
        _element("div", *map(_section, shown.sections), class_="evidence"),
        *_to_paste(shown.flags),
        _element("h2", "Figures"),
        *_figures(recording, answer, shown),
        _element("h2", "How it was measured"),
        _element("pre", recording.meta.command, tabindex="0") if recording.meta.command else None,
        *(_table(table, caption=caption) for caption, table in provenance.tables(recording)),
        _element("footer", _element("p", f"Written by gpuwarm {__version__}.")),
    )
    head = _element(
        "head",
        _element("meta", charset="utf-8"),
        _element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        _element("meta", http_equiv="Content-Security-Policy", content=_NO_NETWORK),
        _element("title", f"{stamp}: {title}" if stamp else title),
        _Html(f"<style>\n{files('gpuwarm').joinpath('data/report.css').read_text()}</style>"),
    )
    return f'<!doctype html>\n<html lang="en">\n{head}\n<body>\n{body}\n</body>\n</html>\n'


def _element(name: str, /, *children: str | None, **attributes: str) -> _Html:
    """An element of what is not None; text and attribute values are escaped."""
    inside = "".join(child if isinstance(child, _Html) else escape(child) for child in children if child is not None)
    listed = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items() if value
    )
    return _Html(f"<{name}{listed}>\n" if name in _VOID else f"<{name}{listed}>{inside}</{name}>\n")


def _prose(text: str) -> str:
    """Text whose numbers stay on one line with their units."""
    return UNITS.sub("\u00a0", text)


def _section(section: Section) -> _Html:
    lines = [
        _element("p", _prose(line.text), class_="" if line.tone == "plain" else line.tone) for line in section.lines
    ]
    items = _element("ul", *(_element("li", _prose(item)) for item in section.items)) if section.items else None
    table = _table(section.table, caption=None) if section.table else None
    command = _element("pre", section.command) if section.command else None
    return _element("section", _element("h3", section.title), _element("div", *lines, items, table, command))


def _table(table: Table, *, caption: str | None) -> _Html:
    """The first cell of a row is its heading; shares are bars in a last column; an empty column is left out."""
    used = [column for column in range(len(table.heading)) if any(row[column] for row in table.rows)]

    def cells(row: Sequence[str], place: int | None) -> Iterator[_Html]:
        for column in used:
            side = "right" if table.right[column] else ""
            if place is None:
                yield _element("th", row[column], scope="col", class_=side)
            elif column == used[0]:
                yield _element("th", row[column], scope="row", class_=side)
            else:
                yield _element("td", row[column], class_=side)
        if table.shares:
            yield _element("th", "share", scope="col") if place is None else _bar(table.shares[place])

    rows = [
        _element("tr", *cells(row, place), class_="marked" if place == table.marked else "")
        for place, row in enumerate(table.rows)
    ]
    top = _element("thead", _element("tr", *cells(table.heading, None)))
    titled = _element("caption", caption) if caption else None
    return _scrolled(_element("table", titled, top, _element("tbody", *rows)), about=caption or table.heading[0])


def _bar(share: float | None) -> _Html:
    if share is None:
        return _element("td", "")
    length = _element("span", "", style=f"width:{6 * share:.2f}rem")
    return _element("td", length, f" {100 * share:.0f} %", class_="bar")


def _scrolled(content: _Html, *, about: str) -> _Html:
    """What may be wider than a phone, in a box that scrolls by finger and by keyboard."""
    return _element("div", content, class_="wide", tabindex="0", role="region", aria_label=about)


def _to_paste(flags: Mapping[str, str]) -> Iterator[_Html]:
    if flags:
        yield _element("h2", "To paste")
    for tool, line in flags.items():
        yield _element("h3", tool.replace("_", " ") + (" (config.pbtxt)" if "\n" in line else ""))
        yield _element("pre", line, tabindex="0")


def _figures(recording: Recording, answer: Answer, shown: Page) -> Iterator[_Html]:
    """Each figure there is data for, or the sentence that says what is missing."""
    tables = {section.title: section.table for section in shown.sections if section.table}
    said = {
        title: "; ".join(" ".join(filter(None, row)) for row in table.without_heading())
        for title, table in tables.items()
    }
    for name in plot.names(answer):
        caption, what = _FIGURES[name]
        try:
            figure = plot.draw(name, recording, answer)
        except NothingToShowError as nothing:
            yield _element("p", f"{caption}: {nothing}.", class_="faint")
            continue
        told = said.get(_TABLES.get(name, ""), shown.answer)
        picture = base64.b64encode(_themed(plot.encoded(figure, "svg"))).decode()
        image = _element("img", src=f"data:image/svg+xml;base64,{picture}", alt=f"{what} {told}")
        heading = _element("h3", caption if answer.simulated is None else f"{caption} (simulated)")
        yield _element("figure", _element("figcaption", heading), _scrolled(image, about=caption))


def _themed(svg: bytes) -> bytes:
    """The picture in the colours of a dark page where its reader prefers one; coordinates to a hundredth of a point."""
    text = re.sub(r"(\d\d\.\d\d)\d+", r"\1", svg.decode())
    light = ";".join(f"{name}:{colour}" for colour, (name, _) in _THEME.items())
    dark = ";".join(f"{name}:{colour}" for name, colour in _THEME.values())
    for colour, (name, _) in _THEME.items():
        text = text.replace(colour, f"var({name})")
    style = f"<style>:root{{{light}}}@media (prefers-color-scheme:dark){{:root{{{dark}}}}}</style>"
    return text.replace("<defs>", f"{style}<defs>", 1).encode()
