"""Fuzz, guided by coverage, everything that reads a stranger's file: [READER...] [--minutes 10] [--cases FOLDER].

What breaks a bar is read again in a process of its own and, if it breaks it there too, kept and named. Fuzzing
processes live for two minutes each, as they grow; the corpus stays.
"""

import argparse
import importlib.util
import re
import resource
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

ROOT = Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
INSTRUMENTED = ["gpuwarm.read", "gpuwarm.analysis", "gpuwarm.recording", "gpuwarm.rows", "gpuwarm.load"]
FUZZING = "--one-round" in sys.argv  # what such a process imports from here on is instrumented
if FUZZING:
    import atheris
with atheris.instrument_imports(include=INSTRUMENTED) if FUZZING else nullcontext():
    from gpuwarm.analysis import advice, answers, checks, compare, fleet
    from gpuwarm.analysis.advice import Advice
    from gpuwarm.analysis.checks import baseline, report
    from gpuwarm.errors import GpuwarmError
    from gpuwarm.machine import MachineState
    from gpuwarm.read import nvidia_smi, trtexec
    from gpuwarm.read.files import recordings
    from gpuwarm.read.join import join
    from gpuwarm.recording import Recording, write_meta
    from gpuwarm.rows import ITERATION_FIELDS, SAMPLE_FIELDS, RowWriter
    from gpuwarm.show import comparison, machine, pages
    from gpuwarm.show.export import FORMATS
    from gpuwarm.studies import inputs
import examples  # noqa: E402 -- lies among the tests
import hostile  # noqa: E402

LONGEST_S = 2.0  # of processor time, for
SIZE = 1 << 20  # bytes
MEMORY_SHARE = 20  # of the input,
MEMORY_BYTES = 64 << 20  # and so much besides
HANG_S = 60  # no call lasts so long, instrumented as it is
ROUND_S = 120
SEED_BYTES = 14_000  # libFuzzer's own inputs are no longer; those that repeat a piece of one are
# One in so many inputs is grown to so many bytes; it takes as long as these many others. What takes a time that grows
# with the square of the length shows in 64 KiB, too.
GROWN = {1000: SIZE, 60: SIZE >> 4}
DOUBTS_MAX = 5  # a round, of slow and large ones, which only a process of its own can judge
PROCESS_MB = 4000
ANSWERED_MAX = 3  # of the runs in an input: it is about reading
CUT = b"\n%%%%\n"  # between the files of one input
COLUMNS = [*(("samples", name) for name in SAMPLE_FIELDS), *(("iterations", name) for name in ITERATION_FIELDS)]
FOLDER = Path(tempfile.mkdtemp(prefix="fuzz-", dir="/dev/shm" if Path("/dev/shm").is_dir() else None))


@dataclass(frozen=True)
class Reader:
    """What reads an input, and what it is fed with at first."""

    read: Callable[[bytes], object]
    seeds: Sequence[bytes]
    cases: Sequence[str] = ()  # patterns of files in the folder of cases


def _check(data: bytes) -> None:
    """As `gpuwarm check FILE`."""
    _judged(nvidia_smi.machine_state(data, "x"))


def _judged(state: MachineState) -> report.Report:
    checked = report.report(state, checks.findings(state))
    report.encode(checked)
    machine.machine(checked)
    list(machine.brief(checked))
    return checked


def _log(data: bytes) -> None:
    """As a log, whole, of one GPU and without header."""
    for gpu, columns in ((None, None), ("0", None), (None, "timestamp,pstate,clocks.sm,power.draw")):
        _attempt(lambda gpu=gpu, columns=columns: nvidia_smi.samples(data, "x", gpu=gpu, columns=columns))
    _attempt(lambda: nvidia_smi.machine_state(data, "x", columns="index,name,pstate,clocks.sm,power.draw"))
    _check(data)


def _attempt(read: Callable[[], object]) -> None:
    """One of several ways to read an input; the others may read what this one refuses."""
    try:
        read()
    except GpuwarmError as error:
        _is_a_sentence(error)


