"""Images with a mask or a depth map of each: Cityscapes, ADE20K, and plain folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.base import Source
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


#: Folders of images, of masks, and of depth maps, in plain layouts.
IMAGE_FOLDERS = frozenset(
    ["images", "image", "imgs", "img", "rgb", "jpegimages", "jpg", "jpgs", "jpeg"]
)
MASK_FOLDERS = frozenset(
    [
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
    ]
)
DEPTH_FOLDERS = frozenset(["depth", "depths", "disparity"])


#: Returns the name of the image, without folder and suffix, that a file is the mask of; `None` if
#: it is none.
ImageOf = Callable[[str], str | None]


@dataclass(frozen=True, slots=True)
class PairedFolders:
    """Folders of a split, relative to the root of the source.

    Attributes:
        split: name of the split.
        images: folder of the images.
        labels: folder of the masks or depth maps.

    """

    split: str
    images: str
    labels: str


@dataclass(frozen=True, slots=True)
class Pairs:
    """Where the images of a source and their masks or depth maps are.

    Attributes:
        root: the folder that paths are relative to.
        folders: the folders of each split.
        label_type: ``"mask"`` or ``"depth"``.
        layout: value of `Source.layout`.
        classes: names of the values of masks; empty if they are not known.
        name_of_image: returns the part of the name of an image that its mask shares.
        image_of: returns the part of the name of a mask that its image shares; `None` tries common
            endings.
        notices: messages about folders that are skipped.

    """

    root: str
    folders: Sequence[PairedFolders]
    label_type: LabelType
    layout: str
    classes: tuple[str, ...] = ()
    name_of_image: Callable[[str], str] = str
    image_of: ImageOf | None = None
    notices: Sequence[str] = ()


def find_segmentation(src: str, folders: Sequence[str], options: SourceOptions) -> Pairs | None:
    """Return where the masks or depth maps of a folder are; `None` if it is not known to have any.

    Args:
        src: the folder.
        folders: names of the folders in it.
        options: `label_type` chooses between masks and depth maps, and `classes` names the values
            of masks.

    Raises:
        SourceError: folders of masks or depth maps are missing, or do not fit together.

    """
    if options.label_type == "class":
        return None
    # If there are no labels of the type that is asked for, `read_pairs` names those that there are.
    for label_type in dict.fromkeys((options.label_type, None)):
        asked = replace(options, label_type=label_type)
        for find in (_find_cityscapes, _find_ade20k, _find_plain):
            found = find(src, folders, asked)
            if found is not None:
                return found
    return None


def _wants(options: SourceOptions, label_type: LabelType) -> bool:
    return options.label_type in (None, label_type)


# --- Cityscapes ----------------------------------------------------------------------------------

_CITYSCAPES_SPLITS = ("train", "train_extra", "val")


def _find_cityscapes(src: str, folders: Sequence[str], options: SourceOptions) -> Pairs | None:
    if "leftImg8bit" not in folders:
        return None
    label_type: LabelType = "mask"
    for labels in ("gtFine", "gtCoarse"):
        if labels in folders and _wants(options, "mask"):
            suffix, classes = f"_{labels}_labelIds", CITYSCAPES_IDS
            if _has_train_ids(f"{src}/{labels}"):
                suffix, classes = f"_{labels}_labelTrainIds", CITYSCAPES_TRAIN_IDS
            classes = options.classes or classes
            break
    else:
        if "disparity" in folders and _wants(options, "depth"):
            labels, suffix, label_type, classes = "disparity", "_disparity", "depth", ()
        elif options.label_type in ("mask", "depth"):
            needed = "gtFine/ or gtCoarse/" if options.label_type == "mask" else "disparity/"
            raise SourceError(
                f"Cityscapes has no {needed} for --label-type {options.label_type}",
                file=src,
                hint=f"unpack {needed} beside leftImg8bit/, or choose another label type",
            )
        else:
            return None
    # The masks of test/ are not published: what is there has no classes.
    pairs = []
    for split in _CITYSCAPES_SPLITS:
        pair = PairedFolders(split, f"leftImg8bit/{split}", f"{labels}/{split}")
        if storage.is_folder(f"{src}/{pair.images}") and storage.is_folder(f"{src}/{pair.labels}"):
            pairs.append(pair)
    return Pairs(
        src,
        pairs,
        label_type,
        layout="Cityscapes",
        classes=classes,
        name_of_image=lambda stem: stem.removesuffix("_leftImg8bit"),
        image_of=lambda stem: stem.removesuffix(suffix) if stem.endswith(suffix) else None,
    )


def _has_train_ids(folder: str) -> bool:
    """Return whether there are masks with the 19 classes of the benchmark; they are read then."""
    for split in _CITYSCAPES_SPLITS:
        inside = f"{folder}/{split}"
        for city in list_folders(inside)[:1] if storage.is_folder(inside) else ():
            names = list_images(f"{inside}/{city}")
            if any(name.endswith("_labelTrainIds.png") for name in names):
                return True
    return False


# --- ADE20K --------------------------------------------------------------------------------------

#: The folder in the archive.
_ADE20K = "ADEChallengeData2016"


def _find_ade20k(src: str, folders: Sequence[str], options: SourceOptions) -> Pairs | None:
    if _ADE20K in folders:
        src = f"{src}/{_ADE20K}"
        folders = list_folders(src)
    if not {"images", "annotations"} <= {*folders} or not _wants(options, "mask"):
        return None
    pairs = []
    for name in ("training", "validation"):
        if storage.is_folder(f"{src}/annotations/{name}"):
            split = SPLIT_ALIASES[name]
            pairs.append(PairedFolders(split, f"images/{name}", f"annotations/{name}"))
    if not pairs:
        return None
    classes = options.classes or _ade20k_classes(f"{src}/objectInfo150.txt")
    return Pairs(src, pairs, "mask", layout="ADE20K", classes=classes)


def _ade20k_classes(file: str) -> tuple[str, ...]:
    """Return the names in objectInfo150.txt, after the name of the value 0; empty without such a file."""
    if not storage.is_file(file):
        return ()
    names = ["other"]
    for line in [*read_lines(file, SOURCE_LIST)][1:]:
        row = line.decode("utf-8", "replace").rstrip("\n").split("\t")
        if row[0].strip().isdigit():
            names.append(row[-1].split(",")[0].strip())
    return tuple(names)


# --- plain folders -------------------------------------------------------------------------------


#: The split that is often published without masks.
_WITHOUT_MASKS = "test"


def _find_plain(src: str, folders: Sequence[str], options: SourceOptions) -> Pairs | None:
    """Find ``images/`` and ``masks/``. There may be folders of splits in both, or around them."""
    notices: list[str] = []
    found = _image_and_second(src, folders, options)
    if found is not None:
        images, labels, label_type = found
        pairs = _inner_splits(src, images, labels, notices)
    else:
        pairs, label_type = _outer_splits(src, folders, options, notices)
    if not pairs:
        return None
    if label_type == "depth":
        return Pairs(src, pairs, "depth", layout="images with depth maps", notices=notices)
    classes = options.classes or ()
    return Pairs(src, pairs, "mask", "images with masks", classes, notices=notices)


def _inner_splits(src: str, images: str, labels: str, notices: list[str]) -> list[PairedFolders]:
    """Return ``images/train/`` and ``masks/train/`` for each split, or ``images/`` and ``masks/`` without splits."""
    folders = list_folders(f"{src}/{images}")
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    splits = map_splits(f"{src}/{images}", named, SPLIT_ALIASES)
    if not splits:
        return [PairedFolders("train", images, labels)]
    for name in folders:
        if name not in named:
            notices.append(f"skipped {images}/{printable(name)}/, which is not the name of a split")
    notices += stray_notices(list_images(src, images), "outside of the splits")
    pairs = []
    for split in split_order({*splits}):
        name = splits[split]
        if split == _WITHOUT_MASKS and not storage.is_folder(f"{src}/{labels}/{name}"):
            notices.append(f"skipped {split}: there is no {labels}/{name}/")
        else:
            pairs.append(PairedFolders(split, f"{images}/{name}", f"{labels}/{name}"))
    return pairs


def _outer_splits(
    src: str, folders: Sequence[str], options: SourceOptions, notices: list[str]
) -> tuple[list[PairedFolders], LabelType]:
    """Return ``train/images/`` and ``train/masks/`` for each split, if it has masks."""
    pairs: dict[str, PairedFolders] = {}
    types: list[LabelType] = []
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    for name in named:
        split = SPLIT_ALIASES[name.lower()]
        inside = list_folders(f"{src}/{name}")
        found = _image_and_second(f"{src}/{name}", inside, options)
        if found is not None:
            images, labels, label_type = found
            pairs[split] = PairedFolders(split, f"{name}/{images}", f"{name}/{labels}")
            types.append(label_type)
        elif split == _WITHOUT_MASKS and not IMAGE_FOLDERS.isdisjoint(map(str.lower, inside)):
            notices.append(f"skipped {name}/: its images have no masks or depth maps")
        else:
            return [], "mask"
    if not pairs:
        return [], "mask"
    map_splits(src, named, SPLIT_ALIASES)
    if len({*types}) > 1:
        raise SourceError(
            "some splits have masks, and others depth maps",
            file=src,
            hint="set --label-type to mask or depth",
        )
    return [pairs[split] for split in split_order({*pairs})], types[0]


def _image_and_second(
    src: str, folders: Sequence[str], options: SourceOptions
) -> tuple[str, str, LabelType] | None:
    """Return the folders of images and of masks or depth maps, and which these are."""
    images, masks, depths = [], [], []
    for name in folders:
        if name.lower() in IMAGE_FOLDERS:
            images.append(name)
        elif name.lower() in MASK_FOLDERS:
            # Oxford-IIIT Pet has its masks in a folder of the annotations.
            inside = f"{name}/trimaps" if "trimaps" in list_folders(f"{src}/{name}") else name
            if _has_png(f"{src}/{inside}"):
                masks.append(inside)
        elif name.lower() in DEPTH_FOLDERS and _has_png(f"{src}/{name}"):
            depths.append(name)
    if len(images) == 1:
        if len(masks) == 1 and _wants(options, "mask"):
            return images[0], masks[0], "mask"
        if len(depths) == 1 and _wants(options, "depth"):
            return images[0], depths[0], "depth"
    return None


def _has_png(folder: str) -> bool:
    """Return whether a folder, or a folder in it, contains PNGs: other files are no masks."""
    for part in (folder, *(f"{folder}/{name}" for name in list_folders(folder)[:10])):
        if any(name.lower().endswith(".png") for name in list_images(part)):
            return True
    return False


# --- pairs of an image and its label image --------------------------------------------------------


#: Odd, so that numbers that differ still differ when they are multiplied by it, modulo 2**64.
_FACTOR = 0x2545F4914F6CDD1D

#: What may follow the name of an image in the name of its mask.
_ENDINGS = ("", "_mask", "-mask", "_seg", "_segmentation", "_label", "_gt", "_depth", "-depth")


def read_pairs(src: str, pairs: Pairs, options: SourceOptions) -> Source:
    """Read images with their masks or depth maps.

    An image belongs to the file at the same path in the other folder, whatever the suffixes are.
    Images without one are rejected.

    Raises:
        CallError: `label_type` is another one.
        SourceError: two masks belong to one image, or no image has a mask.

    """
    root, folders, label_type = pairs.root, pairs.folders, pairs.label_type
    if options.label_type not in (None, label_type):
        raise CallError(
            f"--label-type {options.label_type}: {src} has labels of the type {label_type}"
            f" ({pairs.layout})",
            hint=f"leave out --label-type, or set --label-type {label_type}",
        )
    scan, splits = Scan(root), tuple(dict.fromkeys(each.split for each in folders))
    label_images, stats, kept, numbers, rejected, notices = [], [], [], [], [], []
    at = 0
    for each in folders:
        (count,) = scan.add(each.images)
        found, found_stats = _find_label_images(root, each.labels, pairs.image_of)
        unused = {*found.values()}
        for path in scan.path.slice(at, count).to_pylist():
            inside, name = os.path.split(os.path.splitext(os.path.relpath(path, each.images))[0])
            stem = os.path.join(inside, pairs.name_of_image(name))
            label_image = found.get(stem)
            kept.append(label_image is not None)
            if label_image is None:
                detail = f"it has no {label_type}: {each.labels}/ has no file of the name {stem}"
                rejected.append({"source": path, "reason": "bad-label", "detail": detail})
            else:
                unused.discard(label_image)
                label_images.append(label_image)
                stats.append(found_stats[label_image])
                numbers.append(splits.index(each.split))
        at += count
        if unused:
            belong = agree(len(unused), "belongs", "belong")
            notices.append(
                f"skipped {plural(len(unused), 'file')} in {each.labels}/ that {belong} to no"
                f" image: {printable(min(unused))}"
            )
    if not label_images:
        raise SourceError(
            f"no image has a {label_type} of the same name",
            file=root,
            hint=(
                f"name each {label_type} like its image: {folders[0].images}/1.jpg and"
                f" {folders[0].labels}/1.png"
            ),
        )
    source = scan.source(pairs.layout, splits)
    source = replace(source, table=source.table.filter(pa.array(kept)))
    source = source.with_columns(
        split=np.array(numbers, np.int8),
        extra=pa.table({MASK_SOURCE: pa.array(label_images, pa.string())}),
        stamp=with_label_images(source.stamp, np.array(stats, np.int64)),
    )
    return replace(
        source,
        classes=pairs.classes,
        notices=(*source.notices, *notices, *pairs.notices),
        rejected=(*source.rejected, *rejected),
        label_type=label_type,
        label_origin=" and ".join(dict.fromkeys(f"{each.labels}/" for each in folders)),
    )


def with_label_images(
    stamp: NDArray[np.int64] | None, label_images: NDArray[np.int64]
) -> NDArray[np.int64] | None:
    """Return stamps that change with either file of a sample; see `Source.stamp`.

    Args:
        stamp: the stamps of the images, int64 [n, 2].
        label_images: size, modification time and inode of the masks or depth maps, int64 [n, 3].

    """
    if stamp is None:
        return None
    return stamp + _FACTOR * (label_images[:, 1:] + _FACTOR * label_images[:, :1])


def _find_label_images(
    root: str, folder: str, image_of: ImageOf | None
) -> tuple[dict[str, str], dict[str, NDArray[np.int64]]]:
    """Return the file of each image, by the path of the image without suffix, and size, time and inode of each file."""
    scan = Scan(root)
    scan.add(folder)
    paths = scan.path.to_pylist()
    found: dict[str, str] = {}
    for path in paths:
        inside, name = os.path.split(os.path.splitext(os.path.relpath(path, folder))[0])
        if image_of:
            stems = [image_of(name)]
        else:
            stems = [name.removesuffix(end) for end in _ENDINGS if name.endswith(end)]
        for stem in filter(None, stems):
            other = found.setdefault(os.path.join(inside, stem), path)
            if other != path:
                raise SourceError(
                    f"{printable(other)} and {printable(path)} belong to the same image",
                    file=root,
                    hint="keep one of them",
                )
    return found, dict(zip(paths, scan.stats, strict=True))
