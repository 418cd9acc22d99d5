"""The training script: killed and resumed it ends with the weights of a run that never stopped."""

import re
import sys

import pytest
import torch
from helpers.trainings import ROOT, call, kill_after, output_of

SCRIPT = ROOT / "scripts" / "train.py"
PER_EPOCH = 10


@pytest.fixture(scope="module")
def datasets(make_photos, dataprep, tmp_path_factory):
    """In each format 83 training images, so that epochs leave some over, and 7 to evaluate."""
    folder = tmp_path_factory.mktemp("trained")
    make_photos(folder / "photos" / "train", 83, classes=3)
    make_photos(folder / "photos" / "val", 7, classes=3)
    for fmt in ("tfrecord", "webdataset"):
        done = dataprep("convert", "--src", folder / "photos", "--fmt", fmt, "--out", folder / fmt,
                        "--samples-per-shard", 20)  # fmt: skip
        assert done.returncode == 0, done.stderr
    return folder


def command(dataset, checkpoint, processes, *more):
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    batch_size = 8 // processes
    return [
        sys.executable, *(launcher if processes > 1 else []), SCRIPT, dataset, "--checkpoint", checkpoint,
        "--model", "tiny", "--device", "cpu", "--epochs", "2", "--batch-size", str(batch_size),
        "--save-every", "3", "--log-every", "1", *more,
    ]  # fmt: skip


def losses(output):
    return dict(re.findall(r"step (\d+): loss ([\d.]+)", output))


@pytest.mark.slow
@pytest.mark.parametrize(("fmt", "processes"), [("tfrecord", 1), ("webdataset", 2)])
def test_killed_and_resumed_gives_the_same_weights(datasets, tmp_path, fmt, processes):
    dataset, whole, stopped = datasets / fmt, tmp_path / "whole.pt", tmp_path / "stopped.pt"
    told = output_of(command(dataset, whole, processes))
    assert len(losses(told)) == 2 * PER_EPOCH
    # Every image is counted once, however many processes share them.
    assert re.findall(r"epoch (\d): \d+ of (\d+) right", told) == [("0", "7"), ("1", "7")]

    kill_after(PER_EPOCH + 4, command(dataset, stopped, processes))
    step = torch.load(stopped)["step"]
    assert PER_EPOCH < step < 2 * PER_EPOCH
    resumed = output_of(command(dataset, stopped, processes, "--resume"))
    expected = losses(told)
    assert losses(resumed) == {str(number): expected[str(number)] for number in range(step + 1, 2 * PER_EPOCH + 1)}
    assert told.splitlines()[-1] == resumed.splitlines()[-1]

    first, second = torch.load(whole), torch.load(stopped)
    assert first["step"] == second["step"] == 2 * PER_EPOCH
    for name, weights in first["model"].items():
        assert torch.equal(weights, second["model"][name]), name
    assert not list(tmp_path.glob("*.new"))

    # What is done is only evaluated.
    assert output_of(command(dataset, stopped, processes, "--resume")).splitlines() == told.splitlines()[-1:]


def test_model_of_a_package_that_is_missing(datasets, tmp_path):
    (tmp_path / "torchvision.py").write_text("raise ImportError")
    done = call(command(datasets / "tfrecord", tmp_path / "run.pt", 1, "--model", "resnet50"), tmp_path)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith("--model resnet50 is torchvision's, which is not installed")
