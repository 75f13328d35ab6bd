"""The starts of `gpuwarm explain` on a simulated GPU in virtual time, as the recording they would have left."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace

import numpy as np
from virtual import S, VirtualClock

from gpuwarm.analysis.switches import (
    BACK_TO_BACK,
    BESIDE_CONTEXT,
    DRIVER_FREE,
    DRIVER_HELD,
    EAGER,
    PREDECESSOR,
    REFERENCE,
)
from gpuwarm.measure import simulated
from gpuwarm.measure.seam import ColdStart, Loaded
from gpuwarm.measure.simulation.load_log import CLIENT, CONTEXT, LoadLog
from gpuwarm.measure.simulation.profiles import Profile
from gpuwarm.measure.spec import EngineSpec
from gpuwarm.metadata import Mark, Metadata, Phase, Start, Study
from gpuwarm.recording import ITERATION, SAMPLE, Recording
from gpuwarm.studies.explain import ARMS, Arm
from gpuwarm.studies.order import order

PYTHON_MS = 40.0
BUSY = 24  # iterations after the cold ones: few, as these studies are about starts
WARMING = 120  # of those that warm the GPU up for the next start
COMPARED = (REFERENCE, EAGER, BESIDE_CONTEXT, BACK_TO_BACK, DRIVER_FREE, DRIVER_HELD)
UNSAMPLED = (DRIVER_FREE, DRIVER_HELD)


class VirtualStudy:
    """One study: every arm so many times, in random order."""

    def __init__(self, profile: str, plan: str, seed: int) -> None:
        self.profile, self.plan, self.seed = profile, plan, seed
        self.clock = VirtualClock(1000 * S)
        self.log = LoadLog()
        self.starts: list[Start] = []
        self.rows: list[tuple[float, ...]] = []
        self.noise = random.Random(f"python {seed}")

    def run(self, arms: Sequence[str], repeats: int) -> Recording:
        for sampled in (True, False):
            block = [arm for arm in arms if (arm not in UNSAMPLED) is sampled]
            with self._held(CLIENT if sampled else None):
                for one_round in order(block, repeats, self.seed):
                    for arm in one_round:
                        self._start(arm, ARMS[arm], sampled=sampled)
        meta = Metadata(simulated=self.profile, starts=tuple(self.starts), study=Study("explain", repeats, self.seed))
        return Recording(np.empty(0, SAMPLE), np.array(self.rows, ITERATION), meta)

    def _start(self, name: str, arm: Arm, *, sampled: bool) -> None:
        if arm.rested:
            self.clock.sleep(5.0)
        else:
            self._start(PREDECESSOR, ARMS[PREDECESSOR], sampled=sampled)
        environment = dict(arm.environment)
        if arm.cache_empty:
            environment["CUDA_CACHE_DISABLE"] = "1"  # the same as a new folder each time
        with self._held({"context": CONTEXT, "driver": CLIENT, None: None}[arm.beside]):
            marks = [Mark("process_start", self.clock())]
            self.clock.sleep(PYTHON_MS * (1 + self.noise.gauss(0, 0.04)) / 1e3)
            marks.append(Mark("interpreter", self.clock()))
            self._infer(name, marks, environment)
        phases = (Phase("first"), Phase("busy"))
        self.starts.append(Start(arm=name, sampled=sampled, marks=tuple(marks), phases=phases))

    def _infer(self, name: str, marks: list[Mark], environment: Mapping[str, str]) -> None:
        spec = EngineSpec(plan=self.plan, simulate=self.profile, seed=self.seed, sm_clock=False)
        seam = {"clock": self.clock, "sleep": self.clock.sleep, "log": self.log}
        loaded = self._load(simulated.cold_start(spec, environment=environment, **seam), marks)
        number = len(self.starts)
        for count in range(2 + (WARMING if name == PREDECESSOR else BUSY)):
            self.rows.append((number, 0 if count < 2 else 1, *loaded.infer()))
            if count == 0:
                marks.append(Mark("first_inference", self.clock()))
        loaded.close()

    def _load(self, steps: ColdStart, marks: list[Mark]) -> Loaded:
        while True:
            try:
                name = next(steps)
            except StopIteration as done:
                return done.value
            marks.append(Mark(name, self.clock()))

    @contextmanager
    def _held(self, kind: int | None) -> Iterator[None]:
        with ExitStack() as stack:
            if kind is not None:
                held = simulated.held(self.profile, self.log, kind, clock=self.clock, sleep=self.clock.sleep)
                stack.enter_context(held)
            yield


def still(profile: Profile) -> Profile:
    """The same without noise."""
    workloads = {
        name: replace(it, noise_pct=0.0, host_noise_pct=0.0, outliers=0.0) for name, it in profile.workloads.items()
    }
    return replace(profile, cold_noise_pct=0.0, workloads=workloads)
