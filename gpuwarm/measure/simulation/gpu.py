"""Follow a load log: the state of a simulated GPU at any time, a pure function of a profile and the log.

The result does not depend on when or how often it was asked for: news about the past, such as a process found dead,
takes the follower back to before it.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable
from dataclasses import dataclass, field
from operator import attrgetter

from gpuwarm.measure.simulation import physics
from gpuwarm.measure.simulation.load_log import BUSY, CLOSES, ENDED, OPEN, Entry, LoadLog, Span, SpanRow
from gpuwarm.measure.simulation.physics import Held
from gpuwarm.measure.simulation.profiles import Profile

_HISTORY_NS = 5_000_000_000  # longer than any sensor's window and lag
_TRIM_EVENTS = 4096
_BEGIN: Callable[[Span], int] = attrgetter("begin_ns")
_TIME: Callable[[Held], int] = attrgetter("state.t_ns")


@dataclass
class _Known:
    """How much of an entry has been taken in."""

    entry: Entry
    rows: int = 0
    open: list[Span] = field(default_factory=list)
    last: Span | None = None  # of the last row, where it is BUSY and may yet be extended


class Gpu:
    """Ask for times in any order; ascending is cheap."""

    def __init__(self, profile: Profile, log: LoadLog) -> None:
        """Follow `log` from rest on."""
        self.profile = profile
        self.log = log
        self._joined = 0
        self._live: list[_Known] = []
        self._spans: list[Span] = []  # by begin
        self._begun = 0
        self._news_ns = OPEN  # the earliest time about which something new was heard
        self._history = [physics.origin(profile)]  # the origin always first; between it and the rest may be a gap

    def at(self, t_ns: int) -> Held:
        """What holds at `t_ns`, given all the log says now."""
        self.log.look(t_ns)
        self._listen()
        self._go_back(min(self._news_ns, t_ns + 1))
        self._news_ns = OPEN
        while True:
            held = self._history[-1]
            begin_ns = self._spans[self._begun].begin_ns if self._begun < len(self._spans) else OPEN
            event_ns = min(begin_ns, held.changes_ns, *[span.gone_ns for span in held.state.active])
            if event_ns > t_ns:
                return held
            begun = bisect_right(self._spans, event_ns, lo=self._begun, key=_BEGIN)
            known = (*held.state.active, *self._spans[self._begun : begun])
            self._begun = begun
            active = tuple(span for span in known if span.gone_ns > event_ns)
            self._history.append(physics.after(self.profile, held, event_ns, active))
            if len(self._history) > _TRIM_EVENTS:
                del self._history[1 : self._index(event_ns - _HISTORY_NS)]

    def past(self, t_ns: int) -> Held:
        """What held at a time not after the last one asked for, and at most some seconds before it."""
        return self._history[self._index(t_ns)]

    def _index(self, t_ns: int) -> int:
        return max(bisect_right(self._history, t_ns, key=_TIME) - 1, 0)

    def temperature_c(self, t_ns: int) -> float:
        """Junction temperature at such a time."""
        held = self.past(t_ns)
        return physics.body_c(self.profile, held, t_ns) + self.profile.thermal.junction_c_per_w * held.power_w

    def energy_j(self, t_ns: int) -> float:
        """Energy used up to such a time, from an arbitrary zero."""
        held = self.past(t_ns)
        return held.state.energy_j + held.power_w * (t_ns - held.state.t_ns) * 1e-9

    def utilized_ns(self, t_ns: int) -> float:
        """Time with kernels running up to such a time."""
        held = self.past(t_ns)
        return held.state.utilized_ns + held.utilization * (t_ns - held.state.t_ns)

    def _go_back(self, before_ns: int) -> None:
        """Forget what was worked out for `before_ns` and later."""
        if self._history[-1].state.t_ns >= before_ns:
            del self._history[max(bisect_left(self._history, before_ns, key=_TIME), 1) :]
            self._begun = bisect_right(self._spans, self._history[-1].state.t_ns, key=_BEGIN)

    def _listen(self) -> None:
        """Take in what is new in the log."""
        self._live += [_Known(entry) for entry in self.log.entries[self._joined :]]
        self._joined = len(self.log.entries)
        for known in self._live:
            rows = known.entry.rows
            if known.last is not None and rows[known.rows - 1][1] != known.last.end_ns:
                self._end(known.last, rows[known.rows - 1][1])
            for row in rows[known.rows :]:
                self._take(known, row)
            known.rows = len(rows)
        if any(known.entry.ended_ns is not None for known in self._live):
            self._live = [known for known in self._live if known.entry.ended_ns is None]

    def _take(self, known: _Known, row: SpanRow) -> None:
        begin_ns, end_ns, kind, load = row
        known.last = None
        if kind == ENDED:
            for span in known.open:
                self._end(span, begin_ns)
        elif kind in CLOSES:
            newest = max(i for i, span in enumerate(known.open) if span.kind == CLOSES[kind])
            self._end(known.open.pop(newest), begin_ns)
        else:
            span = Span(kind, begin_ns, end_ns, load, known.entry.pid)
            insort(self._spans, span, key=_BEGIN)
            self._news_ns = min(self._news_ns, begin_ns)
            if kind == BUSY:
                known.last = span
            else:
                known.open.append(span)

    def _end(self, span: Span, end_ns: int) -> None:
        self._news_ns = min(self._news_ns, span.gone_ns)
        span.end_ns = end_ns
        self._news_ns = min(self._news_ns, span.gone_ns)
