"""What a model file is and which installed TensorRT fits it, told without loading either."""

import hashlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import gpuwarm
from gpuwarm.errors import DeviceError, EngineError
from gpuwarm.measure.engine import NAMES

BUNDLED_MODEL = Path(gpuwarm.__file__).parent / "data" / "tiny.onnx"

Kind = Literal["tensorrt", "tensorrt_lean", "tensorrt_dispatch", "tensorrt_rtx"]
Version = tuple[int, ...]

# A plan's first 28 bytes: magic, serialisation version, sizes, then the building version, one byte a part.
_HEADER_BYTES = 28
_MAGIC: dict[bytes, Literal["tensorrt", "tensorrt_rtx"]] = {b"ftrt": "tensorrt", b"vtrt": "tensorrt_rtx"}
_VERSION_AT = 24
_CAN_BUILD = ("tensorrt", "tensorrt_rtx")
# tensorrt, tensorrt_cu12, tensorrt_lean_cu13_bindings, ...: what it is, for which CUDA, and whether only the bindings.
_DISTRIBUTION = re.compile(r"(tensorrt(?:_lean|_dispatch|_rtx)?)(?:_cu(\d+))?(_bindings)?")
_INSTALL = (
    "pip install 'gpuwarm[cu13]' (driver 580 or newer), 'gpuwarm[cu12]' (older), 'gpuwarm[lean]' (runs engines built "
    "version-compatible) or 'gpuwarm[rtx]' (TensorRT-RTX engines)"
)

_LOOKS_LIKE = (  # what people hand over instead of an engine
    (b"version https://git-lfs", "a Git LFS pointer, not the file itself: `git lfs pull`"),
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint or a package?)"),
    (b"\x80\x02", "a Python pickle"),
    (b"\x80\x04", "a Python pickle"),
    (b"\x1f\x8b", "a gzip archive: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive: unpack it first"),
    (b"\x7fELF", "a program or shared library (for a plugin library use --plugin)"),
    (b"\x89HDF", "an HDF5 file"),
    (b"TRTT", "an engine of a TensorRT version that is no longer read, or a timing cache"),
)
_ONNX_STARTS = b"\x08\x12\x1a\x22\x2a\x32\x3a\x42"  # tags of ModelProto's fields 1 to 8
_TEXT_BYTES = 512
_CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class Runtime:
    """An installed TensorRT."""

    module: str  # to import
    kind: Kind
    version: str
    distribution: str
    cuda_major: int | None = None  # the CUDA it was built for, where its name tells

    @property
    def can_build(self) -> bool:
        """Whether it can build an engine from ONNX."""
        return self.kind in _CAN_BUILD

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} {self.version}"


@dataclass(frozen=True)
class ModelFile:
    """A file that some TensorRT can use."""

    path: Path
    format: Literal["tensorrt", "tensorrt_rtx", "onnx"]
    built_by: str | None = None  # version; None: ONNX


def read_model(path: Path) -> ModelFile:
    """Tell an engine or ONNX model by its first bytes.

    Raises:
        EngineError: it is neither; says what it looks like.
    """
    try:
        with path.open("rb") as file:
            head = file.read(_TEXT_BYTES)
    except FileNotFoundError as error:
        raise EngineError(f"{path} does not exist: give the path of a .plan, .engine or .onnx file") from error
    except OSError as error:
        raise EngineError(f"{path} cannot be read ({error.strerror}): look at its path and permissions") from error
    magic = _MAGIC.get(head[:4])
    if magic is not None and len(head) >= _HEADER_BYTES:
        return ModelFile(path, magic, ".".join(str(part) for part in head[_VERSION_AT:_HEADER_BYTES]))
    if path.suffix.lower() == ".onnx" and head[:1] and head[0] in _ONNX_STARTS and not _is_text(head):
        return ModelFile(path, "onnx")
    raise EngineError(
        f"{path} is not a TensorRT engine or ONNX model: it looks like {_likeness(head)}; give a .plan, .engine or "
        ".onnx file"
    )


def _is_text(head: bytes) -> bool:
    return all(byte >= ord(" ") or byte in b"\t\r\n" for byte in head)


def _likeness(head: bytes) -> str:
    if not head:
        return "an empty file"
    for start, what in _LOOKS_LIKE:
        if head.startswith(start):
            return what
    if head[:4] in _MAGIC:
        return "the first bytes of an engine, cut off: copy it again"
    if not _is_text(head):
        hint = " (an ONNX model? its name must end in .onnx)" if head[0] in _ONNX_STARTS else ""
        return f"binary data that begins with {head[:8].hex(' ')}{hint}"
    text = head.decode(errors="replace").lstrip().lower()
    if text.startswith(("<!doctype html", "<html")):
        return "a web page (a download that failed?)"
    return "text"


