"""Tables in text as numpy columns: where every row's cells lie and what they say, one byte of all rows at a time."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpuwarm.recording import Floats

Bytes = NDArray[np.uint8]
Places = NDArray[np.int64]
Mask = NDArray[np.bool_]

PAD_BYTES = 64  # behind a block, so that reading on past its last cell stays inside the array
LONGEST_BLANK = 8  # blanks and quotes before a value; a cell with more is not a log's
LONGEST_NUMBER = 24  # characters
_ROOM = np.iinfo(np.int64).max // 10  # below it, one more digit fits
LONGEST_NAME = 48  # characters; a UUID has 40
_NEWLINE, _BLANK, _TAB, _QUOTE, _MINUS, _DOT, _ZERO = b'\n \t"-.0'
_POWERS = 10.0 ** np.arange(19)  # of the digits behind a dot that an int64 can hold


@dataclass(frozen=True)
class Cells:
    """One column: where each row's cell begins (behind blanks and quotes) and ends."""

    data: Bytes
    begin: Places
    end: Places

    def at(self, offset: int) -> Bytes:
        """The byte at that offset of each cell; what lies behind its end for short ones. Shape (n,)."""
        return self.data[self.begin + offset]

    def text(self, row: int) -> str:
        """One cell."""
        return self.data[self.begin[row] : self.end[row]].tobytes().decode("utf-8", "replace").strip(' \t\r"')


@dataclass(frozen=True)
class Block:
    """Whole lines, of which `rows` have as many cells as they should; the others are `odd`."""

    data: Bytes
    begin: Places  # of each row's line. Shape (rows,)
    ends: Places  # of each row's cells. Shape (rows, columns)
    odd: tuple[tuple[int, int], ...] = ()  # (begin, end) of each other line that is not empty

    def column(self, number: int) -> Cells:
        """The cells of a column."""
        begin = self.begin if number == 0 else self.ends[:, number - 1] + 1
        end = self.ends[:, number]
        for _ in range(LONGEST_BLANK):
            first = self.data[begin]
            blank = (first == _BLANK) | (first == _QUOTE) | (first == _TAB)
            if not blank.any():
                break
            begin = begin + (blank & (begin < end))
        return Cells(self.data, begin, end)

    def chosen(self, mask: Mask) -> "Block":
        """Some of the rows."""
        return Block(self.data, self.begin[mask], self.ends[mask])

    def places(self, mask: Mask) -> list[tuple[int, int]]:
        """Where some rows begin and end."""
        return list(zip(self.begin[mask].tolist(), self.ends[mask, -1].tolist(), strict=True))

    def row(self, number: int) -> str:
        """A row's text."""
        return self.text((int(self.begin[number]), int(self.ends[number, -1])))

    def text(self, place: tuple[int, int]) -> str:
        """What stands between two places."""
        return self.data[place[0] : place[1]].tobytes().decode("utf-8", "replace").strip()


def block(lines: bytes, *, delimiter: bytes, columns: int) -> Block:
    """Find the cells of whole lines; the last one ends in a newline."""
    data = np.frombuffer(lines + bytes(PAD_BYTES), np.uint8)
    newline = data == _NEWLINE
    ends = np.flatnonzero(newline | (data == delimiter[0]))
    line_ends = np.flatnonzero(newline)
    if ends.size == line_ends.size * columns and newline[ends[columns - 1 :: columns]].all():
        begin = np.concatenate([np.zeros(1, np.int64), line_ends[:-1] + 1])
        return Block(data, begin, ends.reshape(-1, columns))
    last = np.searchsorted(ends, line_ends)  # where each line's own end is among all ends
    many = np.diff(last, prepend=-1)
    begin = np.concatenate([np.zeros(1, np.int64), line_ends[:-1] + 1])
    good = (many == columns) & (line_ends > begin)
    odd = ~good & (line_ends > begin)
    return Block(
        data,
        begin[good],
        ends[np.repeat(good, many)].reshape(-1, columns),
        tuple(zip(begin[odd].tolist(), line_ends[odd].tolist(), strict=True)),
    )


def digits(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64], Mask]:
    """The decimal number each cell begins with: its digits as an integer, how many follow the dot, whether any.

    Digits behind the dot that an int64 has no room for are dropped; a longer number before it is none.
    """
    negative = cells.at(0) == _MINUS
    begin = cells.begin + negative
    rows = begin.shape[0]
    value, fraction = np.zeros(rows, np.int64), np.zeros(rows, np.int64)
    some, dotted, active = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
    for offset in range(LONGEST_NUMBER):
        byte = cells.data[begin + offset]
        digit = byte - _ZERO  # wraps, so that everything else is above 9
        is_digit = (digit <= 9) & active  # noqa: PLR2004 -- decimal
        is_dot = (byte == _DOT) & active & ~dotted & some
        taken = is_digit & (value < _ROOM)
        step = taken.view(np.uint8)  # arithmetic is several times faster than np.where
        value *= step * np.uint8(9) + np.uint8(1)
        value += step * digit
        fraction += taken & dotted
        some = (some | taken) & (taken | dotted | ~is_digit)
        dotted |= is_dot
        active &= is_digit | is_dot
        if not active.any():
            break
    return np.where(negative, -value, value), fraction, some


def numbers(cells: Cells) -> Floats:
    """The number each cell begins with; NaN where it begins with none."""
    value, fraction, some = digits(cells)
    return np.where(some, value / _POWERS[fraction], np.nan)


def numbers_after(cells: Cells, letter: bytes) -> Floats:
    """As `numbers`, behind a letter that must be there: P8."""
    there = cells.at(0) == letter[0]
    return np.where(there, numbers(Cells(cells.data, cells.begin + 1, cells.end)), np.nan)


def hexadecimals(cells: Cells) -> Floats:
    """Masks like 0x0000000000000004; NaN for what is none."""
    value = np.zeros(cells.begin.shape[0])
    active = (cells.at(0) == _ZERO) & ((cells.at(1) | 0x20) == ord("x"))
    some = active.copy()
    for offset in range(2, 18):
        byte = cells.at(offset) | 0x20  # lower case
        letter = byte - (ord("a") - 10)
        is_letter = (letter >= 10) & (letter < 16)  # noqa: PLR2004 -- hexadecimal
        digit = byte - _ZERO
        active = active & (is_letter | (digit <= 9))  # noqa: PLR2004 -- decimal
        digit = np.where(is_letter, letter, digit)
        if not active.any():
            break
        step = active.view(np.uint8)
        value *= step * np.uint8(15) + np.uint8(1)
        value += step * digit
    return np.where(some, value, np.nan)


def begins_with(cells: Cells, word: bytes) -> Mask:
    """Which cells start so; case matters."""
    same = np.ones(cells.begin.shape[0], np.bool_)
    for offset, byte in enumerate(word[:PAD_BYTES]):
        same &= cells.at(offset) == byte
    return same


def keys(cells: Cells) -> NDArray[np.int64]:
    """A number for each cell, equal where the text is."""
    key = np.zeros(cells.begin.shape[0], np.int64)
    length = np.minimum(cells.end - cells.begin, LONGEST_NAME)
    for offset in range(int(length.max(initial=0))):
        key = np.where(offset < length, key * 1_000_003 + cells.at(offset), key)
    return key
