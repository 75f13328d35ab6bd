"""Options that say which engine to measure, on which GPU; the commands that measure share them."""

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gpuwarm.cli.parse import DAY_S, default_output, named_files, named_shapes, within
from gpuwarm.errors import InputError

if TYPE_CHECKING:
    from gpuwarm.studies.device import Device
    from gpuwarm.studies.prepare import Model


class Sync(str, Enum):
    """How the host waits for the GPU."""

    block = "block"
    spin = "spin"


ModelPath = Annotated[str | None, typer.Argument(help=".plan, .engine or .onnx; left out: a tiny bundled model.")]
Output = Annotated[Path | None, typer.Option("--output", "-o", help="Recording to write (.npz).")]
Simulate = Annotated[str | None, typer.Option(help="Use a simulated GPU: geforce, h200, laptop or cold-driver.")]
SyncHow = Annotated[Sync, typer.Option("--sync", help="How the host waits for the GPU.")]
GpuName = Annotated[str | None, typer.Option("--gpu", help="Index, UUID or PCI bus id, as nvidia-smi prints them.")]
Shapes = Annotated[
    list[str] | None, typer.Option("--shape", help="NAME:1x3x224x224, for a dynamic input; may be repeated.")
]
InputFiles = Annotated[
    list[str] | None, typer.Option("--input", help="NAME=FILE.npy instead of random data; may be repeated.")
]
EngineProfile = Annotated[int, typer.Option("--profile", min=0, help="Optimisation profile of the engine.")]
Plugins = Annotated[list[Path] | None, typer.Option("--plugin", help="Library with TensorRT plugins; may be repeated.")]
AllowHostCode = Annotated[bool, typer.Option("--allow-host-code", help="Load an engine that embeds code for the host.")]
Fp16 = Annotated[bool, typer.Option("--fp16", help="Build from ONNX with FP16 kernels allowed.")]
SettleTimeout = Annotated[float, within(0, DAY_S, help="Seconds to wait for the GPU to come to rest before a start.")]
PeriodMs = Annotated[
    float | None,
    within(0.5, 1000, help="Sampling period; left out: half of the sensors' refresh period."),
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of random inputs, of simulated noise and of a random order.")]
Verbose = Annotated[bool, typer.Option("--verbose", help="Show TensorRT's own messages.")]


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


def model_of(
    path: str | None,
    *,
    shape: list[str] | None,
    input_file: list[str] | None,
    profile: int,
    plugin: list[Path] | None,
    fp16: bool,
    allow_host_code: bool,
    seed: int,
    sync: Sync,
    verbose: bool,
) -> "Model":
    """What the user asks for.

    Raises:
        InputError: a shape or an input is not of the form it should have.
    """
    from gpuwarm.studies.prepare import Model

    return Model(
        path=path,
        shapes=named_shapes(shape or []),
        inputs=named_files(input_file or []),
        profile=profile,
        plugins=tuple(plugin or ()),
        fp16=fp16,
        allow_host_code=allow_host_code,
        seed=seed,
        sync=sync.value,
        verbose=verbose,
    )


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
