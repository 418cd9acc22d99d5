"""Pictures of a report: thumbnails of a dataset's images and of rejected images, made in worker processes.

Images and the paths in ``rejected.jsonl`` are untrusted. Decoding takes bounded memory and time,
nothing outside of the folder that the user names is opened, and only regular files of a limited size.
"""

from __future__ import annotations

import io
import os
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import simplejpeg
from numpy.typing import NDArray
from PIL import Image, ImageFile

from dataprep import storage
from dataprep.images import jpeg
from dataprep.images.base import MAX_BYTES, IncompleteHeader, Rejected, failed
from dataprep.images.pixels import decode
from dataprep.images.resampling import as_image
from dataprep.images.validate import inspect
from dataprep.options import MAX_PIXELS
from dataprep.report.columns import Columns
from dataprep.report.facts import RejectedFacts
from dataprep.verify.check import Problem
from manifests.errors import DamagedError, DatasetError, SourceError
from manifests.files import REJECTED, FileKind, open_file, read_lines
from manifests.json_members import parse_json
from manifests.process.options import jpeg_uri
from manifests.process.text import cut_middle, printable
from manifests.schema import Manifest

#: Longest side of a thumbnail in pixels, a multiple of the 16 pixels of a JPEG's blocks.
SIDE = 112
_QUALITY = 82

#: Pillow's transposition for each EXIF orientation.
_TRANSPOSE = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


class Thumbnail(NamedTuple):
    """A small, upright picture of an image.

    Attributes:
        pixels: uint8 [H, W, 3], at most `SIDE` on each side.
        format: format of the image.

    """

    pixels: NDArray[np.uint8]
    format: str


def make_thumbnail(data: bytes | memoryview, max_pixels: int = MAX_PIXELS) -> Thumbnail:
    """Decode an encoded image to a thumbnail. A JPEG is decoded at a fraction of its size.

    Raises:
        Rejected: it is not an image, is damaged, or exceeds a limit.

    """
    data = bytes(data)
    info = inspect(data, "none", max_pixels)
    scale = SIDE / max(info.width, info.height)
    size = (max(1, round(info.width * scale)), max(1, round(info.height * scale)))
    decoded = decode(
        data, info, *(min(pair) for pair in zip(size, (info.width, info.height), strict=True))
    )
    return Thumbnail(shrink(as_image(decoded.image), decoded.orientation), info.format)


def make_raw_thumbnail(data: bytes | memoryview, pixels: tuple[int, int, int]) -> Thumbnail:
    """Shrink pixels of the store ``"raw"``, uint8 [H, W, 3].

    Raises:
        Rejected: there are not as many bytes as pixels.

    """
    if len(data) != pixels[0] * pixels[1] * pixels[2]:
        raise Rejected("truncated", f"{len(data)} bytes instead of {'x'.join(map(str, pixels))}")
    return Thumbnail(
        shrink(Image.fromarray(np.frombuffer(data, np.uint8).reshape(pixels)), 1), "raw"
    )


def encode_thumbnail(pixels: NDArray[np.uint8]) -> bytes:
    """Encode a thumbnail as JPEG. The same pixels give the same bytes."""
    return bytes(simplejpeg.encode_jpeg(np.ascontiguousarray(pixels), _QUALITY, "RGB", "420"))


def decode_thumbnail(data: bytes) -> NDArray[np.uint8]:
    """Decode what `encode_thumbnail` returned."""
    return np.asarray(simplejpeg.decode_jpeg(data))


def shrink(image: Image.Image, orientation: int) -> NDArray[np.uint8]:
    """Shrink an image to at most `SIDE` pixels per side, then apply its EXIF orientation.

    Uint8 [H, W, 3].
    """
    image = image.convert("RGB")
    scale = SIDE / max(image.size)
    if scale < 1:
        size = (max(1, round(image.width * scale)), max(1, round(image.height * scale)))
        image = image.resize(
            size,
            Image.Resampling.BOX if scale < 0.5 else Image.Resampling.BILINEAR,
            reducing_gap=2.0,
        )
    if orientation in _TRANSPOSE:
        image = image.transpose(_TRANSPOSE[orientation])
    return np.asarray(image)


# --- one JPEG for the thumbnails of each group ------------------------------------------------------


_PER_ROW = 16

#: JPEG qualities of sprites: if pictures do not fit at the first one, they get the second.
QUALITIES = (76, 60)


