"""Check a prepared dataset: read every file, and report what is wrong, where, and how to fix it.

No file is changed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import partial

from dataprep import engines, storage
from dataprep.ledger.journal import own_files, read_journal, unlisted_files
from dataprep.options import HASHES_NAME
from dataprep.plan.files import has_append_plan
from dataprep.progress import Progress
from dataprep.storage.partials import JOURNAL_NAME
from dataprep.verify.check import MAX_PROBLEMS, Problem, ProblemList
from dataprep.verify.shard import VerifiedShard, VerifyTask, check_file, manifest_of, verify_shard
from manifests.errors import DamagedError, raise_machine_fault
from manifests.files import INDEX, REJECTED, SHARD, TABLE, file_length
from manifests.remote.url import is_read_only
from manifests.schema import UNREADABLE, File, Manifest, Shard
from manifests.serialization import old_manifest_name
from manifests.store import MANIFEST_NAME, has_shard_list, read_manifest, read_older

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """What `verify_dataset` found.

    Attributes:
        problems: what is wrong, in the order of the manifest: at most `MAX_PER_FILE` problems of
            each file, and `MAX_PROBLEMS` in total.
        counts: the number of all problems of each file, by its name.
        shards: number of shards.
        samples: number of samples.
        without_checksum: number of shards that have no checksum to compare with.

    """

    problems: tuple[Problem, ...]
    counts: Mapping[str, int]
    shards: int
    samples: int
    without_checksum: int


def verify_dataset(
    folder: str,
    *,
    decode: bool = False,
    max_pixels: int | None = None,
    workers: int | None = None,
    progress: Progress | None = None,
) -> VerifyResult:
    """Check a dataset: manifest, shards, indexes and tables, each against the others and against its checksum.

    Args:
        folder: the dataset.
        decode: also decode every image.
        max_pixels: with `decode`: images with more pixels are not valid. `None` uses the limit that
            the dataset was converted with, but at most the default of ``convert``.
        workers: number of processes. Default: the number of CPUs.
        progress: receives the checked shards.

    Raises:
        CallError: the folder does not exist.
        StoppedError: a file cannot be read, or a worker process died.

    """
    manifest = _read_manifest(folder)
    if isinstance(manifest, Problem):
        return VerifyResult((manifest,), {manifest.file: 1}, 0, 0, 0)
    manifest_of.cache_clear()  # an earlier call in this process may have cached another manifest
    tasks = [VerifyTask(folder, shard, decode, max_pixels) for shard in manifest.shards]
    if progress:
        progress.start(sum(task.shard.samples for task in tasks), len(tasks))
    by_name: dict[str, VerifiedShard] = {}
    count = min(workers or engines.default_workers(), len(tasks))
    with closing(engines.run(verify_shard, tasks, count)) as results:
        for result in results:
            _log.info(
                "%s: %d samples, %d problems",
                result.name,
                result.samples,
                sum(result.counts.values()),
            )
            by_name[result.name] = result
            if progress:
                progress.advance(result.name, result.samples)
    problems = ProblemList()
    problems.add(_check_folder(folder, manifest))
    counts = problems.counts.copy()
    for task in tasks:
        shard = by_name[task.shard.name]
        problems.add(shard.problems)
        counts.update(shard.counts)
    return VerifyResult(
        problems=tuple(problems.kept[:MAX_PROBLEMS]),
        counts=counts,
        shards=len(tasks),
        samples=sum(shard.samples for shard in by_name.values()),
        without_checksum=sum(not shard.has_checksum for shard in by_name.values()),
    )


def verify_manifest(
    folder: str, *, workers: int | None = None, progress: Progress | None = None
) -> VerifyResult:
    """Check a dataset without reading its shards, indexes and tables: the manifest, and that every file has its length.

    Args:
        folder: the dataset.
        workers: number of threads. Default: `_THREADS`, because a network file system takes long
            for each file.
        progress: receives the checked shards.

    Raises:
        CallError: the folder does not exist.

    """
    manifest = _read_manifest(folder)
    if isinstance(manifest, Problem):
        return VerifyResult((manifest,), {manifest.file: 1}, 0, 0, 0)
    shards = manifest.shards
    if progress:
        progress.start(sum(shard.samples for shard in shards), len(shards))
    problems = ProblemList()
    problems.add(_check_folder(folder, manifest))
    # A listing of a bucket contains the lengths; asking for each would take a request.
    known = (
        {entry.name: entry.stat().st_size for entry in _entries(folder) if not entry.is_dir()}
        if storage.has_latency(folder)
        else {}
    )
    check = partial(_check_lengths, folder, known)
    starts = range(0, len(shards), _SHARDS_PER_CALL)
    with ThreadPoolExecutor(workers or _THREADS) as threads:
        parts = [shards[start : start + _SHARDS_PER_CALL] for start in starts]
        for start, found in zip(starts, threads.map(check, parts), strict=True):
            problems.add(found)
            if progress:
                for shard in shards[start : start + _SHARDS_PER_CALL]:
                    progress.advance(shard.name, shard.samples)
    return VerifyResult(
        problems=tuple(problems.kept[:MAX_PROBLEMS]),
        counts=problems.counts,
        shards=len(shards),
        samples=sum(shard.samples for shard in shards),
        without_checksum=0,
    )


#: Threads that ask for the lengths of files, and shards that each of them checks in one step.
_THREADS = 16
_SHARDS_PER_CALL = 256


def _check_lengths(folder: str, known: Mapping[str, int], shards: Sequence[Shard]) -> list[Problem]:
    found = []
    for shard in shards:
        for file, kind in ((shard.file, SHARD), (shard.index, INDEX), (shard.table, TABLE)):
            try:
                length = known.get(file.name, UNREADABLE)
                if length == UNREADABLE:
                    length = file_length(os.path.join(folder, file.name), kind)
                message = f"the file has {length} bytes, but the manifest states {file.bytes}"
            except OSError as error:
                raise_machine_fault(error)
                length, message = UNREADABLE, f"the file cannot be read: {error.strerror}"
            except DamagedError as error:
                length, message = UNREADABLE, error.message
            if length != file.bytes:
                found.append(Problem(file.name, message, hint=_REMAKE))
    return found


_REMAKE = "run `dataprep repair` on the dataset, restore a copy, or make the dataset again"


def _read_manifest(folder: str) -> Manifest | Problem:
    try:
        return read_manifest(folder)
    except DamagedError as error:
        name = os.path.relpath(error.file, folder) if error.file else MANIFEST_NAME
        return Problem(name, error.message, hint=error.hint)


def _entries(folder: str) -> Sequence[storage.Entry]:
    """Return what is in the folder; nothing if it is on a server that only reads files by name."""
    if is_read_only(folder):
        return []
    return storage.list_folder(folder)


def _check_old_revisions(folder: str, manifest: Manifest) -> Iterator[Problem]:
    """Check the files that only `dataprep revert` and ``loaders.build(revision=)`` need."""
    rejected = {manifest.rejected}
    for revision in range(manifest.revision):
        try:
            old = read_older(folder, manifest, revision)[0]
        except DamagedError as error:
            yield Problem(old_manifest_name(revision), error.message, hint=error.hint)
            continue
        if old.rejected is not None and old.rejected not in rejected:
            yield from _check_rejected(folder, old.rejected)
        rejected.add(old.rejected)


def _check_rejected(folder: str, file: File) -> Iterator[Problem]:
    return check_file(folder, file, REJECTED, "run `dataprep repair` on the dataset")


def _check_journal(folder: str, manifest: Manifest) -> tuple[list[Problem], frozenset[str]]:
    """Return a problem if an append has not ended, and the names of its files."""
    try:
        journal = read_journal(folder)
    except DamagedError as error:
        return [Problem(JOURNAL_NAME, error.message, hint=error.hint)], frozenset()
    pending = frozenset(unlisted_files(journal, manifest) if journal else ())
    if not journal or not pending:
        return [], pending
    again = "`dataprep convert --append`" if journal.action == "append" else "`dataprep revert`"
    hint = f"run the same {again} again"
    if has_append_plan(folder):
        again, hint = (
            "the append of `dataprep plan`",
            f"run `dataprep work {folder}`, then `dataprep finish {folder}`",
        )
    hint += f"; or `dataprep revert {folder}`, which removes what it wrote"
    return [Problem(JOURNAL_NAME, f"{again} was interrupted, or is running", hint=hint)], pending


#: Suffixes of the files that `dataprep convert` writes for each shard.
_SUFFIXES = (".tfrecord", ".tar", ".idx", ".parquet")


def _check_folder(folder: str, manifest: Manifest) -> Iterator[Problem]:
    """Check that the manifest names every file once, and that the folder has no other files of a dataset."""
    named = {
        MANIFEST_NAME,
        HASHES_NAME,
        *(own_files(manifest) if manifest.revisions or has_shard_list(manifest) else []),
    }
    journal_problem, pending = _check_journal(folder, manifest)
    for split in manifest.splits:
        for shard in split.shards:
            for file in (shard.file, shard.index, shard.table):
                if file.name in named:
                    yield Problem(
                        MANIFEST_NAME,
                        f"the manifest names {file.name!r} twice",
                        hint="make the dataset again",
                    )
                named.add(file.name)
    names = sorted(entry.name for entry in _entries(folder))
    partials = os.path.join(folder, storage.PARTIALS_NAME)
    if storage.BOOKKEEPING in names and (storage.is_folder(partials) or storage.is_file(partials)):
        hint = "run the same command again, or remove the folder"
        message = "the folder is left over from an interrupted run"
        yield Problem(storage.PARTIALS_NAME, message, hint=hint)
    for name in names:
        if (
            name.endswith(_SUFFIXES)
            and name not in named | pending
            and manifest.creator == "convert"
        ):
            yield Problem(
                name, "the file is not in the manifest", hint="remove it, or make the dataset again"
            )
    yield from journal_problem
    yield from _check_old_revisions(folder, manifest)
    if manifest.rejected is not None:
        yield from _check_rejected(folder, manifest.rejected)
