"""Unusual file names, links, values and column names, through `convert`."""

from __future__ import annotations

import json
import os

import pytest
from helpers.bad_images import UNUSUAL_NAMES
from helpers.datasets import FORMATS, rows_of
from helpers.oracles import read_with_tfrecord_package
from helpers.pictures import encode, photo


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "images" / "class"
    path.mkdir(parents=True)
    (path / "intact.jpg").write_bytes(encode(photo(0)))
    return path


@pytest.fixture
def result(folder, convert, invoke, tmp_path):
    """A function that converts the folder; it returns the sources that are kept, and the reasons of rejections."""

    def run(*options: object) -> tuple[set[str], dict[str, str]]:
        out, rejected = tmp_path / "out", {}
        convert(folder.parent, out, "--max-rejected", 1, *options)
        invoke("verify", out)
        if (out / "rejected.jsonl").exists():
            for line in map(json.loads, (out / "rejected.jsonl").read_text().splitlines()):
                rejected[line["source"]] = line["reason"]
        return {row["source"] for row in rows_of(out)}, rejected

    return run


@pytest.mark.parametrize("fmt", FORMATS)
def test_other_libraries_read_unusual_names(fmt, folder, result, python, tmp_path):
    for number, name in enumerate(UNUSUAL_NAMES, 1):
        (folder / name).write_bytes(encode(photo(number)))
    expected = {f"class/{name}" for name in ("intact.jpg", *UNUSUAL_NAMES)}
    assert result("--fmt", fmt) == (expected, {})
    path = tmp_path / "out" / "train-00000"
    if fmt == "webdataset":
        webdataset = pytest.importorskip("webdataset")
        read = webdataset.WebDataset(f"{path}.tar", shardshuffle=False)
        names = {json.loads(sample["json"])["source"] for sample in read}
    else:
        shard = path.with_suffix(".tfrecord")
        read = read_with_tfrecord_package(python, shard, image="image/filename")
        names = {name.decode() for name, _ in read}
    assert names == expected


def test_name_that_is_not_utf8_is_rejected(folder, result):
    with open(os.fsencode(folder) + b"/caf\xe9.jpg", "wb") as file:
        file.write(encode(photo(1)))
    assert result() == ({"class/intact.jpg"}, {"class/caf\\xe9.jpg": "bad-name"})


def test_pipes_links_and_folders_with_image_names(folder, result):
    """Pipes and broken links are unreadable; a folder with an image's name is scanned."""
    os.mkfifo(folder / "pipe.jpg")
    (folder / "dangling.jpg").symlink_to("nowhere.jpg")
    (folder / "itself.jpg").symlink_to("itself.jpg")
    (folder / "a.jpg").symlink_to("b.jpg")
    (folder / "b.jpg").symlink_to("a.jpg")
    (folder / "link.jpg").symlink_to("intact.jpg")
    (folder / "folder.jpg").mkdir()
    (folder / "folder.jpg" / "inside.jpg").write_bytes(encode(photo(2)))
    kept, rejected = result()
    assert kept == {"class/intact.jpg", "class/link.jpg", "class/folder.jpg/inside.jpg"}
    broken = ("pipe", "dangling", "itself", "a", "b")
    assert rejected == dict.fromkeys((f"class/{name}.jpg" for name in broken), "unreadable")
