"""What lies in folders, lists and tables, as a user lays them out; and what is wrong with it, by file and line."""

from __future__ import annotations

import builtins
import os
import random
import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dataprep.sources import UNREADABLE, SourceOptions, read_source
from dataprep.sources.columns import MAX_LABEL
from dataprep.sources.folders import IMAGE_SUFFIXES
from manifests.errors import CallError, DatasetError, SourceError

KAGGLE = "ILSVRC/Data/CLS-LOC"


def read(src, **options):
    return read_source(str(src), SourceOptions(**options))


def rows(source):
    """Split, path and class name of every sample, in order."""
    return [
        (source.splits[split], path, source.classes[label])
        for split, path, label in zip(source.split, source.path.to_pylist(), source.label, strict=True)
    ]


def noticed(source, *words):
    return any(all(word in notice for word in words) for notice in source.notices)


# --- ImageFolder --------------------------------------------------------------------------------


def test_image_folder(make_tree):
    names = ["b/2.jpg", "b/10.jpg", "b/1.PNG", "a/deep/er/x.webp", "a/y.jpeg", "ä ö/z.jpg"]
    source = read(make_tree(dict.fromkeys(names, b"four")))
    assert source.classes == ("a", "b", "ä ö")
    assert source.splits == ("train",)
    assert rows(source) == [
        ("train", "a/deep/er/x.webp", "a"),
        ("train", "a/y.jpeg", "a"),
        ("train", "b/1.PNG", "b"),
        ("train", "b/10.jpg", "b"),
        ("train", "b/2.jpg", "b"),
        ("train", "ä ö/z.jpg", "ä ö"),
    ]
    assert source.size.tolist() == [4] * 6
    assert source.bytes == 24
    assert (source.label.dtype, source.split.dtype, source.size.dtype) == (np.int32, np.int8, np.int64)
    assert source.notices == ()
    assert source.rejected == ()


@pytest.mark.parametrize(
    "name", ["a b.jpg", "a\nb.jpg", "'\".jpg", "a,b;c.jpg", "日本.jpg", "%41\\.jpg", "-rf.jpg", "a.b.c.jpg"]
)
def test_odd_file_names(make_tree, name):
    root = make_tree([f"{name}.d/{name}"])
    assert rows(read(root)) == [("train", f"{name}.d/{name}", f"{name}.d")]


@pytest.mark.parametrize("suffix", sorted(IMAGE_SUFFIXES))
def test_every_image_suffix_in_any_case(make_tree, suffix):
    assert len(read(make_tree([f"c/1{suffix}", f"c/2{suffix.upper()}"]))) == 2


def test_what_is_left_out_is_said(make_tree):
    root = make_tree(["a/1.jpg", "a/.2.jpg", "a/.DS_Store", "a/notes.txt", "a/README", "a/x.txt", ".git/a.jpg"])
    source = read(root)
    assert source.path.to_pylist() == ["a/1.jpg"]
    assert source.classes == ("a",)
    for words in ("hidden files 2", ".txt 2", "no extension 1"):
        assert noticed(source, "left out", words)


@pytest.mark.parametrize("stray", ["stray.jpg", "train/stray.jpg"])
def test_an_image_in_no_class_is_said(make_tree, stray):
    root = make_tree([stray, *(["train/a/1.jpg", "val/a/2.jpg"] if "/" in stray else ["a/1.jpg", "b/1.jpg"])])
    source = read(root)
    assert stray not in source.path.to_pylist()
    assert noticed(source, "left out")


def test_a_name_that_is_not_utf8_is_rejected_and_told(make_tree):
    root = make_tree(["a/1.jpg"])
    with open(os.path.join(os.fsencode(root), b"a/caf\xe9.jpg"), "wb"):
        pass
    source = read(root)
    assert source.path.to_pylist() == ["a/1.jpg"]
    assert [(row["source"], row["reason"]) for row in source.rejected] == [("a/caf\\xe9.jpg", "bad-name")]


