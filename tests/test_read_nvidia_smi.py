"""nvidia-smi's outputs become machine states, however they were pasted; what is not in them stays unknown."""

import html
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwarm.errors import InputError
from gpuwarm.machine import GpuProcess, MachineState
from gpuwarm.read import nvidia_smi

DATA = Path(__file__).parent / "data" / "smi"
TABLES = sorted(file.name for file in DATA.glob("table_*.txt"))


def read(name: str) -> MachineState:
    return nvidia_smi.machine_state((DATA / name).read_bytes(), name)


def test_a_wide_table_tells_both_gpus():
    state = read("table_desktop.txt")
    first, second = state.gpus
    assert (state.driver_version, state.cuda_version, state.platform) == ("570.86.15", "12.8", "linux")
    assert (first.name, first.persistence_mode, first.pstate) == ("NVIDIA GeForce RTX 3060", "off", 2)
    assert (first.power_w, first.power_limit_w, first.temperature_c, first.utilization_pct) == (96, 170, 58, 87)
    assert (first.display_active, first.ecc_mode, first.mig_mode) == (True, None, None)
    assert (second.name, second.persistence_mode, second.ecc_mode) == ("NVIDIA RTX A5000", "on", "disabled")
    assert (second.compute_mode, second.memory_used_mib, second.memory_total_mib) == ("Exclusive_Process", 3, 24564)


def test_processes_belong_to_their_gpu_and_names_keep_their_blanks():
    first, second = read("table_desktop.txt").gpus
    assert first.processes == (
        GpuProcess(2211, "/usr/lib/xorg/Xorg", "G", 91.0),
        GpuProcess(4194301, "...s with blanks/bin/python3.11", "C", 3898.0),
    )
    assert second.processes == ()


def test_a_table_without_cuda_version_and_instances_is_read_alike():
    state = read("table_narrow_390.txt")
    gpu = state.gpus[0]
    assert (state.driver_version, state.cuda_version) == ("390.116", None)
    assert (gpu.name, gpu.pstate, gpu.power_w, gpu.memory_total_mib) == ("GeForce GTX 108...", 5, 21, 11178)
    assert [(process.pid, process.kind) for process in gpu.processes or ()] == [(1377, "G"), (2788, "C+G")]
    assert any("nvidia-smi -L" in note for note in state.notes)


def test_a_driver_model_is_windows_and_persistence_does_not_apply():
    state = read("table_windows_mcdm.txt")
    assert state.platform == "windows"
    assert (state.gpus[0].driver_model, state.gpus[0].persistence_mode) == ("MCDM", "n/a")


def test_a_mig_change_waits_for_a_reset_and_a_lost_gpu_is_unknown_not_zero():
    state = read("table_mig_and_lost.txt")
    mig, failing, lost = state.gpus
    assert (mig.mig_mode, mig.mig_devices, mig.utilization_pct) == ("enabled (pending disabled)", 2, None)
    assert mig.processes == (GpuProcess(5150, "tritonserver", "C", 17.0),)
    assert (failing.power_w, failing.power_limit_w, failing.temperature_c, failing.pstate) == (None, 165, None, 0)
    assert (lost.name, lost.persistence_mode, lost.power_w, lost.memory_used_mib) == (None, "unknown", None, None)
    assert any("power of GPU 1 read ERR!" in note for note in state.notes)
    assert (mig.trouble, failing.trouble, lost.trouble) == (None, "ERR!", "ERR!")


def test_where_a_paste_ends_before_the_mig_devices_there_may_be_some():
    table = (DATA / "table_mig_and_lost.txt").read_text()
    cut = table[: table.index("|  0    1   0   0")]
    log = (DATA / "q_two_gpus.txt").read_text()
    of_cut_log = log[: log.index("    MIG Device\n")]
    for text in (cut, of_cut_log):
        machine = nvidia_smi.machine_state(text.encode(), "paste")
        assert "enabled" in {(gpu.mig_mode or "").split(" ")[0] for gpu in machine.gpus}
        assert {gpu.mig_devices for gpu in machine.gpus if (gpu.mig_mode or "").startswith("enabled")} == {None}
    said = cut + "|  No MIG devices found   |\n"
    assert nvidia_smi.machine_state(said.encode(), "paste").gpus[0].mig_devices == 0