def _is_a_sentence(error: GpuwarmError) -> None:
    if len(str(error).splitlines()) != 1:
        raise AssertionError(f"not one line: {error}")


def _timed(data: bytes) -> None:
    if trtexec.recognise(data, "x"):
        trtexec.traces([("x", data)])


def _joined(data: bytes) -> None:
    """What trtexec timed, with the log beside it."""
    timed, _, log = data.partition(CUT)
    beside = nvidia_smi.samples(log, "y")
    for trace in trtexec.traces([("x", timed)]):
        if beside is not None:
            for offset_ms in (0.0, 1500.0, None):
                _attempt(lambda trace=trace, offset_ms=offset_ms: join(trace, beside, offset_ms=offset_ms))


def _answered(data: bytes) -> None:
    """As `gpuwarm analyze FILE...`, `report` and `export`."""
    for source, recording in recordings(_files(data))[:ANSWERED_MAX]:
        _answer(recording, source)


def _answer(recording: Recording, source: str) -> None:
    answer = answers.of(recording, source=source, warmup_ms=[200.0])
    pages.page(answer)
    if isinstance(answer, Advice):
        advice.to_json(answer)
        for write in FORMATS.values():
            for _ in write(recording, answer):
                pass


def _compared(data: bytes) -> None:
    """As `gpuwarm compare A B`."""
    found = [recording for path in _files(data) for _, recording in recordings([path])]
    compared = compare.compare(found[0], found[-1], sources=("a", "b"))
    compare.to_json(compared)
    comparison.page(compared)


def _files(data: bytes) -> list[Path]:
    paths = []
    for number, content in enumerate(data.split(CUT)):
        paths.append(FOLDER / f"{number}.txt")
        paths[-1].write_bytes(content)
    return paths


def _archive(data: bytes) -> None:
    """An archive; or a recording of the arrays given, as changing an archive's bytes spoils its checksums at best."""
    path = FOLDER / "a.npz"
    if data.startswith(b"PK"):
        path.write_bytes(data)
        Recording.load(path)
        return
    meta, *columns = data.split(CUT)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("meta.npy", _npy(np.frombuffer(meta, np.uint8)))
        for (table, name), column in zip(COLUMNS, columns, strict=False):
            archive.writestr(f"{table}.{name}.npy", column)
    _answer(Recording.load(path), "a.npz")


def _npy(array: np.ndarray) -> bytes:
    path = FOLDER / "column.npy"
    np.save(path, array)
    return path.read_bytes()


PART = ("meta.json", "samples.rows", "start-0.jsonl", "start-0.rows", "start-1.jsonl", "start-1.rows")


def _part(data: bytes) -> None:
    """What an interrupted measurement left."""
    part = FOLDER / "a.part"
    part.mkdir(exist_ok=True)
    for path in part.iterdir():
        path.unlink()
    for name, content in zip(PART, data.split(CUT), strict=False):
        (part / name).write_bytes(content)
    _answer(Recording.load(part), "a.part")


def _reports(data: bytes) -> None:
    """What `check --json` printed on machines: judged anew, one against the other, and together."""
    read = {str(number): report.decode(part, "x") for number, part in enumerate(data.split(CUT))}
    for checked in read.values():
        again = _judged(report.machine(checked, "x"))
        list(baseline.differences(checked, report.machine(read["0"], "x")))
        machine.machine(again)
    merged = fleet.merge(read)
    fleet.encode(merged)
    machine.fleet(merged)


def _array(data: bytes) -> None:
    """As `gpuwarm run --input NAME=FILE.npy`."""
    path = FOLDER / "a.npy"
    path.write_bytes(data)
    inputs.load("x", path)


def _recording(*, starts: int) -> Recording:
    whole = examples.staircase(starts=starts, duration_s=0.1)
    return Recording(whole.samples[::12].copy(), whole.iterations[::4].copy(), whole.meta)


def _saved(recording: Recording) -> bytes:
    recording.save(FOLDER / "saved.npz")
    return (FOLDER / "saved.npz").read_bytes()


