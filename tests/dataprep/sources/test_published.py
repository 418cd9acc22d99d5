"""Published datasets: splits, classes and labels of each image, as torchvision's classes read them."""

from __future__ import annotations

import importlib
from pathlib import Path
from unittest import mock

import pytest
from helpers import exports, published
from helpers.sources import has_notice, read
from helpers.torchvision_oracle import import_torchvision

from manifests.errors import CallError, SourceError


@pytest.mark.parametrize("name", published.LAYOUTS)
def test_published_datasets(name, tmp_path):
    exports.check_content(read, published.LAYOUTS[name], tmp_path / "source")


# --- torchvision ----------------------------------------------------------------------------------


def _loaded(dataset):
    return [dataset[at] for at in range(len(dataset))]


def _caltech(dataset):
    folder = next(Path(dataset.root).glob("*_ObjectCategories"))
    rows = []
    for at, label in zip(dataset.index, dataset.y, strict=True):
        name = f"image_{at:04d}.jpg" if "101" in folder.name else f"{label + 1:03d}_{at:04d}.jpg"
        rows.append((folder / dataset.categories[label] / name, label))
    return rows


def _celeba(dataset):
    folder = Path(dataset.root, dataset.base_folder, "img_align_celeba")
    rows = []
    for name, labels in zip(dataset.filename, dataset.attr.tolist(), strict=True):
        rows.append((folder / name, [at for at, value in enumerate(labels) if value]))
    return rows


#: For each dataset: torchvision's class; the arguments for each split; and what returns the path
#: and the target of each image. A class with the argument `loader` returns the path as the image.
ORACLES = {
    "Food-101": ("Food101", {"train": {"split": "train"}, "test": {"split": "test"}}, _loaded),
    "Caltech-101": ("Caltech101", {"train": {}}, _caltech),
    "Caltech-256": ("Caltech256", {"train": {}}, _caltech),
    "SUN397": ("SUN397", {"train": {}}, _loaded),
    "EuroSAT": ("EuroSAT", {"train": {}}, _loaded),
    "DTD": ("DTD", {split: {"split": split} for split in ("train", "val", "test")}, _loaded),
    "GTSRB": (
        "GTSRB",
        {"train": {"split": "train"}, "test": {"split": "test"}},
        lambda dataset: dataset._samples,
    ),
    "Stanford Cars": (
        "StanfordCars",
        {"train": {"split": "train"}, "test": {"split": "test"}},
        _loaded,
    ),
    "Flowers 102": (
        "Flowers102",
        {split: {"split": split} for split in ("train", "val", "test")},
        _loaded,
    ),
    "Pets": (
        "OxfordIIITPet",
        {"train": {"split": "trainval"}, "test": {"split": "test"}},
        lambda dataset: zip(dataset._images, dataset._labels, strict=True),
    ),
    "FGVC-Aircraft": (
        "FGVCAircraft",
        {split: {"split": split} for split in ("train", "val", "test")},
        _loaded,
    ),
    "CelebA": (
        "CelebA",
        {"train": {"split": "train"}, "val": {"split": "valid"}, "test": {"split": "test"}},
        _celeba,
    ),
    "Places365": (
        "Places365",
        {
            "train": {"split": "train-standard", "small": True},
            "val": {"split": "val", "small": True},
        },
        _loaded,
    ),
}


@pytest.fixture(scope="module")
def datasets():
    import_torchvision()
    return importlib.import_module("torchvision.datasets")


@pytest.mark.parametrize("name", ORACLES)
def test_torchvision_reads_the_same(name, datasets, tmp_path):
    published.LAYOUTS[name](tmp_path)
    source = read(tmp_path)
    class_name, splits, rows_of = ORACLES[name]
    oracle = getattr(datasets, class_name)
    expected = {}
    for split, arguments in splits.items():
        if rows_of is _loaded:
            arguments["loader"] = str
        # The checksums are of the whole files.
        with mock.patch.object(oracle, "_check_integrity", return_value=True, create=True):
            rows = rows_of(oracle(str(tmp_path), **arguments))
        for path, target in rows:
            expected[str(Path(path).relative_to(source.root))] = split, target
    labels = source.label.tolist()
    if source.label_type == "multi-label":
        labels = source.extra["labels"].to_pylist()
    elif name == "Flowers 102":  # this set has 3 of the 102 classes, whose names are their numbers
        labels = [int(source.classes[label]) - 1 for label in labels]
    splits_of = [source.splits[split] for split in source.split]
    found = dict(zip(source.path.to_pylist(), zip(splits_of, labels, strict=True), strict=True))
    assert found == expected


