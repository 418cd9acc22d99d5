"""Folders as tools export them: a function for each layout writes one, and returns what is in it.

Each layout follows the format's own documentation, which the function names. Images are crops of
photographs.
"""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image

from dataprep.sources import Source
from helpers import annotated
from helpers.pictures import encode

#: Classes in an order of their own, and the boxes of five images: class, x1, y1, x2, y2 in pixels.
#: The third image has none.
NAMES = ("dog", "cat", "bird")
BOXES: tuple[tuple[tuple[Any, ...], ...], ...] = (
    (("cat", 8, 12, 72, 60), ("dog", 40, 30, 120, 90)),
    (("dog", 0, 0, 131, 97),),
    (),
    (("bird", 20, 10, 60, 50), ("bird", 100, 8, 180, 72), ("cat", 4, 4, 44, 44)),
    (("cat", 10, 20, 50, 100),),
)


class Expected(NamedTuple):
    """What a source contains.

    Attributes:
        label_type: type of the labels.
        classes: class names in label order.
        samples: split and label by path. A class is a name, several are a list of names, and boxes
            are a list of class, x1, y1, x2, y2 in pixels.
        notices: texts that the notices contain.

    """

    label_type: str
    classes: Sequence[str]
    samples: Mapping[str, tuple[str, Any]]
    notices: Sequence[str] = ()


Make = Callable[[Path], Expected]
Samples = dict[str, tuple[str, Any]]


def samples_of(source: Source, root: Path | None = None) -> dict[str, tuple[str, Any]]:
    """Return split and label of each image by its path, as `Expected` has them."""
    # The images are files in `root`, by default in the root of the source.
    found = {}
    extra = source.extra.to_pylist() if source.extra.column_names else [{}] * len(source)
    for row, path in enumerate(source.path.to_pylist()):
        columns = extra[row]
        if source.label_type == "class":
            label = source.classes[source.label[row]]
        elif source.label_type == "multi-label":
            label = [source.classes[each] for each in columns["labels"]]
        elif source.label_type == "caption":
            label = columns["caption"]
        else:
            image = path.removeprefix("packed.zip/source/")
            label = boxes_of(columns, source.classes, Path(root or source.root, image))
        found[path] = source.splits[source.split[row]], label
    return found


def boxes_of(
    columns: Mapping[str, Any], classes: Sequence[str], image: str
) -> list[tuple[Any, ...]]:
    """Return the boxes of an image: class and corners in pixels."""
    unit = 1, 1
    if (columns["annotated_width"], columns["annotated_height"]) == (1, 1):
        with Image.open(image) as opened:
            unit = opened.size
    boxes = []
    for label, corners in zip(columns["box_labels"], columns["boxes"], strict=True):
        sides = np.array(corners) * [*unit, *unit]
        boxes.append((classes[label], *(round(side, 3) for side in sides.tolist())))
    return boxes


def check_content(read: Callable[[Path], Source], make: Make, folder: Path) -> Expected:
    """Write a layout, and check that exactly what is in it is read; return what is in it."""
    expected = make(folder)
    source = read(folder)
    assert source.label_type == expected.label_type
    assert list(source.classes) == list(expected.classes)
    assert samples_of(source) == expected.samples
    for text in expected.notices:
        assert any(text in notice for notice in source.notices), source.notices
    assert not source.rejected
    return expected


@cache
def picture(number: int, suffix: str = "jpg") -> bytes:
    """Return one of five photographs of different sizes as a file."""
    return encode(annotated.pictures()[number], suffix)


