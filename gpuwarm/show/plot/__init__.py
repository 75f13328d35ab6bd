"""Draw a recording and its advice: the only folder that knows matplotlib."""

# ruff: noqa: E402 -- matplotlib speaks while it is imported

import io
import logging
from collections.abc import Callable
from typing import Literal

# What it says of its own caches, where HOME cannot be written, answers nothing that was asked.
logging.getLogger("matplotlib").setLevel(logging.ERROR)

from matplotlib.figure import Figure

from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.answers import Answer
from gpuwarm.analysis.explained import Explanation
from gpuwarm.analysis.idled import Idleness
from gpuwarm.errors import InputError
from gpuwarm.recording import Recording
from gpuwarm.show.plot.bias import bias
from gpuwarm.show.plot.causes import causes
from gpuwarm.show.plot.cold_start import cold_start
from gpuwarm.show.plot.latency_by_state import latency_by_state
from gpuwarm.show.plot.look import look
from gpuwarm.show.plot.pauses import pauses
from gpuwarm.show.plot.timeline import timeline

DPI = 144  # twice the pixels that a figure takes at its size on a common screen
TIMELINE, CAUSES, PAUSES = "timeline", "causes", "pauses"
FIGURES: dict[str, Callable[[Recording, Advice], Figure]] = {
    TIMELINE: timeline,
    "latency_by_state": latency_by_state,
    "cold_start": cold_start,
    "bias": bias,
}


def names(answer: Answer) -> tuple[str, ...]:
    """The figures of an answer, in the order of looking at them."""
    if isinstance(answer, Explanation):
        return (CAUSES,)
    return (PAUSES,) if isinstance(answer, Idleness) else tuple(FIGURES)


def draw(name: str, recording: Recording, answer: Answer, *, start: int | None = None) -> Figure:
    """The figure of that name, one of the answer's; `start`, from 0, is the one a timeline shows.

    Raises:
        NothingToShowError: the recording lacks what this figure shows.
        InputError: no such figure or start.
    """
    if name not in names(answer):
        raise InputError(f"there is no figure {name!r} of this recording: choose {', '.join(names(answer))}")
    with look():
        if isinstance(answer, Explanation):
            return causes(recording, answer)
        if isinstance(answer, Idleness):
            return pauses(recording, answer)
        return timeline(recording, answer, start=start) if name == TIMELINE else FIGURES[name](recording, answer)


def encoded(figure: Figure, kind: Literal["png", "svg"]) -> bytes:
    """A figure as the content of a file; the same recording gives the same bytes."""
    buffer = io.BytesIO()
    unstamped = {"svg": {"Date": None}, "png": {"Software": None}}
    with look():
        figure.savefig(buffer, format=kind, dpi=DPI, metadata=unstamped[kind])
    return buffer.getvalue()
