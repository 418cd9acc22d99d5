"""DALI reads the same bytes and labels from a converted image folder."""

import pytest
import torch
from helpers.read_back import read_back

import loaders
from loaders.dataset.split import open_split
from manifests.tables import read_table


@pytest.fixture(scope="module")
def images(mixed, tmp_path_factory):
    """An image folder of three classes."""
    folder = tmp_path_factory.mktemp("source") / "some images"
    for number, (extension, data, _) in enumerate(mixed):
        path = folder / f"class {number % 3}" / f"{number} picture.{extension}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return folder


@pytest.fixture(scope="module", params=["tfrecord", "webdataset"])
def dataset(images, dataprep, request, tmp_path_factory):
    out = tmp_path_factory.mktemp("prepared") / "out"
    done = dataprep(
        "convert", "--src", images, "--out", out, "--fmt", request.param, "--samples-per-shard", "9"
    )
    assert done.returncode == 0, done.stderr
    return out


def test_images_and_labels_are_read_bit_for_bit(images, dataset):
    split = open_split(dataset, "train")
    assert len(split.shards) == 3
    rows = [
        row for shard in split.shards for row in read_table(split.path(shard.table)).to_pylist()
    ]
    (read,) = read_back(dataset)
    assert read == [((images / row["source"]).read_bytes(), row["label"]) for row in rows]
    assert {row["source"] for row in rows} == {
        str(p.relative_to(images)) for p in images.glob("*/*")
    }
    names = split.manifest.classes
    assert all(names[row["label"]] == row["source"].split("/")[0] for row in rows)


@pytest.mark.parametrize("transforms", ["imagenet-train", "imagenet-eval"])
def test_an_epoch_contains_every_sample(dataset, transforms):
    with loaders.build(
        dataset, batch_size=5, transforms=transforms, device="cpu", last_batch="partial"
    ) as loader:
        for _ in range(2):
            labels = torch.cat([labels for _, labels in loader])
            assert torch.bincount(labels).tolist() == [8, 8, 7]
