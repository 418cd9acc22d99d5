"""Scan -> plan -> shards -> manifest, resumable at every moment.

A shard is one task: read, inspect, write, index, table, read back, publish. Its table is renamed last, so
a shard whose table is there is done. The manifest is written when all shards are, so its presence means
that the dataset is whole.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from awscrt.checksums import combine_crc32c, crc32c

from dataprep import engines, formats, storage
from dataprep.images import EXTENSIONS, MAX_BYTES, Rejected, inspect
from dataprep.plan import Options, Plan, ShardPlan, key_of, make_plan
from manifests.errors import (
    CallError,
    DatasetError,
    ManifestError,
    SourceVanishedError,
    StorageError,
    TableError,
    printable,
)
from manifests.schema import SPLIT_NAMES, Components, File, Manifest, Shard, Split
from manifests.sources import UNREADABLE, Source
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    build_table,
    checksum_text,
    has_no_other_manifest,
    is_as_written,
    manifest_bytes,
    read_manifest,
    read_table_metadata,
    rejected_bytes,
    write_table,
)


class ShardTask(NamedTuple):
    """All that a worker needs to write one shard; columns hold a value a sample, in stored order."""

    out: str
    name: str
    root: str
    options: Options
    fingerprint: str
    keys: list[str]
    paths: list[str]
    sizes: list[int]
    labels: list[int]
    class_names: list[str]
    extra: Any  # an Arrow table


class Done(NamedTuple):
    """A shard that is on the disk.

    Attributes:
        name: the shard's name without suffix.
        shard: its files; none where every one of its images was rejected.
        images: how many images were read for it, rejected ones included.
        bytes: their total length.
        formats: image formats in it.
        rejected: rows for ``rejected.jsonl``.

    """

    name: str
    shard: Shard | None
    images: int
    bytes: int
    formats: tuple[str, ...]
    rejected: list[dict[str, str]]


Progress = Callable[[Done], None]


@dataclass(frozen=True)
class Result:
    """What `convert` did: the manifest, and how many images were read, written and rejected."""

    manifest: Manifest
    images: int
    resumed: int
    rejected: int


def convert(
    source: Source,
    out: str,
    options: Options,
    *,
    workers: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Write a source's images into shards, with index, table and manifest, in the folder `out`.

    What an earlier run of the same source and options committed is kept. The bytes of every file depend on
    neither the number of workers nor on how often the work was interrupted.

    Args:
        source: samples to prepare.
        out: folder to write into; made where it is missing.
        options: all that decides the bytes.
        workers: processes; as many as there are processors where none is given.
        overwrite: remove what an earlier run with other options left in `out`.
        progress: called with each shard that is done, those of earlier runs included.

    Raises:
        CallError: `out` holds something else.
        StoppedError: the machine stopped the work; the same call goes on.

    """
    check_out(source, out)
    plan = make_plan(source, options)
    try:
        os.makedirs(out, exist_ok=True)
    except OSError as error:
        mend = "make its parent writable for this user, or name another folder with --out"
        raise CallError(f"--out {printable(out)}: cannot make the folder ({error.strerror})", mend=mend) from None
    with storage.locked(out), storage.swept([out]):
        done = _earlier(plan, source, out, options, overwrite)
        resumed = len(done)
        for shard in done.values():
            if progress:
                progress(shard)
        tasks = (_task(source, plan, shard, out, options) for shard in plan.shards if shard.name not in done)
        count = min(workers or engines.default_workers(), len(plan.shards) - resumed)
        with closing(engines.run(write_shard, tasks, count)) as finished:
            for shard in finished:
                done[shard.name] = shard
                if progress:
                    progress(shard)
        manifest = _finish(plan, source, out, options, done)
    rejected = len(source.rejected) + sum(len(shard.rejected) for shard in done.values())
    return Result(manifest, len(source) + len(source.rejected), resumed, rejected)


# --- what an earlier run left ------------------------------------------------------------------


def check_out(source: Source, out: str) -> None:
    """Refuse a folder that cannot be written into, before anything is.

    Raises:
        CallError: it is a file, lies below one, or lies in the folder that is the source.

    """
    path = os.path.abspath(out)
    root = os.path.abspath(source.root)
    if source.scanned and os.path.commonpath([path, root]) == root:
        raise CallError(
            f"--out {printable(out)} lies in {printable(source.root)}, and would be taken for images by the next run",
            mend="name a folder outside",
        )
    there = path
    while not os.path.lexists(there):
        there = os.path.dirname(there)
    if not os.path.isdir(there):
        raise CallError(f"--out {printable(out)}: {printable(there)} is a file", mend="name another folder with --out")


