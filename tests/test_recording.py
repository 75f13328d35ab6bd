"""The file in the middle: what is written comes back, and what is damaged is said."""

import math
import struct
import subprocess
import sys
import tracemalloc
import zipfile
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from gpuwarm.errors import RecordingError
from gpuwarm.metadata import Metadata, Phase, Sampling, Start
from gpuwarm.recording import CUT_SHORT, ITERATION, SAMPLE, Recording, write_meta
from gpuwarm.rows import HEADER, HEADER_BYTES, ITERATION_FIELDS, MAGIC, RowWriter, last_row, whole_rows


def row(t_ns: int) -> tuple[float, ...]:
    return (0, 1, t_ns, 5_000.0, 90_000.0, math.nan, 80_000.0, math.nan, 1980.0)


def recording(times: list[int]) -> Recording:
    iterations = np.array([row(t) for t in times], ITERATION)
    return Recording(np.zeros(0, SAMPLE), iterations, Metadata(starts=(Start(phases=(Phase("first"), Phase("busy"))),)))


def test_what_is_saved_is_loaded(tmp_path: Path):
    saved = recording([10**15, 10**15 + 100_000, 10**15 + 200_001])
    saved.save(tmp_path / "a.npz")
    loaded = Recording.load(tmp_path / "a.npz")
    assert loaded.iterations.tobytes() == saved.iterations.tobytes()
    assert loaded.meta == saved.meta


def test_a_cut_file_is_one_sentence(tmp_path: Path):
    recording([1, 2, 3]).save(tmp_path / "a.npz")
    whole = (tmp_path / "a.npz").read_bytes()
    for share in (0.0, 0.3, 0.9):
        (tmp_path / "cut.npz").write_bytes(whole[: int(share * len(whole))])
        with pytest.raises(RecordingError, match="not a whole gpuwarm recording"):
            Recording.load(tmp_path / "cut.npz")


def npy(head: str, data: bytes = bytes(8)) -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data


HEAD = "{'descr': %s, 'fortran_order': False, 'shape': (1,), }\n"
COLUMNS = {  # what stands for a column and is none; numpy.load takes any time, memory and kind of error over them
    "other numbers": npy(HEAD % "'|S8'"),
    "numbers of another width": npy(HEAD % "'<i4'"),
    "a head that ends nowhere": npy("{'descr': (\n"),
    "a head that is no Python": npy("{'descr' '<i8': 1\n"),
    "a head with much in it": npy(HEAD % ("(" * 5000)),
    "half a number": npy(HEAD % "'<i8'", bytes(7)),
    "nothing": b"",
}


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", ["meta.npy", "samples.t_ns.npy", "iterations.gpu_ns.npy"])
def test_a_column_that_is_none_is_a_sentence(tmp_path: Path, name: str, column: str):
    recording([1]).save(tmp_path / "a.npz")
    with zipfile.ZipFile(tmp_path / "a.npz") as whole, zipfile.ZipFile(tmp_path / "b.npz", "w") as damaged:
        for member in whole.namelist():
            damaged.writestr(member, COLUMNS[column] if member == name else whole.read(member))
    with pytest.raises(RecordingError, match=r"not a whole gpuwarm recording|metadata that gpuwarm did not write"):
        Recording.load(tmp_path / "b.npz")


def test_an_archive_that_unpacks_to_much_more_than_a_recording_is_refused_before_it_does(tmp_path: Path):
    Recording(np.zeros(1_000_000, SAMPLE), np.zeros(0, ITERATION), Metadata()).save(tmp_path / "a.npz")
    assert (tmp_path / "a.npz").stat().st_size < 200_000
    tracemalloc.start()
    with pytest.raises(RecordingError, match="not a whole gpuwarm recording"):
        Recording.load(tmp_path / "a.npz")
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak_bytes < 4 << 20


