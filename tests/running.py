"""A measuring command in a process of its own, to be killed."""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ENGINE_STEPS = [  # of a cold start, from CUDA to an engine that can infer
    "cuda_import",
    "driver_init",
    "context",
    "tensorrt_import",
    "runtime",
    "deserialise",
    "execution_context",
    "buffers",
]
WORKER_STEPS = ["interpreter", "gpuwarm", *ENGINE_STEPS, "first_inference", "second_inference", "sm_clock"]


def wait_until(condition: Callable[[], object], limit_s: float = 30.0) -> bool:
    deadline = time.monotonic() + limit_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return bool(condition())


def children(output: Path, target: str = "") -> list[int]:
    """Processes that work for the measurement of `output` and run `target`."""
    part = str(output.with_suffix(".part"))
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes().decode().split("\0")
            except (FileNotFoundError, ProcessLookupError):
                continue
            if any(word.startswith(part) for word in command) and any(target in word for word in command):
                found.append(int(entry.name))
    return found


class Running:
    """A measurement on a simulated H200 in a process of its own."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.output = folder / "a.npz"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gpuwarm", *arguments, "--simulate", "h200", "-o", str(self.output)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )

    def children(self, target: str = "") -> list[int]:
        return children(self.output, target)

    def wait_for(self, target: str) -> int:
        assert wait_until(lambda: self.children(target))
        return self.children(target)[0]

    def no_child_left(self) -> bool:
        return wait_until(lambda: not self.children())
