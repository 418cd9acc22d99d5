"""Make the damaged files of shards again from the source of the dataset."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import NamedTuple

from dataprep import engines, storage
from dataprep.engines.inline import InlinePool
from dataprep.formats import FORMATS
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, key_of, make_plan
from dataprep.plan.job import job_of, shard_task
from dataprep.plan.stored import options_from_json
from dataprep.plan.where import filter_source
from dataprep.repair.check import DamagedFile
from dataprep.shards.write import ShardTask, write_files
from dataprep.sources import Source
from manifests.errors import CallError, SourceVanishedError
from manifests.members import MemberError, parse_json
from manifests.schema import File, Manifest, Shard
from manifests.text import printable

_SAME_SOURCE = (
    "set --src, and the options that say how to read it, as for the `dataprep convert` that made the dataset, or "
    "restore the file from a copy"
)


class RemakeTask(NamedTuple):
    """A shard to make again from the source.

    Attributes:
        task: the shard as ``dataprep convert`` writes it.
        shard: the shard in the manifest.
        names: the files to replace.

    """

    task: ShardTask
    shard: Shard
    names: frozenset[str]


def remake_all(
    folder: str,
    manifest: Manifest,
    shards: Sequence[Shard],
    found: Mapping[str, list[DamagedFile]],
    source: Source,
    *,
    workers: int,
    dry_run: bool,
) -> dict[str, list[DamagedFile]]:
    """Make the files of shards that could not be rebuilt; return what became of them."""
    planned = _plan(manifest, source)
    if isinstance(planned, str):
        return {shard.name: _failed(found[shard.name], planned, _SAME_SOURCE) for shard in shards}
    source, options, plan = planned
    if dry_run:
        return {shard.name: _made(found[shard.name], {file.file for file in found[shard.name]}) for shard in shards}
    job = job_of(source, plan, folder, options)
    rows = {planned.name: planned.rows for planned in plan.shards}
    suffix = FORMATS[options.fmt].SUFFIX
    tasks = []
    for shard in shards:
        name = shard.name.removesuffix(suffix)
        keys = [key_of(row) for row in rows[name].tolist()]
        names = frozenset(file.file for file in found[shard.name] if not file.repair)
        tasks.append(RemakeTask(shard_task(job, name, source, rows[name], keys), shard, names))
    remade = {}
    with closing(engines.run(remake, tasks, min(workers, len(tasks)))) as results:
        for shard_name, names, reason in results:
            files = _made(found[shard_name], names)
            remade[shard_name] = _failed(files, reason, _SAME_SOURCE) if reason else files
    return remade


def _plan(manifest: Manifest, source: Source) -> tuple[Source, Options, ConversionPlan] | str:
    """Return what the conversion read, its options and its plan, or why they are not known."""
    members = {name: value for name, value in manifest.options.items() if name != "plan"}
    try:
        options = options_from_json(parse_json(json.dumps(members).encode()))
        if options.where is not None:
            source = filter_source(source, options.where)
        plan = make_plan(source, options)
    except MemberError as error:
        return f"the options in the manifest are not those of this release ({error})"
    except CallError as error:
        return f"the source does not fit the options in the manifest ({error.message})"
    if plan.fingerprint != manifest.options.get("plan"):
        versions = ", or other library versions made it" if options.changes_images else ""
        return f"the dataset was not made from {printable(source.root)} as it is now{versions}"
    return source, options, plan


def remake(task: RemakeTask) -> tuple[str, frozenset[str], str]:
    """Make the files of a shard again, and replace those that are damaged if the new ones have the right checksums.

    Returns:
        The name of the shard, the files that were replaced, and why the others were not.

    """
    shard, folder = task.shard, task.task.out
    paths = [os.path.join(folder, file.name) for file in (shard.file, shard.index, shard.table)]
    try:
        conversion, table = write_files(task.task, InlinePool(), *paths)
        made = {file.name for file in (conversion.shard, conversion.index, table) if file in _files(shard)}
        names = task.names & made
        pairs = [(storage.partial_path(path), path) for path in paths if os.path.basename(path) in names]
        storage.publish_all(pairs)
    except SourceVanishedError as error:
        return shard.name, frozenset(), str(error.message)
    finally:
        storage.discard(paths)
    missing = task.names - names
    return shard.name, frozenset(names), "images of the source were replaced since" if missing else ""


def _files(shard: Shard) -> tuple[File, ...]:
    return shard.file, shard.index, shard.table


def _made(files: Sequence[DamagedFile], names: frozenset[str] | set[str]) -> list[DamagedFile]:
    return [
        DamagedFile(file.file, file.damage, repair="made again from the source")
        if file.file in names and not file.repair
        else file
        for file in files
    ]


def _failed(files: Sequence[DamagedFile], reason: str, hint: str) -> list[DamagedFile]:
    return [file if file.repair else file._replace(reason=reason, hint=hint) for file in files]
