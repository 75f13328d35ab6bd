"""What all figures have in common: colours, where they come from, and how axes and legends lie on them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke

from gpuwarm.analysis.answers import Answer
from gpuwarm.errors import InputError
from gpuwarm.recording import Recording

# Okabe and Ito's colours tell apart under every common colour blindness; shapes and labels say the same again.
BLUE, ORANGE, GREEN, VERMILLION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
PURPLE, SKY, YELLOW = "#cc79a7", "#56b4e9", "#f0e442"
INK, MUTED, FAINT, PAPER = "#1d2126", "#6b7178", "#d3d7db", "#fefefe"  # used for nothing else: a page may swap them
ON_COLOUR = "#101010"  # text on a filled band, dark also where a page is
HALO = withStroke(linewidth=2, foreground=PAPER)  # behind text that may lie on data
DASHED = (0, (4, 2))
Style = dict[str, Any]  # keywords of a matplotlib artist, which takes any

WIDTH_IN = 11.0
MARGIN_IN = 0.25
HEADER_IN = 0.7  # title and subtitle
LEGEND_IN = 1.95
AXIS_IN = 0.5  # tick labels and name of a horizontal axis
VECTORS_MAX = 400  # shapes of one kind in an SVG; more become one picture


class NothingToShowError(InputError):
    """The recording lacks what a figure shows."""


@contextmanager
def look() -> Iterator[None]:
    """Matplotlib's settings for a figure, whatever its user's are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rc("font", family="DejaVu Sans", size=9)
        mpl.rc("axes", edgecolor=MUTED, labelcolor=INK, linewidth=0.7, facecolor="none", axisbelow=True)
        mpl.rc("axes", titlesize=9, titlecolor=MUTED, titlelocation="left")
        mpl.rc("axes.spines", top=False, right=False)
        mpl.rc("figure", facecolor=PAPER)
        mpl.rc("grid", color=FAINT, linewidth=0.5)
        mpl.rc("legend", fontsize=8, labelcolor=INK, frameon=False, handlelength=1.8, borderpad=0.0)
        mpl.rc("text", color=INK)
        mpl.rc("xtick", color=MUTED, labelcolor=INK, labelsize=8)
        mpl.rc("ytick", color=MUTED, labelcolor=INK, labelsize=8)
        mpl.rc("svg", fonttype="path", hashsalt="gpuwarm")  # alike wherever it is opened and whenever it is made
        yield


def headed(height_in: float, recording: Recording, answer: Answer, subtitle: str) -> Figure:
    """An empty figure that says which GPU, engine, driver and TensorRT it shows, and whether they are simulated."""
    figure = Figure(figsize=(WIDTH_IN, height_in))
    FigureCanvasAgg(figure)
    left, top = MARGIN_IN / WIDTH_IN, 1 - 0.12 / height_in
    figure.text(left, top, _title(recording, answer), size=12, weight="bold", va="top", parse_math=False)
    figure.text(left, top - 0.26 / height_in, subtitle, size=9.5, va="top", color=MUTED, parse_math=False)
    if answer.simulated is not None:
        stamp = f"SIMULATED ({answer.simulated}), not measured"
        box: Style = {"boxstyle": "square,pad=0.35", "facecolor": YELLOW, "edgecolor": ON_COLOUR}
        figure.text(1 - left, top, stamp, size=10, weight="bold", ha="right", va="top", color=ON_COLOUR, bbox=box)
    return figure


def _title(recording: Recording, answer: Answer) -> str:
    # Of a simulated GPU the stamp says enough.
    versions = {name: version for name, version in recording.meta.versions.items() if version != "simulated"}
    parts = (
        (answer.gpu.name if answer.gpu else None) or "unknown GPU",
        answer.workload.name,
        f"driver {versions['driver']}" if "driver" in versions else None,
        f"TensorRT {versions['tensorrt']}" if "tensorrt" in versions else None,
    )
    return " · ".join(part for part in parts if part)


def placed(figure: Figure, *, left_in: float, bottom_in: float, width_in: float, height_in: float) -> Axes:
    """New axes at a place on the figure."""
    width, height = figure.get_size_inches()
    return figure.add_axes((left_in / width, bottom_in / height, width_in / width, height_in / height))


def legend(row: Sequence[Axes]) -> None:
    """To the right of axes that lie side by side, everything they show."""
    entries = {
        label: handle for axes in reversed(row) for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    if entries:
        place: Style = {"loc": "upper left", "bbox_to_anchor": (1.0, 1.0)}
        row[-1].legend(entries.values(), entries.keys(), borderaxespad=0.6, **place)