# --- other labels and splits ----------------------------------------------------------------------


def _labels(source):
    return [source.classes[label] for label in source.label]


def test_levels_of_aircraft(tmp_path):
    published.make_aircraft(tmp_path)
    source = read(tmp_path, label_column="manufacturer")
    assert source.classes == ("Boeing", "McDonnell Douglas", "Airbus")
    assert _labels(source)[:2] == ["Airbus", "Airbus"]
    assert source.extra.column_names == ["variant", "family"]
    with pytest.raises(CallError, match=r"--label-column maker: .* has no such column"):
        read(tmp_path, label_column="maker")


def test_two_classes_of_one_name(tmp_path):
    published.make_aircraft(tmp_path)
    _appended(next(tmp_path.rglob("variants.txt")), "707-320\n")
    with pytest.raises(SourceError, match="two classes have the same name"):
        read(tmp_path)


def test_identities_of_celeba(tmp_path):
    published.make_celeba(tmp_path)
    source = read(tmp_path, label_column="identity")
    assert source.classes == ("9", "10", "2880", "2937")
    assert _labels(source) == ["2880", "2937", "2880", "10", "9", "9", "2937"]
    assert has_notice(read(tmp_path), "--label-column identity")


def test_species_and_masks_of_pets(tmp_path):
    published.make_pets(tmp_path)
    source = read(tmp_path, label_column="species")
    assert source.classes == ("cat", "dog")
    assert _labels(source)[:4] == ["cat", "cat", "cat", "cat"]
    masks = read(tmp_path / "oxford-iiit-pet", label_type="mask")
    assert masks.label_type == "mask"


def test_partitions(tmp_path):
    published.make_dtd(tmp_path / "dtd")
    source = read(tmp_path / "dtd", split_column="split3")
    assert source.splits == ("train", "val", "test")
    rows = dict(zip(source.path.to_pylist(), source.split.tolist(), strict=True))
    assert rows["images/banded/banded_0009.jpg"] == 0
    published.make_sun397_partitions(tmp_path / "sun")
    source = read(tmp_path / "sun", split_column="split10")
    assert "a/abbey/sun_0abc.jpg" not in source.path.to_pylist()
    with pytest.raises(CallError, match="split1 to split10"):
        read(tmp_path / "sun", split_column="split11")


def test_all_textures_of_an_image(tmp_path):
    published.make_dtd(tmp_path)
    source = read(tmp_path, label_column="joint", label_separator=" ")
    assert source.label_type == "multi-label"
    assert source.extra["labels"][0].as_py() == [0, 1]


def test_without_labels_the_splits_stay(tmp_path):
    published.make_cub(tmp_path)
    source = read(tmp_path, label_type="none")
    assert (source.label_type, source.splits) == ("none", ("train", "test"))


#: The box of the first image of datasets that have one for each image, from their READMEs: the
#: first pixel is 1 in Cars and Aircraft.
BOXES = {
    "CUB-200-2011": [60, 27, 85, 61],
    "GTSRB": [5, 6, 24, 25],
    "GTSRB of Kaggle": [5, 5, 22, 20],
    "Stanford Cars": [38, 115, 569, 375],
    "Stanford Cars in one folder": [38, 115, 569, 375],
    "FGVC-Aircraft": [2, 143, 998, 431],
}


@pytest.mark.parametrize("name", BOXES)
def test_boxes_of_images(name, tmp_path):
    published.LAYOUTS[name](tmp_path)
    classes = read(tmp_path)
    assert has_notice(classes, "has boxes; --label-type boxes reads them")
    source = read(tmp_path, label_type="boxes")
    assert source.extra["boxes"][0].as_py() == [BOXES[name]]
    assert source.extra["box_labels"].to_pylist() == [[label] for label in classes.label.tolist()]
    assert (source.classes, source.path) == (classes.classes, classes.path)


# --- refused --------------------------------------------------------------------------------------

#: Files without which a dataset is refused by its name.
PARTS = {
    "CUB-200-2011": [
        *("images.txt", "image_class_labels.txt", "classes.txt", "train_test_split.txt")
    ],
    "Food-101": ["meta/train.txt", "meta/test.txt"],
    "Tiny ImageNet": ["val/val_annotations.txt"],
    "EuroSAT of Kaggle": ["validation.csv"],
    "DTD": ["labels/val1.txt"],
    "Stanford Cars": ["devkit/cars_meta.mat", "devkit/cars_train_annos.mat"],
    "GTSRB of Kaggle": ["Train.csv", "Test.csv"],
    "Flowers 102": ["imagelabels.mat", "setid.mat"],
    "Pets": ["annotations/trainval.txt", "annotations/test.txt"],
    "FGVC-Aircraft": ["images_variant_test.txt", "variants.txt"],
    "CelebA": ["list_attr_celeba.txt", "list_eval_partition.txt"],
}


