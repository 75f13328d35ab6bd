"""Latencies as every figure shows them: which ones, in which unit, on what axis."""

from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.stretch import Quantity
from gpuwarm.analysis.words import count
from gpuwarm.recording import Floats, Recording, Rows
from gpuwarm.show.plot.look import VECTORS_MAX, VERMILLION, Style

LOG_RATIO = 3.0  # latencies that span more get a logarithmic axis
NS_PER_MS = 1e6
SHORT_WORDS: dict[Quantity, str] = {"host": "host", "gpu": "GPU"}
WORDS: dict[Quantity, str] = {"host": "latency to synchronised", "gpu": "GPU time"}


@dataclass(frozen=True)
class Latency:
    """The times that the answer is about, and the other ones there are, in a unit that suits them. Shapes (n,)."""

    name: str
    values: Floats
    other: str  # the other clock, in a word
    other_values: Floats
    unit: str
    one: str  # what a value is of


def latency(recording: Recording, rows: Rows, advice: Advice) -> Latency:
    """The latencies of some iterations."""
    each = recording.meta.inferences_per_row
    one = "one inference" if each == 1 else f"a mean of {each}"
    quantity = advice.steady.quantity if advice.steady else _only_known(rows)
    other: Quantity = "gpu" if quantity == "host" else "host"
    values = rows[f"{quantity}_ns"]
    short = known(rows, f"{quantity}_ns") and np.nanmedian(values) < NS_PER_MS
    unit, scale = ("us", 1e-3) if short else ("ms", 1 / NS_PER_MS)
    return Latency(WORDS[quantity], values * scale, SHORT_WORDS[other], rows[f"{other}_ns"] * scale, unit, one)


def _only_known(rows: Rows) -> Quantity:
    return "gpu" if known(rows, "gpu_ns") and not known(rows, "host_ns") else "host"


def counted(recording: Recording, rows: int) -> str:
    """How many rows there are, and of what."""
    each = recording.meta.inferences_per_row
    return count(rows, "inference") if each == 1 else f"{count(rows, 'mean')} of {each} inferences"


def known(rows: Rows, column: str) -> bool:
    """Whether any row has a value there."""
    return bool(np.isfinite(rows[column]).any())


@dataclass(frozen=True)
class Bounds:
    """Of a latency axis."""

    low: float
    high: float
    log: bool

    def edges(self, count: int) -> Floats:
        """As many steps from low to high, equally high on the axis."""
        return (np.geomspace if self.log else np.linspace)(self.low, self.high, count + 1)


def bounds(low: float, high: float, highest: float) -> Bounds:
    """Room around what lies from `low` to `high`; on a logarithmic axis, for the highest, too."""
    if low > 0 and high / low > LOG_RATIO:
        return Bounds(low / 1.15, max(high, highest) * 1.15, log=True)
    pad = 0.2 * (high - low) or 0.05 * high or 1.0
    return Bounds(max(0.0, low - pad), high + pad, log=False)


def set_axis(axes: Axes, shown: Bounds) -> None:
    """Make the vertical axis one of latencies."""
    if shown.log:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_ylim(shown.low, shown.high)


def arrows(axes: Axes, x: Floats, shown: Bounds) -> None:
    """Arrows at the top edge: here lie latencies above the axis."""
    style: Style = {"color": VERMILLION, "markersize": 4.5, "markeredgewidth": 0, "clip_on": False, "zorder": 5}
    axes.plot(x, np.full(len(x), shown.high), "^", rasterized=len(x) > VECTORS_MAX, **style)
