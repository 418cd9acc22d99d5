"""Read the label image of a sample, a mask or a depth map, and check that it fits the image."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from dataprep import storage
from dataprep.containers import Location
from dataprep.images.base import Rejected
from dataprep.options import Options
from dataprep.shards.source_image import load_image, start_reading
from manifests.errors import DatasetError, SourceVanishedError
from manifests.labels import MASK_SOURCE, LabelType
from manifests.remote import is_url, join_path
from manifests.schema import UNREADABLE

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer

    from dataprep.images.placement import Placement

#: Label images in object stores that are read ahead. Their sizes are not known, so this bounds the
#: memory.
_AHEAD = 8


class _Place(NamedTuple):
    """Where a label image is.

    Attributes:
        path: its path.
        size: its length in bytes; `UNREADABLE` if it is not known.
        location: where it is in a shard; `None` if it is a file of its own.

    """

    path: str
    size: int
    location: Location | None


def start_reading_label_images(
    root: str, extras: Sequence[Mapping[str, Any]], locations: Sequence[Location | None]
) -> Iterator[Future[Buffer] | None]:
    """Begin to read label images from object stores, a few ahead.

    Yield `None` for each one that is in a file.

    Args:
        root: folder that relative paths start from.
        extras: the columns of each sample.
        locations: where the images are inside containers.

    """
    ahead: deque[Future[Buffer] | None] = deque()
    for extra, location in zip(extras, locations, strict=True):
        place = _place_of(extra, location)
        ahead += start_reading(root, [place.path], [place.size], [place.location])
        if len(ahead) > _AHEAD:
            yield ahead.popleft()
    yield from ahead


def _place_of(extra: Mapping[str, Any], location: Location | None) -> _Place:
    path: str = extra[MASK_SOURCE] or ""
    if location is None or "mask_offset" not in extra:
        return _Place(path, UNREADABLE, None)
    size = extra["mask_size"]
    place = Location(
        location.container, "range", extra["mask_offset"], size, crc32c=extra["mask_crc32c"]
    )
    return _Place(path, size, place)


def load_label_image(
    root: str,
    extra: Mapping[str, Any],
    placement: Placement,
    options: Options,
    location: Location | None,
    *,
    label_type: LabelType,
    pending: Future[Buffer] | None = None,
) -> bytes:
    """Return the label image of a sample: a PNG of the size of the image.

    Args:
        root: folder that relative paths start from.
        extra: the columns of the sample. `MASK_SOURCE` is the path of a file; if the source is a
            prepared dataset, ``mask_offset`` and ``mask_size`` say where the image is in the shard.
        placement: where the stored image shows the source image.
        options: how to check the image.
        location: where the image is inside a container; `None` if it is a file of its own.
        label_type: what the label image is.
        pending: what `start_reading_label_images` yielded for it.

    Raises:
        Rejected: the sample must not go into a shard.
        SourceVanishedError: the container is gone or has changed.

    """
    path, size, place = _place_of(extra, location)
    if place is None and not is_url(join_path(root, path)):
        with suppress(OSError, DatasetError):
            size = storage.stat(join_path(root, path)).st_size
    unchanged = replace(options, downscale=None, raw=None)
    try:
        data, info, *_ = load_image(root, path, size, unchanged, place, pending=pending)
    except Rejected as error:
        raise Rejected(error.reason, f"its {label_type} {path}: {error.detail}") from None
    except SourceVanishedError as error:
        if place is not None:
            raise
        raise Rejected("unreadable", f"its {label_type} {path}: {error.message}") from None
    from dataprep.images.label_image import store_label_image  # imports imaging libraries

    if info.format != "png":
        detail = (
            f"its {label_type} {path} is a {info.format.upper()}, but masks and depths are stored"
            " as PNG"
        )
        raise Rejected("unsupported", detail)
    try:
        return store_label_image(data, info, label_type, placement)
    except Rejected as error:
        raise Rejected(error.reason, f"its {label_type} {path} has {error.detail}") from None
