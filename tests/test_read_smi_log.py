"""nvidia-smi's logs become samples of one GPU; what is odd about a log is said, what it does not tell stays missing."""

import re

import numpy as np
import pytest

from gpuwarm.errors import InputError
from gpuwarm.read import nvidia_smi
from gpuwarm.recording import Recording

HEADER = "timestamp, index, name, pstate, clocks.current.sm [MHz], power.draw [W], utilization.gpu [%]"
ROWS = [
    "2025/03/04 10:11:12.250, 0, NVIDIA L4, P8, 210 MHz, 11.90 W, 0 %",
    "2025/03/04 10:11:12.350, 0, NVIDIA L4, P0, 2040 MHz, 31.25 W, 7 %",
    "2025/03/04 10:11:12.451, 0, NVIDIA L4, P0, 1995 MHz, 71.80 W, 100 %",
]
MS = 10**6


def log(*lines: str, ending: str = "\n") -> bytes:
    return (ending.join(lines) + ending).encode()


def read(data: bytes, **options: str) -> Recording:
    samples = nvidia_smi.samples(data, "gpu.csv", **options)
    assert samples is not None
    return samples.recording


def said(recording: Recording) -> str:
    return " | ".join(recording.meta.notes)


def test_a_log_tells_time_state_and_the_gpu():
    recording = read(log(HEADER, *ROWS))
    rows = recording.samples
    assert rows["t_ns"].tolist() == [0, 100 * MS, 201 * MS]
    assert rows["pstate"].tolist() == [8, 0, 0]
    assert rows["sm_clock_mhz"].tolist() == [210, 2040, 1995]
    assert rows["power_average_mw"].tolist() == [11_900, 31_250, 71_800]  # power.draw is an average on an L4
    assert np.isnan(rows["power_mw"]).all()
    assert np.isnan(rows["mem_clock_mhz"]).all()
    assert recording.meta.time_base == "relative"
    assert recording.meta.started_utc is None  # local time, and nothing says where
    before = recording.meta.machine_before
    assert before is not None
    assert (before.gpus[0].name, before.gpus[0].index, before.gpus[0].pstate) == ("NVIDIA L4", 0, 8)


