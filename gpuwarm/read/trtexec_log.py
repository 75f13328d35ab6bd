"""trtexec's log of TensorRT 5 to 11, whole or in part, one run or many -> what each run was and what it printed."""

import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timezone

from gpuwarm.read.text import ENDS_BYTES, LONGEST_MARGIN, has_any

LONGEST_LINE = 20_000  # characters; builders print longer ones, of which nothing is read
MESSAGES_MAX = 20  # warnings, and errors, kept a run; --verbose repeats some without end

_STAMP = re.compile(r"\[(\d\d)/(\d\d)/(\d{4})-(\d\d):(\d\d):(\d\d)\]\s*(?:\[([VIWEF])\] ?)?")
_LEVEL = re.compile(r"\s*\[([VIWEF])\] ")
_BANNER = "&&&& "
_VERBOSE = "] [V] "
_MARKS = (b"TensorRT.trtexec", b"runs - GPU latency:")
_OTHER_MARKS = re.compile(rb"\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] ?\[[VIWEF]\]|Average over \d{1,9} runs is [\d.]+ ms")
_NUMBER = r"([-+\d.e]{1,24})"
Shape = tuple[str, tuple[int, ...]]


@dataclass(frozen=True)
class Average:
    """A line `Average on N runs`, in ms."""

    inferences: int
    gpu_ms: float
    host_ms: float | None = None
    enqueue_ms: float | None = None


@dataclass
class Run:
    """One run; what its log does not tell is None."""

    command: str | None = None
    flags: dict[str, str] = field(default_factory=dict)  # of the command line, without dashes
    version: str | None = None
    failed: bool = False
    options: dict[str, str] = field(default_factory=dict)  # of the option blocks, by their labels
    device: str | None = None
    compute_capability: str | None = None
    memory_total_mib: float | None = None
    memory_before_mib: float | None = None  # in use on the GPU when trtexec had its context and nothing else
    built_s: float | None = None
    deserialized_s: float | None = None
    inputs: list[Shape] = field(default_factory=list)
    outputs: list[Shape] = field(default_factory=list)
    first_line_ns: int | None = None  # local wall clock, whole seconds
    inference_ns: int | None = None  # of "Starting inference", likewise
    warmup_queries: int | None = None
    warmup_ms: float | None = None
    queries: int | None = None
    walltime_s: float | None = None
    averages: list[Average] = field(default_factory=list)
    omitted_after: int | None = None  # how many averages stand before those left out
    throughput_qps: float | None = None
    compute_total_s: float | None = None
    summary: dict[str, dict[str, float]] = field(default_factory=dict)  # gpu, latency, ... -> min, median, 99%, ... ms
    cov_pct: float | None = None
    warnings: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def model(self) -> str | None:
        """The file that was run."""
        named = (self.flags.get(flag) for flag in ("loadEngine", "onnx", "deploy", "uff", "model"))
        listed = (self.options.get(label) for label in ("Load engine", "Model", "Prototxt"))
        return next((name for name in (*named, *listed) if name), None)

    def batch(self) -> int | None:
        """How many inferences a query counts for; None where the inputs' shapes have the batch in them."""
        said = self.flags.get("batch") or self.options.get("Batch", "")
        return int(said) if re.fullmatch(r"\d{1,6}", said) and int(said) else None

    def infers(self) -> bool:
        """Whether it was to: some only build an engine, or print their help."""
        return not {"buildOnly", "skipInference", "help"} & self.flags.keys()

    def cut(self) -> bool:
        """Whether the log ends within the averages, which come before the summary."""
        return not self.summary and self.throughput_qps is None

    def says_something(self) -> bool:
        """Whether it is a run at all."""
        return bool(self.command or self.averages or self.summary or self.queries)


def recognise(data: bytes) -> bool:
    """Whether there are lines of trtexec in it: its own marks, or its time stamps."""
    return has_any(data, _MARKS) or _OTHER_MARKS.search(data, 0, ENDS_BYTES) is not None


def runs(lines: list[str]) -> tuple[Run, ...]:
    """The runs in a log, in order; other programs' lines among trtexec's cost nothing."""
    reader = _Reader()
    for line in lines:
        verbose = line.find(_VERBOSE, 0, LONGEST_MARGIN)
        if verbose >= 0 and not _STAMP.search(line, verbose + len(_VERBOSE)):
            continue  # a builder's log has hundreds of megabytes of these, and nothing that is read
        for stamp, level, text in _messages(line[:LONGEST_LINE]):
            reader.read(stamp, level, text.strip())
    return tuple(run for run in reader.runs if run.says_something())


