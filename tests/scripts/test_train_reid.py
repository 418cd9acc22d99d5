"""The re-identification script: its scores are correct, it learns, and resuming gives the same weights."""

import re
import sys
from itertools import product

import numpy as np
import pytest
import torch
from helpers.examples import examples
from helpers.loading import convert
from helpers.pictures import encode
from helpers.rows import evaluate, read_rows
from helpers.trainings import ROOT, call, kill_and_resume, losses, output_of
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import loaders
from dataprep.sources import SourceOptions

SCRIPT = ROOT / "scripts" / "train_reid.py"
PER_EPOCH = 6


@pytest.fixture(scope="module")
def script(scripts):
    return scripts("train_reid")


def person(identity, *seed):
    """Return an image of a person: clothes in the two colors of the identity, with random light and background."""
    rng = np.random.default_rng([identity, *seed])
    pixels = np.empty((64, 32, 3))
    pixels[:] = rng.integers(0, 256, 3)
    pixels[10:32, 8:24], pixels[32:62, 8:24] = np.random.default_rng(identity).integers(
        0, 256, (2, 3)
    )
    pixels = pixels * rng.uniform(0.6, 1) + rng.normal(0, 4, pixels.shape)
    return encode(Image.fromarray(pixels.clip(0, 255).astype(np.uint8)))


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def datasets(tmp_path_factory):
    """Three datasets of twelve people to train on and twelve others to search for, with two cameras."""
    folder = tmp_path_factory.mktemp("reid")
    for number, camera, shot in product(range(12), (1, 2), range(4)):
        ours, theirs = 2 * number + 2, 2 * number + 3
        where = "bounding_box_test" if shot else "query"
        name = f"c{camera}s1_{shot:06d}_00.jpg"
        training = folder / f"market/bounding_box_train/{ours:04d}_{name}"
        write(training, person(ours, camera, shot))
        write(folder / f"market/{where}/{theirs:04d}_{name}", person(theirs, camera, shot))
        for split, who in (("train", ours), ("val", theirs)):
            if shot < 2:
                image, side = person(who, camera, shot), ("left", "right")[camera - 1]
                write(folder / f"named/{split}/{who:04d}-{side}-{shot}.jpg", image)
                write(folder / f"plain/{split}/{who:04d}/{camera}-{shot}.jpg", image)
    for shot in range(7):
        write(folder / f"market/bounding_box_test/0000_c1s1_{shot:06d}_00.jpg", person(0, shot))
    # This person appears in only one camera, so no search can find them.
    write(folder / "market/query/0099_c1s1_000000_00.jpg", person(99, 0))
    write(folder / "market/bounding_box_test/0099_c1s1_000001_00.jpg", person(99, 1))
    made = {name: folder / f"{name}-made" for name in ("market", "named", "plain")}
    convert(folder / "market", made["market"], shard_samples=20)
    pattern = SourceOptions(pattern="{identity}-{camera}-*")
    convert(folder / "named", made["named"], pattern, fmt="webdataset")
    convert(folder / "plain", made["plain"])
    return made


def arguments(dataset, checkpoint, *more, processes=1):
    return [
        SCRIPT, dataset, "--checkpoint", checkpoint,
        "--model", "tiny", "--device", "cpu", "--identities", str(4 // processes), "--samples", "4",
        "--lr", "0.01", "--log-every", "1", *map(str, more),
    ]  # fmt: skip


def scores(output):
    found = re.findall(r"epoch (\d+): rank-1 ([\d.]+)%, mAP ([\d.]+)%, (\d+) queries", output)
    return {
        int(epoch): (float(first), float(precision), int(queries))
        for epoch, first, precision, queries in found
    }


def search_with_loops(query, gallery, itself=False):
    """Return the sums of rank-1 and average precision and the number of counted queries, with plain loops."""
    firsts, precisions = [], []
    for number, (features, label, camera) in enumerate(zip(*query, strict=True)):
        found = []
        for other in np.argsort(-gallery[0] @ features, kind="stable"):
            same_camera = gallery[1][other] == label and gallery[2][other] == camera
            if not (number == other if itself else same_camera):
                found.append(gallery[1][other] == label)
        if not any(found):
            continue
        places = [place for place, correct in enumerate(found, 1) if correct]
        firsts.append(found[0])
        precisions.append(np.mean([nth / place for nth, place in enumerate(places, 1)]))
    return sum(firsts), sum(precisions), len(firsts)


def percentages(first, precision, queries):
    return 100 * first / queries, 100 * precision / queries, queries


def make_embeddings(script, features, labels, cameras):
    features, labels, cameras = map(torch.tensor, (features, labels, cameras))
    return script.Embeddings(features.float(), labels, cameras)


numbers = st.integers(0, 3)


@st.composite
def searches(draw):
    width = draw(st.integers(1, 3))

    def side():
        count = draw(st.integers(1, 12))
        lists = (
            st.lists(kind, min_size=count, max_size=count) for kind in (vectors, numbers, numbers)
        )
        return [draw(each) for each in lists]

    vectors = st.lists(st.integers(-3, 3), min_size=width, max_size=width)
    return side(), side()


@settings(max_examples=examples(300))
@given(search=searches(), similarities=st.integers(1, 200))
def test_score_against_numpy(script, search, similarities):
    """Integer features, so that ties are exact; with chunks of any size."""
    expected = search_with_loops(*[[np.array(part) for part in side] for side in search])
    query, gallery = (make_embeddings(script, *side) for side in search)
    assert script.score(query, gallery, similarities).tolist() == pytest.approx(expected)


@pytest.mark.parametrize("margin", [None, 0.3])
def test_batch_hard_against_loops(script, margin):
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(12, 5)), np.repeat([7, 1, 4], 4)
    expected = []
    for anchor, label in zip(features, labels, strict=True):
        distances = np.sqrt(((features - anchor) ** 2).sum(1))
        excess = distances[labels == label].max() - distances[labels != label].min()
        expected.append(np.log1p(np.exp(excess)) if margin is None else max(0, excess + margin))
    given = torch.tensor(features).float().requires_grad_()
    loss = script.batch_hard(given, torch.tensor(labels), margin)
    assert loss.item() == pytest.approx(np.mean(expected), rel=1e-4)
    loss.backward()
    assert given.grad.isfinite().all()


