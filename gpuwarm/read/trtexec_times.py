"""trtexec's --exportTimes of TensorRT 7 to 11, whole or cut, one array or several -> iterations."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain

import msgspec
import numpy as np

from gpuwarm.errors import InputError
from gpuwarm.read.looks import looks_like
from gpuwarm.read.text import has_any
from gpuwarm.recording import ITERATION, Floats, Rows

GOOD_COMMAND = "trtexec --loadEngine=FILE --warmUp=0 --duration=10 --exportTimes=times.json"
CHUNK_BYTES = 1 << 23  # decoded at a time: rows as Python objects take more room than their text
REMOVED_MIN_MS = 20.0  # the first row of a whole file begins 0.4 to 4 ms after the run; --warmUp is 50 and more
REMOVED_MIN_ROWS = 3.0  # nor does it begin so many inferences late
OVERLAP_SHARE = 0.05  # of the rows that overlap the next: rounding alone makes fewer
SIX_DIGITS_MS = 10_000.0  # six digits are printed: from here on in steps of 0.1 ms
ARRAYS_MAX = 1000  # a run appended to the others
LATEST_MS = 1e12  # thirty years; a time beyond is no time
NS_PER_MS = 1e6

_MISSING = -1e300  # stands for C++'s nan, which JSON has no word for
_NAN = re.compile(rb":\s*(?:null|[-+]?(?:nan|inf)[a-z]*(?:\([^)]{0,20}\))?)", re.IGNORECASE)
_OBJECT = re.compile(rb"\{[^{}]*\}")
_NAMES = {
    "enqueue_begin": "startEnqMs",
    "enqueue_end": "endEnqMs",
    "compute_begin": "startComputeMs",
    "compute_end": "endComputeMs",
    "compute": "computeMs",
    "h2d": "h2dMs",
    "d2h": "d2hMs",
    "in_begin": "startInMs",  # TensorRT 7's names for the copies
    "in_end": "endInMs",
    "in_": "inMs",
    "out": "outMs",
}


_BEGIN = list(_NAMES).index("compute_begin")


class _Row(msgspec.Struct, gc=False, rename=_NAMES):
    """What is used of a row of any generation."""

    enqueue_begin: float = _MISSING
    enqueue_end: float = _MISSING
    compute_begin: float = _MISSING
    compute_end: float = _MISSING
    compute: float = _MISSING
    h2d: float = _MISSING
    d2h: float = _MISSING
    in_begin: float = _MISSING
    in_end: float = _MISSING
    in_: float = _MISSING
    out: float = _MISSING


_DECODER = msgspec.json.Decoder(list[_Row])


@dataclass(frozen=True)
class Times:
    """One array: the iterations of one run, t_ns since it began, and what is odd about them."""

    iterations: Rows
    removed_warmup_ms: float | None
    transfers: bool  # whether copies were timed
    notes: tuple[str, ...] = ()


def recognise(data: bytes) -> bool:
    """Whether there are rows of --exportTimes in it."""
    return has_any(data, (b'"startComputeMs"', b'"computeMs"'))


def read(data: bytes, source: str) -> tuple[Times, ...]:
    """Each array of the file that has rows.

    Raises:
        InputError: no row can be read.
    """
    found: list[Times] = []
    for begin, end, closed in _arrays(data):
        table, damaged = _table(data[begin:end])
        if len(found) == ARRAYS_MAX:
            raise InputError(f"{source} holds more than {ARRAYS_MAX} runs; give them as several files")
        table = table[np.abs(table[:, _BEGIN]) < LATEST_MS]  # not where it is NaN
        if table.shape[0]:
            found.append(_times(table, damaged=damaged, closed=closed, source=source))
    if not found:
        looks = looks_like(data[:CHUNK_BYTES].decode("utf-8", "replace"))
        raise InputError(f"{source} looks like {looks}, but no row can be read; make it again: `{GOOD_COMMAND}`")
    return tuple(found)


def _arrays(data: bytes) -> Iterator[tuple[int, int, bool]]:
    """(begin, end, whether its bracket closes) of each array with something in it; rows hold no brackets."""
    begin = 0
    while begin < len(data):
        end = data.find(b"]", begin)
        stop = len(data) if end < 0 else end
        if data.find(b"{", begin, stop) >= 0:
            yield begin, stop, end >= 0 or _only_rows(data[begin:stop])
        begin = stop + 1


def _only_rows(array: bytes) -> bool:
    """Whether rows stand there whole, without brackets around them, as `jq '.[]'` leaves them."""
    return b"[" not in array[: array.index(b"{")] and not array[array.rfind(b"}") + 1 :].strip()


def _table(array: bytes) -> tuple[Floats, int]:
    """The rows of an array by the fields of _Row, NaN for missing, and how many could not be read."""
    width = len(_NAMES)
    tables, damaged = [np.empty((0, width))], 0
    begin = array.find(b"{")
    while begin >= 0:
        end = array.rfind(b"}", begin, begin + CHUNK_BYTES) + 1
        if not end:  # the last row is cut
            break
        rows, bad = _decoded(array[begin:end])
        damaged += bad
        values = np.fromiter(chain.from_iterable(map(msgspec.structs.astuple, rows)), np.float64, width * len(rows))
        tables.append(values.reshape(-1, width))
        begin = array.find(b"{", end)
    table = np.concatenate(tables)
    table[table <= _MISSING] = np.nan
    return table, damaged


def _decoded(rows: bytes) -> tuple[list[_Row], int]:
    """Rows, and how many are none; one by one where they are not JSON together."""
    try:
        return _DECODER.decode(b"[" + rows + b"]"), 0
    except msgspec.DecodeError:
        pieces = _OBJECT.findall(_NAN.sub(b": -1e300", rows))
    found = [row for row in map(_row, pieces) if row is not None]
    return found, len(pieces) - len(found)


def _row(piece: bytes) -> _Row | None:
    try:
        return msgspec.json.decode(piece, type=_Row)
    except msgspec.DecodeError:
        return None


def _times(table: Floats, *, damaged: int, closed: bool, source: str) -> Times:
    row = dict(zip(_NAMES, table.T, strict=True))
    notes = []
    if damaged or not closed:
        lost = f"{damaged:,} of its rows could not be read" if damaged else "its end is missing"
        notes.append(f"{source} is cut or damaged: {lost}; what is whole was read")
    order = np.argsort(row["compute_begin"], kind="stable")
    row = {name: column[order] for name, column in row.items()}
    iterations, transfers = _iterations(row)
    without = int(np.isnan(iterations["gpu_ns"]).sum())
    if without:
        notes.append(f"{without:,} of its {iterations.size:,} rows have no compute time")
    removed_ms = _removed_warmup_ms(row)
    if removed_ms is not None:
        notes.append(
            f"trtexec left its warm-up out of the file: its first row is {removed_ms:,.1f} ms after the run began. "
            "With --warmUp=0 (and --noCudaGraph from TensorRT 11 on) it writes every inference"
        )
    notes += _oddities(row, transfers=transfers)
    return Times(iterations, removed_ms, transfers, tuple(notes))


def _iterations(row: Mapping[str, Floats]) -> tuple[Rows, bool]:
    """Rows of ITERATION on the GPU's time line, whose zero is the begin of the run, and whether copies were timed."""
    old = np.isfinite(row["in_"]).any()
    enqueue = row["enqueue_end"] - row["enqueue_begin"]
    h2d, d2h = (row["in_"], row["out"]) if old else (row["h2d"], row["d2h"])
    if old:
        inputs = row["in_end"] - row["in_begin"]
        # TensorRT 7.1 and 7.2 write the enqueue's times under the input's names, and the other way round.
        if _median(np.abs(h2d - enqueue)) < _median(np.abs(h2d - inputs)):
            enqueue = inputs
    transfers = bool(np.nanmax(np.concatenate([h2d, d2h, [0.0]])) > 0)
    iterations = blank_iterations(row["compute"].shape[0])
    iterations["t_ns"] = np.round(row["compute_begin"] * NS_PER_MS)
    told = row["enqueue_end"] < SIX_DIGITS_MS  # later the two times are told too coarsely for their difference
    iterations["enqueue_ns"] = np.where(told, enqueue * NS_PER_MS, np.nan)
    iterations["gpu_ns"] = np.where(row["compute"] > 0, row["compute"] * NS_PER_MS, np.nan)
    if transfers:
        iterations["h2d_ns"], iterations["d2h_ns"] = h2d * NS_PER_MS, d2h * NS_PER_MS
    return iterations, transfers


