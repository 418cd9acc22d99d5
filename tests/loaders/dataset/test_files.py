"""Mapped files: content, lifetime, and the number of files that are mapped at a time."""

import gc
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
from helpers.eventually import eventually

import loaders.dataset.files
from loaders.dataset.files import MappedRanges, Mappings, map_file, prefetch, resident_bytes


def mapped_ranges(name):
    with open("/proc/self/maps") as maps:
        return sum(name in line for line in maps)


def test_nothing_is_imported_to_map_a_file():
    """A thread that imports may wait for ever if Ctrl-C interrupts an import of the main thread."""
    code = "import sys, loaders.dataset.files; sys.exit('numpy.ctypeslib' not in sys.modules)"
    assert not subprocess.run([sys.executable, "-c", code], check=False).returncode


def test_a_file_of_another_length_is_rejected(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    with pytest.raises(ValueError, match="is 3 bytes long"):
        map_file(str(tmp_path / "a"), 4)
    with pytest.raises(FileNotFoundError):
        map_file(str(tmp_path / "b"), 4)


def test_no_descriptor_stays_open_and_the_number_of_mappings_is_bounded(tmp_path):
    paths = []
    for number in range(300):
        path = tmp_path / f"many-{number}"
        path.write_bytes(number.to_bytes(2, "little") * 2048)
        paths.append(str(path))
    mappings = Mappings(paths, [4096] * 300)
    mappings.max_mapped = 100
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_now = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (open_now + 8, hard))
    try:
        views = [mappings.map(number).data[:2] for number in range(5)]
        for number in np.random.default_rng(0).integers(0, 300, 2000).tolist():
            assert int(mappings.map(number).data[:2].view("<u2")[0]) == number
            assert len(mappings) <= 100
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [int(view.view("<u2")[0]) for view in views] == list(range(5))
    gc.collect()
    assert mapped_ranges(f"{tmp_path}/many-") <= 105


@pytest.mark.parametrize("size", [1, 3000, 65_535])
def test_ranges_of_several_files_become_one_array(tmp_path, size):
    rng = np.random.default_rng(size)
    content = rng.integers(0, 256, (3, 70_000), np.uint8)
    files = []
    for number, data in enumerate(content):
        (tmp_path / str(number)).write_bytes(data.tobytes())
        files.append(map_file(str(tmp_path / str(number)), len(data)))
    numbers = rng.integers(0, 3, 50)
    begins = rng.integers(0, 70_000 - size, 50, endpoint=True)
    addresses = np.array([files[each].address for each in numbers]) + begins
    ranges = MappedRanges(files, addresses, size)
    del files
    gc.collect()
    found = ranges.gather()
    places = zip(numbers.tolist(), begins.tolist(), strict=True)
    expected = [content[file, begin : begin + size] for file, begin in places]
    np.testing.assert_array_equal(found, expected)
    assert found.flags.c_contiguous


@pytest.fixture
def disk_path():
    """A folder that is probably on a disk; the folder for temporary files may be in memory."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        yield Path(folder)


@pytest.mark.parametrize("unavailable", ["", "_PROCESS_MADVISE", "pidfd_open"])
def test_prefetched_bytes_are_read_into_memory(disk_path, monkeypatch, unavailable):
    """Prefetching also works if the system does not accept many ranges in one call."""
    path = str(disk_path / "cold")
    with open(path, "wb") as file:
        file.write(os.urandom(4096 * 2000))
        file.flush()
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    mapped = map_file(path, 4096 * 2000)
    before = resident_bytes(mapped)
    if before > 900 * 4096:
        pytest.skip("this file system keeps everything in memory")
    if unavailable == "_PROCESS_MADVISE":
        monkeypatch.setattr(loaders.dataset.files, unavailable, -1)
    elif unavailable:
        monkeypatch.delattr(os, unavailable)
    offsets = np.arange(1100) * 4096 + 100
    prefetch(mapped.address + offsets, np.full(1100, 3000))
    assert eventually(lambda: resident_bytes(mapped) - before >= 1000 * 4096)
