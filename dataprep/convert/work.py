"""Write shards of a plan: a share of them, or those that no other process writes.

Several processes, on several machines, can do this at the same time in the same output folder.
"""

from __future__ import annotations

import logging
import os
import queue
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import TypeGuard

from awscrt.checksums import crc32c

from dataprep import storage
from dataprep.canary import check_canary
from dataprep.convert.claims import BEAT_SECONDS, Claims
from dataprep.engines import Engine, LocalEngine
from dataprep.formats import FORMATS
from dataprep.plan.files import StoredTasks, count_images, read_plan
from dataprep.plan.job import Job
from dataprep.plan.mismatch import foreign_file_error
from dataprep.plan.stored import StoredPlan
from dataprep.plan.tasks import Share, record_tasks
from dataprep.progress import Progress
from dataprep.resume.finished import (
    files_in_manifest,
    is_final,
    is_intact,
    length,
    lists_everything,
    read_finished,
    unpublished_tables,
)
from dataprep.resume.kept import says_what_is_kept
from dataprep.resume.output import refuse_appended
from dataprep.shards.write import (
    ShardResult,
    ShardTask,
    divides,
    log_shard,
    useful_workers,
    write_shard,
)
from dataprep.storage.completion import INCOMPLETE_NAME, mark_incomplete, owns_names
from dataprep.storage.owners import this_owner
from manifests.errors import StorageError
from manifests.remote.url import is_url
from manifests.schema import File
from manifests.store import MANIFEST_NAME

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WorkResult:
    """What one call of `work` did.

    Attributes:
        written: the shards that it wrote.
        resumed: number of shards of its share that were finished before, or that other processes
            wrote.

    """

    written: tuple[ShardResult, ...]
    resumed: int


def work(
    out: str,
    share: Share | None = None,
    *,
    workers: int | None = None,
    engine: Engine | None = None,
    progress: Progress | None = None,
    beat: float | None = None,
) -> WorkResult:
    """Write shards of a plan that are not finished yet.

    Args:
        out: output folder with a plan.
        share: the shards to write. `None` claims shards that no other process has claimed, until
            all are finished.
        workers: number of processes; `None` means one per CPU.
        engine: runs the shard tasks instead of a new `LocalEngine`. It is closed at the end.
        progress: receives the finished shards of the share, also earlier ones.
        beat: seconds between two signs of life, if `share` is `None`; `None` means `BEAT_SECONDS`.

    Raises:
        CallError: there is no plan.
        PlanError: the plan is damaged or was changed.
        StoppedError: this machine would write other bytes, the source is not here, or another
            problem outside of the program stopped the run; the same call resumes it.

    """
    engine = engine or LocalEngine(workers)
    with ExitStack() as stack:
        stack.enter_context(closing(engine))
        plan = read_plan(out)
        check_canary(plan.canary)
        job = plan.job(out)
        stack.enter_context(storage.locked(out, shared=True))
        storage.check_partials([out])
        numbers = share.numbers(len(job.shards)) if share else range(len(job.shards))
        if _is_appended(plan, out):
            return WorkResult((), len(numbers))
        run = _Run(
            job,
            StoredTasks(plan, out, numbers, engine.workers),
            engine,
            files_in_manifest(job.fingerprint, out),
        )
        stack.enter_context(says_what_is_kept(out, [job.shards[number].name for number in numbers]))
        progress = progress or _NoProgress()
        progress.start(count_images(plan, out, numbers) if share else job.images, len(numbers))
        finished = {} if share is None and not run.in_manifest else run.find_finished(numbers)
        for result in finished.values():
            log_shard(_log, result)
            progress.advance(result.name, result.conversion.images, resumed=result.resumed)
        left = run.without_finished(numbers, finished)
        written: list[ShardResult] = []
        if left:
            stack.enter_context(storage.shared_partials(out))
            if share:
                run.refuse_foreign_files(left)
            run.prepare_folder()
            if is_url(out):
                run.remove_outdated_tables(left)
            if share:
                record_tasks(out, share.tasks)
                results = run.write(left)
            else:
                results = run.claim_and_write(
                    left, stack.enter_context(Claims(out, beat or BEAT_SECONDS))
                )
            with closing(results), _finished_meanwhile(plan, out):
                for result in results:
                    log_shard(_log, result)
                    if not result.resumed:
                        written.append(result)
                    progress.advance(result.name, result.conversion.images, resumed=result.resumed)
    return WorkResult(tuple(written), len(numbers) - len(written))