VARIANTS = {
    "without units": lambda text: re.sub(r" (?:MHz|W|%)(?=,|\n)", "", text),
    "with Windows line ends": lambda text: text.replace("\n", "\r\n"),
    "saved as a data frame": lambda text: "".join(
        f"{'' if number == 0 else number - 1},{line}\n" for number, line in enumerate(text.strip().split("\n"))
    ),
    "header before every row": lambda text: text.replace("\n2025", f"\n{HEADER}\n2025").replace(f"{HEADER}\n", "", 1),
    "between semicolons, with decimal commas": lambda text: (
        text.replace(",", ";")
        .replace(".", ",")
        .replace("clocks,current,sm", "clocks.current.sm")
        .replace("power,draw", "power.draw")
        .replace("utilization,gpu", "utilization.gpu")
    ),
    "between tabs": lambda text: text.replace(", ", "\t"),
    "quoted": lambda text: re.sub(r"[^,\n]+", lambda cell: f'"{cell[0].strip()}"', text),
    "each row a string": lambda text: re.sub(r"(?m)^(.+)$", r'"\1"', text),
    "quoted in a mail": lambda text: re.sub(r"(?m)^(?=.)", "> ", text),
    "named by pdsh": lambda text: re.sub(r"(?m)^(?=.)", "node-04: ", text),
    "stamped by a container": lambda text: re.sub(r"(?m)^(?=.)", "2025-03-04T09:11:12.250118Z ", text),
    "logged by Python": lambda text: re.sub(r"(?m)^(?=.)", "2025-03-04 09:11:12,250 INFO root: ", text),
    "after a prompt": lambda text: f"me@host:~$ nvidia-smi --query-gpu=timestamp --format=csv -lms 100\n{text}",
    "with ISO dates": lambda text: text.replace("2025/03/04 ", "2025-03-04T"),
    "with day first": lambda text: text.replace("2025/03/04", "24-03-2025"),
    "with time alone": lambda text: text.replace("2025/03/04 ", ""),
    "with dates that lost their zeros": lambda text: text.replace("2025/03/04 ", "2025/3/4 "),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_how_a_log_is_written_does_not_matter(variant: str):
    plain = log(HEADER, *ROWS)
    changed = read(VARIANTS[variant](plain.decode()).encode())
    assert changed.samples.tobytes() == read(plain).samples.tobytes()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-be", "utf-8-sig"])
def test_powershells_encodings_do_not_matter(encoding: str):
    assert (
        read(log(HEADER, *ROWS).decode().encode(encoding)).samples.tobytes()
        == read(log(HEADER, *ROWS)).samples.tobytes()
    )


def test_columns_are_named_where_the_header_is_not():
    bare = log("1741083072.25, 210, 8", "1741083072.35, 2040, 0")
    assert nvidia_smi.samples(bare, "gpu.csv") is None
    recording = read(bare, columns="timestamp,clocks.sm,pstate")
    assert recording.samples["sm_clock_mhz"].tolist() == [210, 2040]
    assert recording.samples["t_ns"].tolist() == [0, 100 * MS]
    assert recording.meta.started_utc == "2025-03-04T10:11:12.250000+00:00"


def test_columns_that_cannot_be_the_headers_give_way_to_it():
    recording = read(log(HEADER, *ROWS), columns="timestamp,clocks.sm,pstate")
    assert recording.samples["sm_clock_mhz"].tolist() == [210, 2040, 1995]


def test_columns_that_are_none_of_nvidia_smis_are_refused():
    with pytest.raises(InputError, match="--columns foo,bar names no field"):
        read(log("1, 2"), columns="foo,bar")


def test_the_command_above_a_log_without_header_names_its_columns():
    recording = read(
        log(
            "$ nvidia-smi --query-gpu=timestamp,clocks.mem,clocks.sm --format=csv,noheader",
            "10:00:00.5, 405 MHz, 300 MHz",
        )
    )
    assert (recording.samples["mem_clock_mhz"][0], recording.samples["sm_clock_mhz"][0]) == (405, 300)


def test_a_query_in_quotes_and_with_blanks_names_the_columns_too():
    data = log('$ nvidia-smi --query-gpu="index, pstate, clocks.sm" --format=csv,noheader', "0, P5, 300 MHz")
    (gpu,) = nvidia_smi.machine_state(data, "x").gpus
    assert (gpu.index, gpu.pstate, gpu.sm_clock_mhz) == (0, 5, 300)


def test_a_field_alone_is_read():
    assert [gpu.pstate for gpu in nvidia_smi.machine_state(log("pstate", "P8", "P2"), "x").gpus] == [8, 2]
    (gpu,) = nvidia_smi.machine_state(log("persistence_mode", "Disabled"), "x").gpus
    assert gpu.persistence_mode == "off"


def test_bytes_that_are_no_text_before_a_header_are_no_margin():
    data = b"\xff pstate; clocks.current.sm [MHz]; power.draw [W]\nP0; 210 MHz; 11.90 W\n"
    assert [gpu.pstate for gpu in nvidia_smi.machine_state(data, "x").gpus] == [0]


def test_empty_lines_below_a_field_alone_are_no_rows():
    assert [gpu.pstate for gpu in nvidia_smi.machine_state(b"pstate\nP8\n\n\nP2\n\n", "x").gpus] == [8, 2]


def test_few_rows_without_time_and_index_are_one_each_of_several_gpus():
    header, *rows = "name, clocks.current.sm [MHz]", "NVIDIA A2, 300 MHz", "NVIDIA A2, 1770 MHz", "NVIDIA A16, 885 MHz"
    state = nvidia_smi.machine_state(log(header, *rows), "x")
    assert [(gpu.name, gpu.sm_clock_mhz) for gpu in state.gpus] == [
        ("NVIDIA A2", 300),
        ("NVIDIA A2", 1770),
        ("NVIDIA A16", 885),
    ]
    assert any("taken for 3 GPUs in their order" in note for note in state.notes)
    (gpu,) = nvidia_smi.machine_state(log(header, *3 * rows[:2], *3 * rows[:1]), "x").gpus  # a log
    assert gpu.sm_clock_mhz == 300


def test_rows_of_several_machines_are_not_taken_for_one():
    rows = log("n1: 0, P0, 345 MHz, 68.10 W", "n2: 0, P0, 1980 MHz, 412.77 W")
    with pytest.raises(InputError, match="lines of 2 machines"):
        nvidia_smi.machine_state(rows, "x")


def test_prose_is_no_log():
    assert (
        nvidia_smi.samples(log("My gpu, power, clocks and temperature.", "Runs at 21 MHz, 22 W, 35 C, hm"), "x") is None
    )


def test_check_sees_every_gpu_of_a_log_that_names_none():
    rows = [f"10:00:0{second}.00{gpu}, NVIDIA A2, {100 * gpu + second} MHz" for second in range(5) for gpu in range(2)]
    state = nvidia_smi.machine_state(log("timestamp, name, clocks.current.sm [MHz]", *rows), "x")
    assert [gpu.sm_clock_mhz for gpu in state.gpus] == [4, 104]


def test_two_different_clocks_without_a_header_are_not_guessed():
    recording = read(log("10:00:00.0, 405 MHz, 300 MHz, 9 %", "10:00:01.0, 810 MHz, 300 MHz, 9 %"))
    assert np.isnan(recording.samples["sm_clock_mhz"]).all()
    assert recording.samples["gpu_util_pct"].tolist() == [9, 9]
    assert "which of its clocks is which cannot be told" in said(recording)


def test_one_recording_is_one_gpu():
    two = [
        row.replace(", 0, NVIDIA", f", {gpu}, NVIDIA").replace("210 MHz", f"21{gpu} MHz")
        for row in ROWS
        for gpu in (0, 1)
    ]
    with pytest.raises(InputError, match=r"holds 2 GPUs \(0, 1\): pick one with --gpu"):
        read(log(HEADER, *two))
    assert read(log(HEADER, *two), gpu="1").samples["sm_clock_mhz"].tolist() == [211, 2040, 1995]
    with pytest.raises(InputError, match="no GPU 7, but 0, 1"):
        read(log(HEADER, *two), gpu="7")


def test_a_gpu_is_picked_by_uuid_or_bus_id():
    rows = [f"10:00:0{second}, GPU-{gpu}, 00000000:0{gpu}:00.0, P{gpu}" for second in range(2) for gpu in (1, 2)]
    data = log("timestamp, uuid, pci.bus_id, pstate", *rows)
    assert read(data, gpu="GPU-2").samples["pstate"].tolist() == [2, 2]
    assert read(data, gpu="00000000:01:00.0").samples["pstate"].tolist() == [1, 1]


def test_gpus_without_a_name_are_told_by_their_place_in_each_group():
    rows = [f"10:00:0{second}.00{gpu}, {100 * gpu + second} MHz" for second in range(5) for gpu in range(3)]
    data = log("timestamp, clocks.current.sm [MHz]", *rows)
    recording = read(data, gpu="2")
    assert recording.samples["sm_clock_mhz"].tolist() == [200, 201, 202, 203, 204]
    assert "3 rows at a time" in said(recording)


def test_a_last_row_that_is_cut_is_left_out():
    for cut in (1, 2, 3, 20, 50):
        recording = read(log(HEADER, *ROWS)[: -1 - cut])
        assert recording.samples["sm_clock_mhz"].tolist() == [210, 2040]
        assert "1 of its rows cut or damaged, the first in line 4" in said(recording)


def test_times_that_a_spreadsheet_changed_are_named():
    with pytest.raises(InputError, match=r'times that cannot be read, such as "11:12.2"; nvidia-smi writes them as'):
        read(log(HEADER, *(re.sub(r"^\S+ \d+:(\d+:\d+\.\d)\d*", r"\1", row) for row in ROWS)))


@pytest.mark.parametrize(("name", "step"), [("elapsed_s", 0.1), ("Time (s)", 0.1), ("time_ms", 100), ("t [ms]", None)])
def test_time_since_something_began_counts_where_its_unit_is_named(name: str, step: float | None):
    text = log(f"{name},sm_clock_mhz,power_w", *(f"{row * (step or 1)},210,15.0" for row in range(5)))
    if step is None:  # the name says nothing of time
        with pytest.raises(InputError, match="no timestamps"):
            read(text)
        return
    assert read(text).samples["t_ns"].tolist() == [0, 100 * MS, 200 * MS, 300 * MS, 400 * MS]
    assert read(text).meta.started_utc is None


def test_damaged_rows_are_counted_and_left_out():
    recording = read(log(HEADER, ROWS[0], "Terminated", "2025/03/04 10:99, 0, NVID", *ROWS[1:]))
    assert recording.samples["sm_clock_mhz"].tolist() == [210, 2040, 1995]
    assert "2 of its rows cut or damaged, the first in line 3" in said(recording)


def test_missing_values_are_missing_in_every_spelling():
    spellings = ["[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "ERR!", "", "-"]
    rows = [f"10:00:{second:02d}, {text}, {text}, {text}" for second, text in enumerate(spellings)]
    samples = read(
        log("timestamp, pstate, clocks.current.sm [MHz], power.draw [W]", *rows, "10:00:30, P0, 9 MHz, 8 W")
    ).samples
    for name in ("pstate", "sm_clock_mhz", "power_mw"):
        assert np.isnan(samples[name][:-1]).all()
        assert samples[name][-1] in (0, 9, 8000)


def test_a_clock_that_is_set_back_goes_on_and_is_said():
    rows = [f"2025/10/26 0{hour}:59:5{second}.000, P0" for hour in (2, 1) for second in range(5)]
    recording = read(log("timestamp, pstate", *rows))
    assert np.diff(recording.samples["t_ns"]).tolist() == [10**9] * 9
    assert "jumps back by 3,604.0 s after row 5" in said(recording)


def test_time_of_day_goes_past_midnight():
    recording = read(log("timestamp, pstate", "23:59:59.5, P0", "00:00:00.5, P0", "00:00:01.5, P0"))
    assert np.diff(recording.samples["t_ns"]).tolist() == [10**9, 10**9]


def test_a_pause_parts_sessions():
    recording = read(
        log("timestamp, pstate", *(f"10:0{minute}:0{second}, P0" for minute in (0, 7) for second in range(5)))
    )
    assert "nothing was logged for 7 min after 10:00:04: the log is 2 sessions" in said(recording)


def test_dates_that_do_not_tell_day_from_month_say_so():
    assert "do not tell day from month" in said(
        read(log("timestamp, pstate", "03-04-2025 10:00:00, P0", "03-04-2025 10:00:01, P8"))
    )


def test_the_reasons_come_from_the_mask_or_from_their_words():
    mask = read(
        log("timestamp, clocks_throttle_reasons.active", "10:00:00, 0x0000000000000044", "10:00:01, [N/A]")
    ).samples
    assert mask["event_reasons"][0] == 0x44
    assert np.isnan(mask["event_reasons"][1])
    words = read(
        log(
            "timestamp, clocks_event_reasons.gpu_idle, clocks_event_reasons.sw_power_cap",
            "10:00:00, Active, Not Active",
            "10:00:01, Not Active, Active",
            "10:00:02, [N/A], [N/A]",
        )
    ).samples
    assert words["event_reasons"][:2].tolist() == [1, 4]
    assert np.isnan(words["event_reasons"][2])


def test_power_draw_is_an_average_or_not_by_the_gpus_generation():
    for name, average in (("NVIDIA H200", True), ("Tesla V100-PCIE-16GB", False), ("NVIDIA A100-SXM4-40GB", False)):
        samples = read(log("timestamp, name, power.draw [W]", f"10:00:00, {name}, 50.00 W")).samples
        assert np.isnan(samples["power_mw"][0]) == average
        assert np.isnan(samples["power_average_mw"][0]) != average
    assert "this log does not name its GPU" in said(read(log("timestamp, power.draw [W]", "10:00:00, 50.00 W")))


def test_instant_power_is_told_apart():
    samples = read(log("timestamp, power.draw [W], power.draw.instant [W]", "10:00:00, 50.00 W, 61.50 W")).samples
    assert (samples["power_average_mw"][0], samples["power_mw"][0]) == (50_000, 61_500)
    all_three = "timestamp, power.draw [W], power.draw.average [W], power.draw.instant [W]"
    samples = read(log(all_three, "10:00:00, 50.00 W, 49.00 W, 61.50 W")).samples
    assert (samples["power_average_mw"][0], samples["power_mw"][0]) == (49_000, 61_500)


def test_units_of_other_scripts_are_converted():
    samples = read(log("time,sm_clock(GHz),power(mW),GPU_Temp", "10:00:00,1.98,71500,55")).samples
    assert samples["sm_clock_mhz"][0] == pytest.approx(1980)
    assert samples["power_mw"][0] == pytest.approx(71_500)
    assert samples["temperature_c"][0] == 55


def test_a_log_that_changes_its_columns_is_refused():
    with pytest.raises(InputError, match="changes its columns in line 3"):
        read(
            log(
                "timestamp, pstate", "10:00:00, P0", "timestamp, clocks.current.sm [MHz], pstate", "10:00:01, 5 MHz, P0"
            )
        )


def test_a_header_without_rows_is_refused():
    with pytest.raises(InputError, match="no whole row"):
        read(log(HEADER))


def test_what_is_no_log_is_none_of_ours():
    for text in ("hello\n", "a,b,c\n1,2,3\n", "name,email\nJo,jo@x.org\n", '[{"computeMs": 1}]'):
        assert nvidia_smi.samples(text.encode(), "x") is None


DMON = """\
#Date       Time        gpu   pwr gtemp mtemp    sm   mem  mclk  pclk
#YYYYMMDD   HH:MM:SS    Idx     W     C     C     %     %   MHz   MHz
 20250304   10:11:12      0    31    44     -     0     0   405   210
 20250304   10:11:12      1    71    60     -   100    40  6251  2040
#Date       Time        gpu   pwr gtemp mtemp    sm   mem  mclk  pclk
#YYYYMMDD   HH:MM:SS    Idx     W     C     C     %     %   MHz   MHz
 20250304   10:11:14      0    30    44     -     -     0   405   210
 20250304   10:11:14      1    72    61     -    99    41  6251  1995
"""


def test_dmon_quoted_behind_comment_signs_is_read_as_well():
    samples = read("".join(f"# {line}\n" for line in DMON.splitlines()).encode(), gpu="1").samples
    assert samples["sm_clock_mhz"].tolist() == [2040, 1995]


DMON_PASTES = {
    "as csv": lambda text: re.sub("(?<=[\\w-]) +", ", ", text),
    "without its signs": lambda text: text.replace("#", ""),
    "quoted in a mail": lambda text: re.sub(r"(?m)^(?=.)", "> ", text),
    "named by srun": lambda text: re.sub(r"(?m)^(?=.)", "3: ", text),
    "stamped by a container": lambda text: re.sub(r"(?m)^(?=.)", "2025-03-04T09:11:12.250118Z ", text),
}


@pytest.mark.parametrize("paste", DMON_PASTES)
def test_a_paste_of_dmon_changes_nothing(paste: str):
    changed = read(DMON_PASTES[paste](DMON).encode(), gpu="1")
    assert changed.samples.tobytes() == read(DMON.encode(), gpu="1").samples.tobytes()


def test_dmon_is_read_by_its_header():
    samples = read(DMON.encode(), gpu="1").samples
    assert samples["t_ns"].tolist() == [0, 2000 * MS]
    assert samples["sm_clock_mhz"].tolist() == [2040, 1995]
    assert samples["power_mw"].tolist() == [71_000, 72_000]
    assert samples["gpu_util_pct"].tolist() == [100, 99]
    assert np.isnan(samples["memory_temperature_c"]).all()
    assert np.isnan(read(DMON.encode(), gpu="0").samples["gpu_util_pct"][1])


def test_dmons_violations_are_event_reasons():
    head = "# gpu    pwr   pclk  pviol  tviol\n# Idx      W    MHz      %   bool\n"
    rows = [
        "    0    300   1980      0      0",
        "    0    350   1700     97      0",
        "    0    350   1500      -      1",
    ]
    samples = read((head + "\n".join([*rows, "    0    350   1500      -      -"]) + "\n").encode()).samples
    assert samples["event_reasons"].tolist()[:3] == [0, 4, 32]
    assert np.isnan(samples["event_reasons"][3])


def test_pmon_is_no_log_of_states():
    with pytest.raises(InputError, match="nvidia-smi pmon"):
        nvidia_smi.samples(b"# gpu  pid  type  sm  mem  command\n# Idx  #  C/G  %  %  name\n  0  1  C  9  1  py\n", "x")


def test_a_million_rows_are_read_in_blocks_without_a_seam(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("gpuwarm.read.smi_csv.BLOCK_BYTES", 1000)
    rows = [f"10:{at // 600:02d}:{at // 10 % 60:02d}.{at % 10}00, P{at % 16}, {at} MHz" for at in range(600)]
    samples = read(log("timestamp, pstate, clocks.current.sm [MHz]", *rows)).samples
    assert samples["sm_clock_mhz"].tolist() == list(range(600))
    assert samples["t_ns"].tolist() == [at * 100 * MS for at in range(600)]


def test_empty_lines_of_a_log_of_one_column_are_no_values():
    (gpu,) = nvidia_smi.machine_state(b"clocks.current.sm [MHz]\n210 MHz\n\n\n", "x").gpus
    assert gpu.sm_clock_mhz == 210


def test_a_first_header_of_dmon_that_is_damaged_ends_in_a_sentence():
    header = b"#Date Time gpu pwr pclk\n#YYYYMMDD HH:MM:SS Idx W MHz\n 20250304 10:11:12 0 31 210\n"
    with pytest.raises(InputError, match="changes its columns"):
        nvidia_smi.machine_state(header.replace(b"Date", b"Da\x98te") + header, "x")