class Tile(NamedTuple):
    """Where a picture is in its sprite, in pixels."""

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
        tiles: place of each picture, by its name.

    """

    uri: str
    width: int
    height: int
    tiles: Mapping[int, Tile]


def make_sprite(
    thumbnails: Mapping[int, bytes], names: Sequence[int], quality: int = QUALITIES[0]
) -> Sprite | None:
    """Make a sprite of the named thumbnails; `None` if there are none of them."""
    shown = [name for name in dict.fromkeys(names) if name in thumbnails]
    if not shown:
        return None
    columns, rows = min(len(shown), _PER_ROW), -(-len(shown) // _PER_ROW)
    canvas = np.zeros((rows * SIDE, columns * SIDE, 3), np.uint8)
    tiles = {}
    for number, name in enumerate(shown):
        pixels = decode_thumbnail(thumbnails[name])
        height, width = pixels.shape[:2]
        y, x = (place * SIDE for place in divmod(number, _PER_ROW))
        # The rest of the cell repeats the edge, so that it costs few bytes and no other color
        # bleeds into the picture.
        filled = np.pad(pixels, ((0, SIDE - height), (0, SIDE - width), (0, 0)), mode="edge")
        canvas[y : y + SIDE, x : x + SIDE] = filled
        tiles[name] = Tile(x, y, width, height)
    jpeg = simplejpeg.encode_jpeg(canvas, quality, "RGB", "420")
    uri = jpeg_uri(jpeg)
    return Sprite(uri, columns * SIDE, rows * SIDE, tiles)


# --- images of a shard ------------------------------------------------------------------------------


#: Images of one task.
_TASK_IMAGES = 128

#: Images of each kind of extreme that a report shows.
EXTREMES = 8

#: Format of an image that cannot be decoded.
UNREADABLE = ""


class PictureTask(NamedTuple):
    """Images of one shard to decode.

    Attributes:
        path: the shard.
        rows: their rows in `Columns`, ascending.
        offsets: first byte of each image.
        sizes: bytes of each image.
        keep: rows whose thumbnails are needed.
        pixels: height, width and channels if the shard stores raw pixels, else `None`.

    """

    path: str
    rows: tuple[int, ...]
    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    keep: frozenset[int]
    pixels: tuple[int, int, int] | None


class Pictures(NamedTuple):
    """Decoded images. The arrays have one element per image.

    Attributes:
        rows: rows in `Columns`, int64.
        brightness: mean luma, 0 to 255, float32.
        contrast: standard deviation of the luma, float32.
        formats: format of each image; `UNREADABLE` if it cannot be decoded.
        failed: reasons by row.
        thumbnails: JPEGs by row, for the rows to keep and for the extremes among these images.

    """

    rows: NDArray[np.int64]
    brightness: NDArray[np.float32]
    contrast: NDArray[np.float32]
    formats: tuple[str, ...]
    failed: dict[int, str]
    thumbnails: dict[int, bytes]


def picture_tasks(
    folder: str,
    columns: Columns,
    rows: NDArray[np.int64],
    keep: frozenset[int],
    pixels: tuple[int, int, int] | None,
) -> Iterator[PictureTask]:
    """Divide rows into tasks, none of which has rows of several shards."""
    for each in columns.shards:
        low, high = np.searchsorted(rows, (each.first, each.first + each.rows))
        for at in range(low, high, _TASK_IMAGES):
            part = rows[at : min(high, at + _TASK_IMAGES)]
            numbers = part.tolist()
            yield PictureTask(
                path=os.path.join(folder, each.shard.name),
                rows=tuple(numbers),
                offsets=tuple(columns.offset[part].tolist()),
                sizes=tuple(columns.size[part].tolist()),
                keep=keep.intersection(numbers),
                pixels=pixels,
            )


def decode_pictures(task: PictureTask) -> Pictures:
    """Decode the images of a task. What cannot be decoded is counted, and never ends the report."""
    lumas = np.zeros((2, len(task.rows)), np.float32)
    formats, thumbnails = [UNREADABLE] * len(task.rows), dict[int, NDArray[np.uint8]]()
    failures: dict[int, str] = {}
    for number, row, found in _thumbnails(task):
        if isinstance(found, str):
            failures[row] = found
            continue
        luma = found.pixels @ np.array([0.299, 0.587, 0.114], np.float32)
        lumas[:, number] = luma.mean(), luma.std()
        formats[number] = found.format
        thumbnails[row] = found.pixels
    rows = np.array(task.rows, np.int64)
    shown = (
        task.keep.union(extremes(rows, lumas[0], lumas[1], np.array(formats) != UNREADABLE))
        & thumbnails.keys()
    )
    encoded = {row: encode_thumbnail(thumbnails[row]) for row in sorted(shown)}
    return Pictures(rows, lumas[0], lumas[1], tuple(formats), failures, encoded)


def _thumbnails(task: PictureTask) -> Iterator[tuple[int, int, Thumbnail | str]]:
    """Yield each image's number in the task, its row, and its thumbnail or why it cannot be decoded."""
    done = 0
    try:
        with storage.open_view(task.path, span=1 << 16) as (view, length):
            for number, (row, offset, size) in enumerate(
                zip(task.rows, task.offsets, task.sizes, strict=True)
            ):
                try:
                    yield number, row, _decode(view, length, offset, size, task.pixels)
                except Rejected as error:
                    yield number, row, f"{error.reason}: {error.detail}"
                done = number + 1
    except DatasetError as error:
        reason = f"{os.path.basename(task.path)}: {error.message}"
        yield from ((number, row, reason) for number, row in list(enumerate(task.rows))[done:])