def _is_appended(plan: StoredPlan, out: str) -> bool:
    """Return whether the plan is of an append that is complete.

    Raises:
        CallError: something was appended to the dataset that the plan makes, or the append was
            reverted.

    """
    if plan.append is None:
        refuse_appended(out)
        return False
    from dataprep.append.steps import is_appended  # takes time, and most plans make new datasets

    return is_appended(plan, out)


class _NoProgress:
    def start(self, images: int | None, shards: int) -> None:
        pass

    def advance(self, shard: str, images: int, *, resumed: bool = False) -> None:
        pass


@contextmanager
def _finished_meanwhile(plan: StoredPlan, out: str) -> Iterator[None]:
    """Ignore a lost temporary file if the dataset is complete: all of them are removed then.

    This process wrote a shard that another one has written.
    """
    try:
        yield
    except StorageError:
        is_complete = (
            _is_appended(plan, out) if plan.append else files_in_manifest(plan.fingerprint, out)
        )
        if not is_complete:
            raise


#: How many times a file is checked before it counts as not written by this plan.
_LOOKS = 3


@dataclass(frozen=True)
class _Run:
    """One call of `work`.

    Attributes:
        job: what to write.
        tasks: the tasks of the shards.
        engine: runs them.
        in_manifest: files that the manifest lists, by name; empty if there is no manifest of this
            plan.

    """

    job: Job
    tasks: StoredTasks
    engine: Engine
    in_manifest: Mapping[str, File]

    def prepare_folder(self) -> None:
        """Mark the dataset as incomplete: no reader may see a manifest next to shards that are about to change."""
        if self.in_manifest:
            mark_incomplete(self.job.out, self.job, self.job.options)
            storage.remove(os.path.join(self.job.out, MANIFEST_NAME))

    def remove_outdated_tables(self, numbers: Sequence[int]) -> None:
        """Remove tables of shards with images that may be readable now: in an object store, no table is replaced."""
        for number in numbers:
            name = self.job.shards[number].name
            result = read_finished(self.job.fingerprint, self.job.out, name, self.in_manifest)
            if result and not is_final(result):
                storage.remove(os.path.join(self.job.out, f"{name}.parquet"))

    def refuse_foreign_files(self, numbers: Sequence[int]) -> None:
        """Check that no file of another dataset or tool has the name of a file that is about to be written.

        Raises:
            CallError: there is one.

        """
        for number in numbers:
            foreign = self._foreign_file(number)
            for _ in range(_LOOKS):
                if foreign is None:
                    break
                time.sleep(
                    0.1
                )  # another process may be renaming the files of the shard, its table last
                foreign = self._foreign_file(number)
            if foreign is not None:
                raise foreign_file_error(
                    self.job.out, foreign, self.job.options, (MANIFEST_NAME, INCOMPLETE_NAME)
                )

    def _foreign_file(self, number: int) -> str | None:
        name = self.job.shards[number].name
        suffixes = (FORMATS[self.job.options.fmt].SUFFIX, ".idx", ".parquet")
        lengths = {
            name + suffix: length(os.path.join(self.job.out, name + suffix)) for suffix in suffixes
        }
        # The mark of an append was written when no file had one of its names.
        if (
            max(lengths.values()) < 0
            or self.job.revision
            or owns_names(self.job.out, self.job.fingerprint)
        ):
            return None
        result = read_finished(self.job.fingerprint, self.job.out, name, self.in_manifest)
        unpublished = unpublished_tables(self.job.fingerprint, self.job.out, f"{name}.parquet")
        known = {file.name: file.bytes for file in self.in_manifest.values()}
        if result:
            known[result.table.name] = result.table.bytes
        for conversion in [result.conversion] if result else unpublished:
            known |= {file.name: file.bytes for file in (conversion.shard, conversion.index)}
        return next(
            (each for each, size in lengths.items() if size >= 0 and known.get(each) != size), None
        )

    def find_finished(self, numbers: Sequence[int]) -> dict[int, ShardResult]:
        """Return the finished shards that need not be written again."""
        found = ((number, self.find(number)) for number in numbers)
        return {number: result for number, result in found if result and is_final(result)}

    def find(self, number: int) -> ShardResult | None:
        """Return a finished shard; `None` if it is missing or damaged."""
        result = read_finished(
            self.job.fingerprint, self.job.out, self.job.shards[number].name, self.in_manifest
        )
        return result if result and is_intact(self.job.out, result) else None

    def without_finished(
        self, numbers: Sequence[int], finished: Mapping[int, ShardResult]
    ) -> list[int]:
        """Return the shards that are left to write."""
        left = [number for number in numbers if number not in finished]
        if not lists_everything(self.job.out, self.in_manifest):
            return left
        suffix = FORMATS[self.job.options.fmt].SUFFIX
        return [
            number for number in left if self.job.shards[number].name + suffix in self.in_manifest
        ]

    def write(self, left: Sequence[int]) -> Generator[ShardResult, None, None]:
        """Write shards; yield them as they finish."""
        tasks = replace(self.tasks, numbers=left)
        useful = useful_workers(len(left), count_images(tasks.plan, tasks.out, left))
        yield from self.engine.run_with_pool(write_shard, tasks, useful)

    def claim_and_write(
        self, left: Sequence[int], claims: Claims
    ) -> Generator[ShardResult, None, None]:
        """Claim shards and write them, until all are finished.

        Yield them, also those that others have written.
        """
        start = crc32c(this_owner().encode()) % len(left)
        left = [*left[start:], *left[:start]]  # processes begin at different shards
        useful = useful_workers(len(left), self.job.images)
        while left:
            found: queue.SimpleQueue[ShardResult] = (
                queue.SimpleQueue()
            )  # filled by the threads of the engine
            busy: list[int] = []
            before = len(left)
            for result in self.engine.run_with_pool(
                write_shard, self._claimed(left, claims, found, busy), useful
            ):
                claims.release(result.name)
                yield result
                while not found.empty():
                    yield found.get()
            while not found.empty():
                yield found.get()
            left = busy
            if len(left) == before:  # others write all of them
                time.sleep(claims.beat / 2)

    def _claimed(
        self,
        left: Sequence[int],
        claims: Claims,
        found: queue.SimpleQueue[ShardResult],
        busy: list[int],
    ) -> Iterator[ShardTask]:
        """Yield the tasks of shards that this process has claimed.

        Put the others into `found` or `busy`.
        """
        for at, number in enumerate(left):
            name = self.job.shards[number].name
            if self._is_kept(result := self.find(number), claims):
                found.put(result)
            elif not claims.claim(name):
                busy.append(number)
            elif self._is_kept(
                result := self.find(number), claims
            ):  # finished just before the claim
                claims.release(name)
                found.put(result)
            else:
                self.refuse_foreign_files([number])
                divided = divides(self.job.options, len(left) - at, self.engine.workers)
                yield replace(self.tasks.task(number), divided=divided)

    def _is_kept(self, result: ShardResult | None, claims: Claims) -> TypeGuard[ShardResult]:
        """Return whether a shard need not be written: it is final, or was written after this process started."""
        if result is None or is_final(result):
            return result is not None
        return (
            os.stat(os.path.join(self.job.out, result.table.name)).st_mtime_ns >= claims.started_ns
        )
