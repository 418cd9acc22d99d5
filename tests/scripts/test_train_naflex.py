"""The training script for images of many shapes: resumed, it ends with the weights of a run that did not stop."""

import re

import pytest
import torch
from helpers.loading import convert
from helpers.trainings import ROOT, call

SCRIPT = ROOT / "scripts" / "train_naflex.py"


@pytest.fixture(scope="module")
def dataset(make_photos, tmp_path_factory):
    folder = tmp_path_factory.mktemp("shapes")
    return convert(make_photos(folder / "photos", 24, classes=2), folder / "out")


def train(dataset, checkpoint, epochs, row_tokens, *more):
    sizes = ["--batch-size", "8", "--width", "64", "--depth", "1", "--budgets", "4", "9", "16"]
    command = [SCRIPT, dataset, "--checkpoint", checkpoint, "--device", "cpu"]
    done = call([*command, "--epochs", epochs, *sizes, "--row-tokens", row_tokens, *more])
    assert done.returncode == 0, done.stderr
    return re.findall(r"step \d+: loss ([\d.]+), (\d+) rows of (\d+)", done.stdout)


@pytest.mark.parametrize("row_tokens", [32, 0])
def test_a_resumed_training_ends_with_the_same_weights(dataset, tmp_path, row_tokens):
    whole = train(dataset, tmp_path / "whole.pt", 2, row_tokens)
    assert len(whole) == 6
    assert {length for *_, length in whole} <= ({"32"} if row_tokens else {"4", "9", "16"})
    train(dataset, tmp_path / "half.pt", 1, row_tokens)
    assert train(dataset, tmp_path / "half.pt", 2, row_tokens, "--resume") == whole[3:]
    weights = [torch.load(tmp_path / f"{name}.pt")["model"] for name in ("whole", "half")]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