def embedded(script, dataset, checkpoint, split, names):
    """Return the features, labels and places of a split, from the model of a checkpoint in a single process."""
    batches = loaders.build(dataset, split=split, batch_size=5, transforms="reid-eval", device="cpu", dtype="float32",
                            fields=("image", "label", names))  # fmt: skip
    model = script.make_network("tiny", len(batches.classes))
    model.load_state_dict(torch.load(checkpoint)["model"])
    model.eval()
    parts = [
        (model(images).detach().numpy(), labels.numpy(), list(places))
        for images, labels, places in batches
    ]
    features, labels, places = (np.concatenate([part[kind] for part in parts]) for kind in range(3))
    return features / np.linalg.norm(features, axis=1, keepdims=True), labels, places


@pytest.mark.slow
def test_it_learns(datasets, tmp_path):
    options = (datasets["market"], tmp_path / "run.pt", "--epochs", 12, "--evaluate-every", 5)
    printed = output_of(arguments(*options))
    found = scores(printed)
    assert list(found) == [4, 9, 11]
    # The query whose person appears in only one camera is not counted.
    assert {queries for *_, queries in found.values()} == {24}
    loss = np.array([*losses(printed).values()])
    assert loss[-20:].mean() < 0.8 * loss[:20].mean()
    # By chance, six of eighty are correct, three of them from the query's own camera.
    first, precision, _ = found[11]
    assert first > 50
    untrained = scores(output_of(arguments(*options, "--lr", "1e-9", "--epochs", 1)))[0]
    assert precision > untrained[1] + 10


@pytest.mark.slow
def test_killed_and_resumed_gives_the_same_weights(script, datasets, tmp_path, python):
    def call(checkpoint, *more):
        options = ("--epochs", 3, "--save-every", 3, "--evaluate-every", 1, "--margin", 0.3)
        return arguments(datasets["market"], checkpoint, *options, *more, processes=2)

    counts = {"steps": 3 * PER_EPOCH, "per_epoch": PER_EPOCH, "processes": 2}
    printed, *_ = kill_and_resume(python, call, tmp_path, **counts)
    # The evaluation does not depend on the number of processes.
    complete = (datasets["market"], tmp_path / "complete.pt")
    sides = [embedded(script, *complete, split, "camera") for split in ("query", "gallery")]
    found = percentages(*search_with_loops(*sides))
    assert scores(printed)[2] == pytest.approx(found, abs=0.006)


@pytest.mark.parametrize(("name", "column"), [("named", "camera"), ("plain", "key")])
def test_val_is_both_query_and_gallery(script, datasets, tmp_path, name, column):
    """With cameras, named by text here, the query's own camera is excluded.

    Without, only the query itself.
    """
    printed = output_of(arguments(datasets[name], tmp_path / "run.pt", "--epochs", 1))
    val = embedded(script, datasets[name], tmp_path / "run.pt", "val", column)
    expected = percentages(*search_with_loops(val, val, itself=name == "plain"))
    assert expected[2] == 48
    assert scores(printed)[0] == pytest.approx(expected, abs=0.006)


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "wrong"))
def test_wrong_arguments_are_rejected(datasets, tmp_path, row, message, monkeypatch):
    for name in ("torchvision", "torchvision.models"):  # another test may have imported them
        monkeypatch.setitem(sys.modules, name, None)
    done = call(arguments(datasets["market"], tmp_path / "run.pt", *evaluate(row)))
    assert done.returncode == 1
    assert re.match(message, done.stderr.splitlines()[-1])
    assert "Traceback" not in done.stderr
