"""How numbers are written in sentences, and the one median that knows about missing values."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

_SIGNIFICANT_DIGITS = 3
_UNITS = ((1e3, "s"), (1.0, "ms"), (1e-3, "us"), (1e-6, "ns"))  # unit in ms, its name


def duration(value_ms: float) -> str:
    """Three significant digits in the unit that suits: 35.3 us, 2.84 ms, 1.45 s, 37 s."""
    size = abs(value_ms)
    unit_ms, name = next(((unit, name) for unit, name in _UNITS if size >= unit), _UNITS[-1])
    return f"{number(value_ms / unit_ms if value_ms else 0.0)} {name if value_ms else 'ms'}"


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
