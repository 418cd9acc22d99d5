"""Mark an output folder as incomplete before the first shard, and as complete after the last one.

A plan's fingerprint contains the sizes of the source images but no times, so a copy of the source
gives the same dataset. Times and inodes are recorded apart, in `STAMPS_NAME`: one digest for each
shard. Where a digest differs, the checksums in the sample table tell whether the images differ.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

import numpy as np

from dataprep import storage
from dataprep.options import Options
from manifests.errors import CallError, DamagedError, StorageError
from manifests.files import MANIFEST, read_file
from manifests.process.text import printable
from manifests.remote.url import is_url
from manifests.schema import Manifest
from manifests.store import MANIFEST_NAME, SHARD_LIST_NAME, manifest_files

if TYPE_CHECKING:  # both import Arrow's functions, which `dataprep index` does not need
    from dataprep.plan.assign import ConversionPlan
    from dataprep.sources import Source

#: Marks an incomplete dataset: JSON whose member ``options`` contains the fingerprint of the plan.
INCOMPLETE_NAME = "manifest.incomplete.json"


class Plan(Protocol):
    """What a mark needs to know of a plan."""

    @property
    def fingerprint(self) -> str:
        """Digest of everything that determines the bytes."""


def mark_incomplete(
    out: str, plan: Plan, options: Options, *, overwrite: bool = False, removing: bool = False
) -> None:
    """Write `INCOMPLETE_NAME`.

    With `overwrite`, the same call resumes this run instead of starting over, unless the run is
    still `removing` the files that it overwrites.
    """
    note = "dataprep convert has not completed this dataset. Run the same command again to resume."
    members = {
        "note": note,
        "overwrite": overwrite and not removing,
        "options": {**options.as_json(), "plan": plan.fingerprint},
    }
    storage.replace_file(
        os.path.join(out, INCOMPLETE_NAME), (json.dumps(members, indent=1) + "\n").encode()
    )


def read_incomplete(out: str) -> tuple[str, bool] | None:
    """Return the fingerprint in `INCOMPLETE_NAME`, and whether its run overwrites.

    `None` if there is no such file.
    """
    try:
        members = json.loads(read_file(os.path.join(out, INCOMPLETE_NAME), MANIFEST))
        return str(members["options"]["plan"]), members["overwrite"] is True
    except (OSError, ValueError, TypeError, KeyError, RecursionError, DamagedError):
        return None


def owns_names(out: str, fingerprint: str) -> bool:
    """Return whether all files with the names of a plan's shards are from this plan, also those without a table.

    In an object store, the table of a killed run may be on another machine. But before a run writes
    its mark, it checks that all files of these names are its own, or is about to replace them.
    """
    mark = read_incomplete(out) if is_url(out) else None
    return mark is not None and mark[0] == fingerprint


def mark_complete(out: str, manifest: Manifest, obsolete: Iterable[str] = ()) -> None:
    """Write ``manifest.json``, unless it already exists, and remove `INCOMPLETE_NAME` and files that are obsolete then.

    On a file system, the manifest is renamed twice: first to `INCOMPLETE_NAME`, then to its own
    name. So a kill never leaves a complete dataset with `INCOMPLETE_NAME` or obsolete files, or an
    incomplete dataset without the mark. In an object store, a kill may leave all of them; see
    `remove_incomplete`.
    """
    path, marker = os.path.join(out, MANIFEST_NAME), os.path.join(out, INCOMPLETE_NAME)
    *others, (_, data) = manifest_files(manifest).items()
    for name, content in others:
        storage.replace_file(os.path.join(out, name), content)
    if not others:
        storage.remove(os.path.join(out, SHARD_LIST_NAME))
    is_written = _read_existing(path) == data
    if not is_written and is_url(out):
        storage.replace_file(path, data)
        is_written = True
    if not is_written:
        storage.write_partial(path, data)
        storage.publish_all([(storage.partial_path(path), marker)])
    for name in obsolete:
        storage.remove(os.path.join(out, name))
    if is_written:
        storage.remove(marker)
        return
    try:
        storage.publish_all([(marker, path)])
    except StorageError:
        if (
            _read_existing(path) != data
        ):  # else another process that finishes the same dataset was faster
            raise


def remove_incomplete(out: str) -> None:
    """Remove `INCOMPLETE_NAME` of a complete dataset: a run was killed before it did."""
    marker = os.path.join(out, INCOMPLETE_NAME)
    if storage.is_file(marker):
        storage.remove(marker)


def _read_existing(path: str) -> bytes | None:
    try:
        return read_file(path, MANIFEST)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CallError(
            f"--out: {printable(path)} cannot be read ({error.strerror})", hint="move it away"
        ) from None


# --- the source images ----------------------------------------------------------------------------


#: Its content depends on the machine; that of no other file does. Without it, a rerun compares
#: checksums.
STAMPS_NAME = "source-stamps.json"


def stamps_of(source: Source, plan: ConversionPlan) -> dict[str, str]:
    """Return a digest for each shard: of size, modification time and inode of its images.

    Empty if not known.
    """
    if source.stamp is None:
        return {}
    stats = np.column_stack([source.size, source.stamp]).astype("<i8")
    return {
        shard.name: hashlib.blake2b(stats[shard.rows].tobytes(), digest_size=16).hexdigest()
        for shard in plan.shards
    }


def read_stamps(out: str, plan: ConversionPlan) -> dict[str, str]:
    """Return the digests that an earlier run of this plan recorded; empty if there are none."""
    try:
        members = json.loads(read_file(os.path.join(out, STAMPS_NAME), MANIFEST))
        return dict(members["shards"]) if members["plan"] == plan.fingerprint else {}
    except (OSError, ValueError, TypeError, KeyError, RecursionError, DamagedError):
        return {}


def write_stamps(out: str, plan: ConversionPlan, stamps: Mapping[str, str]) -> None:
    """Record the digests of all shards, those to write and those that are kept."""
    note = (
        "Digests of the sizes, times and inodes of the source images. dataprep convert compares"
        " them when it resumes."
    )
    members = {"note": note, "plan": plan.fingerprint, "shards": dict(stamps)}
    storage.replace_file(
        os.path.join(out, STAMPS_NAME), (json.dumps(members, indent=1) + "\n").encode()
    )
