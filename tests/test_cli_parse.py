"""Arguments that several commands read."""

from importlib import import_module
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

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


def float_options() -> list[tuple[str, str]]:
    """Every option of every command that takes a number with a fraction."""
    for name in cli.COMMANDS:
        import_module(f"gpuwarm.cli.{name}")
    return [
        (name, option.opts[0])
        for name, command in typer.main.get_command(cli.app).commands.items()
        for option in command.params
        if "float" in option.type.name.lower()
    ]


@pytest.mark.parametrize(("command", "option"), float_options())
@pytest.mark.parametrize("value", ["inf", "-inf", "nan"])
def test_a_number_is_finite(command: str, option: str, value: str):
    told = CliRunner().invoke(cli.app, [command, f"{option}={value}", "a-file"])
    assert told.exit_code == 2
    assert f"'{option}'" in told.output
