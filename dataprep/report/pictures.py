"""Pictures of a report: thumbnails of a dataset's images and of rejected images, made in worker processes.

Images and the paths in ``rejected.jsonl`` are untrusted. Decoding takes bounded memory and time,
nothing outside of the folder that the user names is opened, and only regular files of a limited size.
"""

from __future__ import annotations

import io
import math
import os
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageFile

from dataprep import storage
from dataprep.arrays import BoolArray, Float32Array, UInt8Array
from dataprep.images import jpeg
from dataprep.images.base import MAX_BYTES, ImageInfo, Rejected, failed
from dataprep.images.downscale import apply_orientation
from dataprep.images.pixels import as_image, decode
from dataprep.images.validate import check_image, name_format, open_with_pillow
from dataprep.images.values import read_values
from dataprep.options import MAX_PIXELS
from dataprep.report.facts import FailedImage, OddImage, RejectedFacts, Rows, ranked
from dataprep.verification.shard import Problem
from manifests.errors import DamagedError, DatasetError, SourceError
from manifests.files import REJECTED, FileKind, open_file, read_lines
from manifests.json_members import parse_json
from manifests.pixels import RGB8, show_bands
from manifests.process.text import cut_middle, jpeg_uri, printable
from manifests.schema import Manifest
from manifests.store import REJECTED_NAME

if TYPE_CHECKING:
    # Workers do not need Arrow, which `columns` imports.
    from dataprep.report.columns import Columns

#: Longest side of a thumbnail in pixels, a multiple of the 16 pixels of a JPEG's blocks.
SIDE = 112
_QUALITY = 82


class Thumbnail(NamedTuple):
    """A small, upright picture of an image.

    Attributes:
        pixels: uint8 [H, W, 3], at most `SIDE` on each side.
        format: format of the image; of a JPEG, its kind.

    """

    pixels: UInt8Array
    format: str


def make_thumbnail(data: bytes | memoryview, max_pixels: int = MAX_PIXELS) -> Thumbnail:
    """Decode an encoded image to a thumbnail. A JPEG is decoded at a fraction of its size.

    Raises:
        Rejected: it is not an image, is damaged, or exceeds a limit.

    """
    data = bytes(data)
    info = check_image(data, "none", max_pixels, None)
    if info.pixels != RGB8:
        return thumbnail_of(data, info)
    decoded = decode(data, info, *_thumbnail_size(info.width, info.height))
    picture = shrink(as_image(decoded.image), decoded.orientation)
    return Thumbnail(picture, name_format(data, info))


def thumbnail_of(data: bytes, info: ImageInfo) -> Thumbnail:
    """Decode an image of other pixels, or a raw one, to a thumbnail of three of its bands."""
    if info.format == "jp2":
        # Pillow has 8 bits of colors, which is enough for a picture.
        pixels = np.atleast_3d(np.asarray(open_with_pillow(data, info)))
    else:
        pixels = read_values(data, info)
    if info.pixels != RGB8:
        pixels = show_bands(pixels)
    return Thumbnail(shrink(Image.fromarray(pixels)), info.format)


def encode_thumbnail(pixels: UInt8Array) -> bytes:
    """Encode a thumbnail as JPEG. The same pixels give the same bytes."""
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), _QUALITY, "RGB", "420"))


def shrink(image: Image.Image, orientation: int = 1) -> UInt8Array:
    """Shrink an image to at most `SIDE` pixels per side, then apply its EXIF orientation.

    Uint8 [H, W, 3].
    """
    image = image.convert("RGB")
    size = _thumbnail_size(*image.size)
    if size != image.size:
        is_much = max(image.size) > 2 * SIDE
        kernel = Image.Resampling.BOX if is_much else Image.Resampling.BILINEAR
        image = image.resize(size, kernel, reducing_gap=2.0)
    return apply_orientation(np.asarray(image), orientation)


