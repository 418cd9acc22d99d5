"""ImageNet: the original archives with the development kit, and the layout of Kaggle."""

from __future__ import annotations

import gzip
import io
import random
import shutil
from contextlib import suppress

import numpy as np
import pytest
import scipy.io
from helpers.make_sources import IMAGES, imagenet_tars, meta_mat, tar_of
from helpers.rows import evaluate, read_rows
from helpers.sources import has_notice, read, refused, rows

from dataprep.sources import mat_file

KIT = "ILSVRC2012_devkit_t12.tar.gz"


@pytest.fixture
def made(tmp_path):
    return imagenet_tars(tmp_path / "imagenet")


def test_the_ground_truth_is_not_the_index_of_sorted_wnids(made):
    source = read(made.src)
    assert source.layout == "ImageNet in its original archives"
    labels = dict(zip(source.path.to_pylist(), source.label.tolist(), strict=True))
    assert labels == {name: image.label for name, image in zip(made.names, IMAGES, strict=True)}
    # The development kit may be unpacked.
    shutil.unpack_archive(made.src / KIT, made.src, filter="data")
    (made.src / KIT).unlink()
    assert rows(read(made.src)) == rows(source)


def test_val_alone_and_train_alone(made):
    val = read(made.src / "ILSVRC2012_img_val.tar")
    assert (val.splits, val.classes) == (("val",), made.classes)
    train = read(made.src / "ILSVRC2012_img_train.tar")
    assert (train.splits, train.classes) == (("train",), made.classes)
    (made.src / "ILSVRC2012_img_val.tar").unlink()
    (made.src / "ILSVRC2012_img_test_v10102019.tar").write_bytes(b"")
    assert has_notice(read(made.src), "skipped ILSVRC2012_img_test_v10102019.tar: it has no labels")


def devkit(**files):
    names = {"meta": "meta.mat", "truth": "ILSVRC2012_validation_ground_truth.txt"}
    members = [(f"ILSVRC2012_devkit_t12/data/{names[name]}", data) for name, data in files.items()]
    return gzip.compress(tar_of(members))


def meta_of(*pairs):
    synsets = np.zeros((len(pairs), 1), [("ILSVRC2012_ID", object), ("WNID", object)])
    for row, pair in enumerate(pairs):
        synsets[row, 0] = pair
    out = io.BytesIO()
    scipy.io.savemat(out, {"synsets": synsets})
    return out.getvalue()


TRUTH = b"1\n" * 6


@pytest.mark.parametrize(("row", "message"), read_rows(__file__, "kits"))
def test_a_devkit_that_does_not_fit(row, message, made):
    make = evaluate(row, globals())
    content = make()
    (made.src / KIT).unlink()
    if content is not None:
        (made.src / KIT).write_bytes(content)
    refused(made.src, message)


def test_a_matlab_file_of_any_content():
    content, rng = meta_mat(), random.Random(5)
    for _ in range(300):
        damaged = bytearray(content)
        for _ in range(rng.choice((1, 3, 20))):
            damaged[rng.randrange(len(content))] = rng.randrange(256)
        length = rng.choice((len(content), rng.randrange(len(content))))
        with suppress(ValueError):
            mat_file.read_mat(bytes(damaged[:length]))


def test_a_matlab_file_that_unpacks_to_gigabytes_is_refused(monkeypatch):
    monkeypatch.setattr(mat_file, "MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1,000 bytes after decompression"):
        mat_file.read_mat(meta_mat())


# --- Kaggle ---------------------------------------------------------------------------------------

KAGGLE = "ILSVRC/Data/CLS-LOC"
SOLUTION, CLASSES = "LOC_val_solution.csv", "LOC_synset_mapping.txt"
FIRST, SECOND = (f"ILSVRC2012_val_0000000{number}" for number in (1, 2))
LABEL = f"ImageId,PredictionString\n{FIRST},n02 1 2 3 4\n"
PATHS = [*("train/n01/1.JPEG", "train/n02/1.JPEG", "test/ILSVRC2012_test_00000001.JPEG")]
PATHS += [f"val/{FIRST}.JPEG", f"val/{SECOND}.JPEG"]
FILES = {
    **{f"{KAGGLE}/{path}": b"x" for path in PATHS},
    SOLUTION: f"{LABEL}{SECOND},n01 1 2 3 4 n01 5 6 7 8\n",
    f"ILSVRC/Annotations/CLS-LOC/val/{FIRST}.xml": "<annotation/>",
    CLASSES: "n01 tench, Tinca tinca\nn02 goldfish\nn03 absent\n",
}


@pytest.mark.parametrize("top", ["", "ILSVRC", KAGGLE, KAGGLE + "/"])
def test_flat_val_of_kaggle_gets_its_labels_from_the_csv(top, make_tree):
    source = read(f"{make_tree(FILES)}/{top}")
    assert (source.splits, source.classes) == (("train", "val"), ("n01", "n02", "n03"))
    assert rows(source) == [
        ("train", "train/n01/1.JPEG", "n01"),
        ("train", "train/n02/1.JPEG", "n02"),
        ("val", "val/ILSVRC2012_val_00000001.JPEG", "n02"),
        ("val", "val/ILSVRC2012_val_00000002.JPEG", "n01"),
    ]
    assert has_notice(source, "skipped test/", "no labels")
    assert source.size.tolist() == [1] * 4


@pytest.mark.parametrize(("changes", "message"), read_rows(__file__, "kaggles"))
def test_imagenet_of_kaggle_names_file_and_line(changes, message, make_tree):
    changed = {**FILES, **evaluate(changes, globals())}
    root = make_tree({name: text for name, text in changed.items() if text is not None})
    assert len(str(refused(root, message))) < 400 + len(str(root))


def test_sorted_val_of_kaggle_and_lists(make_tree):
    names = [f"{split}/{wnid}/1.JPEG" for split in ("train", "val") for wnid in ("n01", "n02")]
    root = make_tree([f"{KAGGLE}/{name}" for name in names])
    source = read(root)
    assert source.layout == "ImageFolder with train and val"
    assert [row[1] for row in rows(source)] == names
    (root / KAGGLE / "train_list.txt").write_text("train/n01/1.JPEG 0\n")
    assert read(root).layout == "list file"
    assert len(read(root, image_root=str(root / KAGGLE))) == 1
