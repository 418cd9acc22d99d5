"""Several datasets, of which some are in object stores, give the batches of the same datasets on the local disk."""

from pathlib import Path

import numpy as np
import pytest
from helpers import annotated, handmade
from helpers.pictures import encode, photo

import loaders
from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from loaders.cache.fetcher import Fetcher
from loaders.cache.folder import disk_usage
from loaders.progress import Upcoming
from manifests.errors import CallError
from manifests.remote.store import open_store

TRANSFORMS = [
    {"Resize": {"size": 32}},
    {"CenterCrop": {"size": 24}},
    "RandomHorizontalFlip",
    "ToTensor",
]


def build(datasets, **options):
    return loaders.build(
        datasets,
        **{"device": "cpu", "batch_size": 8, "transforms": TRANSFORMS, "num_threads": 1, **options},
    )


def batches(loader, epochs=2):
    return [(images.numpy(), labels.numpy()) for _ in range(epochs) for images, labels in loader]


def assert_equal(first, second):
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        for array, expected in zip(one, other, strict=True):
            np.testing.assert_array_equal(array, expected)


@pytest.fixture
def datasets(tmp_path) -> list[tuple[Path, str]]:
    """Two local datasets with different classes, and the URLs of copies."""
    made = []
    for number, fmt in enumerate(("tfrecord", "webdataset")):
        numbers = range(30 - 7 * number)
        samples = [
            ("jpg", encode(photo(50 * number + n, 50 + n, 60)), n % (3 + number)) for n in numbers
        ]
        folder = handmade.make_dataset(tmp_path / f"local {number}", fmt, samples, shards=3)
        url = f"memory://bucket/{tmp_path.name}/set {number}"
        for path in folder.glob("[!.]*"):
            open_store(url).put(path.name, path.read_bytes())
        made.append((folder, url))
    return made


@pytest.mark.parametrize(
    "options", [{}, {"shuffle": False}, {"mix": [0.7, 0.3]}], ids=["shuffled", "stored", "mix"]
)
@pytest.mark.parametrize("remote", [(True, True), (False, True), (True, False)])
def test_batches_are_those_of_local_datasets(datasets, remote, options, tmp_path):
    with build([local for local, _ in datasets], **options) as loader:
        expected = batches(loader)
    chosen = [
        url if is_remote else local
        for is_remote, (local, url) in zip(remote, datasets, strict=True)
    ]
    for _ in ("cold", "warm"):
        with build(chosen, cache=tmp_path / "cache", **options) as loader:
            assert_equal(batches(loader), expected)
            assert loader.explain().count("cache ") >= sum(remote)
            assert loader.options.cache == str(tmp_path / "cache")


def test_a_state_moves_between_the_disk_and_the_store(datasets, tmp_path):
    with build([local for local, _ in datasets]) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        expected = [(images.numpy(), labels.numpy()) for images, labels in iterator]
    with build([url for _, url in datasets], cache=tmp_path / "cache") as loader:
        loader.load_state_dict(state)
        assert_equal(batches(loader, epochs=1), expected)


def test_preview_and_bad_arguments(datasets, tmp_path):
    urls = [url for _, url in datasets]
    with build(urls, cache=tmp_path / "cache") as loader:
        assert len(loader.preview(samples=3).items) == 3
    with pytest.raises(CallError, match="and cache is missing"):
        build(urls)
    with pytest.raises(CallError, match="but all datasets are folders"):
        build([local for local, _ in datasets], cache=tmp_path / "other")


def test_the_cache_must_have_room_for_all(datasets, tmp_path):
    urls = [url for _, url in datasets]
    with pytest.raises(CallError, match="cache_limit has no room for all datasets"):
        loaders.build(
            urls,
            cache=tmp_path / "cache",
            cache_limit=100_000,
            device="cpu",
            batch_size=4,
            transforms=TRANSFORMS,
        )
    with build(urls, cache=tmp_path / "large", cache_limit="1GiB") as loader:
        batches(loader, epochs=1)
    assert disk_usage(str(tmp_path / "large")) > 100_000


def test_masks_of_several_datasets_do_not_restart_the_fetcher(tmp_path, monkeypatch):
    urls = []
    for number in range(2):
        source = tmp_path / f"source {number}"
        for sample in range(12):
            (source / "images").mkdir(parents=True, exist_ok=True)
            photo(sample, 40, 30).save(source / "images" / f"{sample}.jpg")
            annotated.save(source / "masks" / f"{sample}.png", np.full((30, 40), sample, np.uint8))
        out = tmp_path / f"out {number}"
        convert_dataset(read_source(str(source)), str(out), Options(shard_samples=6), workers=1)
        urls.append(f"memory://bucket/{tmp_path.name}/masks {number}")
        for path in out.glob("[!.]*"):
            open_store(urls[-1]).put(path.name, path.read_bytes())
    plans: list[tuple[Fetcher, Upcoming]] = []
    follow = Fetcher.follow

    def record(self, number, upcoming):
        if not any(fetcher is self and known == upcoming for fetcher, known in plans):
            plans.append((self, upcoming))
        follow(self, number, upcoming)

    monkeypatch.setattr(Fetcher, "follow", record)
    options = {
        "batch_size": 4,
        "fields": ("image", "mask"),
        "transforms": [{"Resize": {"size": [16, 16]}}],
    }
    with build(urls, cache=tmp_path / "cache", framework="numpy", **options) as loader:
        assert len([*loader]) == 6
    assert len(plans) == 2, "each of the two fetchers follows one plan"