def test_a_class_whose_name_is_not_utf8(make_tree):
    root = make_tree(["a/1.jpg"])
    os.mkdir(os.path.join(os.fsencode(root), b"caf\xe9"))
    with pytest.raises(SourceError, match=r"caf\\xe9: .*not valid UTF-8"):
        read(root)


def test_links(make_tree):
    root = make_tree(["a/1.jpg", "b/2.jpg"])
    (root / "a/link.jpg").symlink_to("1.jpg")
    (root / "a/gone.jpg").symlink_to("nowhere.jpg")
    (root / "a/up").symlink_to("..")
    source = read(root)
    found = dict(zip(source.path.to_pylist(), source.size.tolist(), strict=True))
    assert found["a/link.jpg"] == 1
    assert found["a/gone.jpg"] == UNREADABLE
    assert noticed(source, "link to a folder above it", "left out")
    assert len(found) < 10


def test_an_empty_class_keeps_its_number_and_is_said(make_tree):
    root = make_tree(["a/1.jpg", "c/1.jpg"])
    (root / "b").mkdir()
    source = read(root)
    assert source.classes == ("a", "b", "c")
    assert source.label.tolist() == [0, 2]
    assert noticed(source, "1 of 3 classes have no image", "b")


def test_classes_given_fix_the_numbers(make_tree):
    root = make_tree(["a/1.jpg", "b/1.jpg"])
    assert read(root, classes=("z", "b", "a")).label.tolist() == [2, 1]
    with pytest.raises(SourceError, match="'b' is not in --classes"):
        read(root, classes=("a",))


# --- folders of splits --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("folders", "splits"),
    [
        (("train", "val"), ("train", "val")),
        (("test", "val", "train"), ("train", "val", "test")),
        (("Training", "validation"), ("train", "val")),
        (("TRAIN", "valid", "Testing"), ("train", "val", "test")),
        (("val",), ("val",)),
    ],
)
def test_splits(make_tree, folders, splits):
    root = make_tree([f"{folder}/{name}/{n}.jpg" for folder in folders for name in "ba" for n in "21"])
    source = read(root)
    assert source.splits == splits
    assert source.classes == ("a", "b")
    ordered = sorted(folders, key=lambda name: splits.index(next(s for s in splits if s[:2] == name.lower()[:2])))
    expected = [
        (split, f"{folder}/{name}/{n}.jpg", name)
        for split, folder in zip(splits, ordered, strict=True)
        for name in "ab"
        for n in "12"
    ]
    assert rows(source) == expected


def test_classes_are_numbered_over_all_splits_and_the_lonely_said(make_tree):
    source = read(make_tree(["train/c/1.jpg", "train/a/1.jpg", "val/b/1.jpg", "val/c/1.jpg"]))
    assert source.classes == ("a", "b", "c")
    assert source.label.tolist() == [0, 2, 1, 2]
    assert noticed(source, "in train only: a")
    assert noticed(source, "in val only: b")
    assert not noticed(source, "only: c")


def test_a_folder_beside_the_splits_is_said(make_tree):
    source = read(make_tree(["train/a/1.jpg", "val/a/1.jpg", "extra/a/1.jpg", "test/1.jpg"]))
    assert source.splits == ("train", "val")
    assert noticed(source, "extra/", "left out")
    assert noticed(source, "test/", "no labels", "left out")


def test_a_flat_val_says_what_to_do(make_tree):
    with pytest.raises(SourceError, match=r"val: has no class folders; .*val_list\.txt"):
        read(make_tree(["train/a/1.jpg", "val/1.jpg"]))


def test_two_names_of_one_split_are_refused(make_tree):
    with pytest.raises(SourceError, match=r"train.*training|training.*train"):
        read(make_tree(["train/a/1.jpg", "training/b/2.jpg"]))


@pytest.mark.parametrize("name", ["train", "test"])
def test_a_class_that_is_called_like_a_split(make_tree, name):
    """COCO, VOC and CIFAR-100 all have a class `train`."""
    source = read(make_tree([f"{name}/1.jpg", "bus/1.jpg", "car/1.jpg"]))
    assert source.classes == tuple(sorted(("bus", "car", name)))


