"""Published datasets in miniature: a function for each writes one, and returns what is in it.

Each follows the README of the dataset, or the class of torchvision that reads it, which the
function names. Images are crops of photographs.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import scipy.io

from helpers.exports import Expected, picture, write


def _images(folder: Path, names: Iterable[str], suffix: str = "") -> None:
    for number, name in enumerate(names):
        write(folder, name, picture(number % 5, suffix or name.rpartition(".")[2].lower()))


def _lines(folder: Path, name: str, lines: Iterable[object], end: str = "\n") -> None:
    write(folder, name, "".join(f"{line}{end}" for line in lines))


def _mat(folder: Path, name: str, **variables: object) -> None:
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    scipy.io.savemat(folder / name, variables, do_compression=True)


def _structs(rows: Iterable[Mapping[str, object]]) -> np.ndarray:
    rows = [*rows]
    made = np.zeros((1, len(rows)), [(name, object) for name in rows[0]])
    for at, row in enumerate(rows):
        made[0, at] = (*row.values(),)
    return made


def _cells(names: Iterable[str]) -> np.ndarray:
    return np.array([[*names]], object)


def make_cub(folder: Path) -> Expected:
    """The README of CUB_200_2011: ids lead from the images to classes and splits."""
    classes = ["001.Black_footed_Albatross", "002.Laysan_Albatross", "010.Red_winged_Blackbird"]
    paths = [f"{classes[at // 2]}/Bird_{at:04d}_{at + 7}.jpg" for at in range(6)]
    root = folder / "CUB_200_2011"
    _images(root / "images", paths)
    # The order of the files differs.
    _lines(root, "images.txt", [f"{at + 1} {path}" for at, path in enumerate(paths)])
    _lines(root, "image_class_labels.txt", [f"{at + 1} {at // 2 + 1}" for at in (3, 0, 5, 1, 2, 4)])
    _lines(root, "train_test_split.txt", [f"{at + 1} {at % 2}" for at in range(6)])
    _lines(root, "classes.txt", [f"{at + 1} {name}" for at, name in enumerate(classes)])
    _lines(root, "bounding_boxes.txt", [f"{at + 1} 60.0 27.0 25.0 34.0" for at in range(6)])
    _lines(folder, "attributes.txt", ["1 has_bill_shape::curved_(up_or_down)"])
    samples = {}
    for at, path in enumerate(paths):
        samples[f"images/{path}"] = ("train" if at % 2 else "test", classes[at // 2])
    return Expected("class", classes, samples, ["read the folder CUB_200_2011"])


def make_nabirds(folder: Path) -> Expected:
    """The README of NABirds: names with blanks, and classes above the classes of images."""
    ids = ["0000139e-21dc", "0000d9fc-4e02", "00019306-9d83"]
    paths = [f"{817 + at:04d}/{each}.jpg" for at, each in enumerate(ids)]
    _images(folder / "images", paths)
    names = ["Oak Titmouse", "Ovenbird (Adult Male)", "Ovenbird (Female/immature)"]
    _lines(folder, "images.txt", map(" ".join, zip(ids, paths, strict=True)))
    _lines(folder, "image_class_labels.txt", [f"{e} {at + 817}" for at, e in enumerate(ids)])
    _lines(folder, "train_test_split.txt", [f"{each} {at % 2}" for at, each in enumerate(ids)])
    above = ["0 Birds", "1 Ducks, Geese, and Swans", "22 Birds"]
    _lines(folder, "classes.txt", above + [f"{at + 817} {name}" for at, name in enumerate(names)])
    samples = {}
    for at, path in enumerate(paths):
        samples[f"images/{path}"] = ("train" if at % 2 else "test", names[at])
    return Expected("class", names, samples)


def make_food(folder: Path) -> Expected:
    """torchvision's Food101."""
    root, classes = folder / "food-101", ["apple_pie", "baby_back_ribs", "pad_thai"]
    lists = {
        "train": ["pad_thai/12", "apple_pie/1005649", "baby_back_ribs/7", "apple_pie/9"],
        "test": ["apple_pie/1011328", "pad_thai/13", "baby_back_ribs/8"],
    }
    samples = {}
    for split, names in lists.items():
        _images(root / "images", [f"{name}.jpg" for name in names])
        _lines(root, f"meta/{split}.txt", names)
        by_class = {label: [n for n in names if n.startswith(label)] for label in classes}
        write(root, f"meta/{split}.json", json.dumps(by_class))
        for name in names:
            samples[f"images/{name}.jpg"] = (split, name.split("/")[0])
    _lines(root, "meta/classes.txt", classes)
    _lines(root, "meta/labels.txt", ["Apple pie", "Baby back ribs", "Pad thai"])
    return Expected("class", classes, samples)


