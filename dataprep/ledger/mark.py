"""The file `APPEND_MARK_NAME`: the names of files that an append writes, or that its removal removes.

While it exists, ``manifest.json`` is intact, so readers are not disturbed. It proves whose files
are, because it is written when no file has one of its names, and it keeps other machines from
appending to the same object store.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from dataprep import storage
from manifests.errors import DamagedError, ManifestError
from manifests.files import MANIFEST, read_file
from manifests.json_members import Member, MemberError, parse_json
from manifests.revisions import APPEND_MARK_NAME, REVISION_FILE, numbered, old_manifest_name
from manifests.schema import Manifest
from manifests.store import REJECTED_NAME, SHARD_LIST_NAME

#: What the command that wrote the mark does.
Action = Literal["append", "revert"]

_NOTES: Mapping[Action, str] = {
    "append": (
        "dataprep convert --append, or plan --append with work and finish, has not ended. Run the"
        " same commands again to finish it, or dataprep revert to remove what they wrote. The"
        " dataset itself is complete."
    ),
    "revert": "dataprep revert has not ended. Run it again.",
}

#: A shard, its index or its table. Nothing else, and nothing in another folder, is ever removed.
_SHARD_FILE = re.compile(r"[^/\0]+-[0-9]{5,}\.(tfrecord|tar|idx|parquet)")


@dataclass(frozen=True, slots=True)
class Mark:
    """What the mark says.

    Attributes:
        action: what the command does.
        plan: fingerprint of the plan of an append; of a removal, the digest of the manifest that it
            removes.
        files: the files that are not part of the dataset unless its manifest lists them.
        stamps: digest of the times of the source images of each shard, by its name; see
            `dataprep.ledger.journal`.

    """

    action: Action
    plan: str
    files: tuple[str, ...]
    stamps: Mapping[str, str] = field(default_factory=dict)


def mark_bytes(mark: Mark) -> bytes:
    """Serialize a mark."""
    members = {
        "note": _NOTES[mark.action],
        "action": mark.action,
        "plan": mark.plan,
        "stamps": dict(mark.stamps),
        "files": list(mark.files),
    }
    return (json.dumps(members, indent=1) + "\n").encode()


def read_mark(out: str) -> Mark | None:
    """Read the mark of a dataset; `None` if there is none.

    Raises:
        ManifestError: it is damaged.

    """
    path = os.path.join(out, APPEND_MARK_NAME)
    try:
        body = parse_json(read_file(path, MANIFEST))
        return _parse(body)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, DamagedError) as error:
        message = f"the record of an interrupted append is damaged or cannot be read ({error})"
        hint = "remove it, then the files that `dataprep verify` reports as not in the manifest"
        raise ManifestError(message, file=path, hint=hint) from None


def _parse(body: Member) -> Mark:
    files = body["files"].texts()
    for name in files:
        if not (_SHARD_FILE.fullmatch(name) or REVISION_FILE.fullmatch(name)):
            raise MemberError(f"{name!r} is not the name of a file of a revision")
    stamps = {name: member.text() for name, member in body["stamps"].members().items()}
    return Mark(body["action"].one_of(get_args(Action)), body["plan"].text(), files, stamps)


def create_mark(out: str, mark: Mark) -> bool:
    """Write the mark unless there is one; return whether it was written.

    Only one of several processes succeeds.

    Raises:
        CallError: the object store ignores conditions, so another process could succeed too.

    """
    storage.make_folder(out)  # it exists; of an object store, this checks the conditions
    return storage.create_file(os.path.join(out, APPEND_MARK_NAME), mark_bytes(mark))


def remove_mark(out: str, plan: str) -> None:
    """Remove the mark of a plan.

    In an object store, another process may have removed it already, and another append may have
    begun: its mark stays.
    """
    mark = read_mark(out)
    if mark is not None and mark.plan == plan:
        storage.remove(os.path.join(out, APPEND_MARK_NAME))


def is_committed(mark: Mark, manifest: Manifest) -> bool:
    """Return whether the newest revision is that of the mark: its append was killed after it wrote the manifest."""
    return bool(manifest.revisions) and manifest.revisions[-1].options.get("plan") == mark.plan


def unlisted_files(mark: Mark, manifest: Manifest) -> list[str]:
    """Return the files of a mark that do not belong to the dataset."""
    listed = {
        file.name for split in manifest.splits for shard in split.shards for file in shard.files
    }
    listed.update(own_files(manifest))
    return [name for name in mark.files if name not in listed]


def own_files(manifest: Manifest) -> Sequence[str]:
    """Return the names that lists and manifests of this revision and older ones can have, except ``manifest.json``."""
    numbers = range(manifest.revision + 1)
    lists = [
        numbered(name, number) for name in (SHARD_LIST_NAME, REJECTED_NAME) for number in numbers
    ]
    return [*map(old_manifest_name, numbers[:-1]), *lists]