# --- order, and no image opened -----------------------------------------------------------------


class _Shuffled:
    """What `os.scandir` gives, in another order."""

    def __init__(self, entries, rng):
        self._entries = list(entries)
        rng.shuffle(self._entries)

    def __iter__(self):
        return iter(self._entries)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize("layout", ["{c}/{n}.jpg", "train/{c}/{n}.jpg", KAGGLE + "/train/{c}/{n}.JPEG"])
def test_order_is_by_name_whatever_the_file_system_says(make_tree, monkeypatch, layout):
    names = [layout.format(c=c, n=n) for c in ("b", "a", "a b", "Z") for n in (3, 20, 1, "x/1")]
    root = make_tree(names)
    scandir = os.scandir
    orders = []
    for seed in range(8):
        rng = random.Random(seed)
        monkeypatch.setattr(os, "scandir", lambda path, rng=rng: _Shuffled(scandir(path), rng))
        source = read(root)
        orders.append((source.path.to_pylist(), source.label.tolist(), source.classes))
    assert all(order == orders[0] for order in orders)
    paths, _, classes = orders[0]
    assert list(classes) == sorted(classes)
    by_class = [[path for path in paths if f"/{c}/" in f"/{path}"] for c in classes]
    assert paths == [path for group in by_class for path in sorted(group)]


@pytest.mark.parametrize(
    ("files", "src"),
    [
        (["a/1.jpg", "b/2.jpg"], ""),
        (["train/a/1.jpg", "val/a/2.jpg"], ""),
        ({"1.jpg": "x", "list.txt": "1.jpg 0\n"}, "list.txt"),
        ({"1.jpg": "x", "list.csv": "path,label\n1.jpg,0\n"}, "list.csv"),
    ],
    ids=["ImageFolder", "splits", "list", "table"],
)
def test_no_image_is_opened(make_tree, monkeypatch, files, src):
    root = make_tree(files)
    opened = []
    for module, name in ((builtins, "open"), (os, "open")):
        original = getattr(module, name)

        def spy(path, *args, original=original, **options):
            opened.append(str(path))
            return original(path, *args, **options)

        monkeypatch.setattr(module, name, spy)
    assert len(read(root / src))
    assert not [path for path in opened if path.endswith(".jpg")]


# --- ImageNet, three ways -----------------------------------------------------------------------

IMAGENET_LISTS = {
    "train_list.txt": "train/n01/n01_1.JPEG 0\ntrain/n02/n02_1.JPEG 1\n",
    "val_list.txt": "val/ILSVRC2012_val_00000001.JPEG 1\n",
}


def test_imagenet_as_paddleclas_has_it(make_tree):
    images = ["train/n01/n01_1.JPEG", "train/n02/n02_1.JPEG", "val/ILSVRC2012_val_00000001.JPEG"]
    source = read(make_tree({**dict.fromkeys(images, "x"), **IMAGENET_LISTS}))
    assert source.splits == ("train", "val")
    assert source.classes == ("0", "1")
    assert rows(source) == [("train", images[0], "0"), ("train", images[1], "1"), ("val", images[2], "1")]


def test_imagenet_as_torchvision_has_it(make_tree):
    images = [f"{split}/{wnid}/{wnid}_1.JPEG" for split in ("train", "val") for wnid in ("n01", "n02")]
    beside = ["ILSVRC2012_devkit_t12.tar.gz", "ILSVRC2012_img_val.tar", "meta.bin"]
    source = read(make_tree([*images, *beside]))
    assert [(split, path) for split, path, _ in rows(source)] == [(path.split("/")[0], path) for path in images]
    assert source.classes == ("n01", "n02")


