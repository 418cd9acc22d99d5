"""Intact images, sources and datasets that mutations start from. They are made once per process."""

from __future__ import annotations

import csv
import io
import tempfile
from functools import cache
from pathlib import Path
from typing import Literal

from helpers.pictures import SUFFIXES, encode, photo

from fuzz.checks import Case, command, read_folder, write_case

COUNT = 7
CLASSES = ("cat", "dog", "owl")

Kind = Literal["tfrecord", "webdataset", "indexed"]
KINDS: tuple[Kind, ...] = ("tfrecord", "webdataset", "indexed")


@cache
def image(number: int) -> tuple[str, bytes]:
    """Return the name and the bytes of a small image."""
    kind = tuple(SUFFIXES)[number % 3]
    return f"{number:02d}.{SUFFIXES[kind]}", encode(photo(number, 16, 12), kind)


@cache
def images() -> dict[str, bytes]:
    """Return `COUNT` images by name."""
    return dict(image(number) for number in range(COUNT))


@cache
def table() -> str:
    """Return a CSV file of the images with two extra columns."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["path", "label", "identity", "weight"])
    for number, name in enumerate(images()):
        rows.writerow([name, CLASSES[number % 3], f"p{number // 2}", number / 4])
    return out.getvalue()


@cache
def dataset(kind: Kind) -> Case:
    """Return the files of a dataset with two shards: of `dataprep convert`, or of `dataprep index`."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_case({**images(), "list.csv": table().encode()}, folder / "source")
        fmt = "webdataset" if kind == "indexed" else kind
        options = ("--fmt", fmt, "--samples-per-shard", 4, "--workers", 1)
        convert = ("convert", "--src", folder / "source/list.csv", "--out", folder / "out")
        command(*convert, *options, writable=[folder])
        files = read_folder(folder / "out")
        if kind != "indexed":
            return files
        write_case(
            {name: data for name, data in files.items() if name.endswith(".tar")}, folder / "shards"
        )
        command(
            "index", folder / "shards", "--validate", "header", "--workers", 1, writable=[folder]
        )
        return read_folder(folder / "shards")