def _thumbnail_size(width: int, height: int) -> tuple[int, int]:
    scale = min(1, SIDE / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


# --- one JPEG for the thumbnails of each group ----------------------------------------------------


_PER_ROW = 16

#: JPEG qualities of sprites: if pictures do not fit at the first one, they get the second.
QUALITIES = (76, 60)


class Tile(NamedTuple):
    """Where a picture is: the name of its sprite, and its place there in pixels."""

    sprite: str
    x: int
    y: int
    width: int
    height: int


class Sprite(NamedTuple):
    """One JPEG with several pictures.

    Attributes:
        uri: the JPEG as a data URI.
        width: pixels.
        height: pixels.
        tiles: place of each picture, by its number.

    """

    uri: str
    width: int
    height: int
    tiles: dict[int, Tile]


def make_sprite(
    name: str, thumbnails: Mapping[int, bytes], numbers: Iterable[int], quality: int
) -> Sprite | None:
    """Make a sprite of thumbnails, by their numbers; `None` if there are none of them."""
    shown = [number for number in dict.fromkeys(numbers) if number in thumbnails]
    if not shown:
        return None
    columns, rows = min(len(shown), _PER_ROW), -(-len(shown) // _PER_ROW)
    canvas = np.zeros((rows, SIDE, columns, SIDE, 3), np.uint8)
    tiles = {}
    for place, number in enumerate(shown):
        row, column = divmod(place, _PER_ROW)
        pixels = simplejpeg.decode_jpeg(thumbnails[number])
        height, width, _ = pixels.shape
        # The rest of the cell repeats the edge, so that it costs few bytes and no other color
        # bleeds into the picture.
        margins = ((0, SIDE - height), (0, SIDE - width), (0, 0))
        canvas[row, :, column] = np.pad(pixels, margins, mode="edge")
        tiles[number] = Tile(name, column * SIDE, row * SIDE, width, height)
    sheet = canvas.reshape(rows * SIDE, columns * SIDE, 3)
    uri = jpeg_uri(simplejpeg.encode_jpeg(sheet, quality, "RGB", "420"))
    return Sprite(uri, columns * SIDE, rows * SIDE, tiles)


# --- images of a shard ----------------------------------------------------------------------------


#: Images of one task.
_TASK_IMAGES = 128

#: Images of each kind of extreme that a report shows.
EXTREMES = 8

#: Kinds of extremes: which number of `Pictures.luma` is small if it is multiplied by the second
#: number, and the text about it.
_KINDS = {
    "Darkest": (0, 1, "brightness {:.0f} of 255"),
    "Brightest": (0, -1, "brightness {:.0f} of 255"),
    "Flattest": (1, 1, "contrast {:.1f}"),
}

#: Weights of red, green and blue in the luma.
_LUMA = np.array([0.299, 0.587, 0.114], np.float32)


class PictureTask(NamedTuple):
    """Images of one shard to decode.

    Attributes:
        path: the shard.
        images: row in `Columns`, first byte and number of bytes of each image, int64 [images, 3].
        keep: rows whose thumbnails are needed.
        raw: what the images are if the shard stores raw pixels, else `None`.
        raw_bytes: bytes of each of them.

    """

    path: str
    images: Rows
    keep: Rows
    raw: ImageInfo | None
    raw_bytes: int


class Pictures(NamedTuple):
    """Decoded images. The arrays have one element per image.

    Attributes:
        rows: rows in `Columns`, int64.
        luma: mean and standard deviation of the luma, 0 to 255, float32 [2, images].
        formats: format of each image; empty if it cannot be decoded.
        failed: the images that cannot be decoded.
        thumbnails: JPEGs by row, for the rows to keep and for the extremes among these images.

    """

    rows: Rows
    luma: Float32Array
    formats: NDArray[np.str_]
    failed: tuple[FailedImage, ...]
    thumbnails: dict[int, bytes]

    @property
    def readable(self) -> BoolArray:
        """Which of the images can be decoded."""
        return self.formats.astype(np.bool_)

    def extremes(self) -> dict[str, tuple[OddImage, ...]]:
        """Return the darkest, the brightest and the flattest images."""
        readable, found = self.readable, {}
        rows = self.rows[readable]
        for kind, (number, sign, text) in _KINDS.items():
            values = self.luma[number, readable]
            order = np.argsort(sign * values, kind="stable")[:EXTREMES]
            texts = map(text.format, values[order].tolist())
            found[kind] = tuple(map(OddImage, rows[order].tolist(), texts))
        return found


_NO_PICTURES = Pictures(
    np.empty(0, np.int64), np.empty((2, 0), np.float32), np.empty(0, "U1"), (), {}
)


def picture_tasks(
    folder: str, columns: Columns, rows: Rows, keep: Rows, manifest: Manifest
) -> Iterator[PictureTask]:
    """Divide rows into tasks, none of which has rows of several shards."""
    raw = None
    if manifest.pixels:
        height, width, _ = manifest.pixels
        raw = ImageInfo("raw", width, height, manifest.kind)
    images = np.stack([rows, columns.offset[rows], columns.size[rows]], axis=1)
    is_kept = np.isin(rows, keep)
    end = 0
    for each in columns.shards:
        path = os.path.join(folder, each.shard.name)
        first, end = end, end + each.rows
        low, high = np.searchsorted(rows, [first, end])
        for at in range(low, high, _TASK_IMAGES):
            part = slice(at, min(high, at + _TASK_IMAGES))
            kept = rows[part][is_kept[part]]
            yield PictureTask(path, images[part], kept, raw, manifest.raw_bytes)


def decode_pictures(task: PictureTask) -> Pictures:
    """Decode the images of a task. What cannot be decoded is counted, and never ends the report."""
    rows = task.images[:, 0]
    luma = np.zeros((2, len(rows)), np.float32)
    formats, failures, thumbnails = [], [], {}
    for number, (row, found) in enumerate(zip(rows.tolist(), _thumbnails(task), strict=True)):
        if isinstance(found, str):
            failures.append(FailedImage(row, found))
            formats.append("")
            continue
        values = found.pixels @ _LUMA
        luma[:, number] = values.mean(), values.std()
        formats.append(found.format)
        thumbnails[row] = found.pixels
    made = Pictures(rows, luma, np.array(formats), tuple(failures), {})
    shown = {image.row for image in chain(*made.extremes().values())}
    for row in sorted(shown.union(task.keep.tolist()) & thumbnails.keys()):
        made.thumbnails[row] = encode_thumbnail(thumbnails[row])
    return made


def _thumbnails(task: PictureTask) -> Iterator[Thumbnail | str]:
    """Yield the thumbnail of each image, or why it cannot be decoded."""
    done = 0
    try:
        with storage.open_view(task.path, span=1 << 16) as (view, length):
            for _, offset, size in task.images.tolist():
                try:
                    yield _thumbnail(view, length, offset, size, task)
                except Rejected as error:
                    yield f"{error.reason}: {error.detail}"
                done += 1
    except DatasetError as error:
        reason = f"{os.path.basename(task.path)}: {error.message}"
        yield from [reason] * (len(task.images) - done)


def _thumbnail(
    view: storage.RandomAccess,
    length: int,
    offset: int,
    size: int,
    task: PictureTask,
) -> Thumbnail:
    """Decode one image of a shard, which has `length` bytes; see `PictureTask`."""
    if offset + size > length:
        raise Rejected("truncated", f"the shard ends at byte {length}, before the end of the image")
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    if task.raw and size != task.raw_bytes:
        raise Rejected("truncated", f"{size} bytes instead of {task.raw_bytes}")
    buffer, at = view(offset, size)
    data = memoryview(buffer)[at : at + size]
    try:
        return thumbnail_of(bytes(data), task.raw) if task.raw else make_thumbnail(data)
    except (Rejected, MemoryError):
        raise
    except Exception as error:
        raise failed(error) from error


def join_pictures(parts: list[Pictures]) -> Pictures:
    """Join the results of all tasks, in the order of the rows."""
    parts.sort(key=lambda part: int(part.rows[0]))
    thumbnails: dict[int, bytes] = {}
    for part in parts:
        thumbnails |= part.thumbnails
    rows, luma, formats, failed, _ = zip(_NO_PICTURES, *parts, strict=True)
    return Pictures(
        rows=np.concatenate(rows),
        luma=np.concatenate(luma, axis=1),
        formats=np.concatenate(formats),
        failed=tuple(chain(*failed)),
        thumbnails=thumbnails,
    )


# --- as much of a rejected image as can be decoded; training never sees it ------------------------


#: Images with more pixels are not decoded for their picture.
_MAX_SALVAGED = 50_000_000

#: Formats of Pillow that are tried, all without external programs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "PPM", "GIF", "AVIF", "JPEG2000", "ICO")


def salvage(data: bytes) -> UInt8Array | None:
    """Decode an image leniently to a thumbnail, uint8 [H, W, 3]; `None` if nothing can be decoded."""
    try:
        return make_thumbnail(data, _MAX_SALVAGED).pixels
    except Rejected as error:
        if error.reason == "too-large":
            return None
    try:
        if data[:3] == b"\xff\xd8\xff":
            jpeg.check_scans(data)
            pixels = simplejpeg.decode_jpeg(data, min_height=SIDE, min_width=SIDE, strict=False)
            return shrink(Image.fromarray(pixels))
        return shrink(_open(data))
    except MemoryError:
        raise
    except Exception:  # damaged images raise many kinds
        return None


def _open(data: bytes) -> Image.Image:
    """Open an image with Pillow as far as it goes."""
    lenient, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Image.init()
            known = [name for name in _FORMATS if name in Image.OPEN]
            image = Image.open(io.BytesIO(data), formats=known)
            if math.prod(image.size) > _MAX_SALVAGED:
                raise ValueError(f"{image.width}x{image.height} pixels")
            image.load()
            return image
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = lenient


# --- images that were not written -----------------------------------------------------------------


#: Images that are shown, of each reason and in total; folders that are listed.
_PER_REASON, _TOTAL = 12, 60
_FOLDERS = 20

#: Folders that are counted separately while the list is read.
_MAX_COUNTED = 100_000

#: Reasons that are counted separately; a list that another program wrote may have any.
_MAX_REASONS, _OTHER = 100, "(others)"

#: Characters of a file that is not an image.
_EXCERPT = 120

_IMAGE = FileKind("image", MAX_BYTES, SourceError, "check what this file is")


class RejectedImage(NamedTuple):
    """An image that was not written.

    Attributes:
        source: its path in the source.
        reason: a key of `dataprep.images.base.REASONS`.
        detail: what exactly is wrong.
        thumbnail: a JPEG of what can be decoded of it; empty if nothing can.
        note: why there is no picture, or how the file begins.

    """

    source: str
    reason: str
    detail: str
    thumbnail: bytes = b""
    note: str = ""


class RejectedList(NamedTuple):
    """The content of ``rejected.jsonl``.

    Attributes:
        facts: counts.
        names: number of images by the name of the innermost folder, which is the class in most
            sources.
        shown: the first images of each reason.
        problems: what is wrong with the file.

    """

    facts: RejectedFacts
    names: Counter[str]
    shown: list[RejectedImage]
    problems: list[Problem]


def read_rejected(folder: str, manifest: Manifest) -> RejectedList:
    """Read the list of images that were not written."""
    reasons, folders, names = Counter[str](), Counter[str](), Counter[str]()
    shown: list[RejectedImage] = []
    message, hint = "", REJECTED.hint
    try:
        for read in _lines(folder, manifest):
            image = read
            if read.reason not in reasons and len(reasons) >= _MAX_REASONS:
                image = read._replace(reason=_OTHER)
            reasons[image.reason] += 1
            parent = os.path.dirname(image.source)
            if parent in folders or len(folders) < _MAX_COUNTED:
                folders[parent] += 1
                names[os.path.basename(parent)] += 1
            if reasons[image.reason] <= _PER_REASON and len(shown) < _TOTAL:
                shown.append(image)
    except OSError as error:
        message = f"the list of rejected images cannot be read ({error.strerror})"
    except DamagedError as error:
        message, hint = error.message, error.hint
    most = list(ranked(folders).items())[:_FOLDERS]
    by_reason = ranked(reasons)
    order = list(by_reason)
    shown.sort(key=lambda image: order.index(image.reason))
    return RejectedList(
        facts=RejectedFacts(reasons.total(), by_reason, dict(most)),
        names=names,
        shown=shown,
        problems=[Problem(REJECTED_NAME, message, hint=hint)] if message else [],
    )


def _lines(folder: str, manifest: Manifest) -> Iterator[RejectedImage]:
    if manifest.rejected is None:
        return
    path = os.path.join(folder, manifest.rejected.name)
    for number, line in enumerate(read_lines(path, REJECTED), 1):
        try:
            row = parse_json(line)
            yield RejectedImage(row["source"].text(), row["reason"].text(), row["detail"].text())
        except ValueError as error:
            raise REJECTED.error(
                f"line {number} is not a rejected image ({error})", hint=REJECTED.hint
            ) from None


def show_rejected(source: str | None, images: Sequence[RejectedImage]) -> list[RejectedImage]:
    """Read rejected images from the folder of a source as far as possible; `None` reads none."""
    if source is None:
        return [*images]
    return [_show(image, source) for image in images]


def _show(image: RejectedImage, folder: str) -> RejectedImage:
    """Read an image of a folder, and add its thumbnail or a note."""
    if image.reason == "too-large":
        return image._replace(note="not decoded, because it exceeds the limit")
    try:
        data = _read(image.source, folder)
    except OSError as error:
        return image._replace(note=f"cannot be read now: {error.strerror}")
    except DatasetError as error:
        return image._replace(note=f"not read: {error.message}")
    pixels = salvage(data)
    if pixels is None:
        return image._replace(note=_excerpt(data))
    return image._replace(thumbnail=encode_thumbnail(pixels))


def _read(path: str, folder: str) -> bytes:
    """Read a file below a folder.

    Raises:
        OSError: it cannot be read.
        SourceError: it is elsewhere, also by a link, or is not a regular file.

    """
    if "\0" in path:
        raise SourceError("the path contains a zero byte", hint="rename the file")
    root = os.path.realpath(folder)
    actual = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath([root, actual]) != root:
        raise SourceError(
            "the path leads out of the folder that --src names",
            hint="set --src to the folder above",
        )
    with open_file(actual, _IMAGE) as file:
        return file.read(MAX_BYTES)


def _excerpt(data: bytes) -> str:
    """Return the beginning of a text, or of other bytes in hexadecimal digits."""
    if not data:
        return "the file is empty"
    head = data[:_EXCERPT]
    text = head.decode("utf-8", "replace")
    strange = 0
    for char in text:
        strange += char == "\ufffd" or not (char.isprintable() or char.isspace())
    if strange > len(text) // 20:
        return f"begins with the bytes {head[:16].hex(' ')}"
    return f"begins with: {cut_middle(printable(' '.join(text.split())), _EXCERPT)}"
