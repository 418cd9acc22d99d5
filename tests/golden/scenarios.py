"""Small datasets made by every path, and the commands that read them.

Each scenario is a function that runs commands with a `Recorder`. Its name is the name of its file
in `records/`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable

from golden.recording import (
    BOXES,
    CATEGORIES,
    CLASSES,
    SIZES,
    Recorder,
    images,
    jsonl,
    page_text,
    split_images,
)
from helpers.make_sources import MAKERS

Scenario = Callable[[Recorder], None]

SCENARIOS: dict[str, Scenario] = {}

FORMATS = ("tfrecord", "webdataset")


def scenario(function: Scenario) -> Scenario:
    SCENARIOS[function.__name__] = function
    return function


def check(r: Recorder, out: str) -> None:
    """Record what the commands say that read a dataset."""
    r.run("info", out)
    r.run("verify", out, "--decode")


def convert(r: Recorder, src: str, *options: object, fmt: str = "tfrecord", out: str = "") -> str:
    """Convert a source and check the dataset. Return its folder."""
    out = out or f"out-{fmt}"
    r.run("convert", "--src", src, "--out", out, "--fmt", fmt, *options, files=True)
    check(r, out)
    return out


def convert_both(r: Recorder, src: str, *options: object) -> None:
    for fmt in FORMATS:
        convert(r, src, *options, fmt=fmt)


# --- labels -----------------------------------------------------------------------------------


@scenario
def classes(r: Recorder) -> None:
    r.put("photographs", "photos")
    convert_both(r, "photos", "--samples-per-shard", 5)
    r.note("The same command again, and every form of the commands that read")
    r.run("convert", "--src", "photos", "--out", "out-tfrecord", "--samples-per-shard", 5)
    r.run("info", "out-tfrecord", "--json")
    r.run("verify", "out-tfrecord")
    r.run("verify", "out-tfrecord", "--manifest-only")
    r.run("diff", "out-tfrecord", "out-webdataset")
    r.run("diff", "out-tfrecord", "out-webdataset", "--json")


@scenario
def splits(r: Recorder) -> None:
    r.put("splits", "photos")
    convert_both(r, "photos", "--samples-per-shard", 6, "--max-rejected", 1)


@scenario
def without_labels(r: Recorder) -> None:
    for number, data in enumerate(images("photographs").values()):
        r.write(f"flat/{number:02d}.{_extension(data)}", data)
    r.run("convert", "--src", "flat", "--out", "refused")
    convert_both(r, "flat", "--label-type", "none")
    r.run("convert", "--src", "flat", "--out", "none", "--label-type", "none", files=True)


def _extension(data: bytes) -> str:
    return {b"\xff\xd8": "jpg", b"\x89P": "png"}.get(data[:2], "webp")


def _table(r: Recorder, labels: list[object], column: str = "label") -> str:
    """Write a table in JSON Lines with an image for each label, in two splits."""
    r.put("splits", "photos", lambda path: not path.endswith("broken.jpg"))
    paths = [path for path in images("splits") if not path.endswith("broken.jpg")]
    rows = []
    for number, (path, label) in enumerate(zip(paths, labels, strict=False)):
        row = {"path": path, column: label, "split": path.split("/")[0]}
        rows.append({**row, "camera": number % 3, "note": f"№ {number}"})
    return r.write("photos/all.jsonl", jsonl(rows))


@scenario
def multi_label(r: Recorder) -> None:
    labels = [["cat"], ["cat", "dog"], [], ["eel", "cat"], ["dog"], ["eel"]] * 3
    convert_both(r, _table(r, labels), "--samples-per-shard", 6)
    r.note("The same in CSV, with another separator")
    lines = [f"{path},{'+'.join(label)}" for path, label in zip(_valid(), labels, strict=True)]
    r.write("photos/all.csv", "\n".join(["path,label", *lines]) + "\n")
    convert(r, "photos/all.csv", "--label-type", "multi-label", "--label-separator", "+", out="csv")


def _valid() -> list[str]:
    return [path for path in images("splits") if not path.endswith("broken.jpg")]


@scenario
def regression(r: Recorder) -> None:
    convert_both(r, _table(r, [number / 4 - 1 for number in range(18)]))
    r.note("Several numbers of an image")
    lines = [f"{path},{number / 8},{-number}" for number, path in enumerate(_valid())]
    r.write("photos/two.csv", "\n".join(["path,x,y", *lines]) + "\n")
    convert(r, "photos/two.csv", "--label-column", "x,y", "--label-type", "regression", out="two")


@scenario
def captions(r: Recorder) -> None:
    texts = [f"a photo, number {number} é 日本" for number in range(18)]
    convert_both(r, _table(r, texts, "caption"), "--samples-per-shard", 6)
    r.note("Captions as classes")
    convert(r, "photos/all.jsonl", "--label-column", "caption", "--label-type", "class", out="as")


def _coco(r: Recorder) -> str:
    for number in range(5):
        r.write(f"coco/train2017/{number:012d}.jpg", images("annotated")[f"images/{number}.jpg"])
    annotations = []
    for number, (image, category, box) in enumerate(BOXES):
        made = {"id": number, "image_id": 1000 + image, "category_id": category, "bbox": box}
        annotations.append({**made, "iscrowd": number % 2, "segmentation": [[1.5, 2, 3, 4]]})
    pictures = []
    for number, (height, width) in enumerate(SIZES):
        size = {"width": width, "height": height}
        pictures.append({"id": 1000 + number, "file_name": f"{number:012d}.jpg", **size})
    categories = [{"id": key, "name": name} for key, name in CATEGORIES.items()]
    content = {"images": pictures, "annotations": annotations, "categories": categories}
    r.write("coco/annotations/instances_train2017.json", json.dumps(content))
    return "coco"


@scenario
def boxes_of_coco(r: Recorder) -> None:
    convert_both(r, _coco(r), "--samples-per-shard", 3)
    r.note("Shrunk, and as raw pixels")
    convert(r, "coco", "--resize-shorter", 16, out="small")
    convert(r, "coco", "--store", "raw", "--raw-size", 16, out="raw")


@scenario
def boxes_of_voc(r: Recorder) -> None:
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
    convert_both(r, "VOC2012")


def _pairs(r: Recorder, folder: str, second: str) -> str:
    r.put("annotated", folder, lambda path: path.startswith(("images/", f"{second}/")))
    return folder


@scenario
def masks(r: Recorder) -> None:
    convert_both(r, _pairs(r, "pairs", "masks"), "--samples-per-shard", 3)
    r.note("Shrunk, as raw pixels, and without the masks")
    convert(r, "pairs", "--max-side", 20, "--fmt", "webdataset", out="small")
    convert(r, "pairs", "--store", "raw", "--raw-size", 16, "--raw-fit", "pad", out="raw")
    convert(r, "pairs", "--label-type", "none", out="none")


@scenario
def depth_maps(r: Recorder) -> None:
    convert_both(r, _pairs(r, "pairs", "depth"))
    convert(r, "pairs", "--store", "raw", "--raw-size", 16, out="raw")
    r.note("A mask is missing, and one has another size")
    (r.folder / "pairs/depth/2.png").unlink()
    r.write("pairs/depth/3.png", images("annotated")["depth/1.png"])
    r.run("convert", "--src", "pairs", "--out", "rejected", "--validate", "decode", files=True)


# --- images -----------------------------------------------------------------------------------


@scenario
def raw(r: Recorder) -> None:
    r.put("photographs", "photos")
    convert_both(r, "photos", "--store", "raw", "--raw-size", 32, "--samples-per-shard", 5)
    r.run("convert", "--src", "photos", "--out", "pad", "--store", "raw", "--raw-size", 24,
          "--raw-fit", "pad", "--filter", "box", files=True)  # fmt: skip


@scenario
def downscaled(r: Recorder) -> None:
    r.put("photographs", "photos")
    convert_both(r, "photos", "--resize-shorter", 32, "--samples-per-shard", 5)
    several = ("--max-side", 40, "--only-above", 48, "--quality", 80, "--subsampling", "420")
    convert(r, "photos", *several, "--filter", "bicubic", out="several")
    convert(r, "photos", "--resize-pixels", 900, out="area")


@scenario
def rejected_images(r: Recorder) -> None:
    r.put("photographs", "photos")
    broken = images("splits")["train/dog/broken.jpg"]
    r.write("photos/cat/broken.jpg", broken)
    r.write("photos/cat/empty.png", b"")
    r.write("photos/日本/text.jpg", b"no image at all")
    r.write("photos/日本/odd.gif", b"GIF89a" + bytes(30))
    for validate in ("none", "header", "decode"):
        options = ("--validate", validate, "--max-rejected", "50%")
        r.run("convert", "--src", "photos", "--out", validate, *options, files=True)
        r.run("verify", validate)
    r.run("convert", "--src", "photos", "--out", "limit")
    r.run("convert", "--src", "photos", "--out", "pixels", "--max-pixels", 5000, files=True)


@scenario
def duplicates(r: Recorder) -> None:
    r.put("photographs", "photos")
    for path, data in images("photographs").items():
        if path.endswith(("plain.jpg", "gray.jpg")):
            r.write(f"photos/日本/again {path.split('/')[-1]}", data)
    convert(r, "photos", "--hash", out="hashed")
    r.run("duplicates", "hashed")
    r.run("duplicates", "hashed", "--json")
    for choice in ("keep", "drop", "same-split"):
        options = ("--duplicates", choice, "--val-fraction", 0.3)
        r.run("convert", "--src", "photos", "--out", choice, *options, files=True)
        r.run("duplicates", choice)
    r.run("convert", "--src", "photos", "--out", "by", "--split-by", "duplicates", "--val-fraction", 0.3, files=True)  # fmt: skip


@scenario
def new_splits(r: Recorder) -> None:
    source = _table(r, [*CLASSES] * 6)
    fractions = ("--val-fraction", 0.2, "--test-fraction", "0.2", "--seed", 7)
    convert(r, source, *fractions, out="both")
    convert(r, source, "--val-fraction", 0.3, "--split-by", "camera", out="by")
    convert(r, source, "--no-shuffle", "--shard-size", "4KiB", out="order")
    r.run("convert", "--src", source, "--out", "where", "--where", "camera > 0 and label != 'eel'",
          files=True)  # fmt: skip


@scenario
def workers(r: Recorder) -> None:
    r.put("photographs", "photos")
    options = ("--samples-per-shard", 2, "--workers", 2)
    r.run("convert", "--src", "photos", "--out", "out", *options, files=True)
    r.run("convert", "--src", "photos", "--out", "one", "--shard-size", "1GiB", "--workers", 2,
          "--resize-shorter", 32, files=True)  # fmt: skip
    r.run("verify", "out", "--workers", 2)


@scenario
def options_for_output(r: Recorder) -> None:
    r.put("splits", "photos")
    for option in ("--verbose", "--quiet", "--log-json"):
        r.run(
            "convert", "--src", "photos", "--out", f"out{option}", option, "--samples-per-shard", 6
        )
    for command in ("info", "verify"):
        r.run(command, "out--quiet", "--log-json")
    r.put("photographs", "more")
    r.run("convert", "--src", "more", "--out", "out--quiet", "--append", "--verbose")


# --- sources ----------------------------------------------------------------------------------


def _source_of_kind(kind: str) -> Scenario:
    def record(r: Recorder) -> None:
        # A prepared dataset contains only valid images.
        chosen = split_images(broken="dataset" not in kind)
        made = MAKERS[kind](r.folder / "made" / "source", chosen) if _nested(kind) else None
        if made is None:
            made = MAKERS[kind](r.folder / "source", chosen)
        src = str(made.src.relative_to(r.folder))
        r.run("convert", "--src", src, "--out", "dry", "--dry-run")
        convert(r, src, "--samples-per-shard", 6, "--max-rejected", 1, out="out")

    return record


def _nested(kind: str) -> bool:
    return kind.startswith("lmdb")


for _kind in MAKERS:
    if _kind != "image folder":
        SCENARIOS[f"source_{_kind.replace(' ', '_').lower()}"] = _source_of_kind(_kind)


@scenario
def source_patterns(r: Recorder) -> None:
    for number, (path, data) in enumerate(images("splits").items()):
        if not path.endswith("broken.jpg"):
            r.write(
                f"market/bounding_box_train/{number % 4:04d}_c{number % 3 + 1}s1_{number:06d}_00.jpg",
                data,
            )
            r.write(
                f"market/query/{number % 2 + 7:04d}_c{number % 3 + 1}s1_{number:06d}_00.jpg", data
            )
            r.write(f"market/bounding_box_test/{number % 2 + 7:04d}_c1s1_{number:06d}_01.jpg", data)
            r.write(f"flat/{number % 4}-{number % 3}-{number}.jpg", data)
    convert(r, "market", out="market-out")
    convert(r, "flat", "--pattern", "{identity}-{camera}-*", fmt="webdataset")


@scenario
def merged(r: Recorder) -> None:
    r.put("photographs", "photos")
    source = _table(r, ["cat", "dog", "fox"] * 6)
    r.run("convert", "--src", "photos", "--src", source, "--out", "out", files=True)
    check(r, "out")
    r.write("names.csv", "fox,cat\n日本,Japan\n")
    r.write("order.txt", "dog\ncat\nJapan\nein Häßlicher Name\nunused\n")
    convert(r, "photos", "--src", source, "--rename-classes", "names.csv", "--classes", "order.txt",
            out="renamed")  # fmt: skip
    r.run("diff", "out", "renamed")


# --- revisions --------------------------------------------------------------------------------


def _two_folders(r: Recorder) -> None:
    r.put("splits", "first", lambda path: path.startswith("train/") and "broken" not in path)
    for path, data in images("photographs").items():
        name = path.split("/")[-1]
        if name not in ("copy of plain.jpg", "plain.jpg"):
            r.write(f"second/train/{'cat' if name < 'l' else 'fox'}/{name}", data)
    r.put("splits", "third", lambda path: path.startswith("val/"))


def _append(fmt: str) -> Scenario:
    def record(r: Recorder) -> None:
        _two_folders(r)
        options = ("--fmt", fmt, "--samples-per-shard", 4)
        r.run("convert", "--src", "first", "--out", "out", *options, files=True)
        r.run("convert", "--src", "second", "--out", "out", "--append", "--dry-run")
        for src in ("second", "third"):
            r.run("convert", "--src", src, "--out", "out", "--append", files=True)
            check(r, "out")
        r.run("info", "out", "--json")
        r.run("convert", "--src", "third", "--out", "out", "--append")
        shutil.copytree(r.folder / "out", r.folder / "newest")
        r.run("revert", "out", files=True)
        r.run("diff", "out", "newest")
        r.run("diff", "out", "newest", "--json")
        r.run("revert", "out", files=True)
        check(r, "out")
        r.run("revert", "out")

    return record


SCENARIOS["append_tfrecord"] = _append("tfrecord")
SCENARIOS["append_webdataset"] = _append("webdataset")


@scenario
def append_that_rejects_all(r: Recorder) -> None:
    _two_folders(r)
    broken = images("splits")["train/dog/broken.jpg"]
    r.write("broken/cat/broken.jpg", broken)
    r.write("broken/cat/other.jpg", b"none")
    r.run("convert", "--src", "first", "--out", "out")
    r.run("convert", "--src", "broken", "--out", "out", "--append", files=True)
    check(r, "out")
    r.run("convert", "--src", "broken", "--out", "out", "--append", files=True)
    r.run("convert", "--src", "second", "--out", "out", "--append", "--max-rejected", 1, files=True)
    r.run("revert", "out", files=True)


@scenario
def append_other_labels(r: Recorder) -> None:
    for name, source in (("masks", _pairs(r, "pairs", "masks")), ("boxes", _coco(r))):
        again = r.folder / f"{name}-again"
        shutil.copytree(r.folder / source, again)
        for path in again.rglob("*.jpg"):
            path.write_bytes(path.read_bytes() + bytes(3))
        r.run("convert", "--src", source, "--out", name)
        r.run("convert", "--src", again.name, "--out", name, "--append", files=True)
        check(r, name)
    r.run("convert", "--src", "pairs", "--out", "boxes", "--append")


@scenario
def append_with_other_options(r: Recorder) -> None:
    _two_folders(r)
    r.run("convert", "--src", "first", "--out", "out", "--samples-per-shard", 4)
    choices = (
        ("--fmt", "webdataset"), ("--store", "raw"), ("--resize-shorter", 20),
        ("--label-type", "caption"), ("--label-type", "none"), ("--seed", 5),
    )  # fmt: skip
    for options in choices:
        r.run("convert", "--src", "second", "--out", "out", "--append", "--dry-run", *options)
    r.run("convert", "--src", "second", "--out", "out", "--append", "--val-fraction", 0.5, "--hash",
          files=True)  # fmt: skip


@scenario
def mismatch(r: Recorder) -> None:
    """A dataset that was made with other options is not replaced, and the message names them."""
    r.put("photographs", "photos")
    r.write("photos/order.txt", "cat\n日本\nein Häßlicher Name\n")
    r.run("convert", "--src", "photos", "--out", "out")
    choices = (
        ("--fmt", "webdataset"), ("--samples-per-shard", 3), ("--shard-size", "10KiB"),
        ("--seed", 1), ("--no-shuffle",), ("--val-fraction", 0.5), ("--test-fraction", 0.5),
        ("--validate", "none"), ("--max-pixels", 1000), ("--resize-shorter", 8),
        ("--resize-pixels", 64), ("--max-side", 8, "--quality", 50),
        ("--store", "raw", "--raw-size", 8), ("--hash",), ("--duplicates", "drop"),
        ("--label-type", "none"), ("--classes", "photos/order.txt"), ("--where", "size > 3000"),
        ("--seed", 1, "--hash", "--no-shuffle"),
    )  # fmt: skip
    for options in choices:
        r.run("convert", "--src", "photos", "--out", "out", *options)
    r.put("splits", "others")
    r.run("convert", "--src", "others", "--out", "out")
    r.run("convert", "--src", "others", "--out", "out", "--overwrite", files=True)


# --- steps ------------------------------------------------------------------------------------


@scenario
def steps(r: Recorder) -> None:
    r.put("splits", "photos")
    options = ("--samples-per-shard", 3, "--hash")
    r.run("plan", "--src", "photos", "--out", "out", *options)
    r.run("info", "out/.dataprep/plan")
    r.run("finish", "out")
    r.run("work", "out", "--task", "0/2")
    r.run("info", "out")
    r.run("verify", "out")
    r.run("finish", "out")
    r.run("work", "out", "--task", "1/2")
    r.run("finish", "out", "--max-rejected", 1, files=True)
    check(r, "out")
    for command in ("work", "finish"):
        r.run(command, "out", files=True)
    r.note("In one step, and a plan that `convert` completes")
    r.run("convert", "--src", "photos", "--out", "whole", *options, files=True)
    r.run("plan", "--src", "photos", "--out", "half", *options)
    r.run("work", "half", "--task", "0/2")
    r.run("convert", "--src", "photos", "--out", "half", *options, files=True)
    r.note("With claims")
    r.run("plan", "--src", "photos", "--out", "claimed", "--fmt", "webdataset", *options)
    r.run("work", "claimed", "--claim")
    r.run("finish", "claimed", files=True)
    r.run("plan", "--src", "photos", "--out", "claimed", "--seed", 4)
    r.run("plan", "--src", "photos", "--out", "claimed", "--seed", 4, "--overwrite")
    r.run("work", "claimed", "--task", "3/2")


@scenario
def steps_that_append(r: Recorder) -> None:
    _two_folders(r)
    r.run("convert", "--src", "first", "--out", "out", "--samples-per-shard", 4)
    r.run("plan", "--src", "second", "--out", "out", "--append")
    r.run("info", "out")
    r.run("work", "out", "--task", "0/2")
    r.run("finish", "out")
    r.run("work", "out", "--task", "1/2")
    r.run("finish", "out", files=True)
    check(r, "out")
    r.run("revert", "out", files=True)
    r.run("plan", "--src", "second", "--out", "out", "--append")
    r.run("revert", "out")
    r.run("convert", "--src", "second", "--out", "out", "--append", files=True)


# --- index, repair and report -------------------------------------------------------------------


def _foreign(r: Recorder, fmt: str, src: str, *options: object) -> str:
    """Convert a source, and leave only the shards."""
    r.run("convert", "--src", src, "--out", "made", "--fmt", fmt, *options, "--quiet")
    for path in (r.folder / "made").iterdir():
        if path.suffix not in (".tar", ".tfrecord"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    (r.folder / "made").rename(r.folder / f"shards-{fmt}")
    return f"shards-{fmt}"


@scenario
def index_of_classes(r: Recorder) -> None:
    r.put("photographs", "photos")
    r.write("names.txt", "one\ntwo\nthree\n")
    for fmt in FORMATS:
        shards = _foreign(r, fmt, "photos", "--samples-per-shard", 5)
        r.run("index", shards, files=True)
        check(r, shards)
        r.run("index", shards)
        r.run("index", shards, "--validate", "decode", "--classes", "names.txt", "--split", "test",
              "--overwrite")  # fmt: skip
        r.files(shards)
        r.run("convert", "--src", shards, "--out", f"again-{fmt}", files=True)
    r.run("index", "photos")


@scenario
def index_of_captions(r: Recorder) -> None:
    source = _table(r, [f"text {number}" for number in range(18)], "caption")
    for fmt in FORMATS:
        shards = _foreign(r, fmt, source)
        r.run("index", shards)
        r.run("index", shards, "--label-type", "none", files=True)
        r.run("index", shards, "--label-type", "caption", "--overwrite", files=True)
        check(r, shards)


@scenario
def repair(r: Recorder) -> None:
    r.put("splits", "photos")
    r.run("convert", "--src", "photos", "--out", "out", "--samples-per-shard", 6, files=True)
    out = r.folder / "out"
    for name in ("train-00000.idx", "train-00001.parquet", "val-00000.tfrecord", "rejected.jsonl"):
        r.note(f"{name} is lost")
        (out / name).unlink()
        _mend(r, name)
    for name in ("train-00000.tfrecord", "train-00000.parquet", "train-00000.idx"):
        r.note(f"{name} is damaged")
        data = bytearray((out / name).read_bytes())
        data[len(data) // 2] ^= 255
        (out / name).write_bytes(data)
        _mend(r, name)
    r.files("out")
    r.note("The manifest is damaged, and a file is too many")
    text = (out / "manifest.json").read_text()
    (out / "manifest.json").write_text(text.replace('"samples": 6', '"samples": 7', 1))
    r.run("verify", "out")
    r.run("info", "out")
    (out / "manifest.json").write_text(text)
    (out / "train-00009.tfrecord").write_bytes(b"x")
    r.run("verify", "out")


def _mend(r: Recorder, name: str) -> None:
    for command in ("verify", "info"):
        r.run(command, "out")
    r.run("repair", "out", "--dry-run")
    r.run("repair", "out")
    r.run("repair", "out", "--src", "photos")
    r.run("verify", "out")


@scenario
def repair_of_other_datasets(r: Recorder) -> None:
    r.put("photographs", "photos")
    _two_folders(r)
    r.run("convert", "--src", "first", "--out", "out", "--samples-per-shard", 4)
    r.run("convert", "--src", "second", "--out", "out", "--append")
    (r.folder / "out/train-00003.tfrecord").unlink()
    r.run("repair", "out", "--src", "first")
    r.run("repair", "out", "--src", "second")
    r.files("out")
    shards = _foreign(r, "webdataset", "photos")
    r.run("index", shards)
    for path in (r.folder / shards).glob("*.idx"):
        path.unlink()
    r.run("repair", shards, files=True)


@scenario
def report(r: Recorder) -> None:
    r.put("splits", "photos")
    r.put("photographs", "photos/train")
    r.run("convert", "--src", "photos", "--out", "out", "--samples-per-shard", 9, "--hash")
    r.run("report", "out", "--src", "photos")
    for name in ("report.html", "report.json"):
        r.digest(f"{name} without images", page_text((r.folder / name).read_bytes()))
    r.run("report", "photos")


# --- object store -----------------------------------------------------------------------------


def _bucket(fmt: str) -> Scenario:
    def record(r: Recorder) -> None:
        _two_folders(r)
        out = r.url("out")
        r.run("convert", "--src", "first", "--out", out, "--fmt", fmt, "--samples-per-shard", 4,
              files=True)  # fmt: skip
        check(r, out)
        r.run("convert", "--src", "first", "--out", out, "--fmt", fmt, "--samples-per-shard", 4)
        for src in ("second", "third"):
            r.run("convert", "--src", src, "--out", out, "--append", files=True)
        check(r, out)
        r.run("diff", out, out)
        r.run("revert", out, files=True)
        r.run("convert", "--src", "third", "--out", out)
        r.run("convert", "--src", "third", "--out", out, "--overwrite", files=True)

    return record


SCENARIOS["bucket_tfrecord"] = _bucket("tfrecord")
SCENARIOS["bucket_webdataset"] = _bucket("webdataset")


@scenario
def bucket_steps(r: Recorder) -> None:
    _two_folders(r)
    out = r.url("out")
    r.run("plan", "--src", "first", "--out", out, "--samples-per-shard", 3)
    r.run("work", out, "--task", "1/2")
    r.run("finish", out)
    r.run("work", out, "--claim")
    r.run("finish", out, files=True)
    r.run("plan", "--src", "second", "--out", out, "--append")
    r.run("work", out)
    r.run("finish", out, files=True)
    check(r, out)


@scenario
def bucket_sources(r: Recorder) -> None:
    for path, data in images("splits").items():
        r.bucket.put(f"photos/{path}", data)
    out = r.url("out")
    options = ("--samples-per-shard", 6, "--max-rejected", 1)
    r.run("convert", "--src", r.url("photos"), "--out", out, *options, files=True)
    r.run("convert", "--src", out, "--out", "local", "--fmt", "webdataset", files=True)
    for name in ("train-00000.idx", "train-00001.parquet"):
        r.bucket.delete(f"out/{name}")
    r.run("verify", out)
    r.run("repair", out, files=True)
    r.run("repair", out, "--src", r.url("photos"))
    shards = _foreign(r, "webdataset", r.url("photos"), *options)
    for path in sorted((r.folder / shards).iterdir()):
        r.bucket.put(f"shards/{path.name}", path.read_bytes())
    r.run("index", r.url("shards"), files=True)


# --- messages ---------------------------------------------------------------------------------

COMMANDS = (
    "convert", "diff", "duplicates", "finish", "index", "info", "join", "plan", "remove", "repair", "report", "revert", "verify",
    "sync", "work",
)  # fmt: skip


@scenario
def help_texts(r: Recorder) -> None:
    r.run("--help")
    for command in COMMANDS:
        r.run(command, "--help")
    for command in ("convert", "plan", "index", "repair"):
        r.run(command, "--help-all")


@scenario
def dry_run(r: Recorder) -> None:
    r.put("photographs", "photos")
    r.put("splits", "others")
    choices = (
        (), ("--fmt", "webdataset", "--samples-per-shard", 3),
        ("--resize-shorter", 32, "--val-fraction", 0.2), ("--store", "raw", "--raw-size", 32),
        ("--src", "others", "--label-type", "none"), ("--duplicates", "drop"),
    )  # fmt: skip
    for options in choices:
        r.run("convert", "--src", "photos", "--dry-run", "--out", "out", *options)
    r.run("convert", "--src", _coco(r), "--dry-run", "--out", "out")
    r.run("convert", "--src", _pairs(r, "pairs", "masks"), "--dry-run", "--out", "out")


@scenario
def refusals(r: Recorder) -> None:
    r.put("photographs", "photos")
    r.write("full/notes.txt", "mine")
    r.write("bad.csv", "path,label\nmissing.jpg,cat\n")
    r.write("photos/names.txt", "cat\n")
    (r.folder / "empty").mkdir()
    for command in COMMANDS:
        r.run(command)
        if command not in ("convert", "plan", "index"):
            for folder in ("missing", "empty", "photos"):
                r.run(command, *[folder] * (2 if command == "diff" else 1))
    convert = ("convert", "--src", "photos", "--out", "out")
    choices = (
        ("--fmt", "zip"), ("--shard-size", "x"), ("--samples-per-shard", 0), ("--val-fraction", 2),
        ("--raw-size", 8), ("--quality", 5), ("--only-above", 5), ("--split-by", "label"),
        ("--distance", 3), ("--label-column", "x"), ("--classes", "photos/names.txt"),
        ("--classes", "missing.txt"), ("--where", "nothing > 3"), ("--pattern", "{"),
        ("--unlabelled",), ("--append",), ("--address", "auto"), ("--max-rejected", "x"),
        ("--nonsense",),
    )  # fmt: skip
    for options in choices:
        r.run(*convert, *options)
    for src in ("missing", "empty", "full", "bad.csv", "s3://", "ftp://x/y", "full/notes.txt"):
        r.run("convert", "--src", src, "--out", "out")
    r.run("convert", "--src", "photos", "--out", "full")
    r.run("convert", "--src", "photos", "--out", "photos")
    r.run("convert", "--src", "photos", "--out", "full/notes.txt")
    r.run("nonsense")
