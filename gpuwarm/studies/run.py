"""The main job: cold starts from rest, then continuous inference, while the GPU's state is sampled."""

from dataclasses import dataclass, replace
from pathlib import Path

from gpuwarm.errors import GpuwarmError
from gpuwarm.measure.spec import PhaseSpec
from gpuwarm.metadata import Metadata, Phase, Start
from gpuwarm.recording import Recording
from gpuwarm.studies.bench import Bench, Progress
from gpuwarm.studies.device import Device
from gpuwarm.studies.prepare import Model, Preparation
from gpuwarm.studies.watch import UNSEEN_REST_S

TYPICAL_REST_S = 2.5  # after a start on an H200; before the first start there is little to wait for
UNSAMPLED_STARTS = 3  # enough to tell a driver load of seconds from process starts of half a second


@dataclass(frozen=True)
class Protocol:
    """What `run` does."""

    starts: int = 5
    duration_s: float = 5.0  # of inference after the two cold ones, per start
    interval_ms: float | None = None  # between enqueues; None: back to back
    settle_timeout_s: float = 30.0
    period_ms: float | None = None  # of sampling; None: half of the sensors' refresh period, once that is seen

    def phases(self) -> tuple[PhaseSpec, ...]:
        """What each start does after the two cold inferences."""
        name = "busy" if self.interval_ms is None else "paced"
        return (PhaseSpec(Phase(name, self.interval_ms), self.duration_s),)


def run(
    device: Device, model: Model, protocol: Protocol, *, output: Path, command: str, progress: Progress
) -> Recording:
    """Measure `model` on `device` and write the recording to `output`.

    Raises:
        DeviceError, EngineError, InputError, RecordingError: with the sentence to show.
        KeyboardInterrupt: after what was measured has been written to `output`.
    """
    preparation = Preparation(model, device)
    with Bench(device, output, Metadata(command=command, simulated=device.simulate), progress) as bench:
        progress("looking at the GPU at rest")
        bench.begin_sampling(protocol.period_ms)
        prepared = preparation.finish(bench.part, progress)
        bench.keep(replace(bench.meta, workload=prepared.workload))
        for number in range(protocol.starts):
            rest = bench.settle(protocol.settle_timeout_s)
            progress(_outlook(protocol, bench.meta, number, rest.waited_s))
            # Simulated noise must differ between starts, as it does between real ones.
            engine = replace(prepared.engine, seed=prepared.engine.seed + number)
            start = bench.start(engine, protocol.phases(), rest=rest)
            # One worker may have been killed by chance; two in a row, or the only one, would only be killed again.
            if start.failure and not bench.anything_measured() and (number or protocol.starts == 1):
                raise GpuwarmError(start.failure)
        if _sampling_hides_driver_load(bench.meta):
            bench.end_sampling()
            for number in range(UNSAMPLED_STARTS):
                progress(f"start {number + 1} of {UNSAMPLED_STARTS} without any NVML client of gpuwarm's")
                bench.start(prepared.engine, (), rest=bench.settle(0), arm="unsampled")
    return Recording.load(output)


def _outlook(protocol: Protocol, meta: Metadata, number: int, rest_s: float) -> str:
    """What comes next and how long everything will take, from what the starts before took."""
    left = protocol.starts - number
    load_s = _load_s(meta.starts)
    estimate_s = left * (protocol.duration_s + load_s) + (left - 1) * max(rest_s, TYPICAL_REST_S)
    if _sampling_hides_driver_load(meta):
        estimate_s += UNSAMPLED_STARTS * (UNSEEN_REST_S + load_s)
    return f"start {number + 1} of {protocol.starts}; about {estimate_s:.0f} s left"


def _load_s(done: tuple[Start, ...]) -> float:
    """Seconds from process start to the second inference in the newest start; a guess before there is one."""
    typical_load_s = 1.0  # 0.5 s on an H200 with lazy loading; more where file caches are cold
    marks = {mark.name: mark.t_ns for mark in done[-1].marks} if done else {}
    if "second_inference" not in marks:
        return typical_load_s
    return (marks["second_inference"] - marks["process_start"]) * 1e-9


def _sampling_hides_driver_load(meta: Metadata) -> bool:
    """Whether the GPU's driver would unload between starts, if nothing of ours held it."""
    machine = meta.machine_before
    return machine is not None and any(gpu.persistence_mode == "off" for gpu in machine.gpus)
