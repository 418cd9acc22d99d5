"""Undo an append: remove what an interrupted one wrote, or go back to the revision before the newest one."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

from dataprep import storage
from dataprep.ledger.fence import begin_revision, owned, owner_text, take_removal_over
from dataprep.ledger.state import Folder, Journal, State, own_files, remove_journal, unlisted_files
from dataprep.plan.files import has_append_plan, remove_empty_plan_folder, remove_plan
from dataprep.run.base import read_base
from dataprep.run.commit import end_committed, end_conversion
from manifests.errors import CallError, StoppedError
from manifests.process.text import printable
from manifests.schema import Manifest
from manifests.serialization import old_manifest_name, parts
from manifests.store import MANIFEST_NAME, parse_manifest, read_old_manifest


class RevertResult(NamedTuple):
    """What `revert_dataset` did.

    Attributes:
        manifest: manifest of the revision that the dataset is at.
        removed: number of samples that were removed; 0 if only an interrupted append was.
        files: number of files that were removed.

    """

    manifest: Manifest
    removed: int
    files: int


def revert_dataset(out: str) -> RevertResult:
    """Remove the files of an interrupted append; if there is none, the files of the newest revision.

    ``manifest.json`` is the old or the new one at any moment. After an interruption, the same call
    continues.

    Args:
        out: folder or URL of the dataset.

    Raises:
        CallError: `out` is not a complete dataset, or nothing was ever appended to it.
        ManifestError: a manifest is missing or damaged.
        StoppedError: another run is working in the folder, or a disk or a server fails.

    """
    base = read_base(out, option="")
    with storage.locked(out) as is_locked:
        storage.check_partials([out])
        with storage.partials([out], is_alone=is_locked):
            base = end_conversion(read_base(out, option=""))
            journal = base.journal
            if journal and base.state is not State.COMPLETE and journal.plan != base.digest:
                if journal.action == "append":
                    journal = take_removal_over(out, journal)
                return _remove_files(base.manifest, journal, out, removed=0)
            if base.state is State.COMPLETE:
                end_committed(base)
            return _revert_newest(base)


def _revert_newest(base: Folder) -> RevertResult:
    manifest, out = base.manifest, base.out
    if not manifest.revisions:
        raise CallError(
            f"{printable(out)} is at revision 0: nothing was appended to it",
            hint="only an append can be reverted",
        )
    number = manifest.revision - 1
    data = read_old_manifest(out, manifest, number)
    old = parse_manifest(data, os.path.join(out, old_manifest_name(number)))
    every = (*(file.name for file in manifest.shard_files), *own_files(manifest))
    mark = Journal(action="revert", plan=base.digest, files=every)
    mark = replace(mark, files=tuple(unlisted_files(mark, old)))
    if base.state is not State.REVERTING and not begin_revision(base, mark):
        raise StoppedError(
            "another command is changing the revision", file=out, hint="wait until it ends"
        )
    with owned(out, mark.plan):
        is_replaced = storage.replace_unchanged(os.path.join(out, MANIFEST_NAME), data, base.data)
    if not is_replaced:
        raise StoppedError(
            f"another command has changed the revision since this revert began{owner_text(out)}",
            file=out,
            hint="see with `dataprep info` what is the newest one now, before you revert it",
        )
    removed = parts(manifest)[-1].shards
    return _remove_files(old, mark, out, removed=sum(shard.samples for shard in removed))


def _remove_files(manifest: Manifest, mark: Journal, out: str, *, removed: int) -> RevertResult:
    there = storage.names_in(out)
    names = [name for name in unlisted_files(mark, manifest) if name in there]
    with owned(out, mark.plan):
        storage.remove_all(out, names)
    if has_append_plan(out):
        remove_plan(out)
    remove_empty_plan_folder(out)
    remove_journal(out, mark.plan)
    return RevertResult(manifest, removed, len(names))
