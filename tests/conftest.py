"""Options and fixtures every test may use."""

from pathlib import Path

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cases", type=Path, default=None, help="folder of real machine output to read (not in this project)"
    )


@pytest.fixture
def cases(request: pytest.FixtureRequest) -> Path:
    folder = request.config.getoption("--cases")
    if folder is None:
        pytest.skip("needs --cases FOLDER, real machine output that is not part of this project")
    return folder


@pytest.fixture
def h200(cases: Path) -> Path:
    """Traces of a real H200; they lie beside the cases and are not part of this project either."""
    folder = cases.parent / "h200"
    if not folder.is_dir():
        pytest.skip(f"needs the H200 traces in {folder}")
    return folder
