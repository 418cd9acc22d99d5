"""Datasets on a real FUSE file system: bindfs shows a local folder as one."""

import os
import shutil
import subprocess
import time

import pytest
from helpers.datasets import FORMATS
from helpers.loading import build, equal

import loaders
from loaders.dataset.files import network_filesystem

pytestmark = [
    pytest.mark.skipif(
        shutil.which("bindfs") is None, reason="needs bindfs (Debian: apt-get install bindfs)"
    ),
    pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="needs /dev/fuse"),
]


@pytest.fixture
def mounted(make_dataset, mixed, tmp_path, request):
    """A local dataset, and the same dataset below a mount of FUSE."""
    local, mount = make_dataset(request.param, mixed), tmp_path / "mount"
    mount.mkdir()
    command = ["bindfs", "--no-allow-other", str(local), str(mount)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        pytest.skip(f"bindfs cannot mount here: {done.stderr.strip()}")
    yield local, mount
    unmount = ["umount", "-l"] if os.geteuid() == 0 else ["fusermount", "-u", "-z"]
    subprocess.run([*unmount, str(mount)], timeout=300, check=True)


both_formats = pytest.mark.parametrize("mounted", FORMATS, indirect=True)


@both_formats
@pytest.mark.parametrize("shuffle", ["buffer", True, False])
def test_batches_over_fuse_equal_those_of_the_local_dataset(mounted, shuffle):
    local, mount = mounted
    assert network_filesystem(str(mount)) == "FUSE"
    with build(mount) as loader:
        assert (loader.options.mmap, loader.options.shuffle) == (False, "buffer")
    with build(mount, shuffle=shuffle) as found, build(local, shuffle=shuffle, mmap=True) as other:
        for _ in range(2):
            assert equal(list(found), list(other))


def _forget_pages(mount):
    """Drop the page cache of the shards: batches from it are right although the file behind it is shortened."""
    for shard in mount.glob("train-*.t*"):
        with open(shard, "rb") as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


@both_formats
@pytest.mark.parametrize("shuffle", ["buffer", True])
@pytest.mark.parametrize("through_mount", [True, False], ids=["through the mount", "behind it"])
def test_a_shard_shortened_over_fuse_is_an_error_that_names_it(mounted, shuffle, through_mount):
    local, mount = mounted
    with build(mount, prefetch=1, shuffle=shuffle) as loader:
        iteration = iter(loader)
        next(iteration)
        for shard in (mount if through_mount else local).glob("train-*.t*"):
            os.truncate(shard, 10)
        with pytest.raises(loaders.DamagedError) as caught:  # noqa: PT012
            end = time.monotonic() + 300
            # The system does not ask for the length again for a second.
            while time.monotonic() < end:
                _forget_pages(mount)
                list(iteration)
                iteration = iter(loader)
    assert caught.value.file
    assert str(caught.value.file).startswith(f"{mount}/train-0000")
    assert "Hint: " in str(caught.value)
