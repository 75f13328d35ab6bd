"""Rows on disk that survive SIGKILL: what a sample and an iteration are, and the memory-mapped files they live in.

No numpy or pathlib here: a cold-start worker pays for every import, and its user's own program does not.
"""

import mmap
import os
import struct

from gpuwarm.errors import RecordingError

MAGIC = b"gpuwarm1"
HEADER = struct.Struct("<8sqq")  # magic, bytes a row, rows complete
HEADER_BYTES = 64
_COUNT = struct.Struct("<q")
_COUNT_OFFSET = 16
GROWTH_ROWS = (
    1 << 16
)  # 4 to 6 MB, which a file system gives in under 1 ms: rare and short in a loop of 20 us iterations

# name -> struct code: q = int64, i = int32, d = float64 with NaN for missing. The order is the order on disk.
SAMPLE_FIELDS = {
    "t_ns": "q",  # CLOCK_MONOTONIC when the reading began
    "read_ns": "d",  # what the reading took
    "pstate": "d",
    "sm_clock_mhz": "d",
    "mem_clock_mhz": "d",
    "power_mw": "d",  # instant
    "power_average_mw": "d",
    "temperature_c": "d",
    "memory_temperature_c": "d",
    "event_reasons": "d",  # NVML's bits
    "gpu_util_pct": "d",
    "pcie_gen": "d",
}
ITERATION_FIELDS = {
    "start": "i",  # which cold start, from 0
    "phase": "i",  # index into the start's phases
    "t_ns": "q",  # CLOCK_MONOTONIC when the enqueue (or the input copy before it) began
    "enqueue_ns": "d",  # host time inside the enqueue call
    "host_ns": "d",  # from t_ns to synchronised
    "h2d_ns": "d",
    "gpu_ns": "d",  # between CUDA events around the enqueue
    "d2h_ns": "d",
    "sm_clock_mhz": "d",  # measured on the GPU
}
PathLike = str | os.PathLike[str]
Row = tuple[float, ...]
SampleRow = tuple[float, ...]
IterationRow = tuple[float, ...]


class RowWriter:
    """Append rows to a memory-mapped file: no system call and no allocation a row. One writer a file.

    A row counts once it is whole: the count in the header is written after it, so a reader (or a load after SIGKILL)
    never sees half of one. What a reader may be looking at is assigned, not packed in place: pack_into zeroes first.
    """

    def __init__(self, path: PathLike, fields: dict[str, str]) -> None:
        """Create the file; it must not exist.

        Raises:
            RecordingError: there is no room for it.
        """
        self._path = path
        self._struct = struct.Struct("<" + "".join(fields.values()))
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        self._capacity = 0
        self.count = 0
        self._grow()
        HEADER.pack_into(self._map, 0, MAGIC, self._struct.size, 0)

    def _grow(self) -> None:
        """Map more of the file. The room is taken now: where there is none, writing to a mapping kills the process."""
        self._capacity += GROWTH_ROWS
        size = HEADER_BYTES + self._capacity * self._struct.size
        try:
            os.posix_fallocate(self._file, 0, size)
        except OSError as error:
            raise RecordingError(
                f"no room for {os.fspath(self._path)} ({error.strerror}): make some, or choose another --output"
            ) from error
        self._map = mmap.mmap(self._file, size)

    def append(self, row: Row) -> None:
        """Write one row, its values in the order of the fields.

        Raises:
            RecordingError: there is no room for more.
        """
        if self.count == self._capacity:
            self._map.close()
            self._grow()
        self._struct.pack_into(self._map, HEADER_BYTES + self.count * self._struct.size, *row)
        self.count += 1
        self._map[_COUNT_OFFSET : _COUNT_OFFSET + _COUNT.size] = _COUNT.pack(self.count)

    def replace_last(self, row: Row) -> None:
        """Overwrite the row written last; a reader sees each 8-byte value as it was or as it is."""
        offset = HEADER_BYTES + (self.count - 1) * self._struct.size
        self._map[offset : offset + self._struct.size] = self._struct.pack(*row)

    def close(self) -> None:
        """Cut the file to the rows it holds."""
        self._map.close()
        os.ftruncate(self._file, HEADER_BYTES + self.count * self._struct.size)
        os.close(self._file)


def whole_rows(path: PathLike, fields: dict[str, str]) -> bytes:
    """The bytes of every complete row, also while a writer appends or after it was killed.

    Raises:
        RecordingError: the file is not one of these, or holds rows of another shape.
    """
    size = struct.calcsize("<" + "".join(fields.values()))
    with open(path, "rb") as file:
        header = file.read(HEADER_BYTES)
        if len(header) < HEADER.size or header[:8] == bytes(8):
            return b""  # killed between creating the file and its first row
        magic, row_bytes, count = HEADER.unpack_from(header)
        if magic != MAGIC or row_bytes != size or count < 0:
            raise RecordingError(f"{path} does not hold rows of this version of gpuwarm: measure again")
        file.seek(HEADER_BYTES)
        rows = file.read(min(count * size, os.fstat(file.fileno()).st_size))
    return rows[: len(rows) // size * size]


def last_row(path: PathLike, fields: dict[str, str]) -> Row | None:
    """The newest complete row, or None while there is none; cheap enough to poll while a writer appends."""
    row = struct.Struct("<" + "".join(fields.values()))
    if not os.path.exists(path):
        return None
    with open(path, "rb") as file:
        header = file.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        count = HEADER.unpack(header)[2]
        if count == 0:
            return None
        file.seek(HEADER_BYTES + (count - 1) * row.size)
        return row.unpack(file.read(row.size))
