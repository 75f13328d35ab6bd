"""`nvidia-smi dmon` -> SmiLog: its columns, set apart by blanks, are put as a --query-gpu log would have them."""

import re
from dataclasses import replace

from gpuwarm.errors import InputError
from gpuwarm.read import smi_csv
from gpuwarm.read.smi_columns import Column
from gpuwarm.read.smi_log import SmiLog
from gpuwarm.read.text import ENDS_BYTES, printable

GOOD_COMMAND = "nvidia-smi dmon -s pcu -o DT -f FILE"
_FIELDS = {
    "gpu": "index",
    "pwr": "power.draw",
    "gtemp": "temperature.gpu",
    "temp": "temperature.gpu",  # before there was one of the memory
    "mtemp": "temperature.memory",
    "sm": "utilization.gpu",
    "mem": "utilization.memory",
    "mclk": "clocks.mem",
    "pclk": "clocks.sm",
    "fb": "memory.used",
}
_HEADER = re.compile(rb"(?m)^[ \t]*#[ \t#]*((?:Date|Time|gpu)\b[ \t\w,]*?)[ \t\r]*$")


def recognise(data: bytes) -> bool:
    """Whether there is dmon's header in it."""
    found = _HEADER.search(data, 0, ENDS_BYTES)
    header = b"" if found is None else found[1]
    labels = header.replace(b",", b" ").decode().split()
    # Commas stand in anybody's tables, too.
    return "gpu" in labels and (b"," not in header or len(_FIELDS.keys() & set(labels)) > 1)


def read(data: bytes, source: str) -> SmiLog:
    """Read a whole log.

    Raises:
        InputError: it is pmon's, its columns change, or it has no row.
    """
    if b"," in _HEADER.findall(data)[0]:  # --format csv
        data = data.replace(b",", b" ")
    headers = list(dict.fromkeys(b" ".join(header.split()) for header in _HEADER.findall(data)))
    if b"pid" in headers[0].split():
        raise InputError(
            f"{source} is of `nvidia-smi pmon`, which tells processes and no clocks: log with `{GOOD_COMMAND}`"
        )
    if len(headers) > 1:
        raise InputError(
            f"{source} changes its columns ({printable(headers[1].decode())}): give each part as a file of its own"
        )
    labels = headers[0].decode().lower().split()
    rows = re.sub(
        rb"(?m)^[ \t]*#[ \t#]*(?![ \t#\d]).*\n?|\^C", b"", data
    )  # a terminal echoes the Ctrl-C that ends dmon
    rows = re.sub(rb"(?m)^[ \t]*#?[ \t]*|[ \t\r]+$", b"", rows)  # a script that is quoted may hide rows behind #, too
    columns = [Column(_FIELDS.get(label, "")) for label in labels]
    timed = "time" in labels
    if timed:
        columns[labels.index("time")] = Column("timestamp")
        if labels[0] == "date":
            rows = re.sub(rb"(?m)^(\d{4})(\d\d)(\d\d)[ \t]+(?=\d)", rb"\1-\2-\3T", rows)
            columns = columns[1:]
    log = smi_csv.read_rows(re.sub(rb"[ \t]+", b",", rows), source, tuple(columns))
    if timed:
        return log
    note = f"the rows carry no time: one a second is assumed, dmon's default; `{GOOD_COMMAND}` writes times"
    return replace(log, clock="rows", notes=(*log.notes, note))
