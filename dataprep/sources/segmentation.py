"""Images with a mask or a depth map of each: Cityscapes, ADE20K, and plain folders."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa

from dataprep import storage
from dataprep.options import SourceOptions
from dataprep.sources.base import Kind, Names, Source, Texts
from dataprep.sources.paired import Pairs, content_of, find_pairs, read_labelled
from dataprep.sources.scan import list_folders, list_images
from manifests.errors import CallError, SourceError
from manifests.files import SOURCE_LIST, read_lines
from manifests.labels import MASK_SOURCE, LabelType
from manifests.schema import SPLIT_ALIASES

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


#: Types of labels to look for.
_Wanted = Sequence[LabelType]

#: What may follow the name of an image in the name of its mask.
_ENDINGS = ("", "_mask", "-mask", "_seg", "_segmentation", "_label", "_gt", "_depth", "-depth")


def find_segmentation(src: str, folders: Names, options: SourceOptions) -> Pairs | None:
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
_CITYSCAPES: dict[str, tuple[LabelType, str, Texts]] = {
    "gtFine": ("mask", "_gtFine_labelIds", CITYSCAPES_IDS),
    "gtCoarse": ("mask", "_gtCoarse_labelIds", CITYSCAPES_IDS),
    "disparity": ("depth", "_disparity", ()),
}
_NEEDED = {"mask": "gtFine/ or gtCoarse/", "depth": "disparity/"}


def _find_cityscapes(src: str, folders: Names, wanted: _Wanted) -> Pairs | None:
    if "leftImg8bit" not in folders:
        return None
    known = [name for name in _CITYSCAPES if name in folders and _CITYSCAPES[name][0] in wanted]
    needed = _NEEDED.get(wanted[0])
    if not known and needed and len(wanted) == 1:
        raise SourceError(
            f"Cityscapes has no {needed} for --label-type {wanted[0]}",
            file=src,
            hint=f"unpack {needed} beside leftImg8bit/, or choose another label type",
        )
    if not known:
        return None
    labels = known[0]
    label_type, ending, classes = _CITYSCAPES[labels]
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


def _find_ade20k(src: str, folders: Names, wanted: _Wanted) -> Pairs | None:
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


def _ade20k_classes(file: str) -> Texts:
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


def _find_plain(src: str, folders: Names, wanted: _Wanted) -> Pairs | None:
    """Find ``images/`` and ``masks/``. There may be folders of splits in both, or around them."""
    found = find_pairs(src, folders, partial(_image_and_second, wanted=wanted))
    if found is None:
        return None
    layout = "images with masks" if found.label_type == "mask" else "images with depth maps"
    return replace(found, layout=layout, endings=_ENDINGS)


def _image_and_second(
    src: str, folders: Names, wanted: _Wanted
) -> tuple[str, str, LabelType] | None:
    """Return the folders of images and of masks or depth maps, and which these are."""
    found = defaultdict(list)
    for name in folders:
        content, inside = content_of(name), name
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


def read_pairs(src: str, pairs: Pairs, options: SourceOptions) -> Source:
    """Read images with their masks or depth maps. Images without one are rejected.

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
    source, files = read_labelled(pairs)
    classes = (options.classes or pairs.classes) if label_type == "mask" else ()
    return replace(source.with_columns(extra=mask_column(files)), classes=classes)


def mask_column(paths: Names) -> pa.Table:
    """Return the extra columns of a source with label images."""
    return pa.table({MASK_SOURCE: pa.array(paths, pa.string())})


KINDS = (
    Kind(
        "a folder of images with masks or depth maps",
        find_segmentation,
        read_pairs,
        in_archives=False,
        example="photos/masks/1.png",
    ),
)