def kaggle(labels="ILSVRC2012_val_00000001,n02 1 2 3 4\nILSVRC2012_val_00000002,n01 1 2 3 4 n01 5 6 7 8\n"):
    images = [f"train/{wnid}/{wnid}_1.JPEG" for wnid in ("n01", "n02")]
    images += [f"val/ILSVRC2012_val_0000000{n}.JPEG" for n in (1, 2)] + ["test/ILSVRC2012_test_00000001.JPEG"]
    return {
        **{f"{KAGGLE}/{image}": b"x" for image in images},
        "LOC_synset_mapping.txt": "n01 tench, Tinca tinca\nn02 goldfish\nn03 absent\n",
        "LOC_val_solution.csv": "ImageId,PredictionString\n" + labels,
        "ILSVRC/Annotations/CLS-LOC/val/ILSVRC2012_val_00000001.xml": "<annotation/>",
    }


@pytest.mark.parametrize("top", ["", "ILSVRC", KAGGLE, KAGGLE + "/"])
def test_imagenet_as_kaggle_has_it(make_tree, top):
    source = read(f"{make_tree(kaggle())}/{top}")
    assert source.splits == ("train", "val")
    assert source.classes == ("n01", "n02", "n03")
    assert rows(source) == [
        ("train", "train/n01/n01_1.JPEG", "n01"),
        ("train", "train/n02/n02_1.JPEG", "n02"),
        ("val", "val/ILSVRC2012_val_00000001.JPEG", "n02"),
        ("val", "val/ILSVRC2012_val_00000002.JPEG", "n01"),
    ]
    assert noticed(source, "test/", "no labels")
    assert source.size.tolist() == [1] * 4


def test_kaggle_with_val_sorted_into_folders(make_tree):
    images = [f"{KAGGLE}/{split}/{wnid}/1.JPEG" for split in ("train", "val") for wnid in ("n01", "n02")]
    source = read(make_tree(images))
    assert [(split, name) for split, _, name in rows(source)] == [
        ("train", "n01"), ("train", "n02"), ("val", "n01"), ("val", "n02"),
    ]  # fmt: skip


LABELS = "ILSVRC2012_val_00000001,n02 1 2 3 4\n"


@pytest.mark.parametrize(
    ("changes", "file", "line", "message"),
    [
        ({"LOC_val_solution.csv": None}, "val", None, "LOC_val_solution.csv"),
        ({"LOC_val_solution.csv": LABELS + "ILSVRC2012_val_00000002,n99 1 2\n"}, "LOC_val_solution.csv", 2, "n99"),
        ({"LOC_val_solution.csv": LABELS + "ILSVRC2012_val_00000002\n"}, "LOC_val_solution.csv", 2, "no known class"),
        ({"LOC_val_solution.csv": LABELS}, "LOC_val_solution.csv", None, "no label for val/ILSVRC2012_val_00000002"),
        (
            {f"{KAGGLE}/val/ILSVRC2012_val_00000002.JPEG": None},
            "LOC_val_solution.csv",
            None,
            "00000002.JPEG is missing",
        ),
        ({"LOC_synset_mapping.txt": "n01 tench\n"}, "LOC_synset_mapping.txt", None, "does not name 'n02'"),
        ({"LOC_val_solution.csv": LABELS.encode() + b"caf\xe9,n01 1\n"}, "LOC_val_solution.csv", 2, "UTF-8"),
        ({"LOC_synset_mapping.txt": b"n01 tench\nn02 caf\xe9\n"}, "LOC_synset_mapping.txt", 2, "UTF-8"),
    ],
)
def test_kaggle_errors(make_tree, changes, file, line, message):
    files = {name: text for name, text in {**kaggle(), **changes}.items() if text is not None}
    with pytest.raises(SourceError, match=message) as caught:
        read(make_tree(files))
    assert os.path.basename(caught.value.file) == file
    assert caught.value.line == line


# --- lists --------------------------------------------------------------------------------------


