"""Several datasets as one: classes are matched by name, and each dataset has its share of an epoch."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.pictures import encode

import loaders
from manifests.errors import CallError
from manifests.store import MANIFEST_NAME, manifest_bytes, read_manifest

#: Gray value of the images of each class, so that an image tells its class.
GRAY = {"ant": 20, "bee": 80, "cat": 140, "dog": 200}


@pytest.fixture(scope="module")
def datasets(tmp_path_factory, dataprep):
    """Two datasets: 12 images of ant, bee and cat as TFRecord.

    6 images of cat, dog and bee as WebDataset.
    """
    root = tmp_path_factory.mktemp("datasets")
    folders = []
    for name, classes, count, fmt in (
        ("first", ("ant", "bee", "cat"), 4, "tfrecord"),
        ("second", ("cat", "dog", "bee"), 2, "webdataset"),
    ):
        for class_name in classes:
            for number in range(count):
                path = root / f"{name} images" / class_name / f"{number}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(encode(np.full((32, 32, 3), GRAY[class_name], np.uint8), "png"))
        out = root / name
        arguments = ("--fmt", fmt, "--samples-per-shard", 5)
        assert (
            dataprep(
                "convert", "--src", root / f"{name} images", "--out", out, *arguments
            ).returncode
            == 0
        )
        folders.append(out)
    return folders


def build(datasets, **options):
    defaults = {
        "batch_size": 3,
        "device": "cpu",
        "transforms": [{"ResizeImage": {"size": [32, 32]}}],
        "dtype": "uint8",
    }
    return loaders.build(datasets, **{**defaults, "last_batch": "partial", **options})


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
    with build(datasets, shuffle=shuffle) as loader:
        assert loader.classes == ("ant", "bee", "cat", "dog")
        assert loader.samples == 18
        for _ in range(2):
            assert Counter(read(loader)) == {"ant": 4, "bee": 6, "cat": 6, "dog": 2}


def test_the_stored_order_is_that_of_the_list(datasets):
    with build(datasets, shuffle=False) as both, build(datasets[0], shuffle=False) as first:
        assert read(both)[:12] == read(first)
    with build(datasets[::-1], shuffle=False) as reversed_list:
        assert reversed_list.classes == ("bee", "cat", "dog", "ant")


def test_mix_gives_each_dataset_its_share(datasets):
    with build(datasets, mix=[1, 3], fields=("image", "label")) as loader:
        counts = Counter(name for _ in range(20) for name in read(loader))
    # 18 samples in an epoch: 4.5 of the first dataset and 13.5 of the second, whose classes are
    # equally frequent.
    assert sum(counts.values()) == 360
    assert abs(counts["dog"] - 90) <= 20
    assert abs(counts["ant"] - 30) <= 20


def test_a_sampler_sees_the_joined_labels(datasets):
    with build(
        datasets, batch_size=4, sampler=loaders.PKSampler(2, 2), last_batch="drop"
    ) as loader:
        for _, labels in loader:
            assert len(set(labels.tolist())) == 2
            assert labels[0] == labels[1]
            assert labels[2] == labels[3]


def test_fields_come_from_both(datasets):
    with build(datasets, shuffle=False, fields=("key", "index", "source")) as loader:
        batches = list(loader)
    assert np.concatenate([index for _, index, _ in batches]).tolist() == list(range(18))
    assert {source.split("/")[0] for _, _, sources in batches for source in sources} == set(GRAY)


def test_a_checkpoint_resumes(datasets):
    with build(datasets, mix=[0.5, 0.5], fields=("index",)) as loader:
        iterator = iter(loader)
        next(iterator)
        state = loader.state_dict()
        expected = [index.tolist() for (index,) in iterator]
    with build(datasets, mix=[0.5, 0.5], fields=("index",)) as loader:
        loader.load_state_dict(state)
        assert [index.tolist() for (index,) in loader] == expected
    with (
        build(datasets, mix=[0.6, 0.4], fields=("index",)) as loader,
        pytest.raises(CallError, match="sampler="),
    ):
        loader.load_state_dict(state)
    with (
        build(datasets[::-1], mix=[0.5, 0.5], fields=("index",)) as loader,
        pytest.raises(CallError, match="dataset="),
    ):
        loader.load_state_dict(state)


def test_explain_names_both(datasets):
    with build(datasets) as loader:
        assert f"{datasets[0]} + {datasets[1]}: 18 samples" in loader.explain()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mix": [1]}, "one positive number for each of 2 datasets"),
        ({"mix": [1, -1]}, "one positive number"),
        ({"mix": [1, float("nan")]}, "one positive number"),
        ({"mix": "ab"}, "one positive number"),
        ({"mix": [1, 1], "shuffle": True}, "cannot be combined with sampler or shuffle"),
        ({"mix": [1, 1], "sampler": loaders.ShuffledSampler()}, "cannot be combined"),
    ],
)
def test_wrong_mix(datasets, options, message):
    with pytest.raises(CallError, match=message):
        build(datasets, **options)


def test_lists_that_cannot_be_joined(datasets, dataprep, tmp_path):
    with pytest.raises(CallError, match="twice"):
        build([datasets[0], str(datasets[0])])
    with pytest.raises(CallError, match="empty list"):
        build([])
    with pytest.raises(CallError, match="dataset names one"):
        build(datasets[0], mix=[1])
    source = datasets[0].parent / "first images"
    raw = tmp_path / "raw"
    assert (
        dataprep(
            "convert", "--src", source, "--out", raw, "--store", "raw", "--raw-size", 32
        ).returncode
        == 0
    )
    with pytest.raises(
        CallError, match=r"stores encoded images, but .* stores raw pixels of 32 x 32"
    ):
        build([datasets[0], raw])


def renamed(folder, *classes):
    """Give a dataset other class names."""
    manifest = replace(read_manifest(folder), classes=classes)
    (folder / MANIFEST_NAME).write_bytes(manifest_bytes(manifest))
    return folder


def test_numbers_and_names_do_not_join(make_dataset):
    files = [("png", encode(np.full((32, 32, 3), 9, np.uint8), "png"), label) for label in (0, 1)]
    named, numbers, more = (make_dataset("tfrecord", files, name=name) for name in ("a", "b", "c"))
    renamed(named, "cat", "dog")
    renamed(numbers, "0", "1")
    renamed(more, "1", "2")
    for both in ([named, numbers], [more, numbers, named]):
        with pytest.raises(CallError) as error:
            build(both)
        first = numbers if both[0] is named else more
        assert f"the classes of {first} are numbers, such as " in str(error.value)
        assert f"the classes of {named} have names, such as cat" in str(error.value)
        assert "--classes FILE" in str(error.value)
    with build([numbers, more]) as loader:
        assert loader.classes == ("0", "1", "2")


def test_a_missing_column_names_the_dataset(datasets, make_dataset):
    files = [("png", encode(np.full((32, 32, 3), 9, np.uint8), "png"), 0)] * 6
    other = renamed(make_dataset("tfrecord", files, name="without"), "cat")
    for given, folder in (([datasets[0], other], datasets[0]), ([other], other)):
        with pytest.raises(CallError, match=f"not a column of the sample tables of {folder}"):
            build(given if len(given) > 1 else given[0], fields=("nothing",))


def test_a_config_with_more_classes_than_the_dataset_is_refused(make_dataset, tmp_path):
    files = [("png", encode(np.full((32, 32, 3), 9, np.uint8), "png"), label) for label in (0, 1)]
    folder = make_dataset("tfrecord", files)
    for mixing in ("", ", batch_transform_ops: [{MixupOperator: {alpha: 0.2}}]"):
        for classes in (2, 3):
            config = tmp_path / "config.yaml"
            config.write_text(
                f"Arch: {{class_num: {classes}}}\n"
                "DataLoader: {Train: {dataset: {transform_ops: [{ResizeImage: {size: 8}}]"
                f"{mixing}}}, sampler: {{batch_size: 2}}}}}}\n"
            )
            if classes == 2:
                build(folder, transforms=config, batch_size=None, dtype="float32").close()
                continue
            with pytest.raises(CallError, match=f"class_num to 3, but {folder} has 2 classes"):
                build(folder, transforms=config, batch_size=None, dtype="float32")
