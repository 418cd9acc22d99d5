"""TFRecord shards of ``tf.train.Example``: a `RecordFormat`.

A record is ``length u64 | masked CRC-32C of it u32 | payload | masked CRC-32C of the payload u32``,
little-endian (TensorFlow, ``core/lib/io/record_writer.h``). The payload is an Example with the
feature names of ImageNet. The small features come before the image, so all of them fit in one page
of memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any

from awscrt.checksums import combine_crc32c, crc32c

from dataprep.formats.base import (
    MAX_CAPTION,
    ByteView,
    Envelope,
    Record,
    RecordDamage,
    ScanOptions,
    image_header,
)
from dataprep.formats.example_proto import (
    BYTES,
    MALFORMED,
    FeatureReader,
    Value,
    bytes_feature,
    bytes_head,
    bytes_list_feature,
    cached_feature,
    column_feature,
    example_head,
    float_list_feature,
    int_list_feature,
    locate_features,
    read_int,
    read_text,
)
from dataprep.images.base import ImageInfo, Rejected
from dataprep.labels.base import LabelKind, PendingSample
from manifests.dali_index import tfrecord_line
from manifests.errors import CallError, ShardError
from manifests.labels import LABEL_IMAGE
from manifests.process.text import printable
from manifests.schema import Components, Store, other_component

SUFFIX = ".tfrecord"
SUFFIXES: tuple[str, ...] = (".tfrecord", ".tfrecords", ".tfrec", ".record")
END = b""

_LENGTH = struct.Struct("<Q")
_CRC = struct.Struct("<I")
_PREFIX = struct.Struct("<QI")
#: Bytes of a record besides its payload.
_OVERHEAD = _PREFIX.size + _CRC.size
_TRUNCATED_HINT = "the file was cut short; copy it again or make it again"
_DAMAGED_HINT = "the file is damaged; copy it again or make it again"
#: What data of gzip and of zlib begins with.
_COMPRESSED = (b"\x1f\x8b", b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_NOT_EXAMPLE = "the record is not a tf.train.Example"


def masked(crc: int) -> int:
    """Mask a CRC-32C as TFRecord stores it (``core/lib/hash/crc32c.h``)."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# --- writing ------------------------------------------------------------------------------------

#: Encoders of `dataprep.labels.base.Feature`.
_ENCODERS: Mapping[str, Callable[[bytes, Any], bytes]] = {
    "value": cached_feature,
    "bytes": bytes_list_feature,
    "floats": float_list_feature,
    "integers": int_list_feature,
}


def components(store: Store, labels: LabelKind) -> Components:
    """Return the names of the image, the label and the label image in written records."""
    return Components(
        image=(f"image/{store}",),
        label="image/class/label" if labels.is_class else None,
        mask=labels.feature,
    )


def envelope(sample: PendingSample) -> Envelope:
    """Return the bytes of a record around its image."""
    labels, size = sample.labels, sample.size
    features = []
    if sample.extra:
        for column, value in labels.other_columns(sample.extra):
            if value is not None:
                features.append(column_feature(column.encode(), value))
    for name, encoding, value in labels.features(sample):
        features.append(_ENCODERS[encoding](name, value))
    features.append(bytes_feature(b"image/filename", sample.source.encode()))
    features.append(_info_features(sample.info))
    component = "image/raw" if sample.info.format == "raw" else "image/encoded"
    # The other images are the features before the image. Their data is at the end of each.
    for other in sample.others:
        feature = other_component(component, other.name)
        if other.name == LABEL_IMAGE:
            feature = str(labels.feature)
        features.append(bytes_feature(feature.encode(), other.data))
    image_head = bytes_head(component.encode(), size)
    head = example_head(b"".join(features) + image_head, size)
    payload_crc = combine_crc32c(crc32c(head), sample.crc32c, size)
    length = _LENGTH.pack(len(head) + size)
    head = length + _CRC.pack(masked(crc32c(length))) + head
    tail = _CRC.pack(masked(payload_crc))
    if not sample.others:
        return Envelope(head, tail)
    places, end = [], len(head) - len(image_head)
    for number in range(1, len(sample.others) + 1):
        places.append(end - len(sample.others[-number].data))
        end -= len(features[-number])
    return Envelope(head, tail, others=places[::-1])


@lru_cache(1 << 14)
def _info_features(info: ImageInfo) -> bytes:
    return (
        column_feature(b"image/format", info.format.upper())
        + column_feature(b"image/height", info.height)
        + column_feature(b"image/width", info.width)
    )


def index_line(start: int, sample: PendingSample, envelope: Envelope) -> str:
    """Return the record's line in the DALI index."""
    return tfrecord_line(start, len(envelope.head) + sample.size + len(envelope.tail))


# --- reading ------------------------------------------------------------------------------------

_CLASS_NAME, _SOURCE = b"image/class/text", b"image/filename"


