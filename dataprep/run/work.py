"""Write shards of a plan: one share of them, or the shards that no other process writes.

Several processes, on several machines, can do this at the same time in the same output folder.
"""

from __future__ import annotations

import logging
import os
import queue
import re
import time
from collections.abc import Callable, Collection, Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import field, replace
from functools import partial
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc
from awscrt.checksums import crc32c

from dataprep import spool, storage
from dataprep.arrays import Int64Array
from dataprep.canary import check_canary
from dataprep.engines import Engine, LocalEngine
from dataprep.labels.kinds import KINDS
from dataprep.ledger.fence import BEAT_SECONDS, Claims, begin_conversion, check_owner, owned
from dataprep.ledger.finished import (
    find_final,
    find_shard,
    is_final,
    is_listed,
    listed_files,
    lists_everything,
    read_finished,
)
from dataprep.ledger.state import Folder, inspect, refuse_appended
from dataprep.plan.assign import ShardPlan, key_of
from dataprep.plan.files import (
    Job,
    StoredPlan,
    count_images,
    foreign_file_error,
    read_plan,
    read_planned_rows,
)
from dataprep.progress import Progress
from dataprep.run.commit import is_appended
from dataprep.run.inputs import check_machines
from dataprep.shards.write import (
    ShardResult,
    ShardTask,
    divides,
    names_of_shard,
    useful_workers,
    write_shard,
)
from dataprep.sources import Source
from dataprep.storage.temporary import this_owner
from manifests.arrays import arrays_of
from manifests.errors import CallError, DatasetError, StorageError
from manifests.process.text import agree, plural
from manifests.records import keyword_record, record
from manifests.store import MANIFEST_NAME

_log = logging.getLogger(__name__)


@contextmanager
def opened(engine: Engine | None, workers: int | None) -> Iterator[tuple[Engine, Engine]]:
    """Yield an engine, by default a new `LocalEngine`, and one that reads on this machine; close both."""
    engine = engine or LocalEngine(workers)
    reader = engine if engine.is_local else LocalEngine(workers)
    with closing(engine), closing(reader):
        yield engine, reader


@contextmanager
def says_what_is_kept(out: str, shards: Sequence[ShardPlan]) -> Iterator[None]:
    """Give a `KeyboardInterrupt` a message: how many of these shards are finished.

    All processes that write shards must have ended when the exception leaves the block.
    """
    try:
        yield
    except KeyboardInterrupt:
        text = "finished shards are kept"
        with suppress(OSError, DatasetError):
            there = storage.names_in(out)
            # A shard is finished when its table has its final name.
            kept = sum(f"{shard.name}.parquet" in there for shard in shards)
            count = plural(len(shards), "shard")
            text = f"{kept:,} of {count} {agree(kept, 'is', 'are')} finished and kept"
            if not kept:
                text = f"none of {count} is finished"
        raise KeyboardInterrupt(text) from None


@keyword_record
class Prepared:
    """A revision to write into a locked output folder.

    Attributes:
        source: the samples.
        job: their plan, and where it is written.
        finished: finished shards of this plan, by name. They are kept.
        is_complete: whether the dataset is complete. Then `finished` lacks the shards whose images
            are all rejected.

    """

    source: Source
    job: Job
    finished: Mapping[str, ShardResult] = field(default_factory=dict)
    is_complete: bool = False


