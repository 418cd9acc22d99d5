"""``python -m loaders memory``: the estimate of GPU memory on the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def dataset(make_photos, dataprep, tmp_path_factory):
    folder = tmp_path_factory.mktemp("memory")
    photos = make_photos(folder / "photos", 14)
    done = dataprep("convert", "--src", photos, "--out", folder / "out put", "--workers", 1)
    assert done.returncode == 0, done.stderr
    return folder / "out put"


def memory(*arguments, status=0):
    command = [sys.executable, "-m", "loaders", "memory", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == status, done.stderr
    return done


def test_memory_prints_an_estimate_per_split(dataset):
    text = memory(dataset, "--batch-size", 256).stdout
    assert "estimated GPU memory for batches of 256 images" in text
    assert "imagenet-train" in text
    assert "imagenet-eval" in text
    assert " GiB" in text


def test_memory_as_json(dataset):
    splits = json.loads(memory(dataset, "--batch-size", 256, "--json").stdout)["splits"]
    (estimate,) = (split["gpu_memory"] for split in splits.values())
    assert estimate["imagenet-eval"]["as they are"] > estimate["imagenet-train"]["as they are"] > 2**29
    assert all(list(sizes.values()) == sorted(sizes.values(), reverse=True) for sizes in estimate.values())


def test_memory_needs_a_batch_size(dataset):
    assert "--batch-size" in memory(dataset, status=2).stderr


def test_memory_of_a_folder_that_does_not_exist(tmp_path):
    assert str(tmp_path / "none") in memory(tmp_path / "none", "--batch-size", 8, status=2).stderr
