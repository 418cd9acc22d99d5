"""What is asked of a conversion and of an indexing. It must never import anything heavy: each worker reads it first."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from dataprep.images.base import MAX_PIXELS, Validation
from manifests.schema import Format, Store

Filter = Literal["lanczos", "bicubic", "bilinear", "box"]
Subsampling = Literal["keep", "444", "422", "420"]
Fit = Literal["crop", "pad"]

#: Columns that a table has beside its others where images may be stored otherwise than they came: pixels and format as
#: they came, and words for what was done.
CHANGE_COLUMNS = ("original_width", "original_height", "original_format", "change")

#: What a photograph takes in a JPEG of quality 90, measured on ImageNet's brought to 256.
_BYTES_A_PIXEL = 0.35


@dataclass(frozen=True, slots=True)
class Downscale:
    """To what size images are brought before they are stored, and how they are encoded then.

    Of an image that has to shrink, both sides shrink by one factor, the least that meets `shorter` and `longest`;
    none is enlarged.

    Attributes:
        shorter: pixels that the shorter side has at most.
        longest: pixels that the longer side has at most.
        only_above: an image whose shorter side (its longer one where only `longest` is given) has at most this
            many pixels is stored as it is.
        quality: of the JPEG that is stored, 1 to 100.
        subsampling: of its chroma; ``keep`` takes the source's, 4:4:4 where that is no JPEG.
        filter: by which it is resampled.

    """

    shorter: int | None = None
    longest: int | None = None
    only_above: int | None = None
    quality: int = 90
    subsampling: Subsampling = "keep"
    filter: Filter = "lanczos"

    @property
    def typical_bytes(self) -> int:
        """What the largest image that is stored may be expected to take: that a shard's length can be planned."""
        least = self.only_above or 0
        if self.shorter is None:
            side = max(self.longest or 0, least)
            return int(side * side * 3 / 4 * _BYTES_A_PIXEL)
        side = max(self.shorter, least)
        return int(side * min(side * 4 / 3, max(self.longest or math.inf, least)) * _BYTES_A_PIXEL)


@dataclass(frozen=True, slots=True)
class Raw:
    """Pixels of one size in place of encoded images: uint8 RGB, row by row.

    Attributes:
        size: pixels of each side.
        fit: ``crop`` resizes until the image covers the square, and cuts off what is over, at both ends alike;
            ``pad`` resizes until it fits in, and fills up with black.
        filter: by which it is resampled.

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
    """All that decides which bytes are written, and nothing else.

    Attributes:
        fmt: record format.
        shard_bytes: a shard closes before its images exceed this many bytes.
        shard_samples: a shard holds this many samples; overrides `shard_bytes`.
        shuffle: one global shuffle within each split.
        seed: any integer from 0.
        val_fraction: share of the train split to put into a new split val, 0 to 1.
        split_by: column whose values val and train must not share.
        validate: how far to trust the images.
        max_pixels: more than this are a decompression bomb.
        downscale: store large images smaller.
        raw: store pixels in place of encoded images; excludes `downscale`.

    """

    fmt: Format = "tfrecord"
    shard_bytes: int = 256 << 20
    shard_samples: int | None = None
    shuffle: bool = True
    seed: int = 0
    val_fraction: float = 0.0
    split_by: str | None = None
    validate: Validation = "header"
    max_pixels: int = MAX_PIXELS
    downscale: Downscale | None = None
    raw: Raw | None = None

    @property
    def store(self) -> Store:
        """What a stored image is."""
        return "raw" if self.raw else "encoded"

    @property
    def alters(self) -> bool:
        """Whether images may be stored otherwise than they came."""
        return bool(self.downscale or self.raw)

    def as_json(self) -> dict[str, Any]:
        """Return the options as the manifest carries them."""
        told = asdict(self)
        if self.shard_samples:  # what is overridden decides no byte, and must not tell two runs apart
            told["shard_bytes"] = Options.shard_bytes
        for name in ("downscale", "raw"):  # a dataset without them says nothing of them
            if told[name] is None:
                del told[name]
        if self.alters:
            told["made_by"] = library_versions()
        return told


def library_versions() -> dict[str, str]:
    """Give the releases of the libraries whose pixels and JPEGs are stored; another may give other bytes."""
    import PIL
    import simplejpeg

    return {"Pillow": PIL.__version__, "simplejpeg": simplejpeg.__version__}


@dataclass(frozen=True)
class IndexOptions:
    """What to look for in a record, where it does not show by itself.

    Attributes:
        image: TFRecord feature, or WebDataset extension (several with commas), that holds the encoded image.
        label: likewise for the label.
        label_key: member of the ``.json`` that holds the label.
        label_offset: added to every label; -1 where the shards count from 1.
        classes: names in label order.
        split: name of the split; read from each file's name or folder where none is given.
        validate: ``none`` reads headers only; ``header`` and ``decode`` read every byte, and give the
            tables and the manifest their checksums.
        overwrite: replace index files that are there and differ.

    """

    image: str | None = None
    label: str | None = None
    label_key: str | None = None
    label_offset: int = 0
    classes: tuple[str, ...] | None = None
    split: str | None = None
    validate: Validation = "none"
    overwrite: bool = False