def _earlier(plan: Plan, source: Source, out: str, options: Options, overwrite: bool) -> dict[str, Done]:
    """Find the shards of this very plan that are done; refuse to mix them with another dataset's."""
    planned = {shard.name: shard for shard in plan.shards}
    foreign = "" if has_no_other_manifest(out) else MANIFEST_NAME
    checksums = _table_checksums(plan, out)
    found = ((stem, _committed(plan, out, stem, checksums)) for stem in planned)
    done = {stem: shard for stem, shard in found if shard}
    endings = (formats.get(options.fmt).SUFFIX, ".idx", ".parquet")
    for name in _dataset_files(plan, out):
        shard = planned.get(os.path.splitext(name)[0])
        known = done or checksums or (shard and _is_of(plan, source, shard, os.path.join(out, name), options))
        if not (shard and known and name.endswith(endings)):
            foreign = foreign or name
    if foreign and not overwrite:
        raise CallError(
            f"--out {printable(out)} holds {foreign!r}, which is not of this source with these options",
            mend="name another folder, repeat the earlier options, or replace its dataset with --overwrite",
        )
    if foreign:
        done = {}
    if len(done) < len(planned):
        _clear(plan, out, keep=set(done))
    return done


def _dataset_files(plan: Plan, out: str) -> list[str]:
    """List what a dataset of ours has in OUT by name; whatever else lies there is none of our business."""
    splits = "|".join(map(re.escape, {*SPLIT_NAMES, *plan.splits}))
    ours = re.compile(rf"({splits})-\d{{5,}}\.(tfrecord|tar|idx|parquet)")
    return sorted(name for name in os.listdir(out) if ours.fullmatch(name))


def _table_checksums(plan: Plan, out: str) -> dict[str, str | None]:
    """Give the checksum of each table by name, if a manifest of this plan is there."""
    try:
        manifest = read_manifest(out)
    except ManifestError:
        return {}
    if manifest.options.get("plan") != plan.fingerprint:
        return {}
    return {shard.table.name: shard.table.checksum for split in manifest.splits for shard in split.shards}


def _is_of(plan: Plan, source: Source, shard: ShardPlan, path: str, options: Options) -> bool:
    """Tell by its content whether a file without a sound table is what a stopped run of this plan left."""
    stem, extension = os.path.splitext(path)
    if extension == ".parquet":
        try:
            return bool(read_table_metadata(path).get("plan") == plan.fingerprint)
        except TableError:
            return False
    record_format = formats.get(options.fmt)
    try:
        with storage.window(stem + record_format.SUFFIX) as (view, size):
            record = next(record_format.scan(view, size, path, formats.Want(record_format.COMPONENTS)))
    except (StopIteration, DatasetError):
        return False
    return record.source in source.path.take(shard.rows[:1000]).to_pylist()


def _committed(plan: Plan, out: str, stem: str, checksums: dict[str, str | None]) -> Done | None:
    """Read what a table says of its shard; none unless all of it is as it was written."""
    path = os.path.join(out, f"{stem}.parquet")
    if not os.path.isfile(path):
        return None
    if storage.checksum(path) != checksums.get(f"{stem}.parquet") and not is_as_written(path):
        return None
    metadata = read_table_metadata(path)
    if metadata.get("plan") != plan.fingerprint:
        return None
    if any(row["reason"] == "unreadable" for row in metadata["rejected"]):
        return None  # the file system may give them now
    shard = None
    if metadata["samples"]:
        table = storage.describe(out, f"{stem}.parquet")
        shard = Shard(File(**metadata["shard"]), metadata["samples"], File(**metadata["index"]), table)
        for file in (shard.file, shard.index):
            if _length(os.path.join(out, file.name)) != file.bytes:
                return None
    return Done(stem, shard, metadata["images"], metadata["bytes"], tuple(metadata["formats"]), metadata["rejected"])


def _length(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return -1


def _clear(plan: Plan, out: str, keep: set[str]) -> None:
    """Remove a dataset's files but those of the shards to keep; the manifest first, so that no half looks whole."""
    with storage.explained(out, "clear"):
        for name in (MANIFEST_NAME, REJECTED_NAME, *_dataset_files(plan, out)):
            if os.path.splitext(name)[0] not in keep and os.path.lexists(os.path.join(out, name)):
                os.unlink(os.path.join(out, name))


# --- one shard ----------------------------------------------------------------------------------


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
        extra=source.extra.take(shard.rows),
    )


