"""What a run finds in the output folder: which files to keep, to replace, and to leave alone (`foreign`).

A run first writes ``manifest.incomplete.json``, with the fingerprint of its plan. The last step
replaces it by ``manifest.json``.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dataprep import storage
from dataprep.containers import locations_of
from dataprep.engines import Engine
from dataprep.formats import FORMATS
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, ShardPlan
from dataprep.plan.mismatch import foreign_file_error
from dataprep.progress import Progress
from dataprep.resume.finished import (
    files_in_manifest,
    has_all_of,
    is_final,
    is_intact,
    lists_everything,
    read_finished,
)
from dataprep.resume.foreign import dataset_files, foreign_files, listed_files
from dataprep.resume.output import refuse_appended, refuse_folders
from dataprep.resume.reread import Reread, RereadTask, SourceImages, reread
from dataprep.resume.stamps import STAMPS_NAME, read_stamps, stamps_of
from dataprep.shards.write import ShardResult
from dataprep.sources import Source
from dataprep.storage.completion import INCOMPLETE_NAME, owns_names, read_mark
from manifests.errors import CallError
from manifests.labels import MASK_TYPES
from manifests.process.text import printable
from manifests.remote import is_url
from manifests.schema import File
from manifests.store import (
    MANIFEST_NAME,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumable:
    """What a run finds in the output folder.

    Attributes:
        shards: finished shards of this plan, by name. They are kept.
        outdated: names of files to remove before shards are written, the manifest first.
        is_complete: whether all shards are finished and the manifest of this plan exists.
        stamps: what `stamps.write_stamps` is to record; empty if nothing new is known.

    """

    shards: dict[str, ShardResult]
    outdated: tuple[str, ...] = ()
    is_complete: bool = False
    stamps: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rereading:
    """How thoroughly to check finished shards.

    Their indexes and tables are always compared with their checksums.

    Attributes:
        shards: read the shards too; a shard with another checksum is written again.
        engine: reads shards and source images. `None` means this process.
        progress: receives the shards that are read again, with their source images.

    """

    shards: bool = False
    engine: Engine | None = None
    progress: Progress | None = None


def find_resumable(
    source: Source,
    plan: ConversionPlan,
    out: str,
    options: Options,
    *,
    overwrite: bool,
    rereading: Rereading = Rereading(),
) -> Resumable:
    """Find the shards of this plan that are finished. Nothing in the folder is changed.

    Args:
        source: the source of the plan.
        plan: the plan to resume.
        out: output folder; it may not exist yet.
        options: options of the conversion.
        overwrite: keep nothing, except what an interrupted run with `overwrite` has written.
        rereading: what to read again.

    Raises:
        CallError: the run would replace a file that does not belong to this plan, or a folder; or
            the dataset is complete, but images of the source were replaced since.

    """
    now = stamps_of(source, plan)
    if not storage.is_folder(out):
        return Resumable({}, stamps=now)
    refuse_folders(out, (MANIFEST_NAME, INCOMPLETE_NAME, STAMPS_NAME, *dataset_files(plan, out)))
    if not overwrite:
        refuse_appended(out)
    # Before the manifest: another process may finish meanwhile, and removes the mark last.
    owned = owns_names(out, plan.fingerprint)
    in_manifest = files_in_manifest(plan.fingerprint, out)
    kept = _intact_shards(plan, out, options, in_manifest, overwrite=overwrite, owned=owned)
    before = read_stamps(out, plan)
    changed = {name for name in kept if now and now[name] != before.get(name)}
    to_read = [
        shard for shard in plan.shards if shard.name in (kept if rereading.shards else changed)
    ]
    for result in _reread(
        source, out, options, to_read, kept=kept, changed=changed, rereading=rereading
    ):
        if result.replaced is not None and in_manifest and not overwrite:
            raise _replaced_error(out, result.replaced, options)
        if result.is_damaged or result.replaced is not None:
            _log.info(
                "%s: written again, because its shard is damaged or a source image was replaced",
                result.name,
            )
            del kept[result.name]
    missing = [shard.name for shard in plan.shards if shard.name not in kept]
    suffix = FORMATS[options.fmt].SUFFIX
    if not missing or (
        lists_everything(out, in_manifest)
        and not any(
            name + suffix in in_manifest or now.get(name) != before.get(name) for name in missing
        )
    ):
        is_complete = has_all_of(out, in_manifest)
        return Resumable(
            kept, is_complete=is_complete, stamps={} if is_complete and now == before else now
        )
    return Resumable(kept, _outdated(plan, out, kept), stamps=now)


def _intact_shards(
    plan: ConversionPlan,
    out: str,
    options: Options,
    in_manifest: Mapping[str, File],
    *,
    overwrite: bool,
    owned: bool,
) -> dict[str, ShardResult]:
    """Return the finished shards of the plan whose files are as their sample tables say, by name.

    Args:
        plan: the plan.
        out: output folder.
        options: options of the conversion.
        in_manifest: files that the manifest lists, by name.
        overwrite: see `find_resumable`.
        owned: see `owns_names`.

    Raises:
        CallError: a file belongs to something else, and `overwrite` does not allow to replace it.

    """
    names = (shard.name for shard in plan.shards)
    tables = list(
        storage.map_files(
            out, lambda name: read_finished(plan.fingerprint, out, name, in_manifest), names
        )
    )
    listed = listed_files(plan, out, in_manifest, tables)
    foreign = next(foreign_files(plan, out, options, listed, owned=owned), None)
    if foreign and not overwrite:
        raise foreign_file_error(out, foreign, options, (MANIFEST_NAME, INCOMPLETE_NAME))
    starts_over = overwrite and read_mark(out) != (plan.fingerprint, True)
    found = [] if foreign or starts_over else [result for result in tables if result]
    final = [result for result in found if is_final(result)]
    intact = storage.map_files(out, lambda result: is_intact(out, result), final)
    kept = {result.name: result for result, is_kept in zip(final, intact, strict=True) if is_kept}
    _log_damaged([result.name for result in final if result.name not in kept])
    return kept


def _reread(
    source: Source,
    out: str,
    options: Options,
    shards: Sequence[ShardPlan],
    *,
    kept: Mapping[str, ShardResult],
    changed: Collection[str],
    rereading: Rereading,
) -> Iterator[Reread]:
    """Read shards again, or the source images of those that changed, or both.

    Yield what was found in each.
    """
    tasks = (
        RereadTask(
            out,
            shard.name,
            _shard_file(kept[shard.name]) if rereading.shards else None,
            _source_images(source, shard) if shard.name in changed else None,
            kept[shard.name].conversion,
            options,
        )
        for shard in shards
    )
    images = {shard.name: len(shard.rows) for shard in shards}
    engine, progress = rereading.engine, rereading.progress
    if shards and progress:
        progress.start(sum(images.values()), len(shards))
    for result in (
        engine.run(reread, tasks, len(shards)) if engine and shards else map(reread, tasks)
    ):
        yield result
        if progress:
            progress.advance(result.name, images[result.name])


def _log_damaged(shards: list[str]) -> None:
    for name in shards:
        _log.info("%s: written again, because its files are missing or damaged", name)


def _outdated(plan: ConversionPlan, out: str, kept: Mapping[str, ShardResult]) -> tuple[str, ...]:
    """Return the files to remove.

    A kill in between must leave neither a manifest, nor a shard without its table.
    """
    names = (name for name in dataset_files(plan, out) if os.path.splitext(name)[0] not in kept)
    in_order = (
        MANIFEST_NAME,
        STAMPS_NAME,
        *sorted(names, key=lambda name: name.endswith(".parquet")),
    )
    return tuple(name for name in in_order if _exists(os.path.join(out, name)))


def remove_outdated(out: str, resumable: Resumable) -> None:
    """Remove the files that this run writes again."""
    for name in resumable.outdated:
        storage.remove(os.path.join(out, name))


def _shard_file(result: ShardResult) -> File | None:
    return result.shard.file if result.shard else None


def _source_images(source: Source, shard: ShardPlan) -> SourceImages:
    paths = source.path.take(shard.rows).to_pylist()
    sizes = source.size[shard.rows].tolist()
    label_images = (
        source.extra.take(shard.rows).to_pylist() if source.label_type in MASK_TYPES else None
    )
    locations = locations_of(source.location, shard.rows)
    return SourceImages(source.root, paths, sizes, locations, source.label_type, label_images)


def _replaced_error(out: str, path: str, options: Options) -> CallError:
    if options.changes_images:
        message = (
            f"images of the source, {printable(path)} or others of its shard, may have been"
            " replaced"
        )
    else:
        message = f"image {printable(path)} of the source was replaced"
    return CallError(
        f"--out {printable(out)} is complete, but {message} since",
        hint="make the dataset again with --overwrite, or choose another folder",
    )


def _exists(path: str) -> bool:
    """Return whether there is a file, or a link, of this name."""
    return storage.is_file(path) if is_url(path) else os.path.lexists(path)
