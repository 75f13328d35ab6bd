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
SMALL_DIGITS = 9  # that fit into int32
_ROOM = np.iinfo(np.int64).max // 10  # below it, one more digit fits
LONGEST_NAME = 48  # characters; a UUID has 40
_NEWLINE, _BLANK, _TAB, _QUOTE, _MINUS, _DOT, _ZERO = b'\n \t"-.0'
_WORD_MASKS = np.array([(1 << 8 * count) - 1 for count in range(9)], np.uint64)  # of the first bytes of a word
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

    def chosen(self, rows: Places) -> "Cells":
        """The cells of some rows."""
        return Cells(self.data, self.begin[rows], self.end[rows])

    def text(self, row: int) -> str:
        """One cell."""
        return _text(self.data[self.begin[row] : self.end[row]]).strip(' \t\r"')


@dataclass(frozen=True)
class Block:
    """Whole lines, of which `rows` have as many cells as they should; the others are `odd`."""

    data: Bytes
    begin: Places  # of each row's line. Shape (rows,)
    ends: Places  # of each row's cells. Shape (rows, columns)
    odd: Places  # begin and end of each other line that is not empty. Shape (n, 2)

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
        return Block(self.data, self.begin[mask], self.ends[mask], self.odd[:0])

    def places(self, mask: Mask) -> Places:
        """Where some rows begin and end. Shape (n, 2)."""
        return np.stack([self.begin[mask], self.ends[mask, -1]], axis=1)

    def row(self, number: int) -> str:
        """A row's text."""
        return self.text(int(self.begin[number]), int(self.ends[number, -1]))

    def text(self, begin: int, end: int) -> str:
        """What stands between two places."""
        return _text(self.data[begin:end]).strip()


def _text(data: Bytes) -> str:
    """What may be shown of it."""
    return "".join(
        sign if sign.isprintable() or sign == "\t" else " " for sign in data.tobytes().decode("utf-8", "replace")
    )


def block(lines: bytes, *, delimiter: bytes, columns: int) -> Block:
    """Find the cells of whole lines; the last one ends in a newline."""
    data = np.frombuffer(lines + bytes(PAD_BYTES), np.uint8)
    newline = data == _NEWLINE
    ends = np.flatnonzero(newline | (data == delimiter[0]))
    regular = columns > 1 and ends.size == np.count_nonzero(newline) * columns  # of one column, lines may be empty
    if regular and newline[ends[columns - 1 :: columns]].all():
        begin = np.concatenate([np.zeros(1, np.int64), ends[columns - 1 : -1 : columns] + 1])
        return Block(data, begin, ends.reshape(-1, columns), np.empty((0, 2), np.int64))
    line_ends = np.flatnonzero(newline)
    last = np.searchsorted(ends, line_ends)  # where each line's own end is among all ends
    many = np.diff(last, prepend=-1)
    begin = np.concatenate([np.zeros(1, np.int64), line_ends[:-1] + 1])
    good = (many == columns) & (line_ends > begin)
    odd = ~good & (line_ends > begin)
    return Block(
        data,
        begin[good],
        ends[np.repeat(good, many)].reshape(-1, columns),
        np.stack([begin[odd], line_ends[odd]], axis=1),
    )


def digits(cells: Cells) -> tuple[NDArray[np.int64], NDArray[np.int64], Mask]:
    """The decimal number each cell begins with: its digits as an integer, how many follow the dot, whether any.

    Digits behind the dot that an int64 has no room for are dropped; a longer number before it is none.
    """
    longest = int((cells.end - cells.begin).max(initial=0))
    small = longest <= SMALL_DIGITS  # what fits into 32 bits is done in two thirds of the time
    negative = cells.at(0) == _MINUS
    begin = cells.begin + negative
    rows = begin.shape[0]
    value = np.zeros(rows, np.int32 if small else np.int64)
    fraction = np.zeros(rows, np.uint8)
    some, dotted, active = np.zeros(rows, np.bool_), np.zeros(rows, np.bool_), np.ones(rows, np.bool_)
    for offset in range(min(longest, LONGEST_NUMBER)):
        byte = cells.data[begin + offset]
        digit = byte - _ZERO  # wraps, so that everything else is above 9
        is_digit = (digit <= 9) & active  # noqa: PLR2004 -- decimal
        is_dot = (byte == _DOT) & active & some & ~dotted
        taken = is_digit if small else is_digit & (value < _ROOM)
        step = taken.view(np.uint8)  # arithmetic is several times faster than np.where
        value *= step * np.uint8(9) + np.uint8(1)
        value += step * digit
        fraction += taken & dotted
        some |= taken
        if not small:
            some &= taken | dotted | ~is_digit
        dotted |= is_dot
        active = is_digit | is_dot
        if not active.any():
            break
    return np.where(negative, -value, value).astype(np.int64), fraction.astype(np.int64), some


def renewed(cells: Cells) -> tuple[Places, Places] | None:
    """The rows that say something else than the row before, and which of them each row repeats.

    Sensors are renewed more slowly than they are logged, names never: reading only these is several times faster.
    None where most rows are new.
    """
    length = cells.end - cells.begin
    new = np.ones(length.shape[0], np.bool_)
    new[1:] = length[1:] != length[:-1]
    words: NDArray[np.uint64] = np.ndarray((cells.data.size - 7,), "<u8", cells.data, 0, (1,))
    for offset in range(0, min(int(length.max(initial=0)), LONGEST_NAME), 8):
        inside = np.clip(length - offset, 0, 8)
        word = words[cells.begin + offset] & _WORD_MASKS[inside]
        new[1:] |= word[1:] != word[:-1]
    if np.count_nonzero(new) > new.size // 2:
        return None
    return np.flatnonzero(new), np.cumsum(new) - 1


def numbers(cells: Cells) -> Floats:
    """The number each cell begins with; NaN where it begins with none."""
    found = renewed(cells)
    if found is not None:
        return _numbers(cells.chosen(found[0]))[found[1]]
    return _numbers(cells)


def _numbers(cells: Cells) -> Floats:
    value, fraction, some = digits(cells)
    return np.where(some, value / _POWERS[fraction], np.nan)


def numbers_after(cells: Cells, letter: bytes) -> Floats:
    """As `numbers`, behind a letter that must be there: P8."""
    there = cells.at(0) == letter[0]
    return np.where(there, numbers(Cells(cells.data, cells.begin + there, cells.end)), np.nan)


def hexadecimals(cells: Cells) -> Floats:
    """Masks like 0x0000000000000004; NaN for what is none."""
    found = renewed(cells)
    if found is not None:
        return _hexadecimals(cells.chosen(found[0]))[found[1]]
    return _hexadecimals(cells)


def _hexadecimals(cells: Cells) -> Floats:
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
        if not same.any():
            break
    return same


def keys(cells: Cells) -> NDArray[np.int64]:
    """A number for each cell, equal where the text is."""
    found = renewed(cells)
    if found is not None:
        return _keys(cells.chosen(found[0]))[found[1]]
    return _keys(cells)


def _keys(cells: Cells) -> NDArray[np.int64]:
    key = np.zeros(cells.begin.shape[0], np.int64)
    length = np.minimum(cells.end - cells.begin, LONGEST_NAME)
    for offset in range(int(length.max(initial=0))):
        key = np.where(offset < length, key * 1_000_003 + cells.at(offset), key)
    return key
