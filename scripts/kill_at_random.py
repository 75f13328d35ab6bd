"""Kill a measurement's processes with SIGKILL at random moments, and see that nothing is lost and nothing left.

usage: python scripts/kill_at_random.py [--command run] [--target worker] [--moments 50] [--seed 0]

For each kind of process in turn: starts `gpuwarm run` (or explain, or idle) on the simulated H200, kills such a process
at a moment drawn from the run's whole length, and checks that no process is left; that the recording, or where the main
process was killed the folder of the measurement, is the only thing left in its place, in TMPDIR, HOME and the cache
folder; that it loads, and that it says what happened. A child that is not there at that moment is waited for. Prints a
line a case and exits with 1 if any check failed.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from gpuwarm.analysis.controlled import sentences
from gpuwarm.errors import GpuwarmError
from gpuwarm.recording import Recording

COMMANDS = {
    "run": ["--starts", "2", "--duration", "0.3"],
    "explain": [
        *("--only", "other-context", "--only", "driver", "--only", "rest", "--only", "ptx-jit"),
        *("--repeats", "2", "--settle-timeout", "0.2"),  # less rest, as that is when least happens
    ],
    "idle": ["--max-gap", "0.01", "--repeats", "3"],
}
GONE_S = 10.0
LONGER_S = 0.7  # that a child which was waited for has run when it is killed, at most
TARGETS = {"main": "", "sampler": "sampler:run", "worker": "start:run", "holder": "holder:hold"}
PLACES = {"TMPDIR": "tmp", "HOME": "home", "XDG_CACHE_HOME": "cache"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--command", choices=COMMANDS, default="run")
    parser.add_argument("--target", choices=TARGETS, help="left out: each kind of process that there is")
    parser.add_argument("--moments", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    kinds = [target for target in TARGETS if target != "holder" or arguments.command == "explain"]
    draw = random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "gpuwarm", arguments.command, "tiny", "--simulate", "h200", "--no-report"]
        command += COMMANDS[arguments.command]
        length_s = undisturbed_s(command, Path(name))
        total = Counter[str]()
        for target in [arguments.target] if arguments.target else kinds:
            outcomes = Counter[str]()
            for number in range(arguments.moments):
                moment_s = draw.uniform(0, length_s)
                said = case(command, target, Path(name) / f"{target}-{number}", moment_s, draw.uniform(0, LONGER_S))
                outcomes[said.split(":")[0]] += 1
                print(f"{target:8} at {moment_s:5.2f} s: {said}", flush=True)
            print(f"{target} of {arguments.command}: {dict(outcomes)}", flush=True)
            total += outcomes
    print(f"{total['FAILED']} of {total.total()} cases failed (the run takes {length_s:.1f} s)")
    sys.exit(total["FAILED"] > 0)


def undisturbed_s(command: list[str], folder: Path) -> float:
    begin_s = time.monotonic()
    subprocess.run([*command, "-o", folder / "whole.npz"], check=True, capture_output=True)
    return time.monotonic() - begin_s


def case(command: list[str], target: str, folder: Path, moment_s: float, longer_s: float) -> str:
    places = {variable: folder / place for variable, place in PLACES.items()}
    for place in (folder, *places.values()):
        place.mkdir()
    output = folder / "a.npz"
    part = output.with_suffix(".part")
    environment = {**os.environ, **{variable: str(place) for variable, place in places.items()}}
    run = subprocess.Popen([*command, "-o", output], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment)
    time.sleep(moment_s)
    victim = run.pid if target == "main" else child_of(run, part, TARGETS[target], longer_s)
    begun = part.exists() or output.exists()
    with suppress(ProcessLookupError):
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
    printed = run.communicate()[0].decode()
    if still := survivors(part):
        return f"FAILED: still running: {still}"
    if left := leftovers(folder, main=target == "main"):
        return f"FAILED: still there: {left}"
    if target == "main" and not begun and not part.exists():
        return "ok: nothing was there yet"
    return aftermath(target, output, printed, missed=victim is None)


def child_of(run: "subprocess.Popen[bytes]", part: Path, kind: str, longer_s: float) -> int | None:
    """One that runs, or else the next, once it has run for a while; None: the run is over before."""
    waited = False
    while run.poll() is None:
        for pid, command in processes():
            if str(part) in command and kind in command:
                time.sleep(longer_s if waited else 0.0)
                return pid
        waited = True
    return None


def survivors(part: Path) -> list[str]:
    deadline_s = time.monotonic() + GONE_S
    while left := [command for _, command in processes() if str(part) in command]:
        if time.monotonic() > deadline_s:
            break
        time.sleep(0.02)
    return left


def leftovers(folder: Path, *, main: bool) -> list[str]:
    """What a measurement leaves beside its recording, or its folder where it was killed itself."""
    expected = {*PLACES.values(), "a.npz", *(["a.part"] if main else [])}
    inside = [path for place in PLACES.values() for path in (folder / place).iterdir()]
    return [str(path) for path in (*folder.iterdir(), *inside) if path.parent != folder or path.name not in expected]


def aftermath(target: str, output: Path, printed: str, *, missed: bool) -> str:
    try:
        meta = Recording.load(output).meta
    except GpuwarmError as error:
        return f"FAILED: {error} / {printed}"
    if target == "main" and meta.complete:
        return "ok: it was already written"
    said = [note for note in meta.notes if "SIGKILL" in note or "cut short" in note or "ended early" in note]
    said += sentences(meta) if meta.study is not None else []
    if said:
        return f"ok: {'; '.join(dict.fromkeys(said))}"
    whole = meta.complete and all(start.failure is None for start in meta.starts)
    if missed or (whole and meta.sampling.read_us_median is not None):  # and so it made no difference
        return "late: no such process was left, or it had handed in everything"
    return f"FAILED: nothing says so: {meta.notes}"


def processes() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                yield int(entry.name), (entry / "cmdline").read_bytes().decode().replace("\0", " ")
            except (FileNotFoundError, ProcessLookupError):
                continue


if __name__ == "__main__":
    main()
