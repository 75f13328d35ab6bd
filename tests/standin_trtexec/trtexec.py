"""A stand-in for trtexec: it sleeps where that infers, then writes the times it would have seen, as TensorRT 8.6 does.

STANDIN_TRTEXEC_VERSION is a TensorRT version: from 11, --help knows --noCudaGraph. STANDIN_TRTEXEC_BEGAN names a file
that is told when inference began (CLOCK_MONOTONIC, ns).
"""

import json
import os
import sys
import time
from pathlib import Path

COMPUTE_MS = 2.0
VERSION = int(os.environ.get("STANDIN_TRTEXEC_VERSION", "8"))
FLAGS = dict(word.partition("=")[::2] for word in sys.argv[1:])
COMMAND = f"TensorRT.trtexec [TensorRT v{VERSION}600] # {' '.join(sys.argv)}"


def write(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def say(text: str, level: str = "I") -> None:
    write(f"{time.strftime('[%m/%d/%Y-%H:%M:%S]')} [{level}] {text}")


def infer(duration_s: float) -> list[float]:
    """When each inference began, in ms since the first could."""
    began_ns = time.monotonic_ns()
    if "STANDIN_TRTEXEC_BEGAN" in os.environ:
        Path(os.environ["STANDIN_TRTEXEC_BEGAN"]).write_text(str(began_ns))
    time.sleep(duration_s)
    return [at * COMPUTE_MS for at in range(int(duration_s * 1e3 / COMPUTE_MS))]


def main() -> int:
    write(f"&&&& RUNNING {COMMAND}")
    if "--help" in FLAGS:
        write("  --noCudaGraph    Run without a CUDA graph" if VERSION >= 11 else "  --useCudaGraph   Use a CUDA graph")
        return 0
    if "--loadEngine" not in FLAGS:
        say("Model missing or format not recognized", "E")
        write(f"&&&& FAILED {COMMAND}")
        return 1
    say("=== Device Information ===")
    say("Selected Device: NVIDIA GeForce RTX 4090")
    time.sleep(0.3)  # loads the engine
    say("Starting inference")
    begun_ms = infer(float(FLAGS.get("--duration", "1")))
    say("Warmup completed 0 queries over 0 ms")
    say(f"Timing trace has {len(begun_ms)} queries over {begun_ms[-1] / 1e3} s")
    for _ in range(len(begun_ms) // 10):
        say(f"Average on 10 runs - GPU latency: {COMPUTE_MS} ms - Host latency: 2.1 ms (enqueue 0.1 ms)")
    if "--exportTimes" in FLAGS:
        rows = [
            {
                "startComputeMs": at,
                "endComputeMs": at + COMPUTE_MS,
                "computeMs": COMPUTE_MS,
                "latencyMs": COMPUTE_MS + 0.1,
            }
            for at in begun_ms
        ]
        Path(FLAGS["--exportTimes"]).write_text(json.dumps(rows))
    time.sleep(0.2)  # tears down
    write(f"&&&& PASSED {COMMAND}")
    return int(os.environ.get("STANDIN_TRTEXEC_EXIT", "0"))


sys.exit(main())
