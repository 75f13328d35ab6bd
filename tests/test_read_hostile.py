"""No input makes a reader raise anything but its own errors, or takes it long, or much memory."""

import re
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hostile import CSV, LOG, ROW, SMI, TIMES, TOKENS, WHOLE
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuwarm.analysis import checks
from gpuwarm.errors import GpuwarmError
from gpuwarm.read import nvidia_smi, trtexec

SIZE = 1 << 16
LONGEST_S = 0.5  # on 64 KiB; a reader whose time grows with the square takes minutes
MEMORY_SHARE = 20  # of the input,
MEMORY_BYTES = 64 << 20  # and so much besides

READERS: dict[str, Callable[[bytes], object]] = {
    "state": lambda data: nvidia_smi.machine_state(data, "x"),
    "samples": lambda data: nvidia_smi.samples(data, "x"),
    "samples of a GPU": lambda data: nvidia_smi.samples(data, "x", gpu="0"),
    "samples of columns": lambda data: nvidia_smi.samples(data, "x", columns="timestamp,pstate,clocks.sm"),
    "traces": lambda data: trtexec.traces([("x", data)]),
    "traces of two": lambda data: trtexec.traces([("x", data), ("y", data)]),
    "recognise": lambda data: trtexec.recognise(data, "x"),
}


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """A file as it should be, cut, spliced and sprinkled."""
    data = draw(st.sampled_from(WHOLE))
    for _ in range(draw(st.integers(0, 6))):
        begin = draw(st.integers(0, len(data)))
        end = min(len(data), begin + draw(st.sampled_from([0, 1, 3, 20, 300])))
        other = draw(st.sampled_from(WHOLE))
        at = draw(st.integers(0, len(other)))
        piece = draw(
            st.sampled_from([b"", *TOKENS, other[at : at + 200], data[begin:end] * 3, draw(st.binary(max_size=8))])
        )
        data = data[:begin] + piece * draw(st.sampled_from([1, 1, 1, 2, 40])) + data[end:]
    return data


def outcome(reader: Callable[[bytes], object], data: bytes) -> str:
    try:
        reader(data)
    except GpuwarmError as error:
        return str(error)
    return "it was read"


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=damaged())
def test_damage_ends_in_a_result_or_in_a_sentence(reader: str, data: bytes):
    assert len(outcome(READERS[reader], data).splitlines()) == 1


@pytest.mark.parametrize("reader", READERS)
@settings(max_examples=60, deadline=None)
@given(data=st.binary(max_size=400) | st.text(max_size=400).map(str.encode))
def test_noise_ends_in_a_sentence(reader: str, data: bytes):
    assert len(outcome(READERS[reader], data).splitlines()) == 1


