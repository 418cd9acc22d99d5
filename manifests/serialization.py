"""Records of `schema` as JSON objects and back, JSON documents sealed with a checksum, and revisions.

Pure functions; parsing is strict. The ``*_from_json`` functions raise a `MemberError` that names
the member if one is missing or wrong.

``dataprep convert --append`` makes revision N+1 of revision N: it adds shards, tables and possibly
classes, keeps all old files, stores the old ``manifest.json`` as ``manifest.N.json``, and then
replaces ``manifest.json``.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from awscrt.checksums import crc32c

from manifests.json_members import Member, MemberError, parse_json, shorten
from manifests.labels import LABEL_TYPES, LABELS, LabelType
from manifests.schema import (
    CREATORS,
    FORMAT_NAMES,
    MAX_LABEL_OFFSET,
    MAX_SIDE,
    SCHEMA_VERSION,
    SHARD_LIST_VERSION,
    STORES,
    Added,
    Components,
    Conversion,
    Creator,
    File,
    Manifest,
    Revision,
    Shard,
    Split,
    TableMetadata,
)

_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")

#: A dataset has fewer revisions.
MAX_REVISION = 999_999_999

#: Files that only datasets with revisions have: manifests of older revisions, and lists of newer
#: ones.
REVISION_FILE = re.compile(
    r"manifest\.[0-9]{1,9}\.json|manifest\.shards\.[0-9]{1,9}\.parquet|rejected\.[0-9]{1,9}\.jsonl"
)


def old_manifest_name(revision: int) -> str:
    """Return the name under which the manifest of an older revision is kept."""
    return f"manifest.{revision}.json"


def numbered(name: str, revision: int) -> str:
    """Return the name of a file of a revision: ``rejected.jsonl`` and, from revision 1 on, ``rejected.1.jsonl``."""
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}.{revision}{dot}{suffix}" if revision else name


def manifest_digest(data: bytes) -> str:
    """Return what the next revision states about a manifest: ``sha256:`` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


# --- JSON -----------------------------------------------------------------------------------------


def revisions_to_json(revisions: Sequence[Revision]) -> list[dict[str, Any]]:
    """Return the member ``revisions`` of a manifest."""
    return [
        {
            "revision": number,
            "parent": revision.parent,
            "source": revision.source,
            "source_digest": revision.source_digest,
            "splits": {
                name: {"shards": added.shards, "samples": added.samples}
                for name, added in revision.added
            },
            "classes": revision.classes,
            "options": dict(revision.options),
        }
        for number, revision in enumerate(revisions, 1)
    ]


def revisions_from_json(body: Member) -> tuple[Revision, ...]:
    """Read the member ``revisions``.

    Raises:
        MemberError: a member is missing or wrong.

    """
    return tuple(_revision(number, each) for number, each in enumerate(body.items(), 1))


def _revision(number: int, body: Member) -> Revision:
    if body["revision"].integer(1) != number:
        body["revision"].fail(f"the number {number}")
    options = body["options"]
    options.members()
    options["plan"].text()
    return Revision(
        parent=digest_of(body["parent"]),
        source=body["source"].text(),
        source_digest=body["source_digest"].text(),
        added=tuple(
            (name, Added(split["shards"].integer(1), split["samples"].integer(1)))
            for name, split in body["splits"].members().items()
        ),
        classes=body["classes"].integer(),
        options=options.mapping(),
    )


def digest_of(member: Member) -> str:
    """Return a member that must be a digest; see `manifest_digest`.

    Raises:
        MemberError: it is not one.

    """
    if not _DIGEST.fullmatch(member.text()):
        member.fail("`sha256:` and 64 hex digits")
    return member.text()


def check_revisions(manifest: Manifest) -> None:
    """Check that the revisions are those of the shards and the classes.

    Raises:
        MemberError: they are not.

    """
    counts = [revision.classes for revision in manifest.revisions]
    if counts and (counts != sorted(counts) or counts[-1] != len(manifest.classes)):
        raise MemberError(
            f"revisions end with {counts[-1]} classes, but there are {len(manifest.classes)}"
        )
    divided = _divided(manifest)
    for number, revision in enumerate(manifest.revisions, 1):
        splits = {split.name: split.samples for split in divided[number]}
        for name, added in revision.added:
            if splits.get(name) != added.samples:
                raise MemberError(
                    f"the shards of revision {number} in split {shorten(name)} have other samples"
                )


