"""How numbers are written in sentences, and the one median that knows about missing values."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_SIGNIFICANT_DIGITS = 3
_UNITS = ((1e3, "s"), (1.0, "ms"), (1e-3, "us"), (1e-6, "ns"))  # unit in ms, its name


def duration(value_ms: float) -> str:
    """Three significant digits in the unit that suits: 35.3 us, 2.84 ms, 1.45 s, 37 s."""
    unit_ms, name = _unit(value_ms) if value_ms else (1.0, "ms")
    return f"{number(value_ms / unit_ms)} {name}"


def _unit(value_ms: float) -> tuple[float, str]:
    """The unit that suits what is written: 999.7 us is written 1 ms."""
    written = float(f"{abs(value_ms):.{_SIGNIFICANT_DIGITS - 1}e}")
    return next(((unit_ms, name) for unit_ms, name in _UNITS if written >= unit_ms), _UNITS[-1])


def span(low_ms: float, high_ms: float) -> str:
    """Two durations, the unit once where it is the same: 282 to 307 us, 774 ms to 1.06 s."""
    low, high = duration(low_ms), duration(high_ms)
    value, unit = low.split(" ")
    return f"{value} to {high}" if high.endswith(f" {unit}") else f"{low} to {high}"


def effect(value_ms: float, interval_ms: tuple[float, float] | None) -> str:
    """A signed difference and its interval in one unit: +1.5 (1.45 to 1.56) s, -298 (-310 to -285) us."""
    ends = interval_ms or ()
    unit_ms, name = _unit(max(abs(value) for value in (value_ms, *ends)))
    between = f" ({' to '.join(number(end / unit_ms) for end in ends)})" if ends else ""
    return f"{'+' if value_ms > 0 else ''}{number(value_ms / unit_ms)}{between} {name}"


def number(value: float) -> str:
    """Three significant digits without trailing zeros; whole numbers with thousands marked: 0.353, 28, 12,345."""
    if round(abs(value)) >= 10**_SIGNIFICANT_DIGITS:
        return f"{value:,.0f}"
    rounded = f"{value:#.{_SIGNIFICANT_DIGITS}g}"
    return rounded.rstrip("0").rstrip(".") if "." in rounded else rounded


def percent(value: float) -> str:
    """A signed change: +6.4 %, -15 %, 0 %."""
    text = f"{value:+.0f}" if abs(value) >= 10 else f"{value:+.1f}"  # noqa: PLR2004 -- two digits either way
    return f"{'0' if float(text) == 0 else text} %"


def count(how_many: int, one: str, many: str | None = None) -> str:
    """1 iteration, 28 iterations; `many` where an s does not make it."""
    return f"{how_many:,} {one if how_many == 1 else many or one + 's'}"


def median(values: ArrayLike) -> float | None:
    """The median of what is finite; None where nothing is."""
    array: np.ndarray[Any, np.dtype[np.float64]] = np.asarray(values, np.float64)
    finite = array[np.isfinite(array)]
    return float(np.median(finite)) if finite.size else None