def filled(piece: bytes, before: bytes = b"", size: int = SIZE) -> bytes:
    return before + piece * (size // len(piece))


HOSTILE: dict[str, bytes] = {
    **{
        f"{piece!r} over and over": filled(piece)
        for piece in (b"|", b"+-----", b",", b"\n", b" ", b" \n", b"[", b"{", b"]", b":")
    },
    **{
        f"{piece!r} over and over": filled(piece)
        for piece in (b": ", b"\0a", b"9", b'"', b"\t", b"a\t", b"\x1b[", b"\x1b]", b"\r")
    },
    "rules": filled(b"+----+----+\n"),
    "tables": filled(b"| NVIDIA-SMI 570.1 |\n|  0  A  On | 00000000:01:00.0 On | 0 |\n"),
    "a table on one line": filled(b"| NVIDIA-SMI 570.1 | +----+ | 0 A On | 00000000:01:00.0 On | 0 | "),
    "GPUs of -q": filled(b"GPU 00000000:01:00.0\n"),
    "deep -q": b"===NVSMI LOG===\nGPU 00000000:01:00.0\n"
    + b"".join(b" " * (at % 99) + b"Section\n" for at in range(1000)),
    "keys of -q": filled(b"    Key : value\n", b"===NVSMI LOG===\nGPU 00000000:01:00.0\n"),
    "GPUs of XML": filled(b"<gpu></gpu>", b"<nvidia_smi_log>"),
    "deep XML": filled(b"<nvidia_smi_log>"),
    "a long text in XML": filled(b"x", b"<nvidia_smi_log><gpu><a>"),
    "one long row": filled(b"9", CSV),
    "rows": filled(ROW, CSV),
    "headers": filled(CSV),
    "odd rows": filled(b"a\n", CSV),
    "quoted cells": filled(b'"a",', CSV),
    "rows of one number": filled(b"1\n", b"clocks.current.sm [MHz]\n"),
    "GPUs without end": CSV + b"".join(ROW.replace(b", 0,", b", %d," % at) for at in range(1000)),
    "times that are none": filled(ROW.replace(b"2025/01", b"2025/99"), CSV),
    "dates in doubt": b"timestamp, pstate\n"
    + b"".join(b"%02d-%02d-2025 10:00:00, P0\n" % (at % 12 + 1, at // 12 % 12 + 1) for at in range(2000)),
    "dmon": filled(b"0 1 2\n", b"# gpu pwr pclk\n"),
    "headers of dmon": filled(b"# gpu pwr pclk\n"),
    "blanks behind dmon's header": filled(b" ", b"# gpu pwr pclk") + b"!\n",
    "blanks in a row of dmon": filled(b" ", b"# gpu pwr pclk\n0 31") + b"210\n",
    "line ends without an end": filled(b"\r", b"0") + b"0",
    "averages": filled(b"Average on 10 runs - GPU latency: 1 ms - Host latency: 2 ms (enqueue 1 ms)\n"),
    "banners": filled(b"&&&& RUNNING TensorRT.trtexec # a\n"),
    "stamps": filled(b"[01/02/2025-10:00:00] "),
    "options": b"[01/02/2025-10:00:00] [I] === Model Options ===\n"
    + b"".join(b"[01/02/2025-10:00:00] [I] k%d: y\n" % at for at in range(2000)),
    "rows of times": filled(TIMES[4:].rstrip() + b",", b"["),
    "arrays of times": filled(TIMES + b"]"),
    "rows that never end": filled(b"{", b'["startComputeMs"'),
    "nan": filled(b'{"startComputeMs" : nan, "computeMs" : nan},', b"["),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_what_repeats_without_end_takes_neither_long_nor_much_memory(name: str):
    data = HOSTILE[name]
    for reader in READERS.values():
        begun = time.process_time()
        outcome(reader, data)
        assert time.process_time() - begun < LONGEST_S
    tracemalloc.start()
    outcome(READERS["state"], data)
    outcome(READERS["traces"], data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY_SHARE * len(data) + MEMORY_BYTES


@pytest.mark.parametrize("name", SMI)
def test_numbers_of_any_length_end_in_a_result_or_in_a_sentence(name: str):
    for number in sorted(set(re.findall(rb"\d+", SMI[name]))):
        data = re.sub(rb"\b%b\b" % number, b"9" * 5000, SMI[name])  # Python makes no integer of more than 4,300 digits
        found = outcome(lambda data: checks.findings(nvidia_smi.machine_state(data, "x")), data)
        assert len(found.splitlines()) == 1


def test_a_shape_of_any_length_is_read():
    shape = b"[01/02/2025-10:00:05] [I] Created input binding for x with dimensions 1x" + b"9" * 5000 + b"\n"
    assert trtexec.traces([("x", LOG + shape)])[0].recording.meta.workload.inputs[0].shape == (1,)


@pytest.mark.parametrize("before", [b"# gpu pwr\n", b"clocks.current.sm [MHz]\n"])
def test_a_million_rows_of_next_to_nothing_take_little_memory(before: bytes):
    data = filled(b"0\n", before, size=1 << 20)
    tracemalloc.start()
    outcome(READERS["state"], data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MEMORY_SHARE * len(data) + MEMORY_BYTES