def make_tiny_imagenet(folder: Path) -> Expected:
    """The folder of tiny-imagenet-200.zip: val_annotations.txt has tabs, and a box in each line."""
    root = folder / "tiny-imagenet-200"
    # The order of wnids.txt is not the order of the names.
    wnids = ["n02124075", "n01443537", "n04067472"]
    samples = {}
    for wnid in wnids:
        names = [f"{wnid}_{at}.JPEG" for at in range(2)]
        _images(root / "train" / wnid / "images", names, "jpg")
        _lines(root, f"train/{wnid}/{wnid}_boxes.txt", [f"{name}\t0\t10\t63\t58" for name in names])
        for name in names:
            samples[f"train/{wnid}/images/{name}"] = ("train", wnid)
    _images(root / "val/images", [f"val_{at}.JPEG" for at in range(4)], "jpg")
    _images(root / "test/images", ["test_0.JPEG"], "jpg")
    lines = [f"val_{at}.JPEG\t{wnids[at % 3]}\t0\t32\t44\t62" for at in range(4)]
    _lines(root, "val/val_annotations.txt", lines)
    _lines(root, "wnids.txt", wnids)
    _lines(root, "words.txt", [f"{wnid}\tgoldfish, Carassius auratus" for wnid in wnids])
    for at in range(4):
        samples[f"val/images/val_{at}.JPEG"] = ("val", wnids[at % 3])
    return Expected("class", sorted(wnids), samples, ["images of test have no labels"])


def make_caltech101(folder: Path) -> Expected:
    """torchvision's Caltech101, which leaves out BACKGROUND_Google."""
    root, classes = folder / "caltech101", ["Faces", "airplanes", "yin_yang"]
    samples = {}
    for name in (*classes, "BACKGROUND_Google"):
        paths = [f"101_ObjectCategories/{name}/image_{at:04d}.jpg" for at in (1, 2)]
        _images(root, paths)
        samples |= {path: ("train", name) for path in paths if name in classes}
    write(root, "101_ObjectCategories/BACKGROUND_Google/tmp", "x")
    _mat(root, "Annotations/yin_yang/annotation_0001.mat", obj_contour=np.ones((2, 9)))
    return Expected(
        "class", classes, samples, ["BACKGROUND_Google is no class", "skipped 2 images"]
    )


def make_caltech256(folder: Path) -> Expected:
    """torchvision's Caltech256, which counts the images directly in the class folders."""
    root, classes = folder / "caltech256", ["001.ak47", "002.american-flag", "003.dog"]
    samples = {}
    for number, name in enumerate(classes, 1):
        paths = [f"256_ObjectCategories/{name}/{number:03d}_{at:04d}.jpg" for at in (1, 2)]
        _images(root, paths)
        samples |= dict.fromkeys(paths, ("train", name))
    write(root, "256_ObjectCategories/003.dog/RENAME2", "x")
    _images(root, ["256_ObjectCategories/003.dog/greg/vision309/003_0001.jpg"])
    return Expected("class", classes, samples, ["skipped 1 image"])


_SCENES = ("abbey", "apartment_building/outdoor", "basement", "zen_garden")


