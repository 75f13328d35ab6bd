"""Time `gpuwarm --help` against the --help of an empty typer app: python scripts/bench_help.py [--runs 20].

Runs them in turn, prints both medians and their ratio, and exits with 1 if the ratio is above 1.3 or numpy or
matplotlib is imported.
"""

import argparse
import statistics
import subprocess
import sys
import time

EMPTY = """
import typer
app = typer.Typer()
@app.callback()
def callback(): ...
@app.command()
def command(): ...
app()
"""
MOST_RATIO = 1.3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    commands = {"empty typer app": ["-c", EMPTY, "--help"], "gpuwarm": ["-m", "gpuwarm", "--help"]}
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(runs + 1):
        for name, command in commands.items():
            seconds[name].append(wall_s(command))
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}  # the first writes bytecode
    ratio = medians["gpuwarm"] / medians["empty typer app"]
    heavy = [name for name in ("numpy", "matplotlib") if name in imported()]
    for name, median_s in medians.items():
        print(f"{name:16} {median_s * 1e3:6.0f} ms")
    print(f"ratio {ratio:.2f} (at most {MOST_RATIO}); imported: {', '.join(heavy) or 'neither numpy nor matplotlib'}")
    sys.exit(ratio > MOST_RATIO or bool(heavy))


def wall_s(command: list[str]) -> float:
    begin_s = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return time.perf_counter() - begin_s


def imported() -> set[str]:
    listing = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gpuwarm", "--help"], check=True, capture_output=True, text=True
    ).stderr
    return {line.rpartition("|")[2].strip().split(".")[0] for line in listing.splitlines()}


if __name__ == "__main__":
    main()
