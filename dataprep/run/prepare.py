"""What earlier runs left in the output folder: what to keep, to replace, and to leave alone.

If the times of source images changed, or if the user asks for it, finished shards and their source
images (the images of the samples, and their masks or depth maps) are read again.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow.compute as pc
from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.containers import Location, SourceImages
from dataprep.engines import Engine
from dataprep.formats import FORMATS
from dataprep.images.base import Rejected
from dataprep.ledger.finished import (
    STAMPS_NAME,
    dataset_files,
    foreign_files,
    has_all_of,
    is_final,
    is_intact,
    listed_files,
    lists_everything,
    read_finished,
    read_rejected,
    read_stamps,
    stamps_of,
)
from dataprep.ledger.state import Folder, State, inspect
from dataprep.options import Options
from dataprep.plan.assign import ConversionPlan, ShardPlan
from dataprep.plan.mismatch import foreign_file_error
from dataprep.progress import REPORTED_IMAGES, Progress, report_images
from dataprep.run.source import refuse_appended, refuse_folders
from dataprep.shards.source_image import load_image, load_label_image
from dataprep.shards.write import ShardResult
from dataprep.sources import Source
from dataprep.storage.partials import JOURNAL_NAME
from manifests.errors import CallError, TableError
from manifests.labels import MASK_SOURCE, LabelType
from manifests.process.text import plural, printable
from manifests.schema import Conversion, File
from manifests.store import (
    MANIFEST_NAME,
)
from manifests.tables import read_table


@dataclass(frozen=True, slots=True)
class RereadTask:
    """A finished shard to read again.

    Attributes:
        out: the output folder.
        name: the shard's file name without extension.
        file: the shard, if its checksum is to be compared.
        images: the source images in the order of the plan, if they are to be compared.
        label_type: what the labels are.
        label_images: for each image, the columns that say where its mask or depth map is; `None` for
            other labels.
        conversion: the metadata in the shard's sample table.
        options: options of the conversion.

    """

    out: str
    name: str
    file: File | None
    images: SourceImages | None
    label_type: LabelType
    label_images: list[dict[str, Any]] | None
    conversion: Conversion
    options: Options


@dataclass(frozen=True, slots=True)
class Reread:
    """What was found.

    Attributes:
        name: the shard's file name without extension.
        is_damaged: whether the shard has another checksum.
        replaced: a source image, mask or depth map that is not the one in the shard; `None` if all
            are.

    """

    name: str
    is_damaged: bool = False
    replaced: str | None = None


def reread(task: RereadTask) -> Reread:
    """Compare a shard with its checksum, and the source images with theirs.

    Raises:
        SourceVanishedError: an image is gone.

    """
    if task.file is not None and storage.describe(task.out, task.file.name) != task.file:
        return Reread(task.name, is_damaged=True)
    return Reread(task.name, replaced=_find_replaced(task, task.images) if task.images else None)


def _find_replaced(task: RereadTask, images: SourceImages) -> str | None:
    """Return the path of the first image, mask or depth map that is not the one in the shard.

    `None` if all are.

    If the options change images, return the first path: the checksums in the table are then not
    those of the source.
    """
    if task.options.changes_images:
        return images.paths[0]
    try:
        stored = _stored(task)
    except TableError:
        return images.paths[0]
    reasons = {row["source"]: row["reason"] for row in task.conversion.rejected}
    # Only the bytes matter of an image that was valid.
    unchecked = replace(task.options, validate="none")
    nothing: list[dict[str, Any] | None] = [None] * len(images.paths)
    label_images: Sequence[dict[str, Any] | None] = task.label_images or nothing
    samples = zip(images.paths, images.sizes, images.locations, label_images, strict=True)
    for number, (path, size, location, label_image) in enumerate(samples):
        if number % REPORTED_IMAGES == REPORTED_IMAGES - 1:
            report_images(task.name, REPORTED_IMAGES)
        options = unchecked if path in stored else task.options
        try:
            found = _checksums(task, images.root, path, size, options, location, label_image)
        except Rejected as error:
            is_same = path not in stored and error.reason == reasons.get(path)
        else:
            is_same = stored.get(path) == found
            if label_image is not None and not is_same and stored.get(path, ())[:1] == found[:1]:
                return str(label_image[MASK_SOURCE])
        if not is_same:
            return path
    return None


def _stored(task: RereadTask) -> dict[str, tuple[int, ...]]:
    """Return the checksum of each image in the shard, and of its mask or depth map, by the path of the image."""
    columns = ["crc32c", *(["mask_crc32c"] if task.label_images else [])]
    path = os.path.join(task.out, f"{task.name}.parquet")
    table = read_table(path, ["source", *columns], label_type=task.label_type)
    values = zip(*(table[name].to_pylist() for name in columns), strict=True)
    return dict(zip(table["source"].to_pylist(), values, strict=True))


def _checksums(  # noqa: PLR0917
    task: RereadTask,
    root: str,
    path: str,
    size: int,
    options: Options,
    location: Location | None,
    label_image: Mapping[str, Any] | None,
) -> tuple[int, ...]:
    data, *_, placement = load_image(
        root, path, size, options, location, placed=label_image is not None
    )
    if label_image is None or placement is None:
        return (crc32c(data),)
    mask = load_label_image(
        root, label_image, placement, options, location, label_type=task.label_type
    )
    return crc32c(data), crc32c(mask)


# --- what earlier runs left -----------------------------------------------------------------------


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Resumable:
    """What a run finds in the output folder.

    Attributes:
        shards: finished shards of this plan, by name. They are kept.
        outdated: names of files to remove before shards are written, the manifest first.
        is_complete: whether all shards are finished and the manifest of this plan exists.
        stamps: what `ledger.finished.write_stamps` is to record; empty if nothing new is known.

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
    refuse_folders(out, (MANIFEST_NAME, JOURNAL_NAME, STAMPS_NAME, *dataset_files(plan, out)))
    folder = inspect(out, plan.fingerprint)
    in_manifest = folder.files
    if not overwrite:
        refuse_appended(folder)
        _refuse_grown(source, folder, options)
    kept = _intact_shards(plan, folder, options, overwrite=overwrite)
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