def make_sun397(folder: Path) -> Expected:
    """torchvision's SUN397: classes may have two levels of folders."""
    root = folder / "SUN397"
    _lines(root, "ClassName.txt", [f"/{name[0]}/{name}" for name in _SCENES])
    samples = {}
    for name in _SCENES:
        paths = [f"{name[0]}/{name}/sun_{at}abc.jpg" for at in range(3)]
        _images(root, paths)
        samples |= dict.fromkeys(paths, ("train", name))
    write(root, "README.txt", "x")
    return Expected("class", _SCENES, samples, ["all images are in train"])


def make_sun397_partitions(folder: Path) -> Expected:
    """Partitions.zip beside the folders of SUN397: lists of 50 images for each class."""
    samples = make_sun397(folder).samples
    root = folder / "SUN397"
    paths = [*samples]
    for number in range(1, 11):
        at = 0 if number == 1 else 1
        lists = {"Training": paths[at::3], "Testing": paths[at + 1 :: 3]}
        for name, listed in lists.items():
            lines = [f"/{path}" for path in listed]
            _lines(root, f"Partitions/{name}_{number:02d}.txt", lines, "\r\n")
    expected = {path: ("train", samples[path][1]) for path in paths[0::3]}
    expected |= {path: ("test", samples[path][1]) for path in paths[1::3]}
    return Expected("class", _SCENES, expected, ["partition 1 of 10", "skipped 4 images"])


def make_eurosat(folder: Path) -> Expected:
    """torchvision's EuroSAT."""
    samples = {}
    for name in ("AnnualCrop", "River", "SeaLake"):
        paths = [f"2750/{name}/{name}_{at}.jpg" for at in (1, 2, 10)]
        _images(folder / "eurosat", paths)
        samples |= dict.fromkeys(paths, ("train", name))
    return Expected("class", ["AnnualCrop", "River", "SeaLake"], samples)


def make_eurosat_of_kaggle(folder: Path) -> Expected:
    """Kaggle's eurosat-dataset: an index without a name in the first column of each list."""
    root, classes = folder / "EuroSAT", ["AnnualCrop", "River", "SeaLake"]
    samples = {}
    for place, split in enumerate(("train", "validation", "test")):
        rows = [",Filename,Label,ClassName"]
        for label, name in enumerate(classes):
            path = f"{name}/{name}_{place}.jpg"
            _images(root, [path])
            rows.append(f"{label * 7},{path},{label},{name}")
            samples[path] = ({"validation": "val"}.get(split, split), name)
        _lines(root, f"{split}.csv", rows)
    write(root, "label_map.json", json.dumps({name: at for at, name in enumerate(classes)}))
    write(folder, "EuroSATallBands/label_map.json", "{}")
    return Expected("class", classes, samples, ["skipped EuroSATallBands beside it"])


def make_dtd(folder: Path) -> Expected:
    """torchvision's DTD, with its ten partitions."""
    root, classes = folder / "dtd/dtd", ["banded", "freckled", "zigzagged"]
    paths = [f"{name}/{name}_{at:04d}.jpg" for name in classes for at in (2, 5, 9)]
    _images(root / "images", paths)
    splits = ("train", "val", "test")
    for number in range(1, 11):
        for at, split in enumerate(splits):
            _lines(root, f"labels/{split}{number}.txt", paths[(at + number - 1) % 3 :: 3])
    lines = [f"{path} {path.split('/')[0]} " for path in paths]
    lines[0] += "freckled "
    _lines(root, "labels/labels_joint_anno.txt", lines)
    samples = {}
    for at, path in enumerate(paths):
        samples[f"images/{path}"] = (splits[at % 3], path.split("/")[0])
    return Expected("class", classes, samples, ["partition 1 of 10"])


