"""What one series of latencies did, and where it became steady: numbers in, a verdict with its evidence out.

The order of the answers, where several are true: too_short, cyclic, drift, no_steady_state, slowdown, warmup, flat.
What has no steady state gets no length. A stretch that was faster than steady makes it a slowdown, whatever else was
slow, as only that makes a benchmark too optimistic; `also` names the rest.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from gpuwarm.analysis.bootstrap import interval_of
from gpuwarm.analysis.series import (
    BLOCKS,
    PENALTY,
    Ending,
    Series,
    series_of,
    since_begin,
    spans,
)
from gpuwarm.analysis.shapes import Cycle, Decay, cycle, decay
from gpuwarm.analysis.words import count, duration, percent
from gpuwarm.recording import Floats

Behaviour = Literal["flat", "warmup", "slowdown", "cyclic", "drift", "no_steady_state", "too_short"]

MIN_ITERATIONS = 30  # fewer cannot tell a level from its noise
MIN_SPAN_MS = 200.0  # two refreshes of a data-centre GPU's clock; a power cap takes about 50 ms to bite
WINDOW_MS = 1000.0  # a benchmark's measurement: what averages out within it is noise to its reader
WINDOW_SHARE = 1 / 8  # of the series, where that is shorter
WINDOW_ITERATIONS = 8
LATE_SHARE = 0.25  # of the time, at the end: there the steady level is looked for
# Of the time, by how often latency changed direction before: a shorter steady stretch may be a tread of a staircase, or
# the next swing may be on its way.
MIN_TAIL_SHARES = (0.2, 0.35, 0.5)
TREAD, SEVERAL = 0.8, 2  # times the longest of so many levels before is the least, too
SWING = 1.5  # tolerances is one up or down
SETTLED = 3.0  # times its length: a deviation is a passing one only after so long a steady stretch
UNSURE = 0.5  # standard errors: a level this near the tolerance is within it
KNOWN = 1.0  # tolerances: the standard error of a quarter of the steady stretch must be less
WHITE = 3.0  # times the variance between neighbours is what noise without memory may reach in the long run

CYCLE_SHARE = 0.8  # tolerances of amplitude: less is not worth calling a cycle
CYCLE_COST = 4.0  # changes of level are as complicated as one cycle
CYCLE_EXPLAINS = 0.85  # of the variance: then nothing else need be compared
MIN_CYCLE_MS = 10.0  # no clock or power control acts faster: quicker alternation is a mixture of two latencies
MIN_CYCLE_ITERATIONS = 4

MOVES = 1.2  # tolerances over the steady stretch, and
MOVES_SIGMA = 4.0  # standard errors: it is not one
MOST_BEGINS = 8  # of a decay are tried
DECAY_COST = 2.0  # changes of level are as complicated as one decay
ARRIVED = 0.6  # tolerances left of a decay when it counts as over: what is left falls further within the benchmark


@dataclass(frozen=True)
class Course:
    """What one series of latencies did."""

    behaviour: Behaviour
    also: tuple[str, ...] = ()
    evidence: tuple[str, ...] = ()
    end: int | None = None  # first steady iteration
    interval: tuple[int, int] | None = None  # of `end`, by a block bootstrap
    level_ms: float | None = None  # steady latency, outliers drawn in
    unsure: float | None = None  # of it, relative: twice its standard error, and what is left of a decay at the end
    fast_ms: float | None = None  # when the quick changes were over, where slow settling followed
    period_ms: float | None = None
    slope_pct_per_s: float | None = None
    settles_ms: tuple[float, float, float] | None = None  # of a drift that slows down: when it would end, and interval


def course(elapsed_ms: Floats, latency_ms: Floats, *, tolerance: float = 0.01, interval: bool = True) -> Course:
    """What one series did.

    Args:
        elapsed_ms: begin of each iteration, rising; only differences count. Shape (n,).
        latency_ms: positive; its unit does not matter. Shape (n,).
        tolerance: of steady latency, within which it is steady.
        interval: whether to say where the end may be as well; that takes a third of the time.
    """
    n = latency_ms.size
    elapsed_ms = elapsed_ms - elapsed_ms[0] if n else elapsed_ms
    span_ms = float(elapsed_ms[-1]) * n / (n - 1) if n > 1 else 0.0
    if n < MIN_ITERATIONS or span_ms < MIN_SPAN_MS:
        took = f" in {duration(float(elapsed_ms[-1]))}" if n > 1 else ""
        said = f"{count(n, 'value')}{took}: at least {MIN_ITERATIONS} in {duration(MIN_SPAN_MS)} are needed"
        return Course("too_short", evidence=(said,))
    series = series_of(elapsed_ms, latency_ms, span_ms, tolerance)
    found = _cycle(series)
    if found is not None:
        return found
    return _judged(series, latency_ms, interval=interval)


def _cycle(series: Series) -> Course | None:
    """Whether it goes up and down for ever: a cycle must explain more than changes of level do, and so simply."""
    n = series.tamed.size
    step_ms = series.span_ms / series.elapsed_ms.size
    shortest = max(MIN_CYCLE_ITERATIONS, MIN_CYCLE_MS / step_ms)
    fitted = np.repeat(series.smoothed(), series.sizes.astype(np.int64))
    least = CYCLE_SHARE * series.tolerance
    found = cycle(series.tamed, rival=fitted, shortest=shortest, least=least)
    if found is None or found.amplitude <= least or not _convincing(found, series):
        return None
    period_ms = found.period / n * series.span_ms
    also = ("slow_first",) if series.lead else ()
    size = percent(100 * found.amplitude)[1:]
    said = (
        f"latency goes up and down by {size} around its mean every {duration(period_ms)}, "
        f"{n / found.period:.0f} times; that explains {100 * found.share:.0f} % of its variance"
    )
    return Course("cyclic", also, (said,), period_ms=period_ms)


def _convincing(found: Cycle, series: Series) -> bool:
    """Against a straight line and against levels, in units of what a change of level must explain."""
    cost = PENALTY * float(np.log(BLOCKS))
    if found.gain <= CYCLE_COST * cost:
        return False
    if found.share >= CYCLE_EXPLAINS:
        return True
    levels = series.bounds.size - 1
    return found.gain_over_rival > (CYCLE_COST - levels) * cost


def _judged(series: Series, latency_ms: Floats, *, interval: bool) -> Course:
    """Everything but too_short and cyclic."""
    first, level = _steady_from(series)
    run = _run_from(series, first, level)
    run, approach = _decay(series, run, first)
    if approach is None:
        end_ms = float(series.begins_ms[series.bounds[first]])
        drifts = _moves(series, first, level)
    else:
        end_ms, drifts = _arrival(series, run, approach)
        level = level if drifts else approach.level
    if drifts:
        return _drift(series, run, first, approach)
    steady = Ending(first, run, level, approach, end_ms)
    answer = _steady(series, latency_ms, steady)
    if answer.end is None or not interval:
        return answer
    return replace(answer, interval=interval_of(series, steady, answer.end))


def _steady_from(series: Series) -> tuple[int, float]:
    """The earliest level from which all agree, passing deviations apart; and the steady latency.

    The reference is the longest level near the end; from there the steady stretch grows towards the beginning.
    """
    levels, weights, begins, ends = spans(series)
    sure = UNSURE * np.sqrt(series.noise / weights)
    late_ms = (1 - LATE_SHARE) * series.span_ms
    reference = int((ends - np.maximum(begins, late_ms)).argmax())
    if _worst_window(series, reference, levels[reference]) > series.tolerance:
        reference = levels.size - 1  # it did not last
    level, weight = _late_mean(series, reference, levels[reference], sure)
    first = reference
    while first > 0:
        agree = np.abs(levels - level) <= series.tolerance * level + sure
        before = _next_agreeing(series, agree, first, level)
        if before is None:
            break
        first = before
        if begins[first] > series.span_ms / 2:
            level = (level * weight + levels[first] * weights[first]) / (weight + weights[first])
            weight += weights[first]
    return first, level


def _next_agreeing(series: Series, agree: NDArray[np.bool_], first: int, level: float) -> int | None:
    """The level before `first` that is steady too: its neighbour, or the one before a deviation that passes.

    A deviation passes where the mean of a benchmark is within the tolerance all the same, and where it comes after
    a steady stretch much longer than it is itself. Otherwise it belongs to the warm-up.
    """
    if agree[first - 1]:
        return first - 1
    earlier = np.flatnonzero(agree[: first - 1])
    if earlier.size == 0:
        return None
    before = int(earlier[-1])
    apart = np.flatnonzero(~agree[:before])
    settled = int(apart[-1]) + 1 if apart.size else 0
    _, _, begins, ends = spans(series)
    if ends[before] - begins[settled] < SETTLED * (begins[first] - ends[before]):
        return None
    return before if _worst_window(series, settled, level) <= series.tolerance else None


def _late_mean(series: Series, reference: int, level: float, sure: Floats) -> tuple[float, float]:
    """The mean over the reference and the levels after it that agree; and how many iterations that is."""
    levels, weights, _, _ = spans(series)
    after = np.arange(levels.size) >= reference
    alike = after & (np.abs(levels - level) <= series.tolerance * level + sure)
    alike[reference] = True
    return float(np.average(levels[alike], weights=weights[alike])), float(weights[alike].sum())


def _worst_window(series: Series, first: int, level: float) -> float:
    """How far the mean of any window from this level on is off, relative; of levels, so that noise does not count."""
    begin = series.bounds[first]
    times = series.begins_ms[begin:]
    step_ms = series.span_ms / series.elapsed_ms.size
    window_ms = max(min(WINDOW_MS, WINDOW_SHARE * series.span_ms), WINDOW_ITERATIONS * step_ms)
    window_ms = min(window_ms, times[-1] - times[0])
    counts = np.concatenate([[0.0], np.cumsum(series.sizes[begin:])])
    sums = np.concatenate([[0.0], np.cumsum((series.smoothed() * series.sizes)[begin:])])
    stops = np.searchsorted(times, times + window_ms * (1 - 1e-9))
    starts = np.flatnonzero(stops < times.size)
    stops = stops[starts]
    last = max(0, int(np.searchsorted(times, times[-1] - window_ms, side="right")) - 1)
    starts, stops = np.append(starts, last), np.append(stops, times.size - 1)
    means = (sums[stops] - sums[starts]) / (counts[stops] - counts[starts])
    return float(np.abs(means / level - 1).max())


def _run_from(series: Series, first: int, level: float) -> int:
    """The level from which latency moves one way only, until it is steady."""
    levels = series.levels
    if first == 0:
        return 0
    run = first - 1
    direction = np.sign(levels[run] - level)
    while run > 0 and direction * (levels[run - 1] - levels[run]) > 0:
        run -= 1
    return run


def _decay(series: Series, run: int, first: int) -> tuple[int, Decay | None]:
    """The exponential approach, or straight line, to the steady level, and the level it begins with.

    It may begin with `run` or, after quick changes the same way, later; None where levels alone explain more.
    """
    levels = series.bounds.size - 1
    rest = series.means - series.smoothed()
    errors = np.add.reduceat(series.sizes * rest**2, series.bounds[:-1])
    best, best_begin = None, run
    best_cost = float(errors[run:].sum()) + (levels - run) * series.penalty
    for begin in range(run, min(max(first, run + 1), run + MOST_BEGINS)):
        if levels - begin == 1:
            break
        at = series.bounds[begin]
        since_ms, shortest = since_begin(series, begin)
        found = decay(since_ms, series.means[at:], series.sizes[at:], shortest=shortest, slack=4 * series.noise)
        cost = float(errors[run:begin].sum()) + found.error + (begin - run + DECAY_COST) * series.penalty
        if cost < best_cost:
            best, best_begin, best_cost = found, begin, cost
    return best_begin, best


def _arrival(series: Series, run: int, approach: Decay) -> tuple[float, bool]:
    """When a decay is over, and whether it is not over by the end."""
    begin_ms = float(series.begins_ms[series.bounds[run]])
    if approach.level <= 0 or approach.left(series.span_ms - begin_ms) > series.tolerance * approach.level:
        return series.span_ms, True
    return begin_ms + approach.reaches(ARRIVED * series.tolerance * approach.level), False


def _moves(series: Series, first: int, level: float) -> bool:
    """Whether the steady stretch has a trend that its levels hide."""
    slope, error = _slope(series, first, level)
    moved = slope * (series.span_ms - series.begins_ms[series.bounds[first]])
    return bool(abs(slope) > MOVES_SIGMA * error and abs(moved) > MOVES * series.tolerance * level)


def _slope(series: Series, first: int, level: float) -> tuple[float, float]:
    """Latency per ms from this level on, passing deviations apart; and its standard error."""
    begin = series.bounds[first]
    near = np.abs(series.smoothed()[begin:] / level - 1) <= 2 * series.tolerance
    weights = series.sizes[begin:] * near
    if weights.sum() <= 0:
        return 0.0, np.inf
    times = series.middles_ms[begin:] - np.average(series.middles_ms[begin:], weights=weights)
    spread = float(weights @ times**2)
    if spread <= 0:
        return 0.0, np.inf
    return float(weights @ (times * series.means[begin:])) / spread, float(np.sqrt(series.noise / spread))


def _drift(series: Series, run: int, first: int, approach: Decay | None) -> Course:
    """Latency that is still on its way at the end."""
    begin_ms = float(series.begins_ms[series.bounds[run]])
    last = series.levels[-1]
    if approach is None:
        slope = _slope(series, first, last)[0]
    elif np.isfinite(approach.tau):
        slope = -approach.size / approach.tau * float(np.exp(-(series.span_ms - begin_ms) / approach.tau))
    else:
        slope = -approach.size / float(since_begin(series, run)[0][-1])
    pct_per_s = slope / last * 1e5
    said = [f"latency still moves by {percent(pct_per_s)} a second at the end"]
    settles = None if approach is None else _settles(approach, begin_ms, series.tolerance)
    if settles is None:
        said.append("it moves on evenly: there is no end in sight")
    else:
        latest = duration(settles[2]) if np.isfinite(settles[2]) else "never"
        said.append(
            f"if it goes on slowing down, it is within {100 * series.tolerance:g} % of its end after "
            f"{duration(settles[0])} (between {duration(settles[1])} and {latest})"
        )
    also = ("slow_first",) if series.lead else ()
    return Course("drift", also, tuple(said), slope_pct_per_s=pct_per_s, settles_ms=settles)


def _settles(approach: Decay, begin_ms: float, tolerance: float) -> tuple[float, float, float] | None:
    """When the decay would be within the tolerance, and for the shortest and longest tau that fit as well."""
    if not np.isfinite(approach.tau) or approach.level <= 0:
        return None
    falls = float(np.log(abs(approach.size) / (tolerance * approach.level)))
    shortest, longest = approach.tau_interval
    return begin_ms + approach.tau * falls, begin_ms + shortest * falls, begin_ms + longest * falls


def _steady(series: Series, latency_ms: Floats, found: Ending) -> Course:
    levels = series.levels
    n = series.elapsed_ms.size
    end = max(series.lead, int(np.searchsorted(series.elapsed_ms, found.end_ms - 1e-9)) if found.first else series.lead)
    share = 1 - series.elapsed_ms[min(end, n - 1)] / series.span_ms
    held = f"the last {100 * share:.0f} % of the time stay within {100 * series.tolerance:g} % of {found.level:.4g} ms"
    swings = _swings(np.append(levels[: found.first], found.level), SWING * series.tolerance * found.level)
    lead = ("slow_first",) if series.lead else ()
    if share < MIN_TAIL_SHARES[min(swings, 2)] or share * series.span_ms < TREAD * _longest_tread_ms(series, found):
        said = f"only {held}"
        if swings:
            said += f"; before, it went up or down by more than {100 * SWING * series.tolerance:g} % {swings + 1} times"
        return Course("no_steady_state", lead, (said,))
    unknown = float(np.sqrt(series.noise / (series.weights[found.first :].sum() / 4))) / found.level
    if unknown > KNOWN * series.tolerance:
        more = (unknown / series.tolerance) ** 2
        said = (
            f"so noisy that a quarter of the steady stretch tells its level to {percent(100 * unknown)[1:]} only: "
            f"{100 * series.tolerance:g} % takes {more:.2g} times as many inferences, or a wider --tolerance"
        )
        white = series.noise <= WHITE * float(np.var(np.diff(series.tamed))) / 2
        return Course("too_short" if white else "no_steady_state", lead, (said,))
    return _rested(series, latency_ms, found, end, held)


def _rested(series: Series, latency_ms: Floats, found: Ending, end: int, held: str) -> Course:
    """What it did before a rest from index `end` on, which `held` says."""
    unsure = _unsure(series, found)
    before = series.levels[: found.first]
    margin = series.tolerance * found.level
    faster, slower = before[before < found.level - margin], before[before > found.level + margin]
    evidence = [held]
    also = ["slow_first"] if series.lead else []
    if faster.size:
        behaviour: Behaviour = "slowdown"
        also += ["warmup"] if slower.size else []
    elif slower.size or series.lead:
        behaviour = "warmup"
    else:
        return Course("flat", (), (held,), 0, level_ms=found.level, unsure=unsure)
    extremes = [("down to", faster.min())] if faster.size else []
    extremes += [("up to", slower.max())] if slower.size else []
    if extremes:
        told = (f"{way} {level:.4g} ms ({percent(100 * (level / found.level - 1))})" for way, level in extremes)
        evidence.append(f"before, it was {' and '.join(told)}")
    if series.lead:
        evidence.append(f"the first took {latency_ms[0]:.4g} ms ({percent(100 * (latency_ms[0] / found.level - 1))})")
    return Course(
        behaviour,
        tuple(also),
        tuple(evidence),
        end,
        level_ms=found.level,
        unsure=unsure,
        fast_ms=_fast_ms(series, found),
    )


def _longest_tread_ms(series: Series, found: Ending) -> float:
    """The longest level of several before the steady one: as long may that one be a tread, too."""
    if found.approach is not None or found.first < SEVERAL:
        return 0.0
    _, _, begins, ends = spans(series)
    return float((ends - begins)[: found.first].max())


def _unsure(series: Series, found: Ending) -> float:
    """How far latency from here on may be off its steady level, relative."""
    begin = series.bounds[found.first]
    left = 0.0
    if found.approach is not None:
        left = found.approach.left(series.span_ms - float(series.begins_ms[series.bounds[found.run]]))
    error = float(np.sqrt(series.noise / series.sizes[begin:].sum()))
    return (2 * error + left) / found.level


def _swings(levels: Floats, least: float) -> int:
    """How often levels change direction, by at least so much."""
    swings, direction, extreme = 0, 0.0, levels[0]
    for level in levels[1:]:
        moved = level - extreme
        if direction * moved > 0 or (direction == 0 and abs(moved) > least):
            direction, extreme = float(np.sign(moved)), level
        elif abs(moved) > least:
            swings, direction, extreme = swings + 1, -direction, level
    return swings


def _fast_ms(series: Series, found: Ending) -> float | None:
    """When quick changes were over, where a slower approach followed them."""
    if found.approach is None or found.run == 0:
        return None
    return float(series.begins_ms[series.bounds[found.run]])