def test_paddleclas_lists(make_tree):
    root = make_tree(
        {
            **dict.fromkeys(["train/a b  c.jpg", "train/2.jpg", "val/1.jpg", "test/9.jpg"], "x"),
            "train_list.txt": "train/a b  c.jpg 2\r\n\n  ./train/2.jpg\t0  \n",
            "val_list.txt": b"\xef\xbb\xbfval/1.jpg 1",
            "test_list.txt": "test/9.jpg 2\n",
        }
    )
    source = read(root)
    assert rows(source) == [
        ("train", "train/a b  c.jpg", "2"),
        ("train", "train/2.jpg", "0"),
        ("val", "val/1.jpg", "1"),
        ("test", "test/9.jpg", "2"),
    ]
    assert source.splits == ("train", "val", "test")
    assert source.classes == ("0", "1", "2")


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ("cat dog ant", None, ("ant", "cat", "dog")),
        ("2 0 1", None, ("0", "1", "2")),
        ("+2 0 1", None, ("0", "1", "2")),
        ("002 000 0000000001", None, ("0", "1", "2")),
        ("2 zero 1", None, ("1", "2", "zero")),
        ("2 0 1", ("a", "b", "c"), ("a", "b", "c")),
        ("2 0 1", ("1", "2", "0"), ("1", "2", "0")),
        ("cat dog ant", ("dog", "cat", "ant", "eel"), ("dog", "cat", "ant", "eel")),
    ],
)
def test_labels_are_integers_or_names(make_tree, labels, classes, expected):
    words = labels.split()
    root = make_tree(
        {f"{n}.jpg": "x" for n in range(3)}, **{"l.txt": "\n".join(f"{n}.jpg {w}" for n, w in enumerate(words))}
    )
    source = read(root / "l.txt", classes=classes)
    assert source.classes == expected
    number = {name: label for label, name in enumerate(expected)}
    integers = all(word.lstrip("+").isdigit() for word in words) and not (classes and set(words) <= set(classes))
    assert source.label.tolist() == [int(word) if integers else number[word] for word in words]


@pytest.mark.parametrize(
    ("name", "split"),
    [("val.txt", "val"), ("Validation_list.txt", "val"), ("test_list.txt", "test"), ("mine.txt", "train")],
)
def test_split_of_one_list(make_tree, name, split):
    root = make_tree({"1.jpg": "x", name: "1.jpg 0\n"})
    assert read(root / name).splits == (split,)


def test_image_root(make_tree, tmp_path):
    root = make_tree(["images/a/1.jpg"])
    elsewhere = tmp_path / "lists"
    elsewhere.mkdir()
    absolute = tmp_path / "absolute.jpg"
    absolute.write_bytes(b"xy")
    (elsewhere / "train.txt").write_text(f"a/1.jpg 0\n{absolute} 1\n")
    source = read(elsewhere / "train.txt", image_root=str(root / "images"))
    assert source.size.tolist() == [1, 2]
    with pytest.raises(SourceError, match="--image-root") as caught:
        read(elsewhere / "train.txt")
    assert caught.value.line == 1


IMAGES = dict.fromkeys(["1.jpg", "2.jpg", "a/3.jpg"], "x")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1.jpg 0\n2.jpg\n", 2, "'2.jpg' is not `path label`"),
        ("1.jpg 0\n\n  \n2.jpg\n", 4, "is not `path label`"),
        ("1.jpg 0\n2\0.jpg 1\n", 2, "is not `path label`"),
        (b"1.jpg 0\ncaf\xe9.jpg 0\n", 2, "not valid UTF-8"),
        (b"\xff\xfe1\0.\0", 1, "not valid UTF-8"),
        ("1.jpg 0\nno.jpg 0\n9.jpg 1\n", 2, r"no image 'no.jpg'.*\(2 such\)"),
        ("1.jpg 0\na 0\n", 2, "no image 'a'"),
        ("1.jpg 0\n2.jpg -1\n", 2, "label -1 is out of the range 0 to"),
        (f"1.jpg 0\n2.jpg {MAX_LABEL + 1}\n", 2, "out of the range"),
        ("1.jpg 0\n2.jpg 99999999999999999999999\n", 2, "out of the range"),
        ("1.jpg 0\n2.jpg 1\n./1.jpg 1\n", 3, r"'1.jpg' a second time.*l.txt, line 1"),
        ("1.jpg 0\na/../1.jpg 0\n", 2, "a second time"),
    ],
)
def test_list_errors_name_file_and_line(make_tree, text, line, message):
    root = make_tree({**IMAGES, "l.txt": text})
    with pytest.raises(SourceError, match=message) as caught:
        read(root / "l.txt")
    assert (caught.value.file, caught.value.line) == (str(root / "l.txt"), line)
    assert str(caught.value).startswith(f"{root}/l.txt, line {line}: ")
    assert "\n" not in str(caught.value)


