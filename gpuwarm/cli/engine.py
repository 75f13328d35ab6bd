"""Options that say which engine to measure, on which GPU; the commands that measure share them."""

import inspect
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from enum import Enum
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from gpuwarm.cli.files import report_at, write_report
from gpuwarm.cli.parse import DAY_S, default_output, named_files, named_shapes, progress, within
from gpuwarm.errors import InputError

if TYPE_CHECKING:
    from gpuwarm.analysis.answers import Answer
    from gpuwarm.recording import Recording
    from gpuwarm.studies.device import Device
    from gpuwarm.studies.prepare import Model


class Sync(str, Enum):
    """How the host waits for the GPU."""

    block = "block"
    spin = "spin"


Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Recording to write (.npz).")]
Simulate = Annotated[
    str | None, typer.Option(metavar="PROFILE", help="Use a simulated GPU: geforce, h200, laptop or cold-driver.")
]
GpuName = Annotated[
    str | None, typer.Option("--gpu", metavar="GPU", help="Index, UUID or PCI bus id, as nvidia-smi prints them.")
]
PeriodMs = Annotated[
    float | None,
    within(0.5, 1000, unit="MS", help="Sampling period; left out: half of the sensors' refresh period."),
]


@dataclass(frozen=True)
class Engine:
    """What to measure, on what and into what: options of each command that `takes_engine`."""

    model: Annotated[str | None, typer.Argument(help=".plan, .engine or .onnx; left out: a tiny bundled model.")] = None
    output: Output = None
    simulate: Simulate = None
    gpu: GpuName = None
    sync: Annotated[
        Sync, typer.Option("--sync", metavar="HOW", help="How the host waits for the GPU: block or spin.")
    ] = Sync.block
    shape: Annotated[
        list[str] | None,
        typer.Option("--shape", metavar="SHAPE", help="NAME:1x3x224x224, of a dynamic input; may be repeated."),
    ] = None
    input_file: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="INPUT", help="NAME=FILE.npy instead of random data; may be repeated."),
    ] = None
    profile: Annotated[
        int, typer.Option("--profile", min=0, metavar="N", help="Optimisation profile of the engine.")
    ] = 0
    plugin: Annotated[
        list[Path] | None,
        typer.Option("--plugin", metavar="FILE", help="Library with TensorRT plugins; may be repeated."),
    ] = None
    allow_host_code: Annotated[
        bool, typer.Option("--allow-host-code", help="Load an engine that embeds code for the host.")
    ] = False
    fp16: Annotated[bool, typer.Option("--fp16", help="Build from ONNX with FP16 kernels allowed.")] = False
    settle_timeout: Annotated[
        float, within(0, DAY_S, unit="SECONDS", help="Wait so long for the GPU to come to rest before a start.")
    ] = 30.0
    period_ms: PeriodMs = None
    seed: Annotated[
        int, typer.Option(min=0, metavar="N", help="Seed of random inputs, of simulated noise and of a random order.")
    ] = 0
    no_report: Annotated[bool, typer.Option("--no-report", help="Write no HTML report beside the recording.")] = False
    verbose: Annotated[bool, typer.Option("--verbose", help="Show TensorRT's own messages.")] = False

    def as_model(self) -> "Model":
        """What the user asks for.

        Raises:
            InputError: no such file, or a shape or an input is not of the form it should have.
        """
        from gpuwarm.studies.prepare import Model

        if self.model is not None and self.simulate is None and not Path(self.model).is_file():
            raise InputError(f"there is no file {self.model}: name a .plan, .engine or .onnx, or leave it out")
        return Model(
            path=self.model,
            shapes=named_shapes(self.shape or []),
            inputs=named_files(self.input_file or []),
            profile=self.profile,
            plugins=tuple(self.plugin or ()),
            fp16=self.fp16,
            allow_host_code=self.allow_host_code,
            seed=self.seed,
            sync=self.sync.value,
            verbose=self.verbose,
        )


def takes_engine(command: Callable[..., None]) -> Callable[..., None]:
    """A command with the fields of Engine as options where it has its parameter `engine`."""
    hints = get_type_hints(Engine, include_extras=True)
    shared = [
        inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=hints[each.name])
        for each in fields(Engine)
    ]
    own = inspect.signature(command).parameters.values()
    expanded = [option for each in own for option in (shared if each.name == "engine" else [each])]

    @wraps(command)
    def with_engine(**given: Any) -> None:
        engine = Engine(**{each.name: given.pop(each.name) for each in shared})
        command(engine=engine, **given)

    with_engine.__signature__ = inspect.Signature(expanded)  # type: ignore[attr-defined]
    return with_engine


@dataclass(frozen=True)
class Measured:
    """What was measured, and where it went."""

    recording: "Recording"
    place: Path
    page: Path | None  # where its report goes

    def report(self, answer: "Answer") -> None:
        """Write the report, where one is wanted."""
        if self.page is not None:
            write_report(self.page, self.recording, answer)
            progress(f"report:    {self.page}")


def measure(engine: Engine, study: Callable[..., "Recording"], protocol: object, **also: Any) -> Measured:
    """Carry out a study of an engine; `also` are fields of the model that only one command has options for.

    Raises:
        GpuwarmError: with the sentence to show.
    """
    place = recording_at(engine.output, engine.model, engine.simulate)
    page = report_at(place, wanted=not engine.no_report)
    model = replace(engine.as_model(), **also)
    device = device_for(engine.gpu, engine.simulate, place)
    command = shlex.join(["gpuwarm", *sys.argv[1:]])
    recording = study(device, model, protocol, output=place, command=command, progress=progress)
    progress(f"recording: {place}")
    return Measured(recording, place, page)


def recording_at(output: Path | None, model: str | None, simulate: str | None) -> Path:
    """Where the recording goes: a file NAME.npz.

    Raises:
        InputError: it cannot be a file.
    """
    if output is None:
        return default_output(model, simulate)
    if not output.name or output.is_dir():
        raise InputError(f"--output {output} is a folder: name a file in it, as in --output {output / 'run.npz'}")
    return output if output.suffix == ".npz" else output.with_name(f"{output.name}.npz")


def device_for(gpu: str | None, simulate: str | None, place: Path) -> "Device":
    """The GPU to measure into `place`.

    Raises:
        DeviceError: no driver, no such GPU.
        InputError: no such simulated GPU, or one and a real one.
    """
    from gpuwarm.studies.device import real_device, simulated_device

    if gpu is not None and simulate is not None:
        raise InputError("--gpu chooses among real GPUs, and --simulate needs none: leave one of them out")
    return real_device(gpu) if simulate is None else simulated_device(simulate, place.with_suffix(".part") / "load")
