"""`nvidia-smi dmon` -> SmiLog: its columns, set apart by blanks, are put as a --query-gpu log would have them."""

import re
from dataclasses import replace

from gpuwarm.errors import InputError
from gpuwarm.read import smi_csv
from gpuwarm.read.smi_columns import Column
from gpuwarm.read.smi_log import SmiLog
from gpuwarm.read.text import ENDS_BYTES, LONGEST_MARGIN, margin_shape, printable

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
    "pviol": "violation.power",
    "tviol": "violation.thermal",
}
# The names of the columns, with commas under --format csv; one of gpu's neighbours tells them from prose.
_NAMES = (
    rb"((?:(?:Date|Time),?[ \t]*){0,2}gpu\b(?=.{0,300}\b(?:pid|pwr|sm|fb|mclk|pviol|sbecc|rxpci)\b)[ \t\w,\r]{0,400})$"
)
# Something before every line, "#" (which Markdown takes for its own), the names.
_HEADER = re.compile(rb"(?m)^([^,\n]{0,%d}?)((?:#[ \t]*){0,3})\b%b" % (LONGEST_MARGIN, _NAMES))
_REPEATED = re.compile(rb"(?m)^[ \t#]*" + _NAMES)
_NO_ROW = (b"Date", b"Time", b"gpu", b"YYYYMMDD", b"HH:MM:SS", b"Idx")


def recognise(data: bytes) -> bool:
    """Whether there is dmon's header in it."""
    header = _HEADER.search(data, 0, ENDS_BYTES)
    return header is not None and (b"#" in header[0] or b"," not in header[0])  # commas stand in anybody's tables, too


def read(data: bytes, source: str) -> SmiLog:
    """Read a whole log.

    Raises:
        InputError: it is pmon's, its columns change, or it has no row.
    """
    header = _HEADER.search(data, 0, ENDS_BYTES)
    assert header is not None  # `recognise` saw it
    if header[1].strip(b" \t#"):
        margin = header[1].decode("utf-8", "replace")
        data = re.sub(rb"(?m)^" + margin_shape(margin).encode(), b"", data)
    names = (header[3], *_REPEATED.findall(data))
    headers = list(dict.fromkeys(b" ".join(h.replace(b",", b" ").split()) for h in names))
    if b"pid" in headers[0].split():
        raise InputError(
            f"{source} is of `nvidia-smi pmon`, which tells processes and no clocks: log with `{GOOD_COMMAND}`"
        )
    if len(headers) > 1:
        raise InputError(
            f"{source} changes its columns ({printable(headers[1].decode())}): give each part as a file of its own"
        )
    labels = headers[0].decode().lower().split()
    columns = [Column(_FIELDS.get(label, "")) for label in labels]
    timed = "time" in labels
    dated = timed and labels[0] == "date"
    if timed:
        columns[labels.index("time")] = Column("timestamp")
    blocks = smi_csv.blocks(data, 0, smi_csv.BLOCK_BYTES)
    rows = b"\n".join(_row(line, dated=dated) for begin, end in blocks for line in data[begin:end].split(b"\n"))
    log = smi_csv.read_rows(rows, source, tuple(columns[1:] if dated else columns))
    if timed:
        return log
    note = f"the rows carry no time: one a second is assumed, dmon's default; `{GOOD_COMMAND}` writes times"
    return replace(log, clock="rows", notes=(*log.notes, note))


def _row(line: bytes, *, dated: bool) -> bytes:
    """With commas between its cells, and a date before the time; nothing where it names columns or units."""
    # A script that is quoted may hide rows behind #, too; a terminal echoes the Ctrl-C that ends dmon.
    cells = line.lstrip(b" \t#").replace(b"^C", b"").replace(b",", b" ").split()
    if not cells or cells[0].startswith(_NO_ROW):
        return b""
    if dated and len(cells) > 1 and re.fullmatch(rb"\d{8}", cells[0]):
        day = cells.pop(0)
        cells[0] = b"%s-%s-%sT%s" % (day[:4], day[4:6], day[6:], cells[0])
    return b",".join(cells)
