"""What a user may give as an engine's input."""

from pathlib import Path

import numpy as np
import pytest

from gpuwarm.errors import InputError
from gpuwarm.metadata import Tensor
from gpuwarm.studies import inputs

HUGE = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000000,), }\n"
X = Tensor("x", (2, 3), "float32")


def test_an_array_comes_as_the_bytes_that_its_tensor_takes(tmp_path: Path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", np.asfortranarray(array))
    assert inputs.given_bytes(X, inputs.load("x", tmp_path / "x.npy")) == array.tobytes()


@pytest.mark.parametrize("array", [np.ones((3, 2), np.float32), np.ones((2, 3))])
def test_another_shape_or_type_is_refused(array: np.ndarray):
    with pytest.raises(InputError, match=r"--input x is (3x2|float64) and the engine takes (2x3|float32): save"):
        inputs.given_bytes(X, array)


def test_what_is_no_array_of_numbers_is_said_to_be_none(tmp_path: Path):
    (tmp_path / "text.npy").write_text("hello")
    (tmp_path / "empty.npy").touch()
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and no more")
    np.savez(tmp_path / "archive.npz", x=np.ones(2))
    np.save(tmp_path / "objects.npy", np.array([{}]), allow_pickle=True)
    heads = {
        "ends.npy": "{'descr': (\n",
        "python.npy": "{'descr' '<f4': 1\n",
        "big.npy": HUGE,
        "too_big.npy": HUGE.replace("1000000000000000", "1" + 30 * "0"),
        "bytes.npy": "{'descr': '<f4', b'fortran_order': False, 'shape': (2,), 'x': 1}\n",
    }
    for name, head in heads.items():
        (tmp_path / name).write_bytes(b"\x93NUMPY\x01\x00" + bytes([len(head), 0]) + head.encode())
    for path in tmp_path.iterdir():
        with pytest.raises(InputError, match=f"--input x={path} does not hold one array of numbers: write it with"):
            inputs.load("x", path)