def test_label_beyond_classes(make_tree):
    root = make_tree({**IMAGES, "l.txt": "1.jpg 0\n2.jpg 2\n"})
    with pytest.raises(SourceError, match="label 2 is out of the range 0 to 1, as --classes has it") as caught:
        read(root / "l.txt", classes=("a", "b"))
    assert caught.value.line == 2
    root = make_tree({**IMAGES, "l.txt": "1.jpg a\n2.jpg c\n"})
    with pytest.raises(SourceError, match="label 'c' is not in --classes") as caught:
        read(root / "l.txt", classes=("a", "b"))
    assert caught.value.line == 2


def test_one_path_in_two_lists(make_tree):
    root = make_tree({**IMAGES, "train_list.txt": "2.jpg 0\n1.jpg 0\n", "val_list.txt": "a/3.jpg 0\n1.jpg 0\n"})
    with pytest.raises(SourceError, match=r"second time.*train_list.txt, line 2") as caught:
        read(root)
    assert (caught.value.file, caught.value.line) == (str(root / "val_list.txt"), 2)


def test_a_missing_image_in_the_second_list(make_tree):
    root = make_tree({**IMAGES, "train_list.txt": "2.jpg 0\n1.jpg 0\n", "val_list.txt": "a/3.jpg 0\nno.jpg 0\n"})
    with pytest.raises(SourceError, match=r"no\.jpg") as caught:
        read(root)
    assert (caught.value.file, caught.value.line) == (str(root / "val_list.txt"), 2)


def test_a_name_in_the_other_unicode_form_is_recognised(make_tree):
    composed, decomposed = (unicodedata.normalize(form, "é.jpg") for form in ("NFC", "NFD"))
    root = make_tree({decomposed: "x", "l.txt": f"{composed} 0\n"})
    with pytest.raises(SourceError, match="Unicode form NFD"):
        read(root / "l.txt")


def test_a_folder_in_place_of_an_image_is_not_taken_for_a_matter_of_unicode(make_tree):
    root = make_tree({**IMAGES, "l.txt": "a 0\n"})
    with pytest.raises(SourceError) as caught:
        read(root / "l.txt")
    assert "Unicode" not in str(caught.value)


# --- tables -------------------------------------------------------------------------------------

COLUMNS = {
    "identity": ["0001", "x y", "日本"],
    "camera": [1, -2, 1 << 40],
    "score": [0.5, None, 2.25],
    "front": [True, False, None],
}


def write_table(root, kind, columns):
    table = pa.table(columns)
    path = root / f"list{kind}"
    if kind == ".parquet":
        pq.write_table(table, path)
    else:
        import csv

        with path.open("w", newline="") as file:
            writer = csv.writer(file, delimiter="\t" if kind == ".tsv" else ",")
            writer.writerow(table.column_names)
            writer.writerows(["" if value is None else value for value in row.values()] for row in table.to_pylist())
    return path


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet"])
def test_tables_carry_their_further_columns(make_tree, kind):
    root = make_tree(IMAGES)
    columns = {"path": list(IMAGES), "label": ["b", "a", "b"], "split": ["valid", "train", "Test"], **COLUMNS}
    source = read(write_table(root, kind, columns))
    assert rows(source) == [("val", "1.jpg", "b"), ("train", "2.jpg", "a"), ("test", "a/3.jpg", "b")]
    assert source.splits == ("train", "val", "test")
    assert source.extra.to_pydict() == COLUMNS


