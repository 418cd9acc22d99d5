"""List files: lines, labels, splits, and errors by file and line."""

from __future__ import annotations

import unicodedata

import pytest
from helpers.sources import read, rows

from manifests.errors import SourceError
from manifests.labels import MAX_LABEL

IMAGES = dict.fromkeys(["1.jpg", "2.jpg", "a/3.jpg"], "x")
IMAGENET_LISTS = {
    "train_list.txt": "train/n01/n01_1.JPEG 0\ntrain/n02/n02_1.JPEG 1\n",
    "val_list.txt": "val/ILSVRC2012_val_00000001.JPEG 1\n",
}


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


def test_imagenet_in_paddleclas_layout(make_tree):
    images = ["train/n01/n01_1.JPEG", "train/n02/n02_1.JPEG", "val/ILSVRC2012_val_00000001.JPEG"]
    source = read(make_tree({**dict.fromkeys(images, "x"), **IMAGENET_LISTS}))
    assert source.splits == ("train", "val")
    assert source.classes == ("0", "1")
    assert rows(source) == [
        ("train", images[0], "0"),
        ("train", images[1], "1"),
        ("val", images[2], "1"),
    ]


@pytest.mark.parametrize(
    ("labels", "classes", "expected"),
    [
        ("cat dog ant", None, ("ant", "cat", "dog")),
        ("2 0 1", None, ("0", "1", "2")),
        ("+2 0 1", None, ("0", "1", "2")),
        ("002 000 0000000001", None, ("000", "0000000001", "002")),
        ("002 000 0000000001", ("a", "b", "c"), ("a", "b", "c")),
        ("two zero 1", None, ("1", "two", "zero")),
        ("2 0 1", ("a", "b", "c"), ("a", "b", "c")),
        ("2 0 1", ("1", "2", "0"), ("1", "2", "0")),
        ("cat dog ant", ("dog", "cat", "ant", "eel"), ("dog", "cat", "ant", "eel")),
    ],
)
def test_labels_are_integers_or_names(make_tree, labels, classes, expected):
    texts = labels.split()
    root = make_tree(
        {f"{n}.jpg": "x" for n in range(3)},
        **{"l.txt": "\n".join(f"{n}.jpg {w}" for n, w in enumerate(texts))},
    )
    source = read(root / "l.txt", classes=classes)
    assert source.classes == expected
    number = {name: label for label, name in enumerate(expected)}
    integers = all(text.lstrip("+").isdigit() for text in texts) and not (
        set(texts) <= set(classes) if classes else "002" in texts
    )
    assert source.label.tolist() == [int(text) if integers else number[text] for text in texts]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("val.txt", "val"),
        ("Validation_list.txt", "val"),
        ("test_list.txt", "test"),
        ("mine.txt", "train"),
    ],
)
def test_split_of_one_list(make_tree, name, split):
    root = make_tree({"1.jpg": "x", name: "1.jpg 0\n"})
    assert read(root / name).splits == (split,)


def test_image_root(make_tree, tmp_path):
    root = make_tree(["images/a/1.jpg"])
    lists = tmp_path / "lists"
    lists.mkdir()
    absolute = tmp_path / "absolute.jpg"
    absolute.write_bytes(b"xy")
    (lists / "train.txt").write_text(f"a/1.jpg 0\n{absolute} 1\n")
    source = read(lists / "train.txt", image_root=str(root / "images"))
    assert source.size.tolist() == [1, 2]
    with pytest.raises(SourceError, match="--image-root") as caught:
        read(lists / "train.txt")
    assert caught.value.line == 1


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ("1.jpg 0\n2.jpg\n", 2, "the line '2.jpg' does not have the form `path label`"),
        ("1.jpg 0\n\n  \n2.jpg\n", 4, "does not have the form `path label`"),
        ("1.jpg 0\n2\0.jpg 1\n", 2, "does not have the form `path label`"),
        (b"1.jpg 0\ncaf\xe9.jpg 0\n", 2, "not valid UTF-8"),
        (b"\xff\xfe1\0.\0", 1, "not valid UTF-8"),
        ("1.jpg 0\nno.jpg 0\n9.jpg 1\n", 2, r"image 'no.jpg' does not exist.*\(2 in total\)"),
        ("1.jpg 0\na 0\n", 2, "image 'a' does not exist"),
        ("1.jpg 0\n2.jpg -1\n", 2, "label -1 is out of the range 0 to"),
        (f"1.jpg 0\n2.jpg {MAX_LABEL + 1}\n", 2, "out of the range"),
        ("1.jpg 0\n2.jpg 99999999999999999999999\n", 2, "out of the range"),
        ("1.jpg 0\n2.jpg 1\n./1.jpg 1\n", 3, r"'1.jpg' is listed twice.*l.txt, line 1"),
        ("1.jpg 0\na/../1.jpg 0\n", 2, "is listed twice"),
    ],
)
def test_errors_name_file_and_line(make_tree, text, line, message):
    root = make_tree({**IMAGES, "l.txt": text})
    with pytest.raises(SourceError, match=message) as caught:
        read(root / "l.txt")
    assert (caught.value.file, caught.value.line) == (str(root / "l.txt"), line)
    assert str(caught.value).startswith(f"{root}/l.txt, line {line}: ")
    assert "\n" not in str(caught.value)


def test_label_that_is_not_in_classes(make_tree):
    root = make_tree({**IMAGES, "l.txt": "1.jpg 0\n2.jpg 2\n"})
    with pytest.raises(
        SourceError, match="label 2 is out of the range 0 to 1, because there are 2 class names"
    ) as caught:
        read(root / "l.txt", classes=("a", "b"))
    assert caught.value.line == 2
    root = make_tree({**IMAGES, "l.txt": "1.jpg a\n2.jpg c\n"})
    with pytest.raises(SourceError, match="label 'c' is not in --classes") as caught:
        read(root / "l.txt", classes=("a", "b"))
    assert caught.value.line == 2


def test_path_in_two_lists(make_tree):
    root = make_tree(
        {**IMAGES, "train_list.txt": "2.jpg 0\n1.jpg 0\n", "val_list.txt": "a/3.jpg 0\n1.jpg 0\n"}
    )
    with pytest.raises(SourceError, match=r"listed twice.*train_list.txt, line 2") as caught:
        read(root)
    assert (caught.value.file, caught.value.line) == (str(root / "val_list.txt"), 2)


def test_missing_image_in_the_second_list(make_tree):
    root = make_tree(
        {**IMAGES, "train_list.txt": "2.jpg 0\n1.jpg 0\n", "val_list.txt": "a/3.jpg 0\nno.jpg 0\n"}
    )
    with pytest.raises(SourceError, match=r"no\.jpg") as caught:
        read(root)
    assert (caught.value.file, caught.value.line) == (str(root / "val_list.txt"), 2)


def test_file_name_in_the_other_unicode_form_is_recognized(make_tree):
    composed, decomposed = (unicodedata.normalize(form, "é.jpg") for form in ("NFC", "NFD"))
    root = make_tree({decomposed: "x", "l.txt": f"{composed} 0\n"})
    with pytest.raises(SourceError, match="Unicode form NFD"):
        read(root / "l.txt")


def test_hint_about_unicode_forms_only_if_they_differ(make_tree):
    root = make_tree({**IMAGES, "l.txt": "a 0\n"})
    with pytest.raises(SourceError) as caught:
        read(root / "l.txt")
    assert "Unicode" not in str(caught.value)