# --- what a revision added -----------------------------------------------------------------------


def part_of(manifest: Manifest, revision: int) -> Manifest:
    """Return a manifest with only the shards that a revision added, and with its options."""
    return _part(manifest, revision, _divided(manifest)[revision])


def revisions_of_shards(manifest: Manifest) -> dict[str, int]:
    """Return the revision that added each shard, by the name of the shard."""
    divided = _divided(manifest)
    return {
        shard.name: number
        for number, splits in enumerate(divided)
        for split in splits
        for shard in split.shards
    }


def parts(manifest: Manifest) -> list[Manifest]:
    """Return `part_of` for each revision."""
    return [_part(manifest, number, splits) for number, splits in enumerate(_divided(manifest))]


def _part(manifest: Manifest, revision: int, splits: tuple[Split, ...]) -> Manifest:
    options = manifest.revisions[revision - 1].options if revision else manifest.options
    return replace(manifest, splits=splits, options=options, revisions=())


def _divided(manifest: Manifest) -> list[tuple[Split, ...]]:
    """Return the splits that each revision added, without those that it did not change, in time linear in all shards.

    A split whose revisions claim more shards than it has is left out.
    """
    counts: dict[str, list[tuple[int, int]]] = {}
    for number, revision in enumerate(manifest.revisions, 1):
        for name, added in dict(revision.added).items():
            counts.setdefault(name, []).append((number, added.shards))
    divided: list[list[Split]] = [[] for _ in range(manifest.revision + 1)]
    for split in manifest.splits:
        later = counts.get(split.name, [])
        start, first = 0, len(split.shards) - sum(count for _, count in later)
        if first < 0:
            continue
        for number, count in ((0, first), *later):
            if count:
                divided[number].append(Split(split.name, split.shards[start : start + count]))
            start += count
    return [tuple(splits) for splits in divided]


_CHECKSUM = re.compile(r"crc32c:[0-9a-f]{8}")

#: Metadata of a table that `dataprep index` made.
_MADE_BY_INDEX = {"made_by": "dataprep index"}


# --- manifest -----------------------------------------------------------------------------------


def manifest_to_json(manifest: Manifest, shard_list: File | None = None) -> dict[str, Any]:
    """Return the members of ``manifest.json`` in the order in which they are written, without the checksum.

    Args:
        manifest: the manifest.
        shard_list: the file that lists the shards. `None` if the manifest itself lists them.

    """
    return {
        "schema_version": SCHEMA_VERSION if shard_list is None else SHARD_LIST_VERSION,
        "creator": manifest.creator,
        "format": manifest.format,
        "store": manifest.store,
        **({"pixels": list(manifest.pixels)} if manifest.pixels else {}),
        "components": {
            "image": list(manifest.components.image),
            "label": manifest.components.label,
            "label_offset": manifest.components.label_offset,
            **({"mask": manifest.components.mask} if manifest.components.mask else {}),
        },
        # Older releases know only classes, and refuse what they would misread: such a table has no
        # column `label`.
        **({"label_type": manifest.label_type} if not manifest.labels.is_class else {}),
        "options": dict(manifest.options),
        **({"revisions": revisions_to_json(manifest.revisions)} if manifest.revisions else {}),
        "splits": {
            split.name: {
                "samples": split.samples,
                "shards": (
                    [_shard_to_json(shard) for shard in split.shards]
                    if shard_list is None
                    else len(split.shards)
                ),
            }
            for split in manifest.splits
        },
        **({"shard_list": _file_to_json(shard_list)} if shard_list else {}),
        "rejected": _file_to_json(manifest.rejected) if manifest.rejected else None,
        "classes": list(manifest.classes),
    }


def _shard_to_json(shard: Shard) -> dict[str, Any]:
    return {
        "name": shard.file.name,
        "samples": shard.samples,
        "bytes": shard.file.bytes,
        "checksum": shard.file.checksum,
        "index": _file_to_json(shard.index),
        "table": _file_to_json(shard.table),
    }


def _file_to_json(file: File) -> dict[str, Any]:
    return {"name": file.name, "bytes": file.bytes, "checksum": file.checksum}