def blank_iterations(count: int) -> Rows:
    """Rows of ITERATION in which everything that can be is unknown."""
    rows = np.zeros(count, ITERATION)
    for name in ITERATION.names or ():
        if ITERATION[name].kind == "f":
            rows[name] = np.nan
    return rows


def _median(values: Floats) -> float:
    """Of what is known; NaN where nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if known.size else np.nan


def _removed_warmup_ms(row: Mapping[str, Floats]) -> float | None:
    """How long the run had gone on when the first row began; None where it is the first of all."""
    first = float(row["compute_begin"][0])
    late = first > REMOVED_MIN_MS and first > REMOVED_MIN_ROWS * _median(row["compute"])
    return first if late else None


def _oddities(row: Mapping[str, Floats], *, transfers: bool) -> Iterator[str]:
    begin, end = row["compute_begin"], row["compute_end"]
    overlapping = float(np.mean(begin[1:] < end[:-1] - _step_ms(end[:-1]))) if begin.size > 1 else 0.0
    if overlapping > OVERLAP_SHARE:
        yield (
            f"{overlapping:.0%} of the inferences begin before the one before them ends: several streams ran at once, "
            "their rows cannot be told apart, and each one's time has waiting for the others in it"
        )
    if not transfers:
        yield "copies to and from the GPU are not in the file (off by default from TensorRT 11 on, --noDataTransfers)"
    if begin[-1] >= SIX_DIGITS_MS:
        step_ms = float(_step_ms(begin[-1:])[0])
        yield (
            f"start times are printed with six digits, in steps of {step_ms:g} ms at the end; durations are exact, and "
            "the time to enqueue is taken from the first 10 s"
        )


def _step_ms(time_ms: Floats) -> Floats:
    """The last printed digit of a time with six."""
    return 10.0 ** (np.floor(np.log10(np.maximum(time_ms, 1.0))) - 5)
