"""Images with a mask or a depth map of each: Cityscapes, ADE20K, and plain folders."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.base import Kind, Source
from dataprep.sources.scan import Scan, list_folders, list_images, map_splits, stray_notices
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_LIST, read_lines
from manifests.labels import MASK_SOURCE, LabelType
from manifests.process.text import agree, plural, printable
from manifests.schema import SPLIT_ALIASES, split_order

#: Cityscapes, ``*_labelIds.png`` (``cityscapesscripts/helpers/labels.py``).
_CITYSCAPES_IDS = (
    "unlabeled, ego vehicle, rectification border, out of roi, static, dynamic, ground, road, "
    "sidewalk, parking, rail track, building, wall, fence, guard rail, bridge, tunnel, pole, "
    "polegroup, traffic light, traffic sign, vegetation, terrain, sky, person, rider, car, truck, "
    "bus, caravan, trailer, train, motorcycle, bicycle"
)
CITYSCAPES_IDS = tuple(_CITYSCAPES_IDS.split(", "))

#: Cityscapes, ``*_labelTrainIds.png``. The value 255 means none of them.
_CITYSCAPES_TRAIN_IDS = (
    "road, sidewalk, building, wall, fence, pole, traffic light, traffic sign, vegetation, "
    "terrain, sky, person, rider, car, truck, bus, train, motorcycle, bicycle"
)
CITYSCAPES_TRAIN_IDS = tuple(_CITYSCAPES_TRAIN_IDS.split(", "))

#: Pascal VOC, ``SegmentationClass/``. The value 255 means the border of an object.
_VOC = (
    "background, aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable, "
    "dog, horse, motorbike, person, pottedplant, sheep, sofa, train, tvmonitor"
)
VOC = tuple(_VOC.split(", "))


#: What is in a folder, by its name in lower case, in plain layouts.
CONTENTS = {
    **dict.fromkeys(
        ("images", "image", "imgs", "img", "rgb", "jpegimages", "jpg", "jpgs", "jpeg"), "image"
    ),
    **dict.fromkeys(
        (
            "masks",
            "mask",
            "labels",
            "annotations",
            "annotation",
            "gt",
            "ground_truth",
            "groundtruth",
            "segmentations",
            "segmentation",
            "segmentationclass",
            "trimaps",
        ),
        "mask",
    ),
    **dict.fromkeys(("depth", "depths", "disparity"), "depth"),
}

#: The folder of the images and the folder of their masks or depth maps, by split.
_Folders = Mapping[str, tuple[str, str]]

#: Types of labels to look for.
_Wanted = tuple[LabelType, ...]

#: What may follow the name of an image in the name of its mask.
_ENDINGS = ("", "_mask", "-mask", "_seg", "_segmentation", "_label", "_gt", "_depth", "-depth")


@dataclass(frozen=True, slots=True)
class Pairs:
    """Where the images of a source and their masks or depth maps are.

    Attributes:
        root: the folder that paths are relative to.
        folders: the folder of the images and the folder of the masks or depth maps, by split.
        label_type: ``"mask"`` or ``"depth"``.
        layout: value of `Source.layout`.
        classes: names of the values of masks; empty if they are not known.
        ending: what follows the name in the name of an image.
        endings: what may follow the name of an image in the name of its mask.
        notices: messages about folders that are skipped.

    """

    root: str
    folders: _Folders
    label_type: LabelType
    layout: str
    classes: tuple[str, ...] = ()
    ending: str = ""
    endings: Sequence[str] = _ENDINGS
    notices: Sequence[str] = ()


def find_segmentation(src: str, folders: Sequence[str], options: SourceOptions) -> Pairs | None:
    """Return where the masks or depth maps of a folder are; `None` if it is not known to have any.

    Args:
        src: the folder.
        folders: names of the folders in it.
        options: `label_type` chooses between masks and depth maps.

    Raises:
        SourceError: folders of masks or depth maps are missing, or do not fit together.

    """
    if options.label_type == "class":
        return None
    # If there are no labels of the type that is asked for, `read_pairs` names the labels that there are.
    wanted: list[_Wanted] = [("mask", "depth")]
    if options.label_type:
        wanted.insert(0, (options.label_type,))
    for label_types in wanted:
        for find in (_find_cityscapes, _find_ade20k, _find_plain):
            if found := find(src, folders, label_types):
                return found
    return None


def _has_image(folders: Iterable[str], ending: str) -> bool:
    """Return whether an image directly in one of the folders has a name with this ending, in lower case."""
    for folder in folders:
        for name in list_images(folder):
            if name.lower().endswith(ending):
                return True
    return False


# --- Cityscapes ----------------------------------------------------------------------------------

#: For each folder of labels: their type, the end of their names, and the classes.
_CITYSCAPES: dict[str, tuple[LabelType, str, tuple[str, ...]]] = {
    "gtFine": ("mask", "_gtFine_labelIds", CITYSCAPES_IDS),
    "gtCoarse": ("mask", "_gtCoarse_labelIds", CITYSCAPES_IDS),
    "disparity": ("depth", "_disparity", ()),
}
_NEEDED: dict[_Wanted, str] = {("mask",): "gtFine/ or gtCoarse/", ("depth",): "disparity/"}


def _find_cityscapes(src: str, folders: Sequence[str], wanted: _Wanted) -> Pairs | None:
    if "leftImg8bit" not in folders:
        return None
    for labels, known in _CITYSCAPES.items():
        label_type, ending, classes = known
        if labels in folders and label_type in wanted:
            break
    else:
        if wanted not in _NEEDED:
            return None
        raise SourceError(
            f"Cityscapes has no {_NEEDED[wanted]} for --label-type {wanted[0]}",
            file=src,
            hint=f"unpack {_NEEDED[wanted]} beside leftImg8bit/, or choose another label type",
        )
    # The masks of test/ are not published: what is there has no classes.
    pairs, cities = {}, []
    for split in ("train", "train_extra", "val"):
        images, masks = f"leftImg8bit/{split}", f"{labels}/{split}"
        if storage.is_folder(f"{src}/{images}") and storage.is_folder(f"{src}/{masks}"):
            pairs[split] = images, masks
            cities += [f"{src}/{masks}/{city}" for city in list_folders(f"{src}/{masks}")[:1]]
    # Masks with the 19 classes of the benchmark are read if there are any.
    if label_type == "mask" and _has_image(cities, "_labeltrainids.png"):
        ending, classes = f"_{labels}_labelTrainIds", CITYSCAPES_TRAIN_IDS
    return Pairs(
        src, pairs, label_type, "Cityscapes", classes, ending="_leftImg8bit", endings=(ending,)
    )


# --- ADE20K --------------------------------------------------------------------------------------

#: The folder in the archive.
_ADE20K = "ADEChallengeData2016"


def _find_ade20k(src: str, folders: Sequence[str], wanted: _Wanted) -> Pairs | None:
    if _ADE20K in folders:
        src = f"{src}/{_ADE20K}"
        folders = list_folders(src)
    if not {"images", "annotations"} <= {*folders} or "mask" not in wanted:
        return None
    pairs = {}
    for name in ("training", "validation"):
        if storage.is_folder(f"{src}/annotations/{name}"):
            pairs[SPLIT_ALIASES[name]] = f"images/{name}", f"annotations/{name}"
    if not pairs:
        return None
    return Pairs(src, pairs, "mask", "ADE20K", _ade20k_classes(f"{src}/objectInfo150.txt"))


def _ade20k_classes(file: str) -> tuple[str, ...]:
    """Return the names in objectInfo150.txt, after the name of the value 0; empty without such a file."""
    if not storage.is_file(file):
        return ()
    names = ["other"]
    for line in read_lines(file, SOURCE_LIST):
        row = line.decode("utf-8", "replace").rstrip("\n").split("\t")
        if row[0].strip().isdigit():
            names.append(row[-1].split(",")[0].strip())
    return tuple(names)


# --- plain folders -------------------------------------------------------------------------------


#: The split that is often published without masks.
_WITHOUT_MASKS = "test"


def _find_plain(src: str, folders: Sequence[str], wanted: _Wanted) -> Pairs | None:
    """Find ``images/`` and ``masks/``. There may be folders of splits in both, or around them."""
    notices: list[str] = []
    found = _image_and_second(src, folders, wanted)
    if found is not None:
        images, labels, label_type = found
        pairs = _inner_splits(src, images, labels, notices)
    else:
        pairs, label_type = _outer_splits(src, folders, wanted, notices)
    if not pairs:
        return None
    layout = "images with masks" if label_type == "mask" else "images with depth maps"
    return Pairs(src, pairs, label_type, layout, notices=notices)


def _inner_splits(src: str, images: str, labels: str, notices: list[str]) -> _Folders:
    """Return ``images/train/`` and ``masks/train/`` for each split, or ``images/`` and ``masks/`` without splits."""
    folders = list_folders(f"{src}/{images}")
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    splits = map_splits(f"{src}/{images}", named)
    if not splits:
        return {"train": (images, labels)}
    for name in folders:
        if name not in named:
            notices.append(f"skipped {images}/{printable(name)}/, which is not the name of a split")
    notices += stray_notices(list_images(src, images), "outside of the splits")
    pairs = {}
    for split in split_order({*splits}):
        name = splits[split]
        if split == _WITHOUT_MASKS and not storage.is_folder(f"{src}/{labels}/{name}"):
            notices.append(f"skipped {split}: there is no {labels}/{name}/")
        else:
            pairs[split] = f"{images}/{name}", f"{labels}/{name}"
    return pairs


def _outer_splits(
    src: str, folders: Sequence[str], wanted: _Wanted, notices: list[str]
) -> tuple[_Folders, LabelType]:
    """Return ``train/images/`` and ``train/masks/`` for each split, if it has masks."""
    pairs = {}
    label_types = set()
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    for name in named:
        split = SPLIT_ALIASES[name.lower()]
        inside = list_folders(f"{src}/{name}")
        found = _image_and_second(f"{src}/{name}", inside, wanted)
        if found is not None:
            images, labels, label_type = found
            pairs[split] = f"{name}/{images}", f"{name}/{labels}"
            label_types.add(label_type)
        elif split == _WITHOUT_MASKS and "image" in map(_content, inside):
            notices.append(f"skipped {name}/: its images have no masks or depth maps")
        else:
            return {}, "mask"
    if not pairs:
        return {}, "mask"
    map_splits(src, named)
    if len(label_types) > 1:
        raise SourceError(
            "some splits have masks, and others depth maps",
            file=src,
            hint="set --label-type to mask or depth",
        )
    return {split: pairs[split] for split in split_order({*pairs})}, label_types.pop()


def _content(folder: str) -> str:
    return CONTENTS.get(folder.lower(), "")


def _image_and_second(
    src: str, folders: Sequence[str], wanted: _Wanted
) -> tuple[str, str, LabelType] | None:
    """Return the folders of images and of masks or depth maps, and which these are."""
    found = defaultdict(list)
    for name in folders:
        content, inside = _content(name), name
        # Oxford-IIIT Pet has its masks in a folder of the annotations.
        if content == "mask" and "trimaps" in list_folders(f"{src}/{name}"):
            inside = f"{name}/trimaps"
        if content == "image" or (content and _has_png(f"{src}/{inside}")):
            found[content].append(inside)
    for label_type in wanted:
        if len(found["image"]) == len(found[label_type]) == 1:
            return found["image"][0], found[label_type][0], label_type
    return None


def _has_png(folder: str) -> bool:
    """Return whether a folder, or a folder in it, contains PNGs: other files are no masks."""
    within = [f"{folder}/{name}" for name in list_folders(folder)[:10]]
    return _has_image([folder, *within], ".png")


# --- pairs of an image and its label image --------------------------------------------------------


#: Odd, so that numbers that differ still differ when they are multiplied by it, modulo 2**64.
_FACTOR = 0x2545F4914F6CDD1D


def read_pairs(src: str, pairs: Pairs, options: SourceOptions) -> Source:
    """Read images with their masks or depth maps.

    An image belongs to the file at the same path in the other folder, whatever the suffixes are.
    Images without one are rejected.

    Raises:
        CallError: `label_type` is another one.
        SourceError: two masks belong to one image, or no image has a mask.

    """
    label_type = pairs.label_type
    if options.label_type not in (None, label_type):
        raise CallError(
            f"--label-type {options.label_type}: {src} has labels of the type {label_type}"
            f" ({pairs.layout})",
            hint=f"leave out --label-type, or set --label-type {label_type}",
        )
    scan = Scan(pairs.root)
    kept = {}
    rejected, label_images, notices = {}, [], [*pairs.notices]
    at = 0
    for number, (images, labels) in enumerate(pairs.folders.values()):
        scan.add(images)
        found = _find_label_images(pairs, labels)
        unused = {path for path, _ in found.values()}
        paths = scan.path.slice(at).to_pylist()
        # An image without a file of labels is rejected; a file without an image is skipped.
        for row, path in enumerate(paths, at):
            stem = stem_of(path, images).removesuffix(pairs.ending)
            if stem in found:
                label_image, stats = found[stem]
                unused.discard(label_image)
                label_images.append(label_image)
                kept[row] = number, stats
            else:
                rejected[path] = f"it has no {label_type}: {labels}/ has no file of the name {stem}"
        at += len(paths)
        if unused:
            belong = agree(len(unused), "belongs", "belong")
            notices.append(
                f"skipped {plural(len(unused), 'file')} in {labels}/ that {belong} to no"
                f" image: {printable(min(unused))}"
            )
    if not kept:
        images, labels = next(iter(pairs.folders.values()))
        raise SourceError(
            f"no image has a {label_type} of the same name",
            file=pairs.root,
            hint=f"name each {label_type} like its image: {images}/1.jpg and {labels}/1.png",
        )
    source = labelled_source(scan, pairs.layout, [*pairs.folders], kept, rejected)
    return replace(
        source.with_columns(extra=mask_column(label_images)).with_notices(*notices),
        classes=(options.classes or pairs.classes) if label_type == "mask" else (),
        label_type=label_type,
        label_origin=" and ".join(dict.fromkeys(f"{each}/" for _, each in pairs.folders.values())),
    )


def labelled_source(
    scan: Scan,
    layout: str,
    splits: Sequence[str],
    kept: Mapping[int, tuple[int, Sequence[int]]],
    rejected: Mapping[str, str],
) -> Source:
    """Return the images of a scan that have a file of labels each.

    Args:
        scan: the images.
        layout: as in `Source`.
        splits: as in `Source`.
        kept: for the row of each image with labels, the number of its split, and size, modification
            time and inode of the file.
        rejected: why an image is left out, by its path.

    """
    source = scan.source(layout, splits)
    rows = [*source.rejected]
    for path, detail in rejected.items():
        rows.append({"source": path, "reason": "bad-label", "detail": detail})
    split, stats = [], []
    for number, file in kept.values():
        split.append(number)
        stats.append(file)
    table = source.table.take(pa.array(kept))
    source = replace(source, table=table, rejected=tuple(rows))
    # A stamp changes with either file of a sample.
    files = np.array(stats, np.int64)
    stamp = np.asarray(source.stamp) + _FACTOR * (files[:, 1:] + _FACTOR * files[:, :1])
    return source.with_columns(split=np.array(split, np.int8), stamp=stamp)


def mask_column(paths: Sequence[str]) -> pa.Table:
    """Return the extra columns of a source with label images."""
    return pa.table({MASK_SOURCE: pa.array(paths, pa.string())})


def stem_of(path: str, folder: str) -> str:
    """Return the path of an image in a folder, relative to it and without suffix."""
    return os.path.splitext(path.removeprefix(f"{folder}/"))[0]


def _find_label_images(pairs: Pairs, folder: str) -> dict[str, tuple[str, Sequence[int]]]:
    """Return the file of each image with its size, time and inode, by the path of the image without suffix."""
    scan = Scan(pairs.root)
    scan.add(folder)
    found: dict[str, tuple[str, Sequence[int]]] = {}
    for path, stats in zip(scan.path.to_pylist(), scan.stats, strict=True):
        name = stem_of(path, folder)
        # The file may be called like the image, or like the image with one of the endings.
        for ending in pairs.endings:
            stem = name.removesuffix(ending)
            if not name.endswith(ending) or not os.path.basename(stem):
                continue
            other, _ = found.setdefault(stem, (path, stats))
            if other != path:
                raise SourceError(
                    f"{printable(other)} and {printable(path)} belong to the same image",
                    file=pairs.root,
                    hint="keep one of them",
                )
    return found


KINDS = (Kind("a folder of images with masks or depth maps", find_segmentation, read_pairs),)