@pytest.mark.parametrize(
    ("name", "part"), [(name, part) for name, parts in PARTS.items() for part in parts]
)
def test_a_part_is_missing(name, part, tmp_path):
    published.LAYOUTS[name](tmp_path)
    next(tmp_path.rglob(part)).unlink()
    with pytest.raises(SourceError, match=f"this looks like .*{part}.* does not exist. Hint: "):
        read(tmp_path)
    assert len(read(tmp_path, label_type="none"))


def _appended(path, text):
    path.write_text(path.read_text() + text)


DAMAGES = {
    "an image is missing": (
        lambda root: next(root.rglob("Bird_0003*")).unlink(),
        r"images.txt, line 4: path .*Bird_0003_10.jpg' does not exist \(1 in total\)",
    ),
    "an image twice": (
        lambda root: [
            _appended(root / "images.txt", "9 002.Laysan_Albatross/Bird_0003_10.jpg\n"),
            _appended(root / "image_class_labels.txt", "9 1\n"),
            _appended(root / "train_test_split.txt", "9 1\n"),
        ],
        "images.txt, line 7: path .*Bird_0003_10.jpg' is listed twice",
    ),
    "an id without a class": (
        lambda root: [
            _appended(root / "images.txt", "9 x.jpg\n"),
            _appended(root / "train_test_split.txt", "9 1\n"),
        ],
        "images.txt, line 7: id '9' is not in image_class_labels.txt",
    ),
    "an id twice": (
        lambda root: _appended(root / "image_class_labels.txt", "3 1\n"),
        "image_class_labels.txt, line 7: id '3' is listed twice",
    ),
    "an unknown class": (
        lambda root: (root / "image_class_labels.txt").write_text("".join(
            f"{at + 1} 7\n" for at in range(6)
        )),
        "number '7' is not in classes.txt",
    ),
    "another split": (
        lambda root: (root / "train_test_split.txt").write_text("".join(
            f"{at + 1} 2\n" for at in range(6)
        )),
        "train_test_split.txt, line 1: split '2' is not 1 or 0",
    ),
    "a line without a value": (
        lambda root: _appended(root / "train_test_split.txt", "\n8\n"),
        "train_test_split.txt, line 8: the line does not have the form `id split`",
    ),
    "an empty file": (
        lambda root: (root / "train_test_split.txt").write_text("\n"),
        "images.txt, line 1: id '1' is not in train_test_split.txt",
    ),
    "no images": (
        lambda root: (root / "images.txt").write_text(""),
        "the source contains no images",
    ),
    "not UTF-8": (
        lambda root: (root / "classes.txt").write_bytes(b"1 \xff\n"),
        "classes.txt, byte 2: the file is not valid UTF-8",
    ),
    "classes of one name": (
        lambda root: (root / "classes.txt").write_text("1 a\n2 b\n3 a\n"),
        "has 3 numbers of classes, but 2 names",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files(name, tmp_path):
    published.make_cub(tmp_path)
    damage, message = DAMAGES[name]
    damage(tmp_path / "CUB_200_2011")
    with pytest.raises(SourceError, match=message):
        read(tmp_path)


@pytest.mark.parametrize("name", ["Flowers 102", "Stanford Cars", "Stanford Cars in one folder"])
def test_damaged_mat_files(name, tmp_path):
    published.LAYOUTS[name](tmp_path)
    for path in [*tmp_path.rglob("*.mat")]:
        content = path.read_bytes()
        for damaged in (content[:150], b"x" * 200, content[:-40]):
            path.write_bytes(damaged)
            with pytest.raises(SourceError, match=f"{path.name}: the file is damaged"):
                read(tmp_path)
        path.write_bytes(content)


def test_an_image_of_a_mat_file_is_missing(tmp_path):
    published.make_flowers(tmp_path)
    next(tmp_path.rglob("image_00003.jpg")).unlink()
    with pytest.raises(SourceError, match=r"setid.mat: id '3' has no image \(1 in total\)"):
        read(tmp_path)


def test_labels_of_another_type_are_not_invented(tmp_path):
    published.make_cub(tmp_path)
    with pytest.raises((CallError, SourceError)):
        read(tmp_path, label_type="mask")
    next(tmp_path.rglob("bounding_boxes.txt")).unlink()
    with pytest.raises(SourceError, match=r"bounding_boxes\.txt does not exist"):
        read(tmp_path, label_type="boxes")
