"""Unusual file names, links, values and column names, through `convert_dataset`."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from helpers.bad_images import UNUSUAL_NAMES
from helpers.oracles import read_with_tfrecord_package
from helpers.pictures import encode, photo
from helpers.shards import stored_samples

from dataprep.options import Options
from dataprep.run.convert import convert_dataset
from dataprep.sources import read_source
from dataprep.verification.verify import verify_dataset

FORMATS = ("tfrecord", "webdataset")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "images" / "class"
    path.mkdir(parents=True)
    (path / "intact.jpg").write_bytes(encode(photo(0)))
    return path


def convert(folder: Path, out: Path, **options: object) -> tuple[set[str], dict[str, str]]:
    """Convert; return the sources that are kept, and the reasons of those that are rejected."""
    convert_dataset(read_source(str(folder.parent)), str(out), Options(**options), workers=1)
    rejected = out / "rejected.jsonl"
    lines = (
        [json.loads(line) for line in rejected.read_text().splitlines()]
        if rejected.exists()
        else []
    )
    assert verify_dataset(str(out), workers=1).problems == ()
    return {row.source for row, _ in stored_samples(out)}, {
        line["source"]: line["reason"] for line in lines
    }


@pytest.mark.parametrize("fmt", FORMATS)
def test_other_libraries_read_unusual_names(fmt, folder, python, tmp_path):
    for number, name in enumerate(UNUSUAL_NAMES, 1):
        (folder / name).write_bytes(encode(photo(number)))
    convert_dataset(
        read_source(str(folder.parent)), str(tmp_path / "out"), Options(fmt=fmt), workers=1
    )
    path, expected = (
        tmp_path / "out" / "train-00000",
        {f"class/{name}" for name in ("intact.jpg", *UNUSUAL_NAMES)},
    )
    if fmt == "webdataset":
        webdataset = pytest.importorskip("webdataset")
        read = list(webdataset.WebDataset(f"{path}.tar", shardshuffle=False))
        assert {json.loads(sample["json"])["source"] for sample in read} == expected
    else:
        read = read_with_tfrecord_package(
            python, path.with_suffix(".tfrecord"), image="image/filename"
        )
        assert {name.decode() for name, _ in read} == expected


def test_name_that_is_not_utf8_is_rejected(folder, tmp_path):
    with open(os.fsencode(folder) + b"/caf\xe9.jpg", "wb") as file:
        file.write(encode(photo(1)))
    kept, rejected = convert(folder, tmp_path / "out")
    assert kept == {"class/intact.jpg"}
    assert rejected == {"class/caf\\xe9.jpg": "bad-name"}


def test_pipes_links_and_folders_with_image_names(folder, tmp_path):
    """Pipes and broken links are unreadable; a folder with an image's name is scanned."""
    os.mkfifo(folder / "pipe.jpg")
    (folder / "dangling.jpg").symlink_to("nowhere.jpg")
    (folder / "itself.jpg").symlink_to("itself.jpg")
    (folder / "a.jpg").symlink_to("b.jpg")
    (folder / "b.jpg").symlink_to("a.jpg")
    (folder / "link.jpg").symlink_to("intact.jpg")
    (folder / "folder.jpg").mkdir()
    (folder / "folder.jpg" / "inside.jpg").write_bytes(encode(photo(2)))
    kept, rejected = convert(folder, tmp_path / "out")
    assert kept == {"class/intact.jpg", "class/link.jpg", "class/folder.jpg/inside.jpg"}
    broken = ("pipe", "dangling", "itself", "a", "b")
    assert rejected == dict.fromkeys((f"class/{name}.jpg" for name in broken), "unreadable")


def test_links_to_folders_above(folder, tmp_path):
    (folder / "below").mkdir()
    (folder / "below" / "up").symlink_to("..")
    (folder / "round").symlink_to(".")
    source = read_source(str(folder.parent))
    assert source.path.to_pylist() == ["class/intact.jpg"]
    assert sum("it is a link to a folder above it" in notice for notice in source.notices) == 2
