"""Everything about TensorRT: which runtime fits a file, load or build an engine, one enqueue."""

from gpuwarm.measure.seam import ColdStart, EngineSpec


def cold_start(spec: EngineSpec) -> ColdStart:
    """Load an engine step by step."""
    raise NotImplementedError(spec)
