"""Find the damaged files of one shard, and rebuild those that the shard determines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from dataprep import storage
from dataprep.repair.rebuild import rebuild
from dataprep.verify.shard import manifest_of
from manifests.errors import DamagedError, DatasetError, StoppedError, StorageError
from manifests.revisions import part_of
from manifests.schema import File, Shard

_SET_SRC = (
    "set --src to the source of the dataset to make the file again, or restore it from a copy"
)


class DamagedFile(NamedTuple):
    """A damaged or missing file, and what `repair_dataset` did about it.

    Attributes:
        file: path relative to the dataset folder.
        damage: what is wrong with it.
        repair: how it was repaired, or will be without `dry_run`; empty if it cannot be.
        reason: why it cannot be repaired.
        hint: what to do instead.

    """

    file: str
    damage: str
    repair: str = ""
    reason: str = ""
    hint: str = ""


class CheckTask(NamedTuple):
    """A shard to repair from its own bytes.

    Attributes:
        folder: the dataset folder.
        shard: the shard with its index and table, from the manifest.
        dry_run: change nothing.
        revision: the revision that added the shard.

    """

    folder: str
    shard: Shard
    dry_run: bool
    revision: int = 0


def check_shard(task: CheckTask) -> tuple[str, list[DamagedFile]]:
    """Check the files of one shard, and rebuild index and table if the shard is intact.

    Return what was found.
    """
    manifest, shard = manifest_of(task.folder), task.shard
    damages = {
        file.name: damage_of(task.folder, file) for file in (shard.file, shard.index, shard.table)
    }
    damages = {name: damage for name, damage in damages.items() if damage}
    is_intact = shard.name not in damages
    rebuilt: Mapping[str, bytes] = {}
    reason = "the shard itself is damaged"
    if damages and is_intact:
        reason = "what the shard contains does not determine its content"
        try:
            rebuilt = rebuild(task.folder, part_of(manifest, task.revision), shard, task.revision)
        except StoppedError:
            raise
        except DatasetError as error:
            reason = f"the shard cannot be read ({error.message})"
    hint = (
        _SET_SRC
        if manifest.creator == "convert"
        else "restore the file from a copy, or run `dataprep index` again"
    )
    files = []
    for name, damage in damages.items():
        if name in rebuilt:
            if not task.dry_run:
                storage.replace_file(os.path.join(task.folder, name), rebuilt[name])
            files.append(DamagedFile(name, damage, repair=f"rebuilt from {shard.name}"))
        elif name == shard.name:
            files.append(
                DamagedFile(
                    name, damage, reason="a shard can only be made from its source", hint=hint
                )
            )
        else:
            files.append(DamagedFile(name, damage, reason=reason, hint=hint))
    return shard.name, files


def damage_of(folder: str, file: File) -> str:
    """Return what is wrong with a file; empty if it is as the manifest says.

    Raises:
        StorageError: it exists, but cannot be read.

    """
    path = os.path.join(folder, file.name)
    try:
        actual = storage.describe(folder, file.name)
    except StorageError:
        if storage.file_length(path) >= 0:
            raise
        return "the file is missing"
    except DamagedError as error:
        return error.message
    if actual.bytes != file.bytes:
        return f"the file has {actual.bytes} bytes, but the manifest states {file.bytes}"
    return (
        "the file does not match its checksum"
        if file.checksum not in (None, actual.checksum)
        else ""
    )
