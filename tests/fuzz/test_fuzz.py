"""The first cases of every surface, with a fixed seed. `scripts/fuzz` runs more."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fuzz.surfaces import NAMES

TESTS = Path(__file__).parent.parent

#: Surfaces that one process checks, and the number of cases of each: about two seconds of CPU time.
GROUPS = {
    ("manifest", "index", "table"): 3,
    ("tfrecord", "tar", "list", "csv", "parquet"): 3,
    ("jpeg", "png", "webp"): 2,
    ("bmp", "tiff"): 3,
    ("yaml", "checkpoint"): 5,
    ("command",): 6,
    ("coco", "voc", "masks", "labels"): 2,
    ("hugging-face", "recordio", "lmdb", "archive"): 2,
}


@pytest.mark.skipif(sys.platform != "linux", reason="the limits of a child process are Linux's")
@pytest.mark.parametrize("group", GROUPS, ids="+".join)
def test_cases_of_a_fixed_seed(group, python, tmp_path):
    """In another process: it forks, so it must have no threads."""
    options = [word for name in group for word in ("--surface", name)]
    options += ["--seed", "0", "--cases", str(GROUPS[group]), "--found", str(tmp_path)]
    paths = f"import sys; sys.path[1:1] = {[str(TESTS), str(TESTS.parent)]}"
    run = python.run("-m", "fuzz", *options, before=paths, cwd=TESTS.parent, timeout=600)
    assert run.returncode == 0, run.stdout + run.stderr


def test_every_surface_is_in_a_group():
    assert sorted(name for group in GROUPS for name in group) == sorted(NAMES)