def write_shard(task: ShardTask) -> Done:
    """Write one shard with its index and table, read it back, and publish the three.

    Raises:
        SourceVanishedError: an image is gone, or was changed, since the scan.
        StorageError: the output cannot be written, or what is read back is not what was written.

    """
    suffix = formats.get(task.options.fmt).SUFFIX
    paths = [os.path.join(task.out, task.name + end) for end in (suffix, ".idx", ".parquet")]
    try:
        return _write_shard(task, paths)
    except BaseException:
        storage.discard(paths)
        raise


class _Written(NamedTuple):
    """A shard as it was meant to be: what is in it, and what the file must be."""

    file: File
    drafts: list[formats.Draft]
    offsets: list[int]
    lines: list[str]
    rows: list[int]
    rejected: list[dict[str, str]]


def _write_shard(task: ShardTask, paths: list[str]) -> Done:
    shard_path, index_path, table_path = paths
    written = _write_records(task, shard_path)
    if written.drafts:
        _check_first(task, written, storage.partial(shard_path))
    index = formats.get(task.options.fmt).index_bytes(written.lines)
    index_file = File(os.path.basename(index_path), len(index), checksum_text(crc32c(index)))
    metadata: dict[str, Any] = {
        "plan": task.fingerprint,
        "samples": len(written.drafts),
        "images": len(task.keys),
        "bytes": sum(max(size, 0) for size in task.sizes),
        "formats": sorted({draft.info.format for draft in written.drafts}),
        "shard": asdict(written.file),
        "index": asdict(index_file),
        "rejected": written.rejected,
    }
    with storage.explained(table_path, "write"):
        with open(storage.partial(index_path), "wb") as out:
            out.write(index)
        write_table(build_table(_columns(task, written), metadata), storage.partial(table_path))
    table = storage.describe(task.out, os.path.basename(storage.partial(table_path)))
    shard = None
    if written.drafts:
        table = replace(table, name=os.path.basename(table_path))
        shard = Shard(written.file, len(written.drafts), index_file, table)
    else:  # DALI refuses an empty shard; the table alone says that this one is done
        storage.discard(paths[:2])
        paths = paths[2:]
    storage.publish(paths)
    return Done(task.name, shard, len(task.keys), metadata["bytes"], tuple(metadata["formats"]), written.rejected)


def _columns(task: ShardTask, written: _Written) -> dict[str, Any]:
    keys, labels, _, infos, sizes, crcs, sources, _ = zip(*written.drafts, strict=True) if written.drafts else [()] * 8
    extra = task.extra if len(written.rows) == len(task.keys) else task.extra.take(written.rows)
    return {
        "key": keys,
        "label": labels,
        "offset": written.offsets,
        "size": sizes,
        "width": [info.width for info in infos],
        "height": [info.height for info in infos],
        "source": sources,
        "crc32c": crcs,
        **{name: extra[name] for name in extra.column_names},
    }