def _as_arrays(recording: Recording) -> bytes:
    tables = {"samples": recording.samples, "iterations": recording.iterations}
    columns = [tables[table][name] for table, name in COLUMNS]
    meta = msgspec.json.encode({"format": 1, **msgspec.to_builtins(recording.meta)})
    return CUT.join([meta, *map(_npy, columns)])


def _as_part(recording: Recording) -> bytes:
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    write_meta(folder, recording.meta)
    tables = {"samples": (SAMPLE_FIELDS, recording.samples)}
    for start in range(len(recording.meta.starts)):
        rows = recording.iterations[recording.iterations["start"] == start]
        tables[f"start-{start}"] = (ITERATION_FIELDS, rows)
        (folder / f"start-{start}.jsonl").write_text('{"mark": "buffers", "t_ns": 5}\n{"error": "x"}\n')
    for name, (fields, rows) in tables.items():
        writer = RowWriter(folder / f"{name}.rows", fields)
        for row in rows.tolist():
            writer.append(row)
        writer.close()
    return CUT.join((folder / name).read_bytes() for name in PART if (folder / name).exists())


def _as_report(state: MachineState) -> bytes:
    return report.encode(report.report(state, checks.findings(state)))


def _run(begin_ms: float, count: int) -> bytes:
    """--exportTimes that fits the load in `LOG`."""
    rows = [
        f'{{ "startEnqMs" : {at:g}, "endEnqMs" : {at + 0.1:g}, "startComputeMs" : {at:g}, "endComputeMs" : {at + 9:g}, '
        f'"computeMs" : {9 + 5 * (at < 100):g}, "h2dMs" : 0.1, "d2hMs" : 0.1, "latencyMs" : 9.2 }}'
        for at in (begin_ms + 10.0 * number for number in range(count))
    ]
    return ("[\n" + ",\n".join(rows) + "\n]\n").encode()


def _load(gpus: int) -> bytes:
    """A log of a GPU that works from its second to its fourth second."""
    head = "timestamp, index, pstate, clocks.current.sm [MHz], power.draw [W], utilization.gpu [%], "
    rows = [head + "clocks_event_reasons.active"]
    for at in range(0, 6000, 100):
        busy = 2000 <= at < 4000
        rows += [
            f"2025/01/01 00:00:{at // 1000:02d}.{at % 1000:03d}, {gpu}, {'P0' if busy else 'P8'}, "
            f"{1980 if busy else 210} MHz, {300 + at % 7 if busy else 11.5} W, {99 if busy else 0} %, 0x{4 * busy:016x}"
            for gpu in range(gpus)
        ]
    return "\n".join(rows).encode()


def readers() -> dict[str, Reader]:
    """By name."""
    smi = {name: data for name, data in hostile.SMI.items() if not name.endswith(".xml")}
    csv = [hostile.CSV + 3 * hostile.ROW, _load(1), _load(2)]
    rows = hostile.CSV + hostile.ROW
    csv += [rows.replace(b"2025/01/01 00:00:00.000", time) for time in (b"31-12-2025 23:59:59", b"1700000000.5")]
    csv += [rows.replace(b",", b";"), rows * 3, ("\ufeff" + rows.decode()).encode("utf-16-le"), 3 * hostile.ROW]
    log = [hostile.LOG, 2 * hostile.LOG, b"Average over 10 runs is 1.5 ms (host walltime is 2 ms).\n" * 9]
    times = [hostile.TIMES + b"]\n", 2 * hostile.TIMES, _run(0.0, 60), _run(300.0, 40) + _run(0.0, 40)]
    times += [_run(0.0, 5).replace(b"9.2", b"nan")]
    recording = [_recording(starts=starts) for starts in (1, 2)]
    states = [nvidia_smi.machine_state(data, name) for name, data in hostile.SMI.items()]
    reports = list(map(_as_report, states))
    joined = [_run(0.0, 200), _load(1)]
    return {
        "table": Reader(_check, [data for name, data in smi.items() if "table" in name], ["smi_table/*"]),
        "q": Reader(_check, [data for name, data in smi.items() if "q_" in name], ["smi_q/*"]),
        "xml": Reader(_check, [data for name, data in hostile.SMI.items() if name not in smi], ["smi_xml/*"]),
        "csv": Reader(_log, csv, ["smi_csv/*"]),
        "dmon": Reader(_log, [hostile.DMON, hostile.DMON * 2, hostile.DMON.replace(b" 0 ", b" - ")], ["smi_dmon/*"]),
        "times": Reader(_timed, times, ["trtexec_times/*"]),
        "log": Reader(_timed, log, ["trtexec_log/*"]),
        "joined": Reader(_joined, [CUT.join(joined), CUT.join([hostile.LOG, csv[0]])]),
        "analyze": Reader(_answered, [*times, *log, *csv, CUT.join(joined)], ["trtexec_*/*", "smi_[cd]*/*"]),
        "compare": Reader(_compared, [CUT.join([one, other]) for one in times for other in (*log, *times)]),
        "recording": Reader(_archive, [*map(_as_arrays, recording), _saved(recording[0])]),
        "part": Reader(_part, list(map(_as_part, recording))),
        "report": Reader(_reports, [*reports, CUT.join(reports[:2]), CUT.join(reports[-2:])]),
        "array": Reader(_array, [_npy(np.zeros((2, 3), kind)) for kind in ("<f4", "<i8", "?", "<f2")]),
    }


