"""Who owns an output folder, and which process writes a shard of it.

A run that no longer owns its output folder does no harm there.

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

Within a run, a claim says which of several processes writes a shard. Claims only avoid duplicate
work; correctness does not depend on them.

A claim is a file that is created exclusively and names its owner. Each owner has one more file, its
beat, and changes its content every few seconds. An observer measures with its own monotonic clock
how long neither of them changes, so clocks need not agree. After three missed beats, the claim
belongs to whoever creates it next. If the old owner was only slow, both write the same bytes.

Nothing here imports Arrow: `dataprep index` starts quickly.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Self

from dataprep import storage
from dataprep.ledger.state import (
    Folder,
    Journal,
    State,
    inspect,
    journal_bytes,
    parse_journal,
    read_journal,
    remove_journal,
)
from dataprep.options import Options
from dataprep.storage.temporary import JOURNAL_NAME, is_dead, this_owner
from manifests.errors import CallError, DamagedError, LostFolderError
from manifests.files import MANIFEST, read_file
from manifests.process.text import printable
from manifests.schema import Manifest, RejectedRow
from manifests.serialization import file_of, manifest_digest
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    manifest_files,
    read_manifest,
    rejected_bytes,
)
from manifests.tables import SHARD_LIST_NAME

#: The owner of a folder in an object store; see `dataprep.storage.temporary.this_owner`.
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
    """Check that a dataset is still the one that a command began with, by its digest.

    Raises:
        LostFolderError: there is another manifest.

    """
    del removed
    if seen_digest(out) not in digests:
        raise lost_error(out)


def seen_digest(out: str) -> str:
    """Return the digest of the manifest in a folder, or of nothing; see `check_manifest`."""
    return manifest_digest(read_existing(out, MANIFEST_NAME) or b"")


@contextmanager
def owned(out: str, plan: str) -> Iterator[None]:
    """In this block, call `check_owner` before each change of an object."""
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
    plans = [journal.plan]
    if seen.journal:
        plans.append(seen.journal.plan)
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
    """Write the journal of an append or a removal unless there is one; return whether it did.

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
    """Return the plan of the newest revision; empty if there is no intact manifest."""
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
        hint=(
            "look at it with `dataprep info`; to replace it, run the same command with --overwrite"
        ),
    )


def owner_text(out: str) -> str:
    """Return who has taken over a folder in an object store last, as the end of a message."""
    owner = _owner(out).removesuffix(_DISPLACES).split(".")
    if len(owner) != 4:
        return ""
    return f": process {owner[2]} on {owner[0]}"


def _owner(out: str) -> str:
    if storage.has_locks(out):
        return ""
    return (read_existing(out, OWNER_NAME) or b"").decode("ascii", "replace")


# --- replace files of a dataset whose shards do not change ----------------------------------------


def replace_files(out: str, files: Iterable[tuple[str, bytes]]) -> None:
    """Write files of a dataset; a reader sees the old content of a file or all of the new."""
    for name, content in files:
        storage.replace_file(os.path.join(out, name), content)


def replace_dataset(
    out: str,
    manifest: Manifest,
    pending: Iterable[tuple[str, str]],
    rejected: Sequence[RejectedRow],
    seen: str,
) -> Manifest:
    """Replace the manifest of shards that are not changed, with their indexes and tables.

    The old manifest is removed first: it must never describe the indexes of another run. In an
    object store, a run that then finds the manifest of another dataset changes nothing more.

    Args:
        out: the folder of the shards.
        manifest: the new manifest, without the list of rejected images.
        pending: temporary and final paths of the indexes and tables.
        rejected: rows for ``rejected.jsonl``.
        seen: digest of the manifest that the run has seen.

    Returns:
        The manifest that was written: an equal run on another machine may have removed it since.

    Raises:
        LostFolderError: another run has written a manifest since.

    """
    files = {}
    if rejected:
        data = files[REJECTED_NAME] = rejected_bytes(rejected)
        manifest = replace(manifest, rejected=file_of(REJECTED_NAME, data))
    # Raises an error if the manifest is too long, while nothing is changed yet.
    files |= manifest_files(manifest)
    own = (manifest_digest(b""), manifest_digest(files[MANIFEST_NAME]))
    with storage.guarded(out, partial(check_manifest, out, (seen,))):
        storage.remove(os.path.join(out, MANIFEST_NAME))
    with storage.guarded(out, partial(check_manifest, out, own)):
        for name in (SHARD_LIST_NAME, REJECTED_NAME):
            storage.remove(os.path.join(out, name))
        storage.publish_all(pending)
        replace_files(out, files.items())
    return manifest


