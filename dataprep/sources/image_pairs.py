"""Pair images with their label images, a mask or a depth map, by their paths."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from dataprep.sources.base import Source
from dataprep.sources.columns import concat
from dataprep.sources.scan import Scan
from manifests.errors import SourceError
from manifests.labels import MASK_SOURCE, LabelType
from manifests.process.text import agree, plural, printable

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
    mask = np.array(kept, bool)
    return Source(
        root=root,
        layout=layout,
        classes=classes,
        splits=splits,
        path=concat([scan.path.filter(pa.array(mask))]),
        label=np.zeros(len(label_images), np.int32),
        split=np.array(numbers, np.int8),
        size=scan.size[mask],
        extra=pa.table({MASK_SOURCE: pa.array(label_images, pa.string())}),
        notices=(*scan.notices, *notices),
        rejected=(*scan.rejected, *rejected),
        scanned=True,
        stamp=with_label_images(scan.stamp[mask], np.array(stats, np.int64)),
        folders=frozenset(scan.folders),
        label_type=label_type,
        label_origin=" and ".join(dict.fromkeys(f"{each.labels}/" for each in folders)),
    )


def _stem(path: str, name_of_image: Callable[[str], str] = lambda stem: stem) -> str:
    folder, name = os.path.split(os.path.splitext(path)[0])
    return os.path.join(folder, name_of_image(name))


def with_label_images(
    stamp: NDArray[np.int64], label_images: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return stamps that change with either file of a sample; see `Source.stamp`.

    Args:
        stamp: the stamps of the images, int64 [n, 2].
        label_images: size, modification time and inode of the masks or depth maps, int64 [n, 3].

    """
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
    return found, dict(
        zip(scan.path.to_pylist(), np.column_stack([scan.size, scan.stamp]), strict=True)
    )
