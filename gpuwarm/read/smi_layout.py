"""Where in a log of nvidia-smi's fields the rows begin, and what their columns are."""

import csv
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from gpuwarm.read import smi_columns
from gpuwarm.read.smi_columns import Column

HEAD_BYTES = 1 << 20  # in which the header or the first rows are
HEAD_LINES = 400  # the header hides behind at most so many lines of prompts; so many rows tell columns by their values
LONGEST_HEADER = 32_000  # bytes; one of all the 240 fields there are has 9,000
_DELIMITERS = (",", ";", "\t")
_MANY_TABLES_HAVE = {"index", "timestamp", "temperature.gpu", "name"}  # what looks like these may be anybody's


@dataclass(frozen=True)
class Layout:
    """How a log is written, and where its rows begin."""

    columns: tuple[Column, ...]
    delimiter: str
    begin: int  # byte of the first line after the header
    header: str = ""
    margin: str = ""  # what stands before every line
    notes: tuple[str, ...] = ()

    def place(self, field: str) -> int | None:
        """The number of a column; None where there is none."""
        return next((at for at, column in enumerate(self.columns) if column.field == field), None)


def layout(data: bytes, given: tuple[Column, ...] | None) -> Layout | None:
    """The layout of a log; None where nothing tells it.

    Args:
        data: the log as UTF-8.
        given: its columns, where the user names them.
    """
    head = data[:HEAD_BYTES].split(b"\n", HEAD_LINES)[:HEAD_LINES]
    begin = 0
    for raw in head:
        text = raw.decode("utf-8", "replace").rstrip() if len(raw) < LONGEST_HEADER else ""
        queried = re.search(r"--query-gpu[= ][\"']?([\w.]+(?:, *[\w.]+)+)", text)
        margin = "" if queried else smi_columns.margin(text)
        line = text[len(margin) :].strip()
        end = begin + len(raw) + 1
        if queried and given is None:
            given = smi_columns.given(queried[1])
        for delimiter in () if queried else _DELIMITERS:
            texts = split(line, delimiter)
            if smi_columns.is_header(texts):
                columns = given if given and len(given) == len(texts) else tuple(map(smi_columns.named, texts))
                return Layout(columns, delimiter, end, line, margin)
            if given is not None and len(texts) == len(given) > 1 and any(text[:1].isdigit() for text in texts):
                return Layout(given, delimiter, begin)
        begin = end
    return None if given else _by_values(head)


def _by_values(head: Sequence[bytes]) -> Layout | None:
    """The layout of a log without header."""
    lines = [raw.decode("utf-8", "replace").strip() for raw in head if len(raw) < LONGEST_HEADER]
    for delimiter in _DELIMITERS:
        rows = [row for line in lines if (row := split(line, delimiter))]
        widths = Counter(len(row) for row in rows)
        if not widths:
            continue
        width = widths.most_common(1)[0][0]
        columns, doubt = smi_columns.by_values([row for row in rows if len(row) == width])
        known = {column.field for column in columns if column.field}
        if len(known) >= min(smi_columns.KNOWN_MIN, width) and known - _MANY_TABLES_HAVE:
            taken = ", ".join(column.field or "(unknown)" for column in columns)
            note = f"no header: by their values the columns are taken for {taken}" + (f"; {doubt}" if doubt else "")
            return Layout(columns, delimiter, 0, notes=(f"{note}; --columns tells them for certain",))
    return None


def split(line: str, delimiter: str) -> list[str]:
    """The cells of a line."""
    try:
        return next(csv.reader([line], delimiter=delimiter, skipinitialspace=True), [])
    except csv.Error:  # a cell beyond csv's limit: no log of nvidia-smi
        return []
