"""Sources with annotations: COCO's JSON, Pascal VOC's XML, folders of masks and depth maps, and columns of labels."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from helpers.mutated_images import png_chunk
from PIL import Image

import loaders
from fuzz import mutate
from fuzz.checks import Case, command, guarded, is_complete, require, write_case
from fuzz.encoded import odd_png
from fuzz.seeds import images

#: Height and width of the images of `seeds.images`.
_SIDES = (12, 16)

#: Options that change how images are stored.
_STORED = (
    [], [], ["--fmt", "webdataset"], ["--resize-shorter", "8"],
    ["--store", "raw", "--raw-size", "8"],
)  # fmt: skip

#: The field of each label type; see `loaders.dataset.fields`.
_FIELDS = {
    "class": "label", "multi-label": "labels", "regression": "values", "caption": "caption",
    "captions": "caption", "none": "key",
}  # fmt: skip


class Source:
    """A surface: one kind of source, of which one or two files are mutated."""

    def __init__(
        self, make: Callable[[Random], Case], oracle: Callable[[Case, dict[str, Any]], None]
    ) -> None:
        self._make = make
        self._oracle = oracle

    def make(self, rng: Random) -> Case:
        """Return the files of a source, and the options."""
        case = self._make(rng)
        options = json.loads(case.pop("options", b"[]"))
        options += rng.choice(_STORED)
        return {**case, "options": json.dumps(options).encode()}

    def check(self, case: Case, folder: Path) -> None:
        """Convert, verify and load, and compare each sample with what an independent parser reads."""
        src = write_case(
            {name: data for name, data in case.items() if name != "options"}, folder / "source"
        )
        options = [src / word if word in case else word for word in json.loads(case["options"])]
        out = folder / "out"
        words = options if "--src" in options else ["--src", src, *options]
        converted = command(
            "convert", *words, "--validate", "decode", "--out", out, "--workers", 1, writable=[out]
        )
        if converted.status == 2:
            require(not out.exists(), "exit status 2, but the output folder exists")
        if not (out / "manifest.json").exists():
            return
        command("verify", out, "--decode", "--workers", 1, writable=[], statuses=(0,))
        manifest = json.loads((out / "manifest.json").read_bytes())
        tables = (
            pq.read_table(path, use_threads=False).to_pylist()
            for path in sorted(out.glob("*.parquet"))
        )
        rows = {row["source"]: row for table in tables for row in table}
        for row in rows.values():
            self._oracle(case, {**row, "manifest": manifest})
        if is_complete(converted):
            loaded = guarded(lambda: _epoch(out, manifest), writable=[])
            first = next(iter(manifest["splits"].values()))
            require(
                isinstance(loaded, int), f"convert says complete, but the loader fails: {loaded}"
            )
            require(
                loaded == sum(shard["samples"] for shard in first["shards"]),
                f"the loader returns {loaded} samples",
            )


def _epoch(out: Path, manifest: dict[str, Any]) -> int:
    """Return the number of samples of the first split, read with the field of their labels."""
    kind = manifest.get("label_type", "class")
    fields = {
        "boxes": ("boxes", "box_labels", "box_counts"),
        "mask": ("mask",),
        "depth": ("depth",),
    }
    chosen = ("image", *fields.get(kind, (_FIELDS.get(kind, "key"),)), "index")
    with loaders.build(
        out, split=next(iter(manifest["splits"])), fields=chosen, transforms=[{"Resize": {"size": [8, 8]}}],
        batch_size=3, device="cpu", num_threads=1, shuffle=False, last_batch="partial", framework="numpy",
    ) as loader:  # fmt: skip
        return sum(len(batch[-1]) for batch in loader)


# --- COCO ---------------------------------------------------------------------------------------


def _coco_json() -> dict[str, Any]:
    names = list(images())
    boxes = [
        {"id": n, "image_id": n % 5, "category_id": (1, 2, 7)[n % 3], "bbox": [n, 1.5, 3, 4]}
        for n in range(9)
    ]
    return {
        "info": {"year": 2017},
        "images": [
            {"id": n, "file_name": name, "width": 16, "height": 12} for n, name in enumerate(names)
        ],
        "annotations": [
            {**box, "iscrowd": 0, "area": 12.0, "segmentation": [[1, 2, 3, 4]]} for box in boxes
        ],
        "categories": [
            {"id": each, "name": f"c{each}", "supercategory": "x"} for each in (1, 2, 7)
        ],
    }


def _coco(rng: Random) -> Case:
    body = _coco_json()
    name = "instances_train.json"
    if rng.random() < 0.2:
        name = "captions_train.json"
        body["annotations"] = [
            {"id": n, "image_id": n, "caption": f"picture {n}"} for n in range(7)
        ]
    if rng.random() < 0.7:
        body = mutate.mutate_json(rng, body)
    data = mutate.dump_json(body, **rng.choice(({}, {}, {"indent": 1})))
    if rng.random() < 0.3:
        data = mutate.mutate_bytes(rng, data)
    return {
        **{f"train/{image}": content for image, content in images().items()},
        f"annotations/{name}": data,
    }


def _check_coco(case: Case, row: dict[str, Any]) -> None:
    ((_, data),) = ((name, data) for name, data in case.items() if name.startswith("annotations/"))
    body = json.loads(data.decode("utf-8-sig"))
    found = [each for each in body["annotations"] if each["image_id"] == row["image_id"]]
    names = [each["file_name"] for each in body["images"] if each["id"] == row["image_id"]]
    require(len(names) == 1, f"the image {row['image_id']} is stated {len(names)} times")
    require(
        Path(names[0]).name == Path(row["source"]).name,
        f"another image: {names[0]}, but {row['source']}",
    )
    if "captions" in row:
        texts = [" ".join(each["caption"].split()) for each in found]
        require(texts == row["captions"], f"other captions: {texts}, but {row['captions']}")
        return
    require(len(row["boxes"]) <= len(found), "there are more boxes than annotations")
    category = {each["id"]: each["name"] for each in body["categories"]}
    allowed = [category[each["category_id"]] for each in found]
    classes = row["manifest"]["classes"]
    require(
        all(classes[label] in allowed for label in row["box_labels"]), "a box has another class"
    )
    _check_corners(row)


def _check_corners(row: dict[str, Any]) -> None:
    size = (row["annotated_width"], row["annotated_height"])
    for left, top, right, bottom in row["boxes"]:
        require(
            0 <= left < right <= size[0] and 0 <= top < bottom <= size[1],
            f"a box is outside: {row}",
        )


# --- Pascal VOC ---------------------------------------------------------------------------------


def _voc_xml(number: int) -> str:
    objects = "".join(
        f"<object><name>c{each % 2}</name><difficult>{each % 2}</difficult><bndbox><xmin>{each + 1}</xmin>"
        f"<ymin>2</ymin><xmax>{each + 6}</xmax><ymax>9</ymax></bndbox></object>\n"
        for each in range(number % 4)
    )
    size = "<size><width>16</width><height>12</height><depth>3</depth></size>\n"
    return f"<annotation>\n<filename>{number}.jpg</filename>\n{size}{objects}</annotation>\n"


_ODD_XML = (
    *("<!DOCTYPE x [<!ENTITY a 'b'>]>", "&lt;", "<![CDATA[x]]>", "<a>" * 40, "&#0;", "\0"),
    *("<?xml version='1.0' encoding='utf-7'?>", "<object></object>"),
    *("<object><name>x</name></object>" * 300, "<size><width>1e3</width></size>"),
)


def _voc(rng: Random) -> Case:
    case = {}
    changed = rng.randrange(len(images()))
    for number, (name, content) in enumerate(images().items()):
        text = _voc_xml(number)
        data = text.encode()
        if number == changed:
            kind = rng.random()
            if kind < 0.4:
                data = mutate.mutate_text(rng, text).encode("utf-8", "surrogatepass")
            elif kind < 0.6:
                at = rng.randrange(len(text) + 1)
                data = (text[:at] + rng.choice(_ODD_XML) + text[at:]).encode()
            else:
                data = mutate.mutate_bytes(rng, data)
        case |= {f"JPEGImages/{name}": content, f"Annotations/{Path(name).stem}.xml": data}
    if rng.random() < 0.3:
        stems = "".join(f"{Path(name).stem}\n" for name in images())
        case["ImageSets/Main/train.txt"] = mutate.mutate_text(rng, stems).encode(
            "utf-8", "surrogatepass"
        )
    return case


def _check_voc(case: Case, row: dict[str, Any]) -> None:
    stem = Path(row["source"]).stem
    root = ElementTree.fromstring(case[f"Annotations/{stem}.xml"])
    names = [(each.findtext("name") or "").strip() for each in root.findall("object")]
    require(len(row["boxes"]) <= len(names), "there are more boxes than objects")
    classes = row["manifest"]["classes"]
    require(
        all(classes[label] in names for label in row["box_labels"]),
        f"a box has another class: {row}, {names}",
    )
    _check_corners(row)


# --- masks --------------------------------------------------------------------------------------


def _masks(rng: Random) -> Case:
    folder, kind = rng.choice((("masks", np.uint8), ("masks", np.uint8), ("depth", np.uint16)))
    random, case = np.random.default_rng(rng.randrange(2**32)), {}
    for name, content in images().items():
        data = _png(random.integers(0, 20, _SIDES).astype(kind))
        choice = rng.random()
        if choice < 0.15:
            data = odd_png(rng, data)
        elif choice < 0.25:
            data = mutate.mutate_bytes(rng, data, end=60)
        elif choice < 0.4:
            data = _other_mask(rng, random)
        case |= {f"images/{name}": content, f"{folder}/{Path(name).stem}.png": data}
    if rng.random() < 0.2:
        del case[rng.choice(list(case))]
    return case


def _other_mask(rng: Random, random: np.random.Generator) -> bytes:
    """Return a mask of another kind, or an image that is none."""
    values = random.integers(0, 20, _SIDES).astype(np.uint8)
    palette = Image.fromarray(values, "P")
    palette.putpalette(random.integers(0, 256, 768).astype(np.uint8).tolist())
    kinds = (
        lambda: _png(values.T.copy()),
        lambda: _png(values.astype(np.uint16) * 20),
        lambda: _png(np.repeat(values[..., None], 3, 2)),
        lambda: _png(random.integers(0, 255, (*_SIDES, 4)).astype(np.uint8)),
        lambda: _saved(palette),
        lambda: _saved(palette, bits=4),
        lambda: _saved(Image.fromarray(values > 9)),
        lambda: (
            _png(values)[:33] + png_chunk(b"eXIf", bytes(rng.randrange(40))) + _png(values)[33:]
        ),
        lambda: rng.choice(list(images().values())),
        bytes,
    )
    return rng.choice(kinds)()


def _png(pixels: np.ndarray) -> bytes:
    return _saved(Image.fromarray(pixels))


def _saved(image: Image.Image, **options: Any) -> bytes:
    out = io.BytesIO()
    image.save(out, "png", **options)
    return out.getvalue()


def _check_mask(case: Case, row: dict[str, Any]) -> None:
    require(row["mask_source"] in case, f"no such mask: {row['mask_source']}")
    require(
        Path(row["mask_source"]).stem == Path(row["source"]).stem,
        f"the mask of another image: {row}",
    )


# --- columns of labels --------------------------------------------------------------------------

_VALUES: dict[str, Callable[[Random], Any]] = {
    "class": lambda rng: rng.choice(("cat", "dog")),
    "number": lambda rng: rng.randrange(4),
    "multi-label": lambda rng: rng.choice(("cat|dog", "cat", "", "dog|cat|owl")),
    "list": lambda rng: rng.choice(([], [0, 1], [2], ["cat"], [1, 1])),
    "age": lambda rng: rng.choice((1.5, 2, 33.25, 1e30)),
    "vector": lambda rng: [rng.random(), 2.0],
    "caption": lambda rng: rng.choice(("a cat", "two\nlines", "dog | cat", "x" * 300)),
    "captions": lambda rng: rng.choice((["a cat"], ["two\nlines", "a"], [])),
}
_ODD_LABELS = (
    *(None, "", "nan", "-1", "1e400", -1, 2**40, [None], ["\0"], {"a": 1}, "cat||dog", "1;2"),
    *("\udc80", [[1]]),
)


def _labels(rng: Random) -> Case:
    kind = rng.choice(list(_VALUES))
    column = rng.choice(("label", "tags", "caption", "age"))
    rows = [{"path": name, column: _VALUES[kind](rng)} for name in images()]
    for _ in range(rng.choice((0, 1, 1, 3))):
        rng.choice(rows)[column] = rng.choice((*_ODD_LABELS, mutate.odd_text(rng)[:500]))
    options = ["--src", "", "--label-column", column]
    if rng.random() < 0.5:
        options += [
            "--label-type",
            rng.choice(("class", "multi-label", "regression", "caption", "captions", "none")),
        ]
    options += rng.choice(
        ([], [], ["--label-separator", rng.choice(("|", ";", " "))], ["--val-fraction", "0.4"])
    )
    suffix, data = _written(rng, rows, column)
    options[1] = f"rows{suffix}"
    data = mutate.mutate_bytes(rng, data) if rng.random() < 0.1 else data
    return {**images(), options[1]: data, "options": json.dumps(options).encode()}


def _written(rng: Random, rows: list[dict[str, Any]], column: str) -> tuple[str, bytes]:
    kind = rng.randrange(3)
    if kind == 0:
        out = io.StringIO()
        writer = csv.DictWriter(out, ["path", column], delimiter=rng.choice((",", ";", "\t")))
        writer.writeheader()
        writer.writerows(rows)
        return ".csv", out.getvalue().encode("utf-8", "surrogatepass")
    if kind == 1:
        try:
            table = pa.Table.from_pylist(rows)
        except (pa.ArrowException, OverflowError, UnicodeError):
            table = pa.table(
                {
                    "path": [row["path"] for row in rows],
                    column: [ascii(row[column]) for row in rows],
                }
            )
        parquet = io.BytesIO()
        pq.write_table(table, parquet)
        return ".parquet", parquet.getvalue()
    return ".jsonl", b"".join(mutate.dump_json(row) + b"\n" for row in rows)


def _check_labels(case: Case, row: dict[str, Any]) -> None:
    require(Path(row["source"]).name in case, f"no such image: {row['source']}")
    classes = row["manifest"]["classes"]
    for label in (
        [row["label"]]
        if row.get("label") is not None and "label_type" not in row["manifest"]
        else []
    ):
        require(0 <= label < len(classes), f"the label {label} is no class")
    if row["manifest"].get("label_type") == "multi-label":
        require(
            row["labels"] == sorted({*row["labels"]} & {*range(len(classes))}),
            f"odd labels: {row['labels']}",
        )
    if row["manifest"].get("label_type") == "regression":
        require(np.isfinite(row["values"]).all(), f"odd values: {row['values']}")


SURFACES = {
    "coco": Source(_coco, _check_coco), "voc": Source(_voc, _check_voc),
    "masks": Source(_masks, _check_mask), "labels": Source(_labels, _check_labels),
}  # fmt: skip