def write_shards(
    run: Prepared, engine: Engine, progress: Progress | None = None
) -> list[ShardResult]:
    """Write the shards that are not finished; return all of them in the order of the plan."""
    job = replace(run.job, check=partial(check_owner, run.job.out, run.job.fingerprint))
    shards = job.shards
    _log.info(
        "%s: the plan %s has %d shards, of which %d are kept from an earlier run",
        job.out,
        job.fingerprint,
        len(shards),
        len(run.finished),
    )
    if progress:
        progress.start(len(run.source), len(shards))
    left = []
    if not run.is_complete:
        left = [number for number, shard in enumerate(shards) if shard.name not in run.finished]
        if not engine.is_local:
            check_machines(
                engine, run.source, job.out, transcodes=job.options.transcode is not None
            )
    # Only what is left is written; the order of the results is the order of the plan.
    images = sum(len(shards[number].rows) for number in left)
    tasks = ShardTasks(
        job, left, engine.workers, lambda number: planned_task(job, run.source, shards[number])
    )
    results = dict(run.finished)
    with closing(
        engine.run_with_pool(write_shard, tasks, useful_workers(len(tasks), images))
    ) as written:
        for result in chain(run.finished.values(), written):
            results[result.name] = result
            report(result, progress)
    return [results[shard.name] for shard in shards if shard.name in results]


def report(result: ShardResult, progress: Progress | None) -> None:
    """Tell the log and the progress about a finished shard."""
    conversion, made = result.conversion, "written"
    if result.resumed:
        made = "kept from an earlier run"
    _log.info(
        "%s: %s, %d images, %d bytes, %d rejected",
        result.name,
        made,
        conversion.samples,
        conversion.shard.bytes,
        len(conversion.rejected),
    )
    if progress:
        progress.advance(result.name, conversion.images, resumed=result.resumed)


# --- the share of one of many tasks ---------------------------------------------------------------


#: More tasks than this are a mistake.
MAX_TASKS = 1_000_000


class Share(NamedTuple):
    """One of several equal shares of the shards: the shards whose number in the plan is `task` modulo `tasks`.

    Attributes:
        task: number of the share, from 0.
        tasks: number of shares.

    """

    task: int
    tasks: int

    def numbers(self, shards: int) -> range:
        """Return the numbers of its shards, if the plan has `shards` of them."""
        return range(self.task, shards, self.tasks)


#: The variables in which schedulers number a task, and how to have N tasks.
_SCHEDULERS = {
    "SLURM_ARRAY_TASK_ID": "submit with --array=0-{0}",
    "JOB_COMPLETION_INDEX": "set `completions: {1}`",
}

_TASK = re.compile(r"([0-9]{1,9})/([0-9]{1,9})|auto(?:/([0-9]{1,9}))?", re.ASCII)


def parse_task(text: str, environment: Mapping[str, str]) -> Share:
    """Parse the value of ``--task``: ``I/N``, or ``auto`` and ``auto/N`` for what a scheduler sets.

    Args:
        text: the value.
        environment: environment variables of the process.

    Raises:
        CallError: the value is malformed, the task is not one of the tasks, or no scheduler numbers
            this task.

    """
    match, place = _TASK.fullmatch(text), f"--task {text}"
    if match is None:
        raise CallError(
            f"{place} is not I/N", hint="write 0/8 for the first of 8 tasks, or auto, or auto/8"
        )
    tasks = int(match[2] or match[3] or -1)
    if match[1]:
        task, hint = int(match[1]), "tasks count from 0: the last one of N is N-1/N"
    else:
        variable = next(filter(environment.__contains__, _SCHEDULERS), None)
        if variable is None:
            raise CallError(
                f"{place}: neither {' nor '.join(_SCHEDULERS)} is set",
                hint="run it in a Slurm array job or in an indexed job of Kubernetes, or write"
                " --task I/N",
            )
        task = _integer(environment, variable)
        if not match[3]:
            return _slurm_share(environment, task)
        place, hint = f"{place}: {variable}={task}", _SCHEDULERS[variable].format(tasks - 1, tasks)
    if not 0 < tasks <= MAX_TASKS:
        raise CallError(
            f"{place}: there must be 1 to {MAX_TASKS:,} tasks",
            hint="write 0/8 for the first of 8 tasks",
        )
    if task >= tasks:
        raise CallError(f"{place}: there is no task {task} of {tasks}", hint=hint)
    return Share(task, tasks)


