"""What a text that is not what was asked for seems to be, in a few words."""

import re

from gpuwarm.read.text import printable

_PROBE_CHARACTERS = 4096  # every kind shows within its first page
_SHOWN_CHARACTERS = 60
# AMD-SMI, HL-SMI (Gaudi), MX-SMI (MetaX), npu-smi (Ascend): their tables are laid out after NVIDIA's.
_OTHER_SMI = r"(?i)\b(?!nvidia)[a-z]+-smi\b.{0,80}\bversion"
# The first that is found says what a text looks like.
_LOOKS = (
    (r"NVIDIA-SMI \d|==NVSMI LOG|<nvidia_smi_log", "what nvidia-smi says of one moment: `gpuwarm check` takes it"),
    (
        r"&&&& (?:RUNNING|PASSED|FAILED) TensorRT|\[\d\d/\d\d/\d{4}-\d\d:\d\d:\d\d\] \[[IWEV]\]",
        "a trtexec log: `gpuwarm analyze` takes it",
    ),
    (r'"(?:startComputeMs|endComputeMs)"', "trtexec's --exportTimes: `gpuwarm analyze` takes it"),
    (r'"(?:averageMs|medianMs|percentage)"', "trtexec's --exportProfile, which has no times of single inferences"),
    (r'"schema":\s*"gpuwarm\.', "gpuwarm's own JSON output"),
    (r"(?m)^GPU \d+: .*\(UUID: ", "`nvidia-smi -L`, which lists GPUs and nothing more"),
    (r"\bGPU0\b.*\bCPU Affinity\b", "`nvidia-smi topo -m`"),
    (r"(?m)^pid, |, (?:used_gpu_memory|process_name)\b", "`--query-compute-apps`, which tells processes and no clocks"),
    (
        r"is not a valid field to query",
        "nvidia-smi refusing a field: `nvidia-smi --help-query-gpu` lists those it knows",
    ),
    (r"List of valid properties to query", "the help of nvidia-smi"),
    (r"NVIDIA System Management Interface|nvidia-smi \[OPTION", "the help of nvidia-smi"),
    (r"(?m)^#\s*gpu\s+pid\b", "`nvidia-smi pmon`, which tells processes and no clocks"),
    (r"=== (?:Model|Build|Inference) Options ===|--exportTimes=<file>", "the help of trtexec"),
    (r"RAM \d+/\d+MB .*(?:CPU \[|GR3D_FREQ|EMC_FREQ)", "Jetson's tegrastats"),
    (r"(?i)ROCm System Management Interface|rocm-smi|amd-smi|amdgpu", "AMD's rocm-smi"),
    (_OTHER_SMI, "the table of another maker's accelerators"),
    (r"(?m)^\[\d+\] .*\|\s*\d+.C, ", "gpustat, which tells no clocks"),
    (r"DCGM_FI_|(?m:^#Entity )|\| GPU ID \|", "the output of DCGM, which gpuwarm does not read"),
    (r"(?m)^ *Device \d+ \[.*\] PCIe", "nvtop's screen"),
    (r"Attribute '\w+' \(", "nvidia-settings, which speaks for a display"),
    (r"\[[0-9a-f]{4}\]: NVIDIA|controller: NVIDIA", "lspci, which lists devices and not their state"),
    (r"NVRM: |NVRM version", "the kernel driver's own messages"),
    (r"(?i)^\s*<!doctype html|^\s*<html", "a web page: save the text of the post, not the page"),
    (
        r"(?m)^\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3},",
        "rows of nvidia-smi without a header: name them with --columns, as in --query-gpu",
    ),
    (r"^\s*[\[{]\s*[\[{\"\]}\d-]", "JSON"),
    (r"^\s*<", "XML"),
)


def is_of_another_smi(text: str) -> bool:
    """Whether a table is of another maker's tool."""
    return re.search(_OTHER_SMI, text) is not None and "NVIDIA-SMI" not in text


def looks_like(text: str) -> str:
    """A few words on what a text seems to be."""
    text = text[:_PROBE_CHARACTERS]
    for pattern, what in _LOOKS:
        if re.search(pattern, text):
            return what
    first = printable(next((line for line in text.split("\n") if line.strip()), ""))
    shown = first[:_SHOWN_CHARACTERS] + ("..." if len(first) > _SHOWN_CHARACTERS else "")
    return f'text that begins "{shown}"'
