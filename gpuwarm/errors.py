"""What can go wrong, each with the exit code a script sees; every message is one sentence that ends with a remedy."""


class GpuwarmError(Exception):
    """Anything gpuwarm can explain to its user."""

    exit_code = 1


class DeviceError(GpuwarmError):
    """This machine lacks something that live measuring needs: a GPU, its driver, or a TensorRT runtime."""

    exit_code = 5


class EngineError(GpuwarmError):
    """The engine or model cannot be used as it was given."""


class RecordingError(GpuwarmError):
    """A recording cannot be read or written."""


class InputError(GpuwarmError):
    """A file of another tool, or a value given by the user, cannot be understood."""
