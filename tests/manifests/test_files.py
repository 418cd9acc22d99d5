"""Opening files: regular files of a bounded length only, without waiting for a pipe or reading a device."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

import pytest
from helpers.special_files import SPECIAL_FILES

from manifests import files
from manifests.files import (
    MAX_LINE_BYTES,
    SHARD,
    SOURCE_LIST,
    file_length,
    open_handle,
    read_file,
    read_lines,
)
from manifests.process.text import parse_bytes

KINDS = [value for value in vars(files).values() if isinstance(value, files.FileKind)]


def open_files():
    """Return the open files of this process; its other threads may change them."""
    links = []
    for handle in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            links.append(os.readlink(handle))
    return links


@pytest.mark.parametrize("special", SPECIAL_FILES)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_only_regular_files_are_opened(kind, special, tmp_path):
    path = tmp_path / "file"
    SPECIAL_FILES[special](path)
    for use in (open_handle, read_file, file_length, lambda *args: next(read_lines(*args))):
        with pytest.raises(kind.error) as caught:
            use(path, kind)
        expected = (
            f"the {kind.name} cannot be read: it is {special.removesuffix(', linked')}, not a"
            " regular file"
        )
        assert caught.value.message == expected
        assert caught.value.file == str(path)
        assert caught.value.hint
    assert not [link for link in open_files() if link.startswith(str(tmp_path))]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_the_length_has_a_limit(kind, tmp_path):
    path = tmp_path / "sparse"
    path.touch()
    os.truncate(path, kind.max_bytes)
    assert file_length(path, kind) == kind.max_bytes
    os.truncate(path, kind.max_bytes + 1)
    for use in (open_handle, read_file, file_length):
        with pytest.raises(kind.error, match=f"but the limit is {kind.max_bytes:,}"):
            use(path, kind)


def test_the_documentation_states_the_limits():
    page = (Path(__file__).parents[2] / "docs/format.md").read_text("utf-8")
    limits = {}
    for names, sizes in re.findall(r"^\| (.+) \| (\d+ [MGT]iB.*) \|$", page, re.MULTILINE):
        found = [parse_bytes(size) for size in re.findall(r"\d+ [MGT]iB", sizes)]
        limits |= dict.fromkeys(names.replace("`", "").split(", "), found)
    for kind in KINDS:
        assert kind.max_bytes in limits[kind.name]


def test_a_file_that_grows_is_read_up_to_its_length(tmp_path, monkeypatch):
    """A program that appends faster than this one reads must not keep it reading."""
    path, lengths, fstat = tmp_path / "log", [], os.fstat
    path.write_bytes(b"x" * 1000)

    def append_after_fstat(handle: int) -> os.stat_result:
        status = fstat(handle)
        lengths.append(status.st_size)
        with path.open("ab") as file:
            file.write(b"y" * 1000)
        return status

    monkeypatch.setattr(os, "fstat", append_after_fstat)
    data = read_file(path, SHARD)
    assert data == (b"x" * 1000).ljust(lengths[-1], b"y")
    assert path.stat().st_size == len(data) + 1000


def test_a_line_has_a_limit(tmp_path):
    path = tmp_path / "list.txt"
    path.write_bytes(b"short\n" + b"x" * (MAX_LINE_BYTES - 1) + b"\n")
    assert [len(line) for line in read_lines(path, SOURCE_LIST)] == [6, MAX_LINE_BYTES]
    path.write_bytes(b"short\n" + b"x" * (MAX_LINE_BYTES + 1))
    with pytest.raises(SOURCE_LIST.error, match="longer than 1,048,576 bytes") as caught:
        list(read_lines(path, SOURCE_LIST))
    assert caught.value.line == 2
