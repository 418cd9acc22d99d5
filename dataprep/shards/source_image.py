"""Read one source image from a file or a container, check it, and downscale or convert it if asked."""

from __future__ import annotations

import errno
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from dataprep import storage
from dataprep.containers import Location, SourceImages, read_location
from dataprep.containers import start_reading as start_location
from dataprep.engines import Engine
from dataprep.images.base import MAX_BYTES, ImageInfo, IncompleteHeader, Rejected
from dataprep.images.foreign import identify
from dataprep.images.validate import check_image, parse_header
from dataprep.labels.base import LabelKind, OtherImage
from dataprep.options import CHANGE_COLUMNS, HASH_COLUMN, Options
from dataprep.progress import Progress
from manifests.errors import DatasetError, SourceError, SourceVanishedError, raise_machine_fault
from manifests.labels import LABEL_IMAGE, place_columns
from manifests.pixels import PixelKind
from manifests.remote.url import join_path, parse_url
from manifests.schema import UNREADABLE

if TYPE_CHECKING:
    from concurrent.futures import Future

    from typing_extensions import Buffer

    from dataprep.arrays import Int64Array
    from dataprep.images.downscale import Placement
    from manifests.remote.store import ObjectInfo


class _TooLargeError(SourceError):
    """An object has more bytes than an image may have."""


class LoadedImage(NamedTuple):
    """An image as it is stored in a shard.

    Attributes:
        data: its bytes.
        info: format and size.
        changes: values for `Options.added_columns`.
        placement: where it shows the pixels of the source image, if that was requested.

    """

    data: bytes
    info: ImageInfo
    changes: dict[str, Any]
    placement: Placement | None = None


#: A path without it is no URL. Looking for it is all that reading from a file costs here.
_URL_MARK = "://"


def start_reading(images: SourceImages) -> Sequence[Future[Buffer] | None]:
    """Begin to read images from object stores, several at a time.

    `None` for each image that is in a file.
    """
    root, paths, sizes, locations = images
    started: list[Future[Buffer] | None] = [None] * len(paths)
    if _URL_MARK in "\n".join((root, *paths)):
        for at, (path, size, location) in enumerate(zip(paths, sizes, locations, strict=True)):
            if size > MAX_BYTES:
                continue
            if location is None:
                started[at] = _start(join_path(root, path), size)
            else:
                started[at] = start_location(root, location)
    return started


def load_image(
    root: str,
    source: str,
    size: int,
    options: Options,
    location: Location | None = None,
    *,
    pending: Future[Buffer] | None = None,
    known_hash: str | None = None,
    placed: bool = False,
    any_pixels: bool = False,
) -> LoadedImage:
    """Read a source image and prepare it for a shard.

    Args:
        root: folder that relative paths start from.
        source: path of the image.
        size: its size in bytes when the source was scanned, or `UNREADABLE`.
        options: how to check the image and how to store it.
        location: where the image is inside a container; `None` if it is a file of its own.
        pending: what `start_reading` returned for the image.
        known_hash: the perceptual hash of the source image, if it is known.
        placed: whether to return the placement.
        any_pixels: whether its pixels may be of another kind than `options.pixels`.

    Raises:
        Rejected: the image must not go into a shard.
        SourceVanishedError: the file is gone, or its size changed after the scan.

    """
    data = stored = read_image(root, source, size, location, pending)
    changes: dict[str, Any] = {}
    placement = None
    if options.changes_images:
        # Pixels of a prepared dataset stay as they are. Its columns say how they were made.
        if location is not None and location.reader == "pixels" and options.raw:
            info = _info_of_pixels(data, options.raw.size, options)
        else:
            # Imports imaging libraries that most runs do not need.
            from dataprep.images.downscale import prepare, prepare_frame

            if location is not None and location.reader == "video":
                codec = location.key.split()[0].decode()
                stored, info, changes = prepare_frame(data, codec, options)
            else:
                stored, info, changes = prepare(data, options)
    else:
        pixels = None if any_pixels else options.pixels
        info = check_image(data, options.validate, options.max_pixels, pixels)
    # Boxes and masks move with the pixels of their image.
    if placed:
        placement = _placement(data, LoadedImage(stored, info, changes), options)
    known = known_hash if stored is data else None
    changes |= computed_columns(stored, info, options, known)
    if options.georeference and not (location is not None and location.reader == "pixels"):
        from dataprep.images.geotiff import georeference_of

        changes |= georeference_of(data, options.page)
    return LoadedImage(stored, info, changes, placement)


