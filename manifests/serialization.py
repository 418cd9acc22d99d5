"""Records of `schema` as JSON objects and back, JSON documents sealed with a checksum, and revisions.

Pure functions; parsing is strict. The ``*_from_json`` functions raise a `MemberError` that names
the member if one is missing or wrong, or another `ValueError`.

``dataprep convert --append`` makes revision N+1 of revision N: it adds shards, tables and possibly
classes, keeps all old files, stores the old ``manifest.json`` as ``manifest.N.json``, and then
replaces ``manifest.json``. ``dataprep join`` makes a revision in the same way, with other tables for
the same shards: ``train-00000.N.parquet``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, get_args

from awscrt.checksums import crc32c

from manifests.arrays import ARRAY_NAME
from manifests.json_members import Member, MemberError, parse_json, shorten
from manifests.labels import find_wrong_name
from manifests.pixels import MAX_CHANNELS, RGB8, PixelKind, PixelType
from manifests.schema import (
    SCHEMA_VERSION,
    SHARD_LIST_VERSION,
    Checksum,
    Conversion,
    File,
    Manifest,
    Shard,
    Split,
    TableMetadata,
)

#: A dataset has fewer revisions.
MAX_REVISION = 999_999_999

#: Files that only datasets with revisions have: manifests of older revisions, and lists of newer
#: ones.
REVISION_FILE = re.compile(
    r"manifest\.[0-9]{1,9}\.json|manifest\.shards\.[0-9]{1,9}\.parquet|rejected\.[0-9]{1,9}\.jsonl"
    r"|removed\.[0-9]{1,9}\.parquet"
)

#: A file of a shard: the name of the shard, perhaps the number of a revision, and the end.
_OF_SHARD = re.compile(
    r"(.+-[0-9]{5,})(?:\.[0-9]{1,9}(?=\.(?:tfrecord|tar|idx|parquet|[^.]+\.npy)\Z))?(\..+)",
    re.DOTALL,
)

_CHECKSUM = re.compile(get_args(Checksum)[1])

#: Metadata of a table that `dataprep index` made.
_MADE_BY_INDEX = {"made_by": "dataprep index"}


# --- revisions ------------------------------------------------------------------------------------


def old_manifest_name(revision: int) -> str:
    """Return the name under which the manifest of an older revision is kept."""
    return f"manifest.{revision}.json"


def numbered(name: str, revision: int) -> str:
    """Return the name of a file of a revision: ``rejected.jsonl`` and, from revision 1 on, ``rejected.1.jsonl``."""
    if revision == 0:
        return name
    stem, dot, suffix = name.rpartition(".")
    return f"{stem}.{revision}{dot}{suffix}"


def of_revision(name: str, revision: int) -> str:
    """Return the name that a file of a shard has in a revision: ``train-00000.2.idx`` for ``train-00000.idx``."""
    found = _OF_SHARD.fullmatch(name)
    if found is None:
        return numbered(name, revision)
    number = ""
    if revision:
        number = f".{revision}"
    return f"{found[1]}{number}{found[2]}"


def joined_table(shard: str, revision: int) -> str:
    """Return the name of a shard's table of a revision: 0 if it was written with the shard."""
    return of_revision(f"{os.path.splitext(shard)[0]}.parquet", revision)


def has_joined_table(manifest: Manifest, shard: Shard) -> bool:
    """Return whether a table, such as of `read_as_written`, may have columns that its records do not have.

    After a scrub, no table from before a join is left.
    """
    found = _OF_SHARD.fullmatch(shard.table.name)
    if found is None or not manifest.joins:
        return False
    number = shard.table.name[len(found[1]) : -len(found[2])]
    return manifest.joins[0] <= int(number[1:] or 0)


