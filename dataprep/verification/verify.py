"""Check a prepared dataset: read every file, and report what is wrong, where, and how to fix it.

No file is changed.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial

from dataprep import engines, storage
from dataprep.ledger.removed import restore_hint
from dataprep.ledger.state import (
    ENDS_OF_FILES,
    changed_files,
    own_files,
    read_journal,
    unlisted_files,
)
from dataprep.options import HASHES_NAME
from dataprep.plan.files import has_append_plan
from dataprep.progress import Progress
from dataprep.storage.temporary import JOURNAL_NAME
from dataprep.verification.shard import (
    MAX_PROBLEMS,
    Problem,
    ProblemList,
    ShardCheck,
    check_file,
    differences,
    manifest_of,
    verify_shard,
)
from manifests.errors import DamagedError, raise_machine_fault
from manifests.files import REJECTED, REMOVED, file_length, kind_of
from manifests.records import record
from manifests.remote.url import is_read_only
from manifests.schema import UNREADABLE, File, Manifest, Shard
from manifests.serialization import old_manifest_name
from manifests.store import MANIFEST_NAME, has_shard_list, read_manifest, read_older

_log = logging.getLogger(__name__)


@record
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

    def check(shards: Sequence[Shard]) -> Iterator[tuple[Shard, ProblemList]]:
        tasks = [ShardCheck(folder, shard, decode, max_pixels) for shard in shards]
        count = min(workers or engines.default_workers(), len(tasks))
        with closing(engines.run(verify_shard, tasks, count)) as results:
            for shard, found in results:
                total = found.counts.total()
                _log.info("%s: %d samples, %d problems", shard.name, shard.samples, total)
                yield shard, found

    return _verify(folder, check, progress)


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

    def check(shards: Sequence[Shard]) -> Iterator[tuple[Shard, ProblemList]]:
        known = {}
        if storage.has_latency(folder):
            # A listing of a bucket contains the lengths; asking for each would take a request.
            for entry in _entries(folder):
                if not entry.is_dir():
                    known[entry.name] = entry.stat().st_size
        starts = range(0, len(shards), _SHARDS_PER_CALL)
        parts = [shards[start : start + _SHARDS_PER_CALL] for start in starts]
        with ThreadPoolExecutor(workers or _THREADS) as threads:
            for found in threads.map(partial(_check_lengths, folder, known), parts):
                yield from found

    return replace(_verify(folder, check, progress), without_checksum=0)


#: Threads that ask for the lengths of files, and shards that each of them checks in one step.
_THREADS = 16
_SHARDS_PER_CALL = 256


def _verify(
    folder: str,
    check: Callable[[Sequence[Shard]], Iterator[tuple[Shard, ProblemList]]],
    progress: Progress | None,
) -> VerifyResult:
    """Check the folder and, in any order, its shards."""
    try:
        manifest = read_manifest(folder)
    except DamagedError as error:
        name = os.path.relpath(error.file, folder) if error.file else MANIFEST_NAME
        return VerifyResult((Problem(name, error.message, hint=error.hint),), {name: 1}, 0, 0, 0)
    manifest_of.cache_clear()  # an earlier call in this process may have cached another manifest
    try:
        shards = manifest_of(folder).shards
    except DamagedError:  # of an older revision, which has the tables from before a join
        found = ProblemList()
        found.add(*_check_folder(folder, manifest))
        return VerifyResult(tuple(found.kept), found.counts, 0, 0, 0)
    samples = sum(shard.samples for shard in shards)
    if progress:
        progress.start(samples, len(shards))
    # Shards end in any order, and are reported in the order of the manifest.
    by_name = {}
    for shard, found in check(shards):
        by_name[shard.name] = found
        if progress:
            progress.advance(shard.name, shard.samples)
    problems = ProblemList()
    problems.add(*_check_folder(folder, manifest))
    problems.join(by_name[shard.name] for shard in shards)
    return VerifyResult(
        problems=tuple(problems.kept[:MAX_PROBLEMS]),
        counts=problems.counts,
        shards=len(shards),
        samples=sum(split.samples for split in manifest.splits),
        without_checksum=sum(shard.file.checksum is None for shard in shards),
    )


def _check_lengths(
    folder: str, known: Mapping[str, int], shards: Sequence[Shard]
) -> list[tuple[Shard, ProblemList]]:
    found = []
    for shard in shards:
        problems = ProblemList()
        for file in shard.files:
            # Names that the listing lacks are looked up, which gives the reason.
            length = known.get(file.name, UNREADABLE)
            try:
                if length == UNREADABLE:
                    length = file_length(os.path.join(folder, file.name), kind_of(file.name))
                message = differences(File(file.name, length, file.checksum), file)
            except OSError as error:
                raise_machine_fault(error)
                message = f"the file cannot be read: {error.strerror}"
            except DamagedError as error:
                message = error.message
            if message:
                problems.add(Problem(file.name, message, hint=_REMAKE))
        found.append((shard, problems))
    return found


_REMAKE = "run `dataprep repair` on the dataset, restore a copy, or make the dataset again"


def _entries(folder: str) -> Sequence[storage.Entry]:
    """Return what is in the folder; nothing if it is on a server that only reads files by name."""
    return [] if is_read_only(folder) else storage.list_folder(folder)


def _check_old_revisions(folder: str, manifest: Manifest) -> Iterator[Problem]:
    """Check the files that only `dataprep revert` and ``loaders.build(revision=)`` need, and what joins and removals wrote."""
    # A revision may keep the list of the one before.
    rejected = {manifest.rejected}
    has_changed = bool(manifest.joins or manifest.removals)
    changed = [manifest]
    for revision in range(manifest.oldest, manifest.revision):
        try:
            old = read_older(folder, manifest, revision)[0]
        except DamagedError as error:
            yield Problem(old_manifest_name(revision), error.message, hint=error.hint)
            has_changed = False  # which files were written first is not known
            continue
        if old.rejected is not None and old.rejected not in rejected:
            yield from _check_rejected(folder, old.rejected)
        rejected.add(old.rejected)
        if has_changed:
            changed.append(old)
    if not has_changed:
        return
    for removed in dict.fromkeys(each.removed for each in changed):
        if removed is not None:
            hint = restore_hint(manifest, removed)
            yield from check_file(folder, removed, REMOVED, hint)
    # The files that shards were written with are checked with them.
    files = {file for each in changed for file in each.shard_files}
    files.difference_update(manifest_of(folder).shard_files)
    for file in sorted(files, key=lambda file: file.name):
        hint = (
            "run `dataprep repair` on the dataset, or `dataprep revert` and the same join or removal"
            " again, or restore it from a copy"
        )
        yield from check_file(folder, file, kind_of(file.name), hint)


def _check_rejected(folder: str, file: File) -> Iterator[Problem]:
    return check_file(folder, file, REJECTED, "run `dataprep repair` on the dataset")


def _check_journal(folder: str, manifest: Manifest) -> tuple[list[Problem], frozenset[str]]:
    """Return a problem if an append has not ended, and the names of its files."""
    try:
        journal = read_journal(folder)
    except DamagedError as error:
        return [Problem(JOURNAL_NAME, error.message, hint=error.hint)], frozenset()
    # An append that has ended leaves nothing but its journal.
    pending = frozenset(unlisted_files(journal, manifest) if journal else ())
    if not journal or not pending:
        return [], pending
    commands = {"append": "convert --append", "join": "join", "remove": "remove"}
    again = f"`dataprep {commands.get(journal.action, 'revert')}`"
    hint = f"run the same {again} again"
    # The steps of an append are continued by other commands.
    if has_append_plan(folder):
        again = "the append of `dataprep plan`"
        hint = f"run `dataprep work {folder}`, then `dataprep finish {folder}`"
    hint += f"; or `dataprep revert {folder}`, which removes what it wrote"
    return [Problem(JOURNAL_NAME, f"{again} was interrupted, or is running", hint=hint)], pending


#: Files that `dataprep convert` writes for each shard. Users may have other arrays in the folder.
_FILES_OF_SHARDS = re.compile(rf"(?s).*\.(tfrecord|tar|idx|parquet)|.+-[0-9]{{5,}}{ENDS_OF_FILES}")


def _check_folder(folder: str, manifest: Manifest) -> Iterator[Problem]:
    """Check that the manifest names every file once, and that the folder has no other files of a dataset."""
    named = {MANIFEST_NAME, HASHES_NAME}
    if manifest.revisions or has_shard_list(manifest):
        named.update(own_files(manifest))
    journal_problem, pending = _check_journal(folder, manifest)
    for file in manifest.shard_files:
        if file.name in named:
            message = f"the manifest names {file.name!r} twice"
            yield Problem(MANIFEST_NAME, message, hint="make the dataset again")
        named.add(file.name)
    named.update(changed_files(manifest))
    # What else is in the folder.
    names = sorted(entry.name for entry in _entries(folder))
    partials = os.path.join(folder, storage.PARTIALS_NAME)
    if storage.BOOKKEEPING in names and (storage.is_folder(partials) or storage.is_file(partials)):
        hint = "run the same command again, or remove the folder"
        yield Problem(
            storage.PARTIALS_NAME, "the folder is left over from an interrupted run", hint=hint
        )
    for name in names:
        # Files of other tools and of users are not reported.
        is_ours = manifest.creator == "convert" and _FILES_OF_SHARDS.fullmatch(name)
        if is_ours and name not in named | pending:
            hint = "remove it, or make the dataset again"
            yield Problem(name, "the file is not in the manifest", hint=hint)
    yield from journal_problem
    yield from _check_old_revisions(folder, manifest)
    if manifest.rejected is not None:
        yield from _check_rejected(folder, manifest.rejected)
