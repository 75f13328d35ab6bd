"""What one measurement is, and its file.

One recording holds one GPU: state samples and iterations on one time base, and what was done to get them. While
measuring, children append rows to files in `NAME.part/`; finishing turns that folder into `NAME.npz`. `Recording.load`
takes both.
"""

import os
import re
import zipfile
import zlib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from gpuwarm.errors import RecordingError
from gpuwarm.metadata import Mark, Metadata
from gpuwarm.rows import ITERATION_FIELDS, SAMPLE_FIELDS, whole_rows

FORMAT = 1
CUT_SHORT = "the measurement was cut short: this is what its processes had written until then"
_NUMPY_CODES = {"q": "<i8", "i": "<i4", "d": "<f8"}
SAMPLE = np.dtype([(name, _NUMPY_CODES[code]) for name, code in SAMPLE_FIELDS.items()])
ITERATION = np.dtype([(name, _NUMPY_CODES[code]) for name, code in ITERATION_FIELDS.items()])
_TABLES = {"samples": SAMPLE, "iterations": ITERATION}
# What a file may take in memory: as a rule 4 to 13 times its size, as measured times compress by no more than 3.
UNPACKED_SHARE = 16
UNPACKED_BYTES = 32 << 20
LARGEST = 2.0**61  # in ns 73 years: nothing measured is beyond, and sums of two fit into 64 bits
# The head of an array as NumPy writes it; parsing any other that it takes may cost any time and memory.
_ARRAY = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([<|][fiu]\d)', 'fortran_order': False, 'shape': \(\d+,\), \} *\n", re.DOTALL
)
_NOT_READ = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)  # what msgspec raises of bytes
Rows = NDArray[np.void]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Recording:
    """Samples (n,) of SAMPLE, iterations (m,) of ITERATION by start and t_ns, and the metadata."""

    samples: Rows
    iterations: Rows
    meta: Metadata

    def save(self, path: Path) -> None:
        """Write to a temporary name beside `path`, then rename: `path` is whole or absent.

        Raises:
            RecordingError: the place cannot be written.
        """
        columns: dict[str, NDArray[Any]] = {"meta": np.frombuffer(_encode(self.meta), dtype=np.uint8)}
        for table, rows in zip(_TABLES, (self.samples, self.iterations), strict=True):
            for name in rows.dtype.names or ():
                column = rows[name]
                # Differences of a clock are small and alike, so they compress to a tenth of the times themselves.
                columns[f"{table}.{name}"] = np.diff(column, prepend=np.int64(0)) if name == "t_ns" else column
        temporary = path.with_name(f".gpuwarm-{os.getpid()}")
        try:
            with temporary.open("wb") as file:
                np.savez_compressed(file, allow_pickle=False, **columns)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        except OSError as error:
            raise RecordingError(
                f"cannot write {path} ({error.strerror}): make room, or choose another place with --output"
            ) from error
        finally:
            with suppress(OSError):  # as a rule it has been renamed
                temporary.unlink()

    @classmethod
    def load(cls, path: Path) -> "Recording":
        """Read `NAME.npz`, or the folder `NAME.part` that an interrupted measurement left.

        Raises:
            RecordingError: no such recording, not one, damaged, or written by a newer gpuwarm.
        """
        if path.is_dir():
            return _load_part(path)
        if not path.exists() and path.with_suffix(".part").is_dir():
            return _load_part(path.with_suffix(".part"))
        try:
            with zipfile.ZipFile(path) as archive:
                _refuse_bombs(archive, path.stat().st_size)
                meta = _decode(_column(archive, "meta", np.dtype(np.uint8)).tobytes(), path)
                samples, iterations = (_table(archive, table, dtype) for table, dtype in _TABLES.items())
                return _sound(cls(samples, iterations, meta), path)
        except FileNotFoundError as error:
            raise RecordingError(f"{path} does not exist: name a recording made by `gpuwarm run`") from error
        except (OSError, KeyError, ValueError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
            raise RecordingError(f"{path} is not a whole gpuwarm recording: make one with `gpuwarm run`") from error


def _refuse_bombs(archive: zipfile.ZipFile, file_bytes: int) -> None:
    """A ValueError where an archive would take more memory than any recording of its size does."""
    times = {table: archive.getinfo(f"{table}.t_ns.npy").file_size for table in _TABLES}
    rows_bytes = sum(dtype.itemsize * times[table] // dtype["t_ns"].itemsize for table, dtype in _TABLES.items())
    column_bytes = max(member.file_size for member in archive.infolist())
    if rows_bytes + column_bytes > UNPACKED_SHARE * file_bytes + UNPACKED_BYTES:
        raise ValueError("it would unpack to more than a recording does")


def _column(archive: zipfile.ZipFile, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    member = archive.read(f"{name}.npy")
    head = _ARRAY.match(member)
    if head is None or head[1].decode() != dtype.str:
        raise ValueError(f"{name} is not a column as gpuwarm writes it")
    return np.frombuffer(member, dtype, offset=head.end())


def _table(archive: zipfile.ZipFile, table: str, dtype: np.dtype[np.void]) -> Rows:
    """Columns of the file as rows; a column the file is too old to have is NaN."""
    times = np.cumsum(_column(archive, f"{table}.t_ns", dtype["t_ns"]))
    rows = np.zeros(times.shape[0], dtype)
    there = archive.namelist()
    for name in dtype.names or ():
        if name == "t_ns":
            rows[name] = times
        elif f"{table}.{name}.npy" in there:
            rows[name] = _column(archive, f"{table}.{name}", dtype[name])
        else:
            rows[name] = np.nan
    return rows


def _sound(recording: Recording, path: Path) -> Recording:
    """The same; a RecordingError where it holds a value that nothing can have measured."""
    for rows in (recording.samples, recording.iterations):
        for name in rows.dtype.names or ():
            lowest = 0 if name in ("start", "phase") else -LARGEST
            if (rows[name] < lowest).any() or (rows[name] > LARGEST).any():
                raise RecordingError(f"{path} is damaged ({name} has impossible values): make it again")
    return recording


class _Format(msgspec.Struct):
    format: int = FORMAT


def _encode(meta: Metadata) -> bytes:
    return msgspec.json.encode({"format": FORMAT, **msgspec.to_builtins(meta)})


def _decode(text: bytes, path: Path) -> Metadata:
    try:
        found = msgspec.json.decode(text, type=_Format).format
        if found > FORMAT:
            raise RecordingError(f"{path} has format {found}, newer than {FORMAT}: upgrade gpuwarm")
        return msgspec.json.decode(text, type=Metadata)
    except _NOT_READ as error:
        raise RecordingError(f"{path} has metadata that gpuwarm did not write ({error}): measure again") from error


# The folder of a measurement that is going on, or was cut short:
# meta.json           what the parent knows (Metadata), rewritten whole whenever it knows more
# samples.rows        the sampler's; samples-N.rows of those before it that died
# start-N.rows        worker N's iterations
# start-N.jsonl       worker N's marks, one {"mark", "t_ns"} a line; also {"error"} and {"workload"}


def write_meta(part: Path, meta: Metadata) -> None:
    """Replace the folder's metadata in one step.

    Raises:
        RecordingError: it cannot be written.
    """
    temporary = part / ".meta.json"
    try:
        temporary.write_bytes(_encode(meta))
        temporary.replace(part / "meta.json")
    except OSError as error:
        raise RecordingError(
            f"the measurement ended early ({error.strerror}); what there is of it lies in {part}: make room, or "
            "choose another place with --output"
        ) from error


def _load_part(part: Path) -> Recording:
    if not (part / "meta.json").exists():
        raise RecordingError(
            f"{part} is not the folder of a gpuwarm measurement: name a recording made by `gpuwarm run`"
        )
    meta = _decode((part / "meta.json").read_bytes(), part)
    starts = tuple(
        replace(start, marks=(*start.marks, *read_marks(part / f"start-{index}.jsonl")))
        for index, start in enumerate(meta.starts)
    )
    tables = [_rows(part / f"start-{index}.rows", ITERATION_FIELDS, ITERATION) for index in range(len(starts))]
    iterations = np.concatenate([np.empty(0, ITERATION), *tables])
    sampled = [_rows(path, SAMPLE_FIELDS, SAMPLE) for path in sample_files(part)]
    samples = np.concatenate([np.empty(0, SAMPLE), *sampled])
    notes = meta.notes if meta.complete else (*meta.notes, CUT_SHORT)
    return _sound(Recording(samples, iterations, replace(meta, starts=starts, notes=notes)), part)


def sample_files(part: Path) -> list[Path]:
    """Those that there are, in the order of time."""
    return [*sorted(part.glob("samples-*.rows")), *part.glob("samples.rows")]


def _rows(path: Path, fields: dict[str, str], dtype: np.dtype[np.void]) -> Rows:
    if not path.exists():
        return np.empty(0, dtype)
    return np.frombuffer(whole_rows(path, fields), dtype).copy()


class _Line(msgspec.Struct):
    mark: str | None = None
    t_ns: int | None = None


def read_marks(path: Path) -> tuple[Mark, ...]:
    """The marks a worker left; a last line cut by its death is dropped.

    Raises:
        RecordingError: another line is damaged.
    """
    if not path.exists():
        return ()
    try:
        lines = [msgspec.json.decode(line, type=_Line) for line in path.read_bytes().split(b"\n")[:-1]]
    except _NOT_READ as error:
        raise RecordingError(f"{path} is damaged ({error}): measure again") from error
    return tuple(Mark(line.mark, line.t_ns) for line in lines if line.mark is not None and line.t_ns is not None)