def scan(
    view: ByteView, size: int, file: str, options: ScanOptions, start: int = 0
) -> Iterator[Record]:
    """Walk the records of a shard by their headers; see `RecordFormat.scan`."""
    component = options.components.image[0]
    image_name = _encoded(component)
    label_name = _encoded(options.components.label or "")
    caption_name = _encoded(options.caption or "")
    wanted = {label_name, caption_name} - {b""}
    if options.texts:
        wanted |= {_CLASS_NAME, _SOURCE}
    reader = FeatureReader(view, image_name, wanted)
    at, number = start, 0
    try:
        while at < size:
            end = _record_end(view, at, size)
            values = reader.read(at + _PREFIX.size, end - _CRC.size)
            image = values.get(image_name)
            if not isinstance(image, tuple) or image[0] != BYTES:
                raise _no_image(view, at, end, component)
            _, first, stop = image
            yield Record(
                start=at,
                end=end,
                index_line=tfrecord_line(at, end - at),
                key="",
                offset=first,
                size=stop - first,
                component=component,
                label=read_int(view, values.get(label_name)),
                class_name=read_text(view, values.get(_CLASS_NAME)) or "",
                source=read_text(view, values.get(_SOURCE)) or "",
                caption=read_text(view, values.get(caption_name), MAX_CAPTION),
            )
            at = end
            number += 1
    except MALFORMED:
        raise ShardError(
            _NOT_EXAMPLE, file=file, record=number, byte=at, hint=_DAMAGED_HINT
        ) from None
    except ShardError as error:
        error.file, error.record = file, number
        raise


def _no_image(view: ByteView, at: int, end: int, component: str) -> ShardError:
    features = locate_features(view, at + _PREFIX.size, end - _CRC.size)
    message = (
        f"the record has no image under the feature {component!r}; its features are:"
        f" {_list_names(features)}"
    )
    return ShardError(message, byte=at, hint="name the feature of the image with --image")


def _record_end(view: ByteView, at: int, size: int) -> int:
    if size - at < _OVERHEAD:
        message = f"the shard ends within the header of a record ({size - at} bytes are left)"
        raise ShardError(message, byte=at, hint=_TRUNCATED_HINT)
    data, i = view(at, _PREFIX.size)
    length, crc = _PREFIX.unpack_from(data, i)
    if masked(crc32c(data[i : i + 8])) != crc:
        message = "the CRC of the record's length is wrong"
        if at == 0 and bytes(data[i : i + 2]) in _COMPRESSED:
            message = "the shard is compressed (TFRecordOptions of TensorFlow: GZIP or ZLIB)"
            hint = "decompress it first: `gunzip`, or `zlib.decompress` of Python"
            raise ShardError(message, byte=at, hint=hint)
        raise ShardError(message, byte=at, hint=_DAMAGED_HINT)
    end: int = at + length + _OVERHEAD
    if end > size:
        message = f"the shard ends at byte {size}, but this record ends at byte {end}"
        raise ShardError(message, byte=at, hint=_TRUNCATED_HINT)
    return end


def find_damage(view: ByteView, record: Record, file: str) -> RecordDamage | None:  # noqa: ARG001
    """Check the CRC of the payload; `scan` checks the CRC of the length."""
    start, end = record.start + _PREFIX.size, record.end - _CRC.size
    crc, at = 0, start
    while at < end:  # read in pieces, because a record may be large
        data, i = view(at, min(1 << 20, end - at))
        length = min(len(data) - i, end - at)
        crc = crc32c(memoryview(data)[i : i + length], crc)
        at += length
    data, i = view(end, _CRC.size)
    if masked(crc) != _CRC.unpack_from(data, i)[0]:
        return RecordDamage("the CRC of the record's payload is wrong", start)
    return None


# --- shards made by other tools -----------------------------------------------------------------

#: Common names of the label feature, the most specific first.
_LABELS = ("image/class/label", "label", "image/label", "class", "cls")


def find_components(view: ByteView, size: int, file: str, image: str | None) -> Components:
    """Find the image and the label in the first record; see `RecordFormat.find_components`."""
    if not size:
        raise ShardError("the shard is empty", file=file, byte=0, hint="remove it")
    try:
        end = _record_end(view, 0, size)
        features = locate_features(view, _PREFIX.size, end - _CRC.size)
        names = _image_names(view, features)
        if image:
            names = [_encoded(image)]
    except MALFORMED:
        raise ShardError(_NOT_EXAMPLE, file=file, record=0, byte=0, hint=_DAMAGED_HINT) from None
    except ShardError as error:
        error.file, error.record = file, 0
        raise
    hint = "set --image to the feature that contains the image"
    if image and features.get(names[0], (0,))[0] != BYTES:
        message = (
            f"--image {image}: {file} has no image of that name in its first record; "
            f"its features are: {_list_names(features)}"
        )
        raise CallError(message, hint=hint)
    if len(names) != 1:
        what = "no feature"
        if names:
            what = "more than one feature"
        message = f"{what} contains an image; the features are: {_list_names(features)}"
        raise ShardError(message, file=file, record=0, hint=hint)
    label = next((name for name in _LABELS if name.encode() in features), None)
    return Components(image=(names[0].decode(),), label=label)


#: Maximum number of feature names, and of characters of each, in a message.
_MAX_NAMES, _MAX_NAME = 20, 80


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogatepass")  # no feature has a name with surrogates


def _list_names(features: Mapping[bytes, Value]) -> str:
    names = []
    for name in sorted(features)[:_MAX_NAMES]:
        text = name.decode("utf-8", "replace")
        if len(text) > _MAX_NAME:
            text = f"{text[:_MAX_NAME]}..."
        names.append(printable(text))
    if len(features) > _MAX_NAMES:
        names.append(f"and {len(features) - _MAX_NAMES:,} more")
    return ", ".join(names) or "none"


def _image_names(view: ByteView, features: Mapping[bytes, Value]) -> list[bytes]:
    if b"image/encoded" in features:
        return [b"image/encoded"]
    names = []
    for name, (kind, first, end) in features.items():
        if kind == BYTES:
            with suppress(Rejected):
                image_header(view, first, end - first)
                names.append(name)
    return names
