"""Read the second image of a sample, a mask or a depth, and check that it belongs to the first one."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dataprep import storage
from dataprep.containers import Location
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.shards.source_image import load_image
from dataprep.sources.base import MASK_SOURCE
from manifests.errors import DatasetError, SourceVanishedError
from manifests.labels import LabelType
from manifests.remote import join_path
from manifests.schema import UNREADABLE

if TYPE_CHECKING:
    from dataprep.images.placement import Placement


def load_second_image(
    root: str,
    extra: Mapping[str, Any],
    placement: Placement,
    options: Options,
    location: Location | None,
    *,
    label_type: LabelType,
) -> bytes:
    """Return the second image of a sample: a PNG of the size of the first one.

    Args:
        root: folder that relative paths start from.
        extra: the columns of the sample. `MASK_SOURCE` is the path of a file; if the source is a prepared dataset,
            ``mask_offset`` and ``mask_size`` say where the image is in the shard.
        placement: where the first image as stored shows that of the source.
        options: how to check the image.
        location: where the first image is inside a container; `None` if it is a file of its own.
        label_type: what the second image is.

    Raises:
        Rejected: the sample must not go into a shard.
        SourceVanishedError: the container is gone or has changed.

    """
    path: str = extra[MASK_SOURCE] or ""
    place, size = None, UNREADABLE
    if location is not None and "mask_offset" in extra:
        size = extra["mask_size"]
        place = Location(location.container, "range", extra["mask_offset"], size, crc32c=extra["mask_crc32c"])
    else:
        with suppress(OSError, DatasetError):
            size = storage.stat(join_path(root, path)).st_size
    unchanged = replace(options, downscale=None, raw=None)
    try:
        data, second, *_ = load_image(root, path, size, unchanged, place)
    except Rejected as error:
        raise Rejected(error.reason, f"its {label_type} {path}: {error.detail}") from None
    except SourceVanishedError as error:
        if place is not None:
            raise
        raise Rejected("unreadable", f"its {label_type} {path}: {error.message}") from None
    from dataprep.images.label_image import store_label_image  # imports imaging libraries

    if second.format != "png":
        detail = f"its {label_type} {path} is a {second.format.upper()}, but masks and depths are stored as PNG"
        raise Rejected("unsupported", detail)
    try:
        return store_label_image(data, second, label_type, placement)
    except Rejected as error:
        raise Rejected(error.reason, f"its {label_type} {path} has {error.detail}") from None
