"""The steps of scenarios besides commands: they make sources, and change or record files.

A step is a function of a `Recorder` and of texts. A record has it as a line, `@ name arguments`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

from golden.recording import (
    BOXES,
    CATEGORIES,
    SIZES,
    Recorder,
    coco_text,
    digest,
    images,
    jsonl,
    page_text,
    split_images,
)
from helpers.make_sources import MAKERS

STEPS: dict[str, Callable[..., None]] = {"files": Recorder.files}


def step(function: Callable[..., None]) -> Callable[..., None]:
    STEPS[function.__name__] = function
    return function


# --- files ------------------------------------------------------------------------------------


@step
def put(r: Recorder, prefix: str, folder: str, *patterns: str) -> None:
    """Write the images below a folder of `images.zip` whose paths fit a pattern, and no `!pattern`."""
    for path, data in images(prefix, *patterns).items():
        r.write(f"{folder}/{path}", data)


@step
def image(r: Recorder, source: str, name: str) -> None:
    prefix, _, path = source.partition("/")
    r.write(name, images(prefix)[path])


@step
def write(r: Recorder, name: str, text: str) -> None:
    r.write(name, text.replace("\\n", "\n").replace("\\0", "\0"))


@step
def folder(r: Recorder, name: str) -> None:
    (r.folder / name).mkdir()


@step
def copy(r: Recorder, source: str, name: str) -> None:
    copying = shutil.copytree if (r.folder / source).is_dir() else shutil.copy
    copying(r.folder / source, r.folder / name)


@step
def remove(r: Recorder, pattern: str) -> None:
    for path in r.folder.glob(pattern):
        path.unlink()


@step
def flip(r: Recorder, name: str) -> None:
    """Change the byte in the middle of a file."""
    data = bytearray((r.folder / name).read_bytes())
    data[len(data) // 2] ^= 255
    r.write(name, bytes(data))


@step
def replace(r: Recorder, name: str, old: str, new: str) -> None:
    r.write(name, (r.folder / name).read_text().replace(old, new, 1))


@step
def lengthen(r: Recorder, folder: str) -> None:
    """Append bytes to the images of a folder, so that they are no copies."""
    for path in (r.folder / folder).rglob("*.jpg"):
        path.write_bytes(path.read_bytes() + bytes(3))


@step
def keep_shards(r: Recorder, source: str, name: str) -> None:
    """Leave only the shards of a dataset, as other tools write them."""
    (r.folder / name).mkdir()
    for path in (r.folder / source).iterdir():
        if path.suffix in (".tar", ".tfrecord"):
            path.rename(r.folder / name / path.name)
    shutil.rmtree(r.folder / source)


@step
def upload(r: Recorder, folder: str, name: str) -> None:
    for path in sorted((r.folder / folder).rglob("*.*")):
        r.bucket.put(f"{name}/{path.relative_to(r.folder / folder)}", path.read_bytes())


@step
def delete(r: Recorder, name: str) -> None:
    r.bucket.delete(name)


@step
def page(r: Recorder, name: str) -> None:
    r.lines.append(digest(f"{name} without images", page_text((r.folder / name).read_bytes())))


# --- sources ----------------------------------------------------------------------------------


@step
def flat_folder(r: Recorder) -> None:
    kinds = {b"\xff\xd8": "jpg", b"\x89P": "png"}
    for number, data in enumerate(images("photographs").values()):
        r.write(f"flat/{number:02d}.{kinds.get(data[:2], 'webp')}", data)


def _valid() -> list[str]:
    return [path for path in images("splits") if not path.endswith("broken.jpg")]


@step
def table(r: Recorder, column: str, labels: str) -> None:
    """Write a table in JSON Lines of images in two splits. They have the labels in turn."""
    put(r, "splits", "photos", "!*broken.jpg")
    given, rows = json.loads(labels), []
    for number, path in enumerate(_valid()):
        label = given[number % len(given)]
        if isinstance(label, str):
            label = label.format(number=number)
        row = {"path": path, column: label, "split": path.split("/")[0]}
        rows.append({**row, "camera": number % 3, "note": f"№ {number}"})
    r.write("photos/all.jsonl", jsonl(rows))


@step
def csv(r: Recorder, name: str, header: str, labels: str) -> None:
    lines, given = [header], json.loads(labels)
    for number, path in enumerate(_valid()):
        label = given[number % len(given)].format(eighth=number / 8, negative=-number)
        lines.append(f"{path},{label}")
    r.write(name, "\n".join(lines) + "\n")


@step
def coco(r: Recorder) -> None:
    for number in range(5):
        r.write(f"coco/train2017/{number:012d}.jpg", images("annotated")[f"images/{number}.jpg"])
    segmentation = [[1.5, 2, 3, 4]]
    annotations = [{"id": n, "iscrowd": n % 2, "segmentation": segmentation} for n in range(4)]
    text = coco_text("{:012d}.jpg", 1000, *annotations)
    r.write("coco/annotations/instances_train2017.json", text)


@step
def voc(r: Recorder) -> None:
    for number, (height, width) in enumerate(SIZES):
        objects = ""
        for image, category, (x, y, w, h) in BOXES:
            if image == number:
                box = f"<xmin>{x + 1}</xmin><ymin>{y + 1}</ymin><xmax>{x + w:g}</xmax>"
                box += f"<ymax>{y + h:g}</ymax>"
                name = f"<name>{CATEGORIES[category]}</name><difficult>{image % 2}</difficult>"
                objects += f"<object>{name}<bndbox>{box}</bndbox></object>"
        size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
        text = f"<annotation><filename>{number}.jpg</filename>{size}{objects}</annotation>"
        r.write(f"VOC2012/Annotations/{number}.xml", text)
        r.write(f"VOC2012/JPEGImages/{number}.jpg", images("annotated")[f"images/{number}.jpg"])
    r.write("VOC2012/ImageSets/Main/train.txt", "0\n1\n2\n")
    r.write("VOC2012/ImageSets/Main/val.txt", "3\n4\n")


@step
def source(r: Recorder, kind: str) -> None:
    """Write a source of another kind. A prepared dataset contains only valid images."""
    folder = r.folder / ("made/source" if kind.startswith("lmdb") else "source")
    MAKERS[kind](folder, split_images(broken="dataset" not in kind))


@step
def people(r: Recorder) -> None:
    for number, path in enumerate(images("splits")):
        if path in _valid():
            shot, who = f"c{number % 3 + 1}s1_{number:06d}_00", f"{number % 2 + 7:04d}"
            for name in (
                f"market/bounding_box_train/{number % 4:04d}_{shot}",
                f"market/query/{who}_{shot}",
                f"market/bounding_box_test/{who}_c1s1_{number:06d}_01",
                f"flat/{number % 4}-{number % 3}-{number}",
            ):
                image(r, f"splits/{path}", f"{name}.jpg")


@step
def two_folders(r: Recorder) -> None:
    put(r, "splits", "first", "train/*", "!*broken*")
    for path, data in images("photographs").items():
        name = path.split("/")[-1]
        if name not in ("copy of plain.jpg", "plain.jpg"):
            r.write(f"second/train/{'cat' if name < 'l' else 'fox'}/{name}", data)
    put(r, "splits", "third", "val/*")
