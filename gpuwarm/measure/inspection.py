"""Load an engine once, in a child process of its own, and say what it takes and gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from gpuwarm.measure import cuda
from gpuwarm.measure.engine import Session
from gpuwarm.measure.plan import refuse_old_driver
from gpuwarm.metadata import Tensor


@dataclass(frozen=True)
class InspectSpec:
    """Which engine to look at."""

    plan: str
    runtime: str  # module to import
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # of dynamic inputs; default: optimum
    profile: int = 0
    plugins: tuple[str, ...] = ()
    allow_host_code: bool = False
    verbose: bool = False


@dataclass(frozen=True)
class Inspection:
    """What an engine takes and gives, and where that was asked."""

    name: str  # as its builder named the network
    inputs: tuple[Tensor, ...]  # shapes resolved
    outputs: tuple[Tensor, ...]  # a dimension that depends on the data is -1
    fixed: dict[str, tuple[int, ...]]  # inputs whose values are shapes: the profile's optimum, not for random data
    profiles: int
    gpu: cuda.VisibleGpu
    versions: dict[str, str]


def inspect(spec_json: bytes) -> Inspection:
    """Child target: load an engine once and say what it takes.

    Raises:
        DeviceError: no driver, no GPU, no TensorRT, or a driver too old for it.
        EngineError: the engine cannot be used, or not with these shapes.
    """
    spec = msgspec.json.decode(spec_json, type=InspectSpec)
    driver = cuda.import_driver()
    cuda_version = cuda.initialise(driver)
    refuse_old_driver(spec.runtime, cuda_version)
    context = cuda.Context(driver, "block")
    session = Session(spec.runtime, verbose=spec.verbose)
    session.start(spec.plugins, allow_host_code=spec.allow_host_code)
    session.load(spec.plan)
    session.prepare(context, spec.profile)
    shapes, fixed = session.resolve(spec.shapes, spec.profile)
    return Inspection(
        name=session.engine.name,
        inputs=tuple(Tensor(name, shape, session.dtype(name)[0]) for name, shape in shapes.items()),
        outputs=tuple(Tensor(name, session.shape(name), session.dtype(name)[0]) for name in session.names("OUTPUT")),
        fixed=fixed,
        profiles=session.engine.num_optimization_profiles,
        gpu=cuda.visible_gpu(driver, 0),
        versions={"cuda": cuda_version, "tensorrt": session.version, "runtime": spec.runtime},
    )
