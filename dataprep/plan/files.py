"""The folder of a plan: what `dataprep plan` decided, for workers on any machine.

``plan.json`` is written last: if it exists, the plan is complete. The same source, options and
libraries give the same bytes. Reading is strict, because a plan may come from anybody.
"""

from __future__ import annotations

import gc
import json
import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, field
from itertools import groupby
from typing import Annotated, Any

import pyarrow.compute as pc

from dataprep import storage
from dataprep.canary import Canary, canary, check_canary
from dataprep.labels.kinds import KINDS
from dataprep.options import Options, library_versions, options_from_json, stored_flags
from dataprep.plan.assign import NO_ROWS, ConversionPlan, ShardPlan, shard_name, shard_number
from dataprep.plan.table import (
    SHARDS_PER_FILE,
    PlanTable,
    open_plan_table,
    read_plan_table,
    table_name,
    write_plan_table,
)
from dataprep.sources import Source
from dataprep.sources.base import MAX_COLUMN_NAME, RESERVED_COLUMNS
from dataprep.storage.temporary import JOURNAL_NAME
from manifests.arrays import ArrayKind, arrays_of
from manifests.errors import (
    CallError,
    DamagedError,
    PlanError,
    SourceVanishedError,
    raise_machine_fault,
)
from manifests.files import MANIFEST, PLAN, PLAN_TABLE, read_file
from manifests.json_members import Member, MemberError, shorten
from manifests.labels import MAX_LABEL, LabelType, find_wrong_name
from manifests.process.text import printable
from manifests.records import keyword_record, record
from manifests.remote.url import absolute, is_absolute
from manifests.schema import Digest, Positive, RejectedRow, is_split_name
from manifests.serialization import MAX_REVISION, check_rejected, seal, unseal
from manifests.store import MANIFEST_NAME

#: Versions of plans: of a new dataset, and of an append. Releases that cannot append refuse the
#: second one.
PLAN_VERSIONS = (1, 2)

#: Largest number of shards in a plan.
_MAX_SHARDS = 10_000_000


@keyword_record
class Job(ConversionPlan):
    """A plan, and what a conversion needs besides it to write into one output folder.

    Attributes:
        out: the output folder.
        options: options of the conversion.
        classes: class names in label order.
        images: number of images to read.
        bytes: total size of these images in bytes.
        rejected: rows for ``rejected.jsonl`` of the scan.
        revision: number of the revision that the shards are new in.
        label_type: what the labels are.
        arrays: the array columns by name.
        image_names: names of the images of each sample, if there are several.
        check: looks whether the run still owns the output folder; see `dataprep.storage.guarded`.

    """

    out: str
    options: Options
    classes: tuple[str, ...]
    images: int
    bytes: int
    rejected: tuple[RejectedRow, ...]
    revision: int = 0
    label_type: LabelType = "class"
    arrays: Mapping[str, ArrayKind] = field(default_factory=dict)
    image_names: tuple[str, ...] = ()
    check: storage.Check | None = None


def job_of(source: Source, plan: ConversionPlan, out: str, options: Options) -> Job:
    """Return the job of a plan that is in memory."""
    return Job(
        **vars(plan),
        out=out,
        options=options,
        classes=source.classes,
        images=len(source),
        bytes=source.bytes,
        rejected=source.rejected,
        label_type=source.label_type,
        arrays=arrays_of(source.extra),
        image_names=source.image_names,
    )


#: 32 hex digits.
Fingerprint = Annotated[str, r"[0-9a-f]{32}", "32 hex digits"]


@record
class PlannedSplit:
    """Totals of a split.

    Attributes:
        shards: number of shards.
        images: number of images to read.
        bytes: their total size in bytes.
        first: number of the first shard; `None` for 0, unless the dataset has shards of this split.

    """

    shards: Annotated[int, 1, _MAX_SHARDS]
    images: Positive
    bytes: int
    first: Annotated[int, 1, _MAX_SHARDS] | None = None


@record
class PlannedAppend:
    """What the plan of an append contains in addition.

    Attributes:
        parent: digest of the manifest that the append continues.
        revision: number of the revision that it makes.
        source: name of the source, for the manifest.
        source_digest: fingerprint of the whole source.
        known: number of images of the source that are in the dataset before.

    """

    parent: Digest
    revision: Annotated[int, 1, MAX_REVISION]
    source: str
    source_digest: Fingerprint
    known: int