def write(folder: Path, name: str, content: str | bytes) -> None:
    """Write a file in a folder."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def write_pictures(folder: Path, names: Iterable[str]) -> list[str]:
    """Write the five photographs under these names; return the names."""
    found = [*names]
    for number, name in enumerate(found):
        write(folder, name, picture(number, name.rpartition(".")[2]))
    return found


def boxed(names: Sequence[str], numbers: Iterable[int], split: str = "train") -> Samples:
    """Return the boxes of some pictures as an `Expected` has them."""
    pairs = zip(names, numbers, strict=True)
    return {name: (split, [*BOXES[number]]) for name, number in pairs}


# --- COCO -----------------------------------------------------------------------------------------


def coco(
    names: Sequence[str],
    numbers: Iterable[int],
    categories: Sequence[Mapping[str, Any]],
    *,
    key: str = "file_name",
    more: Mapping[str, Any] | None = None,
) -> str:
    """Return annotations in COCO's format: of images with these names, the boxes of the pictures."""
    ids = {each["name"]: each["id"] for each in categories}
    images, annotations = [], []
    for name, number in zip(names, numbers, strict=True):
        height, width = annotated.SIZES[number]
        image = {"id": 10 + number, key: name, "width": width, "height": height}
        images.append({**image, **(more or {})})
        for category, x1, y1, x2, y2 in BOXES[number]:
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": 10 + number,
                    "category_id": ids[category],
                    "bbox": [x1, y1, x2 - x1, y2 - y1],
                    "area": (x2 - x1) * (y2 - y1),
                }
            )
    return json.dumps({"images": images, "categories": categories, "annotations": annotations})


