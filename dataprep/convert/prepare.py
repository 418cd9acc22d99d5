"""Prepare an output folder for a conversion: check it, lock it, find what is finished, and remove what is outdated."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from dataprep import storage
from dataprep.options import Options
from dataprep.plan.assign import PLAN_FOLDER, ConversionPlan, make_plan
from dataprep.plan.job import Job, job_of
from dataprep.resume.leftovers import Rereading, Resumable, find_resumable, remove_outdated
from dataprep.resume.output import check_output
from dataprep.resume.stamps import write_stamps
from dataprep.shards.write import ShardResult
from dataprep.sources import Source
from dataprep.storage.completion import mark_incomplete
from manifests.errors import CallError
from manifests.text import printable

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Prepared:
    """A locked output folder, and what a run has to do in it.

    Attributes:
        plan: the plan.
        job: the job of the plan.
        finished: finished shards of this plan, by name. They are kept.
        is_complete: whether the dataset is complete. Then `finished` lacks the shards whose images are all rejected.

    """

    plan: ConversionPlan
    job: Job
    finished: Mapping[str, ShardResult]
    is_complete: bool


@contextmanager
def prepared(
    source: Source,
    out: str,
    options: Options,
    *,
    overwrite: bool,
    rereading: Rereading = Rereading(),  # noqa: B008  (it is frozen)
    always_writes: bool = False,
) -> Iterator[Prepared]:
    """Plan a conversion and lock its output folder.

    Args:
        source: the samples to convert.
        out: output folder.
        options: everything that determines the bytes.
        overwrite: start over.
        rereading: what to read again of finished shards.
        always_writes: the caller writes files even if the dataset is complete.

    Raises:
        CallError: the options do not fit the source, `out` cannot be used or contains another dataset, or its dataset
            is complete and images were replaced since.
        StoppedError: a problem outside of the program, for example another run in the folder.

    """
    check_output(source, out)
    plan = make_plan(source, options)
    _make_folder(out)
    with ExitStack() as stack:
        is_locked = stack.enter_context(storage.locked(out))
        storage.check_partials([out])
        has_other_plan = has_ended_append = False
        if storage.is_folder(os.path.join(out, PLAN_FOLDER)):
            from dataprep.append.ended import has_ended, remove_ended  # take time, and most runs have no plan
            from dataprep.plan.files import check_plan, remove_plan

            has_ended_append = overwrite and has_ended(out)
            has_other_plan = check_plan(out, plan.fingerprint, options, overwrite=overwrite)
        with storage.remember(out):
            resumable = find_resumable(source, plan, out, options, overwrite=overwrite, rereading=rereading)
        if (
            has_other_plan
            or always_writes
            or not resumable.is_complete
            or resumable.stamps
            or storage.has_partials(out)
        ):
            stack.enter_context(storage.partials([out], is_locked=is_locked, keeps_proofs=True))
            _prepare_folder(out, plan, options, resumable, overwrite=overwrite, is_locked=is_locked)
        if has_other_plan:
            remove_plan(out)
        if has_ended_append:
            remove_ended(out)
        _log.info(
            "%s: the plan %s has %d shards, of which %d are kept from an earlier run",
            out,
            plan.fingerprint,
            len(plan.shards),
            len(resumable.shards),
        )
        yield Prepared(plan, job_of(source, plan, out, options), resumable.shards, resumable.is_complete)


def _make_folder(out: str) -> None:
    try:
        storage.make_folder(out)
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
    # Last, because a table among the temporary files can prove which run wrote an outdated shard.
    storage.sweep(out, is_locked=is_locked)
