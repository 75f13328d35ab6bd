"""Real machine output against a table, written beforehand, of what ought to be found in it: that, and nothing else."""

import re
from pathlib import Path

import pytest

from gpuwarm.analysis import checks
from gpuwarm.analysis.finding import verdict
from gpuwarm.read import nvidia_smi

TABLE = Path(__file__).parent / "data" / "findings_of_cases.txt"
Expected = dict[str, set[int | None]]


def numbers(text: str) -> set[int]:
    """0,2-4 -> {0, 2, 3, 4}."""
    ends = [part.partition("-") for part in text.split(",")]
    return {number for first, _, last in ends for number in range(int(first), int(last or first) + 1)}


def rows() -> dict[str, tuple[str, Expected]]:
    table = {}
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            file, wanted, *findings = line.split()
            matches = [re.fullmatch(r"([a-z0-9-]+)(?:\[(.+)\])?", finding) for finding in findings]
            table[file] = (wanted, {match[1]: numbers(match[2]) if match[2] else {None} for match in matches})
    return table


@pytest.mark.parametrize("file", rows())
def test_a_file_gives_the_findings_its_facts_call_for_and_no_other(cases: Path, file: str):
    wanted, expected = rows()[file]
    state = nvidia_smi.machine_state((cases / file).read_bytes(), file)
    found: Expected = {}
    for finding in checks.findings(state):
        found.setdefault(finding.id, set()).add(finding.gpu)
    assert found == expected
    assert verdict(checks.findings(state)) == wanted


def test_every_file_is_in_the_table(cases: Path):
    files = {f"{path.parent.name}/{path.name}" for path in cases.glob("smi_*/*")}
    assert files - rows().keys() == set()
