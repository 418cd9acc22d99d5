"""`convert --append`, `join`, `remove`, `sync` and `revert` killed at every moment: readers find a whole revision, and a rerun ends the work."""

from __future__ import annotations

import json

import pytest
from helpers import HELPERS


@pytest.mark.parametrize(
    ("fmt", "action", "stride"),
    [
        ("tfrecord", "append", 13),
        ("webdataset", "append", 11),
        ("tfrecord", "steps", 29),
        ("webdataset", "revert", 3),
        ("webdataset", "join", 3),
        ("tfrecord", "remove", 2),
        ("webdataset", "scrub", 3),
        ("tfrecord", "joined", 3),
        ("tfrecord", "sync", 11),
        ("webdataset", "sync", 13),
    ],
)
def test_killed_at_every_file_operation(fmt, action, stride, make_photos, warm, tmp_path):
    """With a stride of 1, the same takes a minute."""
    first, second = (
        make_photos(tmp_path / "first", 10, classes=2, side=16),
        make_photos(tmp_path / "b", 9, 3, 20),
    )
    (second / "a").mkdir()
    for number in range(5):  # a shard without a valid image
        (second / "a" / f"{number}.jpg").write_bytes(b"")
    done = warm.run(
        HELPERS / "kill_appends.py", first, second, tmp_path, fmt, str(stride), action, timeout=600
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["calls"] > (
        10 if action in ("revert", "join", "remove", "scrub", "joined") else 50
    )
    assert result["killed"] == len(range(0, result["calls"], stride))
    assert (result["broken"], result["different"]) == ([], [])
