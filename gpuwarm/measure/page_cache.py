"""Which part of a file is in the kernel's page cache; read a file of ours into it, or drop it from it."""

import ctypes
import mmap
import os
from pathlib import Path

_CHUNK_BYTES = 1 << 24
_RESIDENT = 1  # the bit of mincore's answer that counts; the others are not defined


def resident_pct(path: Path) -> float:
    """The share of the file's pages that are in memory. The kernel tells it of files that the user may write.

    Raises:
        OSError: it cannot be read, or the kernel does not tell.
    """
    size = path.stat().st_size
    if size == 0:
        return 100.0
    pages = -(-size // mmap.PAGESIZE)
    answer = (ctypes.c_ubyte * pages)()
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapped:
        first = ctypes.c_char.from_buffer(mapped)
        libc = ctypes.CDLL(None, use_errno=True)
        failed = libc.mincore(ctypes.c_void_p(ctypes.addressof(first)), ctypes.c_size_t(size), answer)
        number = ctypes.get_errno()
        del first  # the map cannot close while something points into it
    if failed:
        raise OSError(number, os.strerror(number))
    return 100 * sum(page & _RESIDENT for page in answer) / pages


def read(path: Path) -> None:
    """Bring the file into memory."""
    with path.open("rb") as file:
        while file.read(_CHUNK_BYTES):
            pass


def drop(path: Path) -> None:
    """Ask the kernel to forget the file's pages; it may not, as where the file system is memory itself."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