def fault(read: Callable[[bytes], object], data: bytes) -> str | None:
    """What is wrong with how an input is read, a line for each kind of fault; None where nothing is."""
    before_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    begun_s = time.process_time()
    try:
        read(data)
    except GpuwarmError as error:
        if len(str(error).splitlines()) != 1:
            return f"not one line: {str(error)!r}"
    except Exception as error:  # noqa: BLE001 -- any of them is a finding
        return f"{type(error).__name__} at {_where(error)}: {str(error)[:100]!r}"
    took_s = time.process_time() - begun_s
    if took_s > LONGEST_S:
        return f"slow: {took_s:.1f} s for {len(data)} bytes"
    grown_bytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before_bytes
    if grown_bytes > MEMORY_SHARE * len(data) + MEMORY_BYTES:
        return f"large: {grown_bytes / 1e6:.0f} MB for {len(data)} bytes"
    return None


def _where(error: Exception) -> str:
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if "gpuwarm/" in frame.filename]
    return f"{own[-1].filename.rpartition('gpuwarm/')[2]}:{own[-1].lineno}" if own else "no line of gpuwarm"


def grown(data: bytes) -> bytes:
    """Now and then an input in which a piece, or some of its lines, is repeated; its own bytes decide."""
    chance = zlib.crc32(data)
    size = next((size for every, size in GROWN.items() if chance % every == 0), 0)
    if size <= len(data) or not data:
        return data
    begin, length = (chance >> 8) % len(data), 1 + (chance >> 16) % (1 << (chance >> 28))
    if chance >> 27 & 1:
        begin = data.rfind(b"\n", 0, begin) + 1
        length = (data.find(b"\n", begin + length) + 1 or len(data)) - begin
    piece = data[begin : begin + length]
    return data[:begin] + piece * ((size - len(data)) // len(piece)) + data[begin:]


def one_round(name: str, seconds: float, corpus: Path, found: Path) -> None:
    """Fuzz until libFuzzer ends the process; inputs with a fault go to `found`, one of each kind."""
    reader = readers()[name]
    warnings.simplefilter("error", RuntimeWarning)

    def read(data: bytes) -> None:
        data = grown(data)
        told = fault(reader.read, data)
        if told is None:
            return
        kind = re.sub(r"\W+", "-", told.partition(": ")[0])
        if kind in ("slow", "large"):
            kind += f"-{len(list(found.glob(f'{kind}-*'))) % DOUBTS_MAX}"
        if not (found / kind).exists():
            (found / kind).write_bytes(data)

    options = [
        f"-max_total_time={seconds:.0f}",
        f"-max_len={max(SEED_BYTES, *map(len, reader.seeds))}",
        f"-timeout={HANG_S}",
        "-verbosity=0",
    ]
    options += [f"-rss_limit_mb={PROCESS_MB}", f"-artifact_prefix={found}/", "-print_final_stats=1"]
    options += [f"-dict={_dictionary()}", str(corpus)]
    atheris.Setup([sys.argv[0], *options], read)
    atheris.Fuzz()


def _dictionary() -> Path:
    words = [*hostile.TOKENS, CUT, *(name.encode() for _, name in COLUMNS)]
    path = FOLDER / "words"
    path.write_text("".join(f'"{"".join(f"{chr(92)}x{byte:02x}" for byte in word)}"\n' for word in words))
    return path


def judge(name: str, path: Path) -> str | None:
    """What is wrong with how a process of its own, which has read something before, reads a file."""
    asked = [sys.executable, __file__, name, "--judge", str(path)]
    answered = subprocess.run(asked, capture_output=True, text=True, check=False)
    last = (answered.stdout or answered.stderr).strip().rpartition("\n")[2]
    return last if answered.returncode else None


def _judge_here(reader: Reader, path: Path) -> int:
    fault(reader.read, reader.seeds[0])
    warnings.simplefilter("error", RuntimeWarning)
    told = fault(reader.read, path.read_bytes())
    print(told or "it is read as it should be")
    return int(told is not None)


def fuzz(name: str, reader: Reader, minutes: float, cases: Path | None, out: Path) -> list[str]:
    """The faults found in a reader; prints them and what was done."""
    corpus, found = out / name / "corpus", out / name / "found"
    for folder in (corpus, found):
        folder.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate([*reader.seeds, *_of_cases(reader, cases)]):
        (corpus / f"seed-{number}").write_bytes(seed)
    executions, faults, end_s = 0, {}, time.monotonic() + 60 * minutes
    while time.monotonic() < end_s:
        seconds = min(ROUND_S, max(1.0, end_s - time.monotonic()))
        asked = [sys.executable, __file__, name, "--one-round", "--out", str(out), "--minutes", f"{seconds / 60}"]
        ran = subprocess.run(asked, capture_output=True, text=True, errors="replace", check=False)
        counted = re.findall(r"number_of_executed_units: (\d+)", ran.stderr)
        executions += sum(map(int, counted))
        if not counted:
            print(ran.stderr[-2000:], flush=True)
        for path in sorted(set(found.iterdir()) - faults.keys()):
            told = judge(name, path)
            if told is None:
                path.unlink()
            else:
                faults[path] = told
                print(f"{name}: {told} ({path})", flush=True)
    print(f"{name}: {executions} inputs in {minutes:g} minutes, {len(faults)} faults", flush=True)
    return list(faults.values())


def _of_cases(reader: Reader, cases: Path | None) -> Iterator[bytes]:
    for pattern in reader.cases if cases else ():
        yield from (path.read_bytes()[:SEED_BYTES] for path in sorted(cases.glob(pattern)))


def main() -> int:
    """1 where there are faults."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("readers", metavar="READER", nargs="*")
    parser.add_argument("--minutes", type=float, default=10.0, help="for each reader")
    parser.add_argument("--cases", type=Path, help="a folder with more seeds")
    parser.add_argument("--out", type=Path, default=Path("fuzz"), help="the folder of corpora and findings")
    parser.add_argument("--judge", type=Path, metavar="FILE", help="read this file alone, and say what is wrong")
    parser.add_argument("--one-round", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    known = readers()
    for name in given.readers:
        if name not in known:
            parser.error(f"there is no reader {name!r}: name some of {', '.join(known)}")
    if given.judge:
        return _judge_here(known[given.readers[0]], given.judge)
    if given.one_round:
        folder = given.out / given.readers[0]
        one_round(given.readers[0], 60 * given.minutes, folder / "corpus", folder / "found")
    if importlib.util.find_spec("atheris") is None:
        print("atheris, which finds the inputs, is not installed: pip install atheris", file=sys.stderr)
        return 2
    faults = [fuzz(name, known[name], given.minutes, given.cases, given.out) for name in given.readers or known]
    return int(any(faults))


if __name__ == "__main__":
    sys.exit(main())
