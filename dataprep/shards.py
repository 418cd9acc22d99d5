"""One shard: read its images, inspect, write, index, table, read back, publish. It must never know of another shard.

Arrow is imported only where a table is made, so that a worker can begin at once.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from awscrt.checksums import combine_crc32c, crc32c

from dataprep import formats, storage
from dataprep.images.base import MAX_BYTES, Rejected
from dataprep.images.validate import inspect
from dataprep.options import CHANGE_COLUMNS, Options
from manifests.errors import SourceVanishedError, StorageError
from manifests.schema import UNREADABLE, Conversion, File, Shard, TableMetadata
from manifests.store import build_table, checksum_text, write_table

if TYPE_CHECKING:
    from dataprep.images.downscale import Prepared


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
    extra: Any  # an Arrow table; none where the source has no further columns


class ShardResult(NamedTuple):
    """A shard that is on the disk.

    Attributes:
        name: the shard's name without suffix.
        shard: its files; none where every one of its images was rejected.
        images: how many images were read for it, rejected ones included.
        bytes: their total length.
        formats: image formats in it.
        rejected: rows for ``rejected.jsonl``.
        changes: for each value of the column ``change``: samples, their bytes as they came, and as they are stored.
        resumed: whether an earlier run wrote it.

    """

    name: str
    shard: Shard | None
    images: int
    bytes: int
    formats: tuple[str, ...]
    rejected: list[dict[str, str]]
    changes: Mapping[str, Sequence[int]]
    resumed: bool = False


def write_shard(task: ShardTask) -> ShardResult:
    """Write one shard with its index and table, read it back, and publish the three.

    Raises:
        SourceVanishedError: an image is gone, or was changed, since the scan.
        StorageError: the output cannot be written, or what is read back is not what was written.

    """
    suffix = formats.FORMATS[task.options.fmt].SUFFIX
    paths = [os.path.join(task.out, task.name + end) for end in (suffix, ".idx", ".parquet")]
    try:
        return _write_shard(task, paths)
    except BaseException:
        storage.discard(paths)
        raise


class _Written(NamedTuple):
    """A shard as it was meant to be: what is in it, and what the file must be."""

    file: File
    drafts: list[formats.PendingSample]
    offsets: list[int]
    lines: list[str]
    rows: list[int]
    rejected: list[dict[str, str]]


def _write_shard(task: ShardTask, paths: list[str]) -> ShardResult:
    shard_path, index_path, table_path = paths
    written = _write_records(task, shard_path)
    if written.drafts:
        _check_first(task, written, storage.partial_path(shard_path))
    index = formats.FORMATS[task.options.fmt].index_bytes(written.lines)
    index_file = File(os.path.basename(index_path), len(index), checksum_text(crc32c(index)))
    conversion = Conversion(
        plan=task.fingerprint,
        samples=len(written.drafts),
        images=len(task.keys),
        bytes=sum(max(size, 0) for size in task.sizes),
        formats=tuple(sorted({draft.info.format for draft in written.drafts})),
        shard=written.file,
        index=index_file,
        rejected=tuple(written.rejected),
        changes=_changes(task, written) if task.options.alters else None,
    )
    with storage.translate_errors(table_path, "write"):
        with open(storage.partial_path(index_path), "wb") as out:
            out.write(index)
        write_table(build_table(_columns(task, written), TableMetadata(conversion)), storage.partial_path(table_path))
    table = storage.describe(task.out, os.path.basename(storage.partial_path(table_path)))
    shard = None
    if written.drafts:
        table = replace(table, name=os.path.basename(table_path))
        shard = Shard(written.file, len(written.drafts), index_file, table)
    else:  # DALI refuses an empty shard; the table alone says that this one is done
        storage.discard(paths[:2])
        paths = paths[2:]
    storage.publish(paths)
    return ShardResult(
        task.name,
        shard,
        conversion.images,
        conversion.bytes,
        conversion.formats,
        written.rejected,
        conversion.changes or {},
    )


def _changes(task: ShardTask, written: _Written) -> dict[str, tuple[int, int, int]]:
    totals: dict[str, tuple[int, int, int]] = {}
    for row, draft in zip(written.rows, written.drafts, strict=True):
        samples, before, after = totals.get(draft.extra["change"], (0, 0, 0))
        totals[draft.extra["change"]] = (samples + 1, before + task.sizes[row], after + draft.size)
    return totals


def _columns(task: ShardTask, written: _Written) -> dict[str, Any]:
    drafts = zip(*written.drafts, strict=True) if written.drafts else [()] * 8
    keys, labels, _, infos, sizes, crcs, sources, extras = drafts
    extra = task.extra.take(written.rows) if task.extra is not None else None
    return {
        "key": keys,
        "label": labels,
        "offset": written.offsets,
        "size": sizes,
        "width": [info.width for info in infos],
        "height": [info.height for info in infos],
        "source": sources,
        "crc32c": crcs,
        **({name: extra[name] for name in extra.column_names} if extra is not None else {}),
        **({name: [further[name] for further in extras] for name in CHANGE_COLUMNS} if task.options.alters else {}),
    }


def _write_records(task: ShardTask, path: str) -> _Written:
    """Write every image that passes, and read every byte back.

    Raises:
        StorageError: what was read back is not what was written.

    """
    with storage.translate_errors(path, "write"):
        handle = os.open(storage.partial_path(path), os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
    try:
        return _write_into(handle, task, path)
    finally:
        os.close(handle)


def _write_into(handle: int, task: ShardTask, path: str) -> _Written:
    record_format = formats.FORMATS[task.options.fmt]
    written = _Written(File(os.path.basename(path), 0, None), [], [], [], [], [])
    extras = [{}] * len(task.keys) if task.extra is None else task.extra.to_pylist()
    prepare = preparation(task.options)
    reader = storage.ReadBack(handle)
    crc = position = 0
    for row, (source, size) in enumerate(zip(task.paths, task.sizes, strict=True)):
        try:
            data = read_image(task.root, source, size)
            if prepare is None:
                info, extra = inspect(data, task.options.validate, task.options.max_pixels), extras[row]
            else:
                data, info, further = prepare(data, task.options)
                extra = {**extras[row], **further}
        except Rejected as error:
            written.rejected.append({"source": source, "reason": error.reason, "detail": error.detail})
            continue
        image_crc, stored = crc32c(data), len(data)
        draft = formats.PendingSample(
            task.keys[row], task.labels[row], task.class_names[row], info, stored, image_crc, source, extra
        )
        head, tail = frame = record_format.frame(draft)
        length = _append(handle, (head, data, tail), path)
        # The three parts' checksums combine into the file's, so that the image is read but once.
        crc = crc32c(tail, combine_crc32c(crc32c(head, crc), image_crc, stored))
        written.drafts.append(draft)
        written.offsets.append(position + len(head))
        written.lines.append(record_format.index_line(position, draft, frame))
        written.rows.append(row)
        position += length
        if position - reader.position > READ_BACK:
            reader.advance(position)
    position += _append(handle, (record_format.END,), path)
    crc = crc32c(record_format.END, crc)
    with storage.translate_errors(path, "read"):
        reader.advance(position)
    if reader.crc != crc:
        raise _not_as_written(path)
    return written._replace(file=File(os.path.basename(path), position, checksum_text(crc)))


def preparation(options: Options) -> Callable[[bytes, Options], Prepared] | None:
    """Give what an image goes through that may be stored otherwise than it came; none where none may."""
    if not options.alters:
        return None
    from dataprep.images.downscale import prepare  # imaging libraries take their time, and most runs need none

    return prepare


#: Bytes after which the last of a shard is read back, while the processor's cache still has them.
READ_BACK = 1 << 20


def _append(handle: int, buffers: tuple[bytes, ...], path: str) -> int:
    try:
        return storage.write_all(handle, buffers)
    except OSError:
        with storage.translate_errors(path, "write"):
            raise


def _check_first(task: ShardTask, written: _Written, path: str) -> None:
    """Read the first record as any reader would, and compare it with what was meant."""
    record_format = formats.FORMATS[task.options.fmt]
    with storage.open_view(path) as (view, size):
        want = formats.ScanOptions(formats.components(task.options.fmt, task.options.store))
        record = next(record_format.scan(view, size, path, want))
    draft = written.drafts[0]
    found = (record.image, record.size, record.line, record.label, record.key or draft.key)
    if found != (written.offsets[0], draft.size, written.lines[0], draft.label, draft.key):
        raise _not_as_written(path)


def _not_as_written(path: str) -> StorageError:
    return StorageError("what was read back is not what was written", file=path, hint="check the disk and the memory")


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
            # A pipe or a device had no length at the scan; files that have one need not be asked again.
            if size <= 0 and (size == UNREADABLE or not stat.S_ISREG(os.fstat(handle).st_mode)):
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
            hint="bring the source back and run the same command again; finished shards are kept",
        ) from None
    if len(data) != size:
        raise SourceVanishedError(
            f"had {size} bytes at the scan and has {'more' if len(data) > size else len(data)} now",
            file=path,
            hint="wait until nothing writes to the source, then run again with --overwrite",
        )
    return data