def _messages(line: str) -> Iterator[tuple[int | None, str, str]]:
    """(local time, level, text) of each message in a line: where two were written at once, a line holds both."""
    stamps = list(_STAMP.finditer(line))
    rest = line[: stamps[0].start()] if stamps else line
    rest = rest[max(0, rest.find(_BANNER, 0, LONGEST_MARGIN)) :]  # what a container or a script writes before lines
    level = _LEVEL.match(rest)  # the stamps came with TensorRT 6
    yield None, level[1] if level else "", rest[level.end() :] if level else rest
    for number, stamp in enumerate(stamps):
        end = stamps[number + 1].start() if number + 1 < len(stamps) else len(line)
        yield _local_ns(stamp), stamp[7] or "", line[stamp.end() : end]


def _local_ns(stamp: re.Match[str]) -> int | None:
    month, day, year, hour, minute, second = (int(stamp[group]) for group in range(1, 7))
    try:
        return int(datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()) * 10**9
    except ValueError:
        return None


class _Reader:
    """Gives each message to the run it belongs to."""

    def __init__(self) -> None:
        """Begin with a run that may have no banner."""
        self.runs = [Run()]
        self._options = False  # within a block of options
        self._heading: str | None = None  # of a summary that takes a line for each number, as TensorRT 7's

    def read(self, stamp: int | None, level: str, text: str) -> None:
        """Take one message."""
        if not text or (stamp is None and not level and text.split(maxsplit=1)[0] not in _WORDS):
            return
        if text.startswith(("&&&& RUNNING", "=== Model Options ===", "Starting inference", "Warmup completed")):
            self._begin_where_new(text)
        run = self.runs[-1]
        run.first_line_ns = run.first_line_ns or stamp
        if text.startswith("Starting inference"):
            run.inference_ns = stamp
        kept = {"E": run.errors, "W": run.warnings}.get(level)
        if kept is not None and len(kept) < MESSAGES_MAX and text not in kept:
            kept.append(text)
        self._read_option(run, text)
        self._read_summary(run, text)
        word = text.split(maxsplit=1)[0]
        for pattern, keep in _PATTERNS.get(word, ()):
            found = pattern.match(text)
            if found:
                keep(run, *found.groups())

    def _begin_where_new(self, text: str) -> None:
        """A banner begins a run; so does a step that the present run has behind it."""
        run = self.runs[-1]
        begun = {
            "&": run.says_something() or run.options,
            "=": run.averages or "Model" in run.options,
            "S": run.averages,
            "W": run.averages or run.queries is not None,
        }
        if begun[text[0]]:
            self.runs.append(Run())
            self._options, self._heading = False, None

    def _read_option(self, run: Run, text: str) -> None:
        label, colon, value = text.partition(":")
        if text.startswith("=== "):
            self._options = "Options ===" in text
        elif self._options and colon:
            run.options[label.strip()] = value.strip()

    def _read_summary(self, run: Run, text: str) -> None:
        name, _, rest = text.partition(":")
        if name in _QUANTITIES and not rest:
            self._heading = _QUANTITIES[name]
        elif name in _QUANTITIES and " min = " in rest:
            values = re.findall(rf"([a-z]+)(?:\((\d+(?:\.\d+)?%)\))? = {_NUMBER} ms", rest)
            run.summary[_QUANTITIES[name]] = {
                share or key: value for key, share, number in values if (value := _float(number)) is not None
            }
        elif self._heading and name in {"min", "max", "mean", "median", "percentile"}:
            found = re.match(rf" {_NUMBER} ms(?: at (\d+%))?", rest)
            if found and (value := _float(found[1])) is not None:
                run.summary.setdefault(self._heading, {})[found[2] or name] = value


_QUANTITIES = {
    "Latency": "latency",
    "Host Latency": "latency",
    "End-to-End Host Latency": "end_to_end",
    "Enqueue Time": "enqueue",
    "H2D Latency": "h2d",
    "GPU Compute Time": "gpu",
    "GPU Compute": "gpu",
    "D2H Latency": "d2h",
}


