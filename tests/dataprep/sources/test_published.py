"""Published datasets: splits, classes and labels of each image, as torchvision's classes read them."""

from __future__ import annotations

import importlib
from pathlib import Path
from unittest import mock

import pytest
from helpers import published
from helpers.rows import evaluate, read_named, read_rows
from helpers.sources import has_notice, read, refused
from helpers.torchvision_oracle import import_torchvision

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
TRAIN, VAL, TEST = ({"split": split} for split in ("train", "val", "test"))
SMALL = {"small": True}
ORACLES = read_named(__file__, "torchvision", globals())


@pytest.mark.parametrize("name", ORACLES)
def test_torchvision_reads_the_same(name, tmp_path):
    import_torchvision()
    datasets = importlib.import_module("torchvision.datasets")
    published.LAYOUTS[name](tmp_path)
    source = read(tmp_path)
    class_name, splits, rows_of = ORACLES[name]
    oracle = getattr(datasets, class_name)
    expected, found = {}, {}
    for split, arguments in splits.items():
        loader = {"loader": str} if rows_of is _loaded else {}
        # The checksums are of the whole files.
        with mock.patch.object(oracle, "_check_integrity", return_value=True, create=True):
            rows = rows_of(oracle(str(tmp_path), **arguments, **loader))
        for path, target in rows:
            expected[str(Path(path).relative_to(source.root))] = split, target
    labels = source.label.tolist()
    if source.label_type == "multi-label":
        labels = source.extra["labels"].to_pylist()
    elif name == "Flowers 102":  # this set has 3 of the 102 classes, whose names are their numbers
        labels = [int(source.classes[label]) - 1 for label in labels]
    for path, split, label in zip(source.path.to_pylist(), source.split, labels, strict=True):
        found[path] = source.splits[split], label
    assert found == expected


# --- other labels and splits ----------------------------------------------------------------------


def test_levels_partitions_and_splits_without_labels(tmp_path):
    planes, textures, scenes, birds = (tmp_path / name for name in "abcd")
    published.make_aircraft(planes)
    source = read(planes, label_column="manufacturer")
    assert source.classes == ("Boeing", "McDonnell Douglas", "Airbus")
    assert source.label[:2].tolist() == [2, 2]
    assert source.extra.column_names == ["variant", "family"]
    refused(planes, "--label-column maker: .* has no such column", label_column="maker")
    published.make_dtd(textures)
    source = read(textures, split_column="split3")
    assert source.splits == ("train", "val", "test")
    assert source.split[source.path.to_pylist().index("images/banded/banded_0009.jpg")] == 0
    published.make_sun397_partitions(scenes)
    source = read(scenes, split_column="split10")
    assert "a/abbey/sun_0abc.jpg" not in source.path.to_pylist()
    refused(scenes, "split1 to split10", split_column="split11")
    published.make_cub(birds)
    source = read(birds, label_type="none")
    assert (source.label_type, source.splits) == ("none", ("train", "test"))


#: The box of the first image of datasets that have one for each image, from their READMEs: the
#: first pixel is 1 in Cars and Aircraft.
BOXES = read_named(__file__, "boxes")


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


@pytest.mark.parametrize(("name", "part"), read_rows(__file__, "parts"))
def test_a_part_is_missing(name, part, tmp_path):
    published.LAYOUTS[name](tmp_path)
    next(tmp_path.rglob(part)).unlink()
    refused(tmp_path, f"this looks like .*{part}.* does not exist. Hint: ")
    assert len(read(tmp_path, label_type="none"))


def _ids(value):
    return "".join(f"{number} {value}\n" for number in range(1, 7))


IMAGES, LABELS, SPLITS = "images.txt", "image_class_labels.txt", "train_test_split.txt"


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "damages"))
def test_damaged_files(row, message, tmp_path):
    changes = evaluate(row, globals())
    published.make_cub(tmp_path)
    for name, text in changes.items():
        path = tmp_path / "CUB_200_2011" / name
        if text is None:
            path.unlink()
        elif isinstance(text, bytes):
            path.write_bytes(text)
        else:
            path.write_text(path.read_text() + text[1:] if text.startswith("+") else text)
    refused(tmp_path, message)


@pytest.mark.parametrize("name", ["Flowers 102", "Stanford Cars", "Stanford Cars in one folder"])
def test_damaged_mat_files(name, tmp_path):
    published.LAYOUTS[name](tmp_path)
    for path in [*tmp_path.rglob("*.mat")]:
        content = path.read_bytes()
        for damaged in (content[:150], b"x" * 200, content[:-40]):
            path.write_bytes(damaged)
            refused(tmp_path, f"{path.name}: the file is damaged")
        path.write_bytes(content)


def test_parts_that_do_not_fit(tmp_path):
    flowers, planes, birds = tmp_path / "a", tmp_path / "b", tmp_path / "c"
    published.make_flowers(flowers)
    next(flowers.rglob("image_00003.jpg")).unlink()
    refused(flowers, r"setid.mat: id '3' has no image \(1 in total\)")
    published.make_aircraft(planes)
    variants = next(planes.rglob("variants.txt"))
    variants.write_text(f"{variants.read_text()}707-320\n")
    refused(planes, "two classes have the same name")
    # Labels of another type are not invented.
    published.make_cub(birds)
    refused(birds, "mask", label_type="mask")
    next(birds.rglob("bounding_boxes.txt")).unlink()
    refused(birds, r"bounding_boxes\.txt does not exist", label_type="boxes")
