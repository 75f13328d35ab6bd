"""nvidia-smi's --query-gpu logs, and what scripts around nvidia-smi make of them -> SmiLog.

A log may have a million rows, so columns are read as columns, a block of lines at a time; Python itself only sees the
header, some rows, and what is odd.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from gpuwarm.errors import InputError
from gpuwarm.read import cells, smi_columns, smi_time
from gpuwarm.read.cells import Block, Mask
from gpuwarm.read.smi_columns import Column
from gpuwarm.read.smi_fields import GPUS_MAX
from gpuwarm.read.smi_layout import HEAD_LINES, LONGEST_HEADER, Layout, layout, split
from gpuwarm.read.smi_log import GROUP_MAX, SmiLog
from gpuwarm.read.smi_plan import Plan, plan
from gpuwarm.read.text import margin_shape, printable
from gpuwarm.recording import SAMPLE

BLOCK_BYTES = 1 << 19  # so big that numpy's cost a call vanishes, so small that a block stays in the cache
BLOCK_LINES = 1 << 14  # where they are short; a line takes 200 bytes of memory while its block is read
LISTED_MAX = 8  # rows without time and name that are taken for GPUs, so many as machines have; more are a log of one
ODD_LOOKED_AT = 1000  # lines that are no rows; whether the columns change shows among the first
GOOD_COMMAND = (
    "nvidia-smi --query-gpu=timestamp,index,pstate,clocks.sm,clocks.mem,power.draw,utilization.gpu,"
    "clocks_event_reasons.active --format=csv -lms 100"
)
_IDENTITIES = ("index", "pci.bus_id", "uuid", "serial", "name")  # what tells GPUs apart, the surest first


def recognise(data: bytes) -> bool:
    """Whether there is a table of nvidia-smi's fields in it, with or without a header."""
    return layout(data, None) is not None


def read(data: bytes, source: str, columns: str | None = None) -> SmiLog:
    """Read a whole log.

    Args:
        data: the log as UTF-8.
        source: its name, for messages.
        columns: the fields of --query-gpu, comma-separated, where the log has no header or a wrong one.

    Raises:
        InputError: no column can be told, or no row has them.
    """
    found = layout(data, None if columns is None else smi_columns.given(columns))
    if found is None:
        named = "no row has as many values as --columns names" if columns else "nothing tells which column is which"
        raise InputError(f"{source}: {named}; give --columns as in --query-gpu, or log with a header: `{GOOD_COMMAND}`")
    if found.margin.strip():
        bare = re.sub(rb"(?m)^" + margin_shape(found.margin).encode(), b"", data)
        if bare != data:  # as it is where bytes in the margin are no text
            return read(bare, source, columns)
    if found.delimiter == ";":  # where a comma is the decimal sign
        data = data.replace(b",", b".")
    return _read(data, found, source)


def read_rows(data: bytes, source: str, columns: tuple[Column, ...]) -> SmiLog:
    """Read rows of known columns, commas between them, without a header.

    Raises:
        InputError: no row has them.
    """
    return _read(data, Layout(columns, ",", 0), source)


