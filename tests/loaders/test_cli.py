"""``python -m loaders memory``: the estimate of GPU memory on the command line."""

import json

import pytest


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