@pytest.mark.parametrize(
    ("name", "value"), [("start", -1), ("phase", -1), ("gpu_ns", 1e300), ("host_ns", -math.inf), ("t_ns", -(2**63))]
)
def test_values_that_nothing_measured_are_said_to_be_damage(tmp_path: Path, name: str, value: float):
    damaged = recording([1, 2])
    damaged.iterations[name][1] = value
    damaged.save(tmp_path / "a.npz")
    with pytest.raises(RecordingError, match=rf"a.npz is damaged \({name} has impossible values\)"):
        Recording.load(tmp_path / "a.npz")


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"format": {}}', b'{"notes": "\xff"}', b'{"x":' + b"[" * 5000])
def test_metadata_that_is_none_is_a_sentence(tmp_path: Path, text: bytes):
    (tmp_path / "meta.json").write_bytes(text)
    with pytest.raises(RecordingError, match="has metadata that gpuwarm did not write"):
        Recording.load(tmp_path)


def test_what_older_metadata_lacks_is_null_when_it_is_written_again():
    old = msgspec.json.decode(b'{"sampling": {"period_ms": 20.0}, "starts": [{}]}', type=Metadata)
    new = Metadata(sampling=Sampling(period_ms=20.0), starts=(Start(),))
    assert msgspec.json.encode(old) == msgspec.json.encode(new)


def test_a_newer_format_is_refused_by_name(tmp_path: Path):
    write_meta(tmp_path, Metadata())
    text = (tmp_path / "meta.json").read_text().replace('"format":1', '"format":99')
    (tmp_path / "meta.json").write_text(text)
    with pytest.raises(RecordingError, match="format 99, newer than 1: upgrade gpuwarm"):
        Recording.load(tmp_path)


def test_rows_survive_their_writer(tmp_path: Path):
    """A writer that is never closed, as after SIGKILL, and one cut in the middle of a row."""
    write_meta(tmp_path, replace(recording([]).meta))
    writer = RowWriter(tmp_path / "start-0.rows", ITERATION_FIELDS)
    for t in (10, 20, 30):
        writer.append(row(t))
    assert last_row(tmp_path / "start-0.rows", ITERATION_FIELDS) == pytest.approx(row(30), nan_ok=True)
    assert Recording.load(tmp_path).iterations["t_ns"].tolist() == [10, 20, 30]
    whole = (tmp_path / "start-0.rows").read_bytes()
    size = struct.calcsize("<" + "".join(ITERATION_FIELDS.values()))
    (tmp_path / "start-0.rows").write_bytes(whole[: HEADER_BYTES + 2 * size + 7])
    assert Recording.load(tmp_path).iterations["t_ns"].tolist() == [10, 20]
    writer.close()


def test_an_empty_rows_file_holds_no_rows(tmp_path: Path):
    (tmp_path / "r").write_bytes(b"")
    assert whole_rows(tmp_path / "r", ITERATION_FIELDS) == b""
    assert last_row(tmp_path / "r", ITERATION_FIELDS) is None


HAMMER = """
import sys
import tracemalloc
import zipfile
from pathlib import Path
from gpuwarm.rows import RowWriter
writer = RowWriter(Path(sys.argv[1]), {"a_ns": "q", "b_ns": "q"})
while True:
    writer.append((1 << 62, 1 << 62))
    for a_ns in range(50):
        writer.replace_last(((1 << 62) + a_ns, 1 << 62))
"""


def test_a_reader_never_sees_a_value_half_written(tmp_path: Path):
    fields = {"a_ns": "q", "b_ns": "q"}
    with subprocess.Popen([sys.executable, "-c", HAMMER, str(tmp_path / "r")]) as writer:
        while last_row(tmp_path / "r", fields) is None:
            assert writer.poll() is None
        seen = [last_row(tmp_path / "r", fields) for _ in range(5000)]
        writer.kill()
    assert all(row is not None and min(row) >= 1 << 62 for row in seen)


def test_growing_keeps_what_was_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpuwarm.rows.GROWTH_ROWS", 4)
    writer = RowWriter(tmp_path / "r", ITERATION_FIELDS)
    for t in range(1, 11):
        writer.append(row(t))
    writer.close()
    rows = np.frombuffer(whole_rows(tmp_path / "r", ITERATION_FIELDS), ITERATION)
    assert rows["t_ns"].tolist() == list(range(1, 11))


def test_marks_of_a_killed_worker_load_without_its_last_half_line(tmp_path: Path):
    write_meta(tmp_path, recording([]).meta)
    (tmp_path / "start-0.jsonl").write_bytes(b'{"mark": "interpreter", "t_ns": 5}\n{"mark": "conte')
    assert [mark.name for mark in Recording.load(tmp_path).meta.starts[0].marks] == ["interpreter"]


@pytest.mark.parametrize(
    "line", [b'{"mark": "interpreter"\n', b"\xff\n", b'{"mark": 1}\n', b'{"x":' + b"[" * 5000 + b"\n"]
)
def test_marks_that_are_damaged_are_a_sentence(tmp_path: Path, line: bytes):
    write_meta(tmp_path, recording([]).meta)
    (tmp_path / "start-0.jsonl").write_bytes(line)
    with pytest.raises(RecordingError, match=r"start-0\.jsonl is damaged"):
        Recording.load(tmp_path)


@pytest.mark.parametrize("count", [-1, -5, 2**40, 2**62])
def test_a_count_of_rows_that_cannot_be_is_damage_or_no_more_than_the_file_holds(tmp_path: Path, count: int):
    size = struct.calcsize("<" + "".join(ITERATION_FIELDS.values()))
    (tmp_path / "r").write_bytes(HEADER.pack(MAGIC, size, count).ljust(HEADER_BYTES, b"\0") + bytes(3 * size))
    if count < 0:
        with pytest.raises(RecordingError, match="does not hold rows"):
            whole_rows(tmp_path / "r", ITERATION_FIELDS)
    else:
        assert whole_rows(tmp_path / "r", ITERATION_FIELDS) == bytes(3 * size)


def test_a_measurement_cut_short_says_so_when_it_is_loaded(tmp_path: Path):
    write_meta(tmp_path, replace(recording([]).meta, complete=False))
    assert Recording.load(tmp_path).meta.notes == (CUT_SHORT,)
