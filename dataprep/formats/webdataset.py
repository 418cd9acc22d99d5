"""WebDataset shards: a `RecordFormat` that uses `tar`.

Consecutive files with the same name up to the first dot are one sample: the image, ``.cls`` with
the label in decimal ASCII if it is a class, and ``.json`` with the sample's row of the sample
table. A caption is also in ``.txt``, a mask in ``.mask.png``, a depth in ``.depth.png``.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from dataprep.formats import tar
from dataprep.formats.base import (
    MAX_CAPTION,
    MAX_TEXT,
    ByteView,
    Envelope,
    Record,
    RecordDamage,
    ScanOptions,
    read_bytes,
)
from dataprep.images.base import EXTENSIONS
from dataprep.labels.base import LabelKind, PendingSample
from manifests.dali_index import webdataset_line
from manifests.errors import CallError, ShardError
from manifests.labels import LABEL_IMAGE
from manifests.process.text import one_line, shown
from manifests.schema import Components, Store

SUFFIX = ".tar"
SUFFIXES: tuple[str, ...] = (".tar",)
END = tar.END


# --- writing ------------------------------------------------------------------------------------

_BLOCK, _ZEROS, _header = tar.BLOCK, tar.ZEROS, tar.header
_EXTENSIONS = {**EXTENSIONS, "raw": "raw"}
_quoted = json.encoder.encode_basestring
_json = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def envelope(sample: PendingSample) -> Envelope:
    """Return the bytes of a sample around the image's data."""
    key, size, label = sample.key, sample.size, sample.labels.extension
    extension = _EXTENSIONS[sample.info.format]
    name, tail = f"{key}.{extension}", _ZEROS[-size % _BLOCK]
    head, line, places = _header(name.encode(), size), f"{extension} %d {size} {name}", [_BLOCK]
    # The label is the file after the image, then the other images; their data follows their headers.
    at = 2 * _BLOCK + size + len(tail)
    files = []
    if label is not None and sample.labels.pixels is None:
        files.append((label, sample.labels.content(sample)))
    for other in sample.others:
        part = f"{other.name}.{_EXTENSIONS[other.info.format]}"
        if other.name == LABEL_IMAGE:
            part = str(label)
        files.append((part, other.data))
    for extension, data in files:
        name, length = f"{key}.{extension}", len(data)
        padding = _ZEROS[-length % _BLOCK]
        tail += _header(name.encode(), length) + data + padding
        line += f" {extension} %d {length} {name}"
        places.append(at)
        at += _BLOCK + length + len(padding)
    data, name = _sample_json(sample).encode(), f"{key}.json"
    length = len(data)
    tail += _header(name.encode(), length) + data + _ZEROS[-length % _BLOCK]
    line += f" json %d {length} {name}"
    places.append(at)
    if not sample.others:
        return Envelope(head, tail, line, places)
    return Envelope(head, tail, line, places, places[-1 - len(sample.others) : -1])


def components(store: Store, labels: LabelKind) -> Components:
    """Return the names of the image, the label and the label image in written samples."""
    return Components(
        image=("raw",) if store == "raw" else tuple(EXTENSIONS.values()),
        label="cls" if labels.is_class else None,
        mask=labels.extension if labels.has_image else None,
    )


def index_line(start: int, sample: PendingSample, envelope: Envelope) -> str:  # noqa: ARG001
    """Return the sample's line in the DALI index."""
    return envelope.line % tuple([start + at for at in envelope.places])


def _sample_json(sample: PendingSample) -> str:
    """Return the ``.json`` of a sample.

    Extra columns come first, so they cannot override the other members.
    """
    extra, labels = "", sample.labels
    if sample.extra:
        columns = labels.other_columns(sample.extra)
        extra = _json({name: _finite(value) for name, value in columns})[1:-1]
        if extra:
            extra += ","
    return (
        f'{{{extra}"key":"{sample.key}",{labels.members(sample)}'
        f'"width":{sample.info.width},"height":{sample.info.height},"source":{_quoted(sample.source)},'
        f'"crc32c":{sample.crc32c}}}'
    )


def _finite(value: Any) -> Any:
    # JSON has no NaN and no infinity.
    return None if isinstance(value, float) and not math.isfinite(value) else value


# --- reading ------------------------------------------------------------------------------------

#: A label in decimal ASCII, with the line feed that some tools append. Python's `int` accepts more
#: than this.
_LABEL = re.compile(r"-?[0-9]{1,19}(\r?\n)?")
#: More than the longest label.
_MAX_LABEL_BYTES = 40
#: A surrogate: JSON can contain it, UTF-8 cannot.
_SURROGATE = re.compile("[\ud800-\udfff]")


