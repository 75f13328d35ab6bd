"""Many machines: the same findings together, and whoever differs from its kind."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from gpuwarm import cli
from gpuwarm.analysis import checks, fleet
from gpuwarm.analysis.checks import report
from gpuwarm.cli.check import EXIT_FINDINGS
from gpuwarm.cli.fleet import EXIT_UNREADABLE
from gpuwarm.errors import InputError
from gpuwarm.machine import GpuState, HostState
from gpuwarm.show import machine
from tests.test_checks import AT_WORK, GEFORCE, H100, HOST, live


def here(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], env={"COLUMNS": "80"})


def checked(name: str, *gpus: GpuState, host: HostState = HOST, **machine: str) -> bytes:
    state = live(*gpus, host=replace(host, hostname=name), **machine)
    return report.encode(report.report(state, checks.findings(state)))


def test_a_fleet_is_grouped_by_what_was_found(tmp_path: Path):
    for number in range(7):
        (tmp_path / f"{number}.json").write_bytes(checked(f"good{number}", H100, replace(H100, index=1)))
    (tmp_path / "x.json").write_bytes(
        checked("node-x", replace(H100, persistence_mode="off"), driver_version="550.54.14")
    )
    done = here("fleet", "merge", tmp_path, "--json")
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["machines"], answer["verdict"]) == (0, 8, "findings")
    rare, common = answer["groups"]
    assert (rare["machines"], rare["findings"]) == (
        ["node-x"],
        [["persistence-off", "warning"], ["forward-compatibility", "info"]],
    )
    assert (len(common["machines"]), common["findings"], common["models"]) == (7, [], ["2x NVIDIA H100 PCIe"])
    assert {(odd["what"], odd["majority"], *odd["others"]) for odd in answer["odd"]} == {
        ("driver", "580.95.05", "550.54.14"),
        ("persistence", "on", "off"),
    }
    assert here("fleet", "merge", tmp_path, "--fail-on", "warning").exit_code == EXIT_FINDINGS == 3
    ignoring = here("fleet", "merge", tmp_path, "--fail-on", "warning", "--ignore", "persistence-off")
    assert ignoring.exit_code == 0


def test_a_fleets_text_names_the_odd_ones(tmp_path: Path):
    for number in range(9):
        (tmp_path / f"{number}.json").write_bytes(checked(f"good{number}", H100))
    (tmp_path / "x.json").write_bytes(checked("node-x", replace(H100, power_limit_w=250.0)))
    text = here("fleet", "merge", tmp_path).stdout
    assert text.startswith("10 machines, 2 kinds of findings")
    assert "good0, good1, good2, good3, good4, good5 and 3 more" in " ".join(text.split())
    assert "power limit (W): 350 for 90% of the machines, but 250 for node-x" in " ".join(text.split())


def test_models_are_compared_with_their_own_kind(tmp_path: Path):
    files = [tmp_path / f"{name}.json" for name in ("a", "b", "c")]
    files[0].write_bytes(checked("a", H100))
    files[1].write_bytes(checked("b", H100))
    files[2].write_bytes(checked("c", GEFORCE))
    answer = json.loads(here("fleet", "merge", "--json", *files).stdout)
    assert answer["odd"] == []


def test_a_gpu_that_is_up_while_its_like_rest_is_odd(tmp_path: Path):
    up = replace(H100, sm_clock_mhz=1755.0, event_reasons=())
    for name, gpu in (("a", H100), ("b", H100), ("c", H100), ("d", up), ("e", replace(up, **AT_WORK))):
        (tmp_path / f"{name}.json").write_bytes(checked(name, gpu))
    answer = json.loads(here("fleet", "merge", "--json", tmp_path).stdout)
    assert [(odd["what"], odd["others"]) for odd in answer["odd"]] == [("SM clock while idle", {"up": ["d"]})]


def test_a_broken_file_does_not_hide_the_others_and_is_exit_code_1(tmp_path: Path):
    (tmp_path / "a.json").write_bytes(checked("a", H100))
    (tmp_path / "b.json").write_bytes(checked("b", H100)[:500])
    done = here("fleet", "merge", "--json", tmp_path)
    answer = json.loads(done.stdout)
    assert (done.exit_code, answer["machines"]) == (EXIT_UNREADABLE, 1)
    assert (answer["verdict"], answer["unreadable"]) == ("unknown", [str(tmp_path / "b.json")])
    assert "b.json is not a check report" in done.stderr
    text = " ".join(here("fleet", "merge", tmp_path).stdout.split())
    assert "Could not be used, so that nothing is known of their machines" in text


def test_a_machine_whose_check_printed_nothing_is_one_of_which_nothing_is_known(tmp_path: Path):
    (tmp_path / "a.json").write_text("")  # as where there is no driver
    done = here("fleet", "merge", "--json", tmp_path)
    assert (done.exit_code, json.loads(done.stdout)["verdict"]) == (EXIT_UNREADABLE, "unknown")
    assert "a.json is empty" in done.stderr


@pytest.mark.parametrize("text", [b'{"x":' + b"[" * 5000, b'{"schema": "\xff"}', b"[]", b"nan"])
def test_what_is_no_report_is_a_sentence(text: bytes):
    with pytest.raises(InputError, match="x is not a check report"):
        report.decode(text, "x")


def test_the_latest_report_of_a_machine_counts(tmp_path: Path):
    (tmp_path / "2025-11-29.json").write_bytes(checked("a", replace(H100, persistence_mode="off")))
    (tmp_path / "2025-11-30.json").write_bytes(checked("a", H100))
    (tmp_path / "another.json").write_bytes(checked("a", replace(H100, uuid="GPU-2")))  # a default host name
    answer = json.loads(here("fleet", "merge", "--json", tmp_path).stdout)
    assert (answer["machines"], answer["verdict"]) == (2, "ok")
    assert answer["superseded"] == [str(tmp_path / "2025-11-29.json")]
    text = " ".join(here("fleet", "merge", tmp_path).stdout.split())
    assert "Not counted, because a later file is of the same machine" in text


def test_one_odd_machine_of_many_leaves_less_than_all():
    reports = {f"{i}": report.decode(checked(f"n{i}", replace(H100, uuid=f"GPU-{i}")), "") for i in range(400)}
    odd = replace(H100, persistence_mode="off", uuid="GPU-x")
    merged = fleet.merge({**reports, "x": report.decode(checked("x", odd), "")})
    console = Console(width=80)
    with console.capture() as printed:
        console.print(machine.fleet(merged))
    assert "persistence: on for over 99% of the machines, but off for x" in " ".join(printed.get().split())


def test_a_folder_that_is_not_there_is_a_sentence(tmp_path: Path):
    done = here("fleet", "merge", tmp_path / "none")
    assert isinstance(done.exception, InputError)
    assert "there is no " in str(done.exception)
    nothing = here("fleet", "merge", tmp_path)
    assert isinstance(nothing.exception, InputError)
    assert "there is no .json file in" in str(nothing.exception)


def test_a_machine_without_a_name_is_called_by_its_file(tmp_path: Path):
    state = replace(live(H100), host=None)
    for name in ("first", "second"):
        (tmp_path / f"{name}.json").write_bytes(report.encode(report.report(state, checks.findings(state))))
    answer = json.loads(here("fleet", "merge", "--json", tmp_path).stdout)
    assert answer["groups"][0]["machines"] == [str(tmp_path / f"{name}.json") for name in ("first", "second")]
