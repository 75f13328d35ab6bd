"""Arguments that several commands read."""

import math
from importlib import import_module
from pathlib import Path

import pytest
import typer

from gpuwarm import cli
from gpuwarm.cli.parse import default_output, named_files, named_shapes
from gpuwarm.errors import InputError


def test_a_shape_may_belong_to_a_name_with_colons():
    assert named_shapes(["images:1x3x224x224", "serving:0:5"]) == {"images": (1, 3, 224, 224), "serving:0": (5,)}


@pytest.mark.parametrize(
    "argument", ["images", "images:", ":1x3", "images:1xax3", "images:1x-1", "images:0x3", "images:1xx3"]
)
def test_what_is_no_shape_is_refused_with_an_example(argument: str):
    with pytest.raises(InputError, match="write it as --shape"):
        named_shapes([argument])


def test_input_files_must_exist(tmp_path: Path):
    (tmp_path / "ids.npy").write_bytes(b"")
    assert named_files([f"ids={tmp_path}/ids.npy"]) == {"ids": tmp_path / "ids.npy"}
    for argument in ("ids", "=x.npy", "ids=", "ids=/nowhere.npy"):
        with pytest.raises(InputError, match="--input"):
            named_files([argument])


def test_a_simulated_recording_is_named_so():
    assert default_output("models/big.plan", None).name.startswith("gpuwarm-big-2")
    assert default_output(None, "geforce").name.startswith("gpuwarm-geforce-bundled-2")


def test_no_option_takes_an_infinite_number():
    for name in cli.COMMANDS:
        import_module(f"gpuwarm.cli.{name}")
    options = [
        (name, option.name, option.type)
        for name, command in typer.main.get_command(cli.app).commands.items()
        for option in command.params
        if "float" in option.type.name.lower()
    ]
    assert len(options) > 10
    assert [(*names, kind) for *names, kind in options if getattr(kind, "max", None) in (None, math.inf)] == []
