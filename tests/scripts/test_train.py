"""The training script: killed and resumed, it ends with the same weights as a run that did not stop."""

import re
import sys

import pytest
import torch
from helpers.loading import convert
from helpers.rows import evaluate, read_rows
from helpers.trainings import ROOT, call, kill_and_resume, output_of_forks

SCRIPT = ROOT / "scripts" / "train.py"
PER_EPOCH = 10


@pytest.fixture(scope="module")
def datasets(make_photos, tmp_path_factory):
    """Datasets in both formats with 83 training images, which do not fill the last batch, and 7 validation images."""
    folder = tmp_path_factory.mktemp("trained")
    make_photos(folder / "photos" / "train", 83, classes=3)
    make_photos(folder / "photos" / "val", 7, classes=3)
    for fmt in ("tfrecord", "webdataset"):
        convert(folder / "photos", folder / fmt, fmt=fmt, shard_samples=20)
    return folder


def arguments(dataset, checkpoint, processes, *more):
    batch_size = 8 // processes
    return [
        SCRIPT, dataset, "--checkpoint", checkpoint,
        "--model", "tiny", "--device", "cpu", "--epochs", "2", "--batch-size", str(batch_size),
        "--save-every", "3", "--log-every", "1", *more,
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(("fmt", "processes"), [("tfrecord", 1), ("webdataset", 2)])
def test_killed_and_resumed_gives_the_same_weights(datasets, tmp_path, python, fmt, processes):
    def call(checkpoint, *more):
        return arguments(datasets / fmt, checkpoint, processes, *more)

    counts = {"steps": 2 * PER_EPOCH, "per_epoch": PER_EPOCH, "processes": processes}
    printed, resumed, step = kill_and_resume(python, call, tmp_path, **counts)
    # Every image counts once, with any number of processes.
    assert re.findall(r"epoch (\d): \d+ of (\d+) correct", printed) == [("0", "7"), ("1", "7")]
    assert f"resumed at step {step - PER_EPOCH} of epoch 1\n" in resumed
    assert not list(tmp_path.glob("*.new"))
    # A finished run is only evaluated again.
    again = output_of_forks(python, call(tmp_path / "stopped.pt", "--resume"), processes)
    evaluated = printed.splitlines()[-1]
    assert again.splitlines() == [f"resumed at step {PER_EPOCH} of epoch 1", evaluated]


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "missing"))
def test_what_is_missing_is_reported_before_anything_starts(tmp_path, monkeypatch, row, message):
    options, gpus = evaluate(row)
    for name in ("torchvision", "torchvision.models"):  # another test may have imported them
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setenv("LOCAL_RANK", str(gpus))
    done = call(arguments(tmp_path / "no dataset", tmp_path / "run.pt", 1, *options))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", f"{message}\n")
