"""Kill a measurement's processes with SIGKILL at random moments, and see that nothing is lost.

usage: python scripts/kill_at_random.py [--moments 50] [--seed 0]

For the main process, the sampler and a worker in turn: starts `gpuwarm run` on the simulated H200, kills that process
at a moment drawn from the run's whole length, and checks that no process is left, that the recording (or the folder of
the measurement) loads, and that its notes say what happened. A worker or sampler that is not there at that moment is
waited for. Prints a line a case and exits with 1 if any check failed.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from gpuwarm.errors import GpuwarmError
from gpuwarm.recording import Recording

RUN = ["run", "tiny", "--simulate", "h200", "--starts", "2", "--duration", "0.3", "--no-report"]
GONE_S = 10.0
TARGETS = {"main": "", "sampler": "sampler:run", "worker": "start:run"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        length_s = undisturbed_s(Path(name))
        failed = 0
        for target in TARGETS:
            for number in range(arguments.moments):
                moment_s = draw.uniform(0, length_s)
                said = case(target, Path(name) / f"{target}-{number}", moment_s)
                failed += not said.startswith("ok")
                print(f"{target:8} at {moment_s:5.2f} s: {said}", flush=True)
    print(f"{failed} of {len(TARGETS) * arguments.moments} cases failed (the run takes {length_s:.1f} s)")
    sys.exit(failed > 0)


def undisturbed_s(folder: Path) -> float:
    begin_s = time.monotonic()
    subprocess.run([sys.executable, "-m", "gpuwarm", *RUN, "-o", folder / "whole.npz"], check=True, capture_output=True)
    return time.monotonic() - begin_s


def case(target: str, folder: Path, moment_s: float) -> str:
    folder.mkdir()
    output = folder / "a.npz"
    part = output.with_suffix(".part")
    run = subprocess.Popen(
        [sys.executable, "-m", "gpuwarm", *RUN, "-o", output], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    time.sleep(moment_s)
    victim = run.pid
    if target != "main":
        found: list[int] = []
        while not found and run.poll() is None:
            found = [pid for pid, command in processes() if str(part) in command and TARGETS[target] in command]
        if not found:
            run.communicate()
            return "ok: the run was over"
        victim = found[0]
    existed = part.exists()
    os.kill(victim, signal.SIGKILL)
    printed = run.communicate()[0].decode()
    if left := survivors(part):
        return f"FAILED: still running: {left}"
    if target == "main" and not existed and not output.exists():
        return "ok: nothing was there yet"
    if target == "main" and output.exists() and not part.exists():
        return "ok: it was already written"
    return aftermath(target, output, printed)


def survivors(part: Path) -> list[str]:
    deadline_s = time.monotonic() + GONE_S
    while left := [command for _, command in processes() if str(part) in command]:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.02)
    return left


def aftermath(target: str, output: Path, printed: str) -> str:
    try:
        meta = Recording.load(output).meta
    except GpuwarmError as error:
        return f"FAILED: {error} / {printed}"
    notes = meta.notes
    if target == "sampler" and not notes and meta.sampling.read_us_median is not None:
        return "ok: it had already handed in everything"
    if not any("SIGKILL" in note or "cut short" in note for note in notes):
        return f"FAILED: the notes say nothing of it: {notes}"
    return f"ok: {' '.join(notes)}"


def processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes().decode().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue


if __name__ == "__main__":
    main()
