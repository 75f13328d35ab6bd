"""`gpuwarm check` as a user or a script meets it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import Standin
from typer.testing import CliRunner, Result

from gpuwarm import cli
from gpuwarm.cli.check import EXIT_FINDINGS
from gpuwarm.errors import InputError

ROOT = Path(__file__).parent.parent
IDLE = (
    'name="NVIDIA H100 PCIe" cc=9.0 persistence=1 pstate=0 sm_clock_mhz=345 sm_clock_max_mhz=1755 memory_used_mib=2'
    " mem_clock_mhz=1593 mem_clock_max_mhz=1593 power_limit_mw=350000 power_limit_default_mw=350000 mig_mode=0"
)


def gpuwarm(*arguments: str, environment: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """In a process of its own: NVML is loaded once in a process."""
    command = [sys.executable, "-m", "gpuwarm", *arguments]
    variables = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1", **environment}
    return subprocess.run(command, capture_output=True, text=True, env=variables, check=False)


def here(*arguments: object) -> Result:
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


def unboxed(text: str) -> str:
    return " ".join(text.replace("│", " ").split())


def test_without_a_driver_it_is_one_sentence_and_exit_code_5(standin_nvml: Standin):
    done = gpuwarm("check", environment=standin_nvml("error nvmlInitWithFlags 9"))
    assert (done.returncode, done.stdout) == (5, "")
    assert len(done.stderr.splitlines()) == 1
    assert "driver is installed but not loaded" in done.stderr


def test_the_json_is_the_contract(standin_nvml: Standin):
    done = gpuwarm("check", "--json", environment=standin_nvml(f"0 {IDLE} pcie_width_max=unsupported"))
    answer = json.loads(done.stdout)
    assert list(answer)[:10] == [
        "schema",
        "source",
        "platform",
        "driver_version",
        "cuda_version",
        "nvidia_smi_version",
        "host",
        "verdict",
        "gpus",
        "findings",
    ]
    assert (answer["schema"], answer["source"]) == ("gpuwarm.check/1", "live")
    assert answer["host"]["hostname"]
    (gpu,) = answer["gpus"]
    assert (gpu["persistence_mode"], gpu["pstate"], gpu["event_reasons"]) == ("on", 0, ["gpu_idle"])
    assert gpu["pcie_width_max"] is None
    assert {"id", "severity", "gpu", "summary", "evidence", "advice", "command"} == set(answer["findings"][0])


def test_exit_codes_follow_the_worst_finding(standin_nvml: Standin):
    warning = standin_nvml(f"0 {IDLE} power_limit_mw=200000")
    error = standin_nvml(f"0 {IDLE} compute_mode=2")
    mine = ["--only", "power-limit-lowered,compute-mode-prohibited"]  # whatever else this host has
    assert gpuwarm("check", *mine, environment=warning).returncode == 0
    assert gpuwarm("check", *mine, "--fail-on", "warning", environment=warning).returncode == EXIT_FINDINGS == 3
    assert gpuwarm("check", *mine, environment=error).returncode == EXIT_FINDINGS == 3
    ignored = ["--only", "compute-mode-prohibited", "--ignore", "compute-mode-prohibited"]
    assert gpuwarm("check", *ignored, environment=error).returncode == 0


def test_what_is_ignored_is_on_record(standin_nvml: Standin):
    environment = standin_nvml(f"0 {IDLE} compute_mode=2")
    ignoring = ["check", "--ignore", "compute-mode-prohibited"]
    answer = json.loads(gpuwarm(*ignoring, "--json", environment=environment).stdout)
    assert answer["ignored"] == ["compute-mode-prohibited"]
    assert "compute-mode-prohibited" not in {finding["id"] for finding in answer["findings"]}
    text = gpuwarm(*ignoring, environment=environment).stdout
    assert "Ignored as asked: compute-mode-prohibited." in text


def test_what_alone_was_asked_for_is_on_record(standin_nvml: Standin):
    asking = ["check", "--only", "at-rest,gpu-lost"]
    environment = standin_nvml(f"0 {IDLE} compute_mode=2")
    assert json.loads(gpuwarm(*asking, "--json", environment=environment).stdout)["only"] == ["at-rest", "gpu-lost"]
    assert "Reported alone, as asked: at-rest, gpu-lost." in gpuwarm(*asking, environment=environment).stdout


def test_brief_is_a_line_for_each_gpu(standin_nvml: Standin):
    environment = standin_nvml(f"gpus 2\n0 {IDLE}\n0 gpu=1 lost=1")
    lines = gpuwarm("check", "--brief", "--only", "at-rest,gpu-lost", environment=environment).stdout
    assert lines.splitlines() == [
        "GPU 0 NVIDIA H100 PCIe: ok at-rest",
        "GPU 1 unknown: error gpu-lost",
    ]


def test_gpus_of_a_log_without_indices_are_called_by_their_place(tmp_path: Path):
    rows = "clocks.sm, pstate\n345 MHz, P0\n"
    (tmp_path / "log.csv").write_text(rows)
    assert here("check", tmp_path / "log.csv", "--brief").stdout == "GPU 0 unknown: unknown persistence-unknown\n"
    answer = json.loads(here("check", tmp_path / "log.csv", "--json").stdout)
    assert [gpu["index"] for gpu in answer["gpus"]] == [finding["gpu"] for finding in answer["findings"]] == [0]


def test_one_gpu_can_be_asked_for(standin_nvml: Standin):
    environment = standin_nvml(f"gpus 3\n0 {IDLE}")
    answer = json.loads(gpuwarm("check", "--json", "--gpu", "GPU-00000002", environment=environment).stdout)
    assert [gpu["index"] for gpu in answer["gpus"]] == [2]


def test_a_text_for_people_fits_80_columns_but_for_lines_to_copy(standin_nvml: Standin):
    environment = standin_nvml(f"gpus 2\n0 {IDLE} persistence=0 compute_mode=2 power_limit_mw=200000")
    lines = gpuwarm("check", environment=environment).stdout.splitlines()
    assert lines[0].startswith("To mend: ")
    assert any("GPU 0-1" in line for line in lines)
    assert "           sudo nvidia-smi -i 0,1 -c DEFAULT" in lines
    assert [line for line in lines if len(line) > 80 and not line.startswith("           sudo ")] == []


def test_a_finding_is_explained():
    done = here("check", "--about", "persistence-off")
    assert done.exit_code == 0
    assert "--no-persistence-mode" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize("option", ["--about", "--only", "--ignore"])
def test_a_finding_that_does_not_exist_is_a_mistake_of_usage(option: str):
    done = here("check", option, "persistence-of")
    assert done.exit_code == 2
    assert "did you mean persistence-off?" in unboxed(done.stderr)
    assert "there are application-clocks, at-rest" in unboxed(here("check", option, "nonsense").stderr)


def test_measuring_what_cannot_be_opened_is_said_and_no_failure(standin_nvml: Standin):
    environment = standin_nvml(f"gpus 16\n0 {IDLE} persistence=0")
    answer = json.loads(gpuwarm("check", "--json", "--measure", "--gpu", "15", environment=environment).stdout)
    assert answer["host"]["driver_load"] is None
    (note,) = answer["notes"]
    assert "the driver's start was not measured: /dev/nvidia15 cannot be opened" in note


def test_a_machine_like_its_baseline_passes_and_another_does_not(standin_nvml: Standin, tmp_path: Path):
    good, other = standin_nvml(f"0 {IDLE}"), standin_nvml(f"driver 590.48.01\n0 {IDLE} power_limit_mw=300000")
    baseline = tmp_path / "good.json"
    baseline.write_text(gpuwarm("check", "--json", environment=good).stdout)
    compare = ["check", "--json", "--baseline", str(baseline), "--only", "differs-from-baseline"]
    same = gpuwarm(*compare, environment=good)
    assert (same.returncode, json.loads(same.stdout)["findings"]) == (0, [])
    differs = gpuwarm(*compare, environment=other)
    assert differs.returncode == EXIT_FINDINGS == 3
    assert [finding["summary"] for finding in json.loads(differs.stdout)["findings"]] == [
        "driver: 590.48.01 here, 580.95.05 in the baseline",
        "power limit (W): 300 here, 350 in the baseline",
    ]
    text = gpuwarm("check", "--baseline", str(baseline), environment=other).stdout
    assert text.startswith("To mend: differs-from-baseline")
    assert text.index("580.95.05 in the baseline") < text.index("Persistence")


def test_a_baseline_that_is_none_is_a_sentence(standin_nvml: Standin, tmp_path: Path):
    (tmp_path / "good.json").write_text('{"schema": "gpuwarm.check/9"}')
    done = gpuwarm("check", "--baseline", str(tmp_path / "good.json"), environment=standin_nvml(f"0 {IDLE}"))
    assert done.returncode == 1
    assert "is not a check report" in done.stderr
    assert "gpuwarm check --json" in done.stderr


SEED = """
+-----------------------------------------------------------------------------+
| NVIDIA-SMI 535.104.05   Driver Version: 537.13       CUDA Version: 12.2     |
|-------------------------------+----------------------+----------------------+
| GPU  Name        Persistence-M| Bus-Id        Disp.A | Volatile Uncorr. ECC |
| Fan  Temp  Perf  Pwr:Usage/Cap|         Memory-Usage | GPU-Util  Compute M. |
|                               |                      |               MIG M. |
|===============================+======================+======================|
|   0  NVIDIA GeForce ...  On   | 00000000:01:00.0  On |                  N/A |
|  0%   41C    P8    21W / 320W |    911MiB / 10240MiB |      7%      Default |
|                               |                      |                  N/A |
+-------------------------------+----------------------+----------------------+
"""


def test_a_paste_on_stdin_is_checked():
    result = CliRunner().invoke(cli.app, ["check", "-", "--json"], input=SEED)
    answer = json.loads(result.stdout)
    assert (result.exit_code, answer["source"], answer["platform"], answer["host"]) == (0, "stdin", "wsl2", None)
    assert answer["verdict"] == "ok"
    (gpu,) = answer["gpus"]
    assert (gpu["persistence_mode"], gpu["pstate"], gpu["display_active"]) == ("on", 8, True)
    assert {(finding["id"], finding["severity"]) for finding in answer["findings"]} == {
        ("display-attached", "info"),
        ("at-rest", "ok"),
        ("persistence-not-applicable", "not_applicable"),
    }
    assert "clocks" in answer["not_judged"]


def test_the_json_of_another_machine_is_judged_as_that_machine(standin_nvml: Standin, tmp_path: Path):
    written = tmp_path / "node7.json"
    written.write_text(gpuwarm("check", "--json", environment=standin_nvml(f"0 {IDLE} compute_mode=2")).stdout)
    again = here("check", written, "--json")
    first, second = json.loads(written.read_text()), json.loads(again.stdout)
    assert (again.exit_code, second.pop("source"), first.pop("source")) == (EXIT_FINDINGS, str(written), "live")
    assert second == first
    written.write_text(written.read_text()[:400])
    cut = here("check", written)
    assert isinstance(cut.exception, InputError)
    assert "node7.json is not a check report" in str(cut.exception)


def test_one_gpu_of_a_file_can_be_asked_for(tmp_path: Path):
    (tmp_path / "paste.txt").write_text(SEED)
    assert here("check", tmp_path / "paste.txt", "--gpu", "00000000:01:00.0").exit_code == 0
    missing = here("check", tmp_path / "paste.txt", "--gpu", "1")
    assert isinstance(missing.exception, InputError)
    assert "has no GPU '1': name one of 0 (NVIDIA GeForce ...)" in str(missing.exception)


def test_what_is_not_there_and_what_is_no_machine_are_sentences(tmp_path: Path):
    missing = here("check", tmp_path / "none.txt")
    assert "none.txt cannot be read (No such file or directory): give" in str(missing.exception)
    (tmp_path / "poem.txt").write_text("so much depends\nupon\n")
    assert isinstance(here("check", tmp_path / "poem.txt").exception, InputError)


@pytest.mark.parametrize("option", ["--measure", "--wait"])
def test_a_file_cannot_be_measured(option: str):
    assert here("check", "-", option).exit_code == 2


def test_a_log_without_header_is_read_by_the_columns_given():
    log = "0, 210 MHz, 52.10 W, Disabled\n1, 1410 MHz, 88.00 W, Disabled\n"
    fields = "index,clocks.sm,power.draw,persistence_mode"
    done = CliRunner().invoke(cli.app, ["check", "-", "--json", "--columns", fields], input=log)
    assert [gpu["persistence_mode"] for gpu in json.loads(done.stdout)["gpus"]] == ["off", "off"]
    assert here("check", "--columns", fields).exit_code == 2


def test_the_readme_shows_what_check_prints(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(ROOT)
    command = "$ gpuwarm check tests/data/l4_persistence_off.txt\n"
    shown = Path("README.md").read_text().split(command)[1].split("```")[0]
    printed = CliRunner().invoke(cli.app, command.split()[2:], env={"COLUMNS": "80"}).stdout
    assert printed.startswith(shown)
    assert len(shown.splitlines()) > 10
