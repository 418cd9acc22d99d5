"""Published datasets in miniature: a function for each writes one, and returns what is in it.

Each follows the README of the dataset, or the class of torchvision that reads it, which the
function names. Images are crops of photographs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io

from helpers.exports import Expected, picture, write


class _Dataset:
    """Writes the files of a dataset, and keeps the samples that a source must find."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.samples: dict[str, tuple[str, Any]] = {}

    def image(self, path: str, split: str = "", label: object = None) -> str:
        """Write an image, which is a sample if it has a split; return its path."""
        suffix = path.rpartition(".")[2].lower().replace("jpeg", "jpg")
        write(self.root, path, picture(len(self.samples) % 5, suffix))
        if split:
            self.samples[path] = split, label
        return path

    def images(self, paths: Iterable[str], split: str = "", label: object = None) -> list[str]:
        return [self.image(path, split, label) for path in paths]

    def lines(self, name: str, lines: Iterable[object], end: str = "\n") -> None:
        write(self.root, name, "".join(f"{line}{end}" for line in lines))

    def mat(self, name: str, **variables: object) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        scipy.io.savemat(self.root / name, variables, do_compression=True)

    def expect(self, classes: Sequence[str], *notices: str, kind: str = "class") -> Expected:
        return Expected(kind, classes, self.samples, notices)


def _structs(rows: Sequence[Mapping[str, object]]) -> np.ndarray:
    made = np.zeros((1, len(rows)), [(name, object) for name in rows[0]])
    for at, row in enumerate(rows):
        made[0, at] = (*row.values(),)
    return made


