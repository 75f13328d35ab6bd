"""Why a GPU's first inferences are slow, how long to warm up, and whether a machine is set up right."""

from importlib import import_module

from gpuwarm._version import __version__

__all__ = ["Recording", "__version__", "warm_until_steady"]

_HOME = {"Recording": "gpuwarm.recording", "warm_until_steady": "gpuwarm.online"}


def __getattr__(name: str) -> object:
    """Import on first use, so that `gpuwarm --help` and a cold-start worker load no numpy."""
    if name not in _HOME:
        raise AttributeError(f"module 'gpuwarm' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
