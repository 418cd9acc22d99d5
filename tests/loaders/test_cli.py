"""``python -m loaders memory``: the estimate of GPU memory on the command line."""

from __future__ import annotations

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest


@pytest.fixture(scope="module")
def dataset(make_photos, dataprep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    photos = make_photos(folder / "photos", 14)
    done = dataprep("convert", "--src", photos, "--out", folder / "out put", "--workers", 1)
    assert done.returncode == 0, done.stderr
    return folder / "out put"


@pytest.fixture
def memory(warm):
    def run(*arguments, status=0):
        done = warm.run("-m", "loaders", "memory", *map(str, arguments))
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == status, done.stderr
        return done

    return run


def test_memory_prints_an_estimate_per_split(dataset, memory):
    text = memory(dataset, "--batch-size", 256).stdout
    assert "estimated GPU memory for batches of 256 images" in text
    assert "imagenet-train" in text
    assert "imagenet-eval" in text
    assert " GiB" in text


def test_verbose_prints_the_log(dataset, memory):
    assert memory(dataset, "--batch-size", 8).stderr == ""
    assert "manifest.json: read; 1 splits" in memory(dataset, "--batch-size", 8, "--verbose").stderr


def test_memory_as_json(dataset, memory):
    splits = json.loads(memory(dataset, "--batch-size", 256, "--json").stdout)["splits"]
    (estimate,) = (split["gpu_memory"] for split in splits.values())
    assert (
        estimate["imagenet-eval"]["as they are"] > estimate["imagenet-train"]["as they are"] > 2**29
    )
    assert all(
        list(sizes.values()) == sorted(sizes.values(), reverse=True) for sizes in estimate.values()
    )


def test_memory_needs_a_batch_size(dataset, memory):
    assert "--batch-size" in memory(dataset, status=2).stderr


def test_memory_of_a_folder_that_does_not_exist(tmp_path, memory):
    assert str(tmp_path / "none") in memory(tmp_path / "none", "--batch-size", 8, status=2).stderr


def test_memory_of_an_object_store(memory):
    done = memory("s3://bucket/set", "--batch-size", 8, status=2)
    assert (
        done.stderr
        == "loaders: s3://bucket/set is in an object store. Hint: name a copy on a local disk.\n"
    )


def test_memory_of_one_split(dataset, memory):
    assert list(
        json.loads(memory(dataset, "--split", "train", "--batch-size", 8, "--json").stdout)[
            "splits"
        ]
    ) == ["train"]
    error = memory(dataset, "--split", "trian", "--batch-size", 8, status=2).stderr
    assert error == f"loaders: {dataset} has no split 'trian'. Hint: did you mean 'train'?\n"


def test_memory_of_a_damaged_dataset(dataset, tmp_path, memory):
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    table = next(copy.glob("*.parquet"))
    table.write_bytes(table.read_bytes()[:-20])
    error = memory(copy, "--batch-size", 8, status=1).stderr
    assert error.startswith(f"loaders: {table}: the sample table cannot be read (")
    assert error.count("\n") == 1


def test_memory_of_images_of_unknown_size(dataset, tmp_path, memory):
    copy = tmp_path / "copy"
    shutil.copytree(dataset, copy)
    for path in copy.glob("*.parquet"):
        table = pq.read_table(path)
        place = table.column_names.index("width")
        pq.write_table(table.set_column(place, "width", pa.nulls(table.num_rows, pa.int32())), path)
    error = memory(copy, "--batch-size", 8, status=1).stderr
    assert "record 0: the table has rows without a value in column 'width'" in error
