"""The timestamps of logs: nvidia-smi's own, and those that scripts around it write instead."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuwarm.read.cells import Cells, Mask, digits

Clock = Literal["utc", "local", "day"]
Order = Literal["year first", "day first", "month first", "none"]
NS = 10**9
EPOCH_DIGITS = {9: NS, 10: NS, 13: 10**6, 16: 10**3, 19: 1}  # digits before the dot -> nanoseconds a unit
ELAPSED_NS = {"s": NS, "sec": NS, "seconds": NS, "ms": 10**6}  # of time since something began
YEARS = (1970, 2199)  # which int64 nanoseconds reach
YEAR_LAST_NS = (date(YEARS[1], 12, 31) - date(1970, 1, 1)).days * 86_400 * NS
_NS_DIGITS = 9
_TIME_WIDTH = 8  # characters of HH:MM:SS

_DATED = re.compile(r"(?:(?P<year>\d{4})[-/.]\d\d?[-/.]\d\d?|\d\d[-/.]\d\d[-/.]\d{4})[ T]+")
_LOOSE = re.compile(
    r"(?:(?P<a>\d{1,4})[-/.](?P<b>\d\d?)[-/.](?P<c>\d{1,4})[ T]+)?"
    r"(?P<h>\d\d?):(?P<min>\d\d?):(?P<s>\d\d?)(?:[.,](?P<f>\d{1,9}))?"
)
_TIMED = re.compile(
    r"(?P<h>\d\d?):(?P<min>\d\d):(?P<s>\d\d)(?:[.,](?P<f>\d{1,9}))?\d*\s*(?P<zone>Z|UTC|[+-]\d\d:?\d\d)?$"
)


@dataclass(frozen=True)
class Format:
    """How a log writes its time; `clock` is whose time that is."""

    clock: Clock
    order: Order = "none"
    date_width: int = 0  # characters up to the hour
    unit_ns: int = 0  # of counted time since 1970; 0 where it is written as a date
    doubt: str | None = None


def format_of(samples: Iterable[str], text: bytes, unit: str = "") -> Format | None:
    """The format of a log's first timestamps; None where they are none.

    Args:
        samples: some timestamps.
        text: the whole log; where day and month look alike, its dates in order tell them apart.
        unit: what the header says they are counted in.
    """
    for sample in samples:
        counted = re.match(r"(\d{9,19})(?:\.\d+)?$", sample)
        if counted and len(counted[1]) in EPOCH_DIGITS:
            return Format("utc", unit_ns=EPOCH_DIGITS[len(counted[1])])
        if unit.lower() in ELAPSED_NS and re.match(r"\d{1,8}(?:\.\d+)?$", sample):
            return Format("day", unit_ns=ELAPSED_NS[unit.lower()])
        dated = _DATED.match(sample)
        timed = _TIMED.match(sample, dated.end() if dated else 0)
        if not timed:
            continue
        clock: Clock = "utc" if timed["zone"] in {"Z", "UTC", "+00:00", "+0000"} else "local"
        if not dated:
            return Format("day")
        if dated["year"]:
            return Format(clock, "year first", dated.end())
        order, doubt = _day_or_month_first(text)
        return Format(clock, order, dated.end(), doubt=doubt)
    return None


def _day_or_month_first(text: bytes) -> tuple[Order, str | None]:
    """Which of two numbers is the day: one above 12 is; else the one that moves on from date to date."""
    found = re.findall(rb"\b(\d\d)[-/.](\d\d)[-/.](\d{4})[ T]", text)
    dates = [(int(a), int(b), int(year)) for a, b, year in dict.fromkeys(found)]
    if any(a > 12 for a, _, _ in dates):  # noqa: PLR2004 -- months
        return "day first", None
    if any(b > 12 for _, b, _ in dates):  # noqa: PLR2004 -- months
        return "month first", None
    if len(dates) > 1:
        spans = {order: _days_between(dates, order) for order in ("day first", "month first")}
        shortest = min(spans, key=lambda order: spans[order])
        if spans["day first"] != spans["month first"]:
            return ("day first" if shortest == "day first" else "month first"), None
    return "month first", "its dates do not tell day from month; within one day that does not matter"


def _days_between(dates: Sequence[tuple[int, int, int]], order: str) -> int:
    days = [date(year, b, a) if order == "day first" else date(year, a, b) for a, b, year in dates if a and b and year]
    return sum(abs((later - earlier).days) for earlier, later in pairwise(days))


def nanoseconds(cells: Cells, written: Format) -> tuple[NDArray[np.int64], Mask]:
    """Times of the cells, since 1970 or since midnight, and which cells could be read. Shapes (n,)."""
    if written.unit_ns:
        value, fraction, some = digits(cells)
        some &= (value >= 0) & (value // 10**fraction < YEAR_LAST_NS // written.unit_ns)
        return _scaled(np.where(some, value, 0), fraction, written.unit_ns), some
    t_ns, good = _fixed(cells, written)
    for row in np.flatnonzero(~good).tolist():
        slow = one(cells.text(row), written)
        if slow is not None:
            t_ns[row], good[row] = slow, True
    return t_ns, good


def _scaled(value: NDArray[np.int64], fraction: NDArray[np.int64], unit_ns: int) -> NDArray[np.int64]:
    """A decimal number of units in nanoseconds, without leaving int64."""
    power = 10**fraction
    whole = value // power
    kept = np.minimum(fraction, _NS_DIGITS)
    rest = (value - whole * power) // 10 ** (fraction - kept)
    t_ns: NDArray[np.int64] = whole * unit_ns + rest * unit_ns // 10**kept
    return t_ns


def _fixed(cells: Cells, written: Format) -> tuple[NDArray[np.int64], Mask]:
    """As they mostly are: every field has its place and its width."""
    good = np.ones(cells.begin.shape[0], np.bool_)

    def at(offset: int, width: int) -> NDArray[np.int64]:
        value = np.zeros(good.shape[0], np.int64)
        for place in range(offset, offset + width):
            digit = cells.at(place) - ord("0")
            np.logical_and(good, digit <= 9, out=good)  # noqa: PLR2004 -- decimal
            value = value * 10 + digit
        return value

    hour = written.date_width
    days = np.zeros(good.shape[0], np.int64)
    if written.order != "none":
        year_first = written.order == "year first"
        year, month, day = (at(0, 4), at(5, 2), at(8, 2)) if year_first else (at(6, 4), at(0, 2), at(3, 2))
        if written.order == "day first":
            month, day = day, month
        good &= (year >= YEARS[0]) & (year <= YEARS[1])
        good &= (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)  # noqa: PLR2004 -- the calendar
        days = _days(year, month, day)
    minutes = (days * 24 + at(hour, 2)) * 60 + at(hour + 3, 2)
    good &= (cells.at(hour + 2) == ord(":")) & (cells.at(hour + 5) == ord(":"))
    seconds, fraction, some = digits(Cells(cells.data, cells.begin + hour + 6, cells.end))
    good &= some & (cells.end - cells.begin >= hour + _TIME_WIDTH)
    return minutes * 60 * NS + _scaled(np.abs(seconds), fraction, NS), good


def _days(year: NDArray[np.int64], month: NDArray[np.int64], day: NDArray[np.int64]) -> NDArray[np.int64]:
    """Days since 1970 in the Gregorian calendar, whose year is taken to begin in March."""
    year = year - (month <= 2)  # noqa: PLR2004 -- January and February belong to the year before
    month = (month + 9) % 12
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719_469


def one(text: str, written: Format) -> int | None:
    """One timestamp, whose fields may lack leading zeros."""
    found = _LOOSE.match(text)
    if not found:
        return None
    hour, minute, second = int(found["h"]), int(found["min"]), int(found["s"])
    t_ns = ((hour * 60 + minute) * 60 + second) * NS + int((found["f"] or "").ljust(_NS_DIGITS, "0"))
    if written.order == "none":
        return None if found["a"] else t_ns
    if not found["a"]:
        return None
    parts = [int(found[name]) for name in ("a", "b", "c")]
    if written.order == "day first":
        parts = [parts[2], parts[1], parts[0]]
    elif written.order == "month first":
        parts = [parts[2], parts[0], parts[1]]
    if not YEARS[0] <= parts[0] <= YEARS[1]:
        return None
    try:
        return (date(*parts) - date(1970, 1, 1)).days * 86_400 * NS + t_ns
    except ValueError:  # the 31st of February
        return None
