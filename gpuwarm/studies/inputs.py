"""The bytes of an engine's inputs: the user's own, or seeded random ones of the right type."""

import tokenize
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpuwarm.errors import EngineError, InputError
from gpuwarm.measure.engine import written
from gpuwarm.metadata import Tensor

_BELOW_TWO_FP8 = 0x40  # FP8 E4M3 patterns under this are 0 to 2; none of them is NaN
_SIGN_BIT = 7
# What numpy.load raises of a damaged file, with advice that does not help here: it takes an array's head for Python.
_DAMAGED = (
    *(ValueError, TypeError, OverflowError, EOFError, MemoryError),
    *(SyntaxError, tokenize.TokenError, zipfile.BadZipFile),
)


def random_bytes(tensor: Tensor, seed: int) -> bytes:
    """Seeded values of a tensor's type. Constant input draws less power and flatters the clock (by 15 % on an H200).

    Integers are 0 or 1, which are a token, an index and a mask in any model; larger ones may lead out of a table.

    Raises:
        EngineError: no random data is made for this type.
    """
    random = np.random.default_rng([seed, *tensor.name.encode()])
    count = int(np.prod(tensor.shape))
    match tensor.dtype:
        case "float32" | "float16":
            return random.standard_normal(count).astype(tensor.dtype).tobytes()
        case "bfloat16":  # the upper half of a float32
            return (random.standard_normal(count).astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        case "int32" | "int64" | "bool":
            return random.integers(0, 2, count).astype(tensor.dtype).tobytes()
        case "int8" | "uint8":
            return random.integers(0, 256, count, dtype=np.uint8).tobytes()
        case "int4" | "float4_e2m1fn":  # two to a byte; every pattern is a number
            return random.integers(0, 256, (count + 1) // 2, dtype=np.uint8).tobytes()
        case "float8_e4m3fn":
            magnitude = random.integers(0, _BELOW_TWO_FP8, count, dtype=np.uint8)
            return (magnitude | random.integers(0, 2, count, dtype=np.uint8) << _SIGN_BIT).tobytes()
    raise EngineError(
        f"input {tensor.name} is {tensor.dtype}, for which no random data is made: give --input {tensor.name}=FILE.npy"
    )


def load(name: str, path: Path) -> NDArray[Any]:
    """An array of numbers from a file.

    Raises:
        InputError: there is none in it.
    """
    try:
        with path.open("rb") as file, np.errstate(invalid="ignore"):  # of a forged shape
            found = np.load(file, allow_pickle=False)
    except OSError as error:
        raise InputError(
            f"--input {name}={path} cannot be read ({error.strerror}): look at its path and permissions"
        ) from error
    except _DAMAGED:
        found = None
    if not isinstance(found, np.ndarray):  # also where it is an archive, .npz
        raise InputError(f"--input {name}={path} does not hold one array of numbers: write it with numpy.save")
    return found


def given_bytes(tensor: Tensor, array: NDArray[Any]) -> bytes:
    if array.shape != tensor.shape:
        raise InputError(
            f"--input {tensor.name} is {written(array.shape)} and the engine takes {written(tensor.shape)}: "
            "save one of that shape"
        )
    if array.dtype.name != tensor.dtype:
        raise InputError(
            f"--input {tensor.name} is {array.dtype.name} and the engine takes {tensor.dtype}: "
            f"save it with array.astype({tensor.dtype!r})"
        )
    return np.ascontiguousarray(array).tobytes()


def shape_bytes(tensor: Tensor, values: tuple[int, ...]) -> bytes:
    """The bytes of an input whose values are a shape."""
    return np.asarray(values, dtype=tensor.dtype).tobytes()
