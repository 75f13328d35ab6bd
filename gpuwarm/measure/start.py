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
from types import SimpleNamespace
from typing import TYPE_CHECKING

from gpuwarm.measure import entry
from gpuwarm.measure.seam import ColdStart, Infer, Loaded
from gpuwarm.rows import ITERATION_FIELDS, RowWriter

if TYPE_CHECKING:
    from gpuwarm.measure.spec import PhaseSpec, StartSpec
    from gpuwarm.metadata import Phase

LONGEST_SLEEP_S = 1.0  # in a pause; a worker told to stop is killed after five


class Worker:
    """Runs one StartSpec; clock and sleep are seams, so that a simulated one runs in virtual time."""

    def __init__(self, spec: "StartSpec", *, clock: Callable[[], int], sleep: Callable[[float], None]) -> None:
        """Open the files of the start."""
        self.spec = spec
        self.stopping = False
        self._clock = clock
        self._sleep = sleep
        stem = f"{spec.folder}/start-{spec.index}"
        self._marks = os.open(f"{stem}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._rows = RowWriter(f"{stem}.rows", ITERATION_FIELDS)

    def mark(self, name: str, t_ns: int | None = None) -> None:
        """Leave a mark that survives SIGKILL; of now, unless a time is given."""
        os.write(self._marks, json.dumps({"mark": name, "t_ns": t_ns or self._clock()}).encode() + b"\n")

    def run(self, cold_start: ColdStart) -> dict[str, str]:
        """Do the whole start; returns the versions the engine found."""
        self.mark("gpuwarm")
        loaded = self._load(cold_start)
        try:
            for name in ("first_inference", "second_inference"):
                self._rows.append((self.spec.index, 0, *loaded.infer()))
                self.mark(name)
            loaded.attach_clock()
            self.mark("sm_clock")
            for number, phase in enumerate(self.spec.phases, 1):
                self._pause(loaded.touch, phase.phase)
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

    def _pause(self, touch: Callable[[], None], phase: "Phase") -> None:
        """Leave the GPU alone, or run a small kernel now and then; wakes up at times to see whether to stop."""
        now_ns = self._clock()
        end_ns = now_ns + round(phase.pause_s * 1e9)
        period_ns = None if phase.keep_alive_ms is None else round(phase.keep_alive_ms * 1e6)
        touch_ns = end_ns if period_ns is None else now_ns + period_ns
        while now_ns < end_ns and not self.stopping:
            wake_ns = min(touch_ns, end_ns, now_ns + round(LONGEST_SLEEP_S * 1e9))
            self._sleep(max(0.0, (wake_ns - now_ns) * 1e-9))
            if period_ns is not None and wake_ns == touch_ns < end_ns:
                touch()
                touch_ns = max(touch_ns + period_ns, self._clock())
            now_ns = self._clock()

    def _iterate(self, infer: Infer, number: int, phase: "PhaseSpec") -> None:
        clock, append, start = self._clock, self._rows.append, self.spec.index
        begin = due = clock()
        end = begin + round(phase.duration_s * 1e9)
        left = math.inf if phase.max_iterations is None else phase.max_iterations
        interval_ns = None if phase.phase.interval_ms is None else round(phase.phase.interval_ms * 1e6)
        while left > 0 and not self.stopping and clock() < end:
            append((start, number, *infer()))
            left -= 1
            if interval_ns is not None:
                due += interval_ns
                self._sleep(max(0.0, (due - clock()) * 1e-9))


def run(spec_json: bytes) -> dict[str, str]:
    """The worker process: one cold start; SIGTERM ends it after the iteration under way."""
    # Read by name and not as the dataclasses that it is: they and msgspec would double what a worker imports.
    spec: StartSpec = json.loads(spec_json, object_hook=lambda fields: SimpleNamespace(**fields))
    worker = Worker(spec, clock=time.monotonic_ns, sleep=time.sleep)

    def stop(*_: object) -> None:
        worker.stopping = True

    signal.signal(signal.SIGTERM, stop)
    worker.mark("interpreter", entry.BEGAN_NS)
    if spec.engine.simulate is None:
        from gpuwarm.measure.engine import cold_start
    else:
        from gpuwarm.measure.simulated import cold_start
    return worker.run(cold_start(spec.engine))