def make_gtsrb(folder: Path) -> Expected:
    """torchvision's GTSRB: the labels of the test images are in GT-final_test.csv."""
    root = folder / "gtsrb"
    samples = {}
    for label in ("00000", "00001", "00002"):
        paths = [f"GTSRB/Training/{label}/00000_{at:05d}.ppm" for at in range(2)]
        _images(root, paths)
        table = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
        table += [f"00000_{at:05d}.ppm;29;30;5;6;24;25;{int(label)}" for at in range(2)]
        _lines(root, f"GTSRB/Training/{label}/GT-{label}.csv", table, "\r\n")
        samples |= dict.fromkeys(paths, ("train", str(int(label))))
    rows = ["Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"]
    for at, label in enumerate((2, 0, 1, 0)):
        path = f"GTSRB/Final_Test/Images/{at:05d}.ppm"
        _images(root, [path])
        rows.append(f"{at:05d}.ppm;53;54;6;5;48;49;{label}")
        samples[path] = ("test", str(label))
    _lines(root, "GT-final_test.csv", rows, "\r\n")
    return Expected("class", ["0", "1", "2"], samples)


def make_gtsrb_of_kaggle(folder: Path) -> Expected:
    """Kaggle's gtsrb-german-traffic-sign: folders 0 to 42, and tables with the paths."""
    samples = {}
    header = "Width,Height,Roi.X1,Roi.Y1,Roi.X2,Roi.Y2,ClassId,Path"
    rows = {"Train": [header], "Test": [header]}
    for label in range(12):
        for split, path in (
            ("Train", f"Train/{label}/000{label:02d}_00000.png"),
            ("Test", f"Test/{label:05d}.png"),
        ):
            _images(folder, [path])
            rows[split].append(f"27,26,5,5,22,20,{label},{path}")
            samples[path] = (split.lower(), str(label))
    for split, lines in rows.items():
        _lines(folder, f"{split}.csv", lines)
    _lines(folder, "Meta.csv", ["Path,ClassId,ShapeId,ColorId,SignId", "Meta/0.png,0,1,0,1.1"])
    _images(folder, ["Meta/0.png"])
    return Expected("class", [str(label) for label in range(12)], samples)


_CARS = ("AM General Hummer SUV 2000", "Acura RL Sedan 2012", "smart fortwo Convertible 2012")


def _car(name: str, number: int, **more: object) -> dict[str, object]:
    box = {"bbox_x1": 39, "bbox_y1": np.uint8(116), "bbox_x2": np.uint16(569), "bbox_y2": 375}
    return {**box, "class": np.uint8(number), "fname": name, **more}


def make_cars(folder: Path) -> Expected:
    """torchvision's StanfordCars: structs in the MAT files of the development kit."""
    root = folder / "stanford_cars"
    _mat(root, "devkit/cars_meta.mat", class_names=_cells(_CARS))
    samples = {}
    files = {"train": "devkit/cars_train_annos.mat", "test": "cars_test_annos_withlabels.mat"}
    for split, file in files.items():
        rows = []
        for at, number in enumerate((3, 1, 2, 1), 1):
            path = f"cars_{split}/{at:05d}.jpg"
            _images(root, [path])
            rows.append(_car(f"{at:05d}.jpg", number))
            samples[path] = (split, _CARS[number - 1])
        _mat(root, file, annotations=_structs(rows))
    return Expected("class", _CARS, samples)


def make_cars_without_test(folder: Path) -> Expected:
    """The archives of Stanford Cars alone, in which the annotations of the test have no class."""
    samples = make_cars(folder).samples
    (folder / "stanford_cars/cars_test_annos_withlabels.mat").unlink()
    samples = {path: row for path, row in samples.items() if row[0] == "train"}
    return Expected(
        "class",
        _CARS,
        samples,
        ["skipped test: cars_test_annos_withlabels.mat", "skipped 4 images"],
    )


def make_all_cars(folder: Path) -> Expected:
    """car_ims.tgz and cars_annos.mat of the same site."""
    samples, rows = {}, []
    for at, number in enumerate((1, 2, 3, 1, 2), 1):
        path = f"car_ims/{at:06d}.jpg"
        _images(folder, [path])
        rows.append(_car("", number, relative_im_path=path, test=np.uint8(at % 2)))
        samples[path] = ("test" if at % 2 else "train", _CARS[number - 1])
    _mat(folder, "cars_annos.mat", annotations=_structs(rows), class_names=_cells(_CARS))
    return Expected("class", _CARS, samples)


