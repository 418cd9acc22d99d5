"""The journal of an output folder: what a run that has not ended does there. One writer, one reader.

`JOURNAL_NAME` is written before a run changes anything, and removed when the run ends.

A conversion has no manifest until it ends. Its last step renames the manifest twice, first to
`JOURNAL_NAME`, so for a moment the journal is a complete manifest; see `dataprep.run.commit`.

An append or its removal leaves ``manifest.json`` intact, so readers are not disturbed. Its journal
proves whose files are in the folder, because it is written when no file has one of their names, and
it keeps other machines from appending to the same object store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from dataprep import storage
from dataprep.storage.temporary import JOURNAL_NAME
from manifests.errors import DamagedError, ManifestError
from manifests.files import MANIFEST, read_file
from manifests.json_members import MemberError, parse_json
from manifests.schema import Manifest
from manifests.serialization import REVISION_FILE, numbered, old_manifest_name
from manifests.store import REJECTED_NAME, parse_manifest
from manifests.tables import SHARD_LIST_NAME

#: What the command that wrote the journal does.
Action = Literal["convert", "append", "revert"]

_NOTES: Mapping[Action, str] = {
    "convert": (
        "dataprep convert has not completed this dataset. Run the same command again to resume."
    ),
    "append": (
        "dataprep convert --append, or plan --append with work and finish, has not ended. Run the"
        " same commands again to finish it, or dataprep revert to remove what they wrote. The"
        " dataset itself is complete."
    ),
    "revert": "dataprep revert has not ended. Run it again.",
}

#: A shard, its index or its table. Nothing else, and nothing in another folder, is ever removed.
_SHARD_FILE = re.compile(r"[^/\0]+-[0-9]{5,}\.(tfrecord|tar|idx|parquet)")


@dataclass(frozen=True, slots=True, kw_only=True)
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
            if not (_SHARD_FILE.fullmatch(name) or REVISION_FILE.fullmatch(name)):
                raise MemberError(f"{name!r} is not the name of a file of a revision")
    except (ValueError, DamagedError) as error:
        raise _damaged(path, error) from None
    return journal


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


# --- appends and their removal --------------------------------------------------------------------


def unlisted_files(journal: Journal, manifest: Manifest) -> list[str]:
    """Return the files of a journal that do not belong to the dataset."""
    listed = {*own_files(manifest), *(file.name for file in manifest.shard_files)}
    return [name for name in journal.files if name not in listed]


def own_files(manifest: Manifest) -> Sequence[str]:
    """Return the names of lists and manifests up to this revision, except ``manifest.json``."""
    numbers = range(manifest.revision + 1)
    names = [old_manifest_name(number) for number in numbers[:-1]]
    for name in (SHARD_LIST_NAME, REJECTED_NAME):
        names += [numbered(name, number) for number in numbers]
    return names
