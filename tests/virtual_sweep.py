"""The starts of `gpuwarm idle` on a simulated GPU in virtual time, by the worker that real ones have."""

from dataclasses import replace
from pathlib import Path

import numpy as np
from virtual import MS, S, VirtualClock

from gpuwarm.analysis.pauses import ALIVE
from gpuwarm.measure.simulated import cold_start, past_reader
from gpuwarm.measure.simulation.load_log import LoadLog
from gpuwarm.measure.spec import FIRST, EngineSpec, PhaseSpec, StartSpec
from gpuwarm.measure.start import Worker
from gpuwarm.metadata import Mark, Metadata, Phase, Start, Study
from gpuwarm.recording import SAMPLE, Recording, write_meta
from gpuwarm.studies.order import order

SAMPLED_NS = 50 * MS
BURST_S = {"geforce": 0.4, "h200": 0.03}  # as long as it takes to be warm, and some more
STILL = "-still"  # ends the names of profiles without noise


class VirtualSweep:
    """A study of pauses in virtual time, by the worker that real ones have."""

    def __init__(self, folder: Path, profile: str, seed: int) -> None:
        self.folder, self.profile, self.seed = folder, profile, seed
        self.clock = VirtualClock(1000 * S)
        self.log = LoadLog()
        self.starts: list[Start] = []
        folder.mkdir()

    def start(self, arm: str, phases: list[Phase]) -> None:
        self.clock.sleep(5.0)
        burst_s = BURST_S[self.profile.removesuffix(STILL)]
        specs = [PhaseSpec(Phase("busy"), burst_s), *(PhaseSpec(phase, burst_s) for phase in phases)]
        engine = EngineSpec(plan="medium", simulate=self.profile, seed=self.seed)
        spec = StartSpec(len(self.starts), str(self.folder), engine, tuple(specs))
        begun = Mark("process_start", self.clock())
        worker = Worker(spec, clock=self.clock, sleep=self.clock.sleep)
        worker.run(cold_start(engine, clock=self.clock, sleep=self.clock.sleep, log=self.log, environment={}))
        self.starts.append(Start(arm=arm, marks=(begun,), phases=(FIRST, *(each.phase for each in specs))))

    def unsampled(self) -> Recording:
        study = Study("idle", len(self.starts), self.seed)
        write_meta(self.folder, Metadata(simulated=self.profile, starts=tuple(self.starts), study=study))
        return Recording.load(self.folder)

    def recording(self) -> Recording:
        self.clock.sleep(5.0)
        read = past_reader(self.profile, self.log)
        samples = np.array([read(t) for t in range(1000 * S, self.clock(), SAMPLED_NS)], SAMPLE)
        return replace(self.unsampled(), samples=samples)


def sweep(folder: Path, profile: str, gaps_s: tuple[float, ...], *, seed: int = 0, repeats: int = 4) -> VirtualSweep:
    found = VirtualSweep(folder / f"{profile}-{seed}.part", profile, seed)
    for one_round in order(gaps_s, repeats, seed):
        found.start(ALIVE, [Phase("after pause", pause_s=gap) for gap in one_round])
    return found
