"""A simulated GPU in virtual time: a clock that only moves when somebody sleeps, and what is done on it."""

from gpuwarm.measure.seam import Loaded
from gpuwarm.measure.simulated import cold_start, past_reader
from gpuwarm.measure.simulation.load_log import LoadLog
from gpuwarm.measure.spec import EngineSpec
from gpuwarm.rows import SAMPLE_FIELDS

S, MS = 10**9, 10**6
Rows = list[tuple[int, float, float, float, float, float, float]]


class VirtualClock:
    """A clock that only moves when somebody sleeps."""

    def __init__(self, t_ns: int = 0) -> None:
        """Start at `t_ns`."""
        self.t_ns = t_ns

    def __call__(self) -> int:
        """The time, ns."""
        return self.t_ns

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.t_ns += max(round(seconds * 1e9), 0)


class Machine:
    """A simulated GPU in virtual time."""

    def __init__(self, profile: str) -> None:
        self.profile = profile
        self.clock = VirtualClock(100 * S)
        self.log = LoadLog()

    def start(self, plan: str = "heavy", **environment: str) -> tuple[dict[str, float], Loaded]:
        """A cold start; returns how long each step took, ms, and the engine."""
        spec = EngineSpec(plan=plan, simulate=self.profile)
        steps = cold_start(spec, clock=self.clock, sleep=self.clock.sleep, log=self.log, environment=environment)
        took: dict[str, float] = {}
        while True:
            begin_ns = self.clock()
            try:
                name = next(steps)
            except StopIteration as done:
                return took, done.value
            took[name] = (self.clock() - begin_ns) / MS

    def infer(self, loaded: Loaded, seconds: float) -> Rows:
        end_ns = self.clock() + round(seconds * S)
        rows = []
        while self.clock() < end_ns:
            rows.append(loaded.infer())
        return rows

    def samples(self, begin_ns: int, every_ms: int = 10) -> list[dict[str, float]]:
        read = past_reader(self.profile, self.log)
        return [dict(zip(SAMPLE_FIELDS, read(t), strict=True)) for t in range(begin_ns, self.clock(), every_ms * MS)]
