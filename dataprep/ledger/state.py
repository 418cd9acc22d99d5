"""What an output folder contains: `inspect` looks once, and every command decides from what it returns.

::

                convert, plan               the manifest                append
     EMPTY ──────────────────────▶ WRITING ──────────────▶ COMPLETE ──────────────▶ APPENDING
     FOREIGN ──────── overwrite ─────▲                      ▲ │  ▲                    │  │
     WRITING_OTHER ── overwrite ─────┘                      │ │  └── the manifest ────┘  │
                                                            │ └─────── revert ──────▶ REVERTING
                                                            └──── older manifest ────────┘

``convert --overwrite`` moves from every state to WRITING. A kill leaves the folder in its state, and the
same command continues: a conversion in WRITING, an append in APPENDING, `dataprep revert` in
REVERTING. A kill right after a manifest was written leaves COMPLETE with a journal, which the next
command removes. Readers use the manifest in COMPLETE, APPENDING and REVERTING.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property

from dataprep import storage
from dataprep.ledger.journal import Journal, read_journal
from manifests.errors import CallError, DatasetError, ManifestError
from manifests.schema import File, Manifest
from manifests.serialization import manifest_digest
from manifests.store import MANIFEST_NAME, parse_manifest, read_manifest_bytes


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

    #: A dataset, and an append that has not ended.
    APPENDING = auto()

    #: A dataset, and the removal of an append that has not ended.
    REVERTING = auto()


#: There is no dataset, and no manifest at all.
INCOMPLETE = (State.EMPTY, State.WRITING, State.WRITING_OTHER)


@dataclass(frozen=True, kw_only=True)
class Folder:
    """What was found in an output folder.

    Attributes:
        out: the folder, or its URL.
        plan: fingerprint of the plan that was asked for.
        state: what the folder contains.
        journal: what a run that has not ended does; `None` if there is none.
        data: content of ``manifest.json``; empty if there is none.
        newest: the same, parsed; `None` if it cannot be.
        error: why there is no manifest.

    """

    out: str
    plan: str = ""
    state: State
    journal: Journal | None = None
    data: bytes = b""
    newest: Manifest | None = None
    error: DatasetError | None = None

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
    def files(self) -> dict[str, File]:
        """The files that the manifest lists, by name; empty if it is not a manifest of the plan."""
        return _files(self.newest, self.plan)

    @property
    def pending_files(self) -> dict[str, File]:
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
    data, newest, error = b"", None, None
    try:
        data = read_manifest_bytes(out)
        newest = parse_manifest(data, os.path.join(out, MANIFEST_NAME))
    except (CallError, ManifestError) as caught:
        error = caught
    if newest is not None and damage is not None:
        raise damage
    return Folder(
        out=out,
        plan=plan,
        state=_state(plan, journal, newest, has_manifest=bool(data)),
        journal=journal,
        data=data,
        newest=newest,
        error=error,
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
        return {"append": State.APPENDING, "revert": State.REVERTING}[journal.action]
    # A conversion. One of another plan has not changed the dataset yet, if there is one.
    if journal.plan == plan:
        return State.WRITING
    return State.COMPLETE if newest else State.WRITING_OTHER


def _files(manifest: Manifest | None, plan: str) -> dict[str, File]:
    if manifest is None or manifest.plans[0] != plan:
        return {}
    files = [*manifest.shard_files]
    if manifest.rejected:
        files.append(manifest.rejected)
    return {file.name: file for file in files}
