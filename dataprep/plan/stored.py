"""``plan.json``: the record `StoredPlan`, as a JSON object and back.

Pure functions; parsing is strict.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dataprep.canary import Canary
from dataprep.options import Options
from dataprep.plan.assign import PlannedShard, shard_name
from dataprep.plan.job import Job
from dataprep.plan.stored_options import boolean, options_from_json
from dataprep.plan.table import SHARDS_PER_FILE, PlanTable, table_name
from dataprep.sources.base import MAX_COLUMN_NAME, RESERVED_COLUMNS
from manifests.errors import CallError
from manifests.json_members import Member, MemberError, shorten
from manifests.labels import LabelType
from manifests.remote import is_url, parse_url
from manifests.revisions import MAX_REVISION, digest_of
from manifests.schema import MAX_LABEL, is_split_name
from manifests.serialization import label_type_of

#: Versions of plans: of a new dataset, and of an append. Releases that cannot append refuse the
#: second one.
PLAN_VERSIONS = (1, 2)

#: Largest number of shards in a plan.
_MAX_SHARDS = 10_000_000


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """Totals of a split.

    Attributes:
        name: its name.
        shards: number of shards.
        images: number of images to read.
        bytes: their total size in bytes.
        first: number of the first shard; greater than 0 if the dataset has shards of this split.

    """

    name: str
    shards: int
    images: int
    bytes: int
    first: int = 0


@dataclass(frozen=True, slots=True)
class PlannedAppend:
    """What the plan of an append contains in addition.

    Attributes:
        parent: digest of the manifest that the append continues.
        revision: number of the revision that it makes.
        source: name of the source, for the manifest.
        source_digest: fingerprint of the whole source.
        known: number of images of the source that are in the dataset before.

    """

    parent: str
    revision: int
    source: str
    source_digest: str
    known: int


@dataclass(frozen=True)
class StoredPlan:
    """What ``plan.json`` contains.

    Attributes:
        fingerprint: fingerprint of the plan.
        options: options of the conversion.
        canary: what the machine that made the plan writes.
        layout: name of the recognized layout of the source.
        root: absolute folder that relative paths of images start from.
        splits: the splits, in the order of the plan.
        extra: names of the extra columns.
        has_locations: whether images are inside containers.
        tables: the files of the source table.
        rejected: rows for ``rejected.jsonl`` of the scan.
        classes: class names in label order.
        label_type: what the labels are.
        append: what is added to which dataset; `None` if the plan makes a new one.

    """

    fingerprint: str
    options: Options
    canary: Canary
    layout: str
    root: str
    splits: tuple[PlannedSplit, ...]
    extra: tuple[str, ...]
    has_locations: bool
    tables: tuple[PlanTable, ...]
    rejected: tuple[Mapping[str, str], ...]
    classes: tuple[str, ...]
    label_type: LabelType = "class"
    append: PlannedAppend | None = None

    @property
    def shards(self) -> int:
        """Number of shards."""
        return sum(split.shards for split in self.splits)

    def job(self, out: str) -> Job:
        """Return the job of this plan in an output folder."""
        return Job(
            out=out,
            options=self.options,
            fingerprint=self.fingerprint,
            classes=self.classes,
            shards=[
                PlannedShard(shard_name(split.name, n), split.name)
                for split in self.splits
                for n in range(split.first, split.first + split.shards)
            ],
            splits=tuple(split.name for split in self.splits),
            images=sum(split.images for split in self.splits),
            bytes=sum(split.bytes for split in self.splits),
            rejected=self.rejected,
            revision=self.append.revision if self.append else 0,
            label_type=self.label_type,
        )


def plan_to_json(plan: StoredPlan) -> dict[str, Any]:
    """Return the members of ``plan.json`` in the order in which they are written, without the checksum."""
    return {
        "plan_version": PLAN_VERSIONS[plan.append is not None],
        "fingerprint": plan.fingerprint,
        "options": plan.options.as_json(),
        "canary": plan.canary.digest,
        "versions": dict(plan.canary.versions),
        "layout": plan.layout,
        "root": plan.root,
        **({"append": asdict(plan.append)} if plan.append else {}),
        "splits": {split.name: _split_to_json(split) for split in plan.splits},
        **({"label_type": plan.label_type} if plan.label_type != "class" else {}),
        "extra": list(plan.extra),
        "containers": plan.has_locations,
        "tables": [
            {
                "name": table.name,
                "bytes": table.bytes,
                "footer": table.footer,
                "groups": table.groups,
            }
            for table in plan.tables
        ],
        "rejected": [dict(row) for row in plan.rejected],
        "classes": list(plan.classes),
    }


def _split_to_json(split: PlannedSplit) -> dict[str, int]:
    first = {"first": split.first} if split.first else {}
    return {"shards": split.shards, "images": split.images, "bytes": split.bytes, **first}


def plan_from_json(body: Member) -> StoredPlan:
    """Build the plan from the members of ``plan.json``.

    Raises:
        MemberError: a member is missing or wrong.

    """
    versions = {name: member.text() for name, member in body["versions"].members().items()}
    plan = StoredPlan(
        fingerprint=_hex(body["fingerprint"], 32),
        options=options_from_json(body["options"]),
        canary=Canary(_hex(body["canary"], 32), versions),
        layout=body["layout"].text(),
        root=_root(body["root"]),
        splits=tuple(_split(name, split) for name, split in body["splits"].members().items()),
        extra=tuple(_column(name) for name in body["extra"].items()),
        has_locations=boolean(body["containers"]),
        tables=tuple(_table(number, table) for number, table in enumerate(body["tables"].items())),
        rejected=tuple(
            {name: row[name].text() for name in ("source", "reason", "detail")}
            for row in body["rejected"].items()
        ),
        classes=body["classes"].texts(),
        label_type=label_type_of(body),
        append=_append(appended) if (appended := body.get("append")) else None,
    )
    if len(plan.classes) > MAX_LABEL + 1:
        raise MemberError(f"classes has {len(plan.classes):,} names")
    groups = [len(table.groups) // 8 for table in plan.tables]
    full = [SHARDS_PER_FILE] * (plan.shards // SHARDS_PER_FILE)
    rest = [plan.shards % SHARDS_PER_FILE] if plan.shards % SHARDS_PER_FILE else []
    if groups != full + rest:
        raise MemberError(f"tables have {sum(groups)} row groups for {plan.shards} shards")
    return plan


def _split(name: str, body: Member) -> PlannedSplit:
    if not is_split_name(name):
        raise MemberError(f"a split has the name {shorten(name)}")
    first = body.get("first")
    return PlannedSplit(
        name,
        body["shards"].integer(1, _MAX_SHARDS),
        body["images"].integer(1),
        body["bytes"].integer(),
        first.integer(1, _MAX_SHARDS) if first else 0,
    )


def _append(body: Member) -> PlannedAppend:
    return PlannedAppend(
        parent=digest_of(body["parent"]),
        revision=body["revision"].integer(1, MAX_REVISION),
        source=body["source"].text(),
        source_digest=_hex(body["source_digest"], 32),
        known=body["known"].integer(),
    )


def _table(number: int, body: Member) -> PlanTable:
    name, groups = body["name"].one_of([table_name(number)]), body["groups"].text()
    if not re.fullmatch(r"([0-9a-f]{8}){1,1000}", groups):
        body["groups"].fail("checksums of 8 hex digits")
    return PlanTable(name, body["bytes"].integer(), _hex(body["footer"], 8), groups)


def _hex(member: Member, digits: int) -> str:
    if not re.fullmatch(rf"[0-9a-f]{{{digits}}}", member.text()):
        member.fail(f"{digits} hex digits")
    return member.text()


def _root(member: Member) -> str:
    text = member.text()
    if is_url(text):
        try:
            parse_url(text)
        except CallError:
            member.fail("an absolute path or the URL of a folder")
    elif not text.startswith("/") or "\0" in text:
        member.fail("an absolute path")
    return text


def _column(member: Member) -> str:
    name = member.text()
    if name in RESERVED_COLUMNS or not 0 < len(name.encode()) <= MAX_COLUMN_NAME:
        member.fail("the name of an extra column")
    return name
