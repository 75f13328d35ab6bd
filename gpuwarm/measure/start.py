"""One cold start in a worker: marks until the second inference, then phases of iterations.

The engine comes as a generator that yields the name of each step once it is done (`engine.cold_start`,
`simulated.cold_start`): this module stamps what it yields, so that both are measured alike and neither knows of files.
"""

import json
import math
import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from gpuwarm.measure.seam import ColdStart, EngineSpec, Infer, Loaded
from gpuwarm.metadata import Phase
from gpuwarm.rows import ITERATION_FIELDS, RowWriter

FIRST = Phase("first")  # phase 0 of every start: the two cold inferences


@dataclass(frozen=True)
class PhaseSpec:
    """How long to infer and how densely."""

    phase: Phase
    duration_s: float
    pause_s: float = 0.0  # idle before it begins
    max_iterations: int | None = None


@dataclass(frozen=True)
class StartSpec:
    """One start: its number, its engine and what to do after the two cold inferences."""

    index: int
    folder: str  # the measurement's NAME.part
    engine: EngineSpec
    phases: tuple[PhaseSpec, ...] = field(default_factory=tuple)


class Worker:
    """Runs one StartSpec; clock and sleep are seams, so that a simulated one runs in virtual time."""

    def __init__(self, spec: StartSpec, *, clock: Callable[[], int], sleep: Callable[[float], None]) -> None:
        """Open the files of the start."""
        self.spec = spec
        self.stopping = False
        self._clock = clock
        self._sleep = sleep
        stem = Path(spec.folder) / f"start-{spec.index}"
        self._marks = os.open(stem.with_suffix(".jsonl"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._rows = RowWriter(stem.with_suffix(".rows"), ITERATION_FIELDS)

    def mark(self, name: str) -> None:
        """Leave a mark that survives SIGKILL."""
        os.write(self._marks, json.dumps({"mark": name, "t_ns": self._clock()}).encode() + b"\n")

    def run(self, cold_start: ColdStart) -> dict[str, str]:
        """Do the whole start; returns the versions the engine found."""
        self.mark("python")
        loaded = self._load(cold_start)
        try:
            for name in ("first_inference", "second_inference"):
                self._rows.append((self.spec.index, 0, *loaded.infer()))
                self.mark(name)
            loaded.attach_clock()
            self.mark("sm_clock")
            for number, phase in enumerate(self.spec.phases, 1):
                self._iterate(loaded.infer, number, phase)
        finally:
            loaded.close()
            self._rows.close()
            os.close(self._marks)
        return loaded.versions

    def _load(self, cold_start: ColdStart) -> Loaded:
        while True:
            try:
                name = next(cold_start)
            except StopIteration as done:
                loaded: Loaded = done.value
                return loaded
            self.mark(name)

    def _iterate(self, infer: Infer, number: int, phase: PhaseSpec) -> None:
        if phase.pause_s:
            self._sleep(phase.pause_s)
        clock, append, start = self._clock, self._rows.append, self.spec.index
        begin = due = clock()
        end = begin + round(phase.duration_s * 1e9)
        left = phase.max_iterations or math.inf
        interval_ns = None if phase.phase.interval_ms is None else round(phase.phase.interval_ms * 1e6)
        while left > 0 and not self.stopping and clock() < end:
            append((start, number, *infer()))
            left -= 1
            if interval_ns is not None:
                due += interval_ns
                self._sleep(max(0.0, (due - clock()) * 1e-9))


def run(spec_json: bytes) -> dict[str, str]:
    """The worker process: one cold start; SIGTERM ends it after the iteration under way."""
    spec = msgspec.json.decode(spec_json, type=StartSpec)
    worker = Worker(spec, clock=time.monotonic_ns, sleep=time.sleep)

    def stop(*_: object) -> None:
        worker.stopping = True

    signal.signal(signal.SIGTERM, stop)
    if spec.engine.simulate is None:
        from gpuwarm.measure.engine import cold_start
    else:
        from gpuwarm.measure.simulated import cold_start
    return worker.run(cold_start(spec.engine))
