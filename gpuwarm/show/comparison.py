"""The answer of `compare` as sections of sentences and tables."""

from collections.abc import Callable, Iterator

from rich.console import Group

from gpuwarm.analysis.compare import Change, Comparison, Side, explained_by_clock
from gpuwarm.analysis.words import count, duration, number, percent
from gpuwarm.show import text
from gpuwarm.show.pages import Page
from gpuwarm.show.sections import Line, Section, Table, Tone

_TONES: dict[str, Tone] = {"same": "good", "faster": "good", "slower": "bad", "not_comparable": "bad"}


def page(comparison: Comparison) -> Group:
    """For a terminal of 80 columns."""
    return text.laid_out(Page(_stamp(comparison), comparison.answer, subject(comparison), tuple(sections(comparison))))


def _stamp(comparison: Comparison) -> str | None:
    simulated = [letter for letter, side in (("A", comparison.a), ("B", comparison.b)) if side.simulated is not None]
    return f"SIMULATED: of {' and '.join(simulated)} no hardware was measured" if simulated else None


def subject(comparison: Comparison) -> str:
    """What is compared."""
    return "; ".join(
        f"{letter}: {side.source} ({side.workload or 'unnamed workload'} on {side.gpu or 'unknown GPU'}, "
        f"{count(side.starts, 'start')})"
        for letter, side in (("A", comparison.a), ("B", comparison.b))
    )


def sections(comparison: Comparison) -> Iterator[Section]:
    """All of them in the order of reading."""
    outcome = Line(comparison.outcome.replace("_", " "), _TONES.get(comparison.outcome, "warning"))
    yield Section("Outcome", (outcome,), comparison.reasons)
    if comparison.change is not None:
        yield Section("Latency", tuple(_latency(comparison.change)))
    yield Section("Numbers", table=_numbers(comparison))
    if comparison.differences:
        rows = tuple((each.name, each.a, each.b) for each in comparison.differences)
        yield Section("Different", table=Table(("what", "A", "B"), (False, False, False), rows))


def _latency(change: Change) -> Iterator[Line]:
    which = {"host": "latency to synchronised", "gpu": "the GPU's own time"}[change.quantity]
    yield Line(f"{which}; the interval rests on {change.basis}")
    if change.predicted_by_clock_pct is not None:
        explained = {True: "which explains it", False: "which does not explain it", None: "much the same"}
        predicted = percent(change.predicted_by_clock_pct)
        yield Line(f"constant cycles at the two SM clocks: {predicted}, {explained[explained_by_clock(change)]}")


def _numbers(comparison: Comparison) -> Table:
    """What both or one of the two have, and the change."""
    a, b = comparison.a, comparison.b
    rows = [("behaviour", str(a.behaviour), str(b.behaviour), ""), ("verdict", str(a.verdict), str(b.verdict), "")]
    for name, get, said in _QUANTITIES:
        before, after = get(a), get(b)
        if before is not None or after is not None:
            cells = ["not known" if value is None else said(value) for value in (before, after)]
            rows.append((name, cells[0], cells[1], _relative(name, before, after)))
    return Table(("what", "A", "B", "change"), (False, True, True, True), tuple(rows))


def _relative(name: str, before: float | None, after: float | None) -> str:
    """The change in per cent, where 0 is nothing: not of a temperature."""
    return percent(100 * (after / before - 1)) if before and after is not None and name != "temperature" else ""


_QUANTITIES: tuple[tuple[str, Callable[[Side], float | None], Callable[[float], str]], ...] = (
    ("steady latency", lambda side: side.latency_ms, duration),
    ("warm-up", lambda side: side.warmup_ms, duration),
    ("first inference", lambda side: side.first_ms, duration),
    ("cold start", lambda side: side.cold_start_ms, duration),
    ("SM clock", lambda side: side.sm_clock_mhz, lambda value: f"{value:.0f} MHz"),
    ("memory clock", lambda side: side.mem_clock_mhz, lambda value: f"{value:.0f} MHz"),
    ("power", lambda side: side.power_w, lambda value: f"{number(value)} W"),
    ("temperature", lambda side: side.temperature_c, lambda value: f"{value:.0f} C"),
)