def _categories(first: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [{"id": first + at, "name": name, **more} for at, name in enumerate(NAMES)]


def make_roboflow_coco(folder: Path) -> Expected:
    """Roboflow, "COCO JSON": a file in train/, valid/ and test/, and a category 0 above all others.

    https://roboflow.com/formats/coco-json
    """
    above = {"id": 0, "name": "pets", "supercategory": "none"}
    categories = [above, *_categories(1, supercategory="pets")]
    samples: Samples = {}
    for place, split, numbers in (("train", "train", (0, 1, 2)), ("valid", "val", (3, 4))):
        names = [f"{number}_jpg.rf.0a1b2c.jpg" for number in numbers]
        for number, name in zip(numbers, names, strict=True):
            write(folder, f"{place}/{name}", picture(number))
        write(folder, f"{place}/_annotations.coco.json", coco(names, numbers, categories))
        samples |= boxed([f"{place}/{name}" for name in names], numbers, split)
    write(folder, "README.roboflow.txt", "https://roboflow.com")
    notice = "valid/_annotations.coco.json: left out the category 0, 'pets', above all others"
    return Expected("boxes", NAMES, samples, [notice, "1 image without a box"])


def make_lvis(folder: Path) -> Expected:
    """LVIS v1: no file names but URLs, and images of both splits in train2017/."""
    # https://www.lvisdataset.org/dataset
    samples: Samples = {}
    for split, numbers in (("train", (0, 1)), ("val", (3, 4))):
        names = [f"train2017/{number:012d}.jpg" for number in numbers]
        urls = [f"http://images.cocodataset.org/{name}" for name in names]
        more = {"neg_category_ids": [2], "not_exhaustive_category_ids": []}
        text = coco(urls, numbers, _categories(synset="x.n.01"), key="coco_url", more=more)
        write(folder, f"lvis_v1_{split}.json", text)
        for number, name in zip(numbers, names, strict=True):
            write(folder, name, picture(number))
        samples |= boxed(names, numbers, split)
    return Expected("boxes", NAMES, samples, ["neg_category_ids of 2 images are not converted"])


def make_lvis_05(folder: Path) -> Expected:
    """LVIS v0.5: file names of COCO 2014 for images that are called as in 2017."""
    # `load_lvis_json` of detectron2, `LVISV05Dataset` of MMDetection.
    names = [f"{number:012d}.jpg" for number in range(5)]
    old = [f"COCO_train2014_{name}" for name in names]
    write(folder, "annotations/lvis_v0.5_train.json", coco(old, range(5), _categories()))
    samples = boxed(write_pictures(folder, [f"train/{name}" for name in names]), range(5))
    notice = "'COCO_train2014_000000000000.jpg' is read as '000000000000.jpg'"
    return Expected("boxes", NAMES, samples, [notice])


def make_objects365(folder: Path) -> Expected:
    """Objects365 v2: file names have folders that the archives do not have."""
    # https://www.objects365.org, `Objects365V2Dataset` of MMDetection
    samples: Samples = {}
    for split, numbers in (("train", (0, 1, 2)), ("val", (3, 4))):
        names = [f"patch{number}/objects365_v1_{number:08d}.jpg" for number in numbers]
        stated = [f"images/v1/{name}" for name in names]
        write(folder, f"zhiyuan_objv2_{split}.json", coco(stated, numbers, _categories()))
        for number, name in zip(numbers, names, strict=True):
            write(folder, f"{split}/{name}", picture(number))
        samples |= boxed([f"{split}/{name}" for name in names], numbers, split)
    return Expected("boxes", NAMES, samples, ["is read as 'patch0/objects365_v1_00000000.jpg'"])


#: Tools that export images and one file of COCO: the path of an image, its name in the file, the
#: file, and the first number of a category.
COCO_TOOLS = {
    # FiftyOne, `COCODetectionDataset`
    "fiftyone-coco": ("data/{}.jpg", "{}.jpg", "labels.json", 0),
    # Label Studio, "COCO"
    "label-studio-coco": ("images/0a1b2c-{}.jpg", "images/0a1b2c-{}.jpg", "result.json", 0),
    # CVAT, "COCO 1.0"
    "cvat-coco": ("images/default/{}.jpg", "{}.jpg", "annotations/instances_default.json", 1),
}


def make_coco_of_tool(tool: str, folder: Path) -> Expected:
    """The export of one of the tools above."""
    path, name, file, first = COCO_TOOLS[tool]
    names = write_pictures(folder, [path.format(number) for number in range(5)])
    stated = [name.format(number) for number in range(5)]
    write(folder, file, coco(stated, range(5), _categories(first)))
    return Expected("boxes", NAMES, boxed(names, range(5)))


def _inat_json(names: Sequence[str], labels: Sequence[str], species: Sequence[str]) -> str:
    images = [
        {"id": at, "file_name": name, "width": 9, "height": 9} for at, name in enumerate(names)
    ]
    annotations = [
        {"id": at, "image_id": at, "category_id": species.index(label)}
        for at, label in enumerate(labels)
    ]
    categories = [
        {"id": at, "name": name, "supercategory": "Birds"} for at, name in enumerate(species)
    ]
    found = {"info": {"year": 2021}, "images": images, "categories": categories}
    return json.dumps({**found, "annotations": annotations, "licenses": []})


SPECIES = ("Pica pica", "Larus fuscus", "Corvus corax")


def make_inaturalist_2019(folder: Path) -> Expected:
    """iNaturalist 2017 to 2019: train2019.json, val2019.json, test2019.json and the images."""
    # https://github.com/visipedia/inat_comp, "Annotation Format"
    names = write_pictures(folder, [f"train_val2019/Birds/{at % 3}/{at}0ab.jpg" for at in range(5)])
    labels = [SPECIES[at % 3] for at in range(5)]
    write(folder, "train2019.json", _inat_json(names[:3], labels[:3], SPECIES))
    write(folder, "val2019.json", _inat_json(names[3:], labels[3:], SPECIES))
    write(folder, "test2019/00.jpg", picture(0))
    images = [{"id": 1, "file_name": "test2019/00.jpg", "width": 9, "height": 9}]
    write(folder, "test2019.json", json.dumps({"info": {}, "images": images}))
    splits = ["train"] * 3 + ["val"] * 2
    samples = dict(zip(names, zip(splits, labels, strict=True), strict=True))
    return Expected("class", SPECIES, samples, ["skipped test2019.json: it has no annotations"])


def make_inaturalist_2021(folder: Path) -> Expected:
    """iNaturalist 2021: train.json, and folders that torchvision's `INaturalist` reads, too."""
    folders = [
        f"{at:05d}_Animalia_Chordata_Aves_X_Y_{name.replace(' ', '_')}"
        for at, name in enumerate(SPECIES)
    ]
    names = [f"train/{folders[number % 3]}/{number}.jpg" for number in range(5)]
    labels = [SPECIES[number % 3] for number in range(5)]
    write_pictures(folder, names)
    write(folder, "train.json", _inat_json(names, labels, SPECIES))
    samples = {name: ("train", label) for name, label in zip(names, labels, strict=True)}
    return Expected("class", SPECIES, samples)


def make_visual_wake_words(folder: Path) -> Expected:
    """Visual Wake Words: boxes of persons, in images of COCO's train and val in one folder."""
    # https://github.com/Mxbonn/visualwakewords, scripts/create_visualwakewords_annotations.py
    categories = [
        {"id": 0, "name": "not-dog", "supercategory": "background"},
        {"id": 1, "name": "dog", "supercategory": "animal"},
    ]
    samples: Samples = {}
    for split in ("train", "val"):
        names = [f"COCO_{split}2014_{number:012d}.jpg" for number in (1, 2)]
        write(folder, f"annotations/instances_{split}.json", coco(names, (1, 2), categories))
        for number, name in enumerate(names, 1):
            write(folder, f"all2014/{name}", picture(number))
        samples |= boxed([f"all2014/{name}" for name in names], (1, 2), split)
    return Expected("boxes", ["not-dog", "dog"], samples)


# --- YOLO -----------------------------------------------------------------------------------------


def yolo(number: int, *, polygon: bool = False, points: str = "") -> str:
    """Return the labels of a picture as YOLO has them."""
    height, width = annotated.SIZES[number]
    lines = []
    for name, x1, y1, x2, y2 in BOXES[number]:
        values = [(x1 + x2) / 2 / width, (y1 + y2) / 2 / height]
        values += [(x2 - x1) / width, (y2 - y1) / height]
        if polygon:
            corners = ((x1, y1), (x2, y1), (x2, y2), ((x1 + x2) / 2, y2), (x1, y2))
            values = [side for x, y in corners for side in (x / width, y / height)]
        lines.append(f"{NAMES.index(name)} {' '.join(f'{each:.9f}' for each in values)}{points}")
    return "".join(f"{line}\n" for line in lines)


#: The split of each picture.
SPLITS = ("train", "train", "train", "val", "val")


def write_pairs(
    folder: Path,
    image: str,
    label: str,
    text: Callable[[int], str],
    splits: Mapping[str, str] | None = None,
) -> Samples:
    """Write the pictures with a file of labels each; return split and boxes by path.

    Args:
        folder: where to write.
        image: path of an image, with {split} and {n}.
        label: path of its labels.
        text: returns the labels of a picture.
        splits: names of the folders of the splits.

    """
    samples: Samples = {}
    for number, split in enumerate(SPLITS):
        named = (splits or {}).get(split, split)
        path = image.format(split=named, n=number)
        write(folder, path, picture(number))
        write(folder, label.format(split=named, n=number), text(number))
        samples |= boxed([path], [number], split if "{split}" in image else "train")
    return samples


ROBOFLOW = {"val": "valid"}


def make_ultralytics(folder: Path, **form: Any) -> Expected:
    """Ultralytics: images/SPLIT, labels/SPLIT, and a YAML file with a mapping of names."""
    # https://docs.ultralytics.com/datasets/detect/
    samples = write_pairs(
        folder, "images/{split}/{n}.jpg", "labels/{split}/{n}.txt", partial(yolo, **form)
    )
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(NAMES))
    paths = "path: ../datasets/pets  # root\ntrain: images/train\nval: images/val\ntest:\n"
    write(folder, "pets.yaml", f"{paths}names:\n{names}")
    return Expected("boxes", NAMES, samples, ["1 image without a box"])


