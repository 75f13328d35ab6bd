"""Hold `gpuwarm idle` to its bars on planted pauses: python scripts/bench_idle.py [--studies 1000].

Each study is made on a simulated GPU in virtual time. The bars: after each pause, the 95 % interval of how much slower
the first inference is covers the truth in 93 % of the studies; where the length of the pause matters that is found in
93 % of them; and a pause is called cold or warm that is not, or said to matter where none does, in 5 % at most.
"""

import argparse
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from virtual_study import still  # noqa: E402 -- lies among the tests
from virtual_sweep import STILL, sweep  # noqa: E402 -- lies among the tests

from gpuwarm.analysis.gaps import Situation, situations  # noqa: E402
from gpuwarm.analysis.idled import DEFAULT_TOLERANCE  # noqa: E402
from gpuwarm.analysis.pauses import pauses  # noqa: E402
from gpuwarm.measure.simulation.profiles import PROFILES  # noqa: E402

GAPS_S = (0.01, 0.3, 3.0, 10.0, 30.0)
BAR_COVERED_PCT = 93.0
BAR_FOUND_PCT = 93.0
BAR_FALSE_PCT = 5.0


@dataclass(frozen=True)
class Outcome:
    """What one study said, against the truth."""

    covered: tuple[tuple[bool, bool], ...]  # after each pause: of what the caller waits for, of the GPU's own time
    depends: bool
    false: bool


def study(profile: str, seed: int, repeats: int = 5) -> Situation:
    with tempfile.TemporaryDirectory() as folder:
        recording = sweep(Path(folder), profile, GAPS_S, seed=seed, repeats=repeats).unsampled()
    (alive,) = situations(pauses(recording), tolerance=DEFAULT_TOLERANCE)
    return alive


def outcome(profile: str, truth: Situation, seed: int) -> Outcome:
    found = study(profile, seed)
    pairs = list(zip(found.after, truth.after, strict=True))
    wrong = [
        told not in (true, "unknown")
        for one, its in pairs
        for told, true in ((one.latency, its.latency), (one.on_gpu, its.on_gpu))
    ]
    return Outcome(
        covered=tuple(
            (
                one.slower_pct.covers(its.slower_pct.value),
                one.slower_on_gpu_pct.covers(its.slower_on_gpu_pct.value),
            )
            for one, its in pairs
        ),
        depends=found.depends,
        false=any(wrong) or (found.depends and not truth.depends),
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    studies = parser.parse_args().studies
    failed = False
    for profile in ("h200", "geforce"):
        PROFILES[profile + STILL] = still(PROFILES[profile])
        truth = study(profile + STILL, 0, repeats=2)
        with ProcessPoolExecutor() as pool:
            outcomes = list(pool.map(partial(outcome, profile, truth), range(studies), chunksize=20))
        false_pct, depends_pct = (
            100 * sum(getattr(it, of) for it in outcomes) / studies for of in ("false", "depends")
        )
        planted = "matters" if truth.depends else "does not matter"
        print(f"{profile}: {studies} studies, {false_pct:.1f} % with a claim that is not so")
        print(f"  the length of a pause {planted}: said to matter in {depends_pct:.1f} %")
        failed |= false_pct > BAR_FALSE_PCT or (truth.depends and depends_pct < BAR_FOUND_PCT)
        for number, after in enumerate(truth.after):
            covered_pct = [100 * sum(it.covered[number][of] for it in outcomes) / studies for of in (0, 1)]
            print(
                f"  after {after.gap_s:5g} s  {after.slower_pct.value:+7.1f} % ({after.latency})  covered "
                f"{covered_pct[0]:5.1f} %  GPU's own time {after.slower_on_gpu_pct.value:+7.1f} %  covered "
                f"{covered_pct[1]:5.1f} %"
            )
            failed |= min(covered_pct) < BAR_COVERED_PCT
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
