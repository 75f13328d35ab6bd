"""An answer laid out for a terminal of 80 columns."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as Grid
from rich.text import Text

from gpuwarm.analysis.answers import Answer
from gpuwarm.show.pages import Page, page
from gpuwarm.show.sections import Section, Table, Tone
from gpuwarm.show.terminal import prose, to_copy

LABEL_COLUMNS = 11
CONTENT_COLUMNS = 68  # what 80 leave beside the labels
BAR_COLUMNS = 20  # what 80 leave beside a step, its median and its range
_STYLES: dict[Tone, str] = {"plain": "", "faint": "dim", "good": "green", "warning": "yellow", "bad": "red"}


def answer(given: Answer) -> Group:
    """An answer of any kind."""
    return laid_out(page(given))


def laid_out(shown: Page) -> Group:
    """First the answer, then what it rests on, then what to paste."""
    head = [] if shown.stamp is None else [prose(shown.stamp, "bold magenta")]
    body = Grid.grid(padding=(0, 1))
    body.add_column(width=LABEL_COLUMNS, style="cyan", no_wrap=True)
    body.add_column(ratio=1)
    for section in shown.sections:
        body.add_row(section.title, Group(*_content(section)))
    return Group(*head, prose(shown.answer, "bold"), prose(shown.subject, "dim"), "", body, *_to_paste(shown))


def _content(section: Section) -> Iterator[RenderableType]:
    for line in section.lines:
        yield prose(line.text, _STYLES[line.tone])
    if section.command is not None and _is_short(section.command):
        yield prose(section.command)
    yield from _listed(section.items)
    if section.table is not None:
        yield _table(section.table)


def _is_short(command: str) -> bool:
    """Whether it fits beside the labels; a longer one stands below, where no line is broken."""
    return max(map(len, command.split("\n"))) <= CONTENT_COLUMNS


def _table(table: Table) -> Grid:
    """Without its headings; shares as bars in a last column."""
    grid = Grid.grid(padding=(0, 1 if table.shares else 2))
    for right in table.right:
        grid.add_column(justify="right" if right else "left", no_wrap=right)  # numbers stay whole, words may wrap
    for place, row in enumerate(table.without_heading()):
        bars = [_Bar(share) for share in table.shares[place : place + 1]]
        grid.add_row(*row, *bars, style="bold" if place == table.marked else "")
    return grid


@dataclass(frozen=True)
class _Bar:
    """A share of 1 as a bar; plain where the terminal knows no block characters, nothing where it is not known."""

    share: float | None

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        del console
        mark = "#" if options.ascii_only else "\u2588"
        yield Text(mark * round((self.share or 0.0) * BAR_COLUMNS), "blue")

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        del console, options
        return Measurement(BAR_COLUMNS, BAR_COLUMNS)


def _listed(sentences: Iterable[str]) -> Iterator[RenderableType]:
    for sentence in sentences:
        row = Grid.grid(padding=(0, 1))
        row.add_row("-", prose(sentence))
        yield row


def _to_paste(shown: Page) -> Iterator[RenderableType]:
    """Whole lines, flush left, never broken: they are copied."""
    if shown.flags:
        yield Text("\nTo paste", "cyan")
    width = max(map(len, shown.flags), default=0)
    for tool, line in shown.flags.items():
        yield to_copy(f"# config.pbtxt of Triton\n{line}" if "\n" in line else f"{tool:<{width}}  {line}")
    for section in shown.sections:
        if section.command is not None and not _is_short(section.command):
            yield to_copy(f"\n# {section.lines[0].text}\n{section.command}")