def installed_runtimes(path: list[str] | None = None) -> tuple[Runtime, ...]:
    """The TensorRT packages installed, by their metadata alone; one a module, full packages before bare bindings.

    Args:
        path: folders to look in; None: where Python looks.
    """
    found: dict[str, Runtime] = {}
    for distribution in metadata.distributions() if path is None else metadata.distributions(path=path):
        name = distribution.metadata["Name"]
        match = _DISTRIBUTION.fullmatch((name or "").lower().replace("-", "_"))
        if match is None:
            continue
        module = match[1] + (match[3] or "")
        runtime = Runtime(
            module=module,
            kind=match[1],  # type: ignore[arg-type]  # the pattern lists the kinds
            version=distribution.version,
            distribution=name,
            cuda_major=int(match[2]) if match[2] else None,
        )
        # `tensorrt` may be a shell around `tensorrt_cu13`; the latter, which tells the CUDA, gives the same module.
        if module not in found or runtime.cuda_major is not None:
            found[module] = runtime
    return tuple(sorted(found.values(), key=lambda runtime: (runtime.module.endswith("_bindings"), runtime.module)))


def choose_runtime(model: ModelFile, runtimes: Iterable[Runtime], *, allow_host_code: bool = False) -> Runtime:
    """The runtime that loads (or builds) this file; where only loading can tell, the likeliest.

    Raises:
        DeviceError: no TensorRT is installed.
        EngineError: none that is installed fits; says why.
    """
    installed = tuple(runtimes)
    if not installed:
        raise DeviceError(f"no TensorRT is installed: {_INSTALL}")
    listed = ", ".join(map(str, installed))
    if model.built_by is None:
        builders = [runtime for runtime in installed if runtime.can_build]
        if not builders:
            raise EngineError(
                f"{model.path.name} is an ONNX model and {listed} cannot build an engine from it: {_INSTALL}"
            )
        return builders[0]
    built_by = _parts(model.built_by)
    fitting = [it for it in installed if _may_load(model, built_by, it, allow_host_code=allow_host_code)]
    if not fitting:
        package = model.format.replace("_", "-")
        wanted = f"pip install '{package}=={'.'.join(model.built_by.split('.')[:3])}.*'"
        raise EngineError(
            f"{model.path.name} was built by {NAMES[model.format]} {model.built_by}, installed is {listed}: {wanted}, "
            "or build the engine again with what is installed"
        )
    return min(fitting, key=lambda runtime: (_parts(runtime.version)[:3] != built_by[:3], not runtime.can_build))


def refuse_old_driver(module: str, cuda_version: str) -> None:
    """Say so before TensorRT crashes on a driver older than its own CUDA.

    Raises:
        DeviceError: it is older.
    """
    for installed in installed_runtimes():
        needs = installed.cuda_major
        if installed.module == module and needs is not None and int(cuda_version.split(".")[0]) < needs:
            raise DeviceError(
                f"{installed} was made for CUDA {needs} and this driver serves CUDA {cuda_version} at most: update the "
                "driver, or install TensorRT for an older CUDA (pip install 'gpuwarm[cu12]')"
            )


def _may_load(model: ModelFile, built_by: Version, runtime: Runtime, *, allow_host_code: bool) -> bool:
    """Whether loading is worth a try.

    An engine runs on the version that built it. Built as VERSION_COMPATIBLE, which its header does not tell, it runs
    on later minor versions too and, where it brings its own lean runtime (host code), on later major ones.
    """
    if (model.format == "tensorrt_rtx") != (runtime.kind == "tensorrt_rtx"):
        return False
    version = _parts(runtime.version)
    if model.format == "tensorrt_rtx":
        return version[:2] == built_by[:2]
    if runtime.kind == "tensorrt_dispatch" or version[0] != built_by[0]:
        return allow_host_code and version[:2] >= built_by[:2]
    return version[:2] >= built_by[:2]


def _parts(version: str) -> Version:
    return tuple(int(part) for part in re.findall(r"\d+", version.split(".post")[0]))


def sha256(path: Path) -> str:
    """The SHA-256 of a file and of the external weights that an ONNX model names.

    Raises:
        EngineError: it cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for part in (path, *external_weights(path)):
            for chunk in _chunks(part):
                digest.update(chunk)
    except OSError as error:
        raise EngineError(f"{path} cannot be read ({error.strerror}): look at its path and permissions") from error
    return digest.hexdigest()


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


# ONNX: StringStringEntryProto {key: "location", value: file name}, as protobuf writes it; names under 128 bytes.
_LOCATION = re.compile(rb"\x0a\x08location\x12([\x01-\x7f])")


def external_weights(path: Path) -> list[Path]:
    """The files beside an ONNX model that hold its weights, in order of name; none for an engine."""
    if path.suffix.lower() != ".onnx":
        return []
    content = path.read_bytes()
    names = {content[match.end() : match.end() + match[1][0]] for match in _LOCATION.finditer(content)}
    files = (path.parent / os.fsdecode(name) for name in sorted(names))
    return [file for file in files if file.is_file()]


def cache_folder() -> Path:
    """Where built engines are kept.

    Raises:
        EngineError: nobody says where; a container's user may have no home.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return (Path(base) if base else Path.home() / ".cache") / "gpuwarm" / "engines"
    except RuntimeError as error:
        raise EngineError("there is no home folder to keep built engines in: set XDG_CACHE_HOME") from error
