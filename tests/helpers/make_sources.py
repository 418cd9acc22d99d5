"""The same images in every kind of source that `dataprep convert` reads."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from helpers.pictures import encode, photo

CLASSES = ("cat", "dog", "eel")


class Image(NamedTuple):
    """An image to put into a source: its split, its class, its name and its bytes."""

    split: str
    name: str
    label: int
    data: bytes

    @property
    def class_name(self) -> str:
        return CLASSES[self.label]

    @property
    def path(self) -> str:
        return f"{self.split}/{self.class_name}/{self.name}"


class Made(NamedTuple):
    """A source: what to give as ``--src``, and the name of each image in the column ``source``.

    Attributes:
        src: the path.
        names: for each image of `IMAGES` its name in the source.
        container: a file whose damage the source must notice. `None` if every image is a file of its own.
        splits: names of the splits.

    """

    src: Path
    names: Sequence[str]
    container: Path | None = None
    splits: tuple[str, ...] = ("train", "val")


def _images() -> list[Image]:
    images = []
    for number in range(18):
        split = "val" if number % 3 == 2 else "train"
        data = encode(photo(number, 20 + number, 16))
        images.append(Image(split, f"{number:02d}.jpg", number * 7 % 3, data))
    images.append(Image("train", "broken.jpg", 1, b"<html>no image</html>"))
    # Sorted as every source lists them: by split, class and name.
    return sorted(images, key=lambda image: (image.split, image.label, image.name))


IMAGES = _images()
#: The image that is not valid, and all others.
BROKEN = next(number for number, image in enumerate(IMAGES) if image.name == "broken.jpg")
VALID = [image for number, image in enumerate(IMAGES) if number != BROKEN]


def image_folder(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    for image in images:
        path = folder / image.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image.data)
    return Made(folder, [image.path for image in images])


def lists(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    made = image_folder(folder, images)
    for split in ("train", "val"):
        lines = (f"{image.path} {image.class_name}\n" for image in images if image.split == split)
        (folder / f"{split}_list.txt").write_text("".join(lines))
    return made


def _rows(images: Sequence[Image]) -> list[dict[str, object]]:
    return [{"path": image.path, "label": image.class_name, "split": image.split} for image in images]


def csv_table(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    made = image_folder(folder, images)
    with (folder / "all.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["path", "label", "split"], delimiter=";")
        writer.writeheader()
        writer.writerows(_rows(images))
    return made._replace(src=folder / "all.csv")


def json_lines(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    made = image_folder(folder, images)
    (folder / "all.jsonl").write_text("".join(json.dumps(row) + "\n" for row in _rows(images)))
    return made._replace(src=folder / "all.jsonl")


def parquet_table(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    made = image_folder(folder, images)
    pq.write_table(pa.Table.from_pylist(_rows(images)), folder / "all.parquet")
    return made._replace(src=folder / "all.parquet")


FEATURES = {"image": {"_type": "Image"}, "label": {"names": [*CLASSES], "_type": "ClassLabel"}}


def hugging_face(folder: Path, images: Sequence[Image] = IMAGES) -> Made:
    """Two files of train and one of validation, with row groups of four images."""
    (folder / "data").mkdir(parents=True)
    metadata = {"huggingface": json.dumps({"info": {"features": FEATURES}})}
    names = {}
    train = [number for number, image in enumerate(images) if image.split == "train"]
    val = [number for number, image in enumerate(images) if image.split == "val"]
    parts = {
        "data/train-00000-of-00002.parquet": train[:7],
        "data/train-00001-of-00002.parquet": train[7:],
        "data/validation-00000-of-00001.parquet": val,
    }
    for name, numbers in parts.items():
        content = [{"bytes": images[number].data, "path": images[number].name} for number in numbers]
        labels = pa.array([images[number].label for number in numbers], pa.int64())
        table = pa.table({"image": content, "label": labels}).replace_schema_metadata(metadata)
        pq.write_table(table, folder / name, row_group_size=4)
        names |= {number: f"{name}/{row}" for row, number in enumerate(numbers)}
    return Made(folder, [names[number] for number in range(len(images))], folder / next(iter(parts)))


#: All kinds of sources.
MAKERS: dict[str, Callable[..., Made]] = {
    "image folder": image_folder,
    "lists": lists,
    "csv": csv_table,
    "json lines": json_lines,
    "parquet table": parquet_table,
    "hugging face": hugging_face,
}
