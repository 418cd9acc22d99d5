"""The description of a dataset in Croissant 1.1, the format of dataset catalogs.

https://docs.mlcommons.org/croissant/docs/croissant-spec-1.1.html
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from dataprep.options import CroissantOptions
from dataprep.progress import Progress
from dataprep.summary.provenance import common_license
from manifests.files import FileKind, kind_of, open_file
from manifests.schema import File, Manifest, Split
from manifests.store import read_manifest
from manifests.tables import SampleTable

#: Bytes that are read at once.
_PART = 4 << 20

#: Croissant's terms: short names of its vocabulary, as the specification lists them.
_TERMS = (
    *("arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field"),
    *("fileProperty", "fileObject", "fileSet", "format", "includes", "isArray", "isLiveDataset"),
    *("jsonPath", "key", "md5", "parentField", "path", "recordSet", "references", "regex"),
    *("repeated", "replace", "samplingRate", "separator", "source", "subField", "transform"),
)
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "sc": "https://schema.org/",
    "conformsTo": "dct:conformsTo",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "description": {"@container": "@language"},
    "name": {"@container": "@language"},
    **{term: f"cr:{term}" for term in _TERMS},
}

_ENCODINGS = {
    ".parquet": "application/x-parquet",
    ".tar": "application/x-tar",
}

#: What only the owner of a dataset knows: options, and the properties that they become.
GIVEN = {
    "license": "license",
    "creator": "creator",
    "cite_as": "citeAs",
    "url": "url",
    "description": "description",
}


def describe_dataset(
    dataset: str, options: CroissantOptions, progress: Progress
) -> tuple[bytes, list[str]]:
    """Return the description as JSON, and the options that would make it complete.

    Args:
        dataset: folder or URL of the dataset.
        options: what its owner says about it.
        progress: is told how many shards were read.

    Raises:
        CallError: the folder does not exist.
        DamagedError: the manifest or a file is missing, or a file has another length than stated.

    """
    manifest = read_manifest(dataset)
    shards = [shard for split in manifest.splits for shard in split.shards]
    progress.start(sum(shard.samples for shard in shards), len(shards))
    files: list[dict[str, Any]] = []
    for shard in shards:
        for file in shard.files:
            files.append(_file_object(dataset, file))
        progress.advance(shard.name, shard.samples)
    splits = [split for split in manifest.splits if split.shards]
    sets = [_tables(split) for split in splits]
    records = []
    for split in splits:
        table = SampleTable(os.path.join(dataset, split.shards[0].table.name))
        records.append(_record_set(split, table.schema))
    if options.license is None:
        options = replace(options, license=common_license(dataset, manifest))
    missing = [name for name in GIVEN if getattr(options, name) is None]
    described = {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "name": options.name or os.path.basename(dataset.rstrip("/")),
        "conformsTo": "http://mlcommons.org/croissant/1.1",
        "version": f"{manifest.revision}.0.0",
        **_given(options),
        "distribution": [*files, *sets],
        "recordSet": [*_classes(manifest), *records],
    }
    return json.dumps(described, indent=1, ensure_ascii=False).encode() + b"\n", missing


def _given(options: CroissantOptions) -> Mapping[str, Any]:
    properties: dict[str, Any] = {}
    for name, term in GIVEN.items():
        value = getattr(options, name)
        if value is not None:
            properties[term] = value
    if options.creator is not None:
        properties["creator"] = {"@type": "sc:Organization", "name": options.creator}
    return properties


def _file_object(dataset: str, file: File) -> dict[str, Any]:
    kind = kind_of(file.name)
    return {
        "@type": "cr:FileObject",
        "@id": file.name,
        "name": file.name,
        "contentUrl": file.name,
        "contentSize": f"{file.bytes} B",
        "encodingFormat": _ENCODINGS.get(
            os.path.splitext(file.name)[1], "application/octet-stream"
        ),
        "sha256": _sha256(os.path.join(dataset, file.name), kind, file.bytes),
    }


def _sha256(path: str, kind: FileKind, length: int) -> str:
    digest, read = hashlib.sha256(), 0
    with open_file(path, kind) as file:
        while part := file.read(_PART):
            digest.update(part)
            read += len(part)
    if read != length:
        raise kind.error(
            f"the file is {read} bytes long, but the manifest states {length}",
            file=path,
            hint="run `dataprep verify` to find other damage",
        )
    return digest.hexdigest()


def _tables(split: Split) -> dict[str, Any]:
    return {
        "@type": "cr:FileSet",
        "@id": f"{split.name}-tables",
        "name": f"{split.name}-tables",
        "description": f"The sample tables of the split {split.name}.",
        "encodingFormat": _ENCODINGS[".parquet"],
        # Not a pattern: older revisions have tables of their own.
        "includes": [shard.table.name for shard in split.shards],
    }


def _record_set(split: Split, schema: pa.Schema) -> dict[str, Any]:
    fields = []
    for column in schema:
        data_type = _data_type(column.type)
        if data_type is None:
            continue
        source = {"fileSet": {"@id": f"{split.name}-tables"}, "extract": {"column": column.name}}
        name = f"{split.name}/{column.name}"
        fields.append(
            {
                "@type": "cr:Field",
                "@id": name,
                "name": name,
                "dataType": data_type,
                "source": source,
            }
        )
    return {
        "@type": "cr:RecordSet",
        "@id": split.name,
        "name": split.name,
        "description": (
            f"One record for each of the {split.samples} samples of the split {split.name}: where its"
            " encoded image is in its shard (offset, size), its label and the columns of its source."
        ),
        "field": fields,
    }


def _data_type(kind: pa.DataType) -> str | None:
    """Return the type of a column's values; `None` if Croissant has none."""
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_integer(kind):
        return "sc:Integer"
    if pa.types.is_floating(kind):
        return "sc:Float"
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return "sc:Text"
    return None


def _classes(manifest: Manifest) -> Iterator[dict[str, Any]]:
    if not manifest.classes:
        return
    data = [
        {"classes/label": label, "classes/name": name}
        for label, name in enumerate(manifest.classes)
    ]
    fields = []
    for name, data_type in (("label", "sc:Integer"), ("name", "sc:Text")):
        found = f"classes/{name}"
        fields.append({"@type": "cr:Field", "@id": found, "name": found, "dataType": data_type})
    yield {
        "@type": "cr:RecordSet",
        "@id": "classes",
        "name": "classes",
        "dataType": "sc:Enumeration",
        "key": {"@id": "classes/label"},
        "field": fields,
        "data": data,
    }
