"""Time `gpuwarm fleet merge` on the reports of 10,000 machines with eight GPUs each: scripts/bench_fleet.py."""

import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from gpuwarm.analysis import checks
from gpuwarm.analysis.checks import report
from gpuwarm.machine import GpuState, MachineState
from gpuwarm.measure import host

MACHINES = 10_000
GPU = GpuState(
    index=0,
    name="NVIDIA H100 80GB HBM3",
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    pci_bus_id="00000000:18:00.0",
    persistence_mode="on",
    pstate=0,
    sm_clock_mhz=345.0,
    sm_clock_max_mhz=1980.0,
    mem_clock_mhz=2619.0,
    mem_clock_max_mhz=2619.0,
    power_w=70.0,
    power_limit_w=700.0,
    power_limit_default_w=700.0,
    utilization_pct=0.0,
    event_reasons=("gpu_idle",),
    pcie_gen=5,
    pcie_gen_max=5,
    pcie_width=16,
    pcie_width_max=16,
    processes=(),
)


def encoded(number: int) -> bytes:
    """Every 97th machine has persistence off."""
    mode = "off" if number % 97 == 0 else "on"
    gpus = tuple(replace(GPU, index=index, persistence_mode=mode) for index in range(8))
    seen = replace(host.read(), hostname="nodename")
    state = MachineState(platform="linux", driver_version="580.95.05", cuda_version="13.0", gpus=gpus, host=seen)
    return report.encode(report.report(state, checks.findings(state)))


def main() -> None:
    """Write the reports, merge them once, print what it took."""
    with tempfile.TemporaryDirectory() as folder:
        kinds = [encoded(0), encoded(1)]
        for number in range(MACHINES):
            kind = kinds[0 if number % 97 == 0 else 1]
            (Path(folder) / f"{number}.json").write_bytes(kind.replace(b"nodename", b"node%05d" % number))
        began_s = time.perf_counter()
        done = subprocess.run(
            [sys.executable, "-m", "gpuwarm", "fleet", "merge", folder], check=False, capture_output=True, text=True
        )
        took_s = time.perf_counter() - began_s
    print(done.stdout, done.stderr)
    print(f"{MACHINES:,} reports of {len(kinds[1]):,} bytes merged in {took_s:.1f} s")


if __name__ == "__main__":
    main()