@pytest.mark.parametrize("kind", [".csv", ".tsv", ".parquet"])
def test_columns_by_their_given_names(make_tree, kind):
    root = make_tree(IMAGES)
    columns = {"where": ["1.jpg", "2.jpg"], "what": [3, 0], "fold": ["a", "b"], "label": ["no", "no"]}
    with pytest.raises(CallError, match=r"--path-column.*its columns are where, what, fold, label"):
        read(write_table(root, kind, columns))
    del columns["label"]
    source = read(write_table(root, kind, columns), path_column="where", label_column="what", split_column="fold")
    assert rows(source) == [("a", "1.jpg", "3"), ("b", "2.jpg", "0")]
    with pytest.raises(CallError, match="--split-column"):
        read(root / f"list{kind}", path_column="where", label_column="what", split_column="nix")


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("path,label\n1.jpg,1\n2.jpg,2,3\n", 3, "expected 2 columns, got 3"),
        ("path,label\n1.jpg,1\n2.jpg\n", 3, "expected 2 columns, got 1"),
        ("path,label\n1.jpg,1\nno.jpg,2\n", 3, "no image 'no.jpg'"),
        ("path,label\n1.jpg,1\n\n\nno.jpg,2\n", 5, "no image 'no.jpg'"),
        ('path,label,note\n1.jpg,1,"two\nlines"\nno.jpg,2,\n', 4, "no image 'no.jpg'"),
        ("path,label\n1.jpg,1\n1.jpg,2\n", 3, r"second time.*line 2"),
        ("path,label\n1.jpg,1\n2.jpg,-1\n", 3, "out of the range"),
        ("path,label\n1.jpg,1\n2.jpg,99999999999\n", 3, "out of the range"),
        ("path,label\n1.jpg,1\n2.jpg,\n", 3, "'label' is empty"),
        ("path,label\n1.jpg,cat\n2.jpg,\n", 3, "'label' is empty"),
        ("path,label\n1.jpg,cat\n,dog\n", 3, "'path' is empty"),
        ("path,label,split\n1.jpg,cat,train\n2.jpg,dog,\n", 3, "'split' is empty"),
        (b"path,label\n1.jpg,cat\n2.jpg,caf\xe9\n", 3, "UTF-8"),
        (b"path,label,note\n1.jpg,cat,\n2.jpg,dog,caf\xe9\n", 3, "UTF-8"),
        ("path,label,label\n1.jpg,1,2\n", 1, "'label' twice"),
        ("path,label,x,x\n1.jpg,1,2,3\n", 1, "'x' twice"),
    ],
)
def test_table_errors_name_file_and_line(make_tree, text, line, message):
    root = make_tree({**IMAGES, "l.csv": text})
    with pytest.raises(SourceError, match=message) as caught:
        read(root / "l.csv")
    assert (caught.value.file, caught.value.line) == (str(root / "l.csv"), line)


@pytest.mark.parametrize(
    ("columns", "line", "message"),
    [
        ({"path": ["1.jpg", None], "label": [0, 1]}, 2, "'path' is empty"),
        ({"path": ["1.jpg", "2.jpg"], "label": [None, 1]}, 1, "'label' is empty"),
        ({"path": ["1.jpg", "no.jpg"], "label": [0, 1]}, 2, "no image"),
        ({"path": [1, 2], "label": [0, 1]}, None, "'path' has the type int64"),
        ({"path": ["1.jpg"], "label": [0.5]}, None, "'label' has the type double"),
        ({"path": ["1.jpg"], "label": [0], "box": [[1, 2]]}, None, "'box' has the type list"),
        ({"path": ["1.jpg"], "label": [0], "raw": [b"x"]}, None, "'raw' has the type binary"),
        ({"path": ["1.jpg"], "label": [0], "key": ["k"]}, None, "'key' has a name that sample tables use"),
        ({"path": ["1.jpg"], "label": [0], "image/encoded": ["k"]}, None, "'image/encoded' has a name"),
        ({"path": ["1.jpg"], "label": [0], "n" * 128: ["k"]}, None, "name"),
        ({"path": ["1.jpg"], "label": [0], "split": ["../x"]}, None, "split '../x' cannot be part of a file name"),
    ],
)
def test_parquet_errors(make_tree, columns, line, message):
    root = make_tree(IMAGES)
    pq.write_table(pa.table(columns), root / "l.parquet")
    with pytest.raises(SourceError, match=message) as caught:
        read(root / "l.parquet")
    assert (caught.value.file, caught.value.line) == (str(root / "l.parquet"), line)


