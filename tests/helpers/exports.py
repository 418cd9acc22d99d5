"""Folders as tools export them: a function for each layout writes one, and returns what is in it.

Each layout follows the format's own documentation, which the function names. Images are crops of
photographs.
"""

from __future__ import annotations

import json
import shutil
import tempfile
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
from helpers.datasets import write_csv
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
    """What a source contains; `notices` are texts that its notices contain.

    `samples` has split and label by path. A class is a name, several are a list of names, and boxes
    are a list of class, x1, y1, x2, y2 in pixels.
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
            of = {"id": len(annotations) + 1, "image_id": 10 + number, "category_id": ids[category]}
            width, height = x2 - x1, y2 - y1
            box = {"bbox": [x1, y1, width, height], "area": width * height}
            annotations.append({**of, **box})
    return json.dumps({"images": images, "categories": categories, "annotations": annotations})


def _categories(first: int = 1, **more: Any) -> list[dict[str, Any]]:
    return [{"id": first + at, "name": name, **more} for at, name in enumerate(NAMES)]


def make_coco(
    image: str,
    stated: str,
    file: str,
    splits: Mapping[str, tuple[str, Sequence[int]]],
    categories: Sequence[Mapping[str, Any]],
    folder: Path,
    *,
    notices: Sequence[str] = (),
    classes: Sequence[str] = NAMES,
    **form: Any,
) -> Expected:
    """Write pictures and a file of COCO for each split.

    `image` is the path of an image and `stated` its name in the `file`, with {split} and {n};
    `splits` has split and pictures by the name of a split in the layout.
    """
    samples: Samples = {}
    for place, (split, numbers) in splits.items():
        names = []
        for number in numbers:
            names.append(image.format(split=place, n=number))
            write(folder, names[-1], picture(number))
        own = [stated.format(split=place, n=number) for number in numbers]
        write(folder, file.format(split=place), coco(own, numbers, categories, **form))
        samples |= boxed(names, numbers, split)
    return Expected("boxes", classes, samples, notices)


_ALL = {"": ("train", range(5))}
_HALVES = {"train": ("train", (0, 1, 2)), "val": ("val", (3, 4))}
_PAIRS = {"train": ("train", (0, 1)), "val": ("val", (3, 4))}
#: Roboflow's names of splits.
_VALID = {"train": ("train", (0, 1, 2)), "valid": ("val", (3, 4))}

# https://roboflow.com/formats/coco-json: a file for each split, and a category 0 above all others.
make_roboflow_coco = partial(
    make_coco, "{split}/{n}_jpg.rf.0a1b2c.jpg", "{n}_jpg.rf.0a1b2c.jpg",
    "{split}/_annotations.coco.json", _VALID,
    [{"id": 0, "name": "pets", "supercategory": "none"}, *_categories(1, supercategory="pets")],
    notices=["valid/_annotations.coco.json: left out the category 0, 'pets', above all others",
             "1 image without a box"],
)  # fmt: skip
# https://www.lvisdataset.org/dataset, v1: no file names but URLs, and both splits in train2017/.
make_lvis = partial(
    make_coco, "train2017/{n:012d}.jpg", "http://images.cocodataset.org/train2017/{n:012d}.jpg",
    "lvis_v1_{split}.json", _PAIRS, _categories(synset="x.n.01"), key="coco_url",
    more={"neg_category_ids": [2], "not_exhaustive_category_ids": []},
    notices=["neg_category_ids of 2 images are not converted"],
)  # fmt: skip
# LVIS v0.5: file names of COCO 2014 for images that are called as in 2017; see `load_lvis_json` of
# detectron2, `LVISV05Dataset` of MMDetection.
make_lvis_05 = partial(
    make_coco, "train/{n:012d}.jpg", "COCO_train2014_{n:012d}.jpg",
    "annotations/lvis_v0.5_train.json", _ALL, _categories(),
    notices=["'COCO_train2014_000000000000.jpg' is read as '000000000000.jpg'"],
)  # fmt: skip
# Objects365 v2: file names have folders that the archives do not have; https://www.objects365.org,
# `Objects365V2Dataset` of MMDetection.
make_objects365 = partial(
    make_coco, "{split}/patch{n}/objects365_v1_{n:08d}.jpg",
    "images/v1/patch{n}/objects365_v1_{n:08d}.jpg", "zhiyuan_objv2_{split}.json", _HALVES,
    _categories(), notices=["is read as 'patch0/objects365_v1_00000000.jpg'"],
)  # fmt: skip
# Visual Wake Words: boxes of persons, in images of COCO's train and val in one folder, see
# https://github.com/Mxbonn/visualwakewords, scripts/create_visualwakewords_annotations.py
make_visual_wake_words = partial(
    make_coco, "all2014/COCO_{split}2014_{n:012d}.jpg", "COCO_{split}2014_{n:012d}.jpg",
    "annotations/instances_{split}.json", {"train": ("train", (1, 2)), "val": ("val", (1, 2))},
    [{"id": 0, "name": "not-dog", "supercategory": "background"},
     {"id": 1, "name": "dog", "supercategory": "animal"}],
    classes=["not-dog", "dog"],
)  # fmt: skip


def _coco_tool(image: str, stated: str, file: str, first: int) -> Make:
    return partial(make_coco, image, stated, file, _ALL, _categories(first))


#: Tools that export images and one file of COCO.
COCO_TOOLS = {
    # FiftyOne, `COCODetectionDataset`
    "fiftyone-coco": _coco_tool("data/{n}.jpg", "{n}.jpg", "labels.json", 0),
    # Label Studio, "COCO"
    "label-studio-coco": _coco_tool(*["images/0a1b2c-{n}.jpg"] * 2, "result.json", 0),
    # CVAT, "COCO 1.0"
    "cvat-coco": _coco_tool(
        "images/default/{n}.jpg", "{n}.jpg", "annotations/instances_default.json", 1
    ),
}


def _inat_json(names: Sequence[str], labels: Sequence[str], species: Sequence[str]) -> str:
    images, annotations = [], []
    for at, (name, label) in enumerate(zip(names, labels, strict=True)):
        images.append({"id": at, "file_name": name, "width": 9, "height": 9})
        annotations.append({"id": at, "image_id": at, "category_id": species.index(label)})
    categories = []
    for at, name in enumerate(species):
        categories.append({"id": at, "name": name, "supercategory": "Birds"})
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
    names = []
    for number in range(5):
        species = SPECIES[number % 3].replace(" ", "_")
        names.append(f"train/{number % 3:05d}_Animalia_Chordata_Aves_X_Y_{species}/{number}.jpg")
    labels = [SPECIES[number % 3] for number in range(5)]
    write_pictures(folder, names)
    write(folder, "train.json", _inat_json(names, labels, SPECIES))
    samples = {name: ("train", label) for name, label in zip(names, labels, strict=True)}
    return Expected("class", SPECIES, samples)


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

    The paths have {split}, as `splits` calls it, and {n}; `text` returns the labels of a picture.
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
    paths = "images/{split}/{n}.jpg", "labels/{split}/{n}.txt"
    samples = write_pairs(folder, *paths, partial(yolo, **form))
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(NAMES))
    paths = "path: ../datasets/pets  # root\ntrain: images/train\nval: images/val\ntest:\n"
    write(folder, "pets.yaml", f"{paths}names:\n{names}")
    return Expected("boxes", NAMES, samples, ["1 image without a box"])


def make_ultralytics_background(folder: Path) -> Expected:
    """Ultralytics: an image without objects needs no label file; test/ has no labels at all."""
    expected = make_ultralytics(folder)
    (folder / "labels/train/2.txt").unlink()
    write(folder, "test/9.jpg", picture(0))
    told = ["1 image without a .txt file: no objects", "skipped test/: its images have no labels"]
    return expected._replace(notices=told)


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


LABELS = ("cat", "dog", "cat", "dog", "dog")
TEXTS = ("a cat", "a dog, sitting", "two cats", "a dog", "a dog")


def make_metadata_csv(folder: Path) -> Expected:
    """Hugging Face, `imagefolder`: metadata.csv in the folder of each split."""
    # https://huggingface.co/docs/datasets/image_dataset
    samples = {}
    for place, split, numbers in (("train", "train", (0, 1, 2)), ("validation", "val", (3, 4))):
        rows = [(f"{number:04d}.jpg", LABELS[number]) for number in numbers]
        for number, (name, label) in zip(numbers, rows, strict=True):
            write(folder, f"{place}/{name}", picture(number))
            samples[f"{place}/{name}"] = split, label
        write_csv(folder / place / "metadata.csv", "file_name,label", rows)
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
    for place, (split, numbers) in _VALID.items():
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
    return _make_archives(folder, "tar", ("n01440764", "n01443537"), "{name}_{n}.JPEG")


def make_class_zips(folder: Path) -> Expected:
    """A zip for each class."""
    return _make_archives(folder, "zip", ("cat", "dog"), "{name}/{n}.JPEG")


def _make_archives(folder: Path, kind: str, classes: Sequence[str], image: str) -> Expected:
    samples: Samples = {}
    for name, numbers in zip(classes, ((0, 2), (1, 3, 4)), strict=True):
        names = [image.format(name=name, n=number) for number in numbers]
        with tempfile.TemporaryDirectory() as files:
            for number, member in zip(numbers, names, strict=True):
                write(Path(files), member, picture(number))
            folder.mkdir(parents=True, exist_ok=True)
            shutil.make_archive(str(folder / name), kind, files)
        samples |= {f"{name}.{kind}/{member}": ("train", name) for member in names}
    return Expected("class", classes, samples)


#: The layouts by name.
LAYOUTS: dict[str, Make] = {
    **COCO_TOOLS,
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