def _slurm_share(environment: Mapping[str, str], task: int) -> Share:
    """Return the share of a task of a Slurm array whose tasks are numbered in any way."""
    if "SLURM_ARRAY_TASK_ID" not in environment:
        raise CallError(
            "--task auto: JOB_COMPLETION_INDEX is set, but Kubernetes does not tell the number of"
            " tasks",
            hint="write --task auto/N with the number of `completions` of the job",
        )
    count, first, last, step = (
        _integer({"SLURM_ARRAY_TASK_STEP": "1", **environment}, f"SLURM_ARRAY_TASK_{name}")
        for name in ("COUNT", "MIN", "MAX", "STEP")
    )
    numbers = range(first, last + 1, max(step, 1))
    if not step or task not in numbers or len(numbers) != count:
        raise CallError(
            f"--task auto: the numbers of the Slurm array are not consecutive: {count} tasks from"
            f" {first} to {last}",
            hint="write --task auto/N, which takes the numbers as they are: task 0 to N-1 of N",
        )
    return Share(numbers.index(task), count)


def _integer(environment: Mapping[str, str], name: str) -> int:
    value = environment.get(name, "")
    if not re.fullmatch(r"[0-9]{1,9}", value, re.ASCII):
        raise CallError(f"--task auto: {name}={value!r} is not a number", hint="write --task I/N")
    return int(value)


# --- how many tasks there are ---------------------------------------------------------------------


def record_tasks(out: str, tasks: int) -> None:
    """Record the number of tasks next to the temporary files, so that `finish` can tell which ones to run again."""
    path = storage.shared_path(out, "tasks", str(tasks))
    with storage.translate_errors(path, "the file cannot be written"):
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666))


def recorded_tasks(out: str) -> int | None:
    """Return the largest recorded number of tasks; `None` if there is none."""
    texts = storage.shared_names(out, "tasks")
    return max((int(text) for text in texts if text.isdecimal()), default=None)


# --- write shards ---------------------------------------------------------------------------------


class WorkResult(NamedTuple):
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
        # Check the plan, this machine and the folder.
        plan = read_plan(out)
        check_canary(plan.machine)
        job = replace(plan.job(out), check=partial(check_owner, out, plan.fingerprint))
        stack.enter_context(storage.locked(out, shared=True))
        stack.enter_context(owned(out, plan.fingerprint))
        numbers = share.numbers(len(job.shards)) if share else range(len(job.shards))
        if plan.append and is_appended(plan, out):
            return WorkResult((), len(numbers))
        folder = inspect(out, plan.fingerprint)
        if not plan.append:
            refuse_appended(folder)
        run = _Run(job, plan, engine, folder)
        shards = [job.shards[number] for number in numbers]
        stack.enter_context(says_what_is_kept(out, shards))
        if progress:
            images = count_images(plan, out, numbers) if share else job.images
            progress.start(images, len(numbers))
        # Of a share, look for finished shards now; with claims, when a shard is about to be claimed.
        names = map(attrgetter("name"), shards)
        finished = find_final(job, names, folder.files) if share or folder.files else {}
        for result in finished.values():
            report(result, progress)
        left = run.without_finished(numbers, finished)
        written = []
        if left:
            # Prepare the folder, then write the shards that are left.
            stack.enter_context(storage.shared_partials(out))
            if share:
                run.refuse_foreign_files(left)
            run.prepare_folder(left)
            if share:
                record_tasks(out, share.tasks)
                results = run.write(left)
            else:
                claims = stack.enter_context(Claims(out, beat or BEAT_SECONDS))
                results = run.claim_and_write(left, claims)
            with closing(results), _finished_meanwhile(plan, out):
                for result in results:
                    report(result, progress)
                    if not result.resumed:
                        written.append(result)
    return WorkResult(tuple(written), len(numbers) - len(written))


@contextmanager
def _finished_meanwhile(plan: StoredPlan, out: str) -> Iterator[None]:
    """Ignore a lost temporary file if the dataset is complete: all of them are removed then.

    This process wrote a shard that another one has written.
    """
    try:
        yield
    except StorageError:
        if plan.append:
            is_complete = is_appended(plan, out)
        else:
            is_complete = bool(inspect(out, plan.fingerprint).files)
        if not is_complete:
            raise


