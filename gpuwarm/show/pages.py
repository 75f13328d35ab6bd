"""An answer of any command as one page: its words, what they rest on, and the lines to paste."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuwarm.analysis.answers import Answer
from gpuwarm.analysis.explained import Explanation
from gpuwarm.analysis.idled import Idleness
from gpuwarm.show import explanation, idleness, sections
from gpuwarm.show.sections import Section


@dataclass(frozen=True)
class Page:
    """Everything that is said, for whoever lays it out."""

    stamp: str | None  # where nothing was measured
    answer: str
    subject: str
    sections: Sequence[Section]
    flags: Mapping[str, str] = field(default_factory=dict)  # for other tools, by tool


def page(answer: Answer) -> Page:
    """What a person is told."""
    stamp = sections.simulated(answer)
    if isinstance(answer, Explanation):
        return Page(stamp, answer.answer, explanation.subject(answer), tuple(explanation.sections(answer)))
    if isinstance(answer, Idleness):
        return Page(stamp, answer.answer, sections.what_on(answer, answer.starts), tuple(idleness.sections(answer)))
    return Page(stamp, answer.answer, sections.subject(answer), tuple(sections.sections(answer)), answer.flags)