@keyword_record
class StoredPlan:
    """What ``plan.json`` contains, in the order of its members.

    Attributes:
        fingerprint: fingerprint of the plan.
        options: options of the conversion; see `Options.as_json`.
        canary: digest of what the machine that made the plan writes.
        versions: its libraries; see `Canary`.
        layout: name of the recognized layout of the source.
        root: absolute folder that relative paths of images start from.
        append: what is added to which dataset; `None` if the plan makes a new one.
        splits: the splits by name, in the order of the plan.
        label_type: what the labels are.
        image_names: names of the images of each sample, if there are several.
        extra: names of the extra columns.
        arrays: those that are array columns, by name.
        containers: whether images are inside containers.
        tables: the files of the source table.
        rejected: rows for ``rejected.jsonl`` of the scan.
        classes: class names in label order.

    """

    fingerprint: Fingerprint
    options: Mapping[str, Any]
    canary: Fingerprint
    versions: Mapping[str, str]
    layout: str
    root: str
    append: PlannedAppend | None = None
    splits: Mapping[str, PlannedSplit]
    label_type: LabelType
    image_names: tuple[str, ...] = ()
    extra: tuple[str, ...]
    arrays: Mapping[str, ArrayKind]
    containers: bool
    tables: tuple[PlanTable, ...]
    rejected: tuple[RejectedRow, ...]
    classes: tuple[str, ...]

    @property
    def shards(self) -> int:
        """Number of shards."""
        return sum(split.shards for split in self.splits.values())

    @property
    def images(self) -> int:
        """Number of images to read."""
        return sum(split.images for split in self.splits.values())

    @property
    def machine(self) -> Canary:
        """What the machine that made the plan writes."""
        return Canary(self.canary, self.versions)

    def job(self, out: str) -> Job:
        """Return the job of this plan in an output folder."""
        shards, total = [], 0
        for name, split in self.splits.items():
            total += split.bytes
            first = split.first or 0
            for number in range(first, first + split.shards):
                shards.append(ShardPlan(shard_name(name, number), name, NO_ROWS))
        return Job(
            shards=tuple(shards),
            fingerprint=self.fingerprint,
            out=out,
            options=options_from_json(Member(self.options)),
            classes=self.classes,
            images=self.images,
            bytes=total,
            rejected=self.rejected,
            revision=self.append.revision if self.append else 0,
            label_type=self.label_type,
            arrays=self.arrays,
            image_names=self.image_names,
        )


def plan_to_json(plan: StoredPlan) -> dict[str, Any]:
    """Return the members of ``plan.json`` in the order in which they are written, without the checksum."""
    body = {"plan_version": PLAN_VERSIONS[plan.append is not None], **asdict(plan)}
    # Members are left out if there is nothing to say.
    if plan.append is None:
        del body["append"]
    if KINDS[plan.label_type].is_class:
        del body["label_type"]
    if not plan.arrays:
        del body["arrays"]
    if not plan.image_names:
        del body["image_names"]
    for split in body["splits"].values():
        if split["first"] is None:
            del split["first"]
    return body


