"""Scan -> plan -> shards -> manifest, resumable at every moment.

A shard is one task: read, inspect, write, index, table, read back, publish. Its table is renamed last, so
a shard whose table is there is done. The manifest is written when all shards are, so its presence means
that the dataset is whole.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from awscrt.checksums import crc32c

from dataprep import engines, formats, storage
from dataprep.images.base import EXTENSIONS, Rejected
from dataprep.images.validate import inspect
from dataprep.options import Options
from dataprep.plan import Plan, ShardPlan, key_of, make_plan
from dataprep.progress import Progress
from dataprep.resume import check_output, find_resumable, remove_outdated
from dataprep.shards import ShardResult, ShardTask, preparation, read_image, write_shard
from dataprep.sources import Source
from manifests.errors import CallError
from manifests.schema import Components, Manifest, Split
from manifests.store import MANIFEST_NAME, REJECTED_NAME, manifest_bytes, read_manifest, rejected_bytes
from manifests.text import printable


@dataclass(frozen=True)
class ConvertResult:
    """What `convert_dataset` did, earlier runs of it included.

    Attributes:
        manifest: of the whole dataset.
        images: how many there were to be read, rejected ones included.
        bytes: of all that were read.
        resumed: shards that an earlier run wrote.
        rejected: images that were not written.
        changes: for each value of the column ``change``: samples, their bytes as they came, and as they are stored.

    """

    manifest: Manifest
    images: int
    bytes: int
    resumed: int
    rejected: int
    changes: Mapping[str, Sequence[int]]


def convert_dataset(
    source: Source,
    out: str,
    options: Options,
    *,
    workers: int | None = None,
    engine: engines.Engine | None = None,
    overwrite: bool = False,
    progress: Progress[ShardResult] | None = None,
) -> ConvertResult:
    """Write a source's images into shards, with index, table and manifest, in the folder `out`.

    What an earlier run of the same source and options committed is kept. The bytes of every file depend on
    neither the number of workers nor on how often the work was interrupted.

    Args:
        source: samples to prepare.
        out: folder to write into; made where it is missing.
        options: all that decides the bytes.
        workers: processes; as many as there are processors where none is given.
        engine: where to work instead; its processes may have been started already, by a thread that
            lives as long. It is closed at the end.
        overwrite: remove what an earlier run with other options left in `out`.
        progress: receives the number of images, then each finished shard, including those of earlier runs.

    Raises:
        CallError: `out` holds something else.
        StoppedError: the machine stopped the work; the same call goes on.

    """
    check_output(source, out)
    plan = make_plan(source, options)
    _make_folder(out)
    done: dict[str, ShardResult] = {}
    engine = engine or engines.LocalEngine(workers)
    with storage.locked(out), storage.clean_partials([out]), closing(engine):
        found = find_resumable(plan, source, out, options, overwrite=overwrite)
        remove_outdated(out, found)
        if progress:
            progress.start(len(source))
        left = [shard for shard in plan.shards if shard.name not in found.shards]
        tasks = (_task(source, plan, shard, out, options) for shard in left)
        with closing(engine.run(write_shard, tasks, len(left))) as written:
            for shard in chain(found.shards.values(), written):
                done[shard.name] = shard
                if progress:
                    progress.advance(shard)
        manifest = _finish(plan, source, out, options, done)
    rejected = len(source.rejected) + sum(len(shard.rejected) for shard in done.values())
    return ConvertResult(
        manifest,
        images=len(source) + len(source.rejected),
        bytes=sum(shard.bytes for shard in done.values()),
        resumed=len(found.shards),
        rejected=rejected,
        changes=_sum_changes(done.values()),
    )


def _sum_changes(shards: Iterable[ShardResult]) -> dict[str, list[int]]:
    totals: dict[str, list[int]] = {}
    for shard in shards:
        for change, counts in shard.changes.items():
            totals[change] = [sum(pair) for pair in zip(totals.get(change, (0, 0, 0)), counts, strict=True)]
    return totals


def _make_folder(out: str) -> None:
    try:
        os.makedirs(out, exist_ok=True)
    except OSError as error:
        hint = "make its parent writable for this user, or choose another folder with --out"
        raise CallError(f"--out {printable(out)}: cannot make the folder ({error.strerror})", hint=hint) from None


def _task(source: Source, plan: Plan, shard: ShardPlan, out: str, options: Options) -> ShardTask:
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
    )


# --- the end ------------------------------------------------------------------------------------


def _finish(plan: Plan, source: Source, out: str, options: Options, done: dict[str, ShardResult]) -> Manifest:
    """Write ``rejected.jsonl`` and the manifest, the manifest last."""
    ordered = [done[shard.name] for shard in plan.shards]
    rows = sorted((*source.rejected, *(row for shard in ordered for row in shard.rejected)), key=_by_source)
    rejected = None
    if rows:
        storage.replace_file(os.path.join(out, REJECTED_NAME), rejected_bytes(rows))
        rejected = storage.describe(out, REJECTED_NAME)
    else:
        storage.remove(os.path.join(out, REJECTED_NAME))
    components = _components(options, {kind for shard in ordered for kind in shard.formats})
    splits = tuple(
        Split(name, tuple(done[s.name].shard for s in plan.shards if s.split == name and done[s.name].shard))  # type: ignore[misc]
        for name in plan.splits
    )
    manifest = Manifest(
        creator="convert",
        format=options.fmt,
        store=options.store,
        components=components,
        classes=source.classes,
        splits=splits,
        rejected=rejected,
        options={**options.as_json(), "plan": plan.fingerprint},
        pixels=options.raw.pixels if options.raw else None,
    )
    data = manifest_bytes(manifest)
    path = os.path.join(out, MANIFEST_NAME)
    for shard in ordered:
        if shard.shard is None:  # it only said that every one of its images was rejected
            storage.remove(os.path.join(out, f"{shard.name}.parquet"))
    if _content(path) != data:
        storage.replace_file(path, data)
    return read_manifest(out)


def _by_source(row: dict[str, str]) -> str:
    return row["source"]


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CallError(f"--out: {printable(path)} cannot be read ({error.strerror})", hint="move it away") from None


def _components(options: Options, kinds: set[str]) -> Components:
    """Name in the manifest only those extensions that occur."""
    components = formats.components(options.fmt, options.store)
    if options.fmt == "webdataset" and options.store == "encoded":
        return replace(components, image=tuple(EXTENSIONS[kind] for kind in EXTENSIONS if kind in kinds) or ("jpg",))
    return components


# --- the dry run --------------------------------------------------------------------------------


class Trial(NamedTuple):
    """Some images done as a worker would.

    Attributes:
        rate: images a second for one worker.
        tried: how many there were.
        stored: mean bytes of one as it would be stored.

    """

    rate: float
    tried: int
    stored: float


def try_some(source: Source, shards: Sequence[ShardPlan], options: Options, seconds: float = 1.0) -> Trial:
    """Read, inspect, alter and frame images as a worker would, for about `seconds`, writing nothing."""
    record_format, prepare = formats.FORMATS[options.fmt], preparation(options)
    begun = time.perf_counter()
    tried = kept = stored = 0
    for path, size in _spread(source, shards):
        try:
            data = read_image(source.root, path, size)
            if prepare is None:
                info = inspect(data, options.validate, options.max_pixels)
            else:
                data, info, _ = prepare(data, options)
            record_format.frame(formats.PendingSample("0", 0, "", info, len(data), crc32c(data), path, {}))
            kept, stored = kept + 1, stored + len(data)
        except Rejected:
            pass
        tried += 1
        if time.perf_counter() - begun > seconds:
            break
    return Trial(tried / max(time.perf_counter() - begun, 1e-9), tried, stored / max(kept, 1))


def _spread(source: Source, shards: Sequence[ShardPlan]) -> Iterator[tuple[str, int]]:
    for turn in range(2000):  # one of each shard in turn
        for row in (int(shard.rows[turn]) for shard in shards if turn < len(shard.rows)):
            yield source.path[row].as_py(), int(source.size[row])
