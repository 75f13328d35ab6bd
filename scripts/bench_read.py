"""How fast big files are read, beside Python's own readers of the same files in the same run: [ROWS]."""

import argparse
import csv
import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from gpuwarm.read.files import recordings

TIME_BAR = 1.5  # times the peer's
MEMORY_BAR = 5  # times the file
REPEATS = 3  # the fastest counts: others share the machine
MB = 1e6


def write_smi(path: Path, rows: int) -> None:
    """A log of 20 ms rows with values that change in every one, about 110 bytes each."""
    chance = random.Random(1)
    with path.open("w") as file:
        file.write(
            "timestamp, name, pstate, clocks.current.sm [MHz], clocks.current.memory [MHz], power.draw [W], "
            "power.draw.instant [W], temperature.gpu, utilization.gpu [%], clocks_event_reasons.active\n"
        )
        for at in range(rows):
            seconds, ms = divmod(at * 20, 1000)
            minutes, second = divmod(seconds, 60)
            hours, minute = divmod(minutes, 60)
            day, hour = divmod(hours, 24)
            file.write(
                f"2026/11/{1 + day:02d} {hour:02d}:{minute:02d}:{second:02d}.{ms:03d}, NVIDIA H200, P0, "
                f"{chance.choice((345, 1980, 1650))} MHz, 3201 MHz, {chance.uniform(80, 700):.2f} W, "
                f"{chance.uniform(80, 700):.2f} W, {chance.randint(30, 70)}, {chance.randint(0, 100)} %, "
                f"0x000000000000000{chance.choice((0, 1, 4))}\n"
            )


def write_times(path: Path, rows: int) -> None:
    """--exportTimes as trtexec 8.6 writes it, about 290 bytes a row."""
    chance = random.Random(2)
    with path.open("w") as file:
        file.write("[\n  ")
        begin = 0.5
        for at in range(rows):
            took = chance.uniform(0.15, 0.16)
            pairs = {"startEnqMs": begin - 0.1, "endEnqMs": begin, "startH2dMs": begin - 0.1, "endH2dMs": begin}
            pairs |= {"startComputeMs": begin, "endComputeMs": begin + took, "startD2hMs": begin + took}
            pairs |= {"endD2hMs": begin + took, "h2dMs": 0.094, "computeMs": took, "d2hMs": 0.0034, "latencyMs": 0.25}
            file.write(", " if at else "")
            file.write("{ " + ", ".join(f'"{name}" : {value:.6g}' for name, value in pairs.items()) + " }\n")
            begin += took
        file.write("]\n")


def fastest_s(read: Callable[[], object]) -> float:
    """Processor time."""
    found = []
    for _ in range(REPEATS):
        begun = time.process_time()
        read()
        found.append(time.process_time() - begun)
    return min(found)


def by_csv(path: Path) -> int:
    with path.open(newline="") as file:
        return sum(1 for _ in csv.reader(file))


def by_json(path: Path) -> object:
    with path.open() as file:
        return json.load(file)


def measured(name: str, write: Callable[[Path, int], None], rows: int, peer: Callable[[Path], object]) -> bool:
    """Whether one kind of file is read within its bars; prints the numbers."""
    with tempfile.TemporaryDirectory() as folder:
        small, big = Path(folder) / "small", Path(folder) / "big"
        write(small, rows // 10)
        write(big, rows)
        size = big.stat().st_size
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        tenth_s = fastest_s(lambda: recordings([small]))
        ours_s = fastest_s(lambda: recordings([big]))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        peer_s = fastest_s(lambda: peer(big))
    print(
        f"{size / MB:.0f} MB: {ours_s:.2f} s, {name} {peer_s:.2f} s, ratio {ours_s / peer_s:.2f} (bar {TIME_BAR}); "
        f"a tenth of it {tenth_s:.2f} s; memory {grown / size:.1f} times the file (bar {MEMORY_BAR})"
    )
    return ours_s <= TIME_BAR * peer_s and grown <= MEMORY_BAR * size


def main() -> int:
    """1 where a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", type=int, nargs="?", default=1_000_000)
    rows = parser.parse_args().rows
    smi = measured("csv.reader", write_smi, rows, by_csv)
    times = measured("json.load", write_times, rows * 7 // 10, by_json)
    return int(not (smi and times))


if __name__ == "__main__":
    sys.exit(main())
