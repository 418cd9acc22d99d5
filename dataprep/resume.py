"""The output folder before and after a run: which files to keep, to replace, and to leave alone.

A file name proves nothing, because other tools also call their shards ``train-00000.tar``. So a run starts only in a
folder without files of other datasets, and first writes `INCOMPLETE_NAME`, which contains the fingerprint of its plan.
While `INCOMPLETE_NAME` exists, all files with names from this plan belong to the plan, even a shard that a killed run
left without a table. The last step replaces `INCOMPLETE_NAME` by ``manifest.json``. Without `INCOMPLETE_NAME`, a file
belongs to the plan only if the manifest or an intact sample table lists its name and length.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from dataprep import storage
from dataprep.formats import FORMATS
from dataprep.options import Options, library_versions
from dataprep.plan import ConversionPlan
from dataprep.shards import ShardResult
from dataprep.sources import Source
from manifests.errors import CallError, DamagedError, ManifestError, TableError
from manifests.files import MANIFEST, REJECTED, read_file, read_lines
from manifests.schema import SPLIT_NAMES, File, Manifest
from manifests.store import MANIFEST_NAME, REJECTED_NAME, manifest_bytes, may_replace_manifest, read_manifest
from manifests.tables import has_canonical_bytes, read_table_metadata
from manifests.text import printable

#: Marks an incomplete dataset: JSON whose member ``options`` contains the fingerprint of the plan.
INCOMPLETE_NAME = "manifest.incomplete.json"


# --- may this run use the folder? ---------------------------------------------------------------


def check_output(source: Source, out: str) -> None:
    """Check, before anything is written, that `out` can be an output folder.

    Raises:
        CallError: `out` is a file, is inside a file, or is inside the folder that is the source.

    """
    path = os.path.abspath(out)
    root = os.path.abspath(source.root)
    if source.scanned and os.path.commonpath([path, root]) == root:
        raise CallError(
            f"--out {printable(out)} is inside the source {printable(source.root)}, so the next run would read it "
            "as images",
            hint="choose a folder outside the source",
        )
    existing = _nearest_existing(path)
    if not os.path.isdir(existing):
        raise CallError(
            f"--out {printable(out)}: {printable(existing)} is a file, not a folder",
            hint="choose another folder with --out",
        )


def check_writable(out: str) -> str:
    """Return the nearest existing folder, `out` or one of its parents, after checking that it can be written.

    Raises:
        CallError: this user has no permission to write.
        StorageError: another run is writing to `out`.

    """
    existing = _nearest_existing(os.path.abspath(out))
    if not os.access(existing, os.W_OK | os.X_OK):
        hint = "give this user permission to write there, or choose another folder with --out"
        raise CallError(f"--out {printable(out)}: this user cannot write to {printable(existing)}", hint=hint)
    if os.path.isdir(out):
        with storage.locked(out):
            pass
    return existing


def _nearest_existing(path: str) -> str:
    while not os.path.lexists(path):
        path = os.path.dirname(path)
    return path


# --- what is in the folder? ---------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Resumable:
    """What a run finds in the output folder.

    Attributes:
        shards: finished shards of this plan, by name. They are kept.
        outdated: names of files to remove before shards are written, the manifest first.
        is_complete: whether all shards are finished and the manifest of this plan exists.

    """

    shards: dict[str, ShardResult]
    outdated: tuple[str, ...] = ()
    is_complete: bool = False


def find_resumable(plan: ConversionPlan, out: str, options: Options, *, overwrite: bool) -> Resumable:
    """Find the shards of this plan that are finished. Nothing in the folder is changed.

    Args:
        plan: the plan to resume.
        out: output folder; it may not exist yet.
        options: options of the conversion.
        overwrite: return files of other datasets as outdated, instead of raising.

    Raises:
        CallError: the run would replace a file that does not belong to this plan.

    """
    if not os.path.isdir(out):
        return Resumable({})
    in_manifest = _files_in_manifest(plan, out)
    tables = [_read_table(plan, out, shard.name, in_manifest) for shard in plan.shards]
    listed = dict(in_manifest)
    for result in filter(None, tables):
        listed |= {file.name: file for file in (result.conversion.shard, result.conversion.index, result.table)}
    foreign = next(_foreign_files(plan, out, options, listed), None)
    if foreign and not overwrite:
        raise _foreign_file_error(out, foreign, options)
    shards = {} if foreign else {result.name: result for result in tables if result and _can_keep(out, result)}
    if len(shards) == len(plan.shards):
        return Resumable(shards, is_complete=bool(in_manifest))
    # The manifest is removed first, so an incomplete dataset never has one.
    names = (MANIFEST_NAME, *_dataset_files(plan, out))
    outdated = (name for name in names if os.path.splitext(name)[0] not in shards)
    return Resumable(shards, tuple(name for name in outdated if os.path.lexists(os.path.join(out, name))))


def _files_in_manifest(plan: ConversionPlan, out: str) -> dict[str, File]:
    """Return the files that ``manifest.json`` lists, by name; empty if it is not a manifest of this plan."""
    try:
        manifest = read_manifest(out)
    except ManifestError:
        return {}
    if manifest.options.get("plan") != plan.fingerprint:
        return {}
    shards = [shard for split in manifest.splits for shard in split.shards]
    files = [file for shard in shards for file in (shard.file, shard.index, shard.table)]
    return {file.name: file for file in (*files, *([manifest.rejected] if manifest.rejected else []))}


def _read_table(plan: ConversionPlan, out: str, name: str, in_manifest: Mapping[str, File]) -> ShardResult | None:
    """Read the sample table of a shard; `None` if it is missing, damaged or of another plan."""
    path = os.path.join(out, f"{name}.parquet")
    if not os.path.isfile(path):
        return None
    table = storage.describe(out, f"{name}.parquet")
    if table != in_manifest.get(table.name) and not has_canonical_bytes(path):
        return None
    try:
        metadata = read_table_metadata(path)
    except TableError:
        return None
    conversion = metadata.conversion if metadata else None
    if conversion is None or conversion.plan != plan.fingerprint:
        return None
    return ShardResult(name, conversion, table, resumed=True)


def _can_keep(out: str, result: ShardResult) -> bool:
    if any(row["reason"] == "unreadable" for row in result.conversion.rejected):
        return False  # these images may be readable now
    files = (result.shard.file, result.shard.index) if result.shard else ()
    return all(_length(os.path.join(out, file.name)) == file.bytes for file in files)


def _foreign_files(plan: ConversionPlan, out: str, options: Options, listed: Mapping[str, File]) -> Iterator[str]:
    """Yield the files of other datasets and tools that this run would remove or replace."""
    if not may_replace_manifest(out):
        yield MANIFEST_NAME
    is_marked = _marked_plan(out) == plan.fingerprint
    suffixes = (FORMATS[options.fmt].SUFFIX, ".idx", ".parquet")
    planned = {REJECTED_NAME, *(shard.name + suffix for shard in plan.shards for suffix in suffixes)}
    for name in _dataset_files(plan, out):
        path = os.path.join(out, name)
        is_listed = name in listed and listed[name].bytes == _length(path)
        is_ours = is_marked or is_listed or (name == REJECTED_NAME and _is_rejected_list(path))
        if name not in planned or not is_ours:
            yield name


def _is_rejected_list(path: str) -> bool:
    """Return whether the first line of a file looks like one of ``rejected.jsonl``."""
    try:
        return set(json.loads(next(read_lines(path, REJECTED), b""))) == {"source", "reason", "detail"}
    except (OSError, ValueError, TypeError, DamagedError):
        return False


def _dataset_files(plan: ConversionPlan, out: str) -> list[str]:
    """List the files in the folder whose names could be those of a dataset. All other files are never changed."""
    splits = "|".join(map(re.escape, {*SPLIT_NAMES, *plan.splits}))
    pattern = re.compile(rf"({splits})-\d{{5,}}\.(tfrecord|tar|idx|parquet)|{re.escape(REJECTED_NAME)}")
    return sorted(name for name in os.listdir(out) if pattern.fullmatch(name))


def _length(path: str) -> int:
    """Return the length of a file in bytes; -1 if it does not exist."""
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _foreign_file_error(out: str, name: str, options: Options) -> CallError:
    versions = _other_versions(out) if options.changes_images else ""
    and_versions = " and library versions" if versions else ""
    return CallError(
        f"--out {printable(out)} contains {name!r}, which was not made from this source with these options{versions}, "
        "or is damaged",
        hint=f"move it away, choose another folder, use the options{and_versions} of the earlier run, or "
        "replace everything with --overwrite",
    )


def _other_versions(out: str) -> str:
    """Describe the installed library versions and those that made the dataset; empty if they are the same."""
    installed = library_versions()
    try:
        used = read_manifest(out).options.get("made_by", installed)
    except ManifestError:
        return f" and {_join_versions(installed)}"
    return "" if used == installed else f" and {_join_versions(installed)} (but with {_join_versions(used)})"


def _join_versions(versions: object) -> str:
    items = versions.items() if isinstance(versions, dict) else ()
    return " and ".join(printable(f"{name} {version}") for name, version in items) or "unknown versions"


# --- begin and complete a dataset ---------------------------------------------------------------


def mark_incomplete(out: str, plan: ConversionPlan, options: Options) -> None:
    """Write `INCOMPLETE_NAME`. From now on, all files in the folder with names from this plan belong to the plan."""
    note = "dataprep convert has not completed this dataset. Run the same command again to resume."
    members = {"note": note, "options": {**options.as_json(), "plan": plan.fingerprint}}
    storage.replace_file(os.path.join(out, INCOMPLETE_NAME), (json.dumps(members, indent=1) + "\n").encode())


def _marked_plan(out: str) -> str | None:
    """Return the fingerprint in `INCOMPLETE_NAME`; `None` if there is no such file."""
    try:
        return str(json.loads(read_file(os.path.join(out, INCOMPLETE_NAME), MANIFEST))["options"]["plan"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError, DamagedError):
        return None


def remove_outdated(out: str, resumable: Resumable) -> None:
    """Remove the files that this run writes again."""
    for name in resumable.outdated:
        storage.remove(os.path.join(out, name))


def mark_complete(out: str, manifest: Manifest) -> None:
    """Write ``manifest.json``, unless it already exists, and remove `INCOMPLETE_NAME`.

    The manifest is renamed twice: first to `INCOMPLETE_NAME`, then to its own name. So a kill never leaves a complete
    dataset with `INCOMPLETE_NAME`, or an incomplete dataset without it.
    """
    path, marker = os.path.join(out, MANIFEST_NAME), os.path.join(out, INCOMPLETE_NAME)
    data = manifest_bytes(manifest)
    if _read_existing(path) == data:
        storage.remove(marker)
        return
    storage.write_partial(path, data)
    storage.publish_all([(storage.partial_path(path), marker)])
    storage.publish_all([(marker, path)])


def _read_existing(path: str) -> bytes | None:
    try:
        return read_file(path, MANIFEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CallError(f"--out: {printable(path)} cannot be read ({error.strerror})", hint="move it away") from None
