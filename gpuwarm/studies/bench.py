"""A measurement going on: its folder, its watch, and one cold start after another.

Studies (`run`, `explain`, `idle`) differ in which starts they make; everything that happens around a start is here.
"""

import fcntl
import os
import platform
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from types import TracebackType

import msgspec

from gpuwarm._version import __version__
from gpuwarm.errors import DeviceError, EngineError, GpuwarmError, RecordingError
from gpuwarm.machine import MachineState
from gpuwarm.measure import child
from gpuwarm.measure.spec import FIRST, EngineSpec, PhaseSpec, StartSpec
from gpuwarm.metadata import Mark, Metadata, Rest, Start
from gpuwarm.recording import Recording, read_marks, sample_files, write_meta
from gpuwarm.rows import SAMPLE_FIELDS, last_row
from gpuwarm.studies.device import Device
from gpuwarm.studies.watch import POLL_S, Watch, unwatched_rest

Progress = Callable[[str], None]
_LOCK = "lock"  # held by the process that measures into the folder


class Bench:
    """A measurement in `NAME.part/`. Leaving the context ends every child and keeps what was measured."""

    def __init__(
        self, device: Device, output: Path, meta: Metadata, progress: Progress, *, states_suffice: bool = False
    ) -> None:
        """Measure on `device` what will become `output`; whether states without inferences are worth keeping."""
        self.device = device
        self.meta = meta
        self.part = output.with_suffix(".part")
        self._output = output
        self._progress = progress
        self._states_suffice = states_suffice
        self._watch: Watch | None = None
        self._worker: child.Child | None = None

    def __enter__(self) -> "Bench":
        """Make the folder and write what is known before anything is measured.

        Raises:
            RecordingError: a measurement of that name is there already, or the place cannot be written.
        """
        _make_folder(self.part, self._output)
        with ExitStack() as undo:
            undo.callback(shutil.rmtree, self.part)
            self._lock = _lock(self.part)
            undo.callback(os.close, self._lock)
            if self.device.load_log is not None:
                Path(self.device.load_log).mkdir()
            now = datetime.now(timezone.utc).isoformat(timespec="milliseconds")
            machine = self.device.state()
            versions = _versions(machine)
            self.keep(replace(self.meta, complete=False, started_utc=now, machine_before=machine, versions=versions))
            undo.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the children; save the recording if anything was measured.

        Raises:
            RecordingError: it cannot be saved; it is left in its folder.
        """
        if self._worker is not None:
            self._worker.end()
        self.end_sampling()
        if isinstance(error, KeyboardInterrupt):
            when = f" once start {len(self.meta.starts)} had begun" if self.meta.starts else ""
            self.note(f"interrupted{when}: what was measured until then is here")
        elif error is not None:
            self.note(f"ended early: {error}")
        if self.anything_measured():
            if error is not None:
                self._progress(f"ended early; keeping what was measured until then in {self._output}")
            self._save()
        shutil.rmtree(self.part)
        os.close(self._lock)
        if isinstance(error, OSError):  # about the folder's files: what NVML, CUDA and TensorRT say are other errors
            raise RecordingError(
                f"the measurement ended early ({error.strerror}): make room for {self.part}, or choose another place "
                "with --output"
            ) from error

    def note(self, sentence: str) -> None:
        """Add a sentence about what went otherwise than planned."""
        self.keep(replace(self.meta, notes=(*self.meta.notes, sentence)))

    def keep(self, meta: Metadata) -> None:
        """Replace what is known about the measurement."""
        self.meta = meta
        write_meta(self.part, meta)

    def begin_sampling(self, period_ms: float | None, *, again: bool = False) -> None:
        """Start the sampler, again if it dies; the GPU's state at first sight is what rest means from now on.

        Raises:
            DeviceError: it cannot read the GPU.
            GpuwarmError: it ended, and without states there is nothing to record.
        """
        try:
            self._watch = Watch(self.device, self.part, period_ms)
        except DeviceError:
            raise
        except GpuwarmError as error:  # killed from outside: latency alone is still worth having
            self.note(f"the GPU's state could not be sampled: {error}")
            if not again:
                self.begin_sampling(period_ms, again=True)
            elif self._states_suffice:
                raise
        else:
            if again:
                self.note("sampling was begun again")

    def end_sampling(self) -> None:
        """End the sampler and keep what it says of itself."""
        if self._watch is None:
            return
        watch, self._watch = self._watch, None
        try:
            self.keep(replace(self.meta, sampling=watch.end()))
        except GpuwarmError as error:
            self.note(f"sampling ended early, so the GPU's state is missing after that: {error}")

    def _keep_sampling(self) -> None:
        """Sample on where the sampler has died: it may be killed by chance, but not twice.

        Raises:
            GpuwarmError: it was, in a study: starts with and without a sampler are not alike.
        """
        watch = self._watch
        if watch is None or watch.alive():
            return
        self.end_sampling()
        try:
            watch.begin_again()
        except GpuwarmError as error:
            if self.meta.study is not None:
                raise
            self.note(f"sampling could not be begun again: {error}")
        else:
            self._watch = watch
            self.note("sampling was begun again")

    def settle(self, timeout_s: float) -> Rest:
        """Let the GPU rest; without a sampler, for a fixed time.

        Raises:
            GpuwarmError: the sampler has died twice, in a study.
        """
        self._keep_sampling()
        if self._watch is None:
            return unwatched_rest()
        rest = self._watch.settle(timeout_s)
        return rest if self._watch.alive() else self.settle(timeout_s)

    def start(
        self,
        engine: EngineSpec,
        phases: Sequence[PhaseSpec],
        *,
        rest: Rest,
        arm: str = "sampled",
        environment: Mapping[str, str] | None = None,
    ) -> Start:
        """Make one cold start in a fresh process and wait for its end; one that dies is kept, with its failure.

        Raises:
            DeviceError, EngineError: the engine cannot run here; another try would end the same.
        """
        ended = self._watch is not None and not self._watch.alive()
        self._keep_sampling()
        sampled = self._watch is not None
        index = len(self.meta.starts)
        start = Start(
            arm=arm,
            sampled=sampled,
            phases=(FIRST, *(spec.phase for spec in phases)),
            rest=rest,
            counters_before_us=self.device.counters_us() if sampled else {},
        )
        # The start is in the metadata before its process is: a SIGKILL between the two loses nothing.
        self._keep_start(index, start)
        worker = self._worker = child.start(
            "gpuwarm.measure.start:run",
            StartSpec(index=index, folder=str(self.part), engine=engine, phases=tuple(phases)),
            stem=self.part / f"start-{index}",
            environment={**self.device.environment, **(environment or {})},
            show_log=engine.verbose,
        )
        start = replace(start, marks=(Mark("process_start", worker.started_ns),))
        self._keep_start(index, start)
        try:
            start = replace(start, failure=self._outcome(worker, index))
        except (DeviceError, EngineError) as error:
            self._keep_start(index, replace(start, failure=str(error)))
            raise
        if self._watch is not None:
            start = replace(start, counters_after_us=self.device.counters_us())
            if ended or not self._watch.alive():
                start = replace(start, disturbed="the process that samples had ended early")
        self._keep_start(index, start)
        return start

    def _outcome(self, worker: child.Child, index: int) -> str | None:
        """Wait for a worker; the sentence it died with, or None."""
        while worker.alive():
            time.sleep(POLL_S)
        try:
            versions = msgspec.json.decode(worker.wait(), type=dict[str, str])
        except (DeviceError, EngineError):
            raise
        except GpuwarmError as error:
            self.note(f"start {index + 1} was cut short: {error}")
            return str(error)
        self.keep(replace(self.meta, versions={**self.meta.versions, **versions}))
        return None

    def count_again(self) -> None:
        """The study's next start is made in place of a disturbed one."""
        assert self.meta.study is not None
        self.keep(replace(self.meta, study=replace(self.meta.study, made_again=self.meta.study.made_again + 1)))

    def amend(self, start: Start) -> None:
        """Replace what is known about the newest start."""
        self._keep_start(len(self.meta.starts) - 1, start)

    def anything_measured(self) -> bool:
        """Whether any start has given a result, or states are one and were sampled."""
        if self._states_suffice and any(last_row(path, SAMPLE_FIELDS) for path in sample_files(self.part)):
            return True
        return any(
            mark.name == "first_inference"
            for index in range(len(self.meta.starts))
            for mark in read_marks(self.part / f"start-{index}.jsonl")
        )

    def _keep_start(self, index: int, start: Start) -> None:
        self.keep(replace(self.meta, starts=(*self.meta.starts[:index], start)))

    def _save(self) -> None:
        try:
            self.keep(replace(self.meta, machine_after=self.device.state()))
        except DeviceError as error:
            self.note(f"the GPU could not be looked at afterwards: {error}")
        self.keep(replace(self.meta, complete=True))
        whole = self.part / self._output.name  # in the folder, so that a SIGKILL now leaves nothing beside it
        try:
            Recording.load(self.part).save(whole)
            whole.replace(self._output)
        except (RecordingError, OSError) as error:
            raise RecordingError(
                f"{error}; what was measured lies in {self.part}, and `gpuwarm analyze {self.part}` reads it"
            ) from error


def _versions(machine: MachineState) -> dict[str, str]:
    """What is known before a worker adds TensorRT's."""
    known = {
        "gpuwarm": __version__,
        "python": platform.python_version(),
        "driver": machine.driver_version,
        "nvml": machine.nvml_version,
    }
    return {name: version for name, version in known.items() if version is not None}


def _make_folder(part: Path, output: Path) -> None:
    if output.exists():
        raise RecordingError(f"{output} exists: choose another name with --output")
    try:
        part.mkdir(parents=True)
    except FileExistsError as error:
        if _locked(part):
            raise RecordingError(
                f"another gpuwarm is measuring into {part}: choose another name with --output"
            ) from error
        raise RecordingError(
            f"{part} holds a measurement that was cut short: read it with `gpuwarm analyze {part}`, or remove it"
        ) from error
    except OSError as error:
        raise RecordingError(f"cannot make {part}: {error.strerror}; choose another place with --output") from error


def _lock(part: Path) -> int:
    """Show, until this process ends or closes the file returned, that a measurement goes on here."""
    file = os.open(part / _LOCK, os.O_RDWR | os.O_CREAT)
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def _locked(part: Path) -> bool:
    with suppress(FileNotFoundError), (part / _LOCK).open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