def _refuse_grown(source: Source, folder: Folder, options: Options) -> None:
    """Check that a source has not grown since the dataset was made from it.

    Raises:
        CallError: it has.

    """
    if folder.state is not State.COMPLETE or folder.files:
        return
    manifest = folder.manifest
    made_with = {name: value for name, value in manifest.options.items() if name != "plan"}
    shards = manifest.shards
    if made_with != options.as_json() or not shards:
        return
    rejected = sum(1 for _ in read_rejected(folder.out)) if manifest.rejected else 0
    before = rejected + sum(shard.samples for shard in shards)
    now = len(source) + len(source.rejected)
    path = os.path.join(folder.out, shards[0].table.name)
    if now <= before or not storage.is_file(path):
        return
    try:
        stored = read_table(path, ["source"], label_type=manifest.label_type)["source"]
    except TableError:
        return
    if pc.all(pc.is_in(stored.cast(source.path.type), source.path)).as_py():
        raise CallError(
            f"--out {printable(folder.out)} is complete, but the source has grown since: from"
            f" {before:,} to {plural(now, 'image')}",
            hint=(
                "set --append to add the new images, choose another folder, or make the dataset"
                " again with --overwrite"
            ),
        )


def _intact_shards(
    plan: ConversionPlan, folder: Folder, options: Options, *, overwrite: bool
) -> dict[str, ShardResult]:
    """Return the finished shards of the plan whose files are as their sample tables say, by name.

    Args:
        plan: the plan.
        folder: what was found in the output folder.
        options: options of the conversion.
        overwrite: see `find_resumable`.

    Raises:
        CallError: a file belongs to something else, and `overwrite` does not allow to replace it.

    """
    out, in_manifest = folder.out, folder.files
    names = (shard.name for shard in plan.shards)
    tables = list(
        storage.map_files(
            out, lambda name: read_finished(plan.fingerprint, out, name, in_manifest), names
        )
    )
    listed = listed_files(plan, folder, tables)
    foreign = next(foreign_files(plan, folder, options, listed), None)
    if foreign and not overwrite:
        raise foreign_file_error(out, foreign, options, (MANIFEST_NAME, JOURNAL_NAME))
    resumes = folder.is_of_plan and folder.journal is not None and folder.journal.overwrite
    starts_over = overwrite and not resumes
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

    def tasks() -> Iterator[RereadTask]:
        for shard in shards:
            images, label_images = None, None
            if shard.name in changed:
                images = source.images(shard.rows)
                if source.labels.has_image:
                    label_images = source.extra.take(shard.rows).to_pylist()
            yield RereadTask(
                out=out,
                name=shard.name,
                file=_shard_file(kept[shard.name]) if rereading.shards else None,
                images=images,
                label_type=source.label_type,
                label_images=label_images,
                conversion=kept[shard.name].conversion,
                options=options,
            )

    images = {shard.name: len(shard.rows) for shard in shards}
    engine, progress = rereading.engine, rereading.progress
    if shards and progress:
        progress.start(sum(images.values()), len(shards))
    for result in (
        engine.run(reread, tasks(), len(shards)) if engine and shards else map(reread, tasks())
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
    return tuple(name for name in in_order if storage.exists(os.path.join(out, name)))


def remove_outdated(out: str, resumable: Resumable) -> None:
    """Remove the files that this run writes again."""
    for name in resumable.outdated:
        storage.remove(os.path.join(out, name))


def _shard_file(result: ShardResult) -> File | None:
    return result.shard.file if result.shard else None


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
