"""Causes of a slow start by controlled runs: starts that differ in one thing, in random order, repeated."""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from gpuwarm.analysis import switches
from gpuwarm.analysis.controlled import FILE_DROPPED_PCT, disturbances
from gpuwarm.errors import DeviceError, EngineError, GpuwarmError
from gpuwarm.machine import MachineState
from gpuwarm.measure import child, page_cache
from gpuwarm.measure.holder import Held, HoldSpec
from gpuwarm.measure.spec import EngineSpec, PhaseSpec
from gpuwarm.metadata import Metadata, Phase, Study
from gpuwarm.recording import Recording
from gpuwarm.studies.bench import Bench
from gpuwarm.studies.device import Device
from gpuwarm.studies.order import order
from gpuwarm.studies.prepare import Model, Preparation
from gpuwarm.studies.watch import POLL_S

EXTRA_ROUNDS = 2  # to repeat disturbed starts in; a GPU that stays disturbed must not keep its user for ever
MIN_REFERENCE = 2  # starts, to tell how much they differ
HOLDER_READY_S = 60.0  # loading the driver of eight GPUs takes some ten seconds
TYPICAL_START_S = 4.0  # rest and start together, before any has been timed: 3 to 4 s on an H200
LAZY_BY_DEFAULT = (12, 2)  # CUDA on Linux loads modules lazily from this version on
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Protocol:
    """What `explain` does."""

    repeats: int = 5  # of every arm
    seed: int = 0  # of their order
    only: tuple[str, ...] = ()  # ids of the switches to test; empty: all
    budget_s: float | None = None  # what does not fit into it is left out, the least telling switch first
    steady_s: float = 0.5  # of inference after the two cold ones, to know what steady is
    settle_timeout_s: float = 30.0
    period_ms: float | None = None


@dataclass(frozen=True)
class Arm:
    """How a start differs from the reference."""

    environment: Mapping[str, str] = field(default_factory=dict)
    rested: bool = True
    file_dropped: bool = False
    cache_empty: bool = False
    beside: Held | None = None


ARMS = {
    switches.REFERENCE: Arm(),
    switches.FIRST: Arm(),
    switches.EAGER: Arm({"CUDA_MODULE_LOADING": "EAGER"}),
    switches.LAZY: Arm({"CUDA_MODULE_LOADING": "LAZY"}),
    switches.JIT_FORBIDDEN: Arm({"CUDA_DISABLE_PTX_JIT": "1"}),
    switches.JIT_CACHE_EMPTY: Arm(cache_empty=True),
    switches.FILE_DROPPED: Arm(file_dropped=True),
    switches.DRIVER_FREE: Arm(),
    switches.DRIVER_HELD: Arm(beside="driver"),
    switches.BESIDE_CONTEXT: Arm(beside="context"),
    switches.PREDECESSOR: Arm(),
    switches.BACK_TO_BACK: Arm(rested=False),
    switches.ALL_COLD: Arm(file_dropped=True, cache_empty=True),
}
_UNSAMPLED = (switches.DRIVER_FREE, switches.DRIVER_HELD, switches.ALL_COLD)  # a sampler would hold the driver


def explain(
    device: Device, model: Model, protocol: Protocol, *, output: Path, command: str, progress: Progress
) -> Recording:
    """Measure `model` on `device` under every switch and write the recording to `output`.

    Raises:
        DeviceError, EngineError, InputError, RecordingError: with the sentence to show.
        KeyboardInterrupt: after what was measured has been written to `output`.
    """
    preparation = Preparation(model, device)
    study = Study("explain", protocol.repeats, protocol.seed)
    with Bench(device, output, Metadata(command=command, simulated=device.simulate, study=study), progress) as bench:
        progress("looking at the GPU at rest")
        bench.begin_sampling(protocol.period_ms)
        prepared = preparation.finish(bench.part, progress)
        bench.keep(replace(bench.meta, workload=prepared.workload))
        _Experiment(bench, prepared.engine, protocol, progress).run()
    return Recording.load(output)