def manifest_from_json(
    body: Member, read_shards: Callable[[File, Mapping[str, int]], tuple[Split, ...]] | None = None
) -> Manifest:
    """Build the manifest from the members of ``manifest.json``.

    Args:
        body: the members.
        read_shards: returns the splits from the file that lists their shards, and the number of
            shards of each split. `None` if the manifest itself lists them.

    Raises:
        MemberError: a member is missing or wrong.

    """
    components, rejected = body["components"], body["rejected"]
    label, options = components["label"], body["options"]
    options.members()
    revisions = body.get("revisions")
    manifest = Manifest(
        format=body["format"].one_of(FORMAT_NAMES),
        store=body["store"].one_of(STORES),
        components=Components(
            image=_image_names(components["image"]),
            label=None if label.value is None else label.text(),
            label_offset=components["label_offset"].integer(-MAX_LABEL_OFFSET, MAX_LABEL_OFFSET),
            mask=_mask(body),
        ),
        classes=body["classes"].texts(),
        splits=_splits_from_json(body, read_shards),
        rejected=None if rejected.value is None else _file_from_json(rejected),
        options=options.mapping(),
        pixels=_pixels(body),
        label_type=label_type_of(body),
        creator=_creator(body),
        revisions=revisions_from_json(revisions) if revisions else (),
    )
    check_revisions(manifest)
    return manifest


def _creator(body: Member) -> Creator:
    creator = body.get("creator")
    if creator is None:  # written before the member existed
        return "index" if body["options"].get("plan") is None else "convert"
    return creator.one_of(CREATORS)


def label_type_of(body: Member) -> LabelType:
    """Read the label type of a manifest or a plan. It is a class if the member is missing."""
    label_type = body.get("label_type")
    return "class" if label_type is None else label_type.one_of(LABEL_TYPES)


def _mask(body: Member) -> str | None:
    """Read the name of the label image.

    A manifest has it if and only if its label type has such images.
    """
    mask, label_type = body["components"].get("mask"), label_type_of(body)
    if LABELS[label_type].has_image != (mask is not None):
        raise MemberError(
            f"label_type is {label_type}, but components.mask is {'given' if mask else 'missing'}"
        )
    return mask.text() if mask else None


def _pixels(body: Member) -> tuple[int, int, int] | None:
    """Read the shape of raw images. A manifest has it if and only if the store is ``"raw"``."""
    pixels, store = body.get("pixels"), body["store"].value
    if (store == "raw") != (pixels is not None):
        raise MemberError(
            f"store is {store!r}, but pixels is {'None' if pixels is None else 'given'}"
        )
    if pixels is None:
        return None
    sides = pixels.items()
    if len(sides) != 3 or sides[2].value != 3:
        pixels.fail("[height, width, 3]")
    return sides[0].integer(1, MAX_SIDE), sides[1].integer(1, MAX_SIDE), sides[2].integer()


def _splits_from_json(
    body: Member, read_shards: Callable[[File, Mapping[str, int]], tuple[Split, ...]] | None
) -> tuple[Split, ...]:
    members = body["splits"].members()
    if read_shards is None:
        splits = [_split_from_json(name, split) for name, split in members.items()]
    else:
        counts = {name: split["shards"].integer() for name, split in members.items()}
        splits = [*read_shards(_file_from_json(body["shard_list"]), counts)]
    for split in splits:
        samples = members[split.name]["samples"].integer()
        if split.samples != samples:
            raise MemberError(
                f"split {shorten(split.name)} has samples={samples}, but its shards have"
                f" {split.samples}"
            )
    return tuple(splits)


def _split_from_json(name: str, body: Member) -> Split:
    shards = tuple(
        Shard(
            file=_file_from_json(shard),
            samples=shard["samples"].integer(),
            index=_file_from_json(shard["index"]),
            table=_file_from_json(shard["table"]),
        )
        for shard in body["shards"].items()
    )
    return Split(name, shards)


def _file_from_json(body: Member) -> File:
    name, checksum = body["name"].text(), body["checksum"]
    if not is_file_name(name):
        raise MemberError(
            f"{body['name'].path} {shorten(name)} is empty or points outside of the dataset folder"
        )
    if checksum.value is not None and not _CHECKSUM.fullmatch(checksum.text()):
        checksum.fail("`crc32c:` and 8 hex digits")
    return File(name, body["bytes"].integer(), checksum.value)


def is_file_name(name: str) -> bool:
    """Return whether a file of this name is in the dataset folder: an untrusted manifest must not open others."""
    return (
        bool(name) and "\0" not in name and not name.startswith("/") and ".." not in name.split("/")
    )


