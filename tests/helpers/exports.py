"""Folders as tools export them: a function for each layout writes one, and returns what is in it.

Each layout follows the format's own documentation, which the function names. Images are crops of
photographs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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


def boxed(numbers: Iterable[int]) -> list[list[tuple[Any, ...]]]:
    """Return the boxes of some images as an `Expected` has them."""
    return [[*BOXES[number]] for number in numbers]


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
    samples: dict[str, tuple[str, Any]] = {}
    for place, split, numbers in (("train", "train", (0, 1, 2)), ("valid", "val", (3, 4))):
        names = [f"{number}_jpg.rf.0a1b2c.jpg" for number in numbers]
        for number, name in zip(numbers, names, strict=True):
            write(folder, f"{place}/{name}", picture(number))
        write(folder, f"{place}/_annotations.coco.json", coco(names, numbers, categories))
        for name, boxes in zip(names, boxed(numbers), strict=True):
            samples[f"{place}/{name}"] = split, boxes
    write(folder, "README.roboflow.txt", "https://roboflow.com")
    notice = "left out the category 0, 'pets', above all others"
    return Expected("boxes", NAMES, samples, [notice, "1 image without a box"])


def make_lvis(folder: Path) -> Expected:
    """LVIS v1: no file names but URLs, and images of both splits in train2017/.

    https://www.lvisdataset.org/dataset
    """
    samples: dict[str, tuple[str, Any]] = {}
    for split, numbers in (("train", (0, 1)), ("val", (3, 4))):
        names = [f"train2017/{number:012d}.jpg" for number in numbers]
        urls = [f"http://images.cocodataset.org/{name}" for name in names]
        more = {"neg_category_ids": [2], "not_exhaustive_category_ids": []}
        text = coco(urls, numbers, _categories(synset="x.n.01"), key="coco_url", more=more)
        write(folder, f"lvis_v1_{split}.json", text)
        for number, name, boxes in zip(numbers, names, boxed(numbers), strict=True):
            write(folder, name, picture(number))
            samples[name] = split, boxes
    return Expected("boxes", NAMES, samples, ["neg_category_ids of 2 images are not converted"])


def make_lvis_05(folder: Path) -> Expected:
    """LVIS v0.5: file names of COCO 2014 for images that are called as in 2017.

    `load_lvis_json` of detectron2, `LVISV05Dataset` of MMDetection.
    """
    names = [f"{number:012d}.jpg" for number in range(5)]
    old = [f"COCO_train2014_{name}" for name in names]
    write(folder, "annotations/lvis_v0.5_train.json", coco(old, range(5), _categories()))
    write_pictures(folder, [f"train2017/{name}" for name in names])
    samples = dict(zip(names, boxed(range(5)), strict=True))
    found = {f"train2017/{name}": ("train", boxes) for name, boxes in samples.items()}
    (folder / "train2017").rename(folder / "train")
    found = {name.replace("train2017", "train"): each for name, each in found.items()}
    return Expected("boxes", NAMES, found, ["without the beginning 'COCO_"])


def make_objects365(folder: Path) -> Expected:
    """Objects365 v2: file names have folders that the archives do not have.

    https://www.objects365.org, `Objects365V2Dataset` of MMDetection
    """
    samples: dict[str, tuple[str, Any]] = {}
    for split, numbers in (("train", (0, 1, 2)), ("val", (3, 4))):
        names = [f"patch{number}/objects365_v1_{number:08d}.jpg" for number in numbers]
        stated = [f"images/v1/{name}" for name in names]
        write(folder, f"zhiyuan_objv2_{split}.json", coco(stated, numbers, _categories()))
        for number, name, boxes in zip(numbers, names, boxed(numbers), strict=True):
            write(folder, f"{split}/{name}", picture(number))
            samples[f"{split}/{name}"] = split, boxes
    return Expected("boxes", NAMES, samples, ["without the beginning '([^/]+/){2}'"])


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
    """iNaturalist 2017 to 2019: train2019.json, val2019.json, test2019.json and the images.

    https://github.com/visipedia/inat_comp, "Annotation Format"
    """
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
    samples, names, labels = {}, [], []
    for number in range(5):
        names.append(f"train/{folders[number % 3]}/{number}.jpg")
        labels.append(SPECIES[number % 3])
        samples[names[-1]] = "train", labels[-1]
    write_pictures(folder, names)
    write(folder, "train.json", _inat_json(names, labels, SPECIES))
    return Expected("class", SPECIES, samples)


def make_visual_wake_words(folder: Path) -> Expected:
    """Visual Wake Words: boxes of persons, in images of COCO's train and val in one folder.

    https://github.com/Mxbonn/visualwakewords, scripts/create_visualwakewords_annotations.py
    """
    categories = [
        {"id": 0, "name": "not-dog", "supercategory": "background"},
        {"id": 1, "name": "dog", "supercategory": "animal"},
    ]
    samples: dict[str, tuple[str, Any]] = {}
    for split, numbers in (("train", (1, 2)), ("val", (1, 2))):
        names = [f"COCO_{split}2014_{number:012d}.jpg" for number in numbers]
        write(folder, f"annotations/instances_{split}.json", coco(names, numbers, categories))
        for number, name in zip(numbers, names, strict=True):
            write(folder, f"all2014/{name}", picture(number))
            samples[f"all2014/{name}"] = split, [*BOXES[number]]
    return Expected("boxes", ["not-dog", "dog"], samples)


def make_fiftyone(folder: Path) -> Expected:
    """FiftyOne, `COCODetectionDataset`: data/ and labels.json."""
    names = [f"{number}.jpg" for number in range(5)]
    write_pictures(folder, [f"data/{name}" for name in names])
    write(folder, "labels.json", coco(names, range(5), _categories(0)))
    found = zip(names, boxed(range(5)), strict=True)
    return Expected("boxes", NAMES, {f"data/{name}": ("train", each) for name, each in found})


def make_label_studio_coco(folder: Path) -> Expected:
    """Label Studio, "COCO": images/ and result.json."""
    names = write_pictures(folder, [f"images/0a1b2c-{number}.jpg" for number in range(5)])
    write(folder, "result.json", coco(names, range(5), _categories(0)))
    found = zip(names, boxed(range(5)), strict=True)
    return Expected("boxes", NAMES, {name: ("train", each) for name, each in found})


def make_cvat_coco(folder: Path) -> Expected:
    """CVAT, "COCO 1.0": annotations/instances_default.json and images/."""
    names = [f"{number}.jpg" for number in range(5)]
    write_pictures(folder, [f"images/default/{name}" for name in names])
    write(folder, "annotations/instances_default.json", coco(names, range(5), _categories()))
    found = zip(names, boxed(range(5)), strict=True)
    samples = {f"images/default/{name}": ("train", each) for name, each in found}
    return Expected("boxes", NAMES, samples)


#: The layouts by name.
LAYOUTS: dict[str, Make] = {
    "roboflow-coco": make_roboflow_coco,
    "lvis-v1": make_lvis,
    "lvis-v0.5": make_lvis_05,
    "objects365": make_objects365,
    "inaturalist-2019": make_inaturalist_2019,
    "inaturalist-2021": make_inaturalist_2021,
    "visual-wake-words": make_visual_wake_words,
    "fiftyone-coco": make_fiftyone,
    "label-studio-coco": make_label_studio_coco,
    "cvat-coco": make_cvat_coco,
}
