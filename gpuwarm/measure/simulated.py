"""A GPU and an engine that exist only in software; the GPU's state is a pure function of a load log."""

from gpuwarm.measure.seam import ColdStart, EngineSpec


def cold_start(spec: EngineSpec) -> ColdStart:
    """A cold start on a simulated GPU."""
    raise NotImplementedError(spec)