def make_ultralytics_background(folder: Path) -> Expected:
    """Ultralytics: an image without objects needs no label file; test/ has no labels at all."""
    expected = make_ultralytics(folder)
    (folder / "labels/train/2.txt").unlink()
    write(folder, "test/9.jpg", picture(0))
    notices = [
        "1 image without a .txt file: no objects",
        "skipped test/: its images have no labels",
    ]
    return expected._replace(notices=notices)


#: The names of the classes, one a line.
LINES = "".join(f"{name}\n" for name in NAMES)
_LIST = "".join(f"data/obj_train_data/{number}.jpg\n" for number in range(5))

#: Tools that write a file of YOLO for each image: the paths of both, and other files.
YOLO_TOOLS: dict[str, tuple[str, str, dict[str, str]]] = {
    # https://roboflow.com/formats/yolov8-pytorch-txt
    "roboflow-yolo": ("{split}/images/{n}_jpg.rf.0a.jpg", "{split}/labels/{n}_jpg.rf.0a.txt",
        {"data.yaml": ("train: ../train/images\nval: ../valid/images\ntest: ../test/images\n\nnc: 3\n" "names: ['dog', 'cat', 'bird']\n\nroboflow:\n  version: 1\n")}),
    # https://roboflow.com/formats/yolo-darknet-txt
    "roboflow-darknet": ("{split}/{n}.jpg", "{split}/{n}.txt",
        {"train/_darknet.labels": LINES.rstrip(), "valid/_darknet.labels": LINES.rstrip()}),
    # https://labelstud.io/guide/export
    "label-studio-yolo": ("images/{n}.jpg", "labels/{n}.txt",
        {"classes.txt": LINES.rstrip(), "notes.json": '{"categories": [], "info": {}}'}),
    # https://docs.cvat.ai/docs/manual/advanced/formats/format-yolo/
    "cvat-yolo": ("obj_train_data/{n}.jpg", "obj_train_data/{n}.txt",
        {"obj.names": LINES,
        "obj.data": "classes = 3\ntrain = data/train.txt\nnames = data/obj.names\n",
        "train.txt": _LIST}),
    # https://github.com/HumanSignal/labelImg#steps-yolo
    "labelimg-yolo": ("{n}.jpg", "{n}.txt", {"classes.txt": LINES}),
}  # fmt: skip


