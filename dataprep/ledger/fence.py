"""A run that no longer owns its output folder does no harm there.

A machine may stop in the middle of a run, as a paused virtual machine does, and continue after
another machine has made another dataset in the same place. A local folder is locked, but nothing
locks a folder in an object store. So there:

- A run takes the folder over by writing the journal on the condition that the journal is still the
  one that the run has seen, and that the manifest is too.
- Before each change of an object, the run looks whether the journal still names its plan. Objects
  are created and replaced on conditions; see `dataprep.storage.guarded`.
- Before it writes the manifest, the run looks at every object that the manifest lists.

Runs with equal plans own a folder together: they write the same bytes.

``OWNER_NAME`` says which process took the folder over last, so that a run which lost it can name
the owner after the other run has ended.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from dataprep import storage
from dataprep.ledger.journal import (
    Journal,
    journal_bytes,
    parse_journal,
    read_journal,
    remove_journal,
)
from dataprep.ledger.state import Folder, State, inspect
from dataprep.options import Options
from dataprep.storage.partials import JOURNAL_NAME, this_owner
from manifests.errors import CallError, DamagedError, LostFolderError
from manifests.files import MANIFEST, read_file
from manifests.process.text import printable
from manifests.serialization import manifest_digest
from manifests.store import MANIFEST_NAME, read_manifest

#: The owner of a folder in an object store; see `dataprep.storage.partials.this_owner`.
OWNER_NAME = f"{storage.BOOKKEEPING}/owner"


def check_owner(out: str, plan: str, removed: str = "") -> None:
    """Check that a run still owns its output folder: the journal names its plan.

    Without a journal, an equal run has ended: its manifest may not be removed.

    Args:
        out: the output folder.
        plan: fingerprint of the plan, as in the journal.
        removed: the file that is about to be removed, if any.

    Raises:
        LostFolderError: the folder belongs to another run.

    """
    journal = read_journal(out)
    if journal is None:
        owner = "" if removed == MANIFEST_NAME else newest_plan(out)
    else:
        owner = journal.plan
    if owner != plan:
        raise lost_error(out)


def check_manifest(out: str, digests: Collection[str], removed: str = "") -> None:
    """Check that a dataset is still the one that a command began with, whose manifest has one of these digests.

    Raises:
        LostFolderError: there is another manifest.

    """
    del removed
    if seen_digest(out) not in digests:
        raise lost_error(out)


def seen_digest(out: str) -> str:
    """Return the digest of the manifest that is in a folder now, or of nothing; see `check_manifest`."""
    return manifest_digest(read_existing(out, MANIFEST_NAME) or b"")


@contextmanager
def owned(out: str, plan: str) -> Iterator[None]:
    """In this block, call `check_owner` before each change of an object of the dataset or of a plan."""
    check = partial(check_owner, out, plan)
    plan_folder = os.path.join(out, storage.PLAN_FOLDER)
    with storage.guarded(out, check), storage.guarded(plan_folder, check):
        yield


def take_over(seen: Folder, journal: Journal) -> None:
    """Write the journal, if nobody else has changed the folder since this run looked at it.

    Raises:
        LostFolderError: another run has.

    """
    out, data = seen.out, journal_bytes(journal)
    path = os.path.join(out, JOURNAL_NAME)
    if storage.has_locks(out):
        storage.replace_file(path, data)
        return
    # Replace only the journal that this run has seen, or the journal of an equal run.
    plans = (journal.plan, seen.journal.plan if seen.journal else journal.plan)
    is_written = False
    while not is_written:
        old = read_existing(out, JOURNAL_NAME)
        if old is None:
            is_written = storage.create_file(path, data)
        elif parse_journal(old, path).plan in plans:
            is_written = storage.replace_unchanged(path, data, old)
        else:
            raise lost_error(out)
    # Another run may have ended in between: then there is no journal, but another manifest.
    manifest = read_existing(out, MANIFEST_NAME) or b""
    if manifest != seen.data and newest_plan(out) != journal.plan:
        storage.remove(path)
        raise lost_error(out)
    is_own = seen.state in (State.EMPTY, State.WRITING) or bool(seen.files)
    record_owner(out, displaces=not is_own)


def begin_conversion(seen: Folder, options: Options, *, overwrite: bool = False) -> None:
    """Take a folder over for a conversion of the plan that it was inspected for.

    With `overwrite`, the same call resumes this run instead of starting over.
    """
    journal = Journal(
        action="convert",
        plan=seen.plan,
        overwrite=overwrite,
        options={**options.as_json(), "plan": seen.plan},
    )
    take_over(seen, journal)


def begin_revision(base: Folder, journal: Journal) -> bool:
    """Write the journal of an append or a removal unless there is one; return whether it was written.

    Only one of several processes succeeds.

    Args:
        base: the dataset that the run has seen.
        journal: the journal.

    Raises:
        CallError: the object store ignores conditions, so another process could succeed too.
        LostFolderError: there is another manifest now.

    """
    out = base.out
    storage.make_folder(out)  # it exists; of an object store, this checks the conditions
    if not storage.create_file(os.path.join(out, JOURNAL_NAME), journal_bytes(journal)):
        return False
    if not storage.has_locks(out) and read_existing(out, MANIFEST_NAME) != base.data:
        remove_journal(out, journal.plan)
        raise lost_error(out)
    record_owner(out)
    return True


def take_removal_over(out: str, journal: Journal) -> Journal:
    """Let the removal of an append own a folder in an object store, so that the append stops.

    Return the journal of the removal.
    """
    if storage.has_locks(out):
        return journal
    removal = replace(journal, action="revert", plan=f"removal of {journal.plan}")
    take_over(inspect(out), removal)
    return removal


def newest_plan(out: str) -> str:
    """Return the fingerprint of the plan of the newest revision; empty if there is no intact manifest."""
    try:
        return read_manifest(out).plans[-1]
    except (CallError, DamagedError):
        return ""


def read_existing(out: str, name: str) -> bytes | None:
    """Read a small file of an output folder; `None` if it does not exist."""
    try:
        return read_file(os.path.join(out, name), MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise CallError(
            f"--out: {printable(os.path.join(out, name))} cannot be read ({error.strerror})",
            hint="move it away",
        ) from None


# --- the owner of a folder in an object store -----------------------------------------------------


#: Ends the record of an owner that, or after one that, displaced another run or its dataset.
_DISPLACES = " displaces others"


def record_owner(out: str, *, displaces: bool = False) -> None:
    """Record that this process has taken over a folder in an object store.

    Args:
        out: the output folder.
        displaces: whether the folder belonged to another plan. A run of that plan may be suspended.

    """
    if not storage.has_locks(out):
        displaces = displaces or has_displaced(out)
        record = this_owner() + _DISPLACES * displaces
        storage.replace_file(os.path.join(out, OWNER_NAME), record.encode())


def has_displaced(out: str) -> bool:
    """Return whether a run has ever taken a folder in an object store from a run of another plan.

    That run may write files at any time later, although it owns the folder no longer.
    """
    return _owner(out).endswith(_DISPLACES)


def lost_error(out: str) -> LostFolderError:
    """Return the error that another run has taken a folder over."""
    return LostFolderError(
        f"another run has taken over the folder since this run began{owner_text(out)}",
        file=out,
        hint="look at it with `dataprep info`; to replace it, run the same command with --overwrite",
    )


def owner_text(out: str) -> str:
    """Return who has taken over a folder in an object store last, as the end of a message."""
    owner = _owner(out).removesuffix(_DISPLACES).split(".")
    return f": process {owner[2]} on {owner[0]}" if len(owner) == 4 else ""


def _owner(out: str) -> str:
    if storage.has_locks(out):
        return ""
    return (read_existing(out, OWNER_NAME) or b"").decode("ascii", "replace")
