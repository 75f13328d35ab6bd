"""Who loads a simulated GPU, and when: the one input of its state, shared by processes through a folder.

Every process that touches the GPU leaves its own file of spans, so that nothing has to be sent to anybody and any
process can work out the state for itself. A process that ends, ends its entry; one that was killed could not, but its
lock on its file is gone, and the first to see that writes down when.
"""

import atexit
import fcntl
import os
import struct
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

from gpuwarm.rows import HEADER, HEADER_BYTES, RowWriter

OPEN = 1 << 62  # the end of a span that has not ended, ns; later than any clock
CLIENT, CONTEXT, BUSY, CLIENT_CLOSED, CONTEXT_CLOSED, ENDED = range(6)
CLOSES = {CLIENT_CLOSED: CLIENT, CONTEXT_CLOSED: CONTEXT}
_CLOSED_BY = {kind: closed for closed, kind in CLOSES.items()}
SPAN_FIELDS = {
    "begin_ns": "q",  # the 8-byte values first, so that they are aligned and never seen half written
    "end_ns": "q",  # of a BUSY span; the others are closed by a row of their own
    "kind": "i",
    "load": "i",  # BUSY: index of the workload in its profile
}
MERGED_NS = 1_000_000  # work closer than this is one load: no governor or sensor sees a shorter pause
_LOOK_NS = 1_000_000  # other processes' files are read at most this often: asking every 35 us stays cheap
_ROW = struct.Struct("<" + "".join(SPAN_FIELDS.values()))
_numbers = count()

SpanRow = tuple[int, int, int, int]


@dataclass(eq=False)
class Span:
    """Something a process has or does from begin to end: a client, a context, or work."""

    kind: int
    begin_ns: int
    end_ns: int
    load: int
    pid: int | None

    @property
    def gone_ns(self) -> int:
        """When the GPU notices its end."""
        return self.end_ns + MERGED_NS if self.kind == BUSY else self.end_ns


@dataclass
class Entry:
    """What one process does to the GPU. `rows` only grows, but for the end of a last BUSY row."""

    pid: int | None = None
    rows: list[SpanRow] = field(default_factory=list)
    ended_ns: int | None = None
    writer: RowWriter | None = None
    file: int = -1  # of our own, to hold its lock; of another process, to read it

    def open(self, kind: int, t_ns: int) -> None:
        """Note that an NVML or CUDA client (CLIENT) or a context (CONTEXT) exists from now on."""
        self._append((t_ns, OPEN, kind, 0))

    def close(self, kind: int, t_ns: int) -> None:
        """Note that the newest of that kind is gone."""
        self._append((t_ns, t_ns, _CLOSED_BY[kind], 0))

    def busy(self, begin_ns: int, end_ns: int, load: int) -> None:
        """Note work of a workload; what follows at once extends the last row, so a long run stays small."""
        if self.rows:
            last_begin_ns, last_end_ns, kind, last_load = self.rows[-1]
            if kind == BUSY and load == last_load and last_begin_ns <= begin_ns <= last_end_ns + MERGED_NS:
                self.rows[-1] = (last_begin_ns, end_ns, BUSY, load)
                if self.writer is not None:
                    self.writer.replace_last(self.rows[-1])
                return
        self._append((begin_ns, end_ns, BUSY, load))

    def end(self, t_ns: int) -> None:
        """Note that the process is gone and with it all it held."""
        self._append((t_ns, t_ns, ENDED, 0))
        self.ended_ns = t_ns
        if self.writer is not None:
            self.writer.close()
            os.close(self.file)

    def leave(self) -> None:
        """End now, if that is still to do."""
        if self.ended_ns is None:
            self.end(time.monotonic_ns())

    def _append(self, row: SpanRow) -> None:
        self.rows.append(row)
        if self.writer is not None:
            self.writer.append(row)


class LoadLog:
    """All entries. Without a folder it lives in this process alone, for studies in virtual time."""

    def __init__(self, folder: Path | None = None) -> None:
        """Use `folder`, created where it is missing."""
        self.entries: list[Entry] = []
        self._folder = folder
        self._others: dict[str, Entry] = {}  # by file name; ours too, to know them again
        self._look_ns = -OPEN
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)

    def join(self) -> Entry:
        """An entry for this process."""
        if self._folder is None:
            entry = Entry()
        else:
            name = f"{os.getpid()}-{next(_numbers)}.rows"
            hidden = self._folder / f".{name}"
            writer = RowWriter(hidden, SPAN_FIELDS)
            file = os.open(hidden, os.O_RDONLY)
            fcntl.flock(file, fcntl.LOCK_EX)  # the kernel drops it when this process dies, however it dies
            hidden.rename(self._folder / name)
            entry = Entry(os.getpid(), writer=writer, file=file)
            self._others[name] = entry
            atexit.register(entry.leave)
        self.entries.append(entry)
        return entry

    def look(self, t_ns: int) -> None:
        """Take in what other processes have noted."""
        if self._folder is None or 0 <= t_ns - self._look_ns < _LOOK_NS:
            return
        self._look_ns = t_ns
        for name in os.listdir(self._folder):  # noqa: PTH208 -- in the loop of a sampler: a third of iterdir's time
            if name.endswith(".rows") and name not in self._others and name[0] != ".":
                entry = Entry(int(name.split("-")[0]), file=os.open(self._folder / name, os.O_RDONLY))
                self._others[name] = entry
                self.entries.append(entry)
        for name, entry in self._others.items():
            if entry.writer is None and entry.ended_ns is None:
                self._read(name, entry, t_ns)

    def _read(self, name: str, entry: Entry, t_ns: int) -> None:
        dead = _unlocked(entry.file)  # before reading: what a process wrote before it died must be read
        complete = HEADER.unpack(os.pread(entry.file, HEADER.size, 0))[2]
        first = max(len(entry.rows) - 1, 0)  # the last row may have been extended
        found = os.pread(entry.file, (complete - first) * _ROW.size, HEADER_BYTES + first * _ROW.size)
        entry.rows[first:] = list(_ROW.iter_unpack(found))
        if entry.rows and entry.rows[-1][2] == ENDED:
            entry.ended_ns = entry.rows[-1][0]
        elif dead:
            entry.ended_ns = self._time_of_death(name, t_ns)
            entry.rows.append((entry.ended_ns, entry.ended_ns, ENDED, 0))
        if entry.ended_ns is not None:
            os.close(entry.file)

    def _time_of_death(self, name: str, t_ns: int) -> int:
        """When a killed process was first found dead, by whichever process that was."""
        assert self._folder is not None
        certificate = (self._folder / name).with_suffix(".ended")
        draft = certificate.with_name(f".{certificate.name}.{os.getpid()}")
        draft.write_text(str(t_ns))
        try:
            certificate.hardlink_to(draft)
        except FileExistsError:
            return int(certificate.read_text())
        finally:
            draft.unlink()
        return t_ns


def _unlocked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True