def test_categories_of_parquet_are_names(make_tree):
    """As pandas writes a categorical column."""
    root = make_tree(IMAGES)
    label = pa.array(["b", "a"]).dictionary_encode()
    pq.write_table(pa.table({"path": ["1.jpg", "2.jpg"], "label": label}), root / "l.parquet")
    assert [name for _, _, name in rows(read(root / "l.parquet"))] == ["b", "a"]


def test_a_file_that_is_no_parquet(make_tree):
    with pytest.raises(SourceError, match=r"l\.parquet: "):
        read(make_tree({"l.parquet": "not at all"}) / "l.parquet")


@pytest.mark.parametrize("text", ["", "path,label\n"])
def test_a_table_without_rows(make_tree, text):
    with pytest.raises(SourceError, match=r"l\.csv: (holds no image|Empty CSV)"):
        read(make_tree({"l.csv": text}) / "l.csv")


# --- calls --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "src", "options", "kind", "message"),
    [
        (["a/1.jpg"], "nowhere", {}, CallError, "nowhere does not exist"),
        (["a/1.jpg"], "", {"image_root": "x"}, CallError, "--image-root goes with a list or a table"),
        (["a/1.jpg"], "", {"label_column": "x"}, CallError, "--label-column goes with a table or --pattern"),
        ({**IMAGES, "l.txt": "1.jpg 0\n"}, "l.txt", {"path_column": "x"}, CallError, "--path-column goes with a table"),
        (
            {**IMAGES, "l.txt": "1.jpg 0\n"},
            "l.txt",
            {"split_column": "x"},
            CallError,
            "--split-column goes with a table",
        ),
        (["1.jpg"], "", {}, SourceError, "has no class folders"),
        (["a/notes.txt"], "", {}, SourceError, "holds no image"),
        ({"l.txt": ""}, "l.txt", {}, SourceError, "holds no image"),
    ],
)
def test_calls_that_cannot_be_answered(make_tree, files, src, options, kind, message):
    root = make_tree(files)
    with pytest.raises(kind, match=message) as caught:
        read(root / src, **options)
    assert isinstance(caught.value, DatasetError)
    assert "\n" not in str(caught.value)


def test_no_permission(make_tree):
    root = make_tree(["a/1.jpg", "b/1.jpg"])
    (root / "b").chmod(0)
    try:
        if os.access(root / "b", os.R_OK):
            pytest.skip("this user reads everything")
        with pytest.raises(SourceError, match="b: cannot be read"):
            read(root)
    finally:
        (root / "b").chmod(0o755)


def test_rows_after_many_blank_lines_are_read(make_tree):
    names = [f"{number}.jpg" for number in range(20)]
    text = "path,label\n" + "".join(f"{name},1\n" for name in names[:10]) + "\n" * 200_000
    root = make_tree({**dict.fromkeys(names, "x"), "l.csv": text + "".join(f"{name},1\n" for name in names[10:])})
    assert len(read(root / "l.csv")) == 20


def test_names_that_look_like_numbers_stay_apart(make_tree):
    names = [f"{number}.jpg" for number in range(3)]
    values = ["1234567890123456780", "1234567890123456781", "1234567890123456782"]
    text = "path,label,identity,version\n" + "".join(
        f"{name},1,{value},{version}\n"
        for name, value, version in zip(names, values, ["1.1", "1.10", "2"], strict=True)
    )
    extra = read(make_tree({**dict.fromkeys(names, "x"), "l.csv": text}) / "l.csv").extra
    assert extra["identity"].to_pylist() == values
    assert extra["version"].to_pylist() == ["1.1", "1.10", "2"]