def arms_of(wanted: Sequence[str], machine: MachineState | None, environment: Mapping[str, str]) -> dict[str, str]:
    """The arms that test these switches, with the switch each belongs to; the most telling first."""
    found = {}
    for switch in switches.SWITCHES:
        if switch.id in wanted:
            for arm in (*switch.present, *switch.absent):
                if arm != switches.REFERENCE:
                    found[arm] = switch.id
    found.pop(switches.EAGER if _loads_eagerly(machine, environment) else switches.LAZY, None)
    return found


def _loads_eagerly(machine: MachineState | None, environment: Mapping[str, str]) -> bool:
    """What the reference does: as the user has set it, or else as this driver does by default."""
    asked = environment.get("CUDA_MODULE_LOADING")
    if asked is not None:
        return asked == "EAGER"
    version = machine.cuda_version if machine is not None else None
    if version is None:
        return False
    return tuple(int(part) for part in version.split(".")) < LAZY_BY_DEFAULT


class _Experiment:
    """The starts of one study, and what is left to do."""

    def __init__(self, bench: Bench, engine: EngineSpec, protocol: Protocol, progress: Progress) -> None:
        self._bench = bench
        self._engine = engine
        self._protocol = protocol
        self._progress = progress
        self._begun_s = time.monotonic()
        self._took_s: dict[str, list[float]] = {}
        self._plan: list[str] = []  # arms, one a start, in order
        self._copied = False  # whether the engine file is our own copy
        wanted = protocol.only or [switch.id for switch in switches.SWITCHES]
        self._arms = arms_of(wanted, bench.meta.machine_before, os.environ)  # still to be tested, with their switches

    def run(self) -> None:
        """See what can be tested here and fill the caches, then make every start."""
        for switch in switches.SWITCHES:
            if switch.id not in self._arms.values():
                self._leave_out(switch.id, "not asked for")
        if switches.FILE_DROPPED in self._arms:
            self._copy_engine()
        self._plan_starts()
        self._fill_caches()
        if switches.JIT_CACHE_EMPTY in self._arms:
            self._forbid_jit()
        sampled, unsampled = self._plan_starts()
        self._work_off(sampled)
        if unsampled:
            self._bench.end_sampling()
            self._work_off(unsampled)

    def _fill_caches(self) -> None:
        """One start to fill them; a worker may be killed by chance, but not twice."""
        self._start(switches.FIRST)
        if self._bench.meta.starts[-1].failure is not None:
            self._start(switches.FIRST, again=True)
        failure = self._bench.meta.starts[-1].failure
        if failure is not None:
            raise GpuwarmError(failure)

    # -- what is left to do

    def _plan_starts(self) -> tuple[list[str], list[str]]:
        """Plan every start that is left; returns the arms with and those without sampling."""
        self._arms.pop(switches.ALL_COLD, None)
        if switches.DRIVER_FREE in self._arms and {switches.FILE_DROPPED, switches.JIT_CACHE_EMPTY} & set(self._arms):
            self._arms[switches.ALL_COLD] = self._arms[switches.DRIVER_FREE]
        sampled = [switches.REFERENCE, *(arm for arm in self._arms if arm not in _UNSAMPLED)]
        unsampled = [arm for arm in self._arms if arm in _UNSAMPLED]
        rounds = [order(arms, self._protocol.repeats, self._protocol.seed) for arms in (sampled, unsampled)]
        self._plan = [arm for block in rounds for one_round in block for arm in one_round]
        return sampled, unsampled

    def _work_off(self, block: Sequence[str]) -> None:
        """Make the planned starts of these arms, then those again that were disturbed."""
        for extra in range(1 + EXTRA_ROUNDS):
            if extra:
                self._plan = [*self._lacking(block), *self._plan]
            while self._is_due(block):
                self._start(self._plan.pop(0), again=extra > 0)

    def _is_due(self, block: Sequence[str]) -> bool:
        self._keep_within_budget()
        return bool(self._plan) and self._plan[0] in block

    def _lacking(self, block: Sequence[str]) -> list[str]:
        """Arms still tested that lack a good start, as one was disturbed."""
        return [arm for arm in block if self._is_tested(arm) and self._good(arm) < self._protocol.repeats]

    def _good(self, arm: str) -> int:
        disturbed = disturbances(self._bench.meta)
        return sum(start.arm == arm and n not in disturbed for n, start in enumerate(self._bench.meta.starts))

    def _is_tested(self, arm: str) -> bool:
        return arm == switches.REFERENCE or arm in self._arms

    def _leave_out(self, switch_id: str, why: str) -> None:
        """Test a switch no more; what it gave so far is kept."""
        meta = self._bench.meta
        assert meta.study is not None
        study = replace(meta.study, not_tested={**meta.study.not_tested, switch_id: why})
        self._bench.keep(replace(meta, study=study))
        self._arms = {arm: own for arm, own in self._arms.items() if own != switch_id}
        self._plan = [arm for arm in self._plan if self._is_tested(arm)]

    def _keep_within_budget(self) -> None:
        """Leave out switches until the rest fits; where none are left, two starts of the reference are enough."""
        budget_s = self._protocol.budget_s
        if budget_s is None:
            return
        while self._arms and self._spent_s() + self._left_s() > budget_s:
            least_telling = [switch.id for switch in switches.SWITCHES if switch.id in self._arms.values()][-1]
            self._leave_out(least_telling, f"it did not fit into --budget-s {budget_s:g}")
        if not self._arms and self._spent_s() > budget_s and self._good(switches.REFERENCE) >= MIN_REFERENCE:
            self._plan = []

    def _spent_s(self) -> float:
        return time.monotonic() - self._begun_s

    def _left_s(self) -> float:
        """How long the plan will take, from what its arms took so far."""
        everything = [seconds for took in self._took_s.values() for seconds in took]
        usual_s = sum(everything) / len(everything) if everything else TYPICAL_START_S
        known_s = {arm: sum(took) / len(took) for arm, took in self._took_s.items()}
        return sum(known_s.get(arm, usual_s) for arm in self._plan)

    # -- one start

    def _start(self, name: str, *, again: bool = False) -> None:
        """Make a start of this arm; where this machine cannot, its switch is left out."""
        if again:
            self._bench.count_again()
        begun_s = time.monotonic()
        done = len(self._bench.meta.starts)
        self._progress(f"start {done + 1} of {done + 1 + len(self._plan)}: {name}; about {self._left_s():.0f} s left")
        try:
            self._make(name, ARMS[name])
        except (DeviceError, EngineError) as error:
            if name not in self._arms:
                raise
            self._leave_out(self._arms[name], str(error))
        self._took_s.setdefault(name, []).append(time.monotonic() - begun_s)

    def _make(self, name: str, arm: Arm) -> None:
        if not arm.rested:
            self._make(switches.PREDECESSOR, ARMS[switches.PREDECESSOR])
            if self._bench.meta.starts[-1].failure is not None:
                return  # the GPU is not as warm as this start needs it
        rest = self._bench.settle(self._protocol.settle_timeout_s if arm.rested else 0.0)
        cached_pct = self._arrange_file(dropped=arm.file_dropped)
        number = len(self._bench.meta.starts)
        with self._cache(empty=arm.cache_empty) as cache, self._beside(arm.beside, number) as neighbour:
            start = self._bench.start(
                replace(self._engine, seed=self._engine.seed + number),
                (PhaseSpec(Phase("busy"), self._protocol.steady_s),),
                rest=rest,
                arm=name,
                environment={"CUDA_CACHE_PATH": str(cache), **arm.environment},
            )
            if neighbour is not None and not neighbour.alive():
                start = replace(start, disturbed="gpuwarm's process beside it had ended early")
        self._bench.amend(replace(start, engine_file_cached_pct=cached_pct, neighbours=self._bench.device.processes()))
        if arm.file_dropped and cached_pct is not None and cached_pct > FILE_DROPPED_PCT:
            self._leave_out(self._arms[name], f"{cached_pct:.0f} % of the file stayed in memory though dropped")

    def _forbid_jit(self) -> None:
        """One start that fails where anything has to be compiled from PTX; our own stamps would, so it has none."""
        if self._works_without_jit() or self._works_without_jit():  # a worker may be killed by chance, but not twice
            self._leave_out("ptx-jit", "nothing is compiled here")
        elif os.environ.get("CUDA_CACHE_DISABLE") == "1":
            self._leave_out("ptx-jit", "CUDA_CACHE_DISABLE=1 is set: everything is compiled at every start")

    def _works_without_jit(self) -> bool:
        rest = self._bench.settle(0.0)
        engine = replace(self._engine, sm_clock=False)
        environment = {"CUDA_CACHE_PATH": str(self._own_cache), **ARMS[switches.JIT_FORBIDDEN].environment}
        try:
            start = self._bench.start(engine, (), rest=rest, arm=switches.JIT_FORBIDDEN, environment=environment)
        except (DeviceError, EngineError):  # the first start did what this one may not
            return False
        return start.failure is None

    # -- what an arm needs around its start

    @property
    def _own_cache(self) -> Path:
        """CUDA's cache of compiled PTX for this study alone: nothing is put into the user's, or taken from it."""
        return self._bench.part.resolve() / "compute-cache"

    @contextmanager
    def _cache(self, *, empty: bool) -> Iterator[Path]:
        if not empty:
            yield self._own_cache
            return
        folder = self._own_cache.with_name("compute-cache-empty")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _copy_engine(self) -> None:
        """Use a copy that may be dropped from memory, where the kernel does that here."""
        if self._engine.simulate is not None:
            self._leave_out("engine-file", "a simulated engine is no file")
            return
        source = Path(self._engine.plan)
        copy = self._bench.part.resolve() / f"engine{source.suffix}"
        try:
            shutil.copyfile(source, copy)
            page_cache.drop(copy)
            left_pct = page_cache.resident_pct(copy)
        except OSError as error:
            self._leave_out("engine-file", f"no copy of the engine file could be dropped from memory: {error.strerror}")
            return
        if left_pct > FILE_DROPPED_PCT:
            self._leave_out(
                "engine-file", f"the kernel kept {left_pct:.0f} % of the file in memory when told to drop it"
            )
            return
        self._engine = replace(self._engine, plan=str(copy))
        self._copied = True

    def _arrange_file(self, *, dropped: bool) -> float | None:
        """Put the engine file into memory or out of it; how much of it, in percent, is there afterwards."""
        if not self._copied:
            return None
        path = Path(self._engine.plan)
        (page_cache.drop if dropped else page_cache.read)(path)
        return page_cache.resident_pct(path)

    @contextmanager
    def _beside(self, what: Held | None, number: int) -> Iterator[child.Child | None]:
        """Have a process of ours hold the driver or a context meanwhile."""
        if what is None:
            yield None
            return
        try:
            holder = self._holder(what, number)
        except DeviceError:
            raise
        except GpuwarmError as error:  # it may be killed by chance, but not twice
            self._bench.note(f"gpuwarm's process beside start {number + 1} was started again: {error}")
            holder = self._holder(what, number)
        try:
            yield holder
        finally:
            holder.end()

    def _holder(self, what: Held, number: int) -> child.Child:
        """A process that has got hold of it."""
        device, ready = self._bench.device, self._bench.part / f"holder-{number}.ready"
        spec = HoldSpec(what, str(ready), gpu=device.gpu, simulate=device.simulate, load_log=device.load_log)
        stem = self._bench.part / f"holder-{number}"
        holder = child.start("gpuwarm.measure.holder:hold", spec, stem=stem, environment=device.environment)
        with ExitStack() as undo:
            undo.callback(holder.end)
            deadline_s = time.monotonic() + HOLDER_READY_S
            while not ready.exists():
                if not holder.alive():
                    holder.wait()
                if time.monotonic() > deadline_s:
                    raise DeviceError(f"another process could not get hold of the GPU within {HOLDER_READY_S:.0f} s")
                time.sleep(POLL_S)
            undo.pop_all()
        return holder