#: How many times a file is checked before it counts as not written by this plan.
_LOOKS = 3


@record
class _Run:
    """One call of `work`.

    Attributes:
        job: what to write.
        plan: its plan.
        engine: runs them.
        folder: what the output folder contains.

    """

    job: Job
    plan: StoredPlan
    engine: Engine
    folder: Folder

    def prepare_folder(self, numbers: Sequence[int]) -> None:
        """Remove the manifest: no reader may see one next to shards that are about to change.

        In an object store, no table is replaced: remove the tables of shards with images that may
        be readable now.
        """
        out = self.job.out
        if self.folder.files:
            begin_conversion(self.folder, self.job.options)
            storage.remove(os.path.join(out, MANIFEST_NAME))
        if not storage.has_locks(out):
            for number in numbers:
                result = self._read(number)
                if result and not is_final(result):
                    storage.remove(os.path.join(out, result.table.name))

    def refuse_foreign_files(self, numbers: Sequence[int]) -> None:
        """Check that no file of another dataset or tool has the name of a file that is about to be written.

        Raises:
            CallError: there is one.

        """
        for number in numbers:
            looks = 0
            while foreign := self._foreign_file(number):
                if looks == _LOOKS:
                    raise foreign_file_error(self.job.out, foreign, self.job.options)
                # Another process may be renaming the files of the shard, its table last.
                time.sleep(0.1)
                looks += 1

    def _foreign_file(self, number: int) -> str | None:
        out, name = self.job.out, self.job.shards[number].name
        there = []
        for each in names_of_shard(self.job.options.fmt, name, self.job.arrays):
            if storage.file_length(os.path.join(out, each)) >= 0:
                there.append(each)
        # The journal of an append was written when no file had one of its names.
        if not there or self.job.revision or inspect(out, self.job.fingerprint).owns_names:
            return None
        listed = listed_files(self.folder, [name], [self._read(number)])
        for each in there:
            if not is_listed(out, each, listed):
                return each
        return None

    def _read(self, number: int) -> ShardResult | None:
        name = self.job.shards[number].name
        return read_finished(self.job.fingerprint, self.job.out, name, self.folder.files)

    def find(self, number: int) -> ShardResult | None:
        """Return a finished shard; `None` if it is missing or damaged."""
        name = self.job.shards[number].name
        return find_shard(self.job.fingerprint, self.job.out, name, self.folder.files)

    def without_finished(self, numbers: Sequence[int], finished: Collection[str]) -> list[int]:
        """Return the shards that are left to write; `finished` are the names of the others."""
        files, shards = self.folder.files, self.job.shards
        left = [number for number in numbers if shards[number].name not in finished]
        if lists_everything(self.job.out, files):
            fmt = self.job.options.fmt
            # The images of a shard that the manifest does not list are all rejected.
            listed = []
            for number in left:
                if names_of_shard(fmt, shards[number].name, ())[0] in files:
                    listed.append(number)
            return listed
        return left

    def write(self, left: Sequence[int]) -> Generator[ShardResult, None, None]:
        """Write shards; yield them as they finish."""
        useful = useful_workers(len(left), count_images(self.plan, self.job.out, left))
        tasks = stored_tasks(self.job, left, self.engine.workers, self.plan)
        return self.engine.run_with_pool(write_shard, tasks, useful)

    def claim_and_write(
        self, left: Sequence[int], claims: Claims
    ) -> Generator[ShardResult, None, None]:
        """Claim shards and write them, until all are finished.

        Yield them, also the shards that others have written.
        """
        start = crc32c(this_owner().encode()) % len(left)
        left = [*left[start:], *left[:start]]  # processes begin at different shards
        useful = useful_workers(len(left), self.job.images)
        while left:
            # Filled by the threads of the engine.
            found: queue.SimpleQueue[ShardResult] = queue.SimpleQueue()
            busy: list[int] = []
            before = len(left)
            for result in self.engine.run_with_pool(
                write_shard, self._claimed(left, claims, found, busy), useful
            ):
                claims.release(result.name)
                found.put(result)
                yield from _drain(found)
            yield from _drain(found)
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
        tasks = stored_tasks(self.job, left, self.engine.workers, self.plan)
        for at, number in enumerate(left):
            name = self.job.shards[number].name
            if result := self._find_kept(number, claims):
                found.put(result)
            elif not claims.claim(name):
                busy.append(number)
            elif result := self._find_kept(number, claims):
                # Another process finished it just before the claim.
                claims.release(name)
                found.put(result)
            else:
                self.refuse_foreign_files([number])
                yield tasks[at]

    def _find_kept(self, number: int, claims: Claims) -> ShardResult | None:
        """Return a shard that need not be written: it is final, or was written after this process started."""
        result = self.find(number)
        if result is None or is_final(result):
            return result
        path = os.path.join(self.job.out, result.table.name)
        return result if os.stat(path).st_mtime_ns >= claims.started_ns else None


