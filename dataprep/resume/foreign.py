"""Whose files are in the output folder of a run: those of its plan, or of other datasets and tools.

A file name proves nothing, because other tools also call their shards ``train-00000.tar``. A file
belongs to the plan of a run only if the manifest or an intact sample table of the plan lists its
name and length. A run that is killed between the renames of a shard's files leaves the table among
its temporary files, and that table counts too.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping

from dataprep import storage
from dataprep.formats import FORMATS
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan
from dataprep.resume.finished import files_in_mark, length, unpublished_tables
from dataprep.shards.write import ShardResult
from manifests.errors import DamagedError
from manifests.files import REJECTED, read_lines
from manifests.revisions import APPEND_MARK_NAME, REVISION_FILE
from manifests.schema import SPLIT_NAMES, File
from manifests.store import MANIFEST_NAME, REJECTED_NAME, may_replace_manifest

_OTHER_FILES = "|".join(
    [re.escape(REJECTED_NAME), re.escape(APPEND_MARK_NAME), REVISION_FILE.pattern]
)


def listed_files(
    plan: ConversionPlan,
    out: str,
    in_manifest: Mapping[str, File],
    tables: list[ShardResult | None],
) -> dict[str, File]:
    """Return the files that belong to the plan, by name."""
    listed: dict[str, File] = {**files_in_mark(plan.fingerprint, out), **in_manifest}
    for shard, result in zip(plan.shards, tables, strict=True):
        if result is not None:
            listed[result.table.name] = result.table
        for conversion in (
            [result.conversion]
            if result
            else unpublished_tables(plan.fingerprint, out, f"{shard.name}.parquet")
        ):
            listed |= {file.name: file for file in (conversion.shard, conversion.index)}
    return listed


def foreign_files(
    plan: ConversionPlan, out: str, options: Options, listed: Mapping[str, File], *, owned: bool
) -> Iterator[str]:
    """Yield the files of other datasets and tools that this run would remove or replace."""
    if not may_replace_manifest(out):
        yield MANIFEST_NAME
    suffixes = (FORMATS[options.fmt].SUFFIX, ".idx", ".parquet")
    planned = {
        REJECTED_NAME,
        *(shard.name + suffix for shard in plan.shards for suffix in suffixes),
    }
    for name in dataset_files(plan, out):
        if owned and name in planned:
            continue
        path = os.path.join(out, name)
        is_listed = name in listed and listed[name].bytes == length(path)
        if name not in planned or not (
            is_listed or (name == REJECTED_NAME and _is_rejected_list(path))
        ):
            yield name


def _is_rejected_list(path: str) -> bool:
    """Return whether the first line of a file looks like one of ``rejected.jsonl``."""
    try:
        return set(json.loads(next(read_lines(path, REJECTED), b""))) == {
            "source",
            "reason",
            "detail",
        }
    except (OSError, ValueError, TypeError, RecursionError, DamagedError):
        return False


def dataset_files(plan: ConversionPlan, out: str) -> list[str]:
    """List the files in the folder whose names could belong to a dataset.

    All other files are never changed.
    """
    splits = "|".join(map(re.escape, {*SPLIT_NAMES, *plan.splits}))
    pattern = re.compile(rf"({splits})-\d{{5,}}\.(tfrecord|tar|idx|parquet)|{_OTHER_FILES}")
    return sorted(entry.name for entry in storage.list_folder(out) if pattern.fullmatch(entry.name))