def computed_columns(
    stored: bytes, info: ImageInfo, options: Options, known_hash: str | None = None
) -> dict[str, Any]:
    """Return the columns that are computed from an image as it is stored."""
    found: dict[str, Any] = {}
    if options.hash:
        from dataprep.images.perceptual_hash import hash_or_none  # imports imaging libraries

        found[HASH_COLUMN] = known_hash or hash_or_none(stored, info)
    if options.statistics:
        from dataprep.images.values import band_statistics  # imports imaging libraries

        found |= band_statistics(stored, info)
    return found


def _placement(data: bytes, image: LoadedImage, options: Options) -> Placement:
    from dataprep.images.downscale import find_placement  # imports imaging libraries

    info, changed = image.info, image.data is not data
    if changed:
        width, height, name, _ = (image.changes[name] for name in CHANGE_COLUMNS)
        info = ImageInfo(name, width, height)
    return find_placement(data, info, image.info, options.raw, changed=changed)


def _info_of_pixels(data: bytes, side: int, options: Options) -> ImageInfo:
    if len(data) != options.raw_bytes:
        raise Rejected("corrupt", f"{len(data)} bytes are not the pixels of a {side}x{side} image")
    return ImageInfo("raw", side, side, options.pixels)


#: Errors that concern the source as a whole, its disk or its network: they stop the run. Any other
#: error concerns one file, and rejects it. The next run tries it again.
_STOPPING_ERRNOS = (
    *(errno.ENOENT, errno.ENOTDIR, errno.ESTALE, errno.ENODEV),
    *(
        errno.ENOTCONN,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
    ),
)


def read_image(
    root: str, source: str, size: int, location: Location | None, pending: Future[Buffer] | None
) -> bytes:
    """Read a source image; the arguments and the errors are the same as of `load_image`."""
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    try:
        if location is not None:
            return read_location(root, location, size, pending.result() if pending else None)
        path = join_path(root, source)
        if pending is None and _URL_MARK in path:
            pending = _start(path, size)
        return bytes(pending.result()) if pending else _read_file(path, size)
    except _TooLargeError as error:
        raise Rejected("too-large", error.message) from None
    except OSError as error:
        raise_machine_fault(error)
        if size == UNREADABLE or error.errno not in _STOPPING_ERRNOS:
            raise Rejected("unreadable", error.strerror or str(error)) from None
        raise SourceVanishedError(
            "the image existed when the source was scanned, but cannot be read now"
            f" ({error.strerror})",
            file=join_path(root, location.container if location else source),
            hint="restore the source and run the same command again; finished shards are kept",
        ) from None


def _start(path: str, size: int) -> Future[Buffer] | None:
    """Begin to read an image if it is in an object store.

    Nothing is read of one that has another size, or is huge.
    """
    if not storage.has_latency(path):
        return None
    from manifests.remote.store import open_store

    def check(info: ObjectInfo) -> None:
        if size not in (UNREADABLE, info.bytes):
            raise _size_changed(info.bytes, size, path)
        if info.bytes > MAX_BYTES:
            raise _TooLargeError(f"{info.bytes} bytes, but the limit is {MAX_BYTES}")

    url = parse_url(path)
    return open_store(url.parent).start_get(url.name, check)


#: Without O_NONBLOCK, opening a named pipe would block the run.
_READ_FLAGS = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC


def _read_file(path: str, size: int) -> bytes:
    handle = os.open(path, _READ_FLAGS)
    try:
        # The scan reports no size for pipes and devices, so only files without a size need this
        # check.
        if size <= 0 and (size == UNREADABLE or not stat.S_ISREG(os.fstat(handle).st_mode)):
            raise Rejected("unreadable", "not a regular file")
        data = os.read(handle, size + 1)
        while 0 < len(data) < size and (more := os.read(handle, size + 1 - len(data))):
            data += more
    finally:
        os.close(handle)
    if len(data) != size:
        raise _size_changed(len(data), size, path)
    return data


def _size_changed(actual: int, size: int, path: str) -> SourceVanishedError:
    shown = "more" if actual > size else actual
    hint = "wait until no program writes to the source, then convert or plan again with --overwrite"
    message = f"the image had {size} bytes when the source was scanned, but has {shown} now"
    return SourceVanishedError(message, file=path, hint=hint)


#: Bytes of a file that contain the header of most images.
_HEAD = 1 << 16


