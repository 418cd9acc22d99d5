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
from helpers.pictures import encode
from PIL import Image

from fuzz import mutate
from fuzz.checks import Case, require
from fuzz.encoded import odd_png
from fuzz.seeds import images
from fuzz.sources import Made, Source, each_row

#: Height and width of the images of `seeds.images`.
_SIDES = (12, 16)


# --- COCO ---------------------------------------------------------------------------------------


def _coco_json() -> dict[str, Any]:
    numbered, boxes = [], []
    for number, name in enumerate(images()):
        numbered.append({"id": number, "file_name": name, "width": 16, "height": 12})
    for number in range(9):
        box = {"id": number, "image_id": number % 5, "category_id": (1, 2, 7)[number % 3]}
        more = {"iscrowd": 0, "area": 12.0, "segmentation": [[1, 2, 3, 4]]}
        boxes.append({**box, "bbox": [number, 1.5, 3, 4], **more})
    categories = [{"id": each, "name": f"c{each}", "supercategory": "x"} for each in (1, 2, 7)]
    body = {"info": {"year": 2017}, "images": numbered, "annotations": boxes}
    return {**body, "categories": categories}


def _coco(rng: Random) -> Case:
    body, name = _coco_json(), "instances_train.json"
    if rng.random() < 0.2:
        name = "captions_train.json"
        captions = [{"id": n, "image_id": n, "caption": f"picture {n}"} for n in range(7)]
        body["annotations"] = captions
    if rng.random() < 0.7:
        body = mutate.mutate_json(rng, body)
    data = mutate.dump_json(body, **rng.choice(({}, {}, {"indent": 1})))
    if rng.random() < 0.3:
        data = mutate.mutate_bytes(rng, data)
    case = {f"train/{image}": content for image, content in images().items()}
    return {**case, f"annotations/{name}": data}


def _check_coco(case: Case, row: dict[str, Any], made: Made) -> None:
    (data,) = (case[name] for name in case if name.startswith("annotations/"))
    body = json.loads(data.decode("utf-8-sig"))
    found = [each for each in body["annotations"] if each["image_id"] == row["image_id"]]
    names = [each["file_name"] for each in body["images"] if each["id"] == row["image_id"]]
    require(len(names) == 1, f"the image {row['image_id']} is stated {len(names)} times")
    is_same = Path(names[0]).name == Path(row["source"]).name
    require(is_same, f"another image: {names[0]}, but {row['source']}")
    if "captions" in row:
        texts = [" ".join(each["caption"].split()) for each in found]
        require(texts == row["captions"], f"other captions: {texts}, but {row['captions']}")
        return
    require(len(row["boxes"]) <= len(found), "there are more boxes than annotations")
    category = {each["id"]: each["name"] for each in body["categories"]}
    allowed = [category[each["category_id"]] for each in found]
    _check_boxes(row, allowed, made)


def _check_boxes(row: dict[str, Any], allowed: list[str], made: Made) -> None:
    found = {made.manifest["classes"][label] for label in row["box_labels"]}
    require(found <= {*allowed}, f"a box has another class: {found}, not {allowed}")
    size = (row["annotated_width"], row["annotated_height"])
    for left, top, right, bottom in row["boxes"]:
        is_inside = 0 <= left < right <= size[0] and 0 <= top < bottom <= size[1]
        require(is_inside, f"a box is outside: {row}")


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
        data, kind = text.encode(), rng.random()
        if number != changed:
            pass
        elif kind < 0.4:
            data = mutate.mutate_text(rng, text).encode("utf-8", "surrogatepass")
        elif kind < 0.6:
            at = rng.randrange(len(text) + 1)
            data = (text[:at] + rng.choice(_ODD_XML) + text[at:]).encode()
        else:
            data = mutate.mutate_bytes(rng, data)
        case |= {f"JPEGImages/{name}": content, f"Annotations/{Path(name).stem}.xml": data}
    if rng.random() < 0.3:
        stems = mutate.mutate_text(rng, "".join(f"{Path(name).stem}\n" for name in images()))
        case["ImageSets/Main/train.txt"] = stems.encode("utf-8", "surrogatepass")
    return case


