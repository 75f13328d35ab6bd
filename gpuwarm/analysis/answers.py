"""The answer that suits a recording: to what was asked when it was measured."""

from collections.abc import Sequence

from gpuwarm.analysis import advice
from gpuwarm.analysis.advice import Advice
from gpuwarm.analysis.explained import Explanation, explain
from gpuwarm.analysis.idled import Idleness, idleness
from gpuwarm.recording import Recording

Answer = Advice | Explanation | Idleness  # all say what was measured, and whether it was simulated


def of(
    recording: Recording, *, tolerance: float = 0.01, warmup_ms: Sequence[float] = (), source: str | None = None
) -> Answer:
    """What a recording says; tolerance and warm-up lengths are for one whose question was how long to warm up.

    Raises:
        InputError: a study that was cut short before there was anything to say.
    """
    study = recording.meta.study
    if study is None:
        return advice.of(recording, tolerance=tolerance, warmup_ms=warmup_ms, source=source)
    if study.name == "explain":
        return explain(recording, source=source)
    return idleness(recording, source=source)
