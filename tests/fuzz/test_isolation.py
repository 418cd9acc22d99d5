"""The fuzzer notices what it looks for: each property, broken on purpose in a child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random

import pytest

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="memory and time of a child process are Linux's"
)

from fuzz import mutate  # noqa: E402
from fuzz.isolation import Fault, isolated  # noqa: E402


def _allocate() -> int:
    return len(bytearray(b"x") * (600 << 20))


def _recurse() -> None:
    _recurse()


def _write(path: Path) -> int:
    return path.write_text("x")


def test_a_result_comes_back(tmp_path):
    def function() -> str:
        os.write(1, b"out\n")
        os.write(2, b"err\n")
        _write(tmp_path / "out.txt")
        return "value"

    outcome = isolated(function, writable=[tmp_path])
    assert (outcome.status, outcome.stdout, outcome.stderr, outcome.value) == (
        0, "out\n", "err\n", "value",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("function", "fault"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "signal 11"),
        (lambda: {}["x"], "KeyError: 'x'"),
        (_recurse, "RecursionError"),
        (_allocate, "more than 512 MiB of memory"),
        (lambda: os.system("true"), r"executes: os\.system"),
        (lambda: subprocess.call(["true"]), r"executes: subprocess\.Popen"),
        (lambda: subprocess.call([sys.executable, "-c", "pass"]), r"executes: subprocess\.Popen"),
        (tempfile.mkdtemp, "leaves temporary files"),
    ],
)
def test_a_fault_is_noticed(function, fault, tmp_path):
    with pytest.raises(Fault, match=fault):
        isolated(function, writable=[tmp_path])


@pytest.mark.parametrize("link", [False, True])
def test_a_file_outside_of_the_output_is_noticed(link, tmp_path):
    inside, outside = tmp_path / "in", tmp_path / "out"
    inside.mkdir()
    outside.mkdir()
    path = inside / "link" if link else outside
    if link:
        path.symlink_to(outside)
    with pytest.raises(Fault, match="writes outside of the output"):
        isolated(lambda: _write(path / "x"), writable=[inside])


def test_temporary_files_are_removed():
    def removed() -> str:
        with tempfile.TemporaryDirectory() as folder:
            _write(Path(folder) / "x")
        return folder

    assert not Path(isolated(removed, writable=[]).value).parent.exists()


def test_a_seed_gives_the_same_mutations():
    def mutations() -> list[object]:
        rng, value, found = Random(4), {"a": [1, {"b": "text"}], "c": None}, []
        for _ in range(50):
            found.append((mutate.mutate_bytes(rng, bytes(99)), mutate.mutate_text(rng, "a b\nc\n")))
            found.append(mutate.dump_json(mutate.mutate_json(rng, value)))
        return found

    first = mutations()
    assert first == mutations()
    assert len({*map(str, first)}) > 90
