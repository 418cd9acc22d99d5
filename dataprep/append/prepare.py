"""Prepare a dataset for an append: lock it, write the mark, and find what an interrupted append has finished."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from dataprep import storage
from dataprep.append.base import Base, read_base
from dataprep.append.complete import changed_error, end_committed, remove_empty_shards
from dataprep.append.mark import Mark, create_mark, is_committed, read_mark
from dataprep.append.planning import AppendPlan, AppendResult, plan_append
from dataprep.append.rejected_only import remove_ended
from dataprep.engines import Engine
from dataprep.options import Options
from dataprep.progress import Progress
from dataprep.resume.finished import is_final, is_intact, read_finished
from dataprep.resume.output import check_output, refuse_folders
from dataprep.resume.stamps import stamps_of
from dataprep.shards.write import ShardResult
from dataprep.sources import Source
from dataprep.storage import completion
from manifests.errors import CallError
from manifests.process.text import printable
from manifests.remote import is_url
from manifests.revisions import APPEND_MARK_NAME


@contextmanager
def prepared_append(
    source: Source,
    out: str,
    options: Options,
    *,
    name: str,
    reader: Engine,
    progress: Progress | None = None,
) -> Iterator[tuple[AppendPlan | AppendResult, dict[str, ShardResult]]]:
    """Plan an append, lock the dataset, and write the mark.

    Args:
        source: the samples.
        out: folder or URL of a dataset that ``dataprep convert`` made.
        options: options of the conversion.
        name: name of the source, for the manifest.
        reader: reads images to compare them with those of the dataset.
        progress: receives these images.

    Yields:
        The plan, or an `AppendResult` if there is nothing to append; and the shards of the plan
        that are finished.

    Raises:
        CallError, SourceError, StoppedError: as `append_dataset`.

    """
    with ExitStack() as stack:
        check_output(source, out)
        read_base(out)  # there may be no folder to lock
        is_locked = stack.enter_context(storage.locked(out))
        storage.check_partials([out])
        base = read_base(out)
        completion.remove_mark(
            out
        )  # of a conversion that was killed right after it wrote the manifest
        mark = _checked_mark(base)
        planned = plan_append(source, base, options, name=name, reader=reader, progress=progress)
        finished: dict[str, ShardResult] = {}
        if isinstance(planned, AppendPlan):
            stack.enter_context(storage.partials([out], is_locked=is_locked, keeps_proofs=False))
            finished = _begin(planned, mark)
            remove_ended(out)
        elif mark or storage.has_partials(out):  # an append was killed after it wrote the manifest
            with storage.partials([out], is_locked=is_locked):
                if mark and is_committed(mark, base.manifest):
                    end_committed(base, mark)
        yield planned, finished


def _checked_mark(base: Base) -> Mark | None:
    """Return the mark of an append that has not ended.

    Raises:
        CallError: a removal has not ended.

    """
    mark = read_mark(base.out)
    if mark and mark.action == "revert":
        message = f"--append: `dataprep revert` of {printable(base.out)} was interrupted"
        raise CallError(message, hint=f"run `dataprep revert {base.out}` again first")
    return mark


def _begin(planned: AppendPlan, mark: Mark | None) -> dict[str, ShardResult]:
    """Write the mark, or resume its append: return the finished shards and remove what is not finished.

    Raises:
        CallError: there is the mark of another append, or a file that is not of this append has one
            of its names.

    """
    out, base = planned.base.out, planned.base
    new = Mark(
        "append", planned.plan.fingerprint, planned.files, stamps_of(planned.source, planned.plan)
    )
    refuse_folders(out, (APPEND_MARK_NAME, *new.files))
    if mark and is_committed(mark, base.manifest):
        end_committed(base, mark)
        mark = None
    if mark is None:
        _refuse_files(base, new)
        if create_mark(out, new):
            return {}
        mark = read_mark(out)
    if mark is None or mark.plan != new.plan:
        raise CallError(
            f"--append: another append to {printable(out)} was interrupted, or is running",
            hint=(
                "run that command again to finish it (after `dataprep plan`: `dataprep work"
                f" {out}`, `dataprep finish {out}`), or `dataprep revert {out}` to remove what it"
                " wrote"
            ),
        )
    there = {entry.name for entry in storage.list_folder(out)}
    kept = _find_finished(planned, mark.stamps, new.stamps)
    names = [
        name
        for name in new.files
        if os.path.splitext(name)[0] not in kept and not name.startswith("manifest.")
    ]
    if is_url(out):
        # There is no lock: an equal append on another machine may write these files, and may have
        # ended meanwhile. Only a table that is not valid has to go, because tables are not replaced
        # as other files are.
        names = [name for name in names if name in there and name.endswith(".parquet")]
        if read_mark(out) != mark or read_base(out).digest != base.digest:
            raise changed_error(out)
    for name in sorted(names, key=lambda name: name.endswith(".parquet")):
        storage.remove(os.path.join(out, name))
    return kept


def _refuse_files(base: Base, mark: Mark) -> None:
    out = base.out
    if _present(out, mark.files):
        # A late `work` of an earlier append may have written tables of shards without images after
        # its end.
        for revision in base.manifest.revisions:
            remove_empty_shards(base, str(revision.options.get("plan")), _present(out, mark.files))
        for name in _present(out, mark.files):
            if read_mark(out) is not None:  # another machine has begun meanwhile
                return
            if read_base(out).digest != base.digest:
                raise changed_error(out)
            raise CallError(
                f"--append: {printable(out)} contains {name!r}, which is not in its manifest",
                hint="move it away; an append needs this name",
            )


def _present(out: str, names: Iterable[str]) -> list[str]:
    there = {entry.name for entry in storage.list_folder(out)}
    return [name for name in names if name in there]


def _find_finished(
    planned: AppendPlan, before: Mapping[str, str], now: Mapping[str, str]
) -> dict[str, ShardResult]:
    out, fingerprint = planned.base.out, planned.plan.fingerprint
    names = [
        shard.name for shard in planned.plan.shards if before.get(shard.name) == now.get(shard.name)
    ]
    found = storage.map_files(out, lambda name: read_finished(fingerprint, out, name, {}), names)
    return {
        result.name: result
        for result in found
        if result and is_final(result) and is_intact(out, result)
    }
