"""Several datasets as one: classes are matched by name, and each dataset has its share of an epoch."""

from collections import Counter

import numpy as np
import pytest
from helpers import loading
from helpers.damaged import change_manifest
from helpers.loading import column, state_after
from helpers.pictures import encode

from dataprep.options import Raw
from manifests.errors import CallError

#: Gray value of the images of each class, so that an image tells its class.
GRAY = {"ant": 20, "bee": 80, "cat": 140, "dog": 200}


@pytest.fixture
def make(make_dataset):
    def make(name, *classes, count=1, fmt="tfrecord"):
        samples = []
        for label, each in enumerate(classes):
            pixels = np.full((32, 32, 3), GRAY.get(each, 9), np.uint8)
            samples += [("png", encode(pixels, "png"), label)] * count
        folder = make_dataset(fmt, samples, name=name, shards=1)
        return change_manifest(folder, classes=classes)

    return make


@pytest.fixture
def datasets(make):
    """Two datasets: 12 images of ant, bee and cat as TFRecord; 6 of cat, dog and bee as WebDataset."""
    return [
        make("first", "ant", "bee", "cat", count=4),
        make("second", "cat", "dog", "bee", count=2, fmt="webdataset"),
    ]


def build(datasets, **options):
    defaults = {"batch_size": 3, "dtype": "uint8", "last_batch": "partial"}
    defaults["transforms"] = [{"ResizeImage": {"size": [32, 32]}}]
    return loading.build(datasets, **{**defaults, **options})


def read(loader):
    """Return the class of each sample of an epoch, as its image shows it, and check that it is the label's."""
    names = []
    for images, labels in loader:
        for image, label in zip(images.numpy(), labels.tolist(), strict=True):
            name = loader.classes[label]
            assert abs(float(image.mean()) - GRAY[name]) < 2
            names.append(name)
    return names


@pytest.mark.parametrize("shuffle", [True, False])
def test_classes_are_matched_by_name(datasets, shuffle):
    with build(datasets, shuffle=shuffle) as loader, build(datasets[0], shuffle=False) as first:
        assert loader.classes == ("ant", "bee", "cat", "dog")
        assert f"{datasets[0]} + {datasets[1]}: 18 samples" in loader.explain()
        for _ in range(2):
            names = read(loader)
            assert Counter(names) == {"ant": 4, "bee": 6, "cat": 6, "dog": 2}
            assert shuffle or names[:12] == read(first)
    with build(datasets[::-1], shuffle=False) as reversed_list:
        assert reversed_list.classes == ("cat", "dog", "bee", "ant")


def test_a_checkpoint_resumes(datasets):
    options = {"mix": [0.5, 0.5], "fields": ("index",)}
    with build(datasets, **options) as whole, build(datasets, **options) as loader:
        state = state_after(loader, 1)
        loader.load_state_dict(state)
        assert column(loader) == column(whole)[1:]
    for others, mix, changed in (
        (datasets, [0.6, 0.4], "sampler="),
        (datasets[::-1], [1, 1], "dataset="),
    ):
        loader = build(others, mix=mix, fields=("index",))
        with loader, pytest.raises(CallError, match=changed):
            loader.load_state_dict(state)


def test_datasets_that_do_not_join_are_named(make, datasets, make_photos, tmp_path):
    raw = loading.convert(make_photos(tmp_path / "photos", 3), tmp_path / "raw", raw=Raw(32))
    message = r"stores encoded images, but .* stores raw pixels of 32 x 32"
    with pytest.raises(CallError, match=message):
        build([datasets[0], raw])
    names, numbers, more = make("a", "cat", "dog"), make("b", "0", "1"), make("c", "1", "2")
    for both, first in (([names, numbers], numbers), ([more, numbers, names], more)):
        with pytest.raises(CallError) as error:
            build(both)
        assert f"the classes of {first} are numbers, such as " in str(error.value)
        assert f"the classes of {names} have names, such as cat" in str(error.value)
        assert "--classes FILE" in str(error.value)
    with build([numbers, more], batch_size=2) as loader:
        assert loader.classes == ("0", "1", "2")
    with pytest.raises(CallError, match=f"not a column of the sample tables of {datasets[0]}"):
        build(datasets, fields=("nothing",))


@pytest.mark.parametrize("mixing", ["", ", batch_transform_ops: [{MixupOperator: {alpha: 0.2}}]"])
def test_a_config_with_more_classes_than_the_dataset_is_refused(make, tmp_path, mixing):
    folder, config = make("two", "cat", "dog"), tmp_path / "config.yaml"
    for classes in (2, 3):
        config.write_text(
            f"Arch: {{class_num: {classes}}}\n"
            "DataLoader: {Train: {dataset: {transform_ops: [{ResizeImage: {size: 8}}]"
            f"{mixing}}}, sampler: {{batch_size: 2}}}}}}\n"
        )
        options = {"transforms": config, "batch_size": None, "dtype": "float32"}
        if classes == 2:
            build(folder, **options).close()
            continue
        with pytest.raises(CallError, match=f"class_num to 3, but {folder} has 2 classes"):
            build(folder, **options)