def make_yolo_of_tool(tool: str, folder: Path) -> Expected:
    """The export of one of the tools above."""
    image, label, files = YOLO_TOOLS[tool]
    samples = write_pairs(folder, image, label, yolo, ROBOFLOW)
    for name, text in files.items():
        write(folder, name, text)
    return Expected("boxes", NAMES, samples)


def make_yolo_lists(folder: Path) -> Expected:
    """Ultralytics and darknet: lists of the images of each split."""
    # https://docs.ultralytics.com/datasets/detect/, `train: train.txt`
    samples = write_pairs(folder, "images/{n}.jpg", "labels/{n}.txt", yolo)
    write(folder, "data.yaml", f"train: train.txt\nval: val.txt\nnames: {json.dumps(NAMES)}\n")
    found = {}
    for split, (path, (_, boxes)) in zip(SPLITS, samples.items(), strict=True):
        with (folder / f"{split}.txt").open("a") as file:
            file.write(f"./{path}\n")
        found[path] = split, boxes
    return Expected("boxes", NAMES, found)


def make_yolo_segmentation(folder: Path) -> Expected:
    """Ultralytics, segmentation: a class and the corners of a polygon."""
    # https://docs.ultralytics.com/datasets/segment/
    expected = make_ultralytics(folder, polygon=True)
    return expected._replace(notices=["read the boxes around 7 polygons"])


def make_yolo_pose(folder: Path) -> Expected:
    """Ultralytics, pose: a box and key points. https://docs.ultralytics.com/datasets/pose/"""
    expected = make_ultralytics(folder, points=" 0.5 0.5 2 0 0 0")
    with (folder / "pets.yaml").open("a") as file:
        file.write("kpt_shape: [2, 3]\n")
    return expected._replace(notices=["left out the key points of all objects"])


# --- Pascal VOC -----------------------------------------------------------------------------------


def voc(number: int) -> str:
    """Return the annotations of a picture as Pascal VOC has them; the first pixel is number 1."""
    height, width = annotated.SIZES[number]
    objects = []
    for name, x1, y1, x2, y2 in BOXES[number]:
        corners = f"<xmin>{x1 + 1}</xmin><ymin>{y1 + 1}</ymin><xmax>{x2}</xmax><ymax>{y2}</ymax>"
        objects.append(f"<object><name>{name}</name><bndbox>{corners}</bndbox></object>")
    size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
    return f"<annotation><filename>{number}.jpg</filename>{size}{''.join(objects)}</annotation>"


#: Tools that write a file of Pascal VOC for each image: the paths of both.
VOC_TOOLS = {
    # https://roboflow.com/formats/pascal-voc-xml
    "roboflow-voc": ("{split}/{n}.jpg", "{split}/{n}.xml"),
    # https://github.com/HumanSignal/labelImg#steps-pascalvoc
    "labelimg-voc": ("{n}.jpg", "{n}.xml"),
    # https://www.kaggle.com/datasets/andrewmvd/face-mask-detection, and many others
    "kaggle-voc": ("images/{n}.jpg", "annotations/{n}.xml"),
}


