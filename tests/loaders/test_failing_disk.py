"""A shard that is shortened while it is in use is an error that names it; a network file system is not mapped."""

import json
import os
import sys

import numpy as np
import pytest
from helpers import HELPERS
from helpers.loading import build, convert, take

from dataprep.options import Raw
from loaders.dataset import files
from loaders.dataset.damage import ShardCheck
from loaders.dataset.files import MappedBytes, OpenFiles, map_file
from loaders.dataset.split import open_split
from manifests.errors import ShardError

#: In a process for each case, shortens every shard after the first batch. Without a check, reading
#: the rest ends the process with SIGBUS.
CODE = """
import json, os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from eventually import wait_until_idle
import loaders
import loaders.dali.pipeline, loaders.loader, pyarrow.parquet, torch  # once for all processes

def read(folder, options):
    loader = loaders.build(folder, batch_size=2, transforms="imagenet-eval", device="cpu", num_threads=1, prefetch=1,
                           **options)
    iteration = iter(loader)
    next(iteration)
    wait_until_idle()  # an image that is being decoded from a mapped file would still end the process
    for shard in Path(folder).glob("train-*.t*"):
        os.truncate(shard, 10)
    try:
        for _ in range(5):
            list(iteration)
            iteration = iter(loader)
    except loaders.DamagedError as error:
        print(type(error).__name__, error)

for case in json.loads(sys.argv[1]):
    process = os.fork()
    if not process:
        read(*case)
        sys.stdout.flush()
        os._exit(0)
    print("status", os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)
"""


def test_a_shard_that_is_shortened_while_it_is_in_use(
    make_dataset, mixed, make_photos, tmp_path, python
):
    # The images of the next batch are located before they are copied.
    raw = convert(
        make_photos(tmp_path / "photos", 23), tmp_path / "raw", raw=Raw(16), shard_samples=8
    )
    cases = [(str(raw), {"shuffle": True, "mmap": True})]
    for number, shuffle in enumerate((True, False, "buffer")):
        for mmap in (True, False):
            fmt = ("tfrecord", "webdataset")[(number + mmap) % 2]
            folder = make_dataset(fmt, mixed, name=f"{shuffle} {mmap}")
            cases.append((str(folder), {"shuffle": shuffle, "mmap": mmap}))
    done = python.run("-c", CODE, json.dumps(cases), HELPERS, timeout=600)
    assert done.returncode == 0, (done.returncode, done.stderr)
    lines = done.stdout.splitlines()
    assert len(lines) == 2 * len(cases), (lines, done.stderr)
    for (folder, options), message, status in zip(cases, lines[::2], lines[1::2], strict=True):
        assert status == "status 0", options
        assert message.startswith(f"ShardError {folder}/train-0000"), options
        assert "Hint: " in message, options


@pytest.mark.parametrize("permitted", [True, False])
def test_the_first_of_many_bytes_that_cannot_be_read(tmp_path, monkeypatch, permitted):
    """Some containers do not permit the system call that checks all at once."""
    if not permitted:
        monkeypatch.setattr(MappedBytes, "_copy", lambda self, first, count: -1)
    path = tmp_path / "file"
    path.write_bytes(bytes(10_000))
    file = map_file(str(path), 10_000)
    addresses = file.address + np.tile([0, 4_095, 9_999], 1_000)
    assert MappedBytes(addresses).find_unreadable() is None
    assert MappedBytes(addresses[:0]).find_unreadable() is None
    os.truncate(path, 4_096)
    assert MappedBytes(addresses).find_unreadable() == 2
    assert MappedBytes(np.delete(addresses, np.arange(2, 2_500, 3))).find_unreadable() == 1_668
    assert MappedBytes(file.address + np.zeros(3_000, np.int64)).find_unreadable() is None


def test_files_are_read_without_mapping(tmp_path, monkeypatch):
    monkeypatch.setattr(OpenFiles, "max_open", 3)
    paths = [tmp_path / str(number) for number in range(7)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes(range(number, number + 100)))
    opened = OpenFiles([str(path) for path in paths], [100] * 7)
    for number in (0, 1, 2, 6, 5, 4, 3, 0, 0, 6):
        opened.prefetch(number, 0, 100)
        assert opened.read(number, 10, 5).tolist() == list(range(number + 10, number + 15))
    os.truncate(paths[6], 12)
    with pytest.raises(ValueError, match="is 12 bytes long"):
        opened.read(6, 10, 5)
    opened.clear()


def test_every_shard_is_checked_in_turn(make_dataset, mixed, monkeypatch):
    monkeypatch.setattr(ShardCheck, "PER_CALL", 2)
    split = open_split(make_dataset("tfrecord", mixed, shards=5), "train")
    check = ShardCheck(split)
    os.truncate(split.path(split.shards[4].file), 3)
    check(), check()
    with pytest.raises(ShardError, match="the file is 3 bytes long"):
        check()


@pytest.mark.parametrize(
    ("number", "name"), [(0x6969, "NFS"), (0x65735546, "FUSE"), (0x0BD00BD0, "Lustre")]
)
def test_network_file_systems(prepared, monkeypatch, number, name):
    folder = prepared["mixed tfrecord"]
    assert files.network_filesystem(str(folder)) is None
    assert files.network_filesystem("/does/not/exist") is None

    def statfs(path, buffer):
        buffer[:8] = number.to_bytes(8, sys.byteorder)
        return 0

    monkeypatch.setattr(files._libc, "statfs", statfs)
    assert files.network_filesystem(str(folder)) == name
    with build(folder) as loader:
        assert (loader.options.mmap, loader.options.shuffle) == (False, "buffer")
        take(loader, 5)
    with build(folder, shuffle=True, mmap=True) as loader:
        assert (loader.options.mmap, loader.options.shuffle) == (True, True)