def _read(data: bytes, found: Layout, source: str) -> SmiLog:
    lines = data.count(b"\n", found.begin) + 1
    reader = _Reader(data, found, source, lines)
    for begin, end in blocks(data, found.begin, min(BLOCK_BYTES, BLOCK_LINES * len(data) // lines)):
        reader.add(begin, end)
    return reader.log()


def blocks(data: bytes, begin: int, size: int) -> Iterator[tuple[int, int]]:
    """Stretches of whole lines, a little longer than `size`; the last may lack its newline."""
    while begin < len(data):
        newline = data.find(b"\n", begin + size)
        end = len(data) if newline < 0 else newline + 1
        yield begin, end
        begin = end


@dataclass
class _Gpu:
    """A GPU of the log: its number, its name there, and its first and last row."""

    number: int
    label: str
    first: str
    last: str


class _Reader:
    """Fills the samples of a log, block by block."""

    def __init__(self, data: bytes, found: Layout, source: str, lines: int) -> None:
        """Make room for as many rows as there are lines."""
        self._data, self._layout, self._source = data, found, source
        self._samples = np.empty(lines, SAMPLE)
        self._gpu = np.empty(lines, np.int64)
        self._rows = 0
        self._time: smi_time.Format | None = None
        self._strange_time = ""
        self._plan: Plan = {}
        self._gpus: dict[int, _Gpu] = {}
        self._tail: list[str] = []
        self._headers = 0
        self._damaged = 0
        self._first_damaged: int | None = None  # where in the data
        self._looked_at = 0
        self._notes = list(found.notes)

    def add(self, begin: int, end: int) -> None:
        """Read the rows between two places of the data."""
        text = self._data[begin:end]
        ends_whole = text.endswith(b"\n")
        block = cells.block(
            text if ends_whole else text + b"\n",
            delimiter=self._layout.delimiter.encode(),
            columns=len(self._layout.columns),
        )
        t_ns, good = self._times(block)
        headers = self._headers_among(block)
        good &= ~headers
        if not ends_whole and good.size > 1 and good[-1]:
            column = block.column(len(self._layout.columns) - 1)
            good[-1] = _alike(column.text(-2), column.text(-1))
        self._headers += int(headers.sum())
        odd = [_of_each_length(block.places(headers)), block.odd, block.places(~good & ~headers)]
        self._damaged += self._damaged_among(block, np.concatenate(odd), begin)
        if good.any():
            self._append(block if good.all() else block.chosen(good), t_ns[good])

    def _times(self, block: Block) -> tuple[NDArray[np.int64], Mask]:
        count = block.begin.shape[0]
        place = self._layout.place("timestamp")
        if place is None:
            return np.arange(self._rows, self._rows + count), np.ones(count, np.bool_)
        column = block.column(place)
        if self._time is None:
            self._time = smi_time.format_of(
                map(column.text, range(min(HEAD_LINES, count))), self._data, self._layout.columns[place].unit
            )
        if self._time is None:
            self._strange_time = self._strange_time or (column.text(0) if count else "")
            return np.zeros(count, np.int64), np.zeros(count, np.bool_)
        return smi_time.nanoseconds(column, self._time)

    def _headers_among(self, block: Block) -> Mask:
        """Which rows begin as the header does."""
        if not self._layout.header:
            return np.zeros(block.begin.shape[0], np.bool_)
        names = split(self._layout.header, self._layout.delimiter)
        place = next(at for at, name in enumerate(names) if name.strip())  # data frames are saved with a nameless index
        return cells.begins_with(block.column(place), names[place].encode())

    def _damaged_among(self, block: Block, places: NDArray[np.int64], begin: int) -> int:
        """How many lines that are no rows are something, and neither blank nor the header."""
        looked_at: list[tuple[int, int]] = places[: max(0, ODD_LOOKED_AT - self._looked_at)].tolist()
        self._looked_at += len(looked_at)
        damaged = int(places.shape[0]) - len(looked_at)
        for first, last in looked_at:
            line = block.text(first, last)
            if not line or line == self._layout.header:
                continue
            if self._layout.header and smi_columns.is_header(split(line[:LONGEST_HEADER], self._layout.delimiter)):
                raise InputError(
                    f"{self._source} changes its columns in line {self._line(begin + first):,}: "
                    "give what is before that line and what follows it as two files"
                )
            damaged += 1
            if self._first_damaged is None:
                self._first_damaged = begin + first
        return damaged

    def _line(self, place: int) -> int:
        return self._data.count(b"\n", 0, place) + 1

    def _append(self, block: Block, t_ns: NDArray[np.int64]) -> None:
        if not self._rows:
            self._plan, doubts = plan(self._layout, block)
            self._notes += doubts
        begin, self._rows = self._rows, self._rows + t_ns.shape[0]
        rows = self._samples[begin : self._rows]
        rows["t_ns"] = t_ns
        for name in SAMPLE.names or ():
            if name != "t_ns":
                rows[name] = self._plan[name](block) if name in self._plan else np.nan
        self._gpu[begin : self._rows] = self._which(block)
        count = t_ns.shape[0]
        self._tail = [*self._tail, *map(block.row, range(max(0, count - GROUP_MAX), count))][-GROUP_MAX:]

    def _which(self, block: Block) -> NDArray[np.int64]:
        """The number of each row's GPU."""
        place = next((at for name in _IDENTITIES if (at := self._layout.place(name)) is not None), None)
        key = np.zeros(block.begin.shape[0], np.int64) if place is None else cells.keys(block.column(place))
        if (key == key[0]).all():
            found, first, last, which = (
                key[:1],
                np.zeros(1, np.int64),
                np.full(1, key.size - 1),
                np.zeros(key.size, np.int64),
            )
        else:
            found, first, which = np.unique(key, return_index=True, return_inverse=True)
            last = key.size - 1 - np.unique(key[::-1], return_index=True)[1]
        numbers = np.empty(found.size, np.int64)
        for at in np.argsort(first).tolist():
            label = "" if place is None else block.column(place).text(int(first[at]))
            new = _Gpu(len(self._gpus), label, block.row(int(first[at])), "")
            gpu = self._gpus.setdefault(int(found[at]), new)
            gpu.last = block.row(int(last[at]))
            numbers[at] = gpu.number
            if len(self._gpus) > GPUS_MAX:
                raise InputError(f"{self._source} names more than {GPUS_MAX} GPUs: give its right --columns")
        return numbers[which]

    def log(self) -> SmiLog:
        """What was read.

        Raises:
            InputError: there is no row.
        """
        if not self._rows and self._strange_time:
            raise InputError(
                f'{self._source} has times that cannot be read, such as "{printable(self._strange_time)}"; nvidia-smi '
                "writes them as 2026/11/30 20:52:25.938, and a spreadsheet may change that: give the log as it was"
            )
        if not self._rows:
            raise InputError(
                f"{self._source} has nvidia-smi's columns and no whole row below them: log with `{GOOD_COMMAND}`"
            )
        notes = self._notes
        if self._time is not None and self._time.doubt:
            notes.append(self._time.doubt)
        if self._headers:
            notes.append(f"the header comes {self._headers + 1:,} times: read once")
        if self._first_damaged is not None:
            where = self._line(self._first_damaged)
            notes.append(f"{self._damaged:,} of its rows cut or damaged, the first in line {where:,}: left out")
        gpus = sorted(self._gpus.values(), key=lambda gpu: gpu.number)
        log = SmiLog(
            source=self._source,
            samples=self._samples[: self._rows],
            gpu=self._gpu[: self._rows],
            gpus=tuple(gpu.label for gpu in gpus),
            first=tuple(self._values(gpu.first) for gpu in gpus),
            last=tuple(self._values(gpu.last) for gpu in gpus),
            tail=tuple(map(self._values, self._tail)),
            clock="none" if self._time is None else self._time.clock,
            notes=tuple(notes),
        )
        if any(self._layout.place(name) is not None for name in _IDENTITIES if name != "name"):
            return log
        return self._listed(log) if log.clock == "none" else replace(log, gpus=log.gpus if len(gpus) > 1 else ("",))

    def _listed(self, log: SmiLog) -> SmiLog:
        """A log without time that names no GPU: few rows are what one query says of several GPUs."""
        if self._headers or not 1 < self._rows <= LISTED_MAX:
            return log
        note = f"the rows tell neither GPU nor time: taken for {self._rows} GPUs in their order; query index to be sure"
        rows = np.arange(self._rows)
        return replace(
            log, gpu=rows, gpus=tuple(map(str, rows)), first=log.tail, last=log.tail, notes=(*log.notes, note)
        )

    def _values(self, row: str) -> dict[str, str]:
        texts = split(row, self._layout.delimiter)
        return {
            column.field: text.strip(' \t"')
            for column, text in zip(self._layout.columns, texts, strict=False)
            if column.field
        }


def _of_each_length(places: NDArray[np.int64]) -> NDArray[np.int64]:
    """One line of each length: among repeated headers, any that is another one. Shape (n, 2) -> (m, 2)."""
    return places[np.unique(places[:, 1] - places[:, 0], return_index=True)[1]]


def _alike(before: str, last: str) -> bool:
    """Whether the last value of a log looks whole beside the one above it: 98 where 97 % was is cut."""
    unit = re.fullmatch(r"-?[\d.]+( ?[A-Za-z%]+)", before)
    if before.startswith("0x"):
        return len(last) == len(before)
    return unit is None or last.endswith((unit[1], "]", "A"))