def scan(
    view: ByteView, size: int, file: str, options: ScanOptions, start: int = 0
) -> Iterator[Record]:
    """Walk the samples of a shard by their headers; see `RecordFormat.scan`."""
    images = frozenset(options.components.image)
    for number, group in enumerate(groups(view, size, file, options, start)):
        try:
            yield _read_sample(view, group, images, options)
        except ShardError as error:
            error.file, error.record = file, number
            raise


def _read_sample(
    view: ByteView, group: Group, images: frozenset[str], options: ScanOptions
) -> Record:
    members = by_kind_of(group, images)
    image = members["image"]
    label, class_name, source = _read_label_and_texts(view, members, options)
    return Record(
        start=group.members[0][1].start,
        end=group.members[-1][1].end,
        index_line=webdataset_line(
            [(extension, m.data, m.size, m.name) for extension, m in group.members]
        ),
        key=group.key,
        offset=image.data,
        size=image.size,
        component=image.name[len(group.key) + 1 :].lower(),
        label=label,
        class_name=class_name,
        source=source,
        caption=_read_caption(view, members.get(options.caption or "")),
    )


def _read_label_and_texts(
    view: ByteView, members: dict[str, tar.Member], options: ScanOptions
) -> tuple[int | None, str, str]:
    """Read label, class name and source of a sample from its ``.cls`` and ``.json``."""
    label: int | None = None
    text = {}
    if (options.texts or options.label_key) and (member := members.get("json")) is not None:
        try:
            text = _parse_json(view, member)
        except ShardError:
            if options.label_key is not None:  # without a label key, a .json may contain anything
                raise
    if options.label_key is not None:
        label = _json_label(text, options.label_key)
    elif options.components.label and (member := members.get(options.components.label)) is not None:
        raw = tar.read_text(view, member.data, min(member.size, _MAX_LABEL_BYTES))
        if not _LABEL.fullmatch(raw):
            raise ShardError(
                f"the label {shown(raw)} is not an integer",
                byte=member.data,
                hint="name another extension with --label, or add --label-type none",
            )
        label = int(raw)
    source = _text(text.get("source", text.get("url"))) or members["image"].name
    return label, _text(text.get("class")), source


def _read_caption(view: ByteView, member: tar.Member | None) -> str | None:
    """Read the caption of a sample; `None` if it has none, or if none is requested."""
    if member is None:
        return None
    if member.size > MAX_CAPTION:
        message = f"the caption has {member.size:,} bytes, but the limit is {MAX_CAPTION:,}"
        hint = "shorten the caption, or add --label-type none"
        raise ShardError(message, byte=member.data, hint=hint)
    text = tar.read_text(view, member.data, member.size)
    if _SURROGATE.search(text):
        hint = "write the caption as UTF-8"
        raise ShardError("the caption is not valid UTF-8", byte=member.data, hint=hint)
    return text


def _text(value: Any) -> str:
    """Return a text of a ``.json``.

    Empty if it is none, is longer than `MAX_TEXT`, or has surrogates (no UTF-8).
    """
    if isinstance(value, str) and len(value) <= MAX_TEXT and not _SURROGATE.search(value):
        return value
    return ""


def _parse_json(view: ByteView, member: tar.Member) -> dict[str, Any]:
    wrong = "is not an object"
    try:
        text = json.loads(tar.read_text(view, member.data, member.size))
    except (ValueError, RecursionError) as error:
        text, wrong = None, f"is not valid JSON ({error})"
    if isinstance(text, dict):
        return text
    hint = "write one JSON object for each sample"
    raise ShardError(f"the .json of the sample {wrong}", byte=member.data, hint=hint)


def _json_label(text: dict[str, Any], key: str) -> int:
    value = text.get(key)
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() < 64:
        return value
    integers = sorted(name for name, item in text.items() if type(item) is int)
    listed = ", ".join(integers[:20])
    if len(integers) > 20:
        listed += f" and {len(integers) - 20:,} more"
    message = (
        f"the .json has no integer member {shown(key)} of up to 64 bits (its value is"
        f" {shown(value)}); its integer members are: {one_line(listed, 1000) or 'none'}"
    )
    raise ShardError(message, hint="set --label-key to one of them")


def find_damage(view: ByteView, record: Record, file: str) -> RecordDamage | None:
    """Check that the padding in a sample is zeros; `scan` checks the headers."""
    for member in tar.members(view, record.end, file, start=record.start, part=True):
        at = member.data + member.size
        if any(read_bytes(view, at, member.end - at)):
            return RecordDamage("the padding after a file is not zeros", at)
    return None


# --- which files are a sample ---------------------------------------------------------------------

#: A file name without whitespace and without surrogates, which stand for bytes that are not UTF-8.
_VALID_NAME = re.compile(r"[^\s\ud800-\udfff]+")


class Group(NamedTuple):
    """The files of one sample, with their extensions."""

    key: str
    members: list[tuple[str, tar.Member]]


