"""Time what a cold-start worker imports before its engine's first step: python scripts/bench_worker.py [--runs 20].

Runs a worker's imports and those that any program of the kind needs in turn, prints both medians and their ratio, and
exits with 1 if the ratio is above 1.6. The first run, which writes bytecode, is left out.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

NEEDED = "import ctypes, json, mmap, struct"
WORKERS = {
    "worker": "from gpuwarm.measure import entry, start, engine",
    "simulated": "from gpuwarm.measure import entry, start, simulated",
}
MOST_RATIO = 1.6  # of the worker with a real engine


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    runs = parser.parse_args().runs
    imports = {"needed": NEEDED, **WORKERS}
    seconds: dict[str, list[float]] = {name: [] for name in imports}
    with tempfile.TemporaryDirectory() as bytecode:
        for _ in range(runs + 1):
            for name, code in imports.items():
                seconds[name].append(wall_s(code, bytecode))
    medians = {name: statistics.median(times[1:]) for name, times in seconds.items()}
    for name, median_s in medians.items():
        print(f"{name:10} {median_s * 1e3:5.1f} ms  {median_s / medians['needed']:.2f}")
    print(f"the worker may take {MOST_RATIO} times what is needed")
    sys.exit(medians["worker"] > MOST_RATIO * medians["needed"])


def wall_s(code: str, bytecode: str) -> float:
    """How long a Python takes that runs `code`, its bytecode kept in a folder as an installation keeps it."""
    kept = {"PYTHONPYCACHEPREFIX": bytecode, "PYTHONDONTWRITEBYTECODE": ""}
    begin_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, **kept})
    return time.perf_counter() - begin_s


if __name__ == "__main__":
    main()