@pytest.mark.parametrize("answer", ["GPU is lost", "GPU requires reset", "Unknown Error"])
def test_a_gpu_that_does_not_answer_is_in_trouble_in_every_output(answer: str):
    csv = f"index, temperature.gpu, power.draw [W]\n0, 31, 28.00 W\n1, [{answer}], [{answer}]\n"
    well, ill = nvidia_smi.machine_state(csv.encode(), "log.csv").gpus
    assert (well.trouble, ill.trouble) == (None, answer)
    log = (DATA / "q_two_gpus.txt").read_text()
    second = log.rindex("\nGPU ")
    broken = log[:second] + re.sub(r"(: )\S.*", rf"\1{answer}", log[second:])
    assert [gpu.trouble for gpu in nvidia_smi.machine_state(broken.encode(), "q.txt").gpus] == [None, answer]


def hard_wrapped(width: int) -> Callable[[str], str]:
    def wrap(text: str) -> str:
        lines = text.split("\n")
        return "\n".join(line[at : at + width] for line in lines for at in range(0, max(len(line), 1), width))

    return wrap


def soft_wrapped(text: str) -> str:
    lines = []
    for line in text.split("\n"):
        while len(line) > 64 and " " in line[1:64]:
            cut = line.rindex(" ", 1, 64)
            lines.append(line[:cut])
            line = line[cut + 1 :]
        lines.append(line)
    return "\n".join(lines)


def each_line(change: Callable[[int, str], str]) -> Callable[[str], str]:
    return lambda text: "\n".join(change(at, line) for at, line in enumerate(text.split("\n")))


PASTES: dict[str, Callable[[str], str]] = {
    "wrapped at 80": hard_wrapped(80),
    "wrapped at 60": hard_wrapped(60),
    "wrapped at 45": hard_wrapped(45),
    "wrapped at words": soft_wrapped,
    "quoted": each_line(lambda _, line: f"> {line}".rstrip()),
    "quoted twice": each_line(lambda _, line: f"> > {line}"),
    "stamped": each_line(lambda at, line: f"2025-03-04T10:11:{at % 60:02d}.{at * 17 % 1000:03d}Z {line}"),
    "from docker compose": each_line(lambda _, line: f"gpu-1  | {line}"),
    "indented by tabs": each_line(lambda _, line: f"\t{line}"),
    "blanks lost at the left": each_line(lambda _, line: line.lstrip()),
    "runs of blanks lost": lambda text: re.sub(" +", " ", text),
    "all on one line": lambda text: re.sub(r"\s+", " ", text),
    "coloured": each_line(lambda _, line: f"\x1b[1;32m{line}\x1b[0m"),
    "hard blanks": lambda text: text.replace(" ", "\u00a0"),
    "box drawing": lambda text: text.replace("|", "\u2502"),
    "escaped for markdown": lambda text: text.replace("|", "\\|"),
    "Windows line ends": lambda text: text.replace("\n", "\r\n"),
    "doubled line ends": lambda text: text.replace("\n", "\r\r\n"),
    "a question around it": lambda text: (
        f"Why is it slow?\n```\n(base) me@host:~$ nvidia-smi\n{text}\n```\nThanks | bye"
    ),
    "from srun -l": each_line(lambda _, line: f"0: {line}".rstrip()),
    "the source of a web page": lambda text: (
        "<pre><code>" + html.escape(text).replace(" ", "&nbsp;").replace("\n", "<br/>\n") + "</code></pre>"
    ),
    "a string within JSON": lambda text: json.dumps({"stdout": text}),
    "seen by watch": lambda text: f"Every 1.0s: nvidia-smi      host: Tue Mar  4\n\n{text}",
}


@pytest.mark.parametrize("paste", PASTES)
@pytest.mark.parametrize("table", TABLES)
def test_a_paste_changes_nothing(table: str, paste: str):
    text = PASTES[paste]((DATA / table).read_text())
    assert nvidia_smi.machine_state(text.encode(), table) == read(table)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
