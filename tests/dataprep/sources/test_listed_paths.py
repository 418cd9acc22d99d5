"""Paths in lists and tables that do not exist as they are written: one rule for every kind."""

from __future__ import annotations

import json

import pytest
from helpers.sources import has_notice, read
from helpers.tables import LISTED, write_table

from manifests.errors import SourceError

FILES = ("a/1.jpg", "a/2.png", "b c/3.jpg")

#: How a list writes the paths of `FILES`.
WRITTEN = {
    "as they are": FILES,
    "relative": ("./a/1.jpg", "a//2.png", "a/../b c/3.jpg"),
    "leading slash": ("/a/1.jpg", "/a/2.png", "/b c/3.jpg"),
    "backslashes": ("a\\1.jpg", "a\\2.png", "b c\\3.jpg"),
    "leading backslash": ("\\a\\1.jpg", ".\\a\\2.png", "\\b c\\3.jpg"),
    "no extension": ("a/1", "a/2", "b c/3"),
    "slash, no extension": ("/a/1", "/a/2", "/b c/3"),
    "some of them": ("a/1.jpg", "/a/2.png", "b c\\3"),
}


def write_coco(root, paths):
    images = [{"id": n, "file_name": path} for n, path in enumerate(paths)]
    file = {"images": images, "annotations": [], "categories": [{"id": 0, "name": "cat"}]}
    (root / "table.json").write_text(json.dumps(file))
    return root / "table.json"


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("kind", [*LISTED, "coco"])
def test_paths_are_read_as_files_that_exist(written, kind, make_tree):
    root, paths = make_tree(dict.fromkeys(FILES, "x")), WRITTEN[written]
    columns = {"path": paths, "label": ("x", "y", "z")}
    table = write_coco(root, paths) if kind == "coco" else write_table(root, kind, columns)
    source = read(table, image_root=str(root))
    assert source.path.to_pylist() == [*FILES]
    assert source.size.tolist() == [1, 1, 1]
    changed = written not in ("as they are", "relative")
    assert has_notice(source, "not exist as written") == changed


@pytest.mark.parametrize("kind", LISTED)
def test_ids_that_are_numbers(kind, make_tree):
    root = make_tree(dict.fromkeys(("1.jpg", "20.jpg"), "x"))
    table = write_table(root, kind, {"id": [1, 20], "label": ["x", "y"]})
    options = {} if kind == ".txt" else {"path_column": "id"}
    assert read(table, **options).path.to_pylist() == ["1.jpg", "20.jpg"]


#: The files, the path in the list, and what the error says.
REFUSED = {
    "two images of this name": (("1.jpg", "1.png"), "1", "can be 1.jpg or 1.png"),
    "another extension": (("a/1.png",), "a/1.jpg", "its folder has '1.png'; write the extension"),
    "a folder too many": (("a/1.jpg",), "b/a/1.jpg", "'a/1.jpg' exists there; write the paths"),
    "absolute, a folder too many": (("a/1.jpg",), "/x/y/a/1.jpg", "the paths without 'x/y/'"),
    "a drive": (("1.jpg",), "C:\\photos\\1.jpg", "an absolute path of Windows"),
    "nowhere": (("1.jpg",), "2", "set --image-root to the folder that paths are relative to"),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("kind", LISTED)
def test_a_path_that_cannot_be_read_is_refused_with_the_reason(case, kind, make_tree):
    files, path, message = REFUSED[case]
    root = make_tree(dict.fromkeys(files, "x"))
    with pytest.raises(SourceError) as caught:
        read(write_table(root, kind, {"path": [path], "label": ["x"]}))
    assert message in str(caught.value)


def test_the_hint_about_the_folder_above_works(make_tree):
    """CheXpert's paths begin with the name of the folder that its table is in."""
    root = make_tree({"small/train/1.jpg": "x", "small/t.csv": "path,label\nsmall/train/1.jpg,a\n"})
    with pytest.raises(SourceError) as caught:
        read(root / "small/t.csv")
    above = caught.value.hint.rpartition("--image-root ")[2]
    assert len(read(root / "small/t.csv", image_root=above)) == 1


def test_several_labels_behind_a_path_are_no_part_of_it(make_tree):
    root = make_tree({"1.jpg": "x", "l.txt": "1.jpg 0 3 5\n", "m.txt": "1.jpg 0|3|5\n"})
    with pytest.raises(SourceError, match=r"'1.jpg' exists there; .* without blanks, 0\|3\|LABEL"):
        read(root / "l.txt")
    assert read(root / "m.txt").extra["labels"].to_pylist() == [[0, 3, 5]]


def test_two_spellings_of_one_path_are_twins(make_tree):
    root = make_tree({"a/1.jpg": "x", "l.txt": "/a/1 x\na\\1.jpg y\n"})
    with pytest.raises(SourceError, match="listed twice"):
        read(root / "l.txt")