def groups(
    view: ByteView, size: int, file: str, options: ScanOptions, start: int = 0
) -> Iterator[Group]:
    """Group files by key. Errors get the number of the sample in which they occur."""
    group: Group | None = None
    number = largest = 0
    try:
        for member in tar.members(view, size, file, start=start):
            key, extension = split_name(member.name)
            if not key or key.endswith("/"):
                continue
            if group is not None and group.key != key:
                largest = max(largest, len(group.members))
                yield group
                group, number = None, number + 1
            _check_name(member)
            group = group or Group(key, [])
            group.members.append((extension, member))
    except ShardError as error:
        if group is not None and _looks_complete(group, largest, options):
            yield group
            number += 1
        error.file, error.record = file, number
        raise
    if group is not None:
        yield group


def split_name(name: str) -> tuple[str, str]:
    """Return key and extension of a file, as DALI's own index tool does: the extension follows the first dot."""
    dot = name.find(".", name.rfind("/") + 1)
    if dot < 0:
        return name[:-1], name
    return name[:dot], name[dot + 1 :]


def _check_name(member: tar.Member) -> None:
    if not _VALID_NAME.fullmatch(member.name) or member.name.endswith("."):
        message = (
            f"the name of the file {shown(member.name)} has whitespace, an empty extension or bytes"
            " that are not UTF-8, which DALI's index cannot store"
        )
        raise ShardError(message, byte=member.start, hint="make the shard again with other keys")


def _looks_complete(group: Group, largest: int, options: ScanOptions) -> bool:
    """Return whether the last group before damage is probably complete, so the damage is in the next sample.

    A complete group has an image, a label (if there are any), and at least as many files as every
    group before it.
    """
    extensions = {extension.lower() for extension, _ in group.members}
    has_both = bool(extensions & set(options.components.image)) and options.components.label in (
        None,
        *extensions,
    )
    return has_both and len(group.members) >= largest


def by_kind_of(group: Group, images: frozenset[str]) -> dict[str, tar.Member]:
    """Return a sample's files by lower-case extension, except the image, whose key is ``"image"``."""
    by_kind = {}
    for extension, member in group.members:
        lowered = extension.lower()
        kind = "image" if lowered in images else lowered
        if kind in by_kind:
            what = f"two files with the extension {extension!r}"
            if kind == "image":
                what = "two images"
            hint = "set --image to the extension of one of them"
            message = f"sample {shown(group.key)} has {what}"
            raise ShardError(message, byte=member.start, hint=hint)
        by_kind[kind] = member
    if "image" not in by_kind:
        listed = one_line(", ".join(extension for extension, _ in group.members), 1000)
        extensions = ", ".join(sorted(images))
        message = (
            f"sample {shown(group.key)} has no file with an image extension ({extensions}); its"
            f" files are: {listed}"
        )
        hint = "name the extension of the images with --image"
        raise ShardError(message, byte=group.members[0][1].start, hint=hint)
    return by_kind


# --- shards made by other tools -----------------------------------------------------------------

#: Extensions of images, compared with the whole extension of a file or with its last part.
IMAGE_EXTENSIONS = frozenset(
    {"jpg", "jpeg", "png", "webp", "bmp", "tif", "tiff", "ppm", "pgm", "jp2", "j2k"}
    | {"img", "image"}
)


def find_components(view: ByteView, size: int, file: str, image: str | None) -> Components:
    """Find the image and the label in the first sample; see `RecordFormat.find_components`."""
    options = ScanOptions(Components((*EXTENSIONS.values(),), "cls"))
    group = next(groups(view, size, file, options), None)
    if group is None:
        raise ShardError("the shard contains no files", file=file, byte=0, hint="remove it")
    extensions = [extension.lower() for extension, _ in group.members]
    label = "cls" if "cls" in extensions else None
    listed = one_line(", ".join(extensions), 1000)
    if image is not None:
        images = [part.strip().lstrip(".") for part in image.lower().split(",")]
        if not set(images) & set(extensions):
            message = (
                f"--image {image}: {file} has no such file in its first sample; its files are:"
                f" {listed}"
            )
            raise CallError(message, hint="set --image to the extension of the image")
        return Components(image=tuple(images), label=label)
    images = [name for name in extensions if name in IMAGE_EXTENSIONS]
    if not images:
        images = [name for name in extensions if name.rpartition(".")[2] in IMAGE_EXTENSIONS]
    if len(images) != 1:
        what = f"no image; its files are: {listed}"
        hint = "set --image to the extension of the image"
        if images:
            what = f"more than one image: {', '.join(images)}"
            hint = "set --image to one of these extensions"
        message = f"sample {shown(group.key)} has {what}"
        raise ShardError(message, file=file, record=0, hint=hint)
    # Samples may have images of different formats, so all common extensions are accepted.
    if images[0] in IMAGE_EXTENSIONS:
        images = sorted(IMAGE_EXTENSIONS)
    return Components(image=tuple(images), label=label)
