"""Real output of nvidia-smi, read as its index says it is to be read (../shared/cases/INDEX.md): one test a file."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuwarm.errors import InputError
from gpuwarm.machine import MachineState
from gpuwarm.read import nvidia_smi

# file -> what the machine is; "gpus" lists each GPU's facts in order, "each" what is true of all of them.
MACHINES: dict[str, dict[str, Any]] = {
    "smi_table/2x_rtx4060ti_drv550_pers_off_p0_idle.txt": {
        "driver_version": "550.54.14",
        "cuda_version": "12.4",
        "platform": "linux",
        "each": {"persistence_mode": "off", "pstate": 0, "power_limit_w": 165, "memory_used_mib": 0, "processes": ()},
        "gpus": [{"name": "NVIDIA GeForce RTX 4060 Ti", "power_w": 29}, {"power_w": 34}],
    },
    "smi_table/2x_rtx4090_drv580_pers_off_p8_contexts.txt": {
        "driver_version": "580.126.09",
        "cuda_version": "13.0",
        "each": {"name": "NVIDIA GeForce RTX 4090", "persistence_mode": "off", "pstate": 8, "power_limit_w": 400},
        "gpus": [{"power_w": 29}, {"power_w": 22}],
        "kinds": [["G", "C", "C", "C", "C"], ["G", "C", "C", "C", "C"]],
    },
    "smi_table/8x_h100_drv565_pers_on.txt": {
        "driver_version": "565.57.01",
        "cuda_version": "12.7",
        "each": {"name": "NVIDIA H100 80GB HBM3", "persistence_mode": "on", "pstate": 0, "mig_mode": "disabled"},
        "gpus": [{"power_w": watts} for watts in (100, 82, 85, 85, 84, 85, 86, 75)],
    },
    "smi_table/a100_80g_mig_nodev_drv515_indented.txt": {
        "driver_version": "515.86.01",
        "cuda_version": "11.7",
        "gpus": [
            {
                "name": "NVIDIA A100 80G...",
                "persistence_mode": "off",
                "pstate": 0,
                "power_w": 75,
                "power_limit_w": 300,
                "mig_mode": "enabled",
                "mig_devices": 0,
                "utilization_pct": None,
            }
        ],
    },
    "smi_table/a100_sxm4_drv550_pers_off_p0_idle.txt": {
        "driver_version": "550.144.03",
        "cuda_version": "12.4",
        "gpus": [
            {
                "name": "NVIDIA A100-SXM4-40GB",
                "persistence_mode": "off",
                "pstate": 0,
                "power_w": 52,
                "power_limit_w": 400,
                "temperature_c": 32,
                "utilization_pct": 0,
            }
        ],
    },
    "smi_table/dgx_a100_8x_drv450_mig_pending.txt": {
        "driver_version": "450.102.04",
        "cuda_version": "11.0",
        "each": {"name": "A100-SXM4-40GB", "persistence_mode": "on", "pstate": 0},
        "gpus": [
            {},
            {},
            {"utilization_pct": 90, "power_w": 53},
            {},
            {},
            {},
            {"mig_mode": "disabled", "utilization_pct": 0},
            {"mig_mode": "disabled (pending enabled)", "utilization_pct": None},
        ],
    },
    "smi_table/gb10_p8_drv580.txt": {
        "driver_version": "580.173.02",
        "cuda_version": "13.0",
        "gpus": [
            {"name": "NVIDIA GB10", "persistence_mode": "on", "pstate": 8, "power_w": 3, "power_limit_w": None}
            | {"memory_used_mib": None, "memory_total_mib": None}
        ],
    },
    "smi_table/geforce8500gt_drv290.txt": {
        "driver_version": "290.10",
        "cuda_version": None,
        "platform": "unknown",
        "note": "old",
        "gpus": [
            {
                "name": "GeForce 8500 GT",
                "persistence_mode": "unknown",
                "pstate": None,
                "power_w": None,
                "power_limit_w": None,
                "temperature_c": 62,
                "utilization_pct": None,
                "processes": None,
            }
        ],
    },
    "smi_table/grid_k520_drv340.txt": {
        "driver_version": "340.29",
        "cuda_version": None,
        "gpus": [
            {"name": "GRID K520", "persistence_mode": "off", "pstate": 0, "power_w": 91, "power_limit_w": 125}
            | {"temperature_c": 71, "utilization_pct": 100}
        ],
        "kinds": [[None]],
    },
    "smi_table/h200_mig_2ci_drv590_idle.txt": {
        "driver_version": "590.48.01",
        "gpus": [
            {"name": "NVIDIA H200", "persistence_mode": "on", "pstate": 0, "power_w": 78, "power_limit_w": 700}
            | {"mig_mode": "enabled", "mig_devices": 5, "memory_used_mib": 55, "memory_total_mib": 143771}
        ],
    },
    "smi_table/mixed_tcc_wddm_drv442.txt": {
        "driver_version": "442.92",
        "cuda_version": "10.2",
        "platform": "windows",
        "note": "cut off",
        "each": {"persistence_mode": "n/a", "processes": None},
        "gpus": [
            {"name": "Quadro RTX 8000", "driver_model": "TCC", "pstate": 0, "power_w": 65, "power_limit_w": 260}
            | {"utilization_pct": 0, "memory_used_mib": 9},
            {"name": "Quadro RTX 8000", "driver_model": "TCC", "pstate": 0, "power_w": 69, "power_limit_w": 260},
            {"name": "Quadro P2000", "driver_model": "WDDM", "pstate": 8, "power_w": 5, "power_limit_w": 75},
        ],
    },
    "smi_table/p40_12q_vgpu_drv440.txt": {
        "driver_version": "440.87",
        "cuda_version": "10.2",
        "gpus": [
            {"name": "GRID P40-12Q", "persistence_mode": "on", "pstate": 8, "power_w": None, "power_limit_w": None}
            | {"temperature_c": None, "memory_used_mib": 11957, "memory_total_mib": 12288, "utilization_pct": 0}
        ],
        "kinds": [["C"]],
    },
    "smi_table/quadro_t1000_win_drv471.txt": {
        "driver_version": "471.35",
        "cuda_version": "11.4",
        "platform": "windows",
        "gpus": [
            {"name": "Quadro T1000", "driver_model": "WDDM", "pstate": 8, "power_w": 2, "power_limit_w": None}
            | {"processes": None}
        ],
    },
    "smi_table/rtx2060_win_wddm_drv442.txt": {
        "driver_version": "442.50",
        "cuda_version": "10.2",
        "note": "cut off",
        "gpus": [
            {"name": "GeForce RTX 206...", "driver_model": "WDDM", "persistence_mode": "n/a", "pstate": 8}
            | {"power_w": 17, "power_limit_w": 215, "utilization_pct": 2}
        ],
        "kinds": [["C+G", "C+G", "C+G"]],
    },
    "smi_table/rtx2070_gtx750ti_drv450_mixed_7digit_pids.txt": {
        "driver_version": "450.57",
        "cuda_version": "11.0",
        "each": {"persistence_mode": "off"},
        "gpus": [
            {"name": "GeForce RTX 2070", "pstate": 2, "power_w": 27, "power_limit_w": 175, "utilization_pct": 2},
            {"name": "GeForce GTX 750 Ti", "pstate": 8, "power_w": 1, "power_limit_w": 46, "display_active": True},
        ],
        "kinds": [["C"], ["G", "G", "G", "G", "G"]],
    },
    "smi_table/rtx2080s_linux_drv595_idle_p8_pers_off.txt": {
        "driver_version": "595.71.05",
        "cuda_version": "13.2",
        "gpus": [
            {"name": "NVIDIA GeForce RTX 2080 ...", "persistence_mode": "off", "pstate": 8, "power_w": 37}
            | {"power_limit_w": 250, "temperature_c": 40, "utilization_pct": 0, "display_active": True}
        ],
    },
    "smi_table/rtx2080s_linux_drv595_load_p2_pers_off.txt": {
        "driver_version": "595.71.05",
        "gpus": [
            {"persistence_mode": "off", "pstate": 2, "power_w": 98, "power_limit_w": 250, "utilization_pct": 8},
        ],
    },
    "smi_table/rtx2080s_linux_drv610_kmd_umd_header.txt": {
        "driver_version": "610.57.04",
        "cuda_version": "13.3",
        "gpus": [{"persistence_mode": "off", "pstate": 8, "power_w": 38, "power_limit_w": 250}],
    },
    "smi_table/rtx2080s_win_drv591_wddm_p2_load.txt": {
        "driver_version": "591.86",
        "cuda_version": "13.1",
        "platform": "windows",
        "gpus": [
            {"driver_model": "WDDM", "persistence_mode": "n/a", "pstate": 2, "power_w": 97, "power_limit_w": 250}
            | {"utilization_pct": 7}
        ],
    },
    "smi_table/rtx2080s_win_drv591_wddm_p8.txt": {
        "driver_version": "591.86",
        "cuda_version": "13.1",
        "platform": "windows",
        "gpus": [
            {"driver_model": "WDDM", "persistence_mode": "n/a", "pstate": 8, "power_w": 38, "power_limit_w": 250}
            | {"name": "NVIDIA GeForce RTX 2080 ..."}
        ],
    },
    "smi_table/rtx2080s_win_drv610_kmd_wddm.txt": {
        "driver_version": "610.62",
        "cuda_version": "13.3",
        "gpus": [{"driver_model": "WDDM", "pstate": 8, "power_w": 37, "power_limit_w": 250}],
        "kinds": [["C+G"] * 19],
    },
    "smi_table/rtx3050_laptop_win_drv531.txt": {
        "driver_version": "531.88",
        "cuda_version": "12.1",
        "gpus": [
            {"name": "NVIDIA GeForce RTX 3050 4...", "driver_model": "WDDM", "pstate": 0, "power_w": 8}
            | {"power_limit_w": None, "utilization_pct": 0}
        ],
    },
    "smi_table/rtx4050_laptop_win_drv591_wddm.txt": {
        "driver_version": "591.59",
        "cuda_version": "13.1",
        "gpus": [
            {"name": "NVIDIA GeForce RTX 4050 ...", "driver_model": "WDDM", "persistence_mode": "n/a", "pstate": 8}
            | {"power_w": 4, "power_limit_w": 107, "utilization_pct": 9}
        ],
    },
    "smi_table/rtx4080s_linux_drv595_idle_p8.txt": {
        "driver_version": "595.71.05",
        "cuda_version": "13.2",
        "gpus": [{"persistence_mode": "off", "pstate": 8, "power_limit_w": 320}],
    },
    "smi_table/t4_4c_vgpu_drv470.txt": {
        "driver_version": "470.103.01",
        "cuda_version": "11.4",
        "gpus": [
            {"name": "GRID T4-4C", "persistence_mode": "on", "pstate": 8, "power_w": None, "temperature_c": None}
            | {"memory_used_mib": 560, "utilization_pct": 0}
        ],
    },
    "smi_table/tensorrt_notebook_drv450.txt": {
        "driver_version": "450.80.02",
        "cuda_version": "11.3",
        "each": {"name": "Tesla V100-DGXS...", "persistence_mode": "on", "pstate": 0, "power_limit_w": 300}
        | {"processes": ()},
        "gpus": [{"power_w": 63, "memory_used_mib": 5572}, {"power_w": 41}, {"power_w": 41}, {"power_w": 39}],
    },
    "smi_table/thor_drv580.txt": {
        "driver_version": "580.00",
        "cuda_version": "13.0",
        "platform": "jetson",
        "gpus": [
            {"name": "NVIDIA Thor", "persistence_mode": "off", "pstate": None, "power_w": None, "power_limit_w": None}
            | {"memory_used_mib": None, "mig_mode": "disabled"}
        ],
    },
    "smi_table/v100_pcie_drv580_pers_off.txt": {
        "driver_version": "580.126.09",
        "cuda_version": "13.0",
        "gpus": [
            {"name": "Tesla V100-PCIE-12GB", "persistence_mode": "off", "pstate": 0, "power_w": 38}
            | {"power_limit_w": 250, "utilization_pct": 3, "processes": ()}
        ],
    },
    "smi_table/wsl2_rtx4070_drv575.txt": {
        "platform": "wsl2",
        "nvidia_smi_version": "575.64.01",
        "driver_version": "576.80",
        "cuda_version": "12.9",
        "gpus": [
            {"name": "NVIDIA GeForce RTX 4070", "persistence_mode": "on", "pstate": 0, "power_w": 36}
            | {"power_limit_w": 200, "utilization_pct": 10}
        ],
        "kinds": [["G", "G"]],
    },
    "smi_q/8x_a100_azure_drv460_pers_disabled_p0_210mhz.txt": {
        "driver_version": "460.32.03",
        "each": {"name": "A100-SXM4-40GB", "persistence_mode": "off", "pstate": 0, "sm_clock_mhz": 210}
        | {"sm_clock_max_mhz": 1410, "event_reasons": ("gpu_idle",)},
        "gpus": [{"power_w": 55.63, "pci_bus_id": "00000001:00:00.0"}, *[{}] * 6, {"pci_bus_id": "0000000E:00:00.0"}],
    },
    "smi_q/8x_rtx4090_drv535_mixed_p8_p2.txt": {
        "driver_version": "535.154.05",
        "cuda_version": "12.2",
        "each": {"name": "NVIDIA GeForce RTX 4090", "persistence_mode": "on"},
        "gpus": [{"pstate": pstate} for pstate in (8, 2, 8, 8, 2, 8, 8, 8)],
    },
    "smi_q/8x_rtx4090_drv535_unknown_error.txt": {
        "driver_version": "535.154.05",
        "cuda_version": "12.2",
        "each": {"name": "NVIDIA GeForce RTX 4090", "persistence_mode": "on", "pstate": 8},
        "gpus": [{}] * 8,
    },
    "smi_q/h100_drv590_idle.txt": {
        "gpus": [
            {"persistence_mode": "on", "pstate": 0, "event_reasons": ("gpu_idle",), "sm_clock_mhz": 345}
            | {"sm_clock_max_mhz": 1980, "power_w": 69.85, "power_limit_w": 700}
        ],
    },
    "smi_q/h100_drv590_load.txt": {
        "note": "average, 629.45 W; at that instant it was 588.39 W",
        "gpus": [
            {"pstate": 0, "event_reasons": (), "sm_clock_mhz": 1980, "power_w": 629.45, "power_instant_w": 588.39}
            | {"power_limit_w": 700}
        ],
    },
    "smi_q/l40s_drv595_idle_pers_off.txt": {
        "note": "average, 183.28 W; at that instant it was 119.88 W",
        "gpus": [
            {"persistence_mode": "off", "pstate": 0, "event_reasons": (), "sm_clock_mhz": 2520, "power_w": 183.28}
            | {"sm_clock_max_mhz": 2520, "power_instant_w": 119.88, "power_limit_w": 350}
        ],
    },
    "smi_q/rtx2080s_linux_drv595_load.txt": {
        "driver_version": "595.71.05",
        "gpus": [{"persistence_mode": "off", "pstate": 2, "sm_clock_mhz": 2055, "power_w": 98.55, "event_reasons": ()}],
    },
    "smi_q/rtx2080s_linux_drv610_idle.txt": {
        "driver_version": "610.57.04",
        "cuda_version": "13.3",
        "gpus": [
            {"persistence_mode": "off", "pstate": 8, "sm_clock_mhz": 300, "power_w": 38.89, "power_limit_w": 250}
            | {"application_sm_clock_mhz": None}
        ],
    },
    "smi_q/rtx2080s_win_drv610_idle.txt": {
        "driver_version": "610.62",
        "cuda_version": "13.3",
        "platform": "windows",
        "gpus": [
            {"persistence_mode": "n/a", "driver_model": "WDDM", "pstate": 8, "sm_clock_mhz": 300, "power_w": 37.21}
        ],
    },
    "smi_q/rtx4090_wsl2_docker_drv537.txt": {
        "driver_version": "537.13",
        "platform": "wsl2",
        "gpus": [
            {"name": "NVIDIA GeForce RTX 4090", "persistence_mode": "on", "pstate": 8, "sm_clock_mhz": 210}
            | {"event_reasons": ("gpu_idle",), "power_w": 26.20}
        ],
    },
    "smi_xml/4x_k80_drv430_out_of_order.xml": {
        "driver_version": "430.26",
        "cuda_version": None,
        "each": {"name": "Tesla K80", "persistence_mode": "off"},
        "gpus": [{"power_w": 135.72, "pstate": 0, "index": 0}, {"pstate": 0}, {}, {"index": 3}],
    },
    "smi_xml/a100_mig_v11_drv510.xml": {
        "driver_version": "510.47.03",
        "cuda_version": "11.6",
        "gpus": [
            {"name": "NVIDIA A100-SXM4-40GB", "mig_mode": "enabled", "mig_devices": 2, "persistence_mode": "off"}
            | {"pstate": 0, "event_reasons": ()}
        ],
    },
    "smi_xml/p100_v11_drv510_p0_idle.xml": {
        "driver_version": "510.47.03",
        "gpus": [
            {"name": "Tesla P100-PCIE-16GB", "persistence_mode": "off", "pstate": 0, "power_w": 26.16}
            | {"event_reasons": ("gpu_idle",)}
        ],
    },
    "smi_xml/rtx2080_win_v11_drv516_wddm.xml": {
        "driver_version": "516.59",
        "cuda_version": "11.7",
        "platform": "windows",
        "gpus": [
            {"name": "NVIDIA GeForce RTX 2080", "persistence_mode": "n/a", "driver_model": "WDDM", "pstate": 8}
            | {"power_w": 14.50}
        ],
    },
    "smi_xml/rtx2080ti_x2_drv410_pers_disabled_p8.xml": {
        "driver_version": "410.73",
        "cuda_version": "10.0",
        "each": {"name": "GeForce RTX 2080 Ti", "persistence_mode": "off", "pstate": 8},
        "gpus": [{"power_w": 2.12}, {"power_w": 19.11}],
    },
    "smi_xml/rtx3080_v13_drv595_p2.xml": {
        "driver_version": "595.58.03",
        "cuda_version": "13.2",
        "gpus": [{"name": "NVIDIA GeForce RTX 3080", "persistence_mode": "off", "pstate": 2}],
    },
    "smi_xml/rtx3080_win_v12_drv536_wddm.xml": {
        "driver_version": "536.40",
        "cuda_version": "12.2",
        "platform": "windows",
        "gpus": [
            {"name": "NVIDIA GeForce RTX 3080", "persistence_mode": "n/a", "driver_model": "WDDM", "pstate": 8}
            | {"power_w": 22.78}
        ],
    },
    "smi_xml/rtx_pro_6000_drv580_partial_spaces.xml": {
        "driver_version": None,
        "gpus": [
            {"name": "NVIDIA RTX PRO 6000 Blackwell", "pstate": 8, "power_instant_w": 66.84}
            | {"persistence_mode": "unknown", "sm_clock_mhz": None, "processes": None}
        ],
    },
    "smi_xml/t4_v11_drv515_p0_idle_pers_disabled.xml": {
        "driver_version": "515.105.01",
        "gpus": [{"name": "Tesla T4", "persistence_mode": "off", "pstate": 0, "power_w": 26.78, "event_reasons": ()}],
    },
    "smi_csv/8x_b300_noheader_stuck_clock_P0_120_vs_2017.csv": {
        "note": "by their values the columns are taken for index, pstate, power.draw, clocks.sm",
        "each": {"pstate": 0},
        "gpus": [
            *[{"sm_clock_mhz": 120, "index": index} for index in range(6)],
            {"sm_clock_mhz": 2017, "power_w": 187.59, "temperature_c": 34},
            {"sm_clock_mhz": 2017, "power_w": 188.10, "temperature_c": 34},
        ],
    },
    "smi_csv/h100_allfields_drv590_idle.csv": {
        "gpus": [
            {"pstate": 0, "persistence_mode": "on", "sm_clock_mhz": 345, "mem_clock_mhz": 2619, "power_w": 69.85}
            | {"event_reasons": ("gpu_idle",)}
        ],
    },
    "smi_csv/h100_allfields_drv590_load.csv": {
        "gpus": [{"pstate": 0, "sm_clock_mhz": 1980, "power_w": 631.95, "event_reasons": ()}],
    },
    "smi_csv/h100_pcie_4ms_lgc_periodic.csv": {"gpus": [{"pstate": None, "sm_clock_mhz": 1245}]},
    "smi_csv/h100_pcie_burst_345_1755_then_powercap_8ms.csv": {
        "gpus": [{"pstate": None, "mem_clock_mhz": 1593, "utilization_pct": 100}]
    },
    "smi_csv/h800_sxm_allreasons_P0_345_885_1980_dvfs.csv": {
        "gpus": [{"name": "NVIDIA H800", "persistence_mode": "on", "pstate": 0, "power_limit_w": 700}],
    },
    "smi_csv/header_repeated_every_sample.csv": {
        "note": "the header comes 224 times",
        "gpus": [{"name": "NVIDIA GeForce RTX 2070", "pstate": None, "memory_total_mib": 8192}],
    },
    "smi_csv/laptop_5s_noheader_11h_gap_then_cool_run_2580.csv": {
        "gpus": [{"sm_clock_mhz": 2580, "power_w": 86.85, "temperature_c": 72, "utilization_pct": 100}],
    },
    "smi_csv/laptop_5s_noheader_ramp_210_1890_thermal.csv": {
        "note": "timestamp, temperature.gpu, clocks.sm, power.draw, utilization.gpu",
        "gpus": [{"temperature_c": 86, "pstate": None}],
    },
    "smi_csv/noheader_NA_column.csv": {
        "gpus": [{"power_w": 345.23, "temperature_c": 74, "utilization_pct": 94, "sm_clock_mhz": None}],
    },
    "smi_csv/orin_other_timestamp_locale_no_units.csv": {
        "platform": "jetson",
        "gpus": [{"name": "Orin", "utilization_pct": 99, "temperature_c": 48.062, "memory_used_mib": 26246}],
    },
    "smi_csv/rtx2080s_allfields_drv595_idle.csv": {
        "gpus": [
            {"pstate": 8, "sm_clock_mhz": 765, "mem_clock_mhz": 810, "event_reasons": ("sw_power_cap",)}
            | {"power_w": 39.32, "persistence_mode": "off"}
        ],
    },
    "smi_csv/rtx2080s_allfields_drv595_load.csv": {
        "gpus": [
            {"pstate": 2, "sm_clock_mhz": 2055, "mem_clock_mhz": 7500, "power_w": 111.50, "event_reasons": ()},
        ],
    },
    "smi_csv/rtx2080s_win_allfields_drv610_idle.csv": {
        "driver_version": "610.62",
        "platform": "windows",
        "gpus": [{"pstate": 8, "sm_clock_mhz": 300, "power_w": 39.25, "persistence_mode": "n/a"}],
    },
    "smi_csv/wrapper_epoch_timestamps_custom_header.csv": {
        "gpus": [{"sm_clock_mhz": None, "utilization_pct": 0, "memory_total_mib": 6144}],
    },
    "smi_dmon/4x_rtx_pro_6000_s_pucm_powercapped.txt": {
        "each": {"mem_clock_mhz": 13365},
        "gpus": [
            {"sm_clock_mhz": 1897, "power_w": 294, "utilization_pct": 98},
            {"sm_clock_mhz": 2017, "power_w": 292, "utilization_pct": 99},
            {"sm_clock_mhz": 1192, "power_w": 299, "utilization_pct": 100},
            {"sm_clock_mhz": 1200, "power_w": 299, "utilization_pct": 100},
        ],
    },
    "smi_dmon/a100_s_mutc_o_TD_blank_line.txt": {
        "gpus": [{"mem_clock_mhz": 6250, "sm_clock_mhz": 1695, "power_w": None, "temperature_c": None}]
    },
    "smi_dmon/h200_mig_load_dashes.txt": {
        "gpus": [{"mem_clock_mhz": 3201, "sm_clock_mhz": 1980, "power_w": 294, "utilization_pct": None}]
    },
    "smi_dmon/l40s_drv595_idle_pers_off_decay.txt": {
        "gpus": [{"mem_clock_mhz": 405, "sm_clock_mhz": 210, "power_w": 37, "utilization_pct": 0}]
    },
    "smi_dmon/rtx2080s_win_drv591_idle.txt": {
        "gpus": [{"index": 0, "mem_clock_mhz": 405, "sm_clock_mhz": 300, "power_w": 38}]
    },
    "smi_dmon/s_pucet_o_DT_narrow_582_to_1582.txt": {
        "gpus": [{"sm_clock_mhz": 1582, "mem_clock_mhz": 4006, "power_w": 39, "utilization_pct": 0}]
    },
    "smi_dmon/s_pucvmet_o_DT_ctrl_c_in_last_row.txt": {
        "gpus": [{"power_w": 6, "mem_clock_mhz": 405, "sm_clock_mhz": 180}]
    },
}


@pytest.mark.parametrize("file", MACHINES)
def test_a_real_file_is_read_as_the_index_says(cases: Path, file: str):
    expected = MACHINES[file]
    state = nvidia_smi.machine_state((cases / file).read_bytes(), file)
    for name in ("driver_version", "cuda_version", "platform", "nvidia_smi_version"):
        if name in expected:
            assert getattr(state, name) == expected[name]
    assert len(state.gpus) == len(expected["gpus"])
    for gpu, facts in zip(state.gpus, expected["gpus"], strict=True):
        facts = expected.get("each", {}) | facts
        assert {name: getattr(gpu, name) for name in facts} == facts
    assert expected.get("note", "") in " ".join(state.notes)
    if "kinds" in expected:
        assert [[process.kind for process in gpu.processes or ()] for gpu in state.gpus] == expected["kinds"]


def test_every_real_file_of_nvidia_smi_has_its_expectation(cases: Path):
    assert {f"{file.parent.name}/{file.name}" for file in cases.glob("smi_*/*")} == set(MACHINES)


def recorded(cases: Path, file: str, **options: str):
    samples = nvidia_smi.samples((cases / file).read_bytes(), file, **options)
    assert samples is not None
    return samples.recording


def runs(values: np.ndarray) -> list[float]:
    """Values in order, each once while it stays."""
    return [float(value) for at, value in enumerate(values) if at == 0 or value != values[at - 1]]


def test_a_burst_goes_from_rest_to_boost_with_the_context_and_then_under_the_cap(cases: Path):
    rows = recorded(cases, "smi_csv/h100_pcie_burst_345_1755_then_powercap_8ms.csv").samples
    assert (rows["sm_clock_mhz"][:78] == 345).all()
    assert rows["sm_clock_mhz"][78] == 1755
    assert rows["gpu_util_pct"][78] <= 3
    assert (rows["mem_clock_mhz"] == 1593).all()
    assert np.isnan(rows["pstate"]).all()
    assert np.median(rows["sm_clock_mhz"][rows["gpu_util_pct"] > 78]) < 1500
    assert 7 <= np.median(np.diff(rows["t_ns"])) * 1e-6 <= 12


def test_locked_clocks_start_warm_and_fall_under_load(cases: Path):
    rows = recorded(cases, "smi_csv/h100_pcie_4ms_lgc_periodic.csv").samples
    assert (rows["sm_clock_mhz"][:2387] == 1755).all()
    assert rows["sm_clock_mhz"][2387] < 1755
    assert np.isnan(rows["power_average_mw"]).all()
    assert rows["power_mw"][0] == 77_040


def test_a_mask_of_reasons_is_kept_with_the_clock_it_explains(cases: Path):
    rows = recorded(cases, "smi_csv/h800_sxm_allreasons_P0_345_885_1980_dvfs.csv").samples
    assert (rows["pstate"] == 0).all()
    assert set(rows["event_reasons"]) == {0, 1, 4}
    assert {345, 780, 825, 840, 855, 885, 1980} <= set(rows["sm_clock_mhz"])


def test_a_gap_of_hours_parts_a_log_into_two_sessions(cases: Path):
    recording = recorded(cases, "smi_csv/laptop_5s_noheader_11h_gap_then_cool_run_2580.csv")
    assert any("11 h 7 min after 10:25:34: the log is 2 sessions" in note for note in recording.meta.notes)
    assert recording.samples["t_ns"][-1] == 40_262_889 * 10**6


def test_a_log_without_header_is_told_by_its_units(cases: Path):
    rows = recorded(cases, "smi_csv/laptop_5s_noheader_ramp_210_1890_thermal.csv").samples
    assert rows["sm_clock_mhz"][:5].tolist() == [210, 210, 1890, 1890, 375]
    assert rows["temperature_c"][[0, -1]].tolist() == [53, 86]


def test_day_and_month_are_told_by_what_midnight_changes(cases: Path):
    rows = recorded(cases, "smi_csv/orin_other_timestamp_locale_no_units.csv").samples
    assert set(np.diff(rows["t_ns"])) <= {60 * 10**9, 61 * 10**9, 59 * 10**9}
    assert rows["temperature_c"][0] == 45.218


def test_seconds_since_1970_are_universal_time(cases: Path):
    recording = recorded(cases, "smi_csv/wrapper_epoch_timestamps_custom_header.csv")
    assert recording.meta.started_utc == "2025-11-21T14:52:59.573550+00:00"
    assert recording.samples["t_ns"][1] == 531_119_824
    assert (recording.samples["gpu_util_pct"] == 0).all()
    assert (recording.samples["power_mw"][0], recording.samples["power_mw"].max()) == (15_820, 31_080)
    assert np.isnan(recording.samples["sm_clock_mhz"]).all()


def test_rows_without_time_are_no_recording(cases: Path):
    with pytest.raises(InputError, match="no timestamps"):
        recorded(cases, "smi_csv/noheader_NA_column.csv")


def test_a_decay_of_the_memory_clock_is_seen_in_dmon(cases: Path):
    recording = recorded(cases, "smi_dmon/l40s_drv595_idle_pers_off_decay.txt")
    assert recording.samples["mem_clock_mhz"].tolist() == [9001, 9001, 9001, 405, 405]
    assert recording.samples["power_mw"].tolist() == [66_000, 65_000, 65_000, 51_000, 37_000]
    assert any("one a second is assumed" in note for note in recording.meta.notes)


def test_one_gpu_of_four_is_picked(cases: Path):
    file = "smi_dmon/4x_rtx_pro_6000_s_pucm_powercapped.txt"
    with pytest.raises(InputError, match=r"holds 4 GPUs \(0, 1, 2, 3\): pick one with --gpu"):
        recorded(cases, file)
    assert recorded(cases, file, gpu="2").samples["sm_clock_mhz"].tolist() == [1192]


def test_blank_lines_in_dmon_cost_nothing(cases: Path):
    rows = recorded(cases, "smi_dmon/a100_s_mutc_o_TD_blank_line.txt").samples
    assert rows["t_ns"].tolist() == [second * 10**9 for second in range(6)]
    assert rows["gpu_util_pct"].tolist() == [6, 0, 3, 13, 0, 3]


def test_a_row_with_the_echo_of_ctrl_c_is_repaired(cases: Path):
    rows = recorded(cases, "smi_dmon/s_pucvmet_o_DT_ctrl_c_in_last_row.txt").samples
    assert rows["t_ns"].tolist() == [second * 10**9 for second in range(4)]


def test_a_ramp_of_the_clock_alone_is_seen_in_narrow_dmon(cases: Path):
    rows = recorded(cases, "smi_dmon/s_pucet_o_DT_narrow_582_to_1582.txt").samples
    assert rows["sm_clock_mhz"].tolist() == [582, 1582, 1582]
    assert set(rows["mem_clock_mhz"]) == {4006}


def test_the_seeds_table_is_wsl2_at_rest(cases: Path):
    seed = (cases.parent / "seed.txt").read_bytes()
    state: MachineState = nvidia_smi.machine_state(seed, "seed.txt")
    gpu = state.gpus[0]
    assert (state.platform, state.driver_version, state.nvidia_smi_version) == ("wsl2", "528.49", "525.89.02")
    assert (gpu.persistence_mode, gpu.pstate, gpu.power_w, gpu.power_limit_w) == ("on", 8, 36, 350)
    assert gpu.display_active is True