def join_pictures(parts: list[Pictures]) -> Pictures:
    """Join the results of all tasks, in the order of the rows."""
    parts = sorted(parts, key=lambda part: int(part.rows[0]))
    return Pictures(
        np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.brightness for part in parts)]),
        np.concatenate([np.empty(0, np.float32), *(part.contrast for part in parts)]),
        tuple(name for part in parts for name in part.formats),
        {row: reason for part in parts for row, reason in part.failed.items()},
        {row: data for part in parts for row, data in part.thumbnails.items()},
    )


def extremes(
    rows: NDArray[np.int64],
    brightness: NDArray[np.float32],
    contrast: NDArray[np.float32],
    readable: NDArray[np.bool_],
) -> list[int]:
    """Return the rows of the darkest, the brightest and the flattest images."""
    return [
        int(row)
        for values in (brightness, -brightness, contrast)
        for row in rows[readable][np.argsort(values[readable], kind="stable")[:EXTREMES]]
    ]


def _decode(
    view: storage.RandomAccess,
    length: int,
    offset: int,
    size: int,
    pixels: tuple[int, int, int] | None,
) -> Thumbnail:
    if offset + size > length:
        raise Rejected("truncated", f"the shard ends at byte {length}, before the end of the image")
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, but the limit is {MAX_BYTES}")
    buffer, at = view(offset, size)
    data = memoryview(buffer)[at : at + size]
    try:
        return make_raw_thumbnail(data, pixels) if pixels else make_thumbnail(data)
    except (Rejected, MemoryError):
        raise
    except Exception as error:
        raise failed(error) from error


# --- as much of a rejected image as can be decoded; training never sees it --------------------------


#: Images with more pixels are not decoded for their picture.
_MAX_PIXELS = 50_000_000

#: Formats of Pillow that are tried, all without external programs.
_FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "AVIF", "JPEG2000", "ICO")


def salvage(data: bytes) -> NDArray[np.uint8]:
    """Decode an image leniently to a thumbnail; uint8 [H, W, 3].

    Raises:
        Rejected: nothing of it can be decoded, or it exceeds a limit.

    """
    try:
        return make_thumbnail(data, _MAX_PIXELS).pixels
    except Rejected as error:
        if error.reason == "too-large":
            raise
    if data[:3] == b"\xff\xd8\xff":
        try:
            jpeg.check_scans(data)
            return shrink(
                Image.fromarray(
                    simplejpeg.decode_jpeg(data, min_height=SIDE, min_width=SIDE, strict=False)
                ),
                1,
            )
        except IncompleteHeader:
            raise Rejected("truncated", "the file ends before the frame header") from None
        except ValueError as error:
            raise Rejected("corrupt", str(error)) from None
    return shrink(_open(data), 1)


def _open(data: bytes) -> Image.Image:
    lenient, ImageFile.LOAD_TRUNCATED_IMAGES = ImageFile.LOAD_TRUNCATED_IMAGES, True
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            Image.init()
            image = Image.open(
                io.BytesIO(data), formats=[name for name in _FORMATS if name in Image.OPEN]
            )
            _check_pixels(image)
            image.load()
            return image
    except (Rejected, MemoryError):
        raise
    except Exception as error:  # damaged images raise many kinds
        raise Rejected("corrupt", str(error) or type(error).__name__) from None
    finally:
        ImageFile.LOAD_TRUNCATED_IMAGES = lenient


def _check_pixels(image: Image.Image) -> None:
    if image.width * image.height > _MAX_PIXELS:
        raise Rejected("too-large", f"{image.width}x{image.height} pixels")


