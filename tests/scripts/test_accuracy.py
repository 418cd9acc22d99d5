"""The comparisons of accuracy: both sides train on the same images, results are kept, intervals are right."""

import argparse
import json

import numpy as np
import pytest
import torch
from helpers.pictures import encode, photo
from helpers.torchvision_oracle import import_torchvision
from scipy import stats

import_torchvision()

SETTINGS = {"recipe": "plain"}


@pytest.fixture(autouse=True)
def one_thread():
    """Small convolutions on several threads mostly wait for each other if the machine is busy."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    """Three classes of 24 images each, in train/ and test/."""
    folder = tmp_path_factory.mktemp("accuracy") / "images"
    for split, first in (("train", 0), ("test", 100)):
        for number in range(24):
            for label in range(3):
                file = folder / split / f"class{label}" / f"{number}.jpg"
                file.parent.mkdir(parents=True, exist_ok=True)
                pixels = np.asarray(photo(first + number, 32, 32)) // 4
                pixels[:, :, label] += 150
                file.write_bytes(encode(pixels))
    return folder


def arguments(images, work, **changed):
    values = {"images": images, "work": work, "results": work / "results.jsonl", "device": "cpu"}
    values |= {"workers": 0, "threads": 2, "seeds": 2, "seconds": 1000.0}
    return argparse.Namespace(**values | changed)


def test_both_sides_learn(scripts, images, tmp_path, monkeypatch):
    accuracy = scripts("accuracy")
    monkeypatch.setattr(accuracy, "WIDTHS", (4, 8, 8, 8))
    recipe = accuracy.replace(accuracy.RECIPES["plain"], batch_size=24, epochs=6, lr=0.05)
    args = arguments(images, tmp_path)
    accuracy.prepare(args)
    for side in (accuracy.TORCHVISION, accuracy.OURS):
        accuracy.run_side(side, argparse.Namespace(**vars(args) | {"seeds": 1}), SETTINGS, recipe)
    found = accuracy.read_results(args.results, SETTINGS)
    assert set(found) == {accuracy.TORCHVISION, accuracy.OURS}
    for runs in found.values():
        assert runs[0]["accuracy"] > 60


def test_interval(scripts):
    differences = [0.1, -0.2, 0.3, 0.05, 0.0, 0.15]
    mean, half = scripts("accuracy").paired_interval(differences)
    expected = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert (mean - half, mean + half) == pytest.approx(tuple(expected))
    assert scripts("accuracy").paired_interval([0.4]) == (0.4, float("inf"))


def test_finished_seeds_are_not_repeated(scripts, tmp_path):
    accuracy = scripts("accuracy")
    args = arguments(None, tmp_path)
    accuracy.run_seeds("one", args, SETTINGS, lambda seed: {"accuracy": seed})
    args.seeds = 3
    trained = []
    for side, settings in (("one", SETTINGS), ("one", {"recipe": "other"}), ("two", SETTINGS)):
        accuracy.run_seeds(side, args, settings, lambda seed: {"accuracy": trained.append(seed)})
    assert trained == [2, 0, 1, 2, 0, 1, 2]
    first = [json.loads(line) for line in args.results.read_text().splitlines()][:2]
    found = [(row["side"], row["seed"], row["accuracy"]) for row in first]
    assert found == [("one", 0, 0), ("one", 1, 1)]


def test_reid_trains_with_all_loaders(scripts, images, tmp_path):
    reid, accuracy = scripts("accuracy_reid"), scripts("accuracy")
    src = tmp_path / "reid"  # with the splits of re-identification
    src.mkdir()
    (src / "train").symlink_to(images / "train")
    (src / "val").symlink_to(images / "test")
    args = arguments(
        src, tmp_path, model="tiny", epochs=1, identities=3, samples=4, lr=1e-3, seeds=1
    )
    accuracy.prepare(args)
    for side in (reid.PLAIN, reid.OURS, reid.SAME):
        reid.run_side(side, argparse.Namespace(**vars(args)), SETTINGS)
    found = accuracy.read_results(args.results, SETTINGS)
    assert set(found) == {reid.PLAIN, reid.OURS, reid.SAME}
    for runs in found.values():
        assert list(runs) == [0]
        assert 0 < runs[0]["mAP"] <= 100
