"""What kind of GPU a name stands for, and what that kind can be expected to do."""

import re
from typing import Literal

from gpuwarm.machine import GpuState, MachineState, Platform

Product = Literal["datacentre", "geforce", "workstation", "jetson", "gb10", "vgpu", "unknown"]

_KINDS: tuple[tuple[Product, "re.Pattern[str]"], ...] = (
    ("vgpu", re.compile(r"-\d+[ABCQ](ME|\d)?$")),  # GRID P40-12Q, A100-1-5CME: a share of a GPU, by memory and licence
    ("gb10", re.compile(r"\bGB10\b")),
    ("jetson", re.compile(r"\b(Thor|Orin|Xavier|Tegra|Jetson)\b")),
    ("geforce", re.compile(r"\b(GeForce|TITAN)\b")),
    ("workstation", re.compile(r"\b(Quadro|NVS|RTX A\d|RTX PRO|RTX \d{4}|T\d{3,4})")),
    (
        "datacentre",
        re.compile(
            r"\b(Tesla|GRID K\d|A(2|10G?|16|30|40|800|100)X?|H(20|100|200|800)|GH200|B(100|200|300)|GB(200|300)"
            r"|L(2|4|20|40[SG]?)|T4G?|V100|P(4|40|100)|K80|M(4|10|40|60))\b"
        ),
    ),
)
# Those with stacked memory report P0 whatever they do (V100, A100, H100, H200 and B300 samples; P100 has no other).
_ALWAYS_P0 = re.compile(r"\b(P100|V100|A100X?|A800|A30X?|H(20|100|200|800)|GH200|B(100|200|300)|GB(200|300))\b")
# The lowest P-state number that CUDA work reaches. CUDA holds GeForce, and workstation cards of the same chips, to P2.
_REACHES: dict[Product, int] = {"datacentre": 0, "gb10": 0, "geforce": 2, "workstation": 2, "unknown": 2}
# NVIDIA's own board power in watts (data sheets); partners' boards of these models go above it, hardly ever below.
_REFERENCE_POWER_W = {
    "RTX 5090": 575,
    "RTX 4090": 450,
    "RTX 4080 SUPER": 320,
    "RTX 3090": 350,
    "A100-SXM4-40GB": 400,
    "A100-SXM4-80GB": 400,
    "H100 80GB HBM3": 700,
    "H200": 700,
    "L40S": 350,
}


def product(gpu: GpuState) -> Product:
    """The kind of GPU; names that a table cut short count by what is left of them."""
    if (gpu.virtualization_mode or "").upper() == "VGPU":
        return "vgpu"
    return next((kind for kind, pattern in _KINDS if pattern.search(gpu.name or "")), "unknown")


def platform(machine: MachineState, gpu: GpuState) -> Platform:
    """The machine's system; where a source does not say, what the GPU gives away."""
    if machine.platform != "unknown":
        return machine.platform
    if gpu.driver_model is not None:
        return "windows"
    return "jetson" if product(gpu) == "jetson" else "unknown"


def always_p0(gpu: GpuState) -> bool:
    """Whether its P-state says nothing about its clocks."""
    return _ALWAYS_P0.search(gpu.name or "") is not None


def reaches(gpu: GpuState) -> int | None:
    """The P-state that CUDA work brings this kind to; None where P-states are not its own or do not exist."""
    return _REACHES.get(product(gpu))


def reference_power_w(gpu: GpuState) -> int | None:
    """The power limit that NVIDIA ships this model with, for the few models listed here."""
    short = (gpu.name or "").removeprefix("NVIDIA ").removeprefix("GeForce ")
    return _REFERENCE_POWER_W.get(short)
