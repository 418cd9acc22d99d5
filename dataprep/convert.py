"""Convert a source into a dataset: make the plan, write its shards in parallel, then write the manifest.

Every step can be interrupted and resumed. A shard is done when its sample table has its final name, and the dataset
is complete when ``manifest.json`` exists.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain

from dataprep import storage
from dataprep.completion import mark_complete, mark_incomplete
from dataprep.containers import locations_of
from dataprep.engines import Engine, LocalEngine
from dataprep.formats import components
from dataprep.images.base import EXTENSIONS, FAILED
from dataprep.machines import check_machines
from dataprep.options import Options
from dataprep.output import check_output
from dataprep.plan import ConversionPlan, ShardPlan, key_of, make_plan
from dataprep.progress import Progress
from dataprep.reread import Reread
from dataprep.resume import Resumable, find_resumable, remove_outdated
from dataprep.shards import ShardResult, ShardTask, divides, useful_workers, write_shard
from dataprep.sources import Source
from dataprep.stamps import write_stamps
from manifests.errors import CallError
from manifests.schema import Components, File, Manifest, Split
from manifests.store import REJECTED_NAME, read_manifest, rejected_bytes
from manifests.text import printable


@dataclass(frozen=True)
class ConvertResult:
    """The dataset in the output folder, and totals that include the shards of earlier runs.

    Attributes:
        manifest: manifest of the dataset.
        images: number of images in the source, including rejected ones.
        bytes: total size of the images that were read, in bytes.
        resumed: number of shards that earlier runs wrote.
        rejected: number of images that were not written.
        changes: for each value of the column ``change``: number of samples, their total size in bytes in the source,
            and as stored. Empty if the options store every image unchanged.
        notices: messages about the new splits, one line each.
        failed: the rows of ``rejected.jsonl`` with the reason ``"failed"``: dataprep itself failed on these images.

    """

    manifest: Manifest
    images: int
    bytes: int
    resumed: int
    rejected: int
    changes: Mapping[str, tuple[int, int, int]]
    failed: tuple[Mapping[str, str], ...] = ()
    notices: tuple[str, ...] = ()


def convert_dataset(
    source: Source,
    out: str,
    options: Options,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    overwrite: bool = False,
    check_shards: bool = False,
    progress: Progress[ShardResult] | None = None,
    check_progress: Progress[Reread] | None = None,
) -> ConvertResult:
    """Write the images of a source into shards, with indexes, sample tables and a manifest, in the folder `out`.

    Shards that an earlier run with the same source and options finished are kept. The bytes of every file depend
    neither on the number of workers nor on interruptions, except for `stamps.STAMPS_NAME`.

    Args:
        source: the samples to convert.
        out: output folder; created if it does not exist.
        options: everything that determines the bytes.
        workers: number of processes; `None` means one per CPU.
        engine: runs the shard tasks instead of a new `LocalEngine`. Its workers may already be running; the thread
            that started them must live until this call returns. The engine is closed at the end.
        overwrite: start anew, and replace a dataset in `out` that was made from another source or with other options.
            Resumes only a run that was itself started with `overwrite`.
        check_shards: read the shards that an earlier run finished, and write those with another checksum again. The
            checksums of indexes and tables are always compared.
        progress: receives the number of images, then each finished shard, including those of earlier runs.
        check_progress: receives the number of finished shards that are read again, and then each of them: all with
            `check_shards`, and those whose source images have other times than in the earlier run.

    Raises:
        CallError: the options do not fit the source, `out` cannot be used or contains another dataset, or its dataset
            is complete and images were replaced since.
        StoppedError: a problem outside of the program stopped the run; the same call resumes it.

    """
    check_output(source, out)
    plan = make_plan(source, options)
    _make_folder(out)
    engine = engine or LocalEngine(workers)
    with ExitStack() as stack:
        stack.enter_context(closing(engine))
        is_locked = stack.enter_context(storage.locked(out))
        storage.check_partials([out])
        resumable = find_resumable(
            source,
            plan,
            out,
            options,
            overwrite=overwrite,
            check_shards=check_shards,
            engine=engine if engine.is_local else None,
            progress=check_progress,
        )
        if not resumable.is_complete or resumable.stamps or storage.has_partials(out):
            stack.enter_context(storage.partials([out], is_locked=is_locked))
            _prepare_folder(out, plan, options, resumable, overwrite=overwrite, is_locked=is_locked)
        if progress:
            progress.start(len(source))
        if not resumable.is_complete:
            check_machines(engine, source, out)
        remaining = [shard for shard in plan.shards if shard.name not in resumable.shards]
        tasks = (
            _shard_task(source, out, options, plan, shard, divided=divides(options, len(remaining) - n, engine.workers))
            for n, shard in enumerate(remaining)
        )
        images = sum(len(shard.rows) for shard in remaining)
        results: dict[str, ShardResult] = {}
        with closing(engine.run_with_pool(write_shard, tasks, useful_workers(len(remaining), images))) as written:
            for result in chain(resumable.shards.values(), written):
                results[result.name] = result
                if progress:
                    progress.advance(result)
        in_order = [results[shard.name] for shard in plan.shards]
        manifest = read_manifest(out) if resumable.is_complete else _finish(source, out, options, plan, in_order)
    return ConvertResult(
        manifest,
        images=len(source) + len(source.rejected),
        bytes=sum(result.conversion.bytes for result in in_order),
        resumed=len(resumable.shards),
        rejected=len(source.rejected) + sum(len(result.conversion.rejected) for result in in_order),
        changes=_sum_changes(in_order),
        failed=tuple(row for result in in_order for row in result.conversion.rejected if row["reason"] == FAILED),
        notices=plan.notices,
    )


def _make_folder(out: str) -> None:
    try:
        os.makedirs(out, exist_ok=True)
    except OSError as error:
        hint = "make its parent writable for this user, or choose another folder with --out"
        raise CallError(f"--out {printable(out)}: the folder cannot be made ({error.strerror})", hint=hint) from None


def _prepare_folder(
    out: str, plan: ConversionPlan, options: Options, resumable: Resumable, *, overwrite: bool, is_locked: bool
) -> None:
    """Remove what this run replaces. Every kill in between leaves a folder that the same call can resume."""
    if not resumable.is_complete:
        mark_incomplete(out, plan, options, overwrite=overwrite)
    remove_outdated(out, resumable)
    if resumable.stamps:  # after the old shards are gone, which have other stamps
        write_stamps(out, plan, resumable.stamps)
    storage.sweep(out, is_locked=is_locked)  # only now: a table among them can prove whose an outdated shard is


def _shard_task(
    source: Source, out: str, options: Options, plan: ConversionPlan, shard: ShardPlan, *, divided: bool
) -> ShardTask:
    labels = source.label[shard.rows].tolist()
    return ShardTask(
        out=out,
        name=shard.name,
        root=source.root,
        options=options,
        fingerprint=plan.fingerprint,
        keys=[key_of(row) for row in shard.rows.tolist()],
        paths=source.path.take(shard.rows).to_pylist(),
        sizes=source.size[shard.rows].tolist(),
        labels=labels,
        class_names=[source.classes[label] for label in labels],
        extra=source.extra.take(shard.rows) if source.extra.num_columns else None,
        locations=locations_of(source.location, shard.rows),
        divided=divided,
    )


# --- after the last shard -----------------------------------------------------------------------


def _finish(
    source: Source, out: str, options: Options, plan: ConversionPlan, results: Sequence[ShardResult]
) -> Manifest:
    """Write ``rejected.jsonl`` and the manifest, the manifest last."""
    rejected = _write_rejected(source, out, results)
    for result in results:
        if result.shard is None:  # this table only recorded, for a resumed run, that every image was rejected
            storage.remove(os.path.join(out, result.table.name))
    mark_complete(out, _build_manifest(source, options, plan, results, rejected))
    return read_manifest(out)


def _write_rejected(source: Source, out: str, results: Sequence[ShardResult]) -> File | None:
    rows = [*source.rejected, *(row for result in results for row in result.conversion.rejected)]
    path = os.path.join(out, REJECTED_NAME)
    if not rows:
        storage.remove(path)
        return None
    storage.replace_file(path, rejected_bytes(sorted(rows, key=lambda row: row["source"])))
    return storage.describe(out, REJECTED_NAME)


def _build_manifest(
    source: Source, options: Options, plan: ConversionPlan, results: Sequence[ShardResult], rejected: File | None
) -> Manifest:
    shards = {result.name: result.shard for result in results}
    return Manifest(
        creator="convert",
        format=options.fmt,
        store=options.store,
        components=_components(options, {name for result in results for name in result.conversion.formats}),
        classes=source.classes,
        splits=tuple(
            Split(
                name,
                tuple(shard for planned in plan.shards if planned.split == name and (shard := shards[planned.name])),
            )
            for name in plan.splits
        ),
        rejected=rejected,
        options={**options.as_json(), "plan": plan.fingerprint},
        pixels=options.raw.pixels if options.raw else None,
    )


def _components(options: Options, image_formats: set[str]) -> Components:
    """Return where records store image and label; of the image extensions, only those that the shards contain."""
    all_components = components(options.fmt, options.store)
    if options.fmt != "webdataset" or options.store != "encoded":
        return all_components
    extensions = tuple(extension for name, extension in EXTENSIONS.items() if name in image_formats)
    return replace(all_components, image=extensions or ("jpg",))


def _sum_changes(results: Iterable[ShardResult]) -> dict[str, tuple[int, int, int]]:
    totals: dict[str, tuple[int, int, int]] = {}
    for result in results:
        for change, (samples, before, after) in (result.conversion.changes or {}).items():
            total = totals.get(change, (0, 0, 0))
            totals[change] = (total[0] + samples, total[1] + before, total[2] + after)
    return totals
