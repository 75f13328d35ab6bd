"""Files as they should be, small, and the pieces that damage them: for the tests and for scripts/fuzz_readers.py."""

from pathlib import Path

_SMI = Path(__file__).parent / "data" / "smi"

CSV = b"timestamp, index, name, pstate, clocks.current.sm [MHz], power.draw [W]\n"
ROW = b"2025/01/01 00:00:00.000, 0, NVIDIA L4, P0, 210 MHz, 11.90 W\n"
TIMES = b'[\n  { "startComputeMs" : 1.5, "endComputeMs" : 3, "computeMs" : 1.5, "h2dMs" : 0 }\n'
LOG = b"""&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec --onnx=x
[01/02/2025-10:00:00] [I] === Inference Options ===
[01/02/2025-10:00:00] [I] Batch: 1
[01/02/2025-10:00:00] [I] Selected Device: NVIDIA L4
[01/02/2025-10:00:02] [I] Starting inference
[01/02/2025-10:00:05] [I] Warmup completed 50 queries over 100 ms
[01/02/2025-10:00:05] [I] Timing trace has 100 queries over 3 s
[01/02/2025-10:00:05] [I] Average on 10 runs - GPU latency: 1.5 ms - Host latency: 2 ms (enqueue 0.5 ms)
[01/02/2025-10:00:05] [I] ... Omitting 80 lines
[01/02/2025-10:00:05] [I] Average on 10 runs - GPU latency: 1.5 ms - Host latency: 2 ms (enqueue 0.5 ms)
[01/02/2025-10:00:05] [I] GPU Compute Time: min = 1.9 ms, max = 2.3 ms, median = 2 ms, percentile(99%) = 2.2 ms
"""
DMON = b"#Date Time gpu pwr pclk\n#YYYYMMDD HH:MM:SS Idx W MHz\n 20250304 10:11:12 0 31 210\n"
SMI = {path.name: path.read_bytes() for path in sorted(_SMI.iterdir())}
WHOLE = [CSV + ROW * 3, TIMES + b"]\n", LOG, DMON, *SMI.values()]

TOKENS = [
    *(
        b"|",
        b"+---+",
        b"\n",
        b" ",
        b",",
        b";",
        b'"',
        b":",
        b"\t",
        b"\r",
        b"\0",
        b"\x1b[0m",
        b"\xff\xfe",
        b"\xef\xbb\xbf",
    ),
    *(b"N/A", b"[N/A]", b"ERR!", b"nan", b"-", b"0x", b"9" * 30, b"1e999", b"P0", b" MHz", b"MiB /"),
    *(b"GPU 00000000:01:00.0", b"===NVSMI LOG===", b"<gpu>", b"</gpu>", b"<!ENTITY", b"#gpu", b"[", b"]", b"{", b"}"),
    *(b"2025/01/01 00:00:00.000", b"31-12-2025 23:59:59", b"1700000000.5", b"--query-gpu=timestamp,pstate", CSV, ROW),
    *(LOG[:60], b"[01/02/2025-10:00:00] [I] ", b"&&&& RUNNING", "\u2026\u2502".encode()),
]
