"""``plan.json``: the record `StoredPlan`, as a JSON object and back. Pure functions; parsing is strict."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

from dataprep.attestation import Canary
from dataprep.images.base import Validation
from dataprep.options import (
    DEFAULT_DISTANCE,
    MAX_DISTANCE,
    Downscale,
    Filter,
    Fit,
    Options,
    Raw,
    Resolution,
    Subsampling,
)
from dataprep.plan.assign import PlannedShard, shard_name
from dataprep.plan.job import Job
from dataprep.plan.table import SHARDS_PER_FILE, PlanTable, table_name
from dataprep.sources.base import MAX_COLUMN_NAME, MAX_SPLIT_NAME, RESERVED_COLUMNS
from manifests.labels import LabelType
from manifests.members import Member, MemberError, shorten
from manifests.schema import FORMAT_NAMES, MAX_LABEL
from manifests.serialization import label_type_of

PLAN_VERSION = 1

#: Largest numbers in a plan.
_MAX_SHARDS = 10_000_000
_MAX_SEED = 1 << 128


@dataclass(frozen=True, slots=True)
class PlannedSplit:
    """Totals of a split.

    Attributes:
        name: its name.
        shards: number of shards.
        images: number of images to read.
        bytes: their total size in bytes.

    """

    name: str
    shards: int
    images: int
    bytes: int


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
                for n in range(split.shards)
            ],
            splits=tuple(split.name for split in self.splits),
            images=sum(split.images for split in self.splits),
            bytes=sum(split.bytes for split in self.splits),
            rejected=self.rejected,
            label_type=self.label_type,
        )


def plan_to_json(plan: StoredPlan) -> dict[str, Any]:
    """Return the members of ``plan.json`` in the order in which they are written, without the checksum."""
    return {
        "plan_version": PLAN_VERSION,
        "fingerprint": plan.fingerprint,
        "options": plan.options.as_json(),
        "canary": plan.canary.digest,
        "versions": dict(plan.canary.versions),
        "layout": plan.layout,
        "root": plan.root,
        "splits": {
            split.name: {"shards": split.shards, "images": split.images, "bytes": split.bytes} for split in plan.splits
        },
        **({"label_type": plan.label_type} if plan.label_type != "class" else {}),
        "extra": list(plan.extra),
        "containers": plan.has_locations,
        "tables": [
            {"name": table.name, "bytes": table.bytes, "footer": table.footer, "groups": table.groups}
            for table in plan.tables
        ],
        "rejected": [dict(row) for row in plan.rejected],
        "classes": list(plan.classes),
    }


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
        has_locations=_boolean(body["containers"]),
        tables=tuple(_table(number, table) for number, table in enumerate(body["tables"].items())),
        rejected=tuple(
            {name: row[name].text() for name in ("source", "reason", "detail")} for row in body["rejected"].items()
        ),
        classes=body["classes"].texts(),
        label_type=label_type_of(body),
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
    if not 0 < len(name.encode()) <= MAX_SPLIT_NAME or "/" in name or "\0" in name or name.startswith("."):
        raise MemberError(f"a split has the name {shorten(name)}")
    return PlannedSplit(
        name, body["shards"].integer(1, _MAX_SHARDS), body["images"].integer(1), body["bytes"].integer()
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
    if not member.text().startswith("/") or "\0" in member.text():
        member.fail("an absolute path")
    return member.text()


def _column(member: Member) -> str:
    name = member.text()
    if name in RESERVED_COLUMNS or not 0 < len(name.encode()) <= MAX_COLUMN_NAME:
        member.fail("the name of an extra column")
    return name


def _boolean(member: Member) -> bool:
    if not isinstance(member.value, bool):
        member.fail("true or false")
    return member.value


# --- options --------------------------------------------------------------------------------------


def options_from_json(body: Member) -> Options:
    """Read the options. The members must be those that `Options.as_json` writes, and no others."""
    downscale, raw, test_fraction = body.get("downscale"), body.get("raw"), body.get("test_fraction")
    where, duplicates, distance = body.get("where"), body.get("duplicates"), body.get("distance")
    options = Options(
        fmt=body["fmt"].one_of(FORMAT_NAMES),
        shard_bytes=body["shard_bytes"].integer(1),
        shard_samples=_or_none(body["shard_samples"]),
        shuffle=_boolean(body["shuffle"]),
        seed=body["seed"].integer(0, _MAX_SEED),
        val_fraction=_fraction(body["val_fraction"]),
        test_fraction=_fraction(test_fraction) if test_fraction else 0.0,
        split_by=None if body["split_by"].value is None else body["split_by"].text(),
        validate=body["validate"].one_of(get_args(Validation)),
        max_pixels=body["max_pixels"].integer(1),
        downscale=_downscale(downscale) if downscale else None,
        raw=_raw(raw) if raw else None,
        where=where.text() if where else None,
        hash=body.get("hash") is not None,  # the value is compared below
        duplicates=duplicates.one_of(get_args(Resolution)) if duplicates else "keep",
        distance=distance.integer(-1, MAX_DISTANCE) if distance else DEFAULT_DISTANCE,
    )
    known, members = ({**members, "made_by": None} for members in (options.as_json(), body.mapping()))
    if known != members or (downscale and raw):
        wrong = [name for name in {**known, **members} if known.get(name) != members.get(name)]
        raise MemberError(f"options has members that this release does not know: {', '.join(map(shorten, wrong))}")
    return options


def _fraction(member: Member) -> float:
    if isinstance(member.value, bool) or not isinstance(member.value, (int, float)) or not 0 <= member.value < 1:
        member.fail("a number from 0 to 1")
    return float(member.value)


def _or_none(member: Member, low: int = 1) -> int | None:
    return None if member.value is None else member.integer(low)


def _downscale(body: Member) -> Downscale:
    return Downscale(
        shorter=_or_none(body["shorter"]),
        longest=_or_none(body["longest"]),
        only_above=_or_none(body["only_above"]),
        quality=body["quality"].integer(1, 100),
        subsampling=body["subsampling"].one_of(get_args(Subsampling)),
        filter=body["filter"].one_of(get_args(Filter)),
    )


def _raw(body: Member) -> Raw:
    return Raw(
        body["size"].integer(1, 4096), body["fit"].one_of(get_args(Fit)), body["filter"].one_of(get_args(Filter))
    )