def test_powershells_encodings_change_nothing(encoding: str):
    text = (DATA / "table_desktop.txt").read_text()
    assert nvidia_smi.machine_state(text.encode(encoding), "table_desktop.txt") == read("table_desktop.txt")


def test_a_table_cut_at_its_right_keeps_what_is_left_of_the_cut():
    text = each_line(lambda _, line: line[:60])((DATA / "table_desktop.txt").read_text())
    first, second = nvidia_smi.machine_state(text.encode(), "cut").gpus
    assert (first.pstate, first.power_w, first.utilization_pct) == (2, 96, None)
    assert (second.persistence_mode, second.pstate) == ("on", 8)


def test_rows_without_their_head_are_told_by_their_form():
    lines = (DATA / "table_desktop.txt").read_text().split("\n")[8:11]
    gpu = nvidia_smi.machine_state("\n".join(lines).encode(), "rows").gpus[0]
    assert (gpu.name, gpu.persistence_mode, gpu.pstate, gpu.power_limit_w) == ("NVIDIA GeForce RTX 3060", "off", 2, 170)
    assert gpu.processes is None


def test_processes_that_are_cut_off_are_not_none():
    text = (DATA / "table_desktop.txt").read_text()
    headless = text[: text.index("|    0   N/A  N/A      2211")]
    state = nvidia_smi.machine_state(headless.encode(), "cut")
    assert state.gpus[0].processes is None
    assert any("cut off within its processes" in note for note in state.notes)


def test_of_two_tables_the_last_whole_one_is_read():
    text = (DATA / "table_desktop.txt").read_text()
    later = text.replace("96W", "31W")
    state = nvidia_smi.machine_state((text + later + text[:900]).encode(), "two")
    assert state.gpus[0].power_w == 31
    assert any("holds 3 tables" in note for note in state.notes)


def test_q_tells_what_a_table_does_not():
    state = read("q_two_gpus.txt")
    first, second = state.gpus
    assert (first.index, first.sm_clock_mhz, first.sm_clock_max_mhz, first.mem_clock_mhz) == (0, 225, 2040, 405)
    assert (first.power_w, first.power_instant_w, first.power_limit_w, first.power_limit_default_w) == (
        11.9,
        12.75,
        60,
        72,
    )
    assert first.event_reasons == ("gpu_idle", "hw_slowdown", "hw_thermal_slowdown")
    assert first.event_reason_counters_us == {
        "sw_power_cap": 1200,
        "sync_boost": 0,
        "sw_thermal_slowdown": 77,
        "hw_thermal_slowdown": 5,
    }
    assert (first.pcie_gen, first.pcie_gen_max, first.pcie_width, first.pcie_width_max) == (1, 4, 8, 16)
    assert (first.ecc_mode, first.virtualization_mode) == ("enabled (pending disabled)", "VGPU")
    assert (first.temperature_limit_c, first.compute_mode, first.processes) == (88, "Exclusive_Process", ())
    assert (second.mig_mode, second.mig_devices) == ("enabled (pending disabled)", 1)
    assert (second.memory_used_mib, second.memory_total_mib, second.power_w) == (8112, 23034, 70.02)
    assert second.event_reasons is None
    assert second.processes == (
        GpuProcess(90210, "/opt/serve/bin/worker --port 8001", "C", 8101.0),
        GpuProcess(90211, "nvidia-cuda-mps-server", "M+C", None),
    )


@pytest.mark.parametrize(
    "paste",
    [
        "quoted",
        "stamped",
        "from srun -l",
        "the source of a web page",
        "a string within JSON",
        "indented by tabs",
        "blanks lost at the left",
        "coloured",
        "a question around it",
    ],
)
def test_q_survives_a_paste(paste: str):
    text = PASTES[paste]((DATA / "q_two_gpus.txt").read_text())
    assert nvidia_smi.machine_state(text.encode(), "q_two_gpus.txt") == read("q_two_gpus.txt")


