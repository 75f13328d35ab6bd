"""Pauses of many lengths, in random order, to see how long a GPU may idle before it is cold again."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gpuwarm.analysis.controlled import disturbances
from gpuwarm.analysis.gaps import Situation, is_warm, situations
from gpuwarm.analysis.idled import DEFAULT_TOLERANCE
from gpuwarm.analysis.pauses import ALIVE, GONE, KEPT, pauses
from gpuwarm.errors import GpuwarmError
from gpuwarm.measure.spec import EngineSpec, PhaseSpec
from gpuwarm.metadata import Metadata, Phase, Rest, Study
from gpuwarm.recording import Recording
from gpuwarm.studies.bench import Bench
from gpuwarm.studies.device import Device
from gpuwarm.studies.order import order
from gpuwarm.studies.prepare import Model, Preparation

GAPS_S = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # two to a decade
GONE_GAPS_S = (0.1, 0.5, 2.0, 10.0)  # between processes; a process takes some 0.1 s to end, in which the GPU rests too
MIN_ROUNDS = 3  # before a sweep that shows no difference may end
KEPT_PAUSES = 3  # of each keep-alive period that is tried
KEPT_GAP_S = 10.0  # that the keep-alive is tried over, where no pause makes the GPU cold
KEPT_PERIOD_S = 1.0  # where none does, either
SHORTER = 4.0  # each next keep-alive period is shorter by this factor
MAX_PERIODS = 3
SHORTEST_PERIOD_S = 0.001  # a kernel more often than that is a load of its own
EXTRA_STARTS = 4  # in place of disturbed ones; a GPU that stays disturbed must not keep its user for ever
TYPICAL_START_S = 3.0  # a start with its rest, before any has been timed
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Protocol:
    """What `idle` does."""

    max_gap_s: float = 30.0
    repeats: int = 5
    seed: int = 0
    tolerance: float = DEFAULT_TOLERANCE
    budget_s: float | None = None
    warm_s: float = 2.0  # of inference before the first pause
    burst_s: float = 0.6  # of inference after each
    settle_timeout_s: float = 30.0
    period_ms: float | None = None

    def gaps_s(self) -> tuple[float, ...]:
        """The lengths of the pauses."""
        return (*(gap for gap in GAPS_S if gap < self.max_gap_s), self.max_gap_s)

    def estimate_s(self) -> float:
        """How long everything will take, where the first keep-alive tried keeps the GPU warm."""
        gaps = self.gaps_s()
        alive_s = self.repeats * (TYPICAL_START_S + self.warm_s + sum(gaps) + len(gaps) * self.burst_s)
        kept_s = TYPICAL_START_S + self.warm_s + KEPT_PAUSES * (self.max_gap_s + self.burst_s)
        gone = self.gone_gaps_s()
        gone_s = MIN_ROUNDS * (sum(gone) + len(gone) * (TYPICAL_START_S + self.burst_s))
        return alive_s + kept_s + gone_s

    def gone_gaps_s(self) -> tuple[float, ...]:
        """The pauses between processes."""
        return tuple(gap for gap in GONE_GAPS_S if gap <= self.max_gap_s)


def within_budget(protocol: Protocol) -> Protocol:
    """Fewer repeats, then shorter pauses, until the estimate fits."""
    budget_s = protocol.budget_s
    while budget_s is not None and protocol.estimate_s() > budget_s:
        gaps = protocol.gaps_s()
        if protocol.repeats > MIN_ROUNDS:
            protocol = replace(protocol, repeats=protocol.repeats - 1)
        elif len(gaps) > 1:
            protocol = replace(protocol, max_gap_s=gaps[-2])
        else:
            break
    return protocol


def idle(
    device: Device, model: Model, protocol: Protocol, *, output: Path, command: str, progress: Progress
) -> Recording:
    """Measure `model` on `device` after pauses and write the recording to `output`.

    Raises:
        DeviceError, EngineError, InputError, RecordingError: with the sentence to show.
        KeyboardInterrupt: after what was measured has been written to `output`.
    """
    preparation = Preparation(model, device)
    chosen = within_budget(protocol)
    study = Study("idle", chosen.repeats, chosen.seed, chosen.tolerance)
    with Bench(device, output, Metadata(command=command, simulated=device.simulate, study=study), progress) as bench:
        if chosen.max_gap_s < protocol.max_gap_s:
            bench.note(f"pauses over {chosen.max_gap_s:g} s did not fit into --budget-s {protocol.budget_s:g}")
        progress(f"this takes about {chosen.estimate_s():.0f} s, less where pauses turn out not to matter")
        bench.begin_sampling(chosen.period_ms)
        prepared = preparation.finish(bench.part, progress)
        bench.keep(replace(bench.meta, workload=prepared.workload))
        _Sweep(bench, prepared.engine, chosen, progress).run()
    return Recording.load(output)


class _Sweep:
    """The starts of one study."""

    def __init__(self, bench: Bench, engine: EngineSpec, protocol: Protocol, progress: Progress) -> None:
        self._bench = bench
        self._engine = engine
        self._protocol = protocol
        self._progress = progress
        self._end_s = time.monotonic() + protocol.estimate_s()
        self._extra = EXTRA_STARTS

    def run(self) -> None:
        """First with the context alive, then what keeps it warm, then without a context."""
        self._alive()
        self._kept()
        self._gone()
        self._bench.settle(self._protocol.settle_timeout_s)  # to see the clock fall after the last process, too

    def _alive(self) -> None:
        rounds = order(self._protocol.gaps_s(), self._protocol.repeats, self._protocol.seed)
        for number, gaps_s in enumerate(rounds):
            if number >= MIN_ROUNDS and self._nothing_changes():
                return
            self._tell(f"pauses with the context alive, round {number + 1} of {self._protocol.repeats}")
            self._start(ALIVE, [Phase("after pause", pause_s=gap) for gap in gaps_s])

    def _kept(self) -> None:
        """Try a small kernel as seldom as pauses allow that were warm, then more often until that keeps it warm."""
        alive = self._situation(ALIVE, None)
        if alive is None:
            return
        period_s, gap_s = _to_try(alive, self._protocol)
        for _ in range(MAX_PERIODS if _cold_s(alive) else 1):  # where nothing is cold, its power alone is of interest
            self._tell(f"a small kernel each {period_s:g} s in pauses of {gap_s:g} s")
            phase = Phase("after pause", pause_s=gap_s, keep_alive_ms=period_s * 1e3)
            self._start(KEPT, [phase] * KEPT_PAUSES)
            kept = self._situation(KEPT, phase.keep_alive_ms)
            if kept is None or is_warm(kept.after[-1], alive, self._protocol.tolerance):
                return
            period_s /= SHORTER
            if period_s < SHORTEST_PERIOD_S:
                return

    def _gone(self) -> None:
        """One process after the other, with pauses between; each is the next one's past."""
        gaps = self._protocol.gone_gaps_s()
        for gaps_s in order(gaps, MIN_ROUNDS, self._protocol.seed):
            for gap_s in gaps_s:
                self._tell(f"a new process {gap_s:g} s after the last")
                self._start(GONE, [], gap_s=gap_s)

    def _start(self, arm: str, after: Sequence[Phase], *, gap_s: float | None = None) -> None:
        """Make a start from rest, or so long after the last; again where something from outside disturbed it."""
        self._make(arm, after, gap_s)
        while self._extra and len(self._bench.meta.starts) - 1 in disturbances(self._bench.meta):
            self._extra -= 1
            self._bench.count_again()
            self._make(arm, after, gap_s)

    def _make(self, arm: str, after: Sequence[Phase], gap_s: float | None) -> None:
        number = len(self._bench.meta.starts)
        warm_s = self._protocol.warm_s if after else self._protocol.burst_s
        phases = [PhaseSpec(Phase("busy"), warm_s), *(PhaseSpec(phase, self._protocol.burst_s) for phase in after)]
        start = self._bench.start(
            replace(self._engine, seed=self._engine.seed + number, sm_clock=True),  # the stamps are the small kernel
            phases,
            rest=self._bench.settle(self._protocol.settle_timeout_s) if gap_s is None else _rest(gap_s),
            arm=arm,
        )
        self._bench.amend(replace(start, neighbours=self._bench.device.processes()))
        if start.failure is not None and number and not self._bench.anything_measured():
            raise GpuwarmError(start.failure)

    # -- what is known so far

    def _situation(self, name: str, keep_alive_ms: float | None) -> Situation | None:
        measured = pauses(Recording.load(self._bench.part))
        found = situations(measured, tolerance=self._protocol.tolerance)
        return next((each for each in found if (each.name, each.keep_alive_ms) == (name, keep_alive_ms)), None)

    def _nothing_changes(self) -> bool:
        """Whether the first inference is alike after every pause, within the tolerance."""
        alive = self._situation(ALIVE, None)
        if alive is None:
            return False
        slower_pct = [each.slower_pct.value for each in alive.after]
        return max(slower_pct) - min(slower_pct) <= 100 * self._protocol.tolerance

    def _tell(self, what: str) -> None:
        left_s = max(self._end_s - time.monotonic(), 0.0)
        self._progress(f"{what}; about {left_s:.0f} s left")


def _rest(gap_s: float) -> Rest:
    time.sleep(gap_s)
    return Rest(reached=False, waited_s=gap_s)


def _to_try(alive: Situation, protocol: Protocol) -> tuple[float, float]:
    """The keep-alive's first period, and the pause to try it over."""
    gaps = protocol.gaps_s()
    cold = _cold_s(alive)
    if not cold:
        gap_s = min(KEPT_GAP_S, gaps[-1])
        return min(KEPT_PERIOD_S, gap_s / 2), gap_s
    warm = [gap for gap in gaps if gap < min(cold)]
    return max(warm, default=gaps[0]), max(min(cold), min(KEPT_GAP_S, gaps[-1]))


def _cold_s(alive: Situation) -> list[float]:
    """Pauses after which the GPU is cold; where it never is, those after which latency is."""
    on_gpu = [each.gap_s for each in alive.after if each.on_gpu == "cold"]
    return on_gpu or [each.gap_s for each in alive.after if each.latency == "cold"]
