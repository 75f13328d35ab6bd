"""What of a file is in memory, and making it so."""

import mmap
import subprocess
from pathlib import Path

import pytest

from gpuwarm.measure import page_cache


def on_memory(folder: Path) -> bool:
    """Whether the folder lies in a file system that is memory itself."""
    kind = subprocess.run(["stat", "-f", "-c", "%T", folder], capture_output=True, text=True, check=True).stdout
    return kind.strip() in {"tmpfs", "ramfs"}


def test_a_dropped_file_is_out_of_memory_and_a_read_one_in_it(tmp_path: Path):
    if on_memory(tmp_path):
        pytest.skip("needs a temporary folder on a disk")
    path = tmp_path / "engine.plan"
    path.write_bytes(b"x" * (40 * mmap.PAGESIZE + 1))
    page_cache.drop(path)
    assert page_cache.resident_pct(path) == 0
    with path.open("rb") as file:
        file.read(1)
    assert 0 < page_cache.resident_pct(path) <= 100
    page_cache.read(path)
    assert page_cache.resident_pct(path) == 100


def test_what_the_kernel_keeps_in_memory_is_seen():
    folder = Path("/dev/shm")
    if not folder.is_dir() or not on_memory(folder):
        pytest.skip("needs a file system in memory at /dev/shm")
    path = folder / "gpuwarm-test-page-cache"
    try:
        path.write_bytes(b"x" * 10_000)
        page_cache.drop(path)
        assert page_cache.resident_pct(path) == 100
    finally:
        path.unlink()