def _write_records(task: ShardTask, path: str) -> _Written:
    """Write every image that passes, and read every byte back.

    Raises:
        StorageError: what was read back is not what was written.

    """
    with storage.explained(path, "write"):
        handle = os.open(storage.partial(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        return _write_into(handle, task, path)
    finally:
        os.close(handle)


def _write_into(handle: int, task: ShardTask, path: str) -> _Written:
    record_format = formats.get(task.options.fmt)
    written = _Written(File(os.path.basename(path), 0, None), [], [], [], [], [])
    extras = task.extra.to_pylist() if task.extra.num_columns else [{}] * len(task.keys)
    reader = storage.ReadBack(handle)
    crc = position = 0
    for row, (source, size) in enumerate(zip(task.paths, task.sizes, strict=True)):
        try:
            data = read_image(task.root, source, size)
            info = inspect(data, task.options.validate, task.options.max_pixels)
        except Rejected as error:
            written.rejected.append({"source": source, "reason": error.reason, "detail": error.detail})
            continue
        image_crc = crc32c(data)
        draft = formats.Draft(
            task.keys[row], task.labels[row], task.class_names[row], info, size, image_crc, source, extras[row]
        )
        head, tail = frame = record_format.frame(draft)
        length = _append(handle, (head, data, tail), path)
        # The three parts' checksums combine into the file's, so that the image is read but once.
        crc = crc32c(tail, combine_crc32c(crc32c(head, crc), image_crc, size))
        written.drafts.append(draft)
        written.offsets.append(position + len(head))
        written.lines.append(record_format.index_line(position, draft, frame))
        written.rows.append(row)
        position += length
        if position - reader.position > READ_BACK:
            reader.advance(position)
    position += _append(handle, (record_format.END,), path)
    crc = crc32c(record_format.END, crc)
    with storage.explained(path, "read"):
        reader.advance(position)
    if reader.crc != crc:
        raise _not_as_written(path)
    return written._replace(file=File(os.path.basename(path), position, checksum_text(crc)))


#: Bytes after which the last of a shard is read back, while the processor's cache still has them.
READ_BACK = 4 << 20


def _append(handle: int, buffers: tuple[bytes, ...], path: str) -> int:
    try:
        return storage.write_all(handle, buffers)
    except OSError:
        with storage.explained(path, "write"):
            raise


def _check_first(task: ShardTask, written: _Written, path: str) -> None:
    """Read the first record as any reader would, and compare it with what was meant."""
    record_format = formats.get(task.options.fmt)
    with storage.window(path) as (view, size):
        record = next(record_format.scan(view, size, path, formats.Want(record_format.COMPONENTS)))
    draft = written.drafts[0]
    found = (record.image, record.size, record.line, record.label, record.key or draft.key)
    if found != (written.offsets[0], draft.size, written.lines[0], draft.label, draft.key):
        raise _not_as_written(path)


def _not_as_written(path: str) -> StorageError:
    return StorageError("what was read back is not what was written", file=path, mend="check the disk and the memory")


_REJECT_ERRNO = (
    errno.EACCES,
    errno.EPERM,
    errno.ELOOP,
    errno.EISDIR,
    errno.ENXIO,
    errno.ENAMETOOLONG,
)


def read_image(root: str, source: str, size: int) -> bytes:
    """Read an encoded image whole.

    Raises:
        Rejected: the file system does not give it, or it is too long.
        SourceVanishedError: it is gone, or has another length than at the scan.

    """
    if size > MAX_BYTES:
        raise Rejected("too-large", f"{size} bytes, the limit is {MAX_BYTES}")
    path = source if source.startswith("/") else f"{root}/{source}"
    try:
        # A pipe of that name must not hold the run up.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if size == UNREADABLE or not stat.S_ISREG(os.fstat(handle).st_mode):
                raise Rejected("unreadable", "no regular file")
            data = os.read(handle, size + 1)
            while 0 < len(data) < size and (more := os.read(handle, size + 1 - len(data))):
                data += more
        finally:
            os.close(handle)
    except OSError as error:
        if size == UNREADABLE or error.errno in _REJECT_ERRNO:
            raise Rejected("unreadable", error.strerror or str(error)) from None
        raise SourceVanishedError(
            f"was there at the scan and cannot be read now ({error.strerror})",
            file=path,
            mend="bring the source back and run the same command again; finished shards are kept",
        ) from None
    if len(data) != size:
        raise SourceVanishedError(
            f"had {size} bytes at the scan and has {'more' if len(data) > size else len(data)} now",
            file=path,
            mend="wait until nothing writes to the source, then run again with --overwrite",
        )
    return data


# --- the end ------------------------------------------------------------------------------------


def _finish(plan: Plan, source: Source, out: str, options: Options, done: dict[str, Done]) -> Manifest:
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
        format=options.fmt,
        store="encoded",
        components=components,
        classes=source.classes,
        splits=splits,
        rejected=rejected,
        options={**options.as_json(), "plan": plan.fingerprint},
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
        raise CallError(f"--out: {printable(path)} cannot be read ({error.strerror})", mend="move it away") from None


def _components(options: Options, kinds: set[str]) -> Components:
    """Name in the manifest only those extensions that occur."""
    components = formats.get(options.fmt).COMPONENTS
    if options.fmt == "webdataset":
        return replace(components, image=tuple(EXTENSIONS[kind] for kind in EXTENSIONS if kind in kinds) or ("jpg",))
    return components


# --- the dry run --------------------------------------------------------------------------------


def measure_rate(source: Source, plan: Plan, options: Options, seconds: float = 1.0) -> tuple[float, int]:
    """Read, inspect and frame images as a worker would, for about `seconds`, writing nothing.

    Returns:
        Images a second for one worker, and how many were tried.

    """
    record_format = formats.get(options.fmt)
    begun = time.perf_counter()
    tried = 0
    for path, size in _spread(source, plan):
        try:
            data = read_image(source.root, path, size)
            info = inspect(data, options.validate, options.max_pixels)
            record_format.frame(formats.Draft("0", 0, "", info, len(data), crc32c(data), path, {}))
        except Rejected:
            pass
        tried += 1
        if time.perf_counter() - begun > seconds:
            break
    return tried / max(time.perf_counter() - begun, 1e-9), tried


def _spread(source: Source, plan: Plan) -> Iterator[tuple[str, int]]:
    for turn in range(2000):  # one of each shard in turn
        for row in (int(shard.rows[turn]) for shard in plan.shards if turn < len(shard.rows)):
            yield source.path[row].as_py(), int(source.size[row])