def make_flowers(folder: Path) -> Expected:
    """torchvision's Flowers102: numbers of images in setid.mat, which count from 1 as the labels do."""
    root, labels = folder / "flowers-102", [12, 1, 2, 12, 1, 2, 1, 12, 2, 3]
    _images(root / "jpg", [f"image_{at:05d}.jpg" for at in range(1, 11)])
    ids = {"trnid": [10, 2, 3], "valid": [4, 5, 6], "tstid": [7, 1, 9, 8]}
    _mat(root, "imagelabels.mat", labels=np.array([labels], np.uint8))
    _mat(root, "setid.mat", **{name: np.array([each]) for name, each in ids.items()})
    samples = {}
    for split, name in (("train", "trnid"), ("val", "valid"), ("test", "tstid")):
        for at in ids[name]:
            samples[f"jpg/image_{at:05d}.jpg"] = (split, str(labels[at - 1]))
    return Expected("class", ["1", "2", "3", "12"], samples, ["--rename-classes"])


def make_pets(folder: Path) -> Expected:
    """torchvision's OxfordIIITPet: classes by their numbers, which are not in the order of the names."""
    root, classes = folder / "oxford-iiit-pet", ["Abyssinian", "american_bulldog", "Bengal"]
    species, samples, listed = (1, 2, 1), {}, []
    for split, name, first in (("train", "trainval", 1), ("test", "test", 100)):
        lines = []
        for number, label in enumerate(classes, 1):
            for at in (first, first + 9):
                _images(root, [f"images/{label}_{at}.jpg"])
                lines.append(f"{label}_{at} {number} {species[number - 1]} 1")
                samples[f"images/{label}_{at}.jpg"] = (split, label)
        _lines(root, f"annotations/{name}.txt", reversed(lines))
        listed += lines
    head = ["#Image CLASS-ID SPECIES BREED ID", "#ID: 1:37 Class ids"]
    _lines(root, "annotations/list.txt", [*head, *listed])
    _images(root, ["annotations/trimaps/Abyssinian_1.png", "images/Abyssinian_34.jpg"])
    write(root, "images/Abyssinian_100.mat", "x")
    return Expected("class", classes, samples, ["skipped 1 image that", "--label-column species"])


def make_aircraft(folder: Path) -> Expected:
    """torchvision's FGVCAircraft: labels contain blanks and slashes, and ids begin with 0."""
    root = folder / "fgvc-aircraft-2013b/data"
    planes = [
        ("0034309", "A300B4", "A300", "Airbus"),
        ("1025794", "707-320", "Boeing 707", "Boeing"),
        ("1340192", "F/A-18", "F/A-18", "McDonnell Douglas"),
        ("0056978", "A300B4", "A300", "Airbus"),
        ("0698580", "F/A-18", "F/A-18", "McDonnell Douglas"),
        ("0450014", "707-320", "Boeing 707", "Boeing"),
    ]
    _images(root / "images", [f"{plane[0]}.jpg" for plane in planes])
    samples = {}
    for at, split in enumerate(("train", "val", "test")):
        for place, level in enumerate(("variant", "family", "manufacturer"), 1):
            lines = [f"{plane[0]} {plane[place]}" for plane in planes[at::3]]
            _lines(root, f"images_{level}_{split}.txt", lines)
            _lines(root, f"images_{level}_trainval.txt", lines)
        for plane in planes[at::3]:
            samples[f"images/{plane[0]}.jpg"] = (split, plane[1])
    _lines(root, "images_box.txt", [f"{plane[0]} 3 144 998 431" for plane in planes])
    # The classes are not in the order of their names.
    variants = ["707-320", "F/A-18", "A300B4"]
    _lines(root, "variants.txt", variants)
    _lines(root, "families.txt", ["Boeing 707", "F/A-18", "A300"])
    _lines(root, "manufacturers.txt", ["Boeing", "McDonnell Douglas", "Airbus"])
    return Expected("class", variants, samples, ["--label-column family"])