def manifest_digest(data: bytes) -> str:
    """Return what the next revision states about a manifest: ``sha256:`` and 64 hex digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def parts(manifest: Manifest) -> list[Manifest]:
    """Return a manifest for each revision, with only the shards that it added, and with its options.

    Takes time linear in all shards. A split whose revisions claim more shards than it has is left
    out.
    """
    counts: dict[str, list[tuple[int, int]]] = {}
    options = [manifest.options]
    for number, revision in enumerate(manifest.revisions, 1):
        options.append(revision.options)
        for name, added in revision.splits.items():
            counts.setdefault(name, []).append((number, added.shards))
    divided: list[list[Split]] = [[] for _ in options]
    for split in manifest.splits:
        later = counts.get(split.name, [])
        start, first = 0, len(split.shards) - sum(count for _, count in later)
        if first < 0:
            continue
        for number, count in ((0, first), *later):
            if count:
                divided[number].append(Split(split.name, split.shards[start : start + count]))
            start += count
    return [
        replace(manifest, splits=tuple(splits), options=own, revisions=())
        for splits, own in zip(divided, options, strict=True)
    ]


def revisions_of_shards(manifest: Manifest) -> dict[str, int]:
    """Return the revision that added each shard, by the name of the shard."""
    revisions: dict[str, int] = {}
    for number, part in enumerate(parts(manifest)):
        for split in part.splits:
            revisions.update((shard.name, number) for shard in split.shards)
    return revisions


def check_revisions(manifest: Manifest) -> None:
    """Check that the revisions have the shards and the classes of the dataset.

    Raises:
        MemberError: they do not.

    """
    counts = [revision.classes for revision in manifest.revisions]
    if counts and (counts != sorted(counts) or counts[-1] != len(manifest.classes)):
        raise MemberError(
            f"revisions end with {counts[-1]} classes, but there are {len(manifest.classes)}"
        )
    added = parts(manifest)[1:]
    newest_removal = max(manifest.removals, default=0)
    for number, (revision, part) in enumerate(zip(manifest.revisions, added, strict=True), 1):
        samples = {split.name: split.samples for split in part.splits}
        for name, stated in revision.splits.items():
            actual = samples.get(name, -1)
            if number < newest_removal and 0 <= actual <= stated.samples:
                continue
            if actual != stated.samples:
                raise MemberError(
                    f"the shards of revision {number} in split {shorten(name)} have other samples"
                )


def _check_revision(number: int, body: Member) -> None:
    """Check the members of a revision that `Revision` does not have."""
    if body["revision"].integer(1) != number:
        body["revision"].fail(f"the number {number}")
    body["options"]["plan"].text()
    if "remove" in body["options"].mapping():
        removal = body["options"]["remove"]
        for count in removal["samples"].members().values():
            count.integer(1)
        if "scrubbed" in removal.mapping():
            removal["scrubbed"].boolean()
        if body["splits"].mapping():
            body["splits"].fail("empty for a removal")
    elif not body["splits"].mapping() or "join" in body["options"].mapping():
        names = body["options"]["join"]["columns"]
        if not names.texts():
            names.fail("an array of names")


# --- manifest -----------------------------------------------------------------------------------


def manifest_to_json(manifest: Manifest, shard_list: File | None = None) -> dict[str, Any]:
    """Return the members of ``manifest.json`` in the order in which they are written, without the checksum.

    Args:
        manifest: the manifest.
        shard_list: the file that lists the shards. `None` if the manifest itself lists them.

    """
    components = asdict(manifest.components)
    if manifest.components.mask is None:
        del components["mask"]
    version = SCHEMA_VERSION
    if shard_list:
        version = SHARD_LIST_VERSION
    splits = {}
    for split in manifest.splits:
        listed: Any = len(split.shards)
        if shard_list is None:
            listed = list(map(_shard_to_json, split.shards))
        splits[split.name] = {"samples": split.samples, "shards": listed}
    body = {
        "schema_version": version,
        "creator": manifest.creator,
        "format": manifest.format,
        "store": manifest.store,
        "pixels": _pixels_to_json(manifest),
        "components": components,
        # A reader that knows only classes refuses what it would misread: such a table has no column
        # `label`.
        "label_type": not manifest.labels.is_class and manifest.label_type,
        "images": manifest.images,
        "arrays": {name: asdict(kind) for name, kind in manifest.arrays.items()},
        "options": manifest.options,
        "revisions": [
            {"revision": number, **asdict(each)}
            for number, each in enumerate(manifest.revisions, 1)
        ],
        "splits": splits,
        "shard_list": shard_list and asdict(shard_list),
        "rejected": manifest.rejected and asdict(manifest.rejected),
        "removed": manifest.removed and asdict(manifest.removed),
        "classes": manifest.classes,
    }
    # These members are left out if there is nothing to say.
    for name in ("pixels", "label_type", "images", "arrays", "revisions", "shard_list", "removed"):
        if not body[name]:
            del body[name]
    return body


def _shard_to_json(shard: Shard) -> dict[str, Any]:
    body = {
        "name": shard.file.name,
        "samples": shard.samples,
        "bytes": shard.file.bytes,
        "checksum": shard.file.checksum,
        "index": asdict(shard.index),
        "table": asdict(shard.table),
    }
    if shard.arrays:
        body["arrays"] = [asdict(file) for file in shard.arrays]
    return body


def manifest_from_json(body: Member, listed: Sequence[Split] | None = None) -> Manifest:
    """Build the manifest from the members of ``manifest.json``.

    Args:
        body: the members.
        listed: the splits from the file that lists their shards. `None` if the manifest itself
            lists them.

    Raises:
        ValueError: a member is missing or wrong.

    """
    splits = body["splits"].members()
    if listed is None:
        listed = [_split_from_json(name, split) for name, split in splits.items()]
    for split in listed:
        samples = splits[split.name]["samples"].integer()
        if split.samples != samples:
            raise MemberError(
                f"split {shorten(split.name)} has samples={samples}, but its shards have"
                f" {split.samples}"
            )
    # Some members are left out if there is nothing to say; the shards are already read.
    members = {
        "label_type": "class",
        "images": (),
        "arrays": {},
        "revisions": (),
        **body.mapping(),
        "splits": (),
    }
    if body["rejected"].value is None:
        del members["rejected"]
    kind = _take_kind(members)
    manifest = replace(Member(members).record(Manifest), splits=tuple(listed), kind=kind)
    for number, revision in enumerate(Member(members)["revisions"].items(), 1):
        _check_revision(number, revision)
    for file in (manifest.rejected, manifest.removed):
        if file:
            check_file_name(file.name)
    image = manifest.components.image
    if not image or not all(image):
        body["components"]["image"].fail("an array of names")
    _check_images(manifest)
    if (manifest.store == "raw") != (manifest.pixels is not None):
        raise MemberError(
            f"store is {manifest.store!r}, but pixels is {'given' if manifest.pixels else 'None'}"
        )
    _check_arrays(manifest)
    check_revisions(manifest)
    return manifest


def _check_arrays(manifest: Manifest) -> None:
    """Check that every shard has a file of the right length for each array column."""
    for name in manifest.arrays:
        if not ARRAY_NAME.fullmatch(name):
            raise MemberError(f"arrays has the name {shorten(name)}")
    if [*manifest.arrays] != sorted(manifest.arrays):
        raise MemberError("the names in arrays are not sorted")
    kinds = [*manifest.arrays.values()]
    for shard in manifest.shards:
        expected = [kind.file_bytes(shard.samples) for kind in kinds]
        if [file.bytes for file in shard.arrays] != expected:
            raise MemberError(
                f"shard {shorten(shard.name)} has array files of other lengths than arrays states"
            )


def _check_images(manifest: Manifest) -> None:
    mask = manifest.components.mask
    if (manifest.labels.pixels is None) != (mask is None):
        raise MemberError(
            f"label_type is {manifest.label_type}, but components.mask is"
            f" {'given' if mask else 'missing'}"
        )
    if wrong := find_wrong_name(manifest.images):
        raise MemberError(f"images: {wrong}")


def _pixels_to_json(manifest: Manifest) -> Any:
    """Return the height, width and channels of raw RGB of 8 bits; of other pixels, all that is known."""
    if manifest.kind == RGB8:
        return manifest.pixels
    kind = manifest.kind._asdict()
    if manifest.pixels:
        kind |= {"height": manifest.pixels[0], "width": manifest.pixels[1]}
    return kind


def _take_kind(members: dict[str, Any]) -> PixelKind:
    """Return what a pixel is: RGB of 8 bits, unless the manifest states another kind.

    The member of the manifest becomes the size of raw pixels, or is removed.
    """
    members["kind"] = None
    pixels = Member(members)["pixels"] if members.get("pixels") is not None else None
    if pixels is None:
        return RGB8
    is_raw = members.get("store") == "raw"
    if is_raw and isinstance(pixels.value, list):
        for channels in pixels.items()[2:]:
            channels.integer(RGB8.channels, RGB8.channels)
        return RGB8
    del members["pixels"]
    count = pixels["channels"].integer(1, MAX_CHANNELS)
    if is_raw:
        members["pixels"] = [pixels["height"].value, pixels["width"].value, count]
    return PixelKind(count, pixels["dtype"].one_of(get_args(PixelType)))


def _split_from_json(name: str, body: Member) -> Split:
    shards = []
    for shard in body["shards"].items():
        file, index, table = map(file_from_json, (shard, shard["index"], shard["table"]))
        arrays: tuple[File, ...] = ()
        if "arrays" in shard.mapping():
            arrays = tuple(map(file_from_json, shard["arrays"].items()))
        shards.append(Shard(file, shard["samples"].integer(), index, table, arrays))
    return Split(name, tuple(shards))


def file_from_json(body: Member) -> File:
    """Read a file as `Member.record` does, in a third of the time."""
    checksum = body["checksum"]
    if checksum.value is not None and not _CHECKSUM.fullmatch(checksum.text()):
        checksum.read(Checksum)
    name = body["name"].text()
    check_file_name(name)
    return File(name, body["bytes"].integer(), checksum.value)


def check_file_name(name: str) -> None:
    """Refuse a name outside of the dataset folder: an untrusted manifest must not open other files.

    Raises:
        ValueError: the name is empty, or points outside of the folder.

    """
    if not name or "\0" in name or name.startswith("/") or ".." in name.split("/"):
        raise ValueError(
            f"the name {shorten(name)} is empty or points outside of the dataset folder"
        )


# --- metadata of a sample table -----------------------------------------------------------------


def metadata_to_json(metadata: TableMetadata) -> dict[str, Any]:
    """Return the JSON object that a sample table stores in its Parquet schema."""
    if metadata == "index":
        return _MADE_BY_INDEX
    body = asdict(metadata)
    for name in ("changes", "turned", "arrays"):
        if body[name] is None:
            del body[name]
    return body


def metadata_from_json(body: Member) -> TableMetadata:
    """Build the metadata from the JSON object of a sample table.

    Raises:
        ValueError: a member is missing or wrong.

    """
    if body.value == _MADE_BY_INDEX:
        return "index"
    check_rejected(body["rejected"])
    conversion = body.record(Conversion)
    for file in conversion.files:
        check_file_name(file.name)
    if conversion.turned and max(conversion.turned) >= conversion.samples:
        raise ValueError(f"turned has {max(conversion.turned)}, which is no row of the table")
    return conversion


def check_rejected(rows: Member) -> None:
    """Check rows of ``rejected.jsonl``.

    Raises:
        MemberError: a row has not its three texts.

    """
    for row in rows.items():
        for name in ("source", "reason", "detail"):
            row[name].text()


# --- sealed documents ---------------------------------------------------------------------------
#
# The last member of a document is a checksum of everything before it, so that no change stays
# unnoticed.

_END = re.compile(rb',\n "checksum": "(crc32c:[0-9a-f]{8})"\n\}\n\Z')
_END_BYTES = 64


def checksum_text(crc: int) -> str:
    """Format a CRC-32C as manifests store it: ``crc32c:`` and 8 hex digits."""
    return f"crc32c:{crc:08x}"


def file_of(name: str, data: bytes) -> File:
    """Return the record of a file with this content."""
    return File(name, len(data), checksum_text(crc32c(data)))


def seal(body: Mapping[str, Any]) -> bytes:
    """Serialize an object as UTF-8 JSON, and add the member ``checksum``: a CRC-32C of the document without it."""
    return _dump({**body, "checksum": checksum_text(crc32c(_dump(body)))})


def unseal(data: bytes) -> Member:
    """Parse what `seal` returned. Every byte must be as `seal` writes it.

    Raises:
        ValueError: the document was changed or truncated, or is not one of this project.

    """
    is_intact = matches_seal(data)
    if is_intact is None:
        raise MemberError("it is truncated or was written by another tool: the checksum is missing")
    if not is_intact:
        raise MemberError("it does not match its own checksum")
    return parse_sealed(data)


def matches_seal(data: bytes) -> bool | None:
    """Return whether a document ends with the checksum of everything before it; `None` without a checksum.

    This takes no memory, unlike parsing.
    """
    end = _END.search(data, max(0, len(data) - _END_BYTES))
    if end is None:
        return None
    crc = crc32c(b"\n}\n", crc32c(memoryview(data)[: end.start()]))
    return end[1].decode() == checksum_text(crc)


def parse_sealed(data: bytes) -> Member:
    """Parse a document whose checksum was compared before.

    Raises:
        MemberError: it is not JSON, or not as `seal` writes it.

    """
    body = parse_json(data)
    if _dump(body.mapping()) != data:  # for example, a repeated name, or another layout
        raise MemberError("it is not written as this project writes it")
    return body


def _dump(body: Mapping[str, Any]) -> bytes:
    return (json.dumps(body, indent=1, ensure_ascii=False) + "\n").encode("utf-8", "surrogatepass")
