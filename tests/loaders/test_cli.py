"""``python -m loaders memory``: the estimate of GPU memory on the command line."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers.damaged import change_column


@pytest.fixture
def memory(warm):
    def run(*arguments, status=0):
        done = warm.run("-m", "loaders", "memory", *map(str, arguments))
        assert "Traceback" not in done.stderr, done.stderr
        assert done.returncode == status, done.stderr
        return done

    return run


@pytest.fixture
def dataset(prepared):
    return prepared["people tfrecord"]


def test_memory_prints_an_estimate_per_split_and_json(dataset, memory):
    done = memory(dataset, "--batch-size", 256)
    assert done.stderr == ""
    for text in ("estimated GPU memory for batches of 256 images", "imagenet-train", " GiB"):
        assert text in done.stdout
    done = memory(dataset, "--split", "train", "--batch-size", 256, "--json", "--verbose")
    assert "manifest.json: read; 1 splits" in done.stderr
    ((name, split),) = json.loads(done.stdout)["splits"].items()
    assert name == "train"
    sizes = split["gpu_memory"]
    assert sizes["imagenet-eval"]["as they are"] >= sizes["imagenet-train"]["as they are"] > 2**29
    for each in sizes.values():
        assert list(each.values()) == sorted(each.values(), reverse=True)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["DATASET"], "--batch-size"),
        (["/none/none", "--batch-size", 8], "/none/none"),
        (["s3://bucket/set", "--batch-size", 8], "is in an object store. Hint: name a copy on a"),
        (["DATASET", "--split", "trian", "--batch-size", 8], "has no split 'trian'. Hint: did you"),
    ],
)
def test_wrong_arguments(dataset, memory, arguments, message):
    given = [dataset if each == "DATASET" else each for each in arguments]
    assert message in memory(*given, status=2).stderr


def test_a_missing_choice_is_named_on_one_line(warm):
    done = warm.run("-m", "loaders", "export", "d", "out", "--transforms", "imagenet-eval")
    assert "Missing option '--for'. Hint: add --for triton|onnx; " in done.stderr


def test_memory_of_a_damaged_dataset(dataset, tmp_path, memory):
    copy = shutil.copytree(dataset, tmp_path / "copy")
    for path in copy.glob("*.parquet"):
        rows = pq.read_metadata(path).num_rows
        change_column(path, "width", pa.nulls(rows, pa.int32()))
    error = memory(copy, "--batch-size", 8, status=1).stderr
    assert "record 0: the table has rows without a value in column 'width'" in error
    path = copy / "train-00000.parquet"
    path.write_bytes(path.read_bytes()[:-20])
    error = memory(copy, "--batch-size", 8, status=1).stderr
    assert error.startswith(f"loaders: {path}: the sample table cannot be read (")
    assert error.count("\n") == 1