_ATTRIBUTES = ("5_o_Clock_Shadow", "Arched_Eyebrows", "Attractive", "Young")
_FACES = (
    *((-1, 1, 1, 1), (-1, -1, -1, 1), (1, -1, -1, -1), (-1, -1, -1, -1), (1, 1, 1, 1)),
    *((1, -1, 1, -1), (-1, 1, -1, 1)),
)
_PARTITION = (0, 0, 1, 2, 0, 1, 2)


def make_celeba(folder: Path) -> Expected:
    """torchvision's CelebA: blanks of several widths, and headers in the second line."""
    root = folder / "celeba"
    names = [f"{at:06d}.jpg" for at in range(1, 8)]
    _images(root / "img_align_celeba", names)
    rows = []
    for name, face in zip(names, _FACES, strict=True):
        rows.append(f"{name} " + " ".join(f"{each:2d}" for each in face))
    _lines(root, "list_attr_celeba.txt", [7, " ".join(_ATTRIBUTES) + " ", *rows])
    people = ("2880", "2937", "10", "9", "2880", "9", "2937")
    _lines(root, "identity_CelebA.txt", map(" ".join, zip(names, people, strict=True)))
    splits = _PARTITION
    _lines(
        root, "list_eval_partition.txt", [f"{n} {s}" for n, s in zip(names, splits, strict=True)]
    )
    boxes = [f"{name}    95  71 226 313" for name in names]
    _lines(root, "list_bbox_celeba.txt", [7, "image_id x_1 y_1 width height", *boxes])
    points = [f"{name} 69  109  106  113   77  142   73  152  108  154" for name in names]
    header = "lefteye_x lefteye_y righteye_x righteye_y nose_x nose_y leftmouth_x leftmouth_y rightmouth_x rightmouth_y"
    _lines(root, "list_landmarks_align_celeba.txt", [7, header, *points])
    return _celeba(f"img_align_celeba/{name}" for name in names)


def _celeba(paths: Iterable[str]) -> Expected:
    samples = {}
    for path, face, split in zip(paths, _FACES, _PARTITION, strict=True):
        labels = [name for name, value in zip(_ATTRIBUTES, face, strict=True) if value == 1]
        samples[path] = (("train", "val", "test")[split], labels)
    return Expected("multi-label", _ATTRIBUTES, samples)


def make_celeba_of_kaggle(folder: Path) -> Expected:
    """Kaggle's celeba-dataset: CSV files, and the folder of images twice."""
    names = [f"{at:06d}.jpg" for at in range(1, 8)]
    _images(folder / "img_align_celeba/img_align_celeba", names)
    rows = [",".join(["image_id", *_ATTRIBUTES])]
    for name, face in zip(names, _FACES, strict=True):
        rows.append(",".join([name, *map(str, face)]))
    _lines(folder, "list_attr_celeba.csv", rows)
    splits = [f"{n},{s}" for n, s in zip(names, _PARTITION, strict=True)]
    _lines(folder, "list_eval_partition.csv", ["image_id,partition", *splits])
    return _celeba(f"img_align_celeba/img_align_celeba/{name}" for name in names)


def make_places365(folder: Path) -> Expected:
    """torchvision's Places365: paths in the list of train begin with a slash."""
    classes = ["airfield", "airplane_cabin", "apartment_building/outdoor"]
    lines = [f"/a/{name} {at}" for at, name in enumerate(classes)]
    _lines(folder, "categories_places365.txt", lines)
    samples, train, val = {}, [], []
    for label, name in enumerate(classes):
        for at in (1, 2):
            path = f"/a/{name}/{at:08d}.jpg"
            _images(folder, [f"data_256_standard{path}"])
            train.append(f"{path} {label}")
            samples[f"data_256_standard{path}"] = ("train", name)
    for at, label in enumerate((2, 0, 1), 1):
        path = f"Places365_val_{at:08d}.jpg"
        _images(folder, [f"val_256/{path}"])
        val.append(f"{path} {label}")
        samples[f"val_256/{path}"] = ("val", classes[label])
    _images(folder, ["test_256/Places365_test_00000001.jpg"])
    _lines(folder, "places365_train_standard.txt", train)
    _lines(folder, "places365_val.txt", val)
    _lines(folder, "places365_test.txt", ["Places365_test_00000001.jpg"])
    return Expected("class", classes, samples, ["images of test have no labels"])