def test_the_order_of_sections_in_q_does_not_matter():
    head, first, second = re.split(r"(?m)^(?=GPU 0)", (DATA / "q_two_gpus.txt").read_text())

    def reversed_sections(gpu: str) -> str:
        name, *rest = gpu.rstrip("\n").split("\n")
        sections = re.split(r"(?m)^(?=    \S)", "\n".join(rest))
        return "\n".join([name, *(section.strip("\n") for section in reversed(sections) if section)]) + "\n"

    text = head + reversed_sections(first) + reversed_sections(second)
    assert nvidia_smi.machine_state(text.encode(), "q_two_gpus.txt") == read("q_two_gpus.txt")


def test_a_part_of_q_knows_its_part_and_not_which_of_four_gpus_it_is():
    state = read("q_part.txt")
    gpu = state.gpus[0]
    assert (gpu.index, gpu.name, gpu.persistence_mode, gpu.processes) == (None, None, "unknown", None)
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.pstate) == (1380, 1530, 0)
    assert gpu.event_reasons == ("sw_power_cap",)
    assert any("4 GPUs are attached, 1 of them told" in note for note in state.notes)


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("    Persistence Mode                  : Enabled\n", "persistence_mode", "on"),
        ("    Performance State                 : P3\n", "pstate", 3),
        ("    Temperature\n        GPU Current Temp              : 41 C\n", "temperature_c", 41),
        ("    GPU Power Readings\n        Average Power Draw            : 5.25 W\n", "power_w", 5.25),
    ],
)
def test_what_grep_leaves_of_q_is_read(part: str, field: str, value: object):
    (gpu,) = nvidia_smi.machine_state(part.encode(), "x").gpus
    assert getattr(gpu, field) == value
    three = nvidia_smi.machine_state(3 * part.encode(), "x").gpus
    assert [getattr(gpu, field) for gpu in three] == [value] * 3


def test_a_reason_above_the_first_key_that_tells_a_gpu_is_kept():
    part = "    Clocks Event Reasons\n        Idle : Active\n        SW Power Cap : Not Active\n"
    (gpu,) = nvidia_smi.machine_state(part.encode(), "x").gpus
    assert gpu.event_reasons == ("gpu_idle",)


def test_an_active_reason_without_its_section_is_read():
    (gpu,) = nvidia_smi.machine_state(b"        SW Power Cap                      : Active\n", "x").gpus
    assert gpu.event_reasons == ("sw_power_cap",)


def test_clocks_alone_are_read():
    (gpu,) = nvidia_smi.machine_state(b"    Clocks\n        Graphics : 915 MHz\n        SM : 930 MHz\n", "x").gpus
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz) == (930, None)


@pytest.mark.parametrize("names", [("0: ", "1: "), ("node07: ", "node12: "), ("a  | ", "b  | ")])
@pytest.mark.parametrize("name", ["table_desktop.txt", "q_two_gpus.txt"])
def test_lines_of_several_machines_are_not_taken_for_one(name: str, names: tuple[str, str]):
    lines = (DATA / name).read_text().splitlines()
    both = "\n".join(machine + line for line in lines for machine in names)
    with pytest.raises(InputError, match="lines of 2 machines"):
        nvidia_smi.machine_state(both.encode(), name)


def test_what_grep_leaves_of_a_table_is_read():
    lines = (DATA / "table_desktop.txt").read_text().splitlines()
    whole = read("table_desktop.txt").gpus
    without_rules = [line for line in lines if "NVIDIA" in line or "MiB /" in line]
    gpus = nvidia_smi.machine_state("\n".join(without_rules).encode(), "x").gpus
    assert [(gpu.index, gpu.name, gpu.power_w) for gpu in gpus] == [(gpu.index, gpu.name, gpu.power_w) for gpu in whole]
    second_rows = [line for line in lines if "MiB /" in line]
    gpus = nvidia_smi.machine_state("\n".join(second_rows).encode(), "x").gpus
    assert [(gpu.name, gpu.pstate, gpu.power_w) for gpu in gpus] == [(None, gpu.pstate, gpu.power_w) for gpu in whole]