# --- claims: which of several processes writes a shard --------------------------------------------


#: Seconds between two beats.
BEAT_SECONDS = 5.0

#: A claim is stale after this many beats without a change.
MISSED_BEATS = 3

_BEAT = re.compile(r"[0-9]{20} ([0-9]{1,5}\.[0-9]{3})\n", re.ASCII)


class Claims:
    """The claims of this process in one output folder, and the claims of others that it has seen.

    Use it as a context manager: the beat runs inside the block, and the claims are released at its
    end.

    Args:
        out: the output folder, whose folder for temporary files exists.
        beat: seconds between two beats.

    Attributes:
        beat: seconds between two beats.
        started_ns: modification time of the first beat, by the clock of the file system.

    """

    def __init__(self, out: str, beat: float = BEAT_SECONDS) -> None:
        self.beat = beat
        self.started_ns = 0
        self._out = out
        self._owner = this_owner()
        self._beats = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._keep_beating, daemon=True)
        self._mine: set[str] = set()
        #: For each claim of another process: its content with the beat of its owner, and when this
        #: was first seen.
        self._seen: dict[str, tuple[tuple[bytes, bytes], float]] = {}

    def __enter__(self) -> Self:
        path = self._beat_path(self._owner)
        with storage.translate_errors(path, "the file cannot be written"):
            self._write_beat()
            self.started_ns = os.stat(path).st_mtime_ns
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        for name in tuple(self._mine):
            self.release(name)
        with suppress(OSError):
            os.unlink(self._beat_path(self._owner))

    def claim(self, name: str) -> bool:
        """Claim a shard; return whether this process has it now.

        Raises:
            StorageError: the claim cannot be written.

        """
        path = storage.shared_path(self._out, "claim", name)
        if self._is_stale(name, path):
            with suppress(FileNotFoundError):
                os.unlink(path)
        with storage.translate_errors(path, "the file cannot be written"):
            try:
                with open(path, "xb", buffering=0) as file:
                    file.write(self._owner.encode())
            except FileExistsError:
                return False
        self._seen.pop(name, None)
        self._mine.add(name)
        return True

    def release(self, name: str) -> None:
        """Give a claim back, unless another process has taken it."""
        self._mine.discard(name)
        path = storage.shared_path(self._out, "claim", name)
        if _content(path) == self._owner.encode():
            with suppress(OSError):
                os.unlink(path)

    def _is_stale(self, name: str, path: str) -> bool:
        """Return whether the owner of a claim is gone, as far as this process has seen."""
        content = _content(path)
        if not content and not os.path.lexists(path):
            return False
        owner = content.decode("ascii", "replace")
        if is_dead(owner):
            return True
        beat = _content(self._beat_path(owner)) if "/" not in owner and "\0" not in owner else b""
        now = time.monotonic()
        state, since = self._seen.get(name, (None, now))
        if state != (content, beat):
            since = now
            self._seen[name] = ((content, beat), now)
        match = _BEAT.fullmatch(beat.decode("ascii", "replace"))
        return now - since > MISSED_BEATS * (float(match[1]) if match else self.beat)

    def _beat_path(self, owner: str) -> str:
        return storage.shared_path(self._out, "beat", owner)

    def _write_beat(self) -> None:
        self._beats += 1
        with open(self._beat_path(self._owner), "wb", buffering=0) as file:
            file.write(f"{self._beats:020d} {self.beat:.3f}\n".encode())

    def _keep_beating(self) -> None:
        while not self._stop.wait(self.beat):
            with suppress(OSError):  # without a beat, others take the claims, which costs work only
                self._write_beat()


def _content(path: str) -> bytes:
    """Return the content of a small file; empty if it cannot be read."""
    try:
        return read_file(path, MANIFEST)
    except (OSError, DamagedError):
        return b""