def plan_from_json(body: Member) -> StoredPlan:
    """Build the plan from the members of ``plan.json``.

    Raises:
        MemberError: a member is missing or wrong.

    """
    # Members that say nothing are left out.
    members = {"label_type": "class", "image_names": (), "arrays": {}, **body.mapping()}
    plan = Member(members).record(StoredPlan)
    if wrong := find_wrong_name(plan.image_names):
        raise MemberError(f"image_names: {wrong}")
    options_from_json(body["options"])
    if not is_absolute(plan.root):
        body["root"].fail("an absolute path")
    for name in plan.splits:
        if not is_split_name(name):
            raise MemberError(f"a split has the name {shorten(name)}")
    for member in body["extra"].items():
        name = member.text()
        if name in RESERVED_COLUMNS or not 0 < len(name.encode()) <= MAX_COLUMN_NAME:
            member.fail("the name of an extra column")
    for number, table in enumerate(body["tables"].items()):
        table["name"].one_of([table_name(number)])
    check_rejected(body["rejected"])
    if len(plan.classes) > MAX_LABEL + 1:
        raise MemberError(f"classes has {len(plan.classes):,} names")
    # Every shard has a row group, and every file but the last one is full.
    groups = [len(table.groups) // 8 for table in plan.tables]
    full, rest = divmod(plan.shards, SHARDS_PER_FILE)
    if groups != [SHARDS_PER_FILE] * full + [rest] * (rest > 0):
        raise MemberError(f"tables have {sum(groups)} row groups for {plan.shards} shards")
    return plan


# --- the plan folder ------------------------------------------------------------------------------


PLAN_NAME = "plan.json"

#: What an append without a new image rejected; see `dataprep.run.commit`.
ENDED_NAME = "rejected.jsonl"

_PLAN_FILE = re.compile(r"plan\.json|rejected\.jsonl|source-[0-9]{5,}\.parquet")


def plan_folder(out: str) -> str:
    """Return the folder of the plan in an output folder."""
    return os.path.join(out, storage.PLAN_FOLDER)


# --- write ----------------------------------------------------------------------------------------


def write_plan(source: Source, job: Job, append: PlannedAppend | None = None) -> None:
    """Write the plan into `PLAN_FOLDER`; the folder for temporary files must exist.

    Args:
        source: the samples to write.
        job: their job.
        append: what is added to which dataset; `None` if the plan makes a new one.

    """
    folder = plan_folder(job.out)
    with storage.translate_errors(folder, "the folder cannot be made"):
        storage.make_folder(folder)
    # Tables have temporary names until the plan that describes them is written.
    tables, pairs = [], []
    for number, start in enumerate(range(0, len(job.shards), SHARDS_PER_FILE)):
        name, shards = table_name(number), job.shards[start : start + SHARDS_PER_FILE]
        path = os.path.join(folder, name)
        temporary = storage.partial_path(path)
        with storage.translate_errors(path, "the file cannot be written"):
            tables.append(write_plan_table(temporary, name, source, shards, job.revision))
        pairs.append((temporary, path))
    own = canary(transcodes=job.options.transcode is not None)
    stored = StoredPlan(
        fingerprint=job.fingerprint,
        options=job.options.as_json(),
        canary=own.digest,
        versions=own.versions,
        layout=source.layout,
        root=absolute(source.root),
        append=append,
        splits={name: _totals(source, job, name) for name in job.splits},
        label_type=source.label_type,
        image_names=source.image_names,
        extra=tuple(source.extra.column_names),
        arrays=job.arrays,
        containers=source.location is not None,
        tables=tuple(tables),
        rejected=source.rejected,
        classes=source.classes,
    )
    path = os.path.join(folder, PLAN_NAME)
    storage.write_partial(path, seal(plan_to_json(stored)))
    storage.remove(path)  # first: the old one must never describe new tables
    remove_plan(job.out)
    storage.publish_all([*pairs, (storage.partial_path(path), path)])


def remove_plan(out: str) -> None:
    """Remove the files of a plan, ``plan.json`` last: after a kill, the same command finds it and continues."""
    folder = plan_folder(out)
    if not storage.is_folder(folder):
        return
    entries = storage.list_folder(folder)
    for entry in sorted(entries, key=lambda entry: (entry.name == PLAN_NAME, entry.name)):
        if _PLAN_FILE.fullmatch(entry.name):
            storage.remove(os.path.join(folder, entry.name))


def _totals(source: Source, plan: ConversionPlan, name: str) -> PlannedSplit:
    shards, images, total = [], 0, 0
    for shard in plan.shards:
        if shard.split == name:
            shards.append(shard)
            images += len(shard.rows)
            total += int(source.size[shard.rows].clip(min=0).sum())
    return PlannedSplit(
        shards=len(shards), images=images, bytes=total, first=shard_number(shards[0].name) or None
    )


# --- read -----------------------------------------------------------------------------------------


def has_plan(out: str) -> bool:
    """Return whether an output folder has a complete plan, damaged or not."""
    return storage.is_file(os.path.join(plan_folder(out), PLAN_NAME))


def has_append_plan(out: str) -> bool:
    """Return whether an output folder has the plan of an append, not damaged."""
    try:
        return has_plan(out) and read_plan(out).append is not None
    except PlanError:
        return False


def remove_empty_plan_folder(out: str) -> None:
    """Remove the folder of a plan from a file system if it is empty, also after a kill right before this."""
    storage.remove_empty_folder(plan_folder(out))


def read_plan(out: str) -> StoredPlan:
    """Read the plan of an output folder.

    Raises:
        CallError: there is no plan.
        PlanError: it is damaged, was changed by hand, or has another version.

    """
    path = os.path.join(plan_folder(out), PLAN_NAME)
    try:
        data = read_file(path, PLAN)
    except (FileNotFoundError, NotADirectoryError):
        missing, hint = "does not exist", "check the path"
        if storage.is_folder(out):
            missing, hint = "contains no plan", "run `dataprep plan --src SRC --out OUT` first"
        raise CallError(f"the folder {printable(out)} {missing}", hint=hint) from None
    except OSError as error:
        raise_machine_fault(error)
        raise PlanError(
            f"the plan cannot be read ({error.strerror})", file=path, hint="check its permissions"
        ) from None
    try:
        body = unseal(data)
        version = body["plan_version"].integer()
        if version in PLAN_VERSIONS:
            return plan_from_json(body)
    except ValueError as error:
        message = f"the plan was changed after `dataprep plan` wrote it, or is damaged ({error})"
        raise PlanError(message, file=path, hint=PLAN.hint) from None
    raise PlanError(
        f"the plan has plan_version {version}, but this release reads"
        f" {PLAN_VERSIONS[0]} to {PLAN_VERSIONS[-1]}",
        file=path,
        hint="use the release that made the plan, or run `dataprep plan` again",
    )


def check_plan(job: Job, *, overwrite: bool) -> bool:
    """Compare the plan in an output folder with the plan of a run.

    Returns:
        Whether the folder has a plan that the run must remove or replace.

    Raises:
        CallError: it has the plan of another conversion.
        StoppedError: it has the same plan, but this machine writes other bytes than the one that
            made it.

    """
    if not has_plan(job.out):
        return False
    try:
        stored = read_plan(job.out)
    except PlanError:
        return True
    # A run that starts over replaces the plan of any other run.
    if overwrite:
        own = canary(transcodes=job.options.transcode is not None)
        return stored.fingerprint != job.fingerprint or stored.canary != own.digest
    if stored.append:
        return False  # the caller checks whether something was appended to the dataset
    if stored.fingerprint != job.fingerprint:
        raise CallError(
            f"--out {printable(job.out)} has the plan of another"
            f" conversion{_differences(stored.options, job.options)}",
            hint=(
                "choose another folder, use the source and options of that plan, or replace"
                " everything with --overwrite"
            ),
        )
    check_canary(stored.machine)
    return False


def count_images(plan: StoredPlan, out: str, numbers: Sequence[int]) -> int:
    """Return the number of images in some shards of a plan.

    Raises:
        PlanError: a file of the source table is missing or was changed.

    """
    total = 0
    for file, shards in groupby(numbers, lambda number: number // SHARDS_PER_FILE):
        with open_plan_table(plan_folder(out), plan.tables[file]) as parquet:
            for number in shards:
                total += parquet.group_rows(number % SHARDS_PER_FILE)
    return total


def read_planned_rows(
    plan: StoredPlan, out: str, number: int, shard: str
) -> tuple[list[str], Source]:
    """Read the keys and the samples of a shard, in stored order.

    Every value is checked: the plan may come from anybody.

    Args:
        plan: the plan.
        out: the output folder.
        number: position of the shard in the plan.
        shard: its name.

    Raises:
        PlanError: the rows are missing, damaged or were changed.
        SourceVanishedError: the source is not on this machine.

    """
    file, group = divmod(number, SHARDS_PER_FILE)
    table, folder = plan.tables[file], plan_folder(out)
    rows = read_plan_table(folder, table, group, plan.extra, has_locations=plan.containers)
    keys = rows["key"]
    source = Source(
        root=plan.root,
        layout=plan.layout,
        table=rows.drop_columns(["shard", "key"]),
        classes=plan.classes,
        label_type=plan.label_type,
        image_names=plan.image_names,
    )
    # Labels are zeros if they are not classes.
    labels = 1
    if source.labels.is_class:
        labels = len(plan.classes)
    checks = {
        "shard": pc.equal(rows["shard"], shard),
        "key": pc.match_substring_regex(keys, "^([1-9][0-9]{0,8}-)?[0-9]{8,19}$"),
        "label": pc.and_(pc.greater_equal(rows["label"], 0), pc.less(rows["label"], labels)),
        "size": pc.greater_equal(rows["size"], -1),
        "source": pc.invert(pc.match_substring(rows["path"], "\0")),
    }
    for name, check in checks.items():
        if check.null_count or not pc.all(check).as_py():
            wrong: str | None = f"column {name!r} of shard {shard} has a wrong value"
            break
    else:
        wrong = source.labels.find_wrong_column(source.extra, len(plan.classes), f"shard {shard}")
        if arrays_of(source.extra) != plan.arrays:
            wrong = f"the array columns of shard {shard} are not the columns of the plan"
    if wrong is not None:
        raise PlanError(wrong, file=os.path.join(folder, table.name), hint=PLAN_TABLE.hint)
    _check_root(source)
    # Arrow's footer of a file and its schema refer to each other, and a footer of 1,000 row
    # groups is large. Without this, hundreds of them stay in memory.
    gc.collect(1)
    return keys.to_pylist(), source


def _check_root(source: Source) -> None:
    """Check that the folder of the source is there, if an image is relative to it."""
    if storage.is_folder(source.root):
        return
    paths = source.path if source.location is None else source.location["container"]
    if not pc.all(pc.match_substring_regex(paths, "^/|://")).as_py():
        raise SourceVanishedError(
            "the source of the plan is not on this machine",
            file=source.root,
            hint="mount it at this path and run the same command again; finished shards are kept",
        )


# --- errors that say how another dataset or plan differs ------------------------------------------


def foreign_file_error(out: str, name: str, options: Options) -> CallError:
    """Return the error for a file in `out` that the run may not replace.

    Args:
        out: the output folder.
        name: the file.
        options: options of the run.

    """
    recorded = _recorded_options(os.path.join(out, MANIFEST_NAME))
    recorded = recorded or _recorded_options(os.path.join(out, JOURNAL_NAME))
    versions = and_versions = ""
    if options.changes_images:
        versions = _other_versions(recorded, options)
    if versions:
        and_versions = " and library versions"
    return CallError(
        f"--out {printable(out)} contains {name!r}, which was not made from this source with these"
        f" options{versions}, or is damaged{_differences(recorded, options)}",
        hint=(
            f"move it away, choose another folder, use the options{and_versions} of the earlier"
            " run, or replace everything with --overwrite"
        ),
    )


def _recorded_options(path: str) -> dict[str, Any]:
    """Return the member ``options`` of a manifest, complete or not.

    Empty if it was not made by a conversion.
    """
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError, DamagedError):
        options = json.loads(read_file(path, MANIFEST))["options"]
        if "plan" in options:
            return dict(options)
    return {}


def _differences(recorded: Mapping[str, Any], options: Options) -> str:
    """Describe which options differ from the earlier run."""
    if not recorded:
        return ""
    before, now = _flatten(recorded), _flatten(options.as_json())
    different = []
    for name, flag in stored_flags():
        if before.get(name) != now.get(name):
            old, new = _value(name, before.get(name)), _value(name, now.get(name))
            different.append(f"{flag} ({old} in the folder, {new} now)")
    if not different:
        return "; the options are the same, so the source or the file is not"
    if len(different) > 5:
        different[5:] = ["..."]
    return f"; different: {', '.join(different)}"


def _value(name: str, value: object) -> str:
    # The option --no-shuffle negates its member.
    if value is None or (
        isinstance(value, bool) and value == (getattr(Options, name, None) is True)
    ):
        return "not set"
    if isinstance(value, bool):
        return "set"
    return printable(str(value)[:40])


def _flatten(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of options with the names that `stored_flags` gives them."""
    flat = {}
    for name, value in options.items():
        if isinstance(value, dict):
            for member, each in value.items():
                flat[f"{name}.{member}"] = each
        else:
            flat[name] = value
    if "hash" in flat:  # the recipe
        flat["hash"] = True
    return flat


def _other_versions(recorded: Mapping[str, Any], options: Options) -> str:
    """Describe the installed library versions and the versions that made the dataset.

    Empty if they are the same.
    """
    installed = library_versions(transcodes=options.transcode is not None)
    if not recorded:
        return f" and {_join_versions(installed)}"
    used = recorded.get("made_by", installed)
    if used == installed:
        return ""
    return f" and {_join_versions(installed)} (but with {_join_versions(used)})"


def _join_versions(versions: object) -> str:
    if not isinstance(versions, dict) or not versions:
        return "unknown versions"
    return " and ".join(printable(f"{name} {version}") for name, version in versions.items())