# --- images that were not written -------------------------------------------------------------------


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
    shown: tuple[RejectedImage, ...]
    problems: tuple[Problem, ...]


def read_rejected(folder: str, manifest: Manifest) -> RejectedList:
    """Read the list of images that were not written."""
    reasons: Counter[str] = Counter()
    folders: Counter[str] = Counter()
    shown: list[RejectedImage] = []
    problems: list[Problem] = []
    try:
        for read in _lines(folder, manifest):
            is_other = read.reason not in reasons and len(reasons) >= _MAX_REASONS
            image = read._replace(reason=_OTHER) if is_other else read
            reasons[image.reason] += 1
            parent = os.path.dirname(image.source)
            if parent in folders or len(folders) < _MAX_COUNTED:
                folders[parent] += 1
            if reasons[image.reason] <= _PER_REASON and len(shown) < _TOTAL:
                shown.append(image)
    except OSError as error:
        message = f"the list of rejected images cannot be read ({error.strerror})"
        problems.append(Problem(REJECTED_FILE, message, hint=REJECTED.hint))
    except DamagedError as error:
        problems.append(Problem(REJECTED_FILE, error.message, hint=error.hint))
    names: Counter[str] = Counter()
    for parent, count in folders.items():
        names[os.path.basename(parent)] += count
    most = sorted(folders.items(), key=lambda item: (-item[1], item[0]))[:_FOLDERS]
    by_reason = dict(sorted(reasons.items(), key=lambda item: (-item[1], item[0])))
    order = list(by_reason)
    shown.sort(key=lambda image: order.index(image.reason))
    return RejectedList(
        RejectedFacts(reasons.total(), by_reason, dict(most)), names, tuple(shown), tuple(problems)
    )


REJECTED_FILE = "rejected.jsonl"


def _lines(folder: str, manifest: Manifest) -> Iterator[RejectedImage]:
    if manifest.rejected is None:
        return
    for number, line in enumerate(
        read_lines(os.path.join(folder, manifest.rejected.name), REJECTED), 1
    ):
        try:
            row = parse_json(line)
            yield RejectedImage(row["source"].text(), row["reason"].text(), row["detail"].text())
        except ValueError as error:
            raise REJECTED.error(
                f"line {number} is not a rejected image ({error})", hint=REJECTED.hint
            ) from None


class RejectedTask(NamedTuple):
    """Rejected images whose pictures are to be read from a folder; `None` reads none."""

    images: tuple[RejectedImage, ...]
    source: str | None


def show_rejected(task: RejectedTask) -> list[RejectedImage]:
    """Read the rejected images as far as possible."""
    return [_show(image, task.source) for image in task.images]


def _show(image: RejectedImage, source: str | None) -> RejectedImage:
    if source is None:
        return image
    if image.reason == "too-large":
        return image._replace(note="not decoded, because it exceeds the limit")
    try:
        data = _read(image.source, source)
    except OSError as error:
        return image._replace(note=f"cannot be read now: {error.strerror}")
    except DatasetError as error:
        return image._replace(note=f"not read: {error.message}")
    try:
        return image._replace(thumbnail=encode_thumbnail(salvage(data)))
    except Rejected as error:
        return image._replace(note=_excerpt(data) or error.detail)


def _read(path: str, folder: str) -> bytes:
    """Read a file below a folder.

    Raises:
        OSError: it cannot be read.
        SourceError: it is elsewhere, also by a link, or is not a regular file.

    """
    if "\0" in path:
        raise SourceError("the path contains a zero byte", hint=REJECTED.hint)
    root = os.path.realpath(folder)
    actual = os.path.realpath(os.path.join(root, path))
    if os.path.commonpath([root, actual]) != root:
        raise SourceError(
            "the path leads out of the folder that --src names",
            hint="set --src to the folder of the source",
        )
    with open_file(actual, _IMAGE) as file:
        return file.read(MAX_BYTES)


def _excerpt(data: bytes) -> str:
    """Return the beginning of a text, or of other bytes in hexadecimal digits."""
    if not data:
        return "the file is empty"
    head = data[:_EXCERPT]
    text = head.decode("utf-8", "replace")
    if (
        sum(not (char.isprintable() or char.isspace()) or char == "\ufffd" for char in text)
        <= len(text) // 20
    ):
        return f"begins with: {cut_middle(printable(' '.join(text.split())), _EXCERPT)}"
    return f"begins with the bytes {head[:16].hex(' ')}"
