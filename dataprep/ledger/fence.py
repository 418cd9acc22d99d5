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
from dataclasses import dataclass, replace

from dataprep import storage
from dataprep.ledger.journal import (
    Journal,
    create_journal,
    journal_bytes,
    read_journal,
    remove_journal,
)
from dataprep.options import Options
from dataprep.plan.files import Job
from dataprep.storage.partials import JOURNAL_NAME, this_owner
from manifests.errors import CallError, DamagedError, LostFolderError
from manifests.files import MANIFEST, read_file
from manifests.process.text import printable
from manifests.schema import Manifest
from manifests.store import MANIFEST_NAME, read_manifest

#: The owner of a folder in an object store; see `dataprep.storage.partials.this_owner`.
OWNER_NAME = f"{storage.BOOKKEEPING}/owner"


@dataclass(frozen=True, slots=True)
class Fence:
    """Looks whether a run still owns its output folder. It can be pickled, so that workers look too.

    Attributes:
        out: the output folder.
        plan: fingerprint of the plan, as in the journal.

    """

    out: str
    plan: str

    def __call__(self, removed: str = "") -> None:
        """Look at the journal. Without one, an equal run has ended: its manifest may not be removed.

        Args:
            removed: the file that is about to be removed, if any.

        Raises:
            LostFolderError: the folder belongs to another run.

        """
        journal = read_journal(self.out)
        if journal is not None:
            if journal.plan != self.plan:
                raise lost_error(self.out)
        elif removed == MANIFEST_NAME or newest_plan(self.out) != self.plan:
            raise lost_error(self.out)


@dataclass(frozen=True, slots=True)
class ManifestFence:
    """Looks whether a dataset is still the one that a repair began with.

    Attributes:
        out: folder or URL of the dataset.
        manifest: its manifest.

    """

    out: str
    manifest: bytes | None

    def __call__(self, removed: str = "") -> None:
        """Look at the manifest.

        Raises:
            LostFolderError: there is another one.

        """
        del removed
        if read_existing(self.out, MANIFEST_NAME) != self.manifest:
            raise lost_error(self.out)


def fenced(job: Job) -> Job:
    """Let the workers of a run in an object store look whether it still owns the folder."""
    if storage.has_locks(job.out):
        return job
    return replace(job, check=Fence(job.out, job.fingerprint))


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run has seen before it takes a folder over.

    Attributes:
        journal: content of the journal; `None` if there is none.
        manifest: content of the manifest; `None` if there is none.

    """

    journal: bytes | None
    manifest: bytes | None


def look(out: str) -> Seen:
    """Read the journal and the manifest of an output folder in an object store."""
    if storage.has_locks(out):
        return Seen(None, None)
    return Seen(read_existing(out, JOURNAL_NAME), read_existing(out, MANIFEST_NAME))


def take_over(out: str, journal: Journal, seen: Seen) -> None:
    """Write the journal, if nobody else has changed the folder since this run looked at it.

    Raises:
        LostFolderError: another run has.

    """
    path, data = os.path.join(out, JOURNAL_NAME), journal_bytes(journal)
    if storage.has_locks(out):
        storage.replace_file(path, data)
        return
    expected = seen.journal
    while not _write(path, data, expected):
        expected = read_existing(out, JOURNAL_NAME)
        there = read_journal(out)
        if there is not None and there.plan != journal.plan:
            raise lost_error(out)
    if read_existing(out, MANIFEST_NAME) != seen.manifest and newest_plan(out) != journal.plan:
        storage.remove(path)
        raise lost_error(out)
    record_owner(out)


def write_conversion(
    out: str,
    plan: str,
    options: Options,
    seen: Seen,
    *,
    overwrite: bool = False,
    removing: bool = False,
) -> None:
    """Take a folder over for a conversion.

    With `overwrite`, the same call resumes this run instead of starting over, unless the run is
    still `removing` the files that it overwrites.
    """
    journal = Journal(
        action="convert",
        plan=plan,
        overwrite=overwrite and not removing,
        options={**options.as_json(), "plan": plan},
    )
    take_over(out, journal, seen)


def begin_revision(out: str, journal: Journal, manifest: bytes) -> bool:
    """Write the journal of an append or a removal unless there is one; return whether it was written.

    Args:
        out: folder or URL of the dataset.
        journal: the journal.
        manifest: the manifest that the run has seen.

    Raises:
        LostFolderError: there is another manifest now.

    """
    if not create_journal(out, journal):
        return False
    if not storage.has_locks(out) and read_existing(out, MANIFEST_NAME) != manifest:
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
    take_over(out, removal, look(out))
    return removal


def _write(path: str, data: bytes, expected: bytes | None) -> bool:
    if expected is None:
        return storage.create_file(path, data)
    return storage.replace_unchanged(path, data, expected)


def record_owner(out: str) -> None:
    """Record that this process has taken over a folder in an object store."""
    if not storage.has_locks(out):
        storage.replace_file(os.path.join(out, OWNER_NAME), this_owner().encode())


def newest_plan(out: str) -> str:
    """Return the fingerprint of the plan of the newest revision; empty if there is no intact manifest."""
    try:
        manifest: Manifest = read_manifest(out)
    except (CallError, DamagedError):
        return ""
    options = manifest.revisions[-1].options if manifest.revisions else manifest.options
    return str(options.get("plan", ""))


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


def lost_error(out: str) -> LostFolderError:
    """Return the error that another run has taken a folder over."""
    return LostFolderError(
        f"another run has taken over the folder since this run began{owner_text(out)}",
        file=out,
        hint="look at it with `dataprep info`; to replace it, run the same command with --overwrite",
    )


def owner_text(out: str) -> str:
    """Return who has taken over a folder in an object store last, as the end of a message."""
    if storage.has_locks(out):
        return ""
    owner = (read_existing(out, OWNER_NAME) or b"").decode("ascii", "replace").split(".")
    return f": process {owner[2]} on {owner[0]}" if len(owner) == 4 else ""