def _drain(found: queue.SimpleQueue[ShardResult]) -> Iterator[ShardResult]:
    while not found.empty():
        yield found.get()


# --- the tasks of shards --------------------------------------------------------------------------


@record
class ShardTasks(Sequence[ShardTask]):
    """The tasks of some shards.

    Attributes:
        job: the job of the plan.
        numbers: positions of the shards in the plan.
        workers: processes of the engine.
        read: returns the task of a shard; see `ShardTask.divided`.

    """

    job: Job
    numbers: Sequence[int]
    workers: int
    read: Callable[[int], ShardTask]

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, at: int) -> ShardTask:  # type: ignore[override]
        shards = len(self)
        divided = divides(self.job.options, shards - at, shards, self.workers)
        return self.read(self.numbers[at])._replace(divided=divided)


def stored_tasks(job: Job, numbers: Sequence[int], workers: int, plan: StoredPlan) -> ShardTasks:
    """Return the tasks of shards that are read from the files of a plan when they are needed.

    Raises (when a task is read):
        PlanError: its rows are missing, damaged or were changed.

    """

    def read(number: int) -> ShardTask:
        name = job.shards[number].name
        keys, samples = read_planned_rows(plan, job.out, number, name)
        return shard_task(job, name, keys, samples, np.arange(len(keys)))

    return ShardTasks(job, numbers, workers, read)


def planned_task(job: Job, source: Source, shard: ShardPlan) -> ShardTask:
    """Return the task of a shard of a plan that is in memory."""
    keys = [key_of(row, job.revision) for row in shard.rows.tolist()]
    return shard_task(job, shard.name, keys, source, shard.rows)


def shard_task(job: Job, name: str, keys: list[str], source: Source, rows: Int64Array) -> ShardTask:
    """Return the task of one shard, whose samples are these rows of a source, in stored order."""
    kind = KINDS[job.label_type]
    labels = extra = None
    if kind.is_class:
        labels = source.label[rows].tolist()
    kinds, arrays = arrays_of(source.extra), None
    if source.extra.num_columns > len(kinds):
        extra = source.extra.drop_columns([*kinds]).take(rows)
    if kinds:
        arrays = spool.take(source.extra.select([*kinds]), rows)
    # The names of the classes of these samples, not of all classes.
    used = labels or []
    if extra is not None and kind.class_lists is not None:
        used = pc.unique(pc.list_flatten(extra[kind.class_lists])).to_pylist()
    return ShardTask(
        out=job.out,
        name=name,
        images=source.images(rows),
        options=job.options,
        fingerprint=job.fingerprint,
        keys=keys,
        labels=labels,
        class_names={label: job.classes[label] for label in used},
        extra=extra,
        arrays=arrays,
        label_type=job.label_type,
        image_names=job.image_names,
        check=job.check,
    )