def _moved(folder: Path, places: Mapping[str, str]) -> None:
    for name, place in places.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).rename(folder / place)


def make_celeba_as_distributed(folder: Path) -> Expected:
    """The folders of the site of CelebA: Anno, Eval and Img."""
    samples = make_celeba(folder).samples
    places = {"list_eval_partition.txt": "Eval", "img_align_celeba": "Img"}
    for name in ("list_attr_celeba.txt", "identity_CelebA.txt"):
        places[name] = "Anno"
    _moved(folder / "celeba", {name: f"{place}/{name}" for name, place in places.items()})
    return _celeba(f"Img/{path}" for path in samples)


def make_gtsrb_as_distributed(folder: Path) -> Expected:
    """GTSRB_Final_Training_Images.zip, GTSRB_Final_Test_Images.zip and GTSRB_Final_Test_GT.zip."""
    expected = make_gtsrb(folder)
    truth = "GTSRB/Final_Test/Images/GT-final_test.csv"
    images = "GTSRB/Final_Training/Images"
    _moved(folder / "gtsrb", {"GTSRB/Training": images, "GT-final_test.csv": truth})
    _moved(folder, {"gtsrb/GTSRB": "GTSRB"})
    (folder / "gtsrb").rmdir()
    samples = {}
    for path, row in expected.samples.items():
        samples[path.replace("GTSRB/Training", images)] = row
    return expected._replace(samples=samples)


#: Datasets of Kaggle in which folders are doubled: the dataset, the folder, and the doubled ones.
DOUBLED: dict[str, tuple[Callable[[Path], Expected], str, tuple[str, ...]]] = {
    "Stanford Cars of Kaggle": (make_cars, "stanford_cars", ("cars_train", "cars_test", "devkit")),
    "Food-101 of Kaggle": (make_food, "food-101", ("meta",)),
    "Pets of Kaggle": (make_pets, "oxford-iiit-pet", ("images", "annotations")),
    "Caltech-256 of Kaggle": (make_caltech256, "caltech256", ("256_ObjectCategories",)),
    "FGVC-Aircraft of Kaggle": (make_aircraft, "", ("fgvc-aircraft-2013b",)),
}


def make_doubled(name: str, folder: Path) -> Expected:
    """A dataset of Kaggle in which archives were unpacked into folders of their names."""
    make, root, names = DOUBLED[name]
    expected, samples = make(folder), {}
    for each in names:
        _moved(folder / root, {each: f"x/{each}"})
        _moved(folder / root, {"x": "car_devkit" if each == "devkit" else each})
    for path, row in expected.samples.items():
        top = path.split("/")[0]
        samples[f"{top}/{path}" if top in names else path] = row
    if not root:  # Kaggle puts tables beside it
        _lines(folder, "train.csv", ["filename,Classes,Labels", "0034309.jpg,A300B4,1"])
    return expected._replace(samples=samples)


def make_large_places365(folder: Path) -> Expected:
    """The tars of Places365 in the original size, as they unpack, and the small images beside them."""
    expected = make_places365(folder)
    for name, large in (("data_256_standard", "data_large"), ("val_256", "val_large")):
        shutil.copytree(folder / name, folder / large)
    _moved(folder, {"data_256_standard": "data_256"})
    samples = {}
    for path, row in expected.samples.items():
        small, _, name = path.partition("/")
        samples[f"{'val_large' if small == 'val_256' else 'data_large'}/{name}"] = row
    return expected._replace(samples=samples, notices=["skipped data_256, other copies"])


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
    "CelebA of Kaggle": make_celeba_of_kaggle, "CelebA as distributed": make_celeba_as_distributed,
    "GTSRB as distributed": make_gtsrb_as_distributed,
    **{name: partial(make_doubled, name) for name in DOUBLED}, "Places365": make_places365,
    "Places365 in the original size": make_large_places365,
}  # fmt: skip