# --- metadata of a sample table -----------------------------------------------------------------


def metadata_to_json(metadata: TableMetadata) -> dict[str, Any]:
    """Return the JSON object that a sample table stores in its Parquet schema."""
    conversion = metadata.conversion
    if conversion is None:
        return dict(_MADE_BY_INDEX)
    body = {
        "plan": conversion.plan,
        "samples": conversion.samples,
        "images": conversion.images,
        "bytes": conversion.bytes,
        "formats": list(conversion.formats),
        "shard": _file_to_json(conversion.shard),
        "index": _file_to_json(conversion.index),
        "rejected": [dict(row) for row in conversion.rejected],
    }
    if conversion.changes is not None:
        body["changes"] = {change: list(totals) for change, totals in conversion.changes.items()}
    return body


def metadata_from_json(body: Member) -> TableMetadata:
    """Build the metadata from the JSON object of a sample table.

    Raises:
        MemberError: a member is missing or wrong.

    """
    if body.value == _MADE_BY_INDEX:
        return TableMetadata()
    changes = body.get("changes")
    return TableMetadata(
        Conversion(
            plan=body["plan"].text(),
            samples=body["samples"].integer(),
            images=body["images"].integer(),
            bytes=body["bytes"].integer(),
            formats=body["formats"].texts(),
            shard=_file_from_json(body["shard"]),
            index=_file_from_json(body["index"]),
            rejected=tuple(_rejected_row(row) for row in body["rejected"].items()),
            changes=(
                None
                if changes is None
                else {name: _totals(each) for name, each in changes.members().items()}
            ),
        )
    )


def _rejected_row(row: Member) -> dict[str, str]:
    return {name: row[name].text() for name in ("source", "reason", "detail")}


def _totals(totals: Member) -> tuple[int, int, int]:
    numbers = tuple(total.integer() for total in totals.items())
    if len(numbers) != 3:
        totals.fail("three numbers")
    samples, before, after = numbers
    return samples, before, after


def _image_names(value: Member) -> tuple[str, ...]:
    names = value.texts()
    if not all(names) or not names:
        value.fail("an array of names")
    return names


# --- sealed documents ---------------------------------------------------------------------------
#
# The last member of a document is a checksum of everything before it, so that no change stays
# unnoticed.

_END = re.compile(rb',\n "checksum": "(crc32c:[0-9a-f]{8})"\n\}\n\Z')
_END_BYTES = 64


def checksum_text(crc: int) -> str:
    """Format a CRC-32C as manifests store it: ``crc32c:`` and 8 hex digits."""
    return f"crc32c:{crc:08x}"


def seal(body: Mapping[str, Any]) -> bytes:
    """Serialize an object as UTF-8 JSON, and add the member ``checksum``: a CRC-32C of the document without it."""
    return _dump({**body, "checksum": checksum_text(crc32c(_dump(body)))})


def unseal(data: bytes) -> Member:
    """Parse what `seal` returned. Every byte must be as `seal` writes it.

    Raises:
        ValueError: the document was changed or truncated, or is not one of this project.

    """
    if not is_sealed(data):
        raise MemberError("it is truncated or was written by another tool: the checksum is missing")
    if not matches_seal(data):  # compared first: it takes no memory, unlike parsing
        raise MemberError("it does not match its own checksum")
    return parse_sealed(data)


def is_sealed(data: bytes) -> bool:
    """Return whether a document ends with a checksum."""
    return _seal_of(data) is not None


def matches_seal(data: bytes) -> bool:
    """Return whether a document ends with the checksum of everything before it."""
    end = _seal_of(data)
    return end is not None and end[1].decode() == checksum_text(
        crc32c(b"\n}\n", crc32c(memoryview(data)[: end.start()]))
    )


def parse_sealed(data: bytes) -> Member:
    """Parse a document whose checksum was compared before.

    Raises:
        MemberError: it is not JSON, or not as `seal` writes it.

    """
    body = parse_json(data)
    if _dump(body.mapping()) != data:  # for example, a repeated name, or another layout
        raise MemberError("it is not written as this project writes it")
    return body


def _seal_of(data: bytes) -> re.Match[bytes] | None:
    return _END.search(data, max(0, len(data) - _END_BYTES))


def _dump(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