def make_cub(folder: Path) -> Expected:
    """The README of CUB_200_2011: ids lead from the images to classes and splits."""
    data = _Dataset(folder / "CUB_200_2011")
    classes = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "010.Red_winged_Blackbird"]
    paths = [f"{classes[at // 2]}/Bird_{at:04d}_{at + 7}.jpg" for at in range(6)]
    for at, path in enumerate(paths):
        data.image(f"images/{path}", "train" if at % 2 else "test", classes[at // 2])
    # The order of the files differs.
    data.lines("images.txt", [f"{at + 1} {path}" for at, path in enumerate(paths)])
    data.lines("image_class_labels.txt", [f"{at + 1} {at // 2 + 1}" for at in (3, 0, 5, 1, 2, 4)])
    data.lines("train_test_split.txt", [f"{at + 1} {at % 2}" for at in range(6)])
    data.lines("classes.txt", [f"{at + 1} {name}" for at, name in enumerate(classes)])
    data.lines("bounding_boxes.txt", [f"{at + 1} 60.0 27.0 25.0 34.0" for at in range(6)])
    data.lines("../attributes.txt", ["1 has_bill_shape::curved_(up_or_down)"])
    return data.expect(classes, "read the folder CUB_200_2011")


def make_nabirds(folder: Path) -> Expected:
    """The README of NABirds: names with blanks, and classes above the classes of images."""
    data, rows = _Dataset(folder), {"images": [], "image_class_labels": [], "train_test_split": []}
    ids = ("0000139e-21dc", "0000d9fc-4e02", "00019306-9d83")
    names = ["Oak Titmouse", "Ovenbird (Adult Male)", "Ovenbird (Female/immature)"]
    classes = ["0 Birds", "1 Ducks, Geese, and Swans", "22 Birds"]
    for at, (each, name) in enumerate(zip(ids, names, strict=True)):
        path = f"{817 + at:04d}/{each}.jpg"
        data.image(f"images/{path}", "train" if at % 2 else "test", name)
        for file, value in zip(rows, (path, at + 817, at % 2), strict=True):
            rows[file].append(f"{each} {value}")
        classes.append(f"{at + 817} {name}")
    for file, lines in {**rows, "classes": classes}.items():
        data.lines(f"{file}.txt", lines)
    return data.expect(names)


def make_food(folder: Path) -> Expected:
    """torchvision's Food101."""
    data, classes = _Dataset(folder / "food-101"), ["apple_pie", "baby_back_ribs", "pad_thai"]
    lists = {
        "train": ["pad_thai/12", "apple_pie/1005649", "baby_back_ribs/7", "apple_pie/9"],
        "test": ["apple_pie/1011328", "pad_thai/13", "baby_back_ribs/8"],
    }
    for split, names in lists.items():
        by_class: dict[str, list[str]] = {label: [] for label in classes}
        for name in names:
            label = name.split("/")[0]
            data.image(f"images/{name}.jpg", split, label)
            by_class[label].append(name)
        data.lines(f"meta/{split}.txt", names)
        data.lines(f"meta/{split}.json", [json.dumps(by_class)])
    data.lines("meta/classes.txt", classes)
    data.lines("meta/labels.txt", ["Apple pie", "Baby back ribs", "Pad thai"])
    return data.expect(classes)


def make_tiny_imagenet(folder: Path) -> Expected:
    """The folder of tiny-imagenet-200.zip: val_annotations.txt has tabs, and a box in each line."""
    data = _Dataset(folder / "tiny-imagenet-200")
    # The order of wnids.txt is not the order of the names.
    wnids = ["n02124075", "n01443537", "n04067472"]
    for wnid in wnids:
        names = [f"{wnid}_{at}.JPEG" for at in range(2)]
        data.images([f"train/{wnid}/images/{name}" for name in names], "train", wnid)
        data.lines(f"train/{wnid}/{wnid}_boxes.txt", [f"{name}\t0\t10\t63\t58" for name in names])
    for at in range(4):
        data.image(f"val/images/val_{at}.JPEG", "val", wnids[at % 3])
    data.image("test/images/test_0.JPEG")
    lines = [f"val_{at}.JPEG\t{wnids[at % 3]}\t0\t32\t44\t62" for at in range(4)]
    data.lines("val/val_annotations.txt", lines)
    data.lines("wnids.txt", wnids)
    data.lines("words.txt", [f"{wnid}\tgoldfish, Carassius auratus" for wnid in wnids])
    return data.expect(sorted(wnids), "images of test have no labels")


def make_caltech101(folder: Path) -> Expected:
    """torchvision's Caltech101, which leaves out BACKGROUND_Google."""
    data, classes = _Dataset(folder / "caltech101"), ["Faces", "airplanes", "yin_yang"]
    for name in (*classes, "BACKGROUND_Google"):
        paths = [f"101_ObjectCategories/{name}/image_{at:04d}.jpg" for at in (1, 2)]
        data.images(paths, "train" if name in classes else "", name)
    data.lines("101_ObjectCategories/BACKGROUND_Google/tmp", "x")
    data.mat("Annotations/yin_yang/annotation_0001.mat", obj_contour=np.ones((2, 9)))
    return data.expect(classes, "BACKGROUND_Google is no class", "skipped 2 images")


def make_caltech256(folder: Path) -> Expected:
    """torchvision's Caltech256, which counts the images directly in the class folders."""
    data, classes = _Dataset(folder / "caltech256"), ["001.ak47", "002.american-flag", "003.dog"]
    for number, name in enumerate(classes, 1):
        paths = [f"256_ObjectCategories/{name}/{number:03d}_{at:04d}.jpg" for at in (1, 2)]
        data.images(paths, "train", name)
    data.lines("256_ObjectCategories/003.dog/RENAME2", "x")
    data.image("256_ObjectCategories/003.dog/greg/vision309/003_0001.jpg")
    return data.expect(classes, "skipped 1 image")


_SCENES = ("abbey", "apartment_building/outdoor", "basement", "zen_garden")


def make_sun397(folder: Path) -> Expected:
    """torchvision's SUN397: classes may have two levels of folders."""
    data = _Dataset(folder / "SUN397")
    data.lines("ClassName.txt", [f"/{name[0]}/{name}" for name in _SCENES])
    for name in _SCENES:
        data.images([f"{name[0]}/{name}/sun_{at}abc.jpg" for at in range(3)], "train", name)
    data.lines("README.txt", "x")
    return data.expect(_SCENES, "all images are in train")


def make_sun397_partitions(folder: Path) -> Expected:
    """Partitions.zip beside the folders of SUN397: lists of 50 images for each class."""
    samples, data = make_sun397(folder).samples, _Dataset(folder / "SUN397")
    for number, (at, name) in product(range(1, 11), enumerate(("Training", "Testing"))):
        listed = [*samples][at + (number > 1) :: 3]
        lines = [f"/{path}" for path in listed]
        data.lines(f"Partitions/{name}_{number:02d}.txt", lines, "\r\n")
        if number == 1:
            data.samples |= {path: (name[:-3].lower(), samples[path][1]) for path in listed}
    return data.expect(_SCENES, "partition 1 of 10", "skipped 4 images")


_LAND = ["AnnualCrop", "River", "SeaLake"]


def make_eurosat(folder: Path) -> Expected:
    """torchvision's EuroSAT."""
    data = _Dataset(folder / "eurosat")
    for name in _LAND:
        data.images([f"2750/{name}/{name}_{at}.jpg" for at in (1, 2, 10)], "train", name)
    return data.expect(_LAND)


def make_eurosat_of_kaggle(folder: Path) -> Expected:
    """Kaggle's eurosat-dataset: an index without a name in the first column of each list."""
    data = _Dataset(folder / "EuroSAT")
    for split, file in (("train", "train"), ("val", "validation"), ("test", "test")):
        rows = [",Filename,Label,ClassName"]
        for label, name in enumerate(_LAND):
            path = data.image(f"{name}/{name}_{file}.jpg", split, name)
            rows.append(f"{label * 7},{path},{label},{name}")
        data.lines(f"{file}.csv", rows)
    data.lines("label_map.json", [json.dumps({name: at for at, name in enumerate(_LAND)})])
    data.lines("../EuroSATallBands/label_map.json", ["{}"])
    return data.expect(_LAND, "skipped EuroSATallBands beside it")


def make_dtd(folder: Path) -> Expected:
    """torchvision's DTD, with its ten partitions."""
    data, classes = _Dataset(folder / "dtd/dtd"), ["banded", "freckled", "zigzagged"]
    paths = [f"{name}/{name}_{at:04d}.jpg" for name in classes for at in (2, 5, 9)]
    splits = ("train", "val", "test")
    for at, path in enumerate(paths):
        data.image(f"images/{path}", splits[at % 3], path.split("/")[0])
    for number, (at, split) in product(range(1, 11), enumerate(splits)):
        data.lines(f"labels/{split}{number}.txt", paths[(at + number - 1) % 3 :: 3])
    lines = [f"{path} {path.split('/')[0]} " for path in paths]
    lines[0] += "freckled "
    data.lines("labels/labels_joint_anno.txt", lines)
    return data.expect(classes, "partition 1 of 10")


_ROI = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"


def make_gtsrb(folder: Path) -> Expected:
    """torchvision's GTSRB: the labels of the test images are in GT-final_test.csv."""
    data, images = _Dataset(folder / "gtsrb"), "GTSRB/Final_Test/Images"
    for label in ("00000", "00001", "00002"):
        names = [f"00000_{at:05d}.ppm" for at in range(2)]
        data.images([f"GTSRB/Training/{label}/{name}" for name in names], "train", str(int(label)))
        rows = [_ROI, *(f"{name};29;30;5;6;24;25;{int(label)}" for name in names)]
        data.lines(f"GTSRB/Training/{label}/GT-{label}.csv", rows, "\r\n")
    rows = [_ROI]
    for at, label in enumerate("2010"):
        data.image(f"{images}/{at:05d}.ppm", "test", label)
        rows.append(f"{at:05d}.ppm;53;54;6;5;48;49;{label}")
    data.lines("GT-final_test.csv", rows, "\r\n")
    return data.expect(["0", "1", "2"])


def make_gtsrb_of_kaggle(folder: Path) -> Expected:
    """Kaggle's gtsrb-german-traffic-sign: folders 0 to 42, and tables with the paths."""
    data, labels = _Dataset(folder), [str(label) for label in range(12)]
    for split, form in (("Train", "Train/{0}/000{0:>02}_00000.png"), ("Test", "Test/{0:>05}.png")):
        rows = ["Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId,Path"]
        for label in labels:
            path = data.image(form.format(label), split.lower(), label)
            rows.append(f"27,26,5,5,22,20,{label},{path}")
        data.lines(f"{split}.csv", rows)
    data.lines("Meta.csv", ["Path,ClassId,ShapeId,ColorId,SignId", "Meta/0.png,0,1,0,1.1"])
    data.image("Meta/0.png")
    return data.expect(labels)


_CARS = ("AM General Hummer SUV 2000", "Acura RL Sedan 2012", "smart fortwo Convertible 2012")
_CELLS = np.array([_CARS], object)


def _car(name: str, number: int, **more: object) -> dict[str, object]:
    box = {"bbox_x1": 39, "bbox_y1": np.uint8(116), "bbox_x2": np.uint16(569), "bbox_y2": 375}
    return {**box, "class": np.uint8(number), "fname": name, **more}


def make_cars(folder: Path) -> Expected:
    """torchvision's StanfordCars: structs in the MAT files of the development kit."""
    data = _Dataset(folder / "stanford_cars")
    data.mat("devkit/cars_meta.mat", class_names=_CELLS)
    files = {"train": "devkit/cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}
    for split, file in files.items():
        rows = []
        for at, number in enumerate((3, 1, 2, 1), 1):
            data.image(f"cars_{split}/{at:05d}.jpg", split, _CARS[number - 1])
            rows.append(_car(f"{at:05d}.jpg", number))
        data.mat(file, annotations=_structs(rows))
    return data.expect(_CARS)


def make_cars_without_test(folder: Path) -> Expected:
    """The archives of Stanford Cars alone, in which the annotations of the test have no class."""
    samples, file = make_cars(folder).samples, "cars_test_annos_withlabels.mat"
    (folder / "stanford_cars" / file).unlink()
    samples = {path: row for path, row in samples.items() if row[0] == "train"}
    return Expected("class", _CARS, samples, [f"skipped test: {file}", "skipped 4 images"])


def make_all_cars(folder: Path) -> Expected:
    """car_ims.tgz and cars_annos.mat of the same site."""
    data, rows = _Dataset(folder), []
    for at, number in enumerate((1, 2, 3, 1, 2), 1):
        split = "test" if at % 2 else "train"
        path = data.image(f"car_ims/{at:06d}.jpg", split, _CARS[number - 1])
        rows.append(_car("", number, relative_im_path=path, test=np.uint8(at % 2)))
    data.mat("cars_annos.mat", annotations=_structs(rows), class_names=_CELLS)
    return data.expect(_CARS)


def make_flowers(folder: Path) -> Expected:
    """torchvision's Flowers102: numbers of images in setid.mat, which count from 1 as the labels do."""
    data, labels = _Dataset(folder / "flowers-102"), [12, 1, 2, 12, 1, 2, 1, 12, 2, 3]
    ids = {"trnid": [10, 2, 3], "valid": [4, 5, 6], "tstid": [7, 1, 9, 8]}
    for split, numbers in zip(("train", "val", "test"), ids.values(), strict=True):
        for at in numbers:
            data.image(f"jpg/image_{at:05d}.jpg", split, str(labels[at - 1]))
    data.mat("imagelabels.mat", labels=np.array([labels], np.uint8))
    data.mat("setid.mat", **{name: np.array([each]) for name, each in ids.items()})
    return data.expect(["1", "2", "3", "12"], "--rename-classes")


def make_pets(folder: Path) -> Expected:
    """torchvision's OxfordIIITPet: classes by their numbers, which are not in the order of the names."""
    data, classes = (
        _Dataset(folder / "oxford-iiit-pet"),
        ["Abyssinian", "american_bulldog", "Bengal"],
    )
    listed = ["#Image CLASS-ID SPECIES BREED ID", "#ID: 1:37 Class ids"]
    for split, name, first in (("train", "trainval", 1), ("test", "test", 100)):
        lines = []
        for (number, label), at in product(enumerate(classes, 1), (first, first + 9)):
            data.image(f"images/{label}_{at}.jpg", split, label)
            lines.append(f"{label}_{at} {number} {1 + (number == 2)} 1")
        data.lines(f"annotations/{name}.txt", reversed(lines))
        listed += lines
    data.lines("annotations/list.txt", listed)
    data.images(["annotations/trimaps/Abyssinian_1.png", "images/Abyssinian_34.jpg"])
    data.lines("images/Abyssinian_100.mat", "x")
    return data.expect(classes, "skipped 1 image that", "--label-column species")


#: For each level, the classes in an order that is not the order of their names.
_PLANES = {
    "variant": ["707-320", "F/A-18", "A300B4"],
    "family": ["Boeing 707", "F/A-18", "A300"],
    "manufacturer": ["Boeing", "McDonnell Douglas", "Airbus"],
}


def make_aircraft(folder: Path) -> Expected:
    """torchvision's FGVCAircraft: labels contain blanks and slashes, and ids begin with 0."""
    data = _Dataset(folder / "fgvc-aircraft-2013b/data")
    planes = {"0034309": 2, "1025794": 0, "1340192": 1, "0056978": 2, "0698580": 1, "0450014": 0}
    for at, split in enumerate(("train", "val", "test")):
        for name in [*planes][at::3]:
            data.image(f"images/{name}.jpg", split, _PLANES["variant"][planes[name]])
        for level, names in _PLANES.items():
            lines = [f"{plane} {names[planes[plane]]}" for plane in [*planes][at::3]]
            data.lines(f"images_{level}_{split}.txt", lines)
            data.lines(f"images_{level}_trainval.txt", lines)
    data.lines("images_box.txt", [f"{name} 3 144 998 431" for name in planes])
    for file, names in zip(
        ("variants", "families", "manufacturers"), _PLANES.values(), strict=True
    ):
        data.lines(f"{file}.txt", names)
    return data.expect(_PLANES["variant"], "--label-column family")


_ATTRIBUTES = ("5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Young")
#: For each image of CelebA the attributes, the identity, and the number of the split.
_FACES = {
    "000001.jpg": ((-1, 1, 1, 1), "2880", 0), "000002.jpg": ((-1, -1, -1, 1), "2937", 0),
    "000003.jpg": ((1, -1, -1, -1), "10", 1), "000004.jpg": ((-1, -1, -1, -1), "9", 2),
    "000005.jpg": ((1, 1, 1, 1), "2880", 0), "000006.jpg": ((1, -1, 1, -1), "9", 1),
    "000007.jpg": ((-1, 1, -1, 1), "2937", 2),
}  # fmt: skip


def _faces(root: Path, images: str) -> _Dataset:
    """Write the images of CelebA into a folder."""
    data = _Dataset(root)
    for name, (face, _, split) in _FACES.items():
        labels = [each for each, value in zip(_ATTRIBUTES, face, strict=True) if value == 1]
        data.image(f"{images}/{name}", ("train", "val", "test")[split], labels)
    return data


def make_celeba(folder: Path) -> Expected:
    """torchvision's CelebA: blanks of several widths, and headers in the second line."""
    data = _faces(folder / "celeba", "img_align_celeba")
    rows, people, splits, boxes, points = [], [], [], [], []
    for name, (face, person, split) in _FACES.items():
        rows.append(f"{name} " + " ".join(f"{each:2d}" for each in face))
        people.append(f"{name} {person}")
        splits.append(f"{name} {split}")
        boxes.append(f"{name}    95  71 226 313")
        points.append(f"{name} 69  109  106  113   77  142   73  152  108  154")
    data.lines("list_attr_celeba.txt", [7, " ".join(_ATTRIBUTES) + " ", *rows])
    data.lines("identity_CelebA.txt", people)
    data.lines("list_eval_partition.txt", splits)
    data.lines("list_bbox_celeba.txt", [7, "image_id x_1 y_1 width height", *boxes])
    header = "lefteye_x lefteye_y righteye_x righteye_y nose_x nose_y leftmouth_x leftmouth_y rightmouth_x rightmouth_y"
    data.lines("list_landmarks_align_celeba.txt", [7, header, *points])
    return data.expect(_ATTRIBUTES, kind="multi-label")


def make_celeba_of_kaggle(folder: Path) -> Expected:
    """Kaggle's celeba-dataset: CSV files, and the folder of images twice."""
    data = _faces(folder, "img_align_celeba/img_align_celeba")
    rows, splits = [",".join(["image_id", *_ATTRIBUTES])], ["image_id,partition"]
    for name, (face, _, split) in _FACES.items():
        rows.append(",".join([name, *map(str, face)]))
        splits.append(f"{name},{split}")
    data.lines("list_attr_celeba.csv", rows)
    data.lines("list_eval_partition.csv", splits)
    return data.expect(_ATTRIBUTES, kind="multi-label")


def make_places365(folder: Path) -> Expected:
    """torchvision's Places365: paths in the list of train begin with a slash."""
    data, train, val = _Dataset(folder), [], []
    classes = ["airfield", "airplane_cabin", "apartment_building/outdoor"]
    for (label, name), at in product(enumerate(classes), (1, 2)):
        path = f"/a/{name}/{at:08d}.jpg"
        data.image(f"data_256_standard{path}", "train", name)
        train.append(f"{path} {label}")
    for at, label in enumerate((2, 0, 1), 1):
        path = f"Places365_val_{at:08d}.jpg"
        data.image(f"val_256/{path}", "val", classes[label])
        val.append(f"{path} {label}")
    data.image("test_256/Places365_test_00000001.jpg")
    data.lines("categories_places365.txt", [f"/a/{name} {at}" for at, name in enumerate(classes)])
    data.lines("places365_train_standard.txt", train)
    data.lines("places365_val.txt", val)
    data.lines("places365_test.txt", ["Places365_test_00000001.jpg"])
    return data.expect(classes, "images of test have no labels")


# --- as distributed, and as Kaggle has them -------------------------------------------------------


def _doubled(*names: str) -> list[tuple[str, str]]:
    """Return the moves of folders into folders of their names, as archives unpack at Kaggle."""
    moves = []
    for name in names:
        moves += [(name, f"x/{name}"), ("x", name)]
    return moves


#: Datasets in other folders: the dataset, its folder, and what is moved to where, in this order.
MOVED: dict[str, tuple[Callable[[Path], Expected], str, list[tuple[str, str]]]] = {
    "CelebA as distributed": (make_celeba, "celeba", [
        ("img_align_celeba", "Img/img_align_celeba"),
        ("list_eval_partition.txt", "Eval/list_eval_partition.txt"),
        ("list_attr_celeba.txt", "Anno/list_attr_celeba.txt"),
        ("identity_CelebA.txt", "Anno/identity_CelebA.txt"),
    ]),
    "GTSRB as distributed": (make_gtsrb, "gtsrb", [
        ("GTSRB/Training", "GTSRB/Final_Training/Images"),
        ("GT-final_test.csv", "GTSRB/Final_Test/Images/GT-final_test.csv"),
        ("GTSRB", "../GTSRB"),
    ]),
    "Stanford Cars of Kaggle": (make_cars, "stanford_cars", [
        *_doubled("cars_train", "cars_test"), ("devkit", "car_devkit/devkit"),
    ]),
    "Food-101 of Kaggle": (make_food, "food-101", _doubled("meta")),
    "Pets of Kaggle": (make_pets, "oxford-iiit-pet", _doubled("images", "annotations")),
    "Caltech-256 of Kaggle": (make_caltech256, "caltech256", _doubled("256_ObjectCategories")),
    "FGVC-Aircraft of Kaggle": (make_aircraft, "", _doubled("fgvc-aircraft-2013b")),
    "Places365 in the original size": (make_places365, "", [
        ("data_256_standard", "data_large"), ("val_256", "val_large"),
    ]),
}  # fmt: skip


def make_moved(name: str, folder: Path) -> Expected:
    """Write a dataset, and move its files and folders to other places."""
    make, root, moves = MOVED[name]
    expected, samples = make(folder), {}
    for old, new in moves:
        (folder / root / new).parent.mkdir(parents=True, exist_ok=True)
        (folder / root / old).rename(folder / root / new)
    for path, row in expected.samples.items():
        moved = path
        for old, new in moves:
            if moved.startswith(f"{old}/"):
                moved = new + moved.removeprefix(old)
        samples[moved.removeprefix("../")] = row
    if "GTSRB" in name:
        (folder / root).rmdir()
    if "Aircraft" in name:  # Kaggle puts tables beside it
        write(folder, "train.csv", "filename,Classes,Labels\n0034309.jpg,A300B4,1\n")
    if "Places365" in name:  # the small images are there, too
        shutil.copytree(folder / "data_large", folder / "data_256")
        shutil.copytree(folder / "val_large", folder / "val_256")
        expected = expected._replace(notices=["skipped data_256, other copies"])
    return expected._replace(samples=samples)


#: All published datasets, by a name for the test.
LAYOUTS: dict[str, Callable[[Path], Expected]] = {
    "CUB-200-2011": make_cub, "NABirds": make_nabirds, "Food-101": make_food,
    "Tiny ImageNet": make_tiny_imagenet, "Caltech-101": make_caltech101,
    "Caltech-256": make_caltech256, "SUN397": make_sun397,
    "SUN397 with partitions": make_sun397_partitions, "EuroSAT": make_eurosat,
    "EuroSAT of Kaggle": make_eurosat_of_kaggle, "DTD": make_dtd, "GTSRB": make_gtsrb,
    "GTSRB of Kaggle": make_gtsrb_of_kaggle, "Stanford Cars": make_cars,
    "Stanford Cars without labels of test": make_cars_without_test,
    "Stanford Cars in one folder": make_all_cars, "Flowers 102": make_flowers, "Pets": make_pets,
    "FGVC-Aircraft": make_aircraft, "CelebA": make_celeba,
    "CelebA of Kaggle": make_celeba_of_kaggle, "Places365": make_places365,
    **{name: partial(make_moved, name) for name in MOVED},
}  # fmt: skip
