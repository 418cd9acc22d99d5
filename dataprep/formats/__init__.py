"""Record formats: the bytes of a shard's records.

::

    base          the interface `RecordFormat`
    tfrecord      implements it, with example_proto (``tf.train.Example``)
    webdataset    implements it, with tar

What a label is in a record is said by its kind: `features` and `members` in `dataprep.labels.kinds`.
"""

from __future__ import annotations

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
from manifests.schema import Format

__all__ = [
    "FORMATS",
    "ByteView",
    "Envelope",
    "PendingSample",
    "Record",
    "RecordDamage",
    "RecordFormat",
    "ScanOptions",
    "image_header",
    "read_bytes",
]

FORMATS: dict[Format, RecordFormat] = {"tfrecord": tfrecord, "webdataset": webdataset}