def _float(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def _version(number: str) -> str:
    """v8601 is 8.6.1, v100700 is 10.7.0."""
    value = int(number)
    major, rest = divmod(value, 10_000 if value >= 100_000 else 1000)  # noqa: PLR2004 -- two digits for the minor from 10 on
    return f"{major}.{rest // 100}.{rest % 100}"


def _banner(run: Run, version: str | None, command: str) -> None:
    if version:
        run.version = _version(version)
    run.command = command.strip()
    try:
        words = shlex.split(run.command)
    except ValueError:  # a quote that is not closed
        words = run.command.split()
    for word in words:
        if word.startswith("--"):
            flag, _, value = word[2:].partition("=")
            run.flags[flag] = value


def _shape(shapes: Callable[[Run], list[Shape]]) -> Callable[..., None]:
    def keep(run: Run, name: str, dimensions: str) -> None:
        sizes = tuple(int(size) for size in dimensions.split("x") if re.fullmatch(r"\d{1,18}", size))
        if (name, sizes) not in shapes(run):
            shapes(run).append((name, sizes))

    return keep


def _set(attribute: str) -> Callable[..., None]:
    def keep(run: Run, value: str) -> None:
        setattr(run, attribute, value.strip())

    return keep


def _set_number(attribute: str) -> Callable[..., None]:
    def keep(run: Run, value: str) -> None:
        setattr(run, attribute, _float(value))

    return keep


def _warmed_up(run: Run, queries: str, over_ms: str) -> None:
    run.warmup_queries, run.warmup_ms = int(queries), _float(over_ms)


def _timed(run: Run, queries: str, over_s: str) -> None:
    run.queries, run.walltime_s = int(queries), _float(over_s)
    if run.queries == 0:  # TensorRT 7 multiplies by the batch, which it takes for 0 where it is explicit
        run.queries = run.warmup_queries = None


def _average(run: Run, inferences: str, gpu: str, host: str | None, enqueue: str | None) -> None:
    gpu_ms = _float(gpu)
    if gpu_ms is not None and int(inferences) > 0:
        run.averages.append(Average(int(inferences), gpu_ms, _float(host), _float(enqueue)))


def _throughput(run: Run, qps: str) -> None:
    run.throughput_qps = _float(qps) or None  # see _timed


def _omitted(run: Run) -> None:
    run.omitted_after = len(run.averages)


def _patterns() -> dict[str, list[tuple[re.Pattern[str], Callable[..., None]]]]:
    """By a message's first word."""
    binding = r"(?:Created )?(?:input|Input) binding for (\S+) with dimensions ([\dx]+)"
    bound = r"(?:Created )?(?:output|Output) binding for (\S+) with dimensions ([\dx]+)"
    table: list[tuple[str, str, Callable[..., None]]] = [
        ("&&&&", r"&&&& RUNNING TensorRT\.trtexec(?: \[TensorRT v(\d{4,7})\])?(?: \[b\d+\])? # (.*)", _banner),
        ("&&&&", r"&&&& FAILED()", lambda run, _: setattr(run, "failed", True)),
        ("TensorRT", r"TensorRT version: (\d+\.\d+\.\d+)", _set("version")),
        ("TensorRT", r"TensorRT version: (\d{4,7})$", lambda run, number: setattr(run, "version", _version(number))),
        ("Selected", r"Selected Device: (.+)", _set("device")),
        ("Compute", r"Compute Capability: (\d+\.\d+)", _set("compute_capability")),
        ("Device", rf"Device Global Memory: {_NUMBER} MiB", _set_number("memory_total_mib")),
        ("Engine", rf"Engine built in {_NUMBER} sec", _set_number("built_s")),
        ("Engine", rf"Engine (?:deserialized|loaded) in {_NUMBER} sec", _set_number("deserialized_s")),
        ("Input", binding, _shape(lambda run: run.inputs)),
        ("Output", bound, _shape(lambda run: run.outputs)),
        ("Created", binding, _shape(lambda run: run.inputs)),
        ("Created", bound, _shape(lambda run: run.outputs)),
        ("[TRT]", r"\[TRT\] \[MemUsageChange\] Init CUDA: .*now: CPU \d+, GPU (\d+)", _set_number("memory_before_mib")),
        ("Warmup", rf"Warmup completed (\d{{1,12}}) queries over {_NUMBER} ms", _warmed_up),
        ("Timing", rf"Timing trace has (\d{{1,12}}) queries over {_NUMBER} s", _timed),
        (
            "Average",
            rf"Average on (\d{{1,9}}) runs - GPU latency: {_NUMBER} ms(?: - Host latency: {_NUMBER} ms)?"
            rf"(?: \((?:end to end [^,]*, )?enqueue {_NUMBER} ms\))?",
            _average,
        ),
        ("Average", rf"Average over (\d{{1,9}}) runs is {_NUMBER} ms(?: \(host walltime is {_NUMBER} ms)?()", _average),
        ("...", r"\.\.\. Omitting \d+ lines", _omitted),
        ("Throughput:", rf"Throughput: {_NUMBER} qps", _throughput),
        ("throughput:", rf"throughput: {_NUMBER} qps", _throughput),
        ("Total", rf"Total Host Walltime: {_NUMBER} s", _set_number("walltime_s")),
        ("walltime:", rf"walltime: {_NUMBER} s", _set_number("walltime_s")),
        ("Total", rf"Total GPU Compute Time: {_NUMBER} s", _set_number("compute_total_s")),
        ("total", rf"total compute time: {_NUMBER} s", _set_number("compute_total_s")),
        ("*", rf"\* GPU compute time is unstable, with coefficient of variance = {_NUMBER}%", _set_number("cov_pct")),
    ]
    grouped: dict[str, list[tuple[re.Pattern[str], Callable[..., None]]]] = {}
    for word, pattern, keep in table:
        grouped.setdefault(word, []).append((re.compile(pattern), keep))
    return grouped


_PATTERNS = _patterns()
# First words of whatever is read from a line that has lost its stamp.
_WORDS = frozenset(_PATTERNS) | {quantity.split()[0] for quantity in _QUANTITIES} | {"===", "Starting", "Latency:"}
_WORDS |= {"min:", "max:", "mean:", "median:", "percentile:"}
