"""Record formats: the bytes of a shard's records.

::

    base          the interface `RecordFormat`
    tfrecord      implements it, with example_proto (``tf.train.Example``)
    webdataset    implements it, with tar
"""

from __future__ import annotations

from dataclasses import replace

from dataprep.formats import tfrecord, webdataset
from dataprep.formats.base import (
    ByteView,
    Envelope,
    Record,
    RecordDamage,
    RecordFormat,
    ScanOptions,
    image_header,
    read_bytes,
)
from dataprep.labels.base import PendingSample
from dataprep.labels.kinds import KINDS
from manifests.labels import LabelType
from manifests.schema import Components, Format, Store

__all__ = [
    "FORMATS",
    "ByteView",
    "Envelope",
    "PendingSample",
    "Record",
    "RecordDamage",
    "RecordFormat",
    "ScanOptions",
    "components",
    "image_header",
    "names_of_shard",
    "read_bytes",
]

FORMATS: dict[Format, RecordFormat] = {"tfrecord": tfrecord, "webdataset": webdataset}


def names_of_shard(fmt: Format, shard: str) -> tuple[str, str, str]:
    """Return the names of the files of a shard: itself, its index and its table."""
    return shard + FORMATS[fmt].SUFFIX, f"{shard}.idx", f"{shard}.parquet"


def components(fmt: Format, store: Store, label_type: LabelType = "class") -> Components:
    """Return the names of the image, the label and the label image in the records that a format writes."""
    record_format = FORMATS[fmt]
    names = record_format.RAW if store == "raw" else record_format.COMPONENTS
    labels = KINDS[label_type]
    if labels.is_class:
        return names
    return replace(names, label=None, mask=record_format.label_image_name(labels))