def find_kind(
    root: str, source: str, size: int, location: Location | None, options: Options
) -> PixelKind:
    """Return what a pixel of an image will be. Of a file, only the header is read if that suffices.

    Raises:
        Rejected: the image must not go into a shard.
        SourceVanishedError: the file is gone, or its size changed after the scan.

    """
    path = join_path(root, source)
    if location is None and not options.transcode and not storage.has_latency(path):
        with suppress(IncompleteHeader, OSError), open(path, "rb", opener=_open_file) as file:
            return parse_header(file.read(_HEAD)).pixels
    data = read_image(root, source, size, location, None)
    if options.transcode and (found := identify(data, options.page)):
        from dataprep.images import transcode  # imports imaging libraries

        return transcode.measure(data, found, options).pixels
    return check_image(data, "none", options.max_pixels, None).pixels


def _open_file(path: str, flags: int) -> int:
    return os.open(path, flags | _READ_FLAGS)


# --- other images of a sample ------------------------------------------------------------------------


#: Samples whose other images in object stores are read ahead. Their sizes are not known, so this
#: bounds the memory.
_AHEAD = 8


def start_reading_others(
    root: str,
    extras: Sequence[Mapping[str, Any]],
    locations: Sequence[Location | None],
    kind: LabelKind,
) -> Iterator[Sequence[Future[Buffer] | None]]:
    """Begin to read the other images of samples from object stores, a few samples ahead.

    Yield for each sample a list; `None` in it for each image that is in a file.

    Args:
        root: folder that relative paths start from.
        extras: the columns of each sample.
        locations: where the images are inside containers.
        kind: which other images there are.

    """
    ahead: deque[Sequence[Future[Buffer] | None]] = deque()
    for extra, location in zip(extras, locations, strict=True):
        ahead.append(start_reading(_others(root, extra, location, kind)))
        if len(ahead) > _AHEAD:
            yield ahead.popleft()
    yield from ahead


def _others(
    root: str, extra: Mapping[str, Any], location: Location | None, kind: LabelKind
) -> SourceImages:
    """Return the other images of a sample.

    They are files, columns of a Parquet file, or ranges of a shard. An image that the sample does
    not have has an empty path.
    """
    found = SourceImages(root, [], [], [])
    for name, source in zip(kind.others, kind.other_sources, strict=True):
        size, place = UNREADABLE, None
        columns = place_columns(name)
        if location is not None and columns[0] in extra:
            offset, size, crc = (extra[each] for each in columns)
            place = location._replace(position=offset, length=size, crc32c=crc)
            # A label image is never stored as pixels.
            if name == LABEL_IMAGE:
                place = place._replace(reader="range")
        elif location is not None and location.reader == "parquet":
            # The column of the image, whose bytes may be a member of it.
            _, dot, member = location.key.partition(b".")
            place = location._replace(key=name.encode() + dot + member)
        found.paths.append(extra[source] or "")
        found.sizes.append(size)
        found.locations.append(place)
    return found


def load_others(
    root: str,
    extra: Mapping[str, Any],
    placement: Placement | None,
    options: Options,
    location: Location | None,
    *,
    kind: LabelKind,
    started: Sequence[Future[Buffer] | None] = (),
) -> list[OtherImage]:
    """Return the images of a sample beside the first one, as they are stored.

    Args:
        root: folder that relative paths start from.
        extra: the columns of the sample. The columns `LabelKind.other_sources` are paths of files;
            if the source is a prepared dataset, `place_columns` say where the images are in the
            shard.
        placement: where the stored image shows the source image, for a label image.
        options: how to check and to store the images.
        location: where the first image is inside a container; `None` if it is a file of its own.
        kind: which other images there are.
        started: what `start_reading_others` yielded for the sample.

    Raises:
        Rejected: the sample must not go into a shard.
        SourceVanishedError: the container is gone or has changed.

    """
    others: list[OtherImage] = []
    if not kind.others:
        return others
    _, paths, sizes, places = _others(root, extra, location, kind)
    pendings = started or [None] * len(paths)
    for name, path, scanned, place, pending in zip(
        kind.others, paths, sizes, places, pendings, strict=True
    ):
        # A sample of which the option keeps what it has.
        if not (path and scanned) and name != LABEL_IMAGE:
            continue
        shown = f"its {kind.name if name == LABEL_IMAGE else name} {path}"
        size = scanned
        if place is None and not storage.has_latency(join_path(root, path)):
            with suppress(OSError, DatasetError):
                size = storage.stat(join_path(root, path)).st_size
        # A label image is checked like an image, and moves with it instead of being resized.
        own = options
        if name == LABEL_IMAGE:
            own = replace(options, downscale=None, raw=None, transcode=None, to_rgb8=False)
        own = replace(own, hash=False, statistics=False, georeference=False)
        try:
            image = load_image(
                root, path, size, own, place, pending=pending, any_pixels=name == LABEL_IMAGE
            )
        except Rejected as error:
            raise Rejected(error.reason, f"{shown}: {error.detail}") from None
        except SourceVanishedError as error:
            if place is not None:
                raise
            raise Rejected("unreadable", f"{shown}: {error.message}") from None
        data = image.data
        if name == LABEL_IMAGE and placement is not None:
            data = _stored_label_image(image, placement, kind, shown)
        others.append(OtherImage(name, data, image.info))
    return others


