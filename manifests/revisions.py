"""Revisions of a dataset: their records as JSON and back, and what each revision added. No I/O.

``dataprep convert --append`` makes revision N+1 of revision N: it adds shards, tables and possibly
classes, keeps all old files, stores the old ``manifest.json`` as ``manifest.N.json``, and then
replaces ``manifest.json``.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from manifests.json_members import Member, MemberError, shorten
from manifests.schema import Added, Manifest, Revision, Split

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
