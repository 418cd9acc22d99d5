"""Record formats: one module per format. Each provides the interface `RecordFormat`."""

from __future__ import annotations

from dataprep.formats import tfrecord, webdataset
from dataprep.formats.base import PendingSample, Record, RecordDamage, RecordFormat, ScanOptions, View, image_header
from manifests.schema import Components, Format, Store

__all__ = [
    "FORMATS",
    "PendingSample",
    "Record",
    "RecordDamage",
    "RecordFormat",
    "ScanOptions",
    "View",
    "components",
    "image_header",
]

FORMATS: dict[Format, RecordFormat] = {"tfrecord": tfrecord, "webdataset": webdataset}


def components(fmt: Format, store: Store) -> Components:
    """Return the names of the image and the label in the records that a format writes."""
    return FORMATS[fmt].RAW if store == "raw" else FORMATS[fmt].COMPONENTS