def _stored_label_image(
    image: LoadedImage, placement: Placement, kind: LabelKind, name: str
) -> bytes:
    """Return a label image as it is stored: a PNG of the size of the image."""
    if image.info.format != "png":
        shown = image.info.format.upper()
        detail = f"{name} is a {shown}, but masks and depths are stored as PNG"
        raise Rejected("unsupported", detail)
    try:
        return kind.store(image.data, image.info, placement)
    except Rejected as error:
        raise Rejected(error.reason, f"{name} has {error.detail}") from None


# --- many images of a source, in worker processes -------------------------------------------------


#: Images of one task.
BATCH = 128

Value = TypeVar("Value")


class ReadTask(NamedTuple):
    """A batch of images to read. The lists have one element per image.

    Attributes:
        rows: rows of the source.
        images: the images in these rows.
        options: how to check and convert the images.
        function: what to compute from an image.
        arguments: what the function takes after the image; `None` if it takes nothing else.
        any_pixels: see `load_image`.

    """

    rows: list[int]
    images: SourceImages
    options: Options
    function: Callable[..., Any]
    arguments: Sequence[tuple[Any, ...]] | None
    any_pixels: bool = False


def read_images(
    images_in: Callable[[Int64Array], SourceImages],
    rows: Int64Array,
    function: Callable[..., Value],
    *,
    options: Options,
    engine: Engine,
    progress: Progress,
    arguments_in: Callable[[Int64Array], Sequence[tuple[Any, ...]]] | None = None,
    any_pixels: bool = False,
) -> Iterator[tuple[int, Value | str]]:
    """Read images in worker processes, and yield what a function returns for each of them.

    Args:
        images_in: returns the images in some rows of the source; see `Source.images`.
        rows: rows to read, int64 [N].
        function: a picklable function of a `LoadedImage`. It may raise `Rejected`.
        options: how to check and convert the images.
        engine: runs the workers.
        progress: receives the images that are read.
        arguments_in: returns what the function takes after the images in some rows. If it is given,
            images have a placement.
        any_pixels: see `load_image`.

    Yields:
        The row, and the result of the function or else a text that says why the image is rejected.

    Raises:
        SourceVanishedError: an image is gone, or its size changed after the scan.

    """

    def tasks() -> Iterator[ReadTask]:
        for start in range(0, len(rows), BATCH):
            part = rows[start : start + BATCH]
            arguments = arguments_in(part) if arguments_in else None
            yield ReadTask(
                rows=part.tolist(),
                images=images_in(part),
                options=options,
                function=function,
                arguments=arguments,
                any_pixels=any_pixels,
            )

    count = -(-len(rows) // BATCH)
    progress.start(len(rows), count)
    with closing(engine.run(read_batch, tasks(), count)) as results:
        for found in results:
            yield from found
            progress.advance("batch", len(found))


def read_batch(task: ReadTask) -> list[tuple[int, Any]]:
    """Return the row and the result of each image of a task."""
    images, results = task.images, []
    for at, pending in enumerate(start_reading(images)):
        try:
            image = load_image(
                images.root,
                images.paths[at],
                images.sizes[at],
                task.options,
                images.locations[at],
                pending=pending,
                placed=task.arguments is not None,
                any_pixels=task.any_pixels,
            )
            arguments = task.arguments[at] if task.arguments else ()
            result = task.function(image, *arguments)
        except Rejected as error:
            result = str(error)
        results.append((task.rows[at], result))
    return results
