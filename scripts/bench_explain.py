"""Hold `gpuwarm explain` to its bars on planted causes: python scripts/bench_explain.py [--studies 1000].

Each study is made on a simulated GPU in virtual time. The bars: every effect's 95 % interval covers the truth in 93 %
of the studies, and a cause that is not there is claimed in 5 % of them at most, all causes together.
"""

import argparse
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from virtual_study import COMPARED, VirtualStudy, still  # noqa: E402 -- lies among the tests

from gpuwarm.analysis.effects import Cause, Part  # noqa: E402
from gpuwarm.analysis.explained import explain  # noqa: E402
from gpuwarm.measure.simulation.profiles import PROFILES  # noqa: E402

BAR_COVERED_PCT = 93.0
BAR_FALSE_PCT = 5.0
RESPONSES = ("first_result", "first_inference")
NOTHING_MS = 0.01  # virtual time counts whole nanoseconds, so a cause that is not there is not exactly zero
Outcome = dict[tuple[str, str], tuple[bool, bool]]  # cause and response -> covered, claimed


def study(profile: str, seed: int, repeats: int = 5) -> tuple[dict[str, Cause], Part]:
    """The causes, and what is left unexplained."""
    found = explain(VirtualStudy(profile, "medium", seed).run(COMPARED, repeats))
    return {cause.id: cause for cause in found.causes if cause.status == "measured"}, found.parts[-1]


def outcome(profile: str, truth: dict[str, Cause], seed: int) -> Outcome:
    found, left = study(profile, seed)
    told = {("unexplained", "first_result"): (left.interval_ms[0] <= 0 <= left.interval_ms[1], False)}
    for switch, true in truth.items():
        for response in RESPONSES:
            effect, true_ms = getattr(found[switch], response), getattr(true, response).ms
            told[switch, response] = (effect.interval_ms[0] <= true_ms <= effect.interval_ms[1], effect.claimed)
    return told


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--studies", type=int, default=1000)
    studies = parser.parse_args().studies
    failed = False
    for profile in ("h200", "geforce", "cold-driver"):
        PROFILES["still"] = still(PROFILES[profile])
        truth, _ = study("still", 0, repeats=2)
        with ProcessPoolExecutor() as pool:
            outcomes = list(pool.map(partial(outcome, profile, truth), range(studies), chunksize=20))
        by_effect = defaultdict(list)
        for told in outcomes:
            for effect, result in told.items():
                by_effect[effect].append(result)
        true_ms = {(switch, of): getattr(truth[switch], of).ms for switch in truth for of in RESPONSES}
        absent = {effect for effect, ms in true_ms.items() if abs(ms) < NOTHING_MS}
        false_pct = 100 * sum(any(told[effect][1] for effect in absent) for told in outcomes) / studies
        print(f"{profile}: {studies} studies, {false_pct:.1f} % with a cause claimed that is not there")
        failed |= false_pct > BAR_FALSE_PCT
        for (switch, of), results in by_effect.items():
            covered_pct, claimed_pct = (100 * sum(column) / studies for column in zip(*results, strict=True))
            true = true_ms.get((switch, of), 0.0)  # the parts make up the whole: nothing is left unexplained
            print(f"  {switch:15} {of:16} {true:+10.3f} ms  covered {covered_pct:5.1f} %  claimed {claimed_pct:5.1f} %")
            failed |= covered_pct < BAR_COVERED_PCT
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
