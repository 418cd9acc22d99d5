"""Images with a mask or a depth map of each: Cityscapes, ADE20K, and plain folders."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep import storage
from dataprep.sources.base import Source, SourceOptions
from dataprep.sources.scan import Scan, list_folders, list_images, map_splits, stray_notices
from manifests.errors import SourceError
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
    ("images", "image", "imgs", "img", "rgb", "jpegimages", "jpg", "jpgs", "jpeg")
)
_MASK_FOLDERS = (
    "masks, mask, labels, annotations, annotation, gt, ground_truth, groundtruth, segmentations, "
    "segmentation, segmentationclass, trimaps"
)
MASK_FOLDERS = frozenset(_MASK_FOLDERS.split(", "))
DEPTH_FOLDERS = frozenset(("depth", "depths", "disparity"))

#: Masks are stored as PNG, and other files of these folders are annotations of another kind.
_PNG = ".png"


def read_segmentation(src: str, folders: Sequence[str], options: SourceOptions) -> Source | None:
    """Read a folder of images with masks or depth maps; `None` if it is not known to be one.

    Args:
        src: the folder.
        folders: names of the folders in it.
        options: `label_type` chooses between masks and depth maps, and `classes` names the values
            of masks.

    Raises:
        SourceError: two masks belong to one image, or no image has one.

    """
    readers = (_read_cityscapes, _read_ade20k, _read_plain)
    for read in readers:
        source = read(src, folders, options)
        if source is not None:
            return source
    return None


def _wants(options: SourceOptions, label_type: LabelType) -> bool:
    return options.label_type in (None, label_type)


# --- Cityscapes -----------------------------------------------------------------------------------

_CITYSCAPES_SPLITS = ("train", "train_extra", "val")


def _read_cityscapes(src: str, folders: Sequence[str], options: SourceOptions) -> Source | None:
    if "leftImg8bit" not in folders:
        return None
    labels = next((name for name in ("gtFine", "gtCoarse") if name in folders), None)
    if labels is not None and _wants(options, "mask"):
        ending = _cityscapes_ending(f"{src}/{labels}")
        classes = CITYSCAPES_TRAIN_IDS if ending == "labelTrainIds" else CITYSCAPES_IDS
        suffix = f"_{labels}_{ending}"
        return _cityscapes(src, labels, suffix, "mask", options.classes or classes)
    if "disparity" in folders and _wants(options, "depth"):
        return _cityscapes(src, "disparity", "_disparity", "depth", ())
    if options.label_type in ("mask", "depth"):
        needed = "gtFine/ or gtCoarse/" if options.label_type == "mask" else "disparity/"
        raise SourceError(
            f"Cityscapes has no {needed} for --label-type {options.label_type}",
            file=src,
            hint=f"unpack {needed} beside leftImg8bit/, or choose another label type",
        )
    return None


def _cityscapes_ending(folder: str) -> str:
    """Return the ending of the masks to read: those with the 19 classes of the benchmark if they exist."""
    for split in _CITYSCAPES_SPLITS:
        for city in (
            list_folders(f"{folder}/{split}")[:1] if storage.is_folder(f"{folder}/{split}") else []
        ):
            if any(
                name.endswith("_labelTrainIds.png")
                for name in list_images(f"{folder}/{split}/{city}")
            ):
                return "labelTrainIds"
    return "labelIds"


def _cityscapes(
    src: str, labels: str, suffix: str, label_type: LabelType, classes: tuple[str, ...]
) -> Source:
    # The masks of test/ are not published: what is there has no classes.
    pairs = [
        PairedFolders(split, f"leftImg8bit/{split}", f"{labels}/{split}")
        for split in _CITYSCAPES_SPLITS
        if storage.is_folder(f"{src}/leftImg8bit/{split}")
        and storage.is_folder(f"{src}/{labels}/{split}")
    ]
    return read_pairs(
        src,
        pairs,
        label_type,
        layout="Cityscapes",
        classes=classes,
        name_of_image=lambda stem: stem.removesuffix("_leftImg8bit"),
        image_of=partial(_without, suffix),
    )


def _without(suffix: str, stem: str) -> str | None:
    return stem.removesuffix(suffix) if stem.endswith(suffix) else None


# --- ADE20K ---------------------------------------------------------------------------------------

#: The folder in the archive.
_ADE20K = "ADEChallengeData2016"


def _read_ade20k(src: str, folders: Sequence[str], options: SourceOptions) -> Source | None:
    if _ADE20K in folders:
        src = f"{src}/{_ADE20K}"
        folders = list_folders(src)
    if not {"images", "annotations"} <= {*folders} or not _wants(options, "mask"):
        return None
    inside = [
        name
        for name in ("training", "validation")
        if storage.is_folder(f"{src}/annotations/{name}")
    ]
    if not inside:
        return None
    pairs = [
        PairedFolders(SPLIT_ALIASES[name], f"images/{name}", f"annotations/{name}")
        for name in inside
    ]
    classes = options.classes or _ade20k_classes(f"{src}/objectInfo150.txt")
    return read_pairs(src, pairs, "mask", layout="ADE20K", classes=classes)


def _ade20k_classes(file: str) -> tuple[str, ...]:
    """Return the names in objectInfo150.txt, after the name of the value 0.

    Empty if there is no such file.
    """
    if not storage.is_file(file):
        return ()
    rows = [
        line.decode("utf-8", "replace").rstrip("\n").split("\t")
        for line in read_lines(file, SOURCE_LIST)
    ]
    names = [row[-1].split(",")[0].strip() for row in rows[1:] if row[0].strip().isdigit()]
    return ("other", *names)


# --- plain folders --------------------------------------------------------------------------------


#: The split that is often published without masks.
_WITHOUT_MASKS = "test"


def _read_plain(src: str, folders: Sequence[str], options: SourceOptions) -> Source | None:
    """Read ``images/`` and ``masks/``. There may be folders of splits in both, or around them."""
    if (found := _image_and_second(src, folders, options)) is not None:
        images, labels, label_type = found
        pairs, notices = _inner_splits(src, images, labels)
    else:
        pairs, notices, label_type = _outer_splits(src, folders, options)
    if not pairs:
        return None
    layout = "images with masks" if label_type == "mask" else "images with depth maps"
    classes = (options.classes or ()) if label_type == "mask" else ()
    source = read_pairs(src, pairs, label_type, layout=layout, classes=classes)
    return replace(source, notices=(*source.notices, *notices))


def _inner_splits(src: str, images: str, labels: str) -> tuple[list[PairedFolders], list[str]]:
    """Return ``images/train/`` and ``masks/train/`` for each split, or ``images/`` and ``masks/`` without splits."""
    folders = list_folders(f"{src}/{images}")
    splits = map_splits(
        f"{src}/{images}",
        [name for name in folders if name.lower() in SPLIT_ALIASES],
        SPLIT_ALIASES,
    )
    if not splits:
        return [PairedFolders("train", images, labels)], []
    others = [name for name in folders if name not in splits.values()]
    notices = [
        f"skipped {images}/{printable(name)}/, which is not the name of a split" for name in others
    ]
    notices += stray_notices(list_images(src, images), "outside of the splits")
    pairs = []
    for split in split_order({*splits}):
        name = splits[split]
        if split == _WITHOUT_MASKS and not storage.is_folder(f"{src}/{labels}/{name}"):
            notices.append(f"skipped {split}: there is no {labels}/{name}/")
        else:
            pairs.append(PairedFolders(split, f"{images}/{name}", f"{labels}/{name}"))
    return pairs, notices


def _outer_splits(
    src: str, folders: Sequence[str], options: SourceOptions
) -> tuple[list[PairedFolders], list[str], LabelType]:
    """Return ``train/images/`` and ``train/masks/`` for each split, if it has masks."""
    pairs: list[PairedFolders] = []
    notices: list[str] = []
    types: list[LabelType] = []
    named = [name for name in folders if name.lower() in SPLIT_ALIASES]
    for name in named:
        inside = list_folders(f"{src}/{name}")
        if (found := _image_and_second(f"{src}/{name}", inside, options)) is not None:
            images, labels, label_type = found
            pairs.append(
                PairedFolders(SPLIT_ALIASES[name.lower()], f"{name}/{images}", f"{name}/{labels}")
            )
            types.append(label_type)
        elif SPLIT_ALIASES[name.lower()] == _WITHOUT_MASKS and any(
            each.lower() in IMAGE_FOLDERS for each in inside
        ):
            notices.append(f"skipped {name}/: its images have no masks or depth maps")
        else:
            return [], [], "mask"
    if pairs:
        map_splits(src, named, SPLIT_ALIASES)
    if len({*types}) > 1:
        message = "some splits have masks, and others depth maps"
        raise SourceError(message, file=src, hint="set --label-type to mask or depth")
    order = split_order({pair.split for pair in pairs})
    return (
        sorted(pairs, key=lambda pair: order.index(pair.split)),
        notices,
        types[0] if types else "mask",
    )


def _image_and_second(
    src: str, folders: Sequence[str], options: SourceOptions
) -> tuple[str, str, LabelType] | None:
    """Return the folders of images and of masks or depth maps, and which these are."""
    images = [name for name in folders if name.lower() in IMAGE_FOLDERS]
    masks = [_mask_folder(src, name) for name in folders if name.lower() in MASK_FOLDERS]
    masks = [name for name in masks if _has_png(f"{src}/{name}")]
    depths = [
        name for name in folders if name.lower() in DEPTH_FOLDERS and _has_png(f"{src}/{name}")
    ]
    if len(images) != 1:
        return None
    if len(masks) == 1 and _wants(options, "mask"):
        return images[0], masks[0], "mask"
    if len(depths) == 1 and _wants(options, "depth"):
        return images[0], depths[0], "depth"
    return None


def _mask_folder(src: str, name: str) -> str:
    """Return the folder of the masks, which Oxford-IIIT Pet has in another one."""
    return f"{name}/trimaps" if "trimaps" in list_folders(f"{src}/{name}") else name


def _has_png(folder: str) -> bool:
    """Return whether a folder, or a folder in it, contains PNGs."""
    return any(
        name.lower().endswith(_PNG)
        for part in ("", *list_folders(folder)[:10])
        for name in list_images(os.path.join(folder, part) if part else folder)
    )


# --- pairs of an image and its label image --------------------------------------------------------


#: Odd, so that numbers that differ still differ when they are multiplied by it, modulo 2**64.
_FACTOR = 0x2545F4914F6CDD1D

#: What may follow the name of an image in the name of its mask.
_ENDINGS = ("", "_mask", "-mask", "_seg", "_segmentation", "_label", "_gt", "_depth", "-depth")


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


#: Returns the name of the image, without folder and suffix, that a file is the mask of; `None` if
#: it is none.
ImageOf = Callable[[str], str | None]


def read_pairs(
    root: str,
    folders: Sequence[PairedFolders],
    label_type: LabelType,
    *,
    layout: str,
    classes: tuple[str, ...] = (),
    name_of_image: Callable[[str], str] = lambda stem: stem,
    image_of: ImageOf | None = None,
) -> Source:
    """Read images with their masks or depth maps.

    An image belongs to the file at the same path in the other folder, whatever the suffixes are.
    Images without one are rejected.

    Args:
        root: the folder that paths are relative to.
        folders: the folders of each split.
        label_type: ``"mask"`` or ``"depth"``.
        layout: value of `Source.layout`.
        classes: names of the values of masks; empty if they are not known.
        name_of_image: returns the part of the name of an image that its mask shares.
        image_of: returns the part of the name of a mask that its image shares; `None` tries common
            endings.

    Raises:
        SourceError: two masks belong to one image, or no image has a mask.

    """
    scan, splits = Scan(root), tuple(dict.fromkeys(each.split for each in folders))
    label_images, stats, kept, numbers, rejected, notices = [], [], [], [], [], []
    at = 0
    for each in folders:
        (count,) = scan.add(each.images)
        found, found_stats = _find_label_images(root, each.labels, image_of)
        unused = {*found.values()}
        number = splits.index(each.split)
        for path in scan.path.slice(at, count).to_pylist():
            stem = _stem(os.path.relpath(path, each.images), name_of_image)
            label_image = found.get(stem)
            if label_image is None:
                detail = f"it has no {label_type}: {each.labels}/ has no file of the name {stem}"
                rejected.append({"source": path, "reason": "bad-label", "detail": detail})
            else:
                unused.discard(label_image)
                label_images.append(label_image)
                stats.append(found_stats[label_image])
                numbers.append(number)
            kept.append(label_image is not None)
        at += count
        if unused:
            first = printable(min(unused))
            what = (
                f"{plural(len(unused), 'file')} in {each.labels}/ that"
                f" {agree(len(unused), 'belongs', 'belong')}"
            )
            notices.append(f"skipped {what} to no image: {first}")
    if not label_images:
        raise SourceError(
            f"no image has a {label_type} of the same name",
            file=root,
            hint=(
                f"name each {label_type} like its image: {folders[0].images}/1.jpg and"
                f" {folders[0].labels}/1.png"
            ),
        )
    source = scan.source(layout, splits)
    source = replace(source, table=source.table.filter(pa.array(kept, pa.bool_())))
    source = source.with_columns(
        split=np.array(numbers, np.int8),
        extra=pa.table({MASK_SOURCE: pa.array(label_images, pa.string())}),
        stamp=with_label_images(source.stamp, np.array(stats, np.int64)),
    )
    return replace(
        source,
        classes=classes,
        notices=(*source.notices, *notices),
        rejected=(*source.rejected, *rejected),
        label_type=label_type,
        label_origin=" and ".join(dict.fromkeys(f"{each.labels}/" for each in folders)),
    )


def _stem(path: str, name_of_image: Callable[[str], str] = lambda stem: stem) -> str:
    folder, name = os.path.split(os.path.splitext(path)[0])
    return os.path.join(folder, name_of_image(name))


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
    found: dict[str, str] = {}
    for path in scan.path.to_pylist():
        inside, name = os.path.split(_stem(os.path.relpath(path, folder)))
        names = (
            [image_of(name)]
            if image_of
            else [name.removesuffix(end) for end in _ENDINGS if name.endswith(end)]
        )
        for stem in (os.path.join(inside, each) for each in names if each):
            other = found.setdefault(stem, path)
            if other != path:
                raise SourceError(
                    f"{printable(other)} and {printable(path)} belong to the same image",
                    file=root,
                    hint="keep one of them",
                )
    return found, dict(zip(scan.path.to_pylist(), scan.stats, strict=True))