def _check_voc(case: Case, row: dict[str, Any], made: Made) -> None:
    root = ElementTree.fromstring(case[f"Annotations/{Path(row['source']).stem}.xml"])
    names = [(each.findtext("name") or "").strip() for each in root.findall("object")]
    require(len(row["boxes"]) <= len(names), "there are more boxes than objects")
    _check_boxes(row, names, made)


# --- masks --------------------------------------------------------------------------------------


def _masks(rng: Random) -> Case:
    folder, kind = rng.choice((("masks", np.uint8), ("masks", np.uint8), ("depth", np.uint16)))
    random, case = np.random.default_rng(rng.randrange(2**32)), {}
    for name, content in images().items():
        data = encode(random.integers(0, 20, _SIDES).astype(kind), "png")
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
    png = encode(values, "png")
    orientation = png_chunk(b"eXIf", bytes(rng.randrange(40)))
    kinds = (
        lambda: encode(values.T.copy(), "png"),
        lambda: encode(values.astype(np.uint16) * 20, "png"),
        lambda: encode(np.repeat(values[..., None], 3, 2), "png"),
        lambda: encode(random.integers(0, 255, (*_SIDES, 4)).astype(np.uint8), "png"),
        lambda: encode(palette, "png"),
        lambda: encode(palette, "png", bits=4),
        lambda: encode(Image.fromarray(values > 9), "png"),
        lambda: png[:33] + orientation + png[33:],
        lambda: rng.choice(list(images().values())),
        bytes,
    )
    return rng.choice(kinds)()


def _check_mask(case: Case, row: dict[str, Any], made: Made) -> None:
    require(row["mask_source"] in case, f"no such mask: {row['mask_source']}")
    is_same = Path(row["mask_source"]).stem == Path(row["source"]).stem
    require(is_same, f"the mask of another image: {row}")


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


_TYPES = ("class", "multi-label", "regression", "caption", "captions", "none")


def _labels(rng: Random) -> Case:
    kind = rng.choice(list(_VALUES))
    column = rng.choice(("label", "tags", "caption", "age"))
    rows = [{"path": name, column: _VALUES[kind](rng)} for name in images()]
    for _ in range(rng.choice((0, 1, 1, 3))):
        rng.choice(rows)[column] = rng.choice((*_ODD_LABELS, mutate.odd_text(rng)[:500]))
    suffix, data = _written(rng, rows, column)
    options = ["--src", f"rows{suffix}", "--label-column", column]
    if rng.random() < 0.5:
        options += ["--label-type", rng.choice(_TYPES)]
    separator = ["--label-separator", rng.choice(("|", ";", " "))]
    options += rng.choice(([], [], separator, ["--val-fraction", "0.4"]))
    data = mutate.mutate_bytes(rng, data) if rng.random() < 0.1 else data
    return {**images(), f"rows{suffix}": data, "options": json.dumps(options).encode()}


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
            table = pa.Table.from_pylist([{**row, column: ascii(row[column])} for row in rows])
        parquet = io.BytesIO()
        pq.write_table(table, parquet)
        return ".parquet", parquet.getvalue()
    return ".jsonl", b"".join(mutate.dump_json(row) + b"\n" for row in rows)


def _check_labels(case: Case, row: dict[str, Any], made: Made) -> None:
    require(Path(row["source"]).name in case, f"no such image: {row['source']}")
    count, kind = len(made.manifest["classes"]), made.manifest.get("label_type")
    if kind is None and row.get("label") is not None:
        require(0 <= row["label"] < count, f"the label {row['label']} is no class")
    if kind == "multi-label":
        is_sorted = row["labels"] == sorted({*row["labels"]} & {*range(count)})
        require(is_sorted, f"odd labels: {row['labels']}")
    if kind == "regression":
        require(np.isfinite(row["values"]).all(), f"odd values: {row['values']}")


SURFACES = {
    "coco": Source(_coco, each_row(_check_coco)), "voc": Source(_voc, each_row(_check_voc)),
    "masks": Source(_masks, each_row(_check_mask)), "labels": Source(_labels, each_row(_check_labels)),
}  # fmt: skip
