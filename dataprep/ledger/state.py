"""What an output folder contains, and what happens there after `kill -9`: `inspect` looks once.

Every command decides from what `inspect` returns::

                convert, plan               the manifest                append
     EMPTY ──────────────────────▶ WRITING ──────────────▶ COMPLETE ──────────────▶ APPENDING
     FOREIGN ──────── overwrite ─────▲                      ▲ │  ▲                    │  │
     WRITING_OTHER ── overwrite ─────┘                      │ │  └── the manifest ────┘  │
                                                            │ └─────── revert ──────▶ REVERTING
                                                            └──── older manifest ────────┘

A join is an append of columns. ``convert --overwrite`` moves from every state to WRITING. Readers use the manifest in COMPLETE,
APPENDING and REVERTING.

A kill, at any moment, leaves the folder in its state, with these files::

    .dataprep/journal.json     what the run does, and its plan: written first, removed last
    .dataprep/stamps.json      digests of size, time and inode of the source images: written before
                               the first shard, to notice images that were replaced
    .dataprep/partial/         files that were being written, and claims
    train-00012.tfrecord       a shard gets its name first, then its index, and last its table
    train-00012.parquet        an intact table of this plan proves that its shard is finished
    manifest.json              written after the last shard, in one step

The same command continues: a conversion in WRITING, an append in APPENDING, `dataprep revert` in
REVERTING. It locks the folder, keeps the shards that are finished (`ledger.finished`), removes the
other files of its plan and the temporary files of dead processes, and writes what is missing; the
bytes are the same as without the kill. A shard with an image that could not be read is written
again. `run.prepare` lists the steps of a conversion in their order, and `run.convert` has the steps
of an append. A kill right after a manifest was written leaves COMPLETE with a journal, which the
next command removes. Workers end with the process that started them. Of a killed `work`, another
`work` removes the temporary files, if it runs on the same machine, and `finish` removes all if no
shard is missing; `storage.temporary` has the table.

A conversion has no manifest until it ends. On a file system, its last step renames the manifest
twice, first to `JOURNAL_NAME`, so for a moment the journal is a complete manifest; see
`dataprep.run.commit`. An append or its removal leaves ``manifest.json`` intact, so readers are not
disturbed. Its journal proves whose files are in the folder, because it is written when no file has
one of their names, and it keeps other machines from appending to the same object store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, field
from enum import Enum, auto
from functools import cached_property
from typing import Any, Literal

from dataprep import storage
from dataprep.storage.temporary import JOURNAL_NAME
from manifests.arrays import ARRAY_NAME
from manifests.errors import (
    CallError,
    DamagedError,
    DatasetError,
    ManifestError,
    raise_machine_fault,
)
from manifests.files import MANIFEST, read_file
from manifests.json_members import MemberError, parse_json
from manifests.process.text import printable
from manifests.records import keyword_record
from manifests.schema import File, Manifest
from manifests.serialization import (
    REVISION_FILE,
    joined_table,
    manifest_digest,
    numbered,
    of_revision,
    old_manifest_name,
)
from manifests.store import (
    MANIFEST_NAME,
    REJECTED_NAME,
    REMOVED_NAME,
    parse_manifest,
    read_manifest,
)
from manifests.tables import SHARD_LIST_NAME

# --- the journal: what a run that has not ended does ----------------------------------------------


#: What the command that wrote the journal does.
Action = Literal["convert", "append", "join", "remove", "revert"]

_NOTES: Mapping[Action, str] = {
    "convert": (
        "dataprep convert has not completed this dataset. Run the same command again to resume."
    ),
    "append": (
        "dataprep convert --append, or plan --append with work and finish, has not ended. Run the"
        " same commands again to finish it, or dataprep revert to remove what they wrote. The"
        " dataset itself is complete."
    ),
    "join": (
        "dataprep join has not ended. Run the same command again to finish it, or dataprep revert to"
        " remove what it wrote. The dataset itself is complete."
    ),
    "remove": (
        "dataprep remove has not ended. Run the same command again to finish it, or dataprep revert"
        " to undo it. The dataset itself is complete."
    ),
    "revert": "dataprep revert has not ended. Run it again.",
}

#: A shard, its index or its table. Nothing else, and nothing in another folder, is ever removed.
#: What follows the name of a shard in the names of its files, as a regular expression.
ENDS_OF_FILES = rf"\.([0-9]{{1,9}}\.)?(tfrecord|tar|idx|parquet|{ARRAY_NAME.pattern}\.npy)"

_SHARD_FILE = re.compile(rf"[^/\0]+-[0-9]{{5,}}{ENDS_OF_FILES}")


@keyword_record
class Journal:
    """What a run that has not ended does.

    Attributes:
        action: what the command does.
        plan: fingerprint of the plan; of a removal, the digest of the manifest that it removes.
        overwrite: whether a conversion that started over may be resumed by the same command.
        options: options of a conversion, to describe how another one differs.
        files: of an append or its removal, the files that are not part of the dataset unless its
            manifest lists them.
        stamps: of an append, a digest for each shard; see `dataprep.ledger.finished.stamps_of`.
        manifest: the manifest that a conversion was about to rename to ``manifest.json``.

    """

    action: Action
    plan: str
    overwrite: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    files: tuple[str, ...] = ()
    stamps: Mapping[str, str] = field(default_factory=dict)
    manifest: Manifest | None = None


def journal_bytes(journal: Journal) -> bytes:
    """Serialize a journal."""
    members = {"note": _NOTES[journal.action], **asdict(journal)}
    del members["manifest"]
    return (json.dumps(members, indent=1) + "\n").encode()


def read_journal(out: str) -> Journal | None:
    """Read the journal of an output folder; `None` if there is none.

    Raises:
        ManifestError: it is damaged.

    """
    path = os.path.join(out, JOURNAL_NAME)
    try:
        data = read_file(path, MANIFEST)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError, DamagedError) as error:
        raise _damaged(path, error) from None
    return parse_journal(data, path)


def parse_journal(data: bytes, path: str) -> Journal:
    """Parse the content of a journal.

    Raises:
        ManifestError: it is damaged.

    """
    try:
        body = parse_json(data)
        if not body.get("action"):
            manifest = parse_manifest(data, path)
            return Journal(action="convert", plan=manifest.plans[0], manifest=manifest)
        journal = body.record(Journal)
        for name in journal.files:
            if not is_own_name(name):
                raise MemberError(f"{name!r} is not the name of a file of a revision")
    except (ValueError, DamagedError) as error:
        raise _damaged(path, error) from None
    return journal


def is_own_name(name: str) -> bool:
    """Return whether a file of a shard, a list or an old manifest can have this name."""
    is_list = name in (REJECTED_NAME, SHARD_LIST_NAME, REMOVED_NAME)
    return is_list or bool(_SHARD_FILE.fullmatch(name) or REVISION_FILE.fullmatch(name))


def _damaged(path: str, error: Exception) -> ManifestError:
    return ManifestError(
        f"the journal of an interrupted run is damaged or cannot be read ({error})",
        file=path,
        hint="remove it, then the files that `dataprep verify` reports as not in the manifest",
    )


def remove_journal(out: str, plan: str) -> None:
    """Remove the journal of a plan.

    In an object store, another process may have removed it already, and another append may have
    begun: its journal stays.
    """
    journal = read_journal(out)
    if journal is not None and journal.plan == plan:
        storage.remove(os.path.join(out, JOURNAL_NAME))


def unlisted_files(journal: Journal, manifest: Manifest) -> list[str]:
    """Return the files of a journal that do not belong to the dataset."""
    listed = set(names_of_dataset(manifest))
    return [name for name in journal.files if name not in listed]


def names_of_dataset(manifest: Manifest) -> list[str]:
    """Return the names of all files of a dataset up to this revision, except ``manifest.json``."""
    names = [file.name for file in manifest.shard_files]
    return [*dict.fromkeys((*names, *changed_files(manifest))), *own_files(manifest)]


def changed_files(manifest: Manifest) -> list[str]:
    """Return the names that files of shards can have up to this revision, if it or an older one changed shards."""
    names: list[str] = []
    joins, removals = manifest.joins, manifest.removals
    # Right after a scrub, the manifest names the files that stay; later ones may replace these.
    if manifest.oldest and manifest.oldest == manifest.revision:
        return names
    for shard in manifest.shards if joins or removals else ():
        for number in (0, *joins, *removals):
            names.append(joined_table(shard.name, number))
            names += [of_revision(file.name, number) for file in shard.files if removals]
    return names


def own_files(manifest: Manifest) -> Sequence[str]:
    """Return the names of lists and manifests up to this revision, except ``manifest.json``."""
    # Right after a scrub, the manifest names the older lists that stay; later ones may replace these.
    first = manifest.oldest if manifest.oldest == manifest.revision else 0
    numbers = range(first, manifest.revision + 1)
    names = [file.name for file in (manifest.rejected, manifest.removed) if file]
    names += [old_manifest_name(number) for number in numbers[:-1]]
    for name in (SHARD_LIST_NAME, REJECTED_NAME, REMOVED_NAME):
        names += [numbered(name, number) for number in numbers]
    return names


# --- the folder --------------------------------------------------------------------------------------


#: Files of a dataset by name.
Files = Mapping[str, File]


class State(Enum):
    """What an output folder contains."""

    #: No manifest and no journal.
    EMPTY = auto()

    #: A ``manifest.json`` that no conversion of this program made, or that is damaged.
    FOREIGN = auto()

    #: A conversion of the given plan has not ended. If it overwrites a dataset, that may still be
    #: there.
    WRITING = auto()

    #: A conversion of another plan has not ended, and there is no dataset.
    WRITING_OTHER = auto()

    #: A dataset.
    COMPLETE = auto()

    #: A dataset, and an append, a join or a removal of samples that has not ended.
    APPENDING = auto()

    #: A dataset, and the removal of an append that has not ended.
    REVERTING = auto()


#: There is no dataset, and no manifest at all.
INCOMPLETE = (State.EMPTY, State.WRITING, State.WRITING_OTHER)


@keyword_record
class Folder:
    """What was found in an output folder.

    Attributes:
        out: the folder, or its URL.
        plan: fingerprint of the plan that was asked for.
        state: what the folder contains.
        journal: what a run that has not ended does; `None` if there is none.
        data: content of ``manifest.json``; empty if there is none.
        newest: the same, parsed; `None` if it cannot be.

    """

    out: str
    plan: str = ""
    state: State
    journal: Journal | None = None
    data: bytes = b""
    newest: Manifest | None = None

    @cached_property
    def error(self) -> DatasetError | None:
        """Why there is no manifest."""
        if self.newest is None:
            try:
                read_manifest(self.out)
            except (CallError, ManifestError) as error:
                return error
        return None

    @property
    def manifest(self) -> Manifest:
        """The manifest of the newest revision; raises `error` if there is none."""
        if self.newest is None:
            hint = "run the same `dataprep convert` again to finish the dataset"
            raise self.error or ManifestError("there is no manifest", file=self.out, hint=hint)
        return self.newest

    @property
    def digest(self) -> str:
        """What the next revision states about the newest one."""
        return manifest_digest(self.data)

    @cached_property
    def files(self) -> Files:
        """The files that the manifest lists, by name; empty if it is not a manifest of the plan."""
        return _files(self.newest, self.plan)

    @property
    def pending_files(self) -> Files:
        """The same for the manifest that a killed run was about to rename to ``manifest.json``."""
        return _files(self.journal.manifest if self.journal else None, self.plan)

    @property
    def owns_names(self) -> bool:
        """Whether all files with the names of the plan's shards are from the plan, also without a table.

        In an object store, the table of a killed run may be on another machine. But before a run
        writes its journal, it checks that all files of these names are its own, or is about to
        replace them.
        """
        return self.state is State.WRITING and not storage.has_locks(self.out)


def inspect(out: str, plan: str = "") -> Folder:
    """Look once at an output folder.

    Args:
        out: the folder, or its URL.
        plan: fingerprint of the plan to write.

    Raises:
        ManifestError: there is a dataset, but the journal of an append is damaged.
        StorageError: a file cannot be read.

    """
    # The journal first: another process may finish meanwhile, and removes the journal last.
    journal, damage = None, None
    try:
        journal = read_journal(out)
    except ManifestError as caught:
        damage = caught
    data, newest, path = b"", None, os.path.join(out, MANIFEST_NAME)
    try:
        data = read_file(path, MANIFEST)
        newest = parse_manifest(data, path)
    except FileNotFoundError:
        pass  # `Folder.error` says so
    except (OSError, ValueError, ManifestError) as caught:
        raise_machine_fault(caught)  # others are `Folder.error`, too
    if newest is not None and damage is not None:
        raise damage
    return Folder(
        out=out,
        plan=plan,
        state=_state(plan, journal, newest, has_manifest=bool(data)),
        journal=journal,
        data=data,
        newest=newest,
    )


def _state(
    plan: str, journal: Journal | None, newest: Manifest | None, *, has_manifest: bool
) -> State:
    if has_manifest and (newest is None or newest.creator != "convert"):
        return State.FOREIGN
    # No run is working, or it was killed after it wrote the manifest.
    is_ended = journal is None or (newest is not None and newest.plans[-1] == journal.plan)
    if newest is not None and is_ended:
        return State.COMPLETE
    if journal is None:
        return State.EMPTY
    if newest is not None and journal.action != "convert":
        return State.REVERTING if journal.action == "revert" else State.APPENDING
    # A conversion. One of another plan has not changed the dataset yet, if there is one.
    if journal.plan == plan:
        return State.WRITING
    return State.COMPLETE if newest else State.WRITING_OTHER


def _files(manifest: Manifest | None, plan: str) -> Files:
    if manifest is None or manifest.plans[0] != plan:
        return {}
    files = [*manifest.shard_files]
    if manifest.rejected:
        files.append(manifest.rejected)
    return {file.name: file for file in files}


def refuse_appended(folder: Folder) -> None:
    """Check that nothing was appended to a dataset since it was made, and that no append is in progress.

    Raises:
        CallError: it has more than one revision, so it is no longer what a conversion made; or an
            append, or the removal of one, was interrupted, or is running.

    """
    if folder.newest and folder.newest.revisions:
        what = "images or columns were added to it"
        if folder.newest.removals:
            what = "images of it were removed"
        raise CallError(
            f"--out {printable(folder.out)} is at revision {folder.newest.revision}: {what}",
            hint=(
                "set --append to add the images of another source, choose another folder, or"
                " replace everything with --overwrite"
            ),
        )
    if folder.state in (State.APPENDING, State.REVERTING):
        raise CallError(
            f"--out {printable(folder.out)}: an append to it was interrupted, or is running",
            hint=(
                f"`dataprep verify {printable(folder.out)}` says how to finish or to undo it; or choose another"
                " folder, or replace everything with --overwrite"
            ),
        )