@pytest.mark.parametrize("name", ["table_desktop.txt", "q_two_gpus.txt"])
def test_a_gpu_that_could_not_be_opened_stands_beside_the_others(name: str):
    text = (DATA / name).read_text() + "\nUnable to determine the device handle for GPU5: 0000:47:00.0: Unknown Error\n"
    *others, lost = nvidia_smi.machine_state(text.encode(), name).gpus
    assert tuple(others) == read(name).gpus
    assert (lost.index, lost.pci_bus_id, lost.trouble) == (5, "0000:47:00.0", "Unknown Error")


def test_of_a_table_and_q_the_one_that_tells_more_is_read():
    table, whole = (DATA / "table_desktop.txt").read_text(), (DATA / "q_two_gpus.txt").read_text()
    state = nvidia_smi.machine_state(f"{table}\n{whole}".encode(), "x")
    assert state.gpus == read("q_two_gpus.txt").gpus
    assert any("holds a table, too" in note for note in state.notes)
    log = "==============NVSMI LOG==============\nAttached GPUs : 1\nGPU 00000000:01:00.0\n    Performance State : P8\n"
    state = nvidia_smi.machine_state(f"{table}\n{log}".encode(), "x")
    assert state.gpus == read("table_desktop.txt").gpus
    assert any("holds an answer of -q, too" in note for note in state.notes)


def test_processes_below_a_table_without_rules_are_no_gpus():
    lines = (DATA / "table_desktop.txt").read_text().splitlines()
    without_rules = "\n".join(line for line in lines if line.strip("+-=|"))
    gpus = nvidia_smi.machine_state(without_rules.encode(), "x").gpus
    assert [(gpu.name, gpu.processes) for gpu in gpus] == [
        ("NVIDIA GeForce RTX 3060", None),
        ("NVIDIA RTX A5000", None),
    ]


def test_the_guests_that_a_host_lists_are_no_gpus():
    text = """\
| NVIDIA-SMI 470.63                 Driver Version: 470.63                    |
|---------------------------------+------------------------------+------------+
| GPU  Name                       | Bus-Id                       | GPU-Util   |
|      vGPU ID     Name           | VM ID     VM Name            | vGPU-Util  |
|=================================+==============================+============|
|   0  NVIDIA A16                 | 00000000:3B:00.0             |  12%       |
|      3251634243  NVIDIA A16-4Q  | 1234      desk               |     10%    |
+---------------------------------+------------------------------+------------+
"""
    (gpu,) = nvidia_smi.machine_state(text.encode(), "x").gpus
    assert (gpu.name, gpu.utilization_pct) == ("NVIDIA A16", 12)


def test_a_gpu_cut_out_of_xml_is_read():
    whole = (DATA / "q.xml").read_text()
    part = whole[whole.index("<gpu id=") : whole.index("</gpu>") + len("</gpu>")]
    assert nvidia_smi.machine_state(part.encode(), "x").gpus == read("q.xml").gpus[:1]


OTHER_MAKERS = """\
+-----------------------------------------------------------------------------+
| {title}              Driver Version: 1.15.1                           |
|-------------------------------+----------------------+----------------------+
|   0  HL-225              N/A  | 0000:33:00.0     N/A |                   0  |
| N/A   26C   N/A   99W / 600W  |   768MiB / 98304MiB  |     0%           N/A |
+-------------------------------+----------------------+----------------------+
"""


@pytest.mark.parametrize("title", ["HL-SMI", "mx-smi", "npu-smi"])
def test_another_makers_table_is_no_gpu_of_nvidias(title: str):
    with pytest.raises(InputError, match="another maker"):
        nvidia_smi.machine_state(OTHER_MAKERS.format(title=title).encode(), "x")


def test_a_key_of_two_sections_is_of_one_gpu():
    own, module = "        Average Power Draw : 71.5 W\n", "        Average Power Draw : N/A\n"
    part = f"    GPU Power Readings\n{own}    Module Power Readings\n{module}"
    (gpu,) = nvidia_smi.machine_state(part.encode(), "x").gpus
    assert gpu.power_w == 71.5


