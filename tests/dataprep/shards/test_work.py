"""The work for each image of a shard that is copied: counted, because times differ between machines.

A feature that costs every image something shows here. If it is worth that, raise the limit.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace

import pytest
from helpers.datasets import write_images
from helpers.pictures import encode, photo

from dataprep import storage
from dataprep.containers import SourceImages
from dataprep.options import Downscale, Options
from dataprep.run.convert import convert_dataset
from dataprep.run.work import ShardTasks
from dataprep.shards import write as divide_module
from dataprep.shards.write import ShardTask, write_shard
from dataprep.sources import read_source
from manifests.errors import StorageError

IMAGES = 320

#: Calls for each image: of Python functions, comprehensions included, and of functions in C. Python
#: 3.12 makes fewer, because comprehensions are no functions there.
MOST_CALLS = {"webdataset": (26, 48), "tfrecord": (34, 52)}

#: System calls for each image: open, read and close of the image, and its part of what each batch
#: takes.
MOST_SYSTEM_CALLS = 3.4


@pytest.fixture
def source(tmp_path):
    """Photographs with bytes after their end, so that a batch has as many as one of photographs."""
    folder = tmp_path / "src" / "class"
    folder.mkdir(parents=True)
    images = [encode(photo(number, 64, 48)) for number in range(8)]
    for number in range(IMAGES):
        image = images[number % len(images)]
        (folder / f"{number:04d}.jpg").write_bytes(image[:-2] + bytes(20_000) + image[-2:])
    return tmp_path / "src"


@contextmanager
def running(source, out, fmt):
    """Yield a function that writes all images into one shard in this process."""
    out.mkdir()
    paths = [f"class/{name}" for name in sorted(os.listdir(source / "class"))]
    sizes = [(source / path).stat().st_size for path in paths]
    keys = [f"{number:08d}" for number in range(IMAGES)]
    images = SourceImages(str(source), paths, sizes, [None] * IMAGES)
    labels, names = [0] * IMAGES, {0: "class"}
    task = ShardTask(
        str(out), "train-00000", images, Options(fmt=fmt), "0", keys, labels, names, None
    )
    with storage.partials(str(out), is_alone=True):
        yield lambda: write_shard(task)


@pytest.mark.parametrize("fmt", MOST_CALLS)
def test_calls_for_each_image(source, tmp_path, fmt):
    count_calls(source, tmp_path / "warm", fmt)  # imports, and caches of features
    python, c, system = count_calls(source, tmp_path / "out", fmt)
    most_python, most_c = MOST_CALLS[fmt]
    assert python.total() / IMAGES <= most_python, python.most_common(30)
    assert c.total() / IMAGES <= most_c, c.most_common(30)
    assert system.total() / IMAGES <= MOST_SYSTEM_CALLS, system


def count_calls(source, out, fmt):
    """Return the calls of Python functions, of functions in C, and of the operating system, by name."""
    python, c, system = Counter(), Counter(), Counter()

    def count(frame, event, argument):
        if event == "call":
            python[frame.f_code.co_name] += 1
        elif event == "c_call":
            c[argument.__name__] += 1
            if argument.__module__ == "posix":
                system[argument.__name__] += 1

    with running(source, out, fmt) as run:
        previous = sys.getprofile()
        sys.setprofile(count)
        try:
            run()
        finally:
            sys.setprofile(previous)
    return python, c, system


@pytest.mark.parametrize("fmt", MOST_CALLS)
def test_each_byte_is_read_written_and_read_back_once(source, tmp_path, monkeypatch, fmt):
    copied = Counter()

    def count(name):
        original = getattr(os, name)

        def call(*arguments):
            result = original(*arguments)
            copied[name] += len(result) if isinstance(result, bytes) else result
            return result

        monkeypatch.setattr(os, name, call)

    for name in ("read", "pwritev", "preadv"):
        count(name)
    with running(source, tmp_path / "out", fmt) as run:
        run()
        suffix = {"webdataset": "tar", "tfrecord": "tfrecord"}[fmt]
        shard = (tmp_path / "out" / f"train-00000.{suffix}").stat().st_size
    images = sum(file.stat().st_size for file in (source / "class").iterdir())
    assert copied["read"] == images
    assert copied["pwritev"] == copied["preadv"] == shard


def test_batches_that_are_only_copied_are_larger():
    images = SourceImages("src", [str(number) for number in range(16)], [1 << 19] * 16, [None] * 16)
    resized = Options(downscale=Downscale(20), fmt="webdataset")
    for options, batches in ((Options(), 4), (resized, 8)):
        names = ("out", "train-00000", images, options, "", images.paths)
        task = ShardTask(*names, None, {}, None)
        assert len([*divide_module._batches(task, "", "")]) == batches


def test_the_last_shards_of_a_run_are_divided():
    def read(number):
        return SimpleNamespace(_replace=lambda divided: (number, divided))

    tasks = ShardTasks(SimpleNamespace(options=Options()), [5, 6, 7, 8], 3, read)
    assert [*tasks] == [(5, False), (6, False), (7, False), (8, True)]
    for workers, shards, whole in ((4, 3, 0), (4, 8, 6), (16, 15, 0), (16, 22, 14), (16, 31, 16)):
        tasks = replace(tasks, numbers=range(shards), workers=workers)
        assert [divided for _, divided in tasks] == [number >= whole for number in range(shards)]


def test_a_disk_that_returns_other_bytes_is_noticed(tmp_path, monkeypatch):
    source = read_source(str(write_images(tmp_path / "src", range(5), ("class",))))
    monkeypatch.setattr("dataprep.storage.temporary.checksum_of", lambda *_: 1)
    message = r"train-00000\.tfrecord: the file does not contain the bytes"
    with pytest.raises(StorageError, match=message):
        convert_dataset(source, str(tmp_path / "out"), Options(), workers=1)
    assert list((tmp_path / "out").glob("*.tfrecord")) == []