def make_voc_of_tool(tool: str, folder: Path) -> Expected:
    """The export of one of the tools above."""
    samples = write_pairs(folder, *VOC_TOOLS[tool], voc, ROBOFLOW)
    write(folder, "README.dataset.txt", "pets")
    return Expected("boxes", sorted(NAMES), samples)


# --- tables beside the images ---------------------------------------------------------------------

LABELS = ("cat", "dog", "cat", "dog", "dog")
TEXTS = ("a cat", "a dog, sitting", "two cats", "a dog", "a dog")


def make_metadata_csv(folder: Path) -> Expected:
    """Hugging Face, `imagefolder`: metadata.csv in the folder of each split."""
    # https://huggingface.co/docs/datasets/image_dataset
    samples = {}
    for place, split, numbers in (("train", "train", (0, 1, 2)), ("validation", "val", (3, 4))):
        lines = ["file_name,label"]
        for number in numbers:
            write(folder, f"{place}/{number:04d}.jpg", picture(number))
            lines.append(f"{number:04d}.jpg,{LABELS[number]}")
            samples[f"{place}/{number:04d}.jpg"] = split, LABELS[number]
        write(folder, f"{place}/metadata.csv", "\n".join(lines))
    return Expected("class", ["cat", "dog"], samples)


def make_metadata_text(folder: Path) -> Expected:
    """Hugging Face, `imagefolder`: one metadata.jsonl for all images, with a column of captions."""
    names = write_pictures(folder, [f"images/{number}.jpg" for number in range(5)])
    rows = zip(names, TEXTS, strict=True)
    lines = [json.dumps({"file_name": name, "text": text}) for name, text in rows]
    write(folder, "metadata.jsonl", "\n".join(lines))
    write(folder, "images/unlisted.jpg", picture(0))
    samples = {name: ("train", text) for name, text in zip(names, TEXTS, strict=True)}
    return Expected("caption", [], samples, ["skipped 1 image that no table lists"])


def make_metadata_parquet(folder: Path) -> Expected:
    """Hugging Face, `imagefolder`: one metadata.parquet whose paths have the folders of splits."""
    names = [f"{split}/{number}.jpg" for number, split in enumerate(SPLITS)]
    write_pictures(folder, names)
    table = pa.table({"file_name": names, "label": LABELS})
    pq.write_table(table, folder / "metadata.parquet")
    samples = dict(zip(names, zip(SPLITS, LABELS, strict=True), strict=True))
    return Expected("class", ["cat", "dog"], samples, ["the folders of splits in the paths"])


def make_metadata_objects(folder: Path, place: str = "train", *, names: bool = False) -> Expected:
    """Hugging Face, `imagefolder`, object detection: boxes with numbers of classes, or with names."""
    paths = write_pictures(folder, [f"{place}/{number}.jpg" for number in range(5)])
    lines = []
    samples: Samples = {}
    for number, path in enumerate(paths):
        labels = [each if names else NAMES.index(each) for each, *_ in BOXES[number]]
        boxes = [[x1, y1, x2 - x1, y2 - y1] for _, x1, y1, x2, y2 in BOXES[number]]
        objects = {"bbox": boxes, "category" if names else "categories": labels}
        lines.append(json.dumps({"file_name": f"{number}.jpg", "objects": objects}))
        corners = [sides for _, *sides in BOXES[number]]
        pairs = zip(labels, corners, strict=True)
        samples[path] = "train", [(str(label), *sides) for label, sides in pairs]
    write(folder, f"{place}/metadata.jsonl", "\n".join(lines))
    return Expected("boxes", sorted(NAMES) if names else ["0", "1", "2"], samples)


def make_metadata_object_names(folder: Path) -> Expected:
    """The same with names of classes, in a folder called data."""
    return make_metadata_objects(folder, "data/train", names=True)