def test_xml_tells_the_same():
    state = read("q.xml")
    gpu = state.gpus[0]
    assert (state.driver_version, state.cuda_version, state.platform) == ("545.23.08", "12.3", "linux")
    assert (gpu.sm_clock_mhz, gpu.sm_clock_max_mhz, gpu.power_w, gpu.pcie_gen) == (1410, 1740, 298.5, 3)
    assert gpu.event_reasons == ("sw_power_cap",)
    assert gpu.event_reason_counters_us == {"sw_power_cap": 42, "sw_thermal_slowdown": 7}
    assert gpu.processes == (GpuProcess(777, "python", "C", 11988.0),)


def test_xml_that_is_cut_keeps_what_is_there_and_says_so():
    text = (DATA / "q.xml").read_text()
    state = nvidia_smi.machine_state(text[: text.index("<clocks>") + 40].encode(), "cut.xml")
    assert (state.gpus[0].power_w, state.gpus[0].sm_clock_mhz) == (298.5, None)
    assert any("ends or is damaged" in note for note in state.notes)


def test_entities_are_refused():
    entity = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "ha">]>'
    bomb = f'<?xml version="1.0"?>{entity}<nvidia_smi_log><gpu>&a;</gpu></nvidia_smi_log>'
    with pytest.raises(InputError, match="declares XML entities"):
        nvidia_smi.machine_state(bomb.encode(), "bomb.xml")


def test_bottomless_xml_is_refused():
    with pytest.raises(InputError, match="nests deeper"):
        nvidia_smi.machine_state(b"<nvidia_smi_log>" + b"<gpu>" * 1000, "deep.xml")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is empty"),
        ("\x89PNG\r\n", "a picture: paste the text"),
        ("hello, world", 'text that begins "hello, world"'),
        ('{"a": 1}', "JSON"),
        ("GPU 0: NVIDIA H200 (UUID: GPU-1)", "`nvidia-smi -L`"),
        ("&&&& RUNNING TensorRT.trtexec [TensorRT v8601] # trtexec", "a trtexec log: `gpuwarm analyze` takes it"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", "its driver is not loaded"),
        ("Failed to initialize NVML: Driver/library version mismatch", "reboot"),
        ("No devices were found", "the driver sees no GPU"),
        ("NVIDIA-SMI 570.86.15  Driver Version: 570.86.15\n 0 NVIDIA A2 Off 00000000:01:00.0 Off", "without the bars"),
        ("bash: nvidia-smi: command not found", "install the driver"),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "wsl --shutdown"),
        ("Failed to initialize NVML: Insufficient Permissions", "ls -l /dev/nvidia*"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "install the driver anew"),
        ('Field "clocks.smm" is not a valid field to query.', "--help-query-gpu"),
        ("pid, process_name, used_gpu_memory [MiB]\n71, python, 300 MiB", "`--query-compute-apps`"),
        ("[0] NVIDIA GeForce RTX 3090 | 34'C,   0 % |   234 / 24576 MB |", "gpustat"),
        ('DCGM_FI_DEV_SM_CLOCK{gpu="0",modelName="NVIDIA L4"} 210', "DCGM"),
        ("| GPU ID | Device Information |\n| 0 | Name: NVIDIA A2 |\n|   | PCI Bus ID: 00000000:07:00.0 |", "DCGM"),
        ("01:00.0 3D controller: NVIDIA Corporation GA107M (rev a1)", "lspci"),
        ("09-12-2025 10:01:02 RAM 9832/125772MB (lfb 62x4MB) SWAP 0/0MB CPU [0%@972]", "tegrastats"),
        ("| NVIDIA-SMI 570.86.15 Driver Version: 570.86.15 CUDA Version: 12.8 |", "no GPU below it"),
        ("==============NVSMI LOG==============\nDriver Version : 550.54", "no GPU below it"),
    ],
)
def test_what_is_no_answer_of_nvidia_smi_is_named(text: str, says: str):
    with pytest.raises(InputError, match=re.escape(says)):
        nvidia_smi.machine_state(text.encode("latin-1"), "paste")
