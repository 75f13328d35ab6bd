"""A host that does not let the caller's latency rest: how much, and what helps, as no warm-up does."""

from gpuwarm.analysis.finding import Finding
from gpuwarm.analysis.movement import Mover, Restless
from gpuwarm.analysis.steady import Judgement
from gpuwarm.analysis.words import span
from gpuwarm.metadata import Metadata

UNREST = "host-unrest"  # the finding's id
USUAL_WANDER = 0.05  # of the caller's latency; where it was of no use on an H200, it wandered by 8 % and more


def is_restless(judged: Judgement, moved: Mover | None) -> bool:
    """Whether the host keeps the caller's latency from being steady."""
    if judged.steady is not None:
        return "host_unsteady" in judged.also
    return moved is not None and moved.cause == "host"


def unrest(restless: Restless, judged: Judgement, meta: Metadata, *, tolerance: float) -> Finding | None:
    """The finding that says so; None where it wanders by too little to matter.

    That is as much as steady latency may, up and down; and more where it takes nothing from what is quoted, the GPU's
    own time.
    """
    low_ms, high_ms = restless.latency_ms
    usual = 2 * tolerance if judged.steady is None else max(2 * tolerance, USUAL_WANDER)
    if low_ms <= 0 or high_ms / low_ms - 1 <= usual:
        return None
    wide_pct = 100 * (high_ms / low_ms - 1)
    of_gpu = "; the GPU's own time is steady" if judged.steady is not None else ""
    return Finding(
        UNREST,
        "warning",
        f"What the caller waits for wanders from {span(low_ms, high_ms)} ({wide_pct:.0f} %)",
        evidence=f"{span(*restless.host_ms)} of it lie outside the GPU's own work: launch, copies, waking up{of_gpu}",
        advice=f"What helps: {', '.join(_remedies(meta))}.",
    )


def _remedies(meta: Metadata) -> list[str]:
    """What has not been done already."""
    options = meta.workload.options
    host = None if meta.machine_before is None else meta.machine_before.host
    governor = None if host is None else host.cpu_governor
    fixed = "" if governor == "performance" else " at a fixed clock (governor performance)"
    return [
        *(["a spin wait (--sync spin)"] if options.get("sync") != "spin" else []),
        f"a CPU core of its own (taskset){fixed}",
        *(["fewer copies (--no-copies shows their cost)"] if options.get("copies") != "no" else []),
        "a CUDA graph",
    ]
