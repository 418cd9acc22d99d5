"""Options of `convert_dataset` and `index_shards`.

This module imports nothing heavy, because every worker process imports it first.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dataprep.images.base import MAX_PIXELS, Validation
from manifests.labels import LabelType
from manifests.schema import DEFAULT_MAX_CLASSES, Format, Store

Filter = Literal["lanczos", "bicubic", "bilinear", "box"]
Subsampling = Literal["keep", "444", "422", "420"]
Fit = Literal["crop", "pad"]

#: What to do with images that occur more than once; see `dataprep.duplicates.results`.
Resolution = Literal["keep", "drop", "same-split"]

#: Bits in which the perceptual hashes of two copies differ at most, by default, and the largest
#: number to search for.
DEFAULT_DISTANCE, MAX_DISTANCE = 31, 63

#: The value of `Options.split_by` that stands for groups of copies, unless the source has such a
#: column.
BY_DUPLICATES = "duplicates"

#: Additional columns of a sample table if images are resized or stored as pixels: width and height
#: in pixels and format of the source image, and the changes made to the image, separated by spaces.
CHANGE_COLUMNS = ("original_width", "original_height", "original_format", "change")

#: Additional column of a sample table with the perceptual hash of each stored image: 64 hex digits.
#: Null if the image is too flat to have one.
HASH_COLUMN = "perceptual_hash"

#: How hashes are computed; see `dataprep.images.perceptual_hash`. Hashes of different recipes
#: cannot be compared.
HASH_RECIPE = "dct256-1"

#: File in a prepared dataset with hashes that `dataprep duplicates` computed; see
#: `dataprep.duplicates.collection`.
HASHES_NAME = "perceptual-hashes.parquet"

#: Normalizations as the column ``change`` names them, and what each is. Its other values explain
#: themselves.
NORMALIZATIONS = {
    "turned": "rotated upright",
    "rgb": "converted to RGB",
    "alpha": "transparency removed",
    "icc": "color profile applied",
}

#: Mean bytes per pixel of a JPEG of quality 90, measured on ImageNet photographs whose shorter side
#: is 256.
_JPEG_BYTES_PER_PIXEL = 0.35


@dataclass(frozen=True, slots=True)
class Downscale:
    """The size that large images are reduced to before they are stored, and how they are encoded.

    Both sides of an image shrink by the same factor: the smallest reduction that meets both
    `shorter` and `longest`. Images are never enlarged.

    Attributes:
        shorter: maximum length of the shorter side, in pixels.
        longest: maximum length of the longer side, in pixels.
        only_above: an image is stored unchanged if its shorter side (its longer side if only
            `longest` is given) has at most this many pixels.
        quality: JPEG quality of resized images, 1 to 100.
        subsampling: chroma subsampling of resized images; ``"keep"`` uses that of the source, or
            4:4:4 if the source is not a JPEG.
        filter: resampling filter.

    """

    shorter: int | None = None
    longest: int | None = None
    only_above: int | None = None
    quality: int = 90
    subsampling: Subsampling = "keep"
    filter: Filter = "lanczos"

    @property
    def estimated_max_bytes(self) -> int:
        """Estimated bytes of the largest stored image.

        The plan uses it to divide shards before images are resized.
        """
        unchanged = self.only_above or 0
        if self.shorter is None:
            side = max(self.longest or 0, unchanged)
            return int(side * side * 3 / 4 * _JPEG_BYTES_PER_PIXEL)
        side = max(self.shorter, unchanged)
        longer_side = min(side * 4 / 3, max(self.longest or math.inf, unchanged))
        return int(side * longer_side * _JPEG_BYTES_PER_PIXEL)


@dataclass(frozen=True, slots=True)
class Raw:
    """Store pixels of one size instead of encoded images: uint8 RGB [size, size, 3], row by row.

    Attributes:
        size: height and width, in pixels.
        fit: ``"crop"`` resizes the image to cover the square and cuts off both ends equally;
            ``"pad"`` resizes it to fit inside and fills the rest with black.
        filter: resampling filter.

    """

    size: int = 256
    fit: Fit = "crop"
    filter: Filter = "lanczos"

    @property
    def pixels(self) -> tuple[int, int, int]:
        """Height, width and channels of every image."""
        return self.size, self.size, 3


@dataclass(frozen=True)
class Options:
    """Everything besides the source that determines the bytes of a dataset, and nothing else.

    Attributes:
        fmt: record format.
        shard_bytes: maximum total bytes of the images in a shard; a single larger image gets a
            shard of its own.
        shard_samples: number of samples per shard; overrides `shard_bytes`.
        shuffle: shuffle each split globally.
        seed: seed of the shuffle and of the random split; any integer from 0.
        val_fraction: fraction of the train split to move into a new split ``"val"``, in [0, 1).
        test_fraction: fraction of the train split to move into a new split ``"test"``, in [0, 1).
        split_by: column whose values the splits must not share. If `None`, the new splits are
            stratified by label.
        validate: how thoroughly to check the images.
        max_pixels: an image with more pixels is rejected as a decompression bomb.
        downscale: store large images at a smaller size.
        raw: store pixels instead of encoded images; excludes `downscale`.
        where: the filter that was applied to the source; see `dataprep.plan.filter.filter_source`.
        hash: add `HASH_COLUMN`.
        duplicates: what to do with images that occur more than once.
        distance: hashes of copies differ in at most this many bits. -1 finds only equal bytes.

    """

    fmt: Format = "tfrecord"
    shard_bytes: int = 256 << 20
    shard_samples: int | None = None
    shuffle: bool = True
    seed: int = 0
    val_fraction: float = 0.0
    test_fraction: float = 0.0
    split_by: str | None = None
    validate: Validation = "header"
    max_pixels: int = MAX_PIXELS
    downscale: Downscale | None = None
    raw: Raw | None = None
    where: str | None = None
    hash: bool = False
    duplicates: Resolution = "keep"
    distance: int = DEFAULT_DISTANCE

    @property
    def store(self) -> Store:
        """What a shard stores per image."""
        return "raw" if self.raw else "encoded"

    @property
    def changes_images(self) -> bool:
        """Whether stored images may differ from the source images."""
        return bool(self.downscale or self.raw)

    @property
    def finds_duplicates(self) -> bool:
        """Whether the images of the source have to be compared before the plan is made."""
        return self.duplicates != "keep" or self.split_by == BY_DUPLICATES

    @property
    def reads_pixels(self) -> bool:
        """Whether images are decoded, so that the CPU and not the disk limits the speed."""
        return self.changes_images or self.hash or self.validate == "decode"

    @property
    def added_columns(self) -> tuple[str, ...]:
        """Columns that are added to the sample tables and records."""
        changes = CHANGE_COLUMNS if self.changes_images else ()
        return (*changes, HASH_COLUMN) if self.hash else changes

    def as_json(self) -> dict[str, Any]:
        """Return the options as the manifest stores them.

        The plan's fingerprint is computed from the same members.
        """
        members = asdict(self)
        if self.shard_samples:  # `shard_bytes` has no effect, so it must not change the fingerprint
            members["shard_bytes"] = Options.shard_bytes
        for name in (
            "downscale",
            "raw",
            "test_fraction",
            "where",
            "hash",
        ):  # omitted unless used: older releases did not have them
            if not members[name]:
                del members[name]
        if (self.val_fraction or self.test_fraction) and not self.split_by:
            members["stratified"] = True  # older releases chose the images of val at random
        if self.hash:
            members["hash"] = HASH_RECIPE
        if not self.finds_duplicates:
            del members["distance"]
        if self.duplicates == "keep":
            del members["duplicates"]
        if self.changes_images or self.hash or self.finds_duplicates:
            members["made_by"] = library_versions()
        return members


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that process images.

    Other versions may produce other bytes.
    """
    from importlib.metadata import version

    import PIL
    import simplejpeg

    versions = {"Pillow": PIL.__version__, "simplejpeg": simplejpeg.__version__}
    return {**versions, "cykooz-resizer": version("cykooz-resizer")}


@dataclass(frozen=True)
class IndexOptions:
    """How `index_shards` reads shards.

    It detects the image and the label of a record unless they are given.

    Attributes:
        image: TFRecord feature or WebDataset extension of the encoded image; several extensions are
            separated by commas.
        label: TFRecord feature or WebDataset extension of the label.
        label_key: member of the ``.json`` component that contains the label.
        label_offset: added to every label; -1 for shards whose labels count from 1.
        classes: class names in label order.
        max_classes: labels must be less than this, unless `classes` is given.
        split: name of the split; `None` derives it from each file's name or folder.
        validate: ``"none"`` reads headers only; ``"header"`` and ``"decode"`` read every byte, and
            write checksums into the tables and the manifest.
        overwrite: replace existing index files that differ.
        label_type: ``"class"``, ``"none"`` for records without labels, or ``"caption"``.

    """

    image: str | None = None
    label: str | None = None
    label_key: str | None = None
    label_offset: int = 0
    classes: tuple[str, ...] | None = None
    split: str | None = None
    validate: Validation = "none"
    overwrite: bool = False
    max_classes: int = DEFAULT_MAX_CLASSES
    label_type: LabelType = "class"