def make_roboflow_classes(folder: Path) -> Expected:
    """Roboflow, "Multi-Label Classification": a header with blanks, 0 or 1 for each class."""
    # https://roboflow.com/formats/multi-label-classification-csv
    samples: Samples = {}
    for place, split, numbers in (("train", "train", (0, 1, 2)), ("valid", "val", (3, 4))):
        lines = ["filename, dog, cat, bird"]
        for number in numbers:
            name = f"{number}_jpg.rf.0a.jpg"
            found = {each[0] for each in BOXES[number]}
            lines.append(", ".join([name, *(str(int(each in found)) for each in NAMES)]))
            write(folder, f"{place}/{name}", picture(number))
            samples[f"{place}/{name}"] = split, [each for each in NAMES if each in found]
        write(folder, f"{place}/_classes.csv", "\n".join(lines) + "\n")
    return Expected("multi-label", NAMES, samples)


def make_roboflow_folders(folder: Path) -> Expected:
    """Roboflow, "Folder Structure": class folders in train/, valid/ and test/."""
    samples = {}
    for number, split in enumerate(SPLITS):
        path = f"{ROBOFLOW.get(split, split)}/{LABELS[number]}/{number}_jpg.rf.0a.jpg"
        write(folder, path, picture(number))
        samples[path] = split, LABELS[number]
    write(folder, "README.roboflow.txt", "https://roboflow.com")
    return Expected("class", ["cat", "dog"], samples)


def make_class_tars(folder: Path) -> Expected:
    """ImageNet-21k, "winter21_whole": a tar for each class, by its WordNet ID."""
    # https://github.com/Alibaba-MIIL/ImageNet21K, dataset_preprocessing/processing_instructions.md
    folder.mkdir(parents=True, exist_ok=True)
    classes = ("n01440764", "n01443537")
    samples: Samples = {}
    for name, numbers in zip(classes, ((0, 2), (1, 3, 4)), strict=True):
        with tarfile.open(folder / f"{name}.tar", "w") as archive:
            for number in numbers:
                info = tarfile.TarInfo(f"{name}_{number}.JPEG")
                info.size = len(picture(number))
                archive.addfile(info, io.BytesIO(picture(number)))
                samples[f"{name}.tar/{info.name}"] = "train", name
    return Expected("class", classes, samples)


def make_class_zips(folder: Path) -> Expected:
    """A zip for each class."""
    folder.mkdir(parents=True, exist_ok=True)
    classes = ("cat", "dog")
    samples: Samples = {}
    for name, numbers in zip(classes, ((0, 2), (1, 3, 4)), strict=True):
        with zipfile.ZipFile(folder / f"{name}.zip", "w") as archive:
            for number in numbers:
                archive.writestr(f"{name}/{number}.JPEG", picture(number))
                samples[f"{name}.zip/{name}/{number}.JPEG"] = "train", name
    return Expected("class", classes, samples)


#: The layouts by name.
LAYOUTS: dict[str, Make] = {
    **{tool: partial(make_coco_of_tool, tool) for tool in COCO_TOOLS},
    **{tool: partial(make_yolo_of_tool, tool) for tool in YOLO_TOOLS},
    **{tool: partial(make_voc_of_tool, tool) for tool in VOC_TOOLS},
    "roboflow-coco": make_roboflow_coco, "lvis-v1": make_lvis, "lvis-v0.5": make_lvis_05,
    "objects365": make_objects365, "inaturalist-2019": make_inaturalist_2019,
    "inaturalist-2021": make_inaturalist_2021, "visual-wake-words": make_visual_wake_words,
    "ultralytics": make_ultralytics, "ultralytics-background": make_ultralytics_background,
    "yolo-lists": make_yolo_lists, "yolo-segmentation": make_yolo_segmentation,
    "yolo-pose": make_yolo_pose, "metadata-csv": make_metadata_csv,
    "metadata-text": make_metadata_text, "metadata-parquet": make_metadata_parquet,
    "metadata-objects": make_metadata_objects, "metadata-object-names": make_metadata_object_names,
    "roboflow-classes": make_roboflow_classes, "roboflow-folders": make_roboflow_folders,
    "class-tars": make_class_tars, "class-zips": make_class_zips,
}  # fmt: skip

#: The layouts that are not read inside of an archive.
NOT_IN_ARCHIVES = ("class-tars", "class-zips")
